"""Run entries of `prompt_corpus` and `prompt_decoys` in one daemon with the rights of an ordinary
user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from prompt_corpus import Entry
from support import Json, RawDaemon, raw_daemon

# How many entries run at once: enough to overlap their waits, few enough for a small machine.
BATCH = 32
# How long an entry may take to start on a busy machine, in ms.
PATIENCE_MS = 60_000

# This prefix takes away root's right to inspect programs of other users.
_AS_ORDINARY_USER = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")

T = TypeVar("T")


def why_not(entry: Entry) -> str | None:
    """Return why an entry cannot run here, or None."""
    missing = [program for program in entry.needs if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if entry.needs_root and not _becomes_ordinary():
        return "needs root, who may drop rights and become another user"
    return None


def _becomes_ordinary() -> bool:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    tried = subprocess.run([*_AS_ORDINARY_USER, "true"], check=False, capture_output=True)
    return tried.returncode == 0


@contextlib.contextmanager
def corpus_daemon() -> Generator[RawDaemon]:
    """Run a daemon that, like an ordinary user, may not inspect other users' programs."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    folders = (str(Path(sys.executable).parent), env["PATH"], "/usr/sbin")
    env |= {
        "PATH": os.pathsep.join(folders),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "x" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "x@localhost" for who in ("AUTHOR", "COMMITTER")},
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }
    for name in ("LESS", "PAGER", "MANPAGER", "EDITOR", "VISUAL", "SSH_AUTH_SOCK", "TMUX", "ENV"):
        env.pop(name, None)
    prefix = _AS_ORDINARY_USER if _becomes_ordinary() else ()
    with raw_daemon("--spare-shells", "0", prefix=prefix, env=env) as daemon:
        yield daemon


def start(daemon: RawDaemon, entry: Entry, place: Path) -> str:
    """Start the command of an entry, and return the id of the shell.

    The command gets a new directory below `place` as its working directory and its home.
    """
    home = place / entry.name
    home.mkdir()
    params: Json = {
        "session": None,
        "cwd": str(home),
        "env": dict.fromkeys(("HOME", "TMPDIR", "TMUX_TMPDIR"), str(home)),
        entry.input: True,
    }
    return daemon.background(entry.command, **params)


def each_result(daemon: RawDaemon, method: str, requests: Iterable[Json]) -> list[Json]:
    """Send all requests before reading any answer; return the results in the order of requests."""
    sent = [daemon.request(method, params) for params in requests]
    answers = [daemon.answer(request) for request in sent]
    return [answer.get("result", answer) for answer in answers]


def end(daemon: RawDaemon, shells: Iterable[str]) -> None:
    """End shells, and all processes that they have started."""
    each_result(daemon, "kill_shell", ({"bash_id": shell, "grace": 0} for shell in shells))


def batches(entries: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    rest = iter(entries)
    while batch := list(itertools.islice(rest, size)):
        yield batch
