"""One look that is enough for most commands: nothing in them could matter to the guard."""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.policy import DEFAULT_POLICY, Policy

# A command of these characters is no more than it looks like.
_SIMPLE: Final = re.compile(r"[\w \t\n./:,=@%+&|;-]*")
_SEPARATORS: Final = re.compile(r"[\s;&|=]+")
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


def is_plainly_harmless(command: str, policy: Policy = DEFAULT_POLICY) -> bool:
    """Whether nothing in a command could be a program that a rule is about, or starts others.

    For most commands that is enough to know, if no function or alias stands for something else.
    """
    if policy.block or not _SIMPLE.fullmatch(command):
        return False
    if "/dev/" in command or _SOURCES.search(command):
        return False
    return not any(
        word.rpartition("/")[2] in TELLING or "mkfs" in word for word in _SEPARATORS.split(command)
    )
