"""What a bash runs before its command, so that it is in a state, and tells what becomes of that.

Pure. Owns the text of the *prelude*, which bash runs as its startup file (BASH_ENV), so that the
command remains the argument of `-c`, with all that shows of it.

A prelude names builtins as such, because functions of these names may be there by then, and traces
nothing. The options of `set` come last.
"""

from __future__ import annotations

from typing import Final

from shelld.shells.state import DUMP, ShellState, quote

# For a command that may set an EXIT trap of its own: that and ours become one, of which the command
# sees only its part. An error of `trap` names the command and its line.
_EXIT_TRAP: Final = b"__shelld_exit_trap"
_SHARED_TRAP: Final = b" ".join(
    (
        b"trap() { { local -; set +x; } 2>/dev/null;",
        b'if [[ $BASHPID != $$ ]]; then builtin trap "$@"; return; fi;',
        b'if [[ ${%(name)s-} ]]; then builtin trap -- "$%(name)s" EXIT;',
        b"else builtin trap - EXIT; fi;",
        b'local status=0; builtin trap "$@" 2>/dev/null || status=$?; if ((status)); then',
        b'local error=$(builtin trap "$@" 2>&1 >/dev/null);',
        b'local place="${BASH_SOURCE[1]:-$0}: line ${BASH_LINENO[0]}: ";',
        b'error=${error//"${BASH_SOURCE[0]}: line $LINENO: "/"$place"};',
        b"builtin printf '%%s\\n' \"$error\" >&2; fi;",
        b"%(name)s=$(builtin trap -p EXIT);",
        b'if [[ $%(name)s ]]; then builtin eval "set $%(name)s"; %(name)s=$3; fi;',
        b"builtin trap -- \"$%(name)s\"$'\\n'%(action)s EXIT;",
        b"return $status; }\n",
    )
)

# What bash must not be started with if it is to run the prelude: it would run another file or none.
_WITHHELD: Final[tuple[bytes, ...]] = (b"BASH_ENV", b"POSIXLY_CORRECT")


def startable(env: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return what of `env` a bash with a prelude is started with, and what that has to set."""
    withheld = {name: env[name] for name in _WITHHELD if name in env}
    return {name: value for name, value in env.items() if name not in withheld}, withheld


def dump_at_exit(path: str, command: bytes) -> bytes:
    """Return the lines that make bash write, after `command`, what it leaves behind to `path`."""
    shared = b"trap" in command
    own_words = b"builtin unset -f trap; builtin unset -v %s; " % _EXIT_TRAP
    # Also where `set -C` forbids to overwrite a file.
    dump = own_words + DUMP if shared else DUMP
    action = quote(b"{ %s; } 2>/dev/null >|%s" % (dump, path.encode()))
    trap = b"builtin trap %s EXIT\n" % action
    return _SHARED_TRAP % {b"name": _EXIT_TRAP, b"action": action} + trap if shared else trap


def prelude(
    state: ShellState,
    descriptor: int,
    withheld: dict[bytes, bytes],
    startup_file: bytes = b"",
    recording: bytes = b"",
) -> bytes:
    """Return what a bash runs before its command, from `descriptor`, as its BASH_ENV.

    `withheld` as from `startable`. `startup_file`: the BASH_ENV that it would have run instead, if
    any; it may not be there. `recording`: from `dump_at_exit`.
    """
    lines = b"exec %d<&-\n" % descriptor + _first_lines(withheld)
    if startup_file:
        path = quote(startup_file if b"/" in startup_file else b"./" + startup_file)
        lines += b"if [[ -e %s ]]; then builtin . %s; fi\n" % (path, path)
    return lines + recording + state.script + state.options


def waiting_prelude(
    state: ShellState, descriptor: int, withheld: dict[bytes, bytes], last_word: bytes
) -> bytes:
    """Return what a bash runs that makes a state, and then waits for `last_lines`.

    It runs this from `descriptor`, and those from the next one, once the one after that has come to
    its end. `last_word` is what its command will find in ``$_``.
    """
    return b"".join(
        (
            _first_lines(withheld),
            state.script,
            b"builtin read -r -u %d BASH_EXECUTION_STRING\n" % (descriptor + 2),
            b"builtin . /proc/self/fd/%d %s\n" % (descriptor + 1, quote(last_word)),
        )
    )


def last_lines(state: ShellState, command: bytes, descriptor: int, recording: bytes = b"") -> bytes:
    """Return what a bash that waits, with its prelude on `descriptor`, runs before `command`."""
    closing = b"exec %d<&- %d<&- %d<&-\n" % (descriptor, descriptor + 1, descriptor + 2)
    # As if it had started now, with this command.
    start = b"BASH_EXECUTION_STRING=%s\nSECONDS=0\n" % quote(command)
    return closing + start + recording + state.options


def _first_lines(withheld: dict[bytes, bytes]) -> bytes:
    lines = b"builtin unset BASH_ENV\n"
    for name, value in withheld.items():
        lines += b"builtin export %s=%s\n" % (name, quote(value))
    return lines
