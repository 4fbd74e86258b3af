"""Handles programs that run a command in a container.

If the command sees no files of the host, the command is harmless. Each handler takes the shell, the
arguments and stdin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from shelld.guard import rules
from shelld.guard.markers import UNKNOWN
from shelld.guard.options import all_options
from shelld.guard.paths import SYSTEM_DIRECTORIES, normalized
from shelld.guard.vocabulary import SHELLS

if TYPE_CHECKING:
    from shelld.guard.shell import Shell


def docker(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    """Follow the command that runs in a container.

    The command sees only the files of the host that are mounted in the container.
    """
    mounts = {
        target: host
        for target, host in _mounts(arguments)
        if host == "/" or host in SYSTEM_DIRECTORIES or host.startswith("/dev")
    }
    words = list(arguments)
    for target, host in mounts.items():
        pattern = re.compile(rf"(?<![\w./-]){re.escape(target)}(?![\w.-])")
        words = [pattern.sub(host, word) for word in words]
    for at, word in enumerate(words):
        known = rules.is_judged(word) or word in SHELLS or word in ("chroot", "find")
        if mounts and known:
            inner = shell.copy()
            options, _ = all_options(words[:at], "wve", ("workdir", "volume", "env"))
            inner.cwd = next((v for n, v in options if n in ("w", "workdir") and v), inner.cwd)
            return str(inner.execute(words[at:], stdin))
    return UNKNOWN


# The option `-v`, alone or at the end of a group of letters such as `-itv`.
_VOLUME: Final = re.compile(r"-[dit]*v(.*)", re.S)


def _mounts(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the container path and the host path of each writable mount."""
    for index, each in enumerate(arguments):
        name, equals, value = each.partition("=")
        if (short := _VOLUME.match(each)) is not None:
            # In `-itv/:/mnt`, the option is the last of several letters, and its value follows in
            # the same word.
            name, equals, value = "-v", short[1], short[1]
        value = value if equals else "".join(arguments[index + 1 : index + 2])
        host, _, rest = value.partition(":")
        target, _, mode = rest.partition(":")
        if name == "--mount":
            fields: dict[str, str] = {}
            for field in value.split(","):
                key, _, content = field.partition("=")
                fields[key] = content
            host = fields.get("source") or fields.get("src") or ""
            target = fields.get("target") or fields.get("dst") or fields.get("destination") or ""
            mode = "ro" if "readonly" in fields or "ro" in fields else ""
        elif name == "--privileged":
            host = target = "/dev"
        elif name == "--device":
            target = target or host
        elif name not in ("-v", "--volume"):
            continue
        if host.startswith("/") and target.startswith("/") and "ro" not in mode.split(","):
            yield target.rstrip("/"), normalized(host, "/")


# The options of bwrap(1) without a value. `_PAIRS` below holds the options with two values.
_ALONE: Final = frozenset(
    {
        *("--unshare-all", "--share-net", "--unshare-user", "--unshare-user-try", "--unshare-ipc"),
        *("--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup", "--new-session"),
        *("--unshare-cgroup-try", "--die-with-parent", "--as-pid-1", "--clearenv"),
        *("--disable-userns", "--assert-userns-disabled", "--level-prefix"),
    }
)
_WRITABLE: Final = frozenset({"--bind", "--bind-try", "--dev-bind", "--dev-bind-try"})
_PAIRS: Final = _WRITABLE | {
    *("--ro-bind", "--ro-bind-try", "--symlink", "--setenv", "--file", "--bind-data"),
    *("--ro-bind-data", "--chmod", "--bind-fd", "--ro-bind-fd"),
}


def bwrap(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    """Follow the command that bwrap(1) runs, if this command can write to the root of the host."""
    rest = list(arguments)
    writes = False
    while rest and rest[0].startswith("--"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in _PAIRS:
            values, rest = rest[:2], rest[2:]
            writes = writes or (option in _WRITABLE and values == ["/", "/"])
            # A later mount hides an earlier mount at the same path.
            writes = writes and not (option.startswith("--ro-bind") and values[1:] == ["/"])
        elif option not in _ALONE:
            del rest[:1]
    return str(shell.copy().execute(rest, stdin)) if writes and rest else UNKNOWN
