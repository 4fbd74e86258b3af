"""Predicts from files whether a logout would end a lasting daemon that is started now.

Knows the rules of systemd-logind: which files logind reads, in which order, and whose processes
logind kills. Never asks a service, and never changes a file. A setting that no file mentions counts
as harmless.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

# The root of the system's files. Tests use another directory.
ROOT: Final = "/"
# The directories of logind's configuration. A file hides the files of the same name in later
# directories.
_DIRECTORIES: Final = (
    *("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd", "lib/systemd"),
)
_TRUE: Final = frozenset({"1", "yes", "y", "true", "t", "on"})
_SETTING: Final = re.compile(r"\s*(Kill\w+)\s*=(.*)")
# The file that comes with logind has comments. They show the defaults that were chosen when logind
# was built.
_DEFAULT: Final = re.compile(r"\s*[#;]\s*(KillUserProcesses)\s*=(.*)")
_BY_SESSION: Final = "logout kills the processes of this login (KillUserProcesses of logind)"
_BY_USER: Final = (
    "lingering is off: the last logout ends the user's manager, and the daemon with it"
)


def why_a_logout_kills() -> str:
    """Return the reason why a logout would kill a daemon that is started now. If no such reason is
    found, return "".
    """
    root = Path(ROOT)
    try:
        group = (root / "proc/self/cgroup").read_text(errors="replace")
        user = pwd.getpwuid(os.getuid()).pw_name
    except (OSError, KeyError):
        return ""
    if f"/user@{os.getuid()}.service" in group:
        # If lingering is enabled, the user's manager stays, whatever the other settings are.
        is_kept = os.path.exists(root / "var/lib/systemd/linger" / user)
        return "" if is_kept else _BY_USER
    if not re.search(r"/session-[^/\n]+\.scope", group):
        return ""
    return _BY_SESSION if _are_processes_killed(_settings(root), user) else ""


def _are_processes_killed(settings: Mapping[str, str], user: str) -> bool:
    if settings.get("KillUserProcesses", "").lower() not in _TRUE:
        return False
    if user in settings.get("KillExcludeUsers", "root").split():
        return False
    only = settings.get("KillOnlyUsers", "").split()
    return not only or user in only


def _settings(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _files(root):
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            if setting := _SETTING.match(line):
                found[setting[1]] = setting[2].strip()
            elif default := _DEFAULT.match(line):
                found.setdefault(default[1], default[2].strip())
    return found


def _files(root: Path) -> Iterator[Path]:
    """Yield the files in the order in which logind reads them.

    A later file overrides an earlier one.
    """
    directories = [root / each for each in _DIRECTORIES]
    mains = [each / "logind.conf" for each in directories]
    yield from [each for each in mains if each.exists()][:1]
    additions: dict[str, Path] = {}
    for each in reversed(directories):
        additions.update({file.name: file for file in (each / "logind.conf.d").glob("*.conf")})
    yield from [additions[name] for name in sorted(additions)]
