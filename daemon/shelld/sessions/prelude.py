"""What bash runs before its command: it makes the state, and has the new one reported at the end.

Pure. Owns the text of the *prelude*, which bash runs as its startup file (BASH_ENV), so that the
command remains the argument of `-c`, with all that shows of it.

A prelude names builtins as such, because functions of these names may be there by then, and traces
nothing. The options of `set` come last.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.sessions.dump import GLOBALS_WORD, TRAPS_VARIABLE, dump_program
from shelld.sessions.quoting import quote
from shelld.sessions.scripts import lines_of
from shelld.sessions.state import ShellState

# Matches every command that may set a trap. No word of another command can stand for `trap`.
_MAY_TRAP: Final = re.compile(rb"trap|eval|source|(?:^|[\s;&|(){}!])\.[ \t]")
_WORD: Final = re.compile(rb"[^\s;&|<>(){}$`'\"\\]+")
# To look at the words of a longer command takes time from others.
_MAX_WORDS_BYTES: Final = 64 * 1024
# The function `trap`, for a command that may set traps.
_WRAPPER: Final = b" ".join(lines_of("trap.bash")).replace(b"TABLE", TRAPS_VARIABLE)

# With these in its environment, bash would run another startup file, or none.
_WITHHELD: Final[tuple[bytes, ...]] = (b"BASH_ENV", b"POSIXLY_CORRECT")


def startable(env: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return what of `env` a bash with a prelude is started with, and what that has to set."""
    entries = env.copy()
    withheld = {name: entries.pop(name) for name in _WITHHELD if name in env}
    return entries, withheld


def may_trap(command: bytes, state: ShellState) -> bool:
    """Whether a command may set or list traps: itself, or by what it calls."""
    if _MAY_TRAP.search(command):
        return True
    if not state.sets_traps:
        return False
    return len(command) > _MAX_WORDS_BYTES or not state.names.isdisjoint(_WORD.findall(command))


def dump_at_exit(
    path: str, own_directory: str, mark: bytes, *, shares_trap: bool, before_dump: bytes = b""
) -> bytes:
    """Return the lines that make bash write, after its command, what it leaves behind to `path`.

    `own_directory` is a path to the daemon's directory. `mark`, of letters and digits, is what bash
    writes after its state. `shares_trap`: the command may set
    a trap on EXIT, too. `before_dump`: commands that run before bash tells of its
    functions, once nothing of the command can interfere, each with "; " at its end.
    """
    # The trap's own text cannot be protected, so all of it is one command that `set -e` and a trap
    # on ERR pass by. In a restricted shell, it cannot write to a file: as stderr is closed first,
    # nothing is said about that. A trace goes to /dev/null. A command that says so would be traced
    # itself, so an expansion does; and bash accepts only a descriptor that is open by then. The
    # file may have what bash told before its command.
    trace = rb'2>"/dev/null${BASH_XTRACEFD:+${-:$((BASH_XTRACEFD=2)):0}}"'
    # A child that a signal ends between fork and exec runs its parent's trap on EXIT. There the
    # path names no descriptor, so that it writes nothing.
    directory, _, descriptor = path.encode().rpartition(b"/")
    file = rb'"%s/$((${BASHPID-$$}==$$?%s:-1))"' % (directory, descriptor)
    redirections = rb"2>&- 2>/dev/null >>%s %s" % (file, trace)
    end = rb"; \builtin printf " + mark
    program = dump_program(own_directory.encode(), before_functions=before_dump)
    if not shares_trap:
        return _trap(program + end, redirections)
    begin = rb"\builtin unset -f trap; "
    line = _trap(begin + program + end, redirections)
    texts = {b"GLOBALS": GLOBALS_WORD, b"BEFORE": quote(before_dump)}
    table = b" ".join(b"[%s]=%s" % item for item in texts.items())
    program = dump_program(
        own_directory.encode(),
        globals_word=_in_table(b"GLOBALS"),
        before_functions=rb"\builtin eval %s; " % _in_table(b"BEFORE") if before_dump else b"",
    )
    dump = begin + program + end
    wrapper = _WRAPPER.replace(b"REDIRECTIONS", quote(redirections))
    wrapper = wrapper.replace(b"DUMP", quote(dump)).replace(b"TEXTS", table)
    return b"%s\n%s" % (wrapper, line)


def _trap(dump: bytes, redirections: bytes) -> bytes:
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
) -> bytes:
    """Return the lines that a bash runs before its command, from `descriptor`, as its BASH_ENV.

    `withheld` as from `startable`. `startup_file`: the BASH_ENV that it would have run instead, if
    any; it may not be there. `recording`: from `dump_at_exit`. `before_options`: more lines, which
    run when all but the options of `set` is there.
    """
    lines = b"\\exec %d<&-\n" % descriptor + _first_lines(withheld) + recording
    if startup_file:
        path = quote(startup_file if b"/" in startup_file else b"./" + startup_file)
        lines += b"if [[ -e %s ]]; then \\builtin . %s; fi\n" % (path, path)
    lines += state.script + _exported(withheld, b"POSIXLY_CORRECT")
    return lines + before_options + state.options


def waiting_prelude(
    state: ShellState, descriptor: int, withheld: dict[bytes, bytes], last_word: bytes
) -> bytes:
    """Return the lines with which a spare shell makes a state and waits for `last_lines`.

    It runs this from `descriptor`. The last lines come from a pipe, the next descriptor: bash reads
    it to its end before it runs any of them. `last_word` is what its command will find in ``$_``.

    Without its last lines, bash would run its command in another state. So it closes a descriptor
    to have one free for them, and ends if it still cannot open them.
    """
    return b"".join(
        (
            b"\\exec %d<&-\n" % descriptor,
            _first_lines(withheld),
            state.script,
            # If no last lines come, because the daemon has ended, the placeholder runs this.
            b"BASH_EXECUTION_STRING=\n",
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
) -> bytes:
    """Return the lines that a spare shell, whose prelude is on `descriptor`, runs last."""
    return b"".join(
        (
            # Only a bash that could not open these lines was to end.
            b"\\builtin set +e\n",
            b"\\exec %d<&-\n" % (descriptor + 1),
            # As if it had started now, with this command.
            b"BASH_EXECUTION_STRING=%s\n" % quote(command),
            # Unless the session has unset it. ([[ -v SECONDS ]] would make it an integer.)
            b"" if b"SECONDS" in state.declarations else b"SECONDS=0\n",
            recording,
            _exported(withheld, b"POSIXLY_CORRECT"),
            state.options,
        )
    )


def _first_lines(withheld: dict[bytes, bytes]) -> bytes:
    return b"\\builtin unset BASH_ENV\n" + _exported(withheld, b"BASH_ENV")


def _exported(withheld: dict[bytes, bytes], name: bytes) -> bytes:
    """Return the line that sets a variable that bash was not started with.

    In posix mode some functions cannot be defined, so that variable is set after them.
    """
    if name not in withheld:
        return b""
    return b"\\builtin export %s=%s\n" % (name, quote(withheld[name]))
