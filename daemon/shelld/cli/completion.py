"""``shelld completion bash|zsh|fish``: print a script that completes shelld's command line.

The script is made from the parsers. It does not run shelld, so completion is instant.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from shelld.cli.arguments import ArgumentParser
from shelld.cli.commands import SUBCOMMANDS
from shelld.cli.mcp_config import HOSTS
from shelld.cli.parser import option_parser
from shelld.cli.run import run_parser
from shelld.cli.show import show

Value = Literal["none", "choice", "file", "directory", "other"]

_SHELLS: Final = ("bash", "zsh", "fish")
_KINDS: Final[dict[object, Value]] = {
    "FILE": "file",
    "PATH": "file",
    "POLICY": "file",
    "DIR": "directory",
}
# The words that may follow a subcommand. `run` and `shell` also take the daemon's options.
WORDS: Final = {
    "attach": [
        "--help",
        "--name",
        "--linger",
        "--steal",
        "--no-start",
        "--stdio",
        "--parent-pid",
        "--",
    ],
    "bundle": ["--help", "-o"],
    "completion": list(_SHELLS),
    "doctor": ["--help", "--json", "--"],
    "explain": ["--help", "--guard-rules"],
    "help": list(SUBCOMMANDS),
    "mcp-config": ["--help", "--write", "--attach", "--", *HOSTS],
    "list": ["--help", "--json"],
    "stop": ["--help"],
    "watch": ["--help", "--lines"],
}
# The subcommands in which the daemon's options follow `--`.
_SPLIT: Final = [name for name, words in WORDS.items() if "--" in words]
# For each of these subcommands, the option whose value is a file.
_FILES: Final = {"bundle": "-o", "explain": "--guard-rules"}


class _Option(NamedTuple):
    flags: list[str]
    help: str
    value: Value
    choices: list[str]


def completion(arguments: Sequence[str]) -> int:
    """Write the script for one shell to stdout; return the exit code."""
    parser = ArgumentParser(
        prog="shelld completion",
        usage="%(prog)s [-h] bash|zsh|fish",
        description="Print a script that completes the command line of shelld.",
        epilog='bash and zsh: eval "$(shelld completion bash)"; '
        "fish: shelld completion fish | source",
    )
    parser.add_argument("shell", metavar="bash|zsh|fish", choices=_SHELLS, help="the shell")
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[parser.parse_args(arguments).shell]
    return show(make(), 0)


def _options(parser: argparse.ArgumentParser) -> Iterator[_Option]:
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        value: Value = _KINDS.get(action.metavar, "other")
        if action.nargs == 0:
            value = "none"
        elif action.choices is not None:
            value = "choice"
        # Keep only the first words of the help, because colons and brackets have a meaning in zsh.
        text = re.split(r"[:;(,]", action.help or "")[0].strip()
        yield _Option([*action.option_strings], text, value, [*map(str, action.choices or ())])


def _daemon_options() -> list[_Option]:
    return [*_options(option_parser())]


def _run_options() -> list[_Option]:
    return [*_options(run_parser())]


def _flags(options: Sequence[_Option]) -> str:
    return " ".join(flag for option in options for flag in option.flags)


# -- bash -------------------------------------------------------------------------------------

_BASH: Final = """\
_shelld() {
    local word=$2 before=$3 command=${COMP_WORDS[1]} options=%(options)s i
    COMPREPLY=()
    # Bash splits --option=value into three words.
    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $word == = ]] && word=
    # Without options, the command of `shelld run` needs no `--`.
    [[ $command == run && COMP_CWORD -gt 1 && ${COMP_WORDS[2]} == [!-]* ]] && command=--run
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] && command=--${command#--}
    done
    if [[ $command == --run ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
        return
    fi
    case $before in
%(values)s
    esac
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$options %(commands)s" -- "$word")
        return
    fi
    case $command in
        run) options+=%(run)s ;;
%(words)s
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}
complete -F _shelld shelld"""


def _bash() -> str:
    options = _daemon_options()
    values: list[str] = []
    files = [_Option([flag], "", "file", []) for flag in _FILES.values()]
    for option in [*options, *_run_options(), *files]:
        made = {
            "none": "",
            "choice": f'compgen -W "{" ".join(option.choices)}" -- "$word"',
            "file": 'compgen -f -- "$word"',
            "directory": 'compgen -d -- "$word"',
            "other": ":",
        }[option.value]
        if made:
            paths = "compopt -o filenames; " if option.value in ("file", "directory") else ""
            fill = f"{paths}mapfile -t COMPREPLY < <({made}); return ;;"
            values.append(f"        {'|'.join(option.flags)}) {fill}")
    words = [
        f"        {name}) options={shlex.quote(' '.join(each))} ;;" for name, each in WORDS.items()
    ]
    return _BASH % {
        "options": shlex.quote(_flags(options)),
        "values": "\n".join(values),
        "commands": " ".join(SUBCOMMANDS),
        "run": shlex.quote(f" {_flags(_run_options())} --"),
        "words": "\n".join(words),
    }


# -- zsh --------------------------------------------------------------------------------------

_ZSH: Final = """\
#compdef shelld
_shelld() {
    # The arrays `commands` and `options` belong to zsh, and other completions read them.
    local -a shelld_commands shelld_options own
    shelld_commands=(
%(commands)s
    )
    shelld_options=(
%(options)s
    )
    own=(
%(run)s
    )
    if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
        _describe command shelld_commands
        return
    fi
    if [[ "$words[2] $words[CURRENT-1]" == (%(files)s) ]]; then
        _files
        return
    fi
    if [[ "$words[2] ${words[CURRENT]%%%%=*}" == (%(files)s) ]] && compset -P '*='; then
        _files
        return
    fi
    local -i at=${words[(i)--]}
    # Without options, the command of `shelld run` needs no `--`, and may have one of its own.
    [[ $words[2] == run && $words[3] != -* ]] && ((CURRENT > 3)) && at=2
    if [[ $words[2] == (%(split)s) ]] && ((at < CURRENT)); then
        # Options of the daemon follow. `_arguments` takes the first word for the name of a program.
        ((CURRENT -= at - 1))
        shift at-1 words
        _arguments $shelld_options
        return
    fi
    case $words[2] in
        run)
            if ((at < CURRENT)); then
                ((CURRENT -= at))
                shift at words
                _normal
            else
                # `_arguments` takes the first word for the name of a program.
                shift words
                ((CURRENT--))
                _arguments -A '-*' $own $shelld_options '(-)1:command: _command_names -e' \
                    '*::arguments: _normal'
            fi
            ;;
        shell)
            shift words
            ((CURRENT--))
            _arguments $shelld_options
            ;;
