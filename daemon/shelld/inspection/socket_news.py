"""Notices when a socket begins to listen. All tasks that watch a network namespace share one timer.

Whenever the timer fires, this module checks which sockets listen in the namespace. The timer runs
only while a task watches the namespace. This module does not find out which process holds a socket.
The tasks that this module wakes find that out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from shelld.inspection import sockets
from shelld.inspection.sockets import Socket
from shelld.process.faults import answer_for

# The limits of the pause between two checks of the sockets. When a task begins to watch or a socket
# begins to listen, the pause becomes short. After that, it grows.
_FIRST_PAUSE_S: Final = 0.04
_LAST_PAUSE_S: Final = 0.2
_QUIET_DIVISOR: Final = 50
# A check takes long if there are many sockets. So the pause after a check is at least this many
# times as long as the check. All watched namespaces except the daemon's share one limit. So for
# each of these namespaces, this minimum is multiplied by the number of these namespaces.
_COST_SHARE: Final = 40
# It takes milliseconds to list the sockets of another namespace, and microseconds to count them. So
# each check counts the sockets, and lists them only if their number has changed. Even if the number
# is the same, the sockets are listed again after `_LIST_ANYWAY_S`, because a new socket may have
# replaced another one. If it takes long to list the sockets, this pause is longer: it is then
# `_LIST_COST_SHARE` times as long as the listing.
_LIST_ANYWAY_S: Final = 1.0
_LIST_COST_SHARE: Final = 400


class _Watcher(NamedTuple):
    """`proc_dir`: the directory in /proc of a process in the namespace."""

    wake: Callable[[], None]
    proc_dir: str


class SocketNews:
    """Watches for sockets that begin to listen in one network namespace.

    `count` rises when a check finds a socket that did not listen at the previous check.
    `namespace`: the inode of the namespace; None for the daemon's. To watch several namespaces, use
    `SocketWatch`. `listening`: the sockets that the last check has found. `listening` is up to date
    only while a task watches the namespace.
    """

    def __init__(
        self, namespace: int | None = None, group: dict[int, SocketNews] | None = None
    ) -> None:
        """`group`: the objects for all watched namespaces except the daemon's, by inode.

        All these objects share the processor time that one object may use.
        """
        self.count = 0
        self.listening: frozenset[Socket] = frozenset()
        self._namespace = namespace
        self._watchers: list[_Watcher] = []
        # The time.monotonic() at which the pauses began to grow.
        self._quiet_from = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # The number of sockets when they were last listed. From `_list_due_at` on, a check lists
        # the sockets again even if their number has not changed.
        self._number: int | None = None
        self._list_due_at = 0.0
        # The objects for the other namespaces that are watched now, by inode.
        self._others: dict[int, SocketNews] = {} if group is None else group

    @contextmanager
    def watching(self, wake: Callable[[], None], proc_dir: str = "/proc/self") -> Generator[None]:
        """Call `wake` whenever `count` has risen, until the `with` block ends.

        The first check comes before the body of the block. It may also call `wake` for sockets that
        already listen.
        """
        watcher = _Watcher(wake, proc_dir)
        self._watchers.append(watcher)
        self._quiet_from = time.monotonic()
        try:
            self._check()
            yield
        finally:
            self._watchers.remove(watcher)
            if not self._watchers:
                self._stop()

    @contextmanager
    def watching_elsewhere(
        self, namespace: int, proc_dir: str, wake: Callable[[], None]
    ) -> Generator[None]:
        """Watch another namespace.

        `proc_dir`: the directory in /proc of a process in this namespace.

        Each watcher has such a process. If the processes of all watchers have left the namespace,
        `wake` is called as well. `wake` may also be called for sockets that already listen when the
        `with` block begins.
        """
        news = self._others.setdefault(namespace, SocketNews(namespace, self._others))
        try:
            with news.watching(wake, proc_dir):
                yield
        finally:
            if not news.is_watched:
                self._others.pop(namespace, None)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._stop()
        began = time.thread_time()
        try:
            # If no descriptor is free, this check fails, and the next check finds the new sockets.
            with contextlib.suppress(OSError):
                self._check_sockets(self._proc_dir())
        except Exception as error:
            answer_for(error, "the check for sockets that listen")
        least_s = max(_FIRST_PAUSE_S, _COST_SHARE * self._cost_since(began))
        grown_s = min((time.monotonic() - self._quiet_from) / _QUIET_DIVISOR, _LAST_PAUSE_S)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(least_s, grown_s), self._check)

    def _cost_since(self, began: float) -> float:
        """Return the processor time since `began`.

        Outside of the daemon's namespace, multiply the time by the number of watched namespaces
        (the daemon's own namespace does not count).
        """
        count = 1 if self._namespace is None else max(1, len(self._others))
        return (time.thread_time() - began) * count

    def _proc_dir(self) -> str | None:
        """Return the directory in /proc of a process in the namespace. Return None if none of the
        watchers' processes is still in the namespace.
        """
        if self._namespace is None:
            return "/proc/self"
        for watcher in self._watchers:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if os.stat(f"{watcher.proc_dir}/ns/net").st_ino == self._namespace:
                    return watcher.proc_dir
        return None

    def _check_sockets(self, proc_dir: str | None) -> None:
        """Check the sockets once, and wake the watchers if a socket has begun to listen.

        Raises OSError.
        """
        if proc_dir is None:
            self._tell()
        elif self._namespace is None:
            self._note(sockets.listening(proc_dir))
        else:
            number = sockets.number_of(proc_dir)
            if number is None or number != self._number or time.monotonic() >= self._list_due_at:
                began = time.thread_time()
                self._note(sockets.listening(proc_dir))
                pause_s = max(_LIST_ANYWAY_S, _LIST_COST_SHARE * self._cost_since(began))
                self._number, self._list_due_at = number, time.monotonic() + pause_s

    def _note(self, found: list[Socket]) -> None:
        before, self.listening = self.listening, frozenset(found)
        if not self.listening <= before:
            self._quiet_from = time.monotonic()
            self._tell()

    def _tell(self) -> None:
        self.count += 1
        for watcher in tuple(self._watchers):
            watcher.wake()


class SocketWatch:
    """During a `with` block, watches the daemon's network namespace and those passed to `follow`.

    When a socket in one of these namespaces begins to listen, `count` rises and `wake` is called.
    """

    def __init__(self, news: SocketNews, wake: Callable[[], None]) -> None:
        self.count = 0
        self._news = news
        self._wake = wake
        self._own = ExitStack()
        self._followed: dict[int, tuple[str, ExitStack]] = {}

    def __enter__(self) -> SocketWatch:
        self._own.enter_context(self._news.watching(self._tell))
        return self

    def __exit__(self, *_: object) -> None:
        self.follow({})
        self._own.close()

    @property
    def listening(self) -> frozenset[Socket]:
        """The sockets that listen in the namespace of the daemon."""
        return self._news.listening

    def follow(self, proc_dirs: Mapping[int, str]) -> None:
        """From now on, watch only these namespaces and the daemon's namespace. `proc_dirs` maps the
        inode of each namespace to the directory in /proc of a process in the namespace.
        """
        before, self._followed = self._followed, {}
        for namespace, proc_dir in proc_dirs.items():
            if namespace in before and before[namespace][0] == proc_dir:
                self._followed[namespace] = before.pop(namespace)
            else:
                watched = ExitStack()
                watched.enter_context(
                    self._news.watching_elsewhere(namespace, proc_dir, self._tell)
                )
                self._followed[namespace] = proc_dir, watched
        for _, watched in before.values():
            watched.close()

    def _tell(self) -> None:
        self.count += 1
        self._wake()
