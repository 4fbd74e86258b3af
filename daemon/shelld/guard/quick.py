"""One look that is enough for most commands: nothing in them could matter to the guard."""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.policy import DEFAULT_POLICY, Policy

# A command of these characters is no more than it looks like.
_SIMPLE: Final = re.compile(r"[\w \t\n./:,=@%+&|;-]*")
_SEPARATORS: Final = re.compile(r"[\s;&|=]+")
# Of words that are whole, as the name of a function is.
_ENDS_OF_WORDS: Final = re.compile(r"[\s;&|]+")
# The function that bash runs in place of a program that is not there.
_NOT_FOUND: Final = b"command_not_found_handle"
_SOURCES: Final = re.compile(r"(?:^|[;&|\n])[ \t]*\.[ \t]")

# Programs that rules are about, or that start what is among their words. A test sees to it that
# none is missing.
TELLING: Final = frozenset(
    [
        "!",
        "alias",
        "ash",
        "at",
        "awk",
        "bash",
        "batch",
        "blkdiscard",
        "builtin",
        "busybox",
        "caffeinate",
        "capsh",
        "catchsegv",
        "ccache",
        "cd",
        "cgexec",
        "chgrp",
        "chmod",
        "chown",
        "chpst",
        "chronic",
        "chroot",
        "chrt",
        "command",
        "coproc",
        "cp",
        "crontab",
        "daemonize",
        "dash",
        "dbus-launch",
        "dbus-run-session",
        "dd",
        "do",
        "doas",
        "docker",
        "dumb-init",
        "eatmydata",
        "else",
        "entr",
        "env",
        "eval",
        "exec",
        "fakeroot",
        "find",
        "firejail",
        "fish",
        "flock",
        "gawk",
        "gdb",
        "gosu",
        "hyperfine",
        "install",
        "ionice",
        "ksh",
        "linux32",
        "linux64",
        "ltrace",
        "mke2fs",
        "mkfs",
        "mksh",
        "mv",
        "nice",
        "node",
        "nohup",
        "nsenter",
        "numactl",
        "parallel",
        "perf",
        "perl",
        "php",
        "pkexec",
        "podman",
        "prlimit",
        "proxychains",
        "proxychains4",
        "pushd",
        "python",
        "python2",
        "python3",
        "rbash",
        "rlwrap",
        "rm",
        "rsync",
        "ruby",
        "run0",
        "runuser",
        "screen",
        "script",
        "sed",
        "setarch",
        "setpriv",
        "setsid",
        "setuidgid",
        "sh",
        "shred",
        "softlimit",
        "source",
        "ssh",
        "start-stop-daemon",
        "stdbuf",
        "strace",
        "su",
        "su-exec",
        "sudo",
        "systemd-inhibit",
        "systemd-run",
        "taskset",
        "tee",
        "then",
        "time",
        "timeout",
        "tini",
        "tmux",
        "torsocks",
        "toybox",
        "trap",
        "ts",
        "unbuffer",
        "unshare",
        "valgrind",
        "watch",
        "wipefs",
        "xargs",
        "xvfb-run",
        "zsh",
        "{",
    ]
)


def is_plainly_harmless(
    command: str, policy: Policy = DEFAULT_POLICY, names: frozenset[bytes] = frozenset()
) -> bool:
    """Whether nothing in a command could be a program that a rule is about, or starts others.

    `names`: those of functions and aliases, which stand for something else. For most commands that
    is enough to know.
    """
    if policy.block or not _SIMPLE.fullmatch(command):
        return False
    if "/dev/" in command or _SOURCES.search(command):
        return False
    words = _SEPARATORS.split(command)
    if names:
        spoken = {word.encode() for word in (*words, *_ENDS_OF_WORDS.split(command))}
        if _NOT_FOUND in names or not names.isdisjoint(spoken):
            return False
    if "mkfs" in command:
        return False
    return TELLING.isdisjoint([word.rpartition("/")[2] for word in words])
