"""One daemon for many tests.

Each test finds the daemon in its initial state, except for ids and counters.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from support import RawDaemon, descendants, is_alive, raw_daemon, wait_for

# Parts of the command lines of the daemon's own processes: the keeper and its runners, the helpers
# for filters and screens, and spare shells. Some spare shells remain after commands without a
# session.
_OWN_PROCESSES = (b"\0-I\0-S\0-c\0", b"filters/main.py", b"screens/main.py", b"# shelld ")


class SharedDaemon:
    """Starts the daemon when a test first needs it, and starts a new one after a test has broken
    it.
    """

    def __init__(self, *args: str, **options: Any) -> None:
        self._args = args
        self._options = options
        self._running = contextlib.ExitStack()
        self._daemon: RawDaemon | None = None

    def get(self) -> RawDaemon:
        if self._daemon is None:
            self._daemon = self._running.enter_context(raw_daemon(*self._args, **self._options))
            self._daemon.call("ping")
        return self._daemon

    def tidy(self) -> None:
        """End the shells and sessions of a test. Fail if a process of the test does not end."""
        daemon = self.get()
        try:
            for shell in daemon.call("list_shells")["shells"]:
                if shell["isRunning"] or shell["leftover"]:
                    daemon.call("kill_shell", {"bash_id": shell["bash_id"], "grace": 0})
            for session in daemon.call("list_sessions")["sessions"]:
                daemon.call("close_session", {"session": session["session"]})
            left: list[str] = []

            def nothing_is_left() -> bool:
                left[:] = _foreign_processes(daemon.pid)
                return not left

            try:
                wait_for(nothing_is_left)
            except AssertionError:
                raise AssertionError(f"the test leaves processes: {left}") from None
            # Everything that the daemon has sent so far arrives before this answer.
            daemon.call("ping")
            daemon.forget_answers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the daemon. Fail if a process of the test survives."""
        if self._daemon is None:
            return
        family = descendants(self._daemon.pid)
        self._daemon = None
        self._running.close()
        wait_for(lambda: not any(map(is_alive, family)), "the end of everything the daemon started")


def _foreign_processes(pid: int) -> list[str]:
    """Return the command lines of a daemon's descendants that are not the daemon's own helpers."""
    found: list[str] = []
    for below in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{below}/cmdline").read_bytes()
            if is_alive(below) and not any(own in command for own in _OWN_PROCESSES):
                found.append(repr(command))
    return found
