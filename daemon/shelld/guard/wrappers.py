"""Programs that start another program: where the other one begins among their arguments.

Pure. `unwrapped` takes one layer off; what is below may be a wrapper again. Programs that take a
command as one string, to be run by a shell, say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple


class Inner(NamedTuple):
    """`script` None: `argv` is the program. Else a shell runs that text."""

    argv: list[str]
    assignments: Mapping[str, str] = MappingProxyType({})
    script: str | None = None
    cwd: str | None = None


class _Shape(NamedTuple):
    """`letters` and `names` are options that take a value; `operands` come before the program.

    `assigns`: NAME=VALUE may come before it. `joins`: the rest is one text for a shell.
    `scripts`: options whose value is text for a shell.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int = 0
    assigns: bool = False
    joins: bool = False
    scripts: tuple[str, ...] = ()


_PLAIN: Final = _Shape()
_ALL: Final = 9

_SHAPES: Final[dict[str, _Shape]] = {
    "sudo": _Shape(
        "CDgHhpRrTtUu",
        ("user", "group", "host", "prompt", "chdir", "chroot", "role", "type", "close-from"),
        assigns=True,
    ),
    "doas": _Shape("Cu", assigns=True),
    "nohup": _PLAIN,
    "setsid": _PLAIN,
    "nice": _Shape("n", ("adjustment",)),
    "ionice": _Shape("cnpPu", ("class", "classdata")),
    "chrt": _Shape("TPD", operands=1),
    "taskset": _Shape(operands=1),
    "timeout": _Shape("ks", ("kill-after", "signal"), operands=1),
    "time": _Shape("fo", ("format", "output")),
    "stdbuf": _Shape("ioe", ("input", "output", "error")),
    "strace": _Shape("aeoOpPsSuEIXb", ("output", "trace", "env", "user")),
    "ltrace": _Shape("aeonpsuDFAlx"),
    "gdb": _Shape("x"),
    "valgrind": _PLAIN,
    "unshare": _Shape("SGRw", ("map-user", "map-group", "root", "wd", "setuid", "setgid")),
    "nsenter": _Shape("tSGrw", ("target", "setuid", "setgid", "root", "wd")),
    "chroot": _Shape(names=("userspec", "groups"), operands=1),
    "prlimit": _Shape("p", ("pid",)),
    "setarch": _Shape(operands=1),
    "linux64": _PLAIN,
    "linux32": _PLAIN,
    "systemd-run": _Shape("pEHMtu", ("unit", "property", "slice", "uid", "gid", "setenv")),
    "systemd-inhibit": _PLAIN,
    "dbus-run-session": _Shape(names=("config-file",)),
    "dbus-launch": _PLAIN,
    "eatmydata": _PLAIN,
    "fakeroot": _Shape("lis"),
    "firejail": _PLAIN,
    "unbuffer": _PLAIN,
    "catchsegv": _PLAIN,
    "numactl": _Shape("iNmCp"),
    "cgexec": _Shape("g"),
    "setpriv": _Shape(names=("reuid", "regid", "groups", "inh-caps")),
    "capsh": _PLAIN,
    "setuidgid": _Shape(operands=1),
    "chpst": _Shape("uUbenmodlL"),
    "gosu": _Shape(operands=1),
    "su-exec": _Shape(operands=1),
    "softlimit": _Shape("adfloprst"),
    "ccache": _PLAIN,
    "rlwrap": _PLAIN,
    "xvfb-run": _Shape("enspf"),
    "torsocks": _PLAIN,
    "proxychains": _Shape("f"),
    "proxychains4": _Shape("f"),
    "caffeinate": _Shape("tw"),
    "daemonize": _Shape("acepluoE"),
    "start-stop-daemon": _Shape("xnpuagd"),
    "dumb-init": _PLAIN,
    "tini": _Shape("p"),
    "ts": _PLAIN,
    "chronic": _PLAIN,
    "pkexec": _Shape(names=("user",)),
    "run0": _Shape("uD"),
    "coproc": _PLAIN,
    "exec": _Shape("a"),
    "builtin": _PLAIN,
    "then": _PLAIN,
    "do": _PLAIN,
    "else": _PLAIN,
    "!": _PLAIN,
    "{": _PLAIN,
    "perf": _Shape("eopFcCg", operands=1),
    "screen": _Shape("cSetTph"),
    "ssh": _Shape("bcDEeFIiJLlmOopQRSWw", operands=1, joins=True),
    "watch": _Shape("nq", ("interval",), joins=True),
    "hyperfine": _Shape("wrmMNpcsu", ("warmup", "runs", "shell", "prepare", "setup"), joins=True),
    "entr": _PLAIN,
    "flock": _Shape("wEc", ("timeout", "conflict-exit-code"), operands=1, scripts=("c", "command")),
    "script": _Shape("cEIOBTmo", ("command",), operands=_ALL, scripts=("c", "command")),
    "su": _Shape("cgGsw", ("command", "group", "shell"), operands=_ALL, scripts=("c", "command")),
    "runuser": _Shape("cgGsuw", ("command", "user"), operands=_ALL, scripts=("c", "command")),
    "tmux": _Shape("fLSctnF", operands=1, joins=True),
}