%(words)s
        *)
            _arguments $shelld_options
            ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _shelld "$@"
else
    compdef _shelld shelld
fi"""


def _zsh() -> str:
    def row(option: _Option) -> Iterator[str]:
        takes = {
            "none": "",
            "choice": f":value:({' '.join(option.choices)})",
            "file": ":file:_files",
            "directory": ":directory:_files -/",
            "other": ":value:",
        }[option.value]
        for flag in option.flags:
            equals = "=" if takes and flag.startswith("--") else ""
            yield "        " + shlex.quote(f"{flag}{equals}[{option.help}]{takes}")

    def rows(options: Sequence[_Option]) -> str:
        return "\n".join(line for option in options for line in row(option))

    words = [
        f"        {name})\n            compadd -- {shlex.join(each)}\n            ;;"
        for name, each in WORDS.items()
    ]
    return _ZSH % {
        "commands": "\n".join(
            f"        {shlex.quote(f'{name}:{purpose}')}"
            for name, (_, purpose) in SUBCOMMANDS.items()
        ),
        "options": rows(_daemon_options()),
        # A flag that is listed twice is an error.
        "run": rows([each for each in _run_options() if "--help" not in each.flags]),
        "words": "\n".join(words),
        "files": "|".join(f'"{name} {flag}"' for name, flag in _FILES.items()),
        "split": "|".join(_SPLIT),
    }


# -- fish -------------------------------------------------------------------------------------

# A condition in fish: the subcommand is one of the words that we append here. Do not use
# `__fish_seen_subcommand_from`, which would also find these words in the command of `shelld run`.
_FISH_IS_ONE_OF: Final = "contains -- (commandline -opc)[2]"

_FISH: Final = """\
complete -c shelld -f
# Whether the cursor is in the command of `shelld run`.
function __shelld_runs
    set -l words (commandline -opc) (commandline -ct)
    test (count $words) -gt 2 -a "$words[2]" = run; or return
    contains -- -- (commandline -opc); or not string match -q -- '-*' $words[3]
end
# Complete the words behind `--` as those of `shelld shell`, which takes the daemon's options.
function __shelld_options
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    complete -C "shelld shell "(string join -- ' ' (string escape -- $words[(math $at + 1)..-1]))
end"""


def _fish() -> str:
    lines = [_FISH]
    for name, (_, purpose) in SUBCOMMANDS.items():
        lines.append(
            f"complete -c shelld -n __fish_use_subcommand -a {name} -d {_fish_text(purpose)}"
        )
    before = "not contains -- -- (commandline -opc)"
    for name, words in WORDS.items():
        given = _fish_text(" ".join(word for word in words if word != "--"))
        lines.append(f"complete -c shelld -n '{_FISH_IS_ONE_OF} {name}; and {before}' -a {given}")
    for name, flag in _FILES.items():
        option = _fish_option(_Option([flag], "", "file", []))
        lines.append(f"complete -c shelld -n '{_FISH_IS_ONE_OF} {name}' {option}")
    others = _fish_text(f"not {_FISH_IS_ONE_OF} {' '.join(WORDS)}; and not __shelld_runs")
    lines += [f"complete -c shelld -n {others} {_fish_option(each)}" for each in _daemon_options()]
    own = f"'{_FISH_IS_ONE_OF} run; and not __shelld_runs'"
    lines += [f"complete -c shelld -n {own} {_fish_option(each)}" for each in _run_options()]
    lines.append(
        "complete -c shelld -n __shelld_runs -F -a '(__fish_complete_subcommand --fcs-skip=2)'"
    )
    behind = f"{_FISH_IS_ONE_OF} {' '.join(_SPLIT)}; and contains -- -- (commandline -opc)"
    lines.append(f"complete -c shelld -n '{behind}' -a '(__shelld_options)'")
    return "\n".join(lines)


def _fish_option(option: _Option) -> str:
    words = [
        f"-s {flag[1:]}" if not flag.startswith("--") else f"-l {flag[2:]}" for flag in option.flags
    ]
    if option.value == "file":
        words.append("-r")
    elif option.value != "none":
        # With -r alone, fish would offer files as well.
        words.append("-x")
    if option.value == "choice":
        words.append(f"-a {_fish_text(' '.join(option.choices))}")
    elif option.value == "file":
        words.append("-F")
    elif option.value == "directory":
        words.append("-a '(__fish_complete_directories)'")
    return " ".join([*words, f"-d {_fish_text(option.help)}"])


def _fish_text(text: str) -> str:
    """Quote a word for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
