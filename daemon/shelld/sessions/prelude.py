"""The *prelude*: the lines that bash runs before its command.

These lines restore the session's state, and make bash report its new state when bash ends. Bash
runs the lines as its startup file (BASH_ENV). So the command remains the argument of `-c`, and
messages and ``$0`` are as under ``bash -c``. This module is pure.

A prelude calls builtins with `\\builtin`, because a function may have the name of a builtin. The
options of `set` come last, so that bash does not trace the prelude.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from shelld.sessions.dump import (
    FUNCTIONS_WORD,
    GLOBALS_WORD,
    TRAPS_VARIABLE,
    dump_program,
    short_dump_program,
)
from shelld.sessions.quoting import quote
from shelld.sessions.scripts import lines_of
from shelld.sessions.state import ShellState

# Matches every command whose own text may set a trap. For functions and aliases, see `sets_traps`.
_MAY_TRAP: Final = re.compile(rb"trap|eval|source|(?:^|[\s;&|(){}!])\.[ \t]")
# Matches every command that contains the definition of a function.
_DEFINES: Final = re.compile(rb"\([\s\\]*\)|function")
# Matches every command with a construct that bash may print wrongly, see functions.bash.
_MISPRINTED: Final = re.compile(
    rb"<<|\((?:[ \t]|\\\n)*esac|coproc|(?:\btime|!)(?:[ \t]|\\\n|-p|--)*[#\n]"
)
_WORD: Final = re.compile(rb"[^\s;&|<>(){}$`'\"\\]+")
# The maximum length of a command that is split into words. A longer command would delay other
# requests.
_MAX_WORDS_BYTES: Final = 64 * 1024
# If a command may set traps, this function replaces the builtin `trap`.
_WRAPPER: Final = b" ".join(lines_of("trap.bash")).replace(b"TABLE", TRAPS_VARIABLE)

# With one of these variables in its environment, bash may start in posix mode, or with ~/.bashrc
# instead of BASH_ENV. Debian and other distributions build bash so that it reads ~/.bashrc for
# commands that sshd starts.
_UNWANTED: Final[tuple[bytes, ...]] = (b"POSIX_PEDANTIC", b"SSH_CLIENT", b"SSH2_CLIENT")
# With one of these variables in its environment, bash would run another startup file, or none.
_STARTUP: Final[tuple[bytes, ...]] = (b"BASH_ENV", *_UNWANTED)
# Matches a value of BASH_ENV that is not simply a path.
_EXPANDED: Final = re.compile(rb"[$`\\]|^~")
# The lines that expand the value in ``$_``, and run the file with the resulting name.
_RUN_EXPANDED: Final = rb"""\builtin : "$(\builtin printf %s "${_@P}")"
if [[ $_ == "~" || $_ == "~/"* ]]; then \builtin : "${HOME-}${_#"~"}"; fi
if [[ $_ && $_ != */* ]]; then \builtin : "./$_"; fi
if [[ -d $_ ]]; then \builtin printf "bash: %s: is a directory\n" "$_" >&2
elif [[ -e $_ ]]; then \builtin . "$_"; fi
"""
# Switches off options that a startup file may have set, and options that would change or show the
# lines after this one. The options of the session are set last.
_RESET_OPTIONS: Final = b"{ \\builtin set +aekpuvx; } 2>/dev/null\n"
_WITHHELD: Final[tuple[bytes, ...]] = (*_STARTUP, b"POSIXLY_CORRECT")


def startable(env: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the part of `env` with which bash starts, and the part that its prelude sets."""
    entries = env.copy()
    withheld = {name: entries.pop(name) for name in _WITHHELD if name in env}
    return entries, withheld


def needs_prelude(env: dict[bytes, bytes]) -> bool:
    """Return whether `env` may make bash start in posix mode, or run ~/.bashrc at its start."""
    return any(name in env for name in _UNWANTED)


def may_trap(command: bytes, state: ShellState) -> bool:
    """Return whether a command, or a function that it calls, may set or list traps."""
    if _MAY_TRAP.search(command):
        return True
    if not state.sets_traps:
        return False
    return len(command) > _MAX_WORDS_BYTES or not state.names.isdisjoint(_WORD.findall(command))


def may_define_misprinted(command: bytes) -> bool:
    """Return whether the text of a command may define a function that bash prints wrongly."""
    return _DEFINES.search(command) is not None and _MISPRINTED.search(command) is not None


def dump_at_exit(
    path: str,
    own_directory: str,
    mark: bytes,
    *,
    shares_trap: bool,
    checks_functions: bool = False,
    lists_options: bool = True,
    before_dump: bytes = b"",
) -> bytes:
    """Return the lines that make bash write its state to `path` after its command has ended.

    `own_directory` is a path to the daemon's directory. After its state, bash writes `mark`, which
    has only letters and digits. `shares_trap`: the command may also set a trap on EXIT.
    `checks_functions`: whether bash checks that it can read the functions that it prints.
    `lists_options`: see `dump_program`. `before_dump`: see `before_functions` there.
    """
    redirections = _to_file(path)
    end = rb"; \builtin printf " + mark
    program = dump_program(
        own_directory.encode(),
        functions_word=FUNCTIONS_WORD if checks_functions else b"",
        before_functions=before_dump,
        lists_options=lists_options,
    )
    if not shares_trap:
        return _trap(program + end, redirections)
    begin = rb"\builtin unset -f trap; "
    line = _trap(begin + program + end, redirections)
    texts = {
        b"GLOBALS": GLOBALS_WORD,
        b"FUNCTIONS": FUNCTIONS_WORD,
        b"BEFORE": quote(before_dump),
    }
    table = b" ".join(b"[%s]=%s" % item for item in texts.items())
    program = dump_program(
        own_directory.encode(),
        globals_word=_in_table(b"GLOBALS"),
        functions_word=_in_table(b"FUNCTIONS") if checks_functions else b"",
        before_functions=rb"\builtin eval %s; " % _in_table(b"BEFORE") if before_dump else b"",
        lists_options=lists_options,
    )
    dump = begin + program + end
    wrapper = _WRAPPER.replace(b"REDIRECTIONS", quote(redirections))
    wrapper = wrapper.replace(b"DUMP", quote(dump)).replace(b"TEXTS", table)
    return b"%s\n%s" % (wrapper, line)


def short_dump_at_exit(
    path: str, own_directory: str, mark: bytes, *, names: frozenset[bytes]
) -> bytes:
    """Return lines that make bash report only the variables `names` and the directory.

    In all other respects, these lines are like the lines of `dump_at_exit`.
    """
    program = short_dump_program(names, own_directory.encode())
    return _trap(program + rb"; \builtin printf " + mark, _to_file(path))


def _to_file(path: str) -> bytes:
    """Return the redirections with which a trap on EXIT writes to `path`."""
    # A restricted shell cannot write to a file. It prints an error, which is lost because stderr is
    # closed first. Traces go to /dev/null. An expansion redirects the traces, because bash would
    # trace a command that redirects them. Bash accepts a descriptor in BASH_XTRACEFD only if it is
    # open, so stderr is first opened again. The redirection to the file appends, because the file
    # may hold the report that bash made before its command.
    trace = rb'2>"/dev/null${BASH_XTRACEFD:+${-:$((BASH_XTRACEFD=2)):0}}"'
    # If a signal ends a child between fork and exec, the child runs its parent's trap on EXIT. In a
    # child, the path below names no descriptor, so the trap writes nothing.
    directory, _, descriptor = path.encode().rpartition(b"/")
    file = rb'"%s/$((${BASHPID-$$}==$$?%s:-1))"' % (directory, descriptor)
    return rb"2>&- 2>/dev/null >>%s %s" % (file, trace)


def _trap(dump: bytes, redirections: bytes) -> bytes:
    # `set -e` and a trap on ERR also apply to the text of a trap, but not to a command after `!`.
    return b"\\builtin trap %s EXIT\n" % quote(b"! { %s; } %s" % (dump, redirections))


def _in_table(name: bytes) -> bytes:
    return b'"${%s[%s]}"' % (TRAPS_VARIABLE, name)


def prelude(
    state: ShellState,
    descriptor: int,
    withheld: dict[bytes, bytes],
    startup_file: bytes = b"",
    recording: bytes = b"",
    *,
    before_options: bytes = b"",
    last_word: bytes = b"bash",
) -> bytes:
    """Return the prelude of a command. Bash reads it from `descriptor`.

    `withheld` is a result of `startable`. `startup_file`: the user's own BASH_ENV, or b""; the file
    may be missing. `recording`: the result of `dump_at_exit`. `before_options`: more lines, which
    run when everything except the options of `set` is restored. `last_word` becomes the command's
    first ``$_``.
    """
    lines = b"\\exec %d<&-\n" % descriptor + _first_lines(withheld) + recording
    if startup_file:
        lines += _run_startup_file(startup_file)
        state = _after_startup_file(state)
        if state.script:
            lines += _RESET_OPTIONS
    lines += state.script + _posix_mode(state, withheld)
    return lines + before_options + _set_options(state, last_word)


def _run_startup_file(value: bytes) -> bytes:
    """Return the lines that source the file in BASH_ENV, if the file exists.

    Bash expands the value as if the value were in double quotes, and then expands a tilde at its
    beginning. The lines do the same in a subshell, because an invalid expansion would end the
    prelude. The lines keep the path in ``$_``, so they need no variable.
    """
    if not _EXPANDED.search(value):
        path = quote(value if b"/" in value else b"./" + value)
        # When bash itself prints this error, it shows no name and no line number of its startup
        # file.
        refusal = rb'\builtin printf "bash: %s: is a directory\n" ' + quote(value) + b" >&2"
        tests = b"if [[ -d %s ]]; then %s\nelif [[ -e %s ]]; then \\builtin . %s; fi\n"
        return tests % (path, refusal, path, path)
    # `@P` treats backslashes as in a prompt, where two backslashes stand for one.
    return b"\\builtin : %s\n%s" % (quote(value.replace(b"\\", rb"\\")), _RUN_EXPANDED)


def _after_startup_file(state: ShellState) -> ShellState:
    """Return the state for a bash that has run a startup file.

    If a variable is readonly in the state, the startup file may already have made this variable
    readonly. Then the line that restores this variable fails, and bash must not print the error.
    """
    lines = {
        name: b"{ %s; } 2>/dev/null\n" % line[:-1]
        for name, line in state.declarations.items()
        if name in state.permanent
    }
    return replace(state, declarations={**state.declarations, **lines})


def waiting_prelude(
    state: ShellState, descriptor: int, withheld: dict[bytes, bytes], last_word: bytes
) -> bytes:
    """Return the prelude of a spare shell. The prelude waits for `last_lines`.

    Bash reads the prelude from `descriptor`. Bash reads the last lines from a pipe, whose
    descriptor is `descriptor` + 1. Bash reads the pipe to its end before it runs any of the last
    lines. `last_word` becomes the command's first ``$_``.

    Without the last lines, bash would run the command in the wrong state. So the prelude first
    closes `descriptor`, because bash needs a free descriptor to open the pipe. If bash still cannot
    open the pipe, it exits.
    """
    return b"".join(
        (
            b"\\exec %d<&-\n" % descriptor,
            # When bash starts, it sets this variable to the placeholder. If there are no last
            # lines, bash runs the placeholder, which evaluates the variable. So empty the variable
            # here: then bash exits, and the placeholder does not run itself again and again. There
            # are no last lines if the daemon has ended, or if bash has skipped the rest of the
            # prelude at a syntax error.
            b"BASH_EXECUTION_STRING=\n",
            _first_lines(withheld),
            state.script,
            b"\\builtin set -e\n",
            b"\\builtin . /proc/self/fd/%d %s\n" % (descriptor + 1, quote(last_word)),
        )
    )


def last_lines(
    state: ShellState,
    command: bytes,
    descriptor: int,
    withheld: dict[bytes, bytes],
    recording: bytes = b"",
    *,
    differences: bytes = b"",
) -> bytes:
    """Return the last lines of a spare shell whose prelude is on `descriptor`.

    `differences`: from `lines_between`.
    """
    return b"".join(
        (
            # Undo the prelude's `set -e`. The prelude needs it, because bash must exit if it cannot
            # open the pipe that has these lines.
            b"\\builtin set +e\n",
            b"\\exec %d<&-\n" % (descriptor + 1),
            # Set the variables to the values that they would have in a bash that has just started
            # with this command.
            b"BASH_EXECUTION_STRING=%s\n" % quote(command),
            # Reset SECONDS, unless the session has unset it. (Bash cannot check this itself,
            # because [[ -v SECONDS ]] would make SECONDS an integer.)
            b"" if b"unset" in state.declarations.get(b"SECONDS", b"") else b"SECONDS=0\n",
            differences,
            recording,
            _posix_mode(state, withheld),
            state.options,
        )
    )


def _set_options(state: ShellState, last_word: bytes) -> bytes:
    """Return the line that sets the options of `set`, and ``$_``.

    After `eval`, ``$_`` is the last argument of `eval`. In the text that `eval` runs, this argument
    is a comment. A comment ends at a newline, so only the first line of `last_word` is used.
    """
    options = state.options.removesuffix(b"\n") + b" #"
    return b"\\builtin eval %s %s\n" % (quote(options), quote(last_word.partition(b"\n")[0]))


def _posix_mode(state: ShellState, withheld: dict[bytes, bytes]) -> bytes:
    """Return the line that exports POSIXLY_CORRECT, unless the script of the state exports it.

    Posix mode forbids some function names, so this line comes after the functions are defined.
    """
    is_done = b"POSIXLY_CORRECT" in state.declarations
    return b"" if is_done else _exported(withheld, b"POSIXLY_CORRECT")


def _first_lines(withheld: dict[bytes, bytes]) -> bytes:
    set_again = (_exported(withheld, name) for name in _STARTUP)
    return b"\\builtin unset BASH_ENV\n" + b"".join(set_again)


def _exported(withheld: dict[bytes, bytes], name: bytes) -> bytes:
    """Return the line that sets a variable that was withheld from bash's environment."""
    if name not in withheld:
        return b""
    return b"\\builtin export %s=%s\n" % (name, quote(withheld[name]))
