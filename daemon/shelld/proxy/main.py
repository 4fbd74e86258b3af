"""The program of a proxy. `process` starts it in a new interpreter.

The descriptor 0 is the socket to the daemon. The program imports only the standard library, because
every import delays the start of a sandbox. The program may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from contextlib import suppress
from typing import Final

from shelld.keeper.channel import Channel, Message
from shelld.keeper.prctl import set_process_name
from shelld.proxy import SERVE, SERVING
from shelld.proxy.connect import Connector, SystemResolver
from shelld.proxy.hosts import Rules, rule_of
from shelld.proxy.reports import Reports
from shelld.proxy.server import Server

# The buffers of all connections together need a quarter of this memory.
_MEMORY_BYTES: Final = 512 * 1024 * 1024
# Each connection takes two descriptors.
_FILES: Final = 1_024
# The size of the stack of each thread that resolves names.
_STACK_BYTES: Final = 1024 * 1024


def main() -> None:
    set_process_name(b"shelld-proxy")
    _limit()
    asyncio.run(_run(Channel(socket.socket(fileno=0))))


def _limit() -> None:
    threading.stack_size(_STACK_BYTES)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, _FILES),
    ):
        _, hard = resource.getrlimit(limit)
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (lower, lower))


async def _run(channel: Channel) -> None:
    """Serve until the daemon is gone."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def receive() -> None:
        messages = channel.receive()
        if messages is None:
            # Exit immediately, because a thread that still resolves a name would delay a normal
            # exit.
            os._exit(0)
        for message, descriptors in messages:
            if message[0] == SERVE and descriptors:
                listener = socket.socket(fileno=descriptors.pop())
                listener.setblocking(False)
                tasks.extend(_start(channel, listener, message))

    loop.add_reader(channel.fileno(), receive)
    await loop.create_future()


def _start(channel: Channel, listener: socket.socket, message: Message) -> list[asyncio.Task[None]]:
    _, first, hosts = message

    def send(message: Message) -> bool:
        try:
            channel.send(message)
        except BlockingIOError:
            return False
        return True

    reports = Reports(send, first)
    connector = Connector(Rules(map(rule_of, hosts)), SystemResolver())
    server = Server(connector, reports.note)
    channel.send((SERVING,))
    tasks = [asyncio.create_task(each) for each in (reports.run(), server.serve(listener))]
    for task in tasks:
        # A task ends only because of a failure. After this exit, the daemon starts another process.
        task.add_done_callback(lambda _: os._exit(1))
    return tasks
