"""Passes the `env` of a call to the bash of this call, and keeps the `env` out of the session.

Pure. A variable's value alone does not show whether the command has changed the variable, because
bash sets some variables itself and does not take others from its environment. So bash reports the
call's variables before it runs the command (`lines_of_call`). If a variable is still the same after
the command, the session does not keep it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from msgspec.structs import replace

from shelld.sessions.declarations import declarations_in, declared
from shelld.sessions.dump_parser import declared_in, without_options
from shelld.sessions.functions import entry_name, function_of, without_export
from shelld.sessions.quoting import quote, unquote
from shelld.sessions.state import ShellState, telling_lines
from shelld.sessions.text import to_bytes

Changes = dict[str, str | None]

# These two variables of bash list the options that are on.
_OPTION_VARIABLES: Final = (b"SHELLOPTS", b"BASHOPTS")
_POSIX: Final = "POSIXLY_CORRECT"
_SIZES: Final = ("LINES", "COLUMNS")
_SET_OPTIONS: Final = frozenset(
    b"""allexport braceexpand errexit errtrace functrace hashall histexpand history ignoreeof
    interactive-comments keyword monitor noclobber noexec noglob nolog notify nounset onecmd
    physical pipefail posix privileged verbose vi emacs xtrace""".split()
)
# The options that posix mode switches on.
_POSIX_OPTIONS: Final = frozenset(
    b"posix expand_aliases inherit_errexit interactive_comments shift_verbose sourcepath".split()
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IS_ON: Final = re.compile(rb" -o ([a-z-]+)")
_SHOPT: Final = re.compile(rb"[a-z_0-9]+")


class CallReport(NamedTuple):
    """What bash reports before it runs a command: the output of `declare -p`, and the options."""

    variables: bytes
    options: frozenset[bytes]


def state_of_call(state: ShellState, changes: Changes | None) -> ShellState:
    """Return `state` with the variables of a call. They replace variables of the same name."""
    if not changes:
        return state
    options = state.options
    names = sorted(_listed(changes, "SHELLOPTS") & _SET_OPTIONS)
    if names:
        line = options.removesuffix(b"\n") or b"\\builtin set"
        options = b"%s -o %s\n" % (line, b" -o ".join(names))
    if changes.get(_POSIX) is not None:
        # The line must not switch posix mode off, because bash would then also unset
        # POSIXLY_CORRECT.
        options = options.replace(b" +o posix", b"")
    state = replace(state.without(frozenset(map(to_bytes, changes))), options=options)
    functions = _functions(changes)
    return _with_functions(state, functions) if functions else state


def _functions(changes: Changes) -> dict[bytes, bytes | None]:
    """Return the functions in the `env` of a call, by name."""
    return {
        name: None if value is None else to_bytes(value)
        for entry, value in changes.items()
        if (name := function_of(to_bytes(entry))) is not None
    }


def _with_functions(state: ShellState, functions: dict[bytes, bytes | None]) -> ShellState:
    private = tuple(name for name in state.private if name not in functions)
    before, after = without_export(state.private), without_export(private)
    return replace(
        state,
        names=state.names | functions.keys(),
        private=private,
        switches=state.switches.removesuffix(before) + after,
        sets_traps=state.sets_traps or any(b"trap" in (body or b"") for body in functions.values()),
    )


def functions_again(changes: Changes, state: ShellState) -> bytes:
    """Return the lines that restore the session's functions after a call has replaced them.

    `state`: the session's state. Functions that the session's script defines need no lines, because
    the script has defined them in the bash of this call.
    """
    lines: list[bytes] = []
    for name in _functions(changes):
        key = entry_name(name)
        own = state.functions.get(key, state.env.get(key))
        if own is None and name in state.function_names:
            continue
        lines.append(b"\\builtin unset -f -- %s; " % quote(name))
        if own is not None:
            lines.append(b"\\builtin eval %s; " % quote(name + b" " + own))
            if name not in state.private:
                lines.append(b"\\builtin export -f -- %s; " % quote(name))
    return b"".join(lines)


def telling_lines_of_call(changes: Changes | None) -> bytes:
    """Some options in BASHOPTS make the guard find more. Return the lines that turn on these
    options.
    """
    return telling_lines(_listed(changes or {}, "BASHOPTS"))


def withhold(env: dict[bytes, bytes], changes: Changes) -> None:
    """Remove from an environment the variables that `lines_of_call` sets.

    With these variables in its environment, bash would set options before it runs its prelude.
    """
    for name in (*_OPTION_VARIABLES, _POSIX.encode()):
        if changes.get(name.decode()) is not None:
            env.pop(name, None)


def lines_of_call(changes: Changes, path: str | None, *, reports_directory: bool = False) -> bytes:
    """Return the lines that apply the `env` of a call.

    These lines run after the lines that restore the session's state, and before the lines that set
    the options of `set`.

    If `path` is given, these lines also write a report to that file. `split_report` parses the
    report. `reports_directory`: whether the report has PWD even if `changes` does not.
    """
    end = b" >>%s 2>/dev/null || \\builtin :\n" % (path or "").encode()
    told = {**changes, **({"PWD": None} if reports_directory else {})}
    names = " ".join(name for name in told if _NAME.fullmatch(name)).encode()
    lines: list[bytes] = []
    if path:
        # If a limit on file size forbids the report, the kernel's signal must not end bash.
        lines.append(b'\\builtin trap "" XFSZ\n')
        lines.append(rb'\builtin printf "%s\0" "$BASHOPTS:$SHELLOPTS"' + end)
    posix = changes.get(_POSIX)
    if posix is not None:
        lines.append(b"\\builtin export %s=%s\n" % (_POSIX.encode(), quote(to_bytes(posix))))
    if path:
        lines.append(b"\\builtin declare -p %s" % names + end if names else b"")
        lines.append(rb"\builtin printf '\0'" + end)
        lines.append(b"\\builtin trap - XFSZ\n")
    given = [name for name in _OPTION_VARIABLES if changes.get(name.decode()) is not None]
    if given:
        options = b" ".join(sorted(filter(_SHOPT.fullmatch, _listed(changes, "BASHOPTS"))))
        lines.append(
            b"\\builtin shopt -s %s 2>/dev/null || \\builtin :\n" % options if options else b""
        )
        lines.append(b"\\builtin export %s\n" % b" ".join(given))
    return b"".join(lines)


def split_report(written: bytes) -> tuple[CallReport, bytes]:
    """Split the written text into two parts: the report from before the command, and the dump."""
    options, _, rest = written.partition(b"\0")
    variables, _, dump = rest.partition(b"\0")
    return CallReport(variables, frozenset(options.rstrip(b"\n").split(b":"))), dump


def directory_in(report: CallReport) -> bytes | None:
    """Return the directory in which bash has started, as bash knows it; None if it is not known."""
    found = declarations_in(declared(report.variables).get(b"PWD", b""))
    return unquote(found[0].value) if found and found[0].value else None


def without_options_of_call(
    dump: bytes, report: CallReport, changes: Changes, state: ShellState
) -> bytes:
    """Return a dump without the options that only the `env` of a call has switched on.

    `state`: the session's state.
    """
    given = _listed(changes, "SHELLOPTS") | _listed(changes, "BASHOPTS")
    if changes.get(_POSIX) is not None:
        given |= _POSIX_OPTIONS
    if not given:
        return dump
    # The last line of the prelude may set the options of `set`. Bash makes its report before it
    # runs that line. So that line, not the report, says which of these options are on.
    before = report.options - _SET_OPTIONS if state.options else report.options
    before |= frozenset(_IS_ON.findall(state.options))
    return without_options(dump, given - before)


def untouched(dump: bytes, report: CallReport, changes: Changes) -> list[bytes]:
    """Return the names of the call's variables that its command has not changed."""
    before, after = declared(report.variables), declared_in(dump)
    # SHELLOPTS and BASHOPTS change with every option. `without_options_of_call` compares the
    # options. The dump itself sets BASH_XTRACEFD. So these variables always count as untouched.
    for name in (*_OPTION_VARIABLES, b"BASH_XTRACEFD"):
        after.pop(name, None)
        before.pop(name, None)
    names = [to_bytes(name) for name in changes]
    return [name for name in names if before.get(name) == after.get(name)]


def sizes_set_by_bash(changes: Changes, before: ShellState, after: ShellState) -> list[bytes]:
    """Return the variables in `changes` that bash has set to the size of its terminal.

    Bash sets LINES and COLUMNS after it has run a program. If `changes` has given such a variable a
    value, it always counts as set by bash. If `changes` has removed such a variable, bash makes a
    new one and does not export it. So this variable counts as set by bash if two statements are
    true: the session exported the variable before the command, and the variable is not exported
    after the command.

    `before`: the session's state. `after`: the state that the command has left.
    """
    given = [name.encode() for name in _SIZES if changes.get(name) is not None]
    removed = [name.encode() for name in _SIZES if name in changes and changes[name] is None]
    lost = [name for name in removed if name in before.env and name not in after.env]
    return given + lost


def _listed(changes: Changes, name: str) -> frozenset[bytes]:
    return frozenset(to_bytes(changes.get(name) or "").split(b":"))