WRAPPERS: Final = frozenset(_SHAPES)


def unwrapped(argv: Sequence[str]) -> Inner | None:
    """Return what a wrapper starts, None if this is no wrapper or starts nothing."""
    program = argv[0].rpartition("/")[2]
    if program == "env":
        return _env(argv[1:])
    if program in ("busybox", "toybox"):
        return Inner(list(argv[1:])) if len(argv) > 1 else None
    if program == "command":
        return _command(argv[1:])
    shape = _SHAPES.get(program)
    return None if shape is None else _of_shape(program, shape, argv[1:])


def _command(arguments: Sequence[str]) -> Inner | None:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if "v" in rest[0].lower():
            return None
        rest.pop(0)
    return Inner(rest) if rest else None


def _of_shape(program: str, shape: _Shape, arguments: Sequence[str]) -> Inner | None:
    rest = list(arguments)
    script: str | None = None
    operands = _operands_before(shape, rest)
    assignments: dict[str, str] = {}
    while rest:
        argument = rest[0]
        if argument == "--":
            rest.pop(0)
            rest = rest[operands:]
            break
        if argument.startswith("-") and len(argument) > 1:
            rest.pop(0)
            name, value = _option(argument, shape, rest)
            if name in shape.scripts and value is not None:
                script = value
        elif shape.assigns and "=" in argument.split("/")[0] and not operands:
            name, _, value = argument.partition("=")
            assignments[name] = value
            rest.pop(0)
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            break
    if script is not None:
        return Inner([], assignments, script)
    if program == "coproc" and "{" in rest:
        # With a name.
        rest = rest[rest.index("{") + 1 :]
    return _started(program, shape, rest, assignments) if rest else None


def _operands_before(shape: _Shape, arguments: Sequence[str]) -> int:
    """Return how many operands come before the program."""
    has_script = any(each == "--command" or re.match(r"-\w*c", each) for each in arguments)
    # Without a text for a shell, what follows is a program.
    return 0 if shape.operands == _ALL and not has_script else shape.operands


def _started(
    program: str, shape: _Shape, rest: list[str], assignments: dict[str, str]
) -> Inner | None:
    if program == "flock" and rest[0] in ("-c", "--command"):
        return Inner([], assignments, rest[1]) if len(rest) > 1 else None
    if shape.joins:
        return Inner([], assignments, " ".join(rest))
    return Inner(rest, assignments)


def _option(argument: str, shape: _Shape, rest: list[str]) -> tuple[str, str | None]:
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        if equals:
            return name, value
        return name, rest.pop(0) if name in shape.names and rest else None
    for index, letter in enumerate(argument[1:], 1):
        if letter in shape.letters:
            return letter, argument[index + 1 :] or (rest.pop(0) if rest else "")
    return argument[1:], None


def _env(arguments: Sequence[str]) -> Inner | None:
    rest = list(arguments)
    assignments: dict[str, str] = {}
    cwd: str | None = None
    while rest:
        argument = rest.pop(0)
        if argument in ("-u", "--unset", "-C", "--chdir", "-S", "--split-string") and rest:
            value = rest.pop(0)
            if argument in ("-C", "--chdir"):
                cwd = value
            elif argument in ("-S", "--split-string"):
                return Inner([], assignments, " ".join([value, *rest]), cwd)
        elif argument.startswith(("--split-string=", "-S", "-vS")):
            value = argument.partition("=")[2] if "=" in argument[:15] else argument[2:]
            return Inner([], assignments, " ".join([value.removeprefix("S"), *rest]), cwd)
        elif argument.startswith("--chdir="):
            cwd = argument.partition("=")[2]
        elif argument.startswith("-C"):
            cwd = argument[2:]
        elif argument == "--":
            break
        elif argument.startswith("-"):
            continue
        elif "=" in argument:
            name, _, value = argument.partition("=")
            assignments[name] = value
        else:
            return Inner([argument, *rest], assignments, None, cwd)
    return Inner(rest, assignments, None, cwd) if rest else None
