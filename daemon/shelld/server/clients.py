"""Serves the clients of a lasting daemon, one after the other.

Owns the listening socket and the attached client. Each client has a `Server` of its own. When a
client leaves, its shells, sessions and subscriptions stay for the next client. The module
`watchers` serves watchers, which only look at the shells and do not count as clients.

When a client is lost, its requests end. Its foreground commands move to the background or end, as
`on_disconnect` says. When the daemon stops, `app` ends the service of the last client. `app` does
the same for a daemon that serves only one client.

Invariants: at most one client is attached. A client is lost when its stream of requests ends, when
it reads no more answers, or when its `shelld attach` is gone. Releasing a lost client takes a
bounded time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.abc
import msgspec

from shelld import __version__
from shelld.lasting.directory import DirectoryError, SocketDirectory, peer_of
from shelld.lasting.handshake import (
    HANDSHAKE,
    End,
    HandshakeError,
    Hello,
    Reply,
    Version,
    close_all,
    decode,
    receive,
    send,
)
from shelld.lasting.start import Lasting
from shelld.lasting.views import Info
from shelld.methods.context import Daemon
from shelld.process import faults
from shelld.process.logs import Log
from shelld.server.attached_client import AttachedClient, RecordedMethods, is_hung_up
from shelld.server.dispatch import Method
from shelld.server.serve import Server
from shelld.server.startup import StartupError
from shelld.server.stdio import Input, Output
from shelld.server.watchers import Watchers
from shelld_protocol.about import PROTOCOL, Attachment

logger = Log("shelld.clients")

# How long to wait for the first message on a new connection. This message says what the connection
# is for.
HELLO_S: Final = 5.0
# How long the daemon waits for its first client, even if the linger time is shorter.
FIRST_CLIENT_S: Final = 20.0
# How long a new client waits for the last requests of a client that has closed its stream.
FINISH_S: Final = 3.0
# How long a new client waits while the daemon releases the previous client.
LEAVE_S: Final = 10.0
# How long the daemon tries to get the lock. After this time, the daemon removes the socket even if
# it has no lock.
LOCK_S: Final = 1.0
LOCK_POLL_S: Final = 0.01
# When the linger time is over, there may be a new connection whose client has not attached yet. The
# daemon then waits until the client attaches, and checks this at the interval `LINGER_POLL_S`. The
# daemon checks at most `LINGER_POLLS` times, because without a free descriptor, it can never accept
# the connection.
LINGER_POLL_S: Final = 0.05
LINGER_POLLS: Final = 200


class Clients:
    """All clients.

    `server` and `output` belong to the attached client. Without a client, they are None. Raises
    StartupError.
    """

    def __init__(self, lasting: Lasting) -> None:
        self._name, self._listener, self._linger_s = lasting
        self._client: AttachedClient | None = None
        self._generation = 0
        # The time at which the last client left. Before the first client comes, this time may be in
        # the future, so that the first client has at least `FIRST_CLIENT_S` to come.
        self._left_at = time.monotonic() + max(0, FIRST_CLIENT_S - self._linger_s)
        # When a client comes or goes, this event is set and another event takes its place.
        self._changed = anyio.Event()
        self._over = anyio.Event()
        # The connections that may still want to attach.
        self._greeted: set[socket.socket] = set()
        # A task holds this lock while it attaches a client.
        self._attaching = anyio.Lock()
        # The connections of `shelld stop` commands, which wait until this process has ended.
        self._stoppers: list[socket.socket] = []
        self._watchers = Watchers(self._info)
        try:
            self._directory = SocketDirectory.open(create=False)
            self._identity = (
                None if self._directory is None else self._directory.identity(self._name)
            )
        except DirectoryError as error:
            raise StartupError(str(error)) from error

    def begin(
        self,
        daemon: Daemon,
        make_methods: Callable[[], Mapping[str, Method]],
        requests: anyio.abc.TaskGroup,
    ) -> None:
        """Call this before any other method. `make_methods` makes the methods of one client."""
        self._daemon = daemon
        self._make_methods = make_methods
        self._requests = requests

    @property
    def server(self) -> Server | None:
        return None if self._client is None else self._client.server

    @property
    def output(self) -> Output | None:
        return None if self._client is None else self._client.output

    async def serve(self) -> None:
        """Serve one client after the other, until the daemon should end."""
        # During the start, `shelld attach` reads stderr. From now on, no process reads it.
        os.dup2(0, 2)
        os.dup2(0, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(faults.keep_running, partial(self._accept, tasks), "new clients")
            tasks.start_soon(faults.keep_running, self._watch_linger, "the linger")
            await self._over.wait()
            tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """Remove the socket, so that no other client comes. Does not end the attached client."""
        directory = self._directory
        if directory is not None:
            # Remove the socket before the listener closes. A socket without a listener would look
            # like the socket of a killed daemon.
            with anyio.move_on_after(LOCK_S, shield=True):
                while not directory.try_lock():  # noqa: ASYNC110 - there is no event for a free lock
                    await anyio.sleep(LOCK_POLL_S)
            directory.remove(self._name, self._identity)
            directory.close()
            self._directory = None
        self._listener.close()

    def end(self, exit_code: int) -> None:
        """Tell the attached client and the watchers that the daemon ends."""
        self._watchers.end(exit_code)
        if self._client is not None:
            with contextlib.suppress(OSError):
                send(self._client.connection, End("stopped", exit_code))

    # -- coming -----------------------------------------------------------------------------

    async def _accept(self, tasks: anyio.abc.TaskGroup) -> None:
        self._listener.setblocking(False)
        while True:
            await anyio.wait_readable(self._listener)
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                # No descriptor is free, for example.
                await faults.pause(LOCK_POLL_S)
                continue
            # Record the connection before the task begins, so that the daemon does not end in
            # between.
            self._greeted.add(connection)
            try:
                tasks.start_soon(self._meet, connection)
            except BaseException:
                self._greeted.discard(connection)
                connection.close()
                raise

    async def _meet(self, connection: socket.socket) -> None:
        """Serve the request of a new connection.

        Then close the connection, unless another object keeps it.
        """
        # Close the connection after any failure, so that the other side does not wait for an answer
        # that never comes.
        try:
            try:
                await faults.run_once(partial(self._greet, connection), "a new client")
            finally:
                self._let_go(connection)
        except Exception:
            faults.report("the end of a greeting")
            self._let_go(connection)

    def _let_go(self, connection: socket.socket) -> None:
        """Close a new connection, unless a client, a watcher or `shelld stop` uses it."""
        self._greeted.discard(connection)
        if not self._is_kept(connection):
            connection.close()

    def _is_kept(self, connection: socket.socket) -> bool:
        is_client = self._client is not None and self._client.connection is connection
        return is_client or connection in self._stoppers or self._watchers.has(connection)

    async def _greet(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            connection.setblocking(False)
            if peer_of(connection)[1] != os.getuid():
                return
            with anyio.move_on_after(HELLO_S):
                await anyio.wait_readable(connection)
            data, descriptors = receive(connection)
            version = decode(data, Version)
            if (version.handshake, version.protocol) != (HANDSHAKE, PROTOCOL):
                self._reply(connection, "other_version")
                return
            hello = decode(data, Hello)
            if hello.wants == "attach" and len(descriptors) == 2:
                await self._attach(connection, hello, descriptors)
            elif hello.wants == "info":
                self._reply(connection, "info", self._info())
            elif hello.wants == "watch" and self._watchers.has_room:
                self._reply(connection, "watching")
                self._greeted.discard(connection)
                await self._watchers.serve(connection, self._daemon.manager, self._daemon.targets)
            elif hello.wants == "watch":
                self._reply(connection, "failed")
            elif hello.wants == "stop":
                self._reply(connection, "stopping")
                self._stoppers.append(connection)
                self._over.set()
        except (OSError, HandshakeError):
            # The other side is gone, or is not a program of shelld.
            pass
        finally:
            close_all(descriptors)

    async def _attach(
        self, connection: socket.socket, hello: Hello, descriptors: list[int]
    ) -> None:
        async with self._attaching:
            if is_hung_up(connection):
                # This `shelld attach` has given up, so the daemon must not drop another client to
                # make room.
                return
            if not await self._make_room(steal=hello.steal):
                self._reply(connection, "busy")
                return
            try:
                client = self._make_client(connection, descriptors)
            except (OSError, StartupError):
                self._reply(connection, "failed")
                return
            self._client = client
        try:
            await self._serve(client, hello)
        except Exception:
            # Go on, so that the next client can still attach.
            faults.report("the loss of a client")
            self._forget(client)

    async def _make_room(self, *, steal: bool) -> bool:
        """Return whether no client is attached.

        If the attached client leaves, or must leave because of `steal`, wait until it is gone.
        """
        client = self._client
        if client is None:
            return True
        if not (steal or client.is_lost):
            return False
        client.is_stolen = steal and not client.is_lost
        if client.is_finishing:
            # The daemon may not have read its last requests yet.
            with anyio.move_on_after(FINISH_S):
                await client.gone.wait()
        client.cut_short.set()
        client.reading.cancel()
        with anyio.move_on_after(LEAVE_S):
            await client.gone.wait()
        return self._client is None

    def _make_client(self, connection: socket.socket, descriptors: list[int]) -> AttachedClient:
        """Return a new client, which then owns the descriptors. Raises OSError and StartupError."""
        incoming, outgoing = descriptors
        source, output = Input(incoming), Output(outgoing)
        methods = RecordedMethods(self._make_methods())
        server = Server(self._daemon, methods, source, output, self._requests)
        client = AttachedClient(connection, (incoming, outgoing), methods, server, output)
        descriptors.clear()
        return client

    def _welcome(self, client: AttachedClient, hello: Hello) -> None:
        self._generation += 1
        if hello.linger_s is not None:
            self._linger_s = hello.linger_s
        detached_s = time.monotonic() - self._left_at if self._generation > 1 else 0
        self._daemon.attachment = Attachment(
            self._name, self._generation, round(detached_s * 1000), self._linger_s
        )
        self._tell_of_change()
        try:
            self._reply(client.connection, "attached")
        except OSError:
            # The reply could not be sent. The other side is gone, or waits for a reply that it will
            # never get, so end the service of this client.
            client.reading.cancel()
        else:
            client.is_welcome = True
        logger.info("client %d has attached", self._generation)

    # -- going ------------------------------------------------------------------------------

    async def _serve(self, client: AttachedClient, hello: Hello) -> None:
        """Serve a client until it is lost."""
        try:
            self._welcome(client, hello)
            await self._read(client)
        except Exception:
            # The client is lost, and the next one can come.
            faults.report("a client")
        if self._daemon.draining or client.server.exit_code is not None:
            # The client wants the daemon to end.
            self._over.set()
            await anyio.sleep_forever()
        await self._lose(client)

    async def _read(self, client: AttachedClient) -> None:
        """Read requests until the client leaves or is gone."""
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._watch_output, client)
            watchers.start_soon(self._watch_connection, client)
            with client.reading:
                await client.server.read_requests()
            watchers.cancel_scope.cancel()

    async def _watch_output(self, client: AttachedClient) -> None:
        await client.output.wait_broken()
        client.reading.cancel()

    async def _watch_connection(self, client: AttachedClient) -> None:
        """Wait for the end of `shelld attach`. `shelld attach` sends nothing more, so the
        connection becomes readable only at its end.
        """
        await anyio.wait_readable(client.connection)
        client.reading.cancel()

    async def _lose(self, client: AttachedClient) -> None:
        client.is_leaving = True
        try:
            await client.part(self._daemon.subscriptions)
        except Exception:
            # Go on, so that the next client can still attach.
            faults.report("the loss of a client")
        self._forget(client)
        logger.info("client %d is gone", self._generation)

    def _forget(self, client: AttachedClient) -> None:
        """Release all resources of a client, so that the next client can come.

        If this fails, call it again.
        """
        try:
            client.close()
        finally:
            if self._client is client:
                self._daemon.attachment = None
                self._client = None
            client.gone.set()
            self._left_at = time.monotonic()
            self._tell_of_change()

    async def _watch_linger(self) -> None:
        polls = 0
        while True:
            changed = self._changed
            if self._client is not None:
                polls = 0
                await changed.wait()
                continue
            left = self._left_at + self._linger_s - time.monotonic()
            if left <= 0 and self._may_have_client and polls < LINGER_POLLS:
                # A signal may have stopped this process, so the daemon may not have seen its next
                # client yet.
                polls += 1
                await anyio.sleep(LINGER_POLL_S)
                continue
            if left <= 0:
                logger.info("no client has come for %d s", self._linger_s)
                self._over.set()
            with anyio.move_on_after(max(0, left)):
                await changed.wait()

    @property
    def _may_have_client(self) -> bool:
        """True if a connection has come that may want to attach."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(self._greeted or poll.poll(0))

    def _tell_of_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # -- telling ----------------------------------------------------------------------------

    def _reply(self, connection: socket.socket, state: str, info: Info | None = None) -> None:
        reply = Reply(
            handshake=HANDSHAKE,
            protocol=PROTOCOL,
            version=__version__,
            state=state,  # type: ignore[arg-type]
            info=None if info is None else msgspec.to_builtins(info),
        )
        send(connection, reply)

    def _info(self) -> Info:
        manager, client = self._daemon.manager, self._client
        running = len(manager.list_running())
        now = time.monotonic()
        return Info(
            name=self._name,
            pid=os.getpid(),
            uptime_ms=round((now - self._daemon.started_at) * 1000),
            client=None if client is None else peer_of(client.connection)[0],
            detached_ms=None if client is not None else round((now - self._left_at) * 1000),
            linger_s=self._linger_s,
            shells_running=running,
            shells_retained=len(manager.list_shells()) - running,
        )
