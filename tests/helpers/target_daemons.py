"""Daemons on this machine as targets of a daemon under test."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Final

from support import DAEMON_COMMAND, RawDaemon, running_below

FAR: Final = (*DAEMON_COMMAND, "--stdio")


@contextlib.contextmanager
def target(daemon: RawDaemon, name: str, *argv: str) -> Generator[None]:
    """Add a target, and remove it when the `with` block ends.

    By default, the target is another daemon on this machine.
    """
    assert daemon.call("add_target", {"name": name, "argv": argv or FAR}) == {"name": name}
    yield
    daemon.call("remove_target", {"name": name})


def daemon_of(hub: RawDaemon, word: str) -> int:
    """Return the pid of the target's daemon that has `word` among its options."""
    return running_below(hub.pid, f"\0{word}\0")[0]
