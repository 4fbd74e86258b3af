"""A client that listens to a task, and runs in the process of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from shelld.mcp.task_notifications import TaskNotifications
from shelld.mcp.tasks import Task, Tasks
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.tools.bash_result import DeferredBashResult
from shelld_protocol.event_methods import Event, SubscriptionOver
from support import Json


class Client:
    """A client that accepts no notification until it reads. It keeps the params of
    notifications.
    """

    backlog = 0

    def __init__(self) -> None:
        self.told: list[Json] = []
        self._refused, self._reads = anyio.Event(), anyio.Event()
        self._news = anyio.Event()

    def notify(self, _method: str, params: Mapping[str, Any]) -> bool:
        if not self._reads.is_set():
            self._refused.set()
            return False
        self.told.append(dict(params))
        self._news.set()
        return True

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        raise NotImplementedError

    async def wait_until_read(self) -> None:
        await self._reads.wait()

    async def wait_below(self, size: int) -> None:
        raise NotImplementedError

    def read(self) -> None:
        """Read from now on."""
        self._reads.set()

    async def read_late(self) -> None:
        """Begin to read when the server has failed to send a notification."""
        await self._refused.wait()
        self.read()

    async def hear(self, count: int) -> Json:
        """Return the params of the notification with the number `count`; the first has the number
        1.
        """
        while len(self.told) < count:
            self._news = anyio.Event()
            await self._news.wait()
        return self.told[count - 1]


class Listening:
    """A client that listens to a task."""

    def __init__(self, manager: Manager, shell: Shell) -> None:
        self.client = Client()
        self.shell = shell
        self.task: Task = Tasks().add(manager, shell, DeferredBashResult([], 1_000, lambda: "/"))
        self.context = RequestContext(
            Daemon(Options(), manager), self.client.notify, recipient=self.client
        )
        self.notifications = TaskNotifications(self.context, b"1", forms_allowed=True)

    async def follow(self) -> None:
        await self.notifications.follow(self.shell, self.task)


Listen = Callable[[str], Awaitable[Listening]]
