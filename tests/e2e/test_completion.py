"""``shelld completion`` prints scripts with which bash, zsh and fish complete words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shelld.cli.commands import SUBCOMMANDS
from shelld.cli.completion import WORDS, completion
from shelld.cli.mcp_config import HOSTS
from shelld.cli.parser import option_parser

# This script completes the words in its arguments, and prints the candidates.
COMPLETE_IN_BASH = """
source "$1"; shift
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shelld shelld "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}"
exit 0
"""

# Each case has the words before the cursor, candidates that must be offered, and candidates that
# must not be offered.
CASES: list[tuple[list[str], list[str], list[str]]] = [
    (["--gu"], ["--guard", "--guard-rules"], ["--grace", "run"]),
    (["do"], ["doctor"], ["--guard"]),
    (["--guard", ""], ["block", "strict", "warn", "off"], ["--guard"]),
    (["--guard", "st"], ["strict"], ["block"]),
    (["--log-level", "w"], ["warning"], []),
    (["run", "--t"], ["--timeout", "--tty"], ["--json"]),
    (["run", "--gua"], ["--guard"], []),
    (["mcp-config", "c"], ["claude-code", "codex", "cursor"], ["zed"]),
    (["doctor", "--j"], ["--json"], []),
    (["help", "exp"], ["explain"], []),
    (["completion", ""], ["bash", "zsh", "fish"], []),
    (["shell", "--gua"], ["--guard"], ["--tty"]),
    (["run", "--", "bas"], ["bash"], ["--guard"]),
    (["run", "bas"], ["bash"], ["--guard"]),
    (["attach", "--", "--gu"], ["--guard", "--guard-rules"], ["--linger"]),
    (["attach", "--", "--guard", "st"], ["strict"], ["block"]),
    (["doctor", "--", "--gu"], ["--guard"], ["--json"]),
]


def script_for(shell: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    assert completion([shell]) == 0
    path = tmp_path / f"script.{shell}"
    path.write_text(capfd.readouterr().out)
    return path


def complete_in_bash(script: Path, *words: str) -> list[str]:
    command = ["bash", "--norc", "-c", COMPLETE_IN_BASH, "bash", str(script), "shelld", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent)
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def check(found: list[str], expected: list[str], others: list[str]) -> None:
    assert set(expected) <= set(found)
    assert not set(others) & set(found)


def test_bash_completes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = script_for("bash", tmp_path, capfd)
    for words, expected, others in CASES:
        check(complete_in_bash(script, *words), expected, others)
    # Bash splits --guard=st and --guard= into these words.
    assert complete_in_bash(script, "--guard", "=", "st") == ["strict"]
    assert complete_in_bash(script, "--guard", "=") == ["block", "strict", "warn", "off"]
    # The options after `--` belong to the daemon, so the script again offers the daemon's options.
    assert "--guard" in complete_in_bash(script, "mcp-config", "zed", "--", "--gu")
    (tmp_path / "rules.toml").touch()
    (tmp_path / "folder").mkdir()
    for words in (["--guard-rules"], ["explain", "--guard-rules"], ["bundle", "-o"]):
        assert complete_in_bash(script, *words, "ru") == ["rules.toml"]
    assert "folder" in complete_in_bash(script, "run", "ls", "")
    assert complete_in_bash(script, "--spool-dir", "") == ["folder"]
    assert complete_in_bash(script, "--grace", "") == []


def test_bash_loads_the_script_by_eval(tmp_path: Path) -> None:
    program = f"{sys.executable} -P -m shelld"
    line = f'eval "$({program} completion bash)" && complete -p shelld'
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert ended.stdout == "complete -F _shelld shelld\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = script_for("fish", tmp_path, capfd)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    cases: list[tuple[list[str], list[str], list[str]]] = [
        *CASES,
        (["--guard", ""], ["block"], ["file"]),
        (["--grace", ""], [], ["file"]),
        (["--guard-rules", ""], ["file"], []),
        (["--spool-dir", ""], ["folder/"], ["file"]),
        (["run", "--cwd", ""], ["folder/"], ["file"]),
        (["run", "--", "cat", "help", ""], ["file"], ["doctor"]),
        (["run", "--", "list", "-"], [], ["--json"]),
        (["run", "cat", ""], ["file"], ["doctor"]),
        (["run", "list", "-"], [], ["--json", "--guard", "--tty"]),
        (["attach", "--", ""], [], ["file", "doctor", "--linger"]),
        (["explain", "--guard-rules", ""], ["file"], ["--help"]),
        (["bundle", "-o", ""], ["file"], ["--help"]),
    ]
    lines = [f"echo '==='; complete -C'shelld {' '.join(words)}'" for words, _, _ in cases]
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = ["fish", "--no-config", "-c", f"source {script}; {'; '.join(lines)}"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    answers = ended.stdout.split("===\n")[1:]
    for (_, expected, others), answer in zip(cases, answers, strict=True):
        check([line.partition("\t")[0] for line in answer.splitlines()], expected, others)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = script_for("zsh", tmp_path, capfd)
    # Only a line editor shows candidates, so the test replaces the functions to which the script
    # passes its candidates.
    watched = """
    compdef() { :; }
    source $1
    _describe() { print -l -- ${(P)${2}%%:*}; }
    _arguments() { print -l -- "${@%%[=\\[]*}"; }
    compadd() { shift; print -l -- "$@"; }
    words=(shelld "${@[2,-1]}"); CURRENT=$#words
    _shelld
    """
    for words, expected in [
        (["d"], list(SUBCOMMANDS)),
        (["--gu"], ["--guard", "--max-shells"]),
        (["run", "--ti"], ["--guard", "--timeout"]),
        (["mcp-config", ""], list(HOSTS)),
    ]:
        command = ["zsh", "-f", "-c", watched, "zsh", str(script), *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ended.stderr == ""
        check(ended.stdout.splitlines(), expected, [])


# This script types its arguments into a zsh of its own, and prints what that zsh lists.
COMPLETE_IN_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit; compinit -D -u; PROMPT=; unsetopt zle_bracketed_paste
stty cols 200; LISTMAX=1000; list() { zle list-choices; zle -R; print -n EN""D > /dev/tty; }
zle-line-init() { print -n BEG""IN > /dev/tty; }; zle -N zle-line-init
zle -N list; bindkey "^E" list; source '${(q)1}
# Before the line editor has begun, the terminal would handle keys such as Ctrl-U itself.
zpty -r -m shell shown '*BEGIN*'
for line in "${@[2,-1]}"; do
    zpty -n -w shell "$line"$'\\x05'
    zpty -r -m shell shown '*END*'
    print -r -- "===$shown"
    zpty -n -w shell $'\\x15'
done
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_line_editor_of_zsh_lists_candidates(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = script_for("zsh", tmp_path, capfd)
    (tmp_path / "dance").mkdir()
    (tmp_path / "dusk").mkdir()
    cases = {
        "run --gu": ["--guard", "--guard-rules"],
        "run --guard ": ["block", "strict", "warn", "off"],
        "run --cwd d": ["dance/", "dusk/"],
        "shell --gua": ["--guard", "--guard-rules"],
        "run -- ba": ["basename", "bash"],
        "run -q ba": ["basename", "bash"],
        "run -- cat d": ["dance/", "dusk/"],
        "run cat d": ["dance/", "dusk/"],
        "run cat -- d": ["dance/", "dusk/"],
        "attach -- --gu": ["--guard", "--guard-rules"],
        "doctor -- --guard ": ["block", "strict", "warn", "off"],
        "explain --guard-rules d": ["dance/", "dusk/"],
        "explain --guard-rules=d": ["dance/", "dusk/"],
        "bundle -o d": ["dance/", "dusk/"],
    }
    lines = [f"shelld {words}" for words in cases]
    command = ["zsh", "-f", "-c", COMPLETE_IN_ZSH, "zsh", str(script), *lines]
    ended = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60, check=True)
    answers = ended.stdout.decode(errors="replace").split("===")[1:]
    for expected, answer in zip(cases.values(), answers, strict=True):
        check(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", answer).split(), expected, [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_every_option_and_command(
    shell: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = script_for(shell, tmp_path, capfd).read_text()
    for action in option_parser()._actions:  # pyright: ignore[reportPrivateUsage]
        for flag in action.option_strings:
            word = flag if shell != "fish" else f"-{'sl'[flag.startswith('--')]} {flag.lstrip('-')}"
            assert word in text
    assert {*WORDS, "run", "shell"} == SUBCOMMANDS.keys()
    for name in SUBCOMMANDS:
        assert name in text


def test_description_of_an_option_is_not_one_of_its_values(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = script_for("fish", tmp_path, capfd).read_text()
    descriptions = re.findall(r"-d '(.+)'$", text, re.MULTILINE)
    assert len(descriptions) > len(SUBCOMMANDS)
    assert [each for each in descriptions if " " not in each] == []
