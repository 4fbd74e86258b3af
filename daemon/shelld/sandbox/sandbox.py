"""Runs one sandbox: bubblewrap under a runner of the daemon, with a keeper and its runners inside.

Commands start in a sandbox in the same way as outside. `acquire` returns a runner, which takes the
same messages as a runner outside of a sandbox. So a command costs nothing extra, and spare shells,
terminals and kills work. For the runner outside, the whole sandbox is one command. When the runner
reports that this command has ended, no process of the sandbox is left.

Owns the channels, the idle runners, and the directory in the sandbox with the daemon's files.

Invariants:

* No command starts before the keeper inside has reported that the sandbox is complete.
* A placeholder (see `view`) is removed only when no process of the sandbox is left.
* No process in the sandbox can write to a file that this module later opens by name.
"""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio

from shelld.keeper.channel import (
    EMPTY,
    ENTERED,
    EXITED,
    FAILED,
    KILL,
    RUN,
    SPAWN_RUNNER,
    STARTED,
    STOP_RUNNER,
    SURVIVORS,
    Channel,
    Message,
    anonymous_file,
)
from shelld.keeper.idle_runners import IdleRunners
from shelld.keeper.orphan_reaper import KILL_INTERVAL_MS
from shelld.keeper.pool import RunnerPool
from shelld.process.faults import is_shortage
from shelld.proxy.process import Proxy
from shelld.sandbox import engine
from shelld.sandbox.engine import Missing
from shelld.sandbox.guests import Guest, Guests
from shelld.sandbox.mounts import MountWatch, is_as_planned
from shelld.sandbox.pids import NamespacedChannel, outer_pids
from shelld.sandbox.placeholders import Placeholders
from shelld.sandbox.policy import ResolvedPolicy
from shelld.sandbox.unix_sockets import shown_sockets, socket_paths
from shelld.sandbox.view import PRIVATE, Identity, View, needed_paths, view_of

# A sandbox starts in a tenth of a second. On a busy machine it may take much longer.
START_TIMEOUT_S: Final = 20.0
# How long a sandbox may take to end. After this time, its processes count as survivors.
_END_TIMEOUT_S: Final = 5.0
# How long a sandbox may take to end while the daemon stops.
_LAST_END_S: Final = 1.0

_ERROR_BYTES: Final = 4_096
# The directory with the device files of terminals: see `shelld.keeper.inside`.
_TERMINALS: Final = "/dev/pts"
# The number of descriptors that come with ENTERED. The descriptor for the proxy does not count.
_ENTERED_WITH: Final = 4
# Only bash itself may report the state of the session. A child of bash would write its state to a
# file with this name, but a directory has this name, so the child cannot write the file.
_NO_FILE: Final = "-1"
# Bash calculates with the names of the files, and its numbers have 64 bits with a sign.
_NAME_BYTES: Final = 7
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_numbers: Final = itertools.count(1)


class Sandbox:
    """`missing`: the reason why no command can start in the sandbox. `made`: see `Placeholders`."""

    # `Runners` has these members. `adopts` is True: if a keeper dies, the processes that it leaves
    # behind stay in this sandbox.
    adopts = True
    is_blind = False

    def __init__(
        self, pool: RunnerPool, policy: ResolvedPolicy, bash: str, made: dict[str, Identity]
    ) -> None:
        self.policy = policy
        # Numbers begin with 1. No other sandbox of this process has the same number.
        self.number = next(_numbers)
        self.missing: Missing | None = None
        self.is_ready = False
        # `has_ended`: no more commands can start. `is_gone`: no process of the sandbox is left.
        self.has_ended = self.is_gone = False
        # Whether the runner has received the message to kill the sandbox.
        self.is_ending = False
        self.survivors: list[int] = []
        # The time.monotonic() at which the last command had ended.
        self.idle_since = time.monotonic()
        self._pool = pool
        self._bash = bash
        self._outside: Channel | None = None
        self._keeper: Channel | None = None
        self._view: View | None = None
        self._placeholders = Placeholders(made)
        self._mount_watch: MountWatch | None = None
        self._errors: int | None = None
        self._directory: int | None = None
        self._nothing: int | None = None
        # The messages of the keeper, with their descriptors. `close` closes these descriptors.
        self._entered: list[tuple[Message, list[int]]] = []
        # Whether the mounts differed from those of the view, or a denied path was replaced.
        self._has_other_mounts = False
        # Whether the runner may have started bubblewrap.
        self._is_begun = False
        # The outer pid of the first process, and a map from the runners' outer pids to their inner
        # pids.
        self._first = 0
        self._inner_pids: dict[int, int] = {}
        self._idle = IdleRunners()
        self._guests = Guests()
        self._proxy: Proxy | None = None
        if policy.network == "hosts":
            self._proxy = Proxy(pool, policy.hosts, self._guests.note_denial)
        # Set when the sandbox is ready or has ended.
        self._settled = anyio.Event()

    # -- starting ---------------------------------------------------------------------------

    def start(self) -> None:
        """Let a runner start bubblewrap. The caller must call `run` afterwards. Raises OSError.

        If this system cannot have such a sandbox, this method only sets `missing`.
        """
        self.missing = engine.lacking(self.policy)
        if self.missing is not None:
            return
        try:
            sockets = socket_paths()
        except OSError as error:
            if is_shortage(error):
                raise
            self.missing = engine.NO_SOCKETS
            return
        view = self._view = view_of(self.policy, sockets, needed_paths(self._bash))
        try:
            self._placeholders.make(view.placeholders)
            self._placeholders.hold(path for path, _ in view.present)
            for path, _ in view.masked:
                # The socket may be gone by now.
                with suppress(FileNotFoundError):
                    self._placeholders.keep(path)
            for mount in view.mounts:
                if mount.source and mount.source not in self._placeholders.identities:
                    self._placeholders.keep_while_starting(mount.source)
            if view.is_outdated:
                # A denied path changed before it was kept open, so the view is wrong.
                raise BlockingIOError
        except OSError as error:
            if is_shortage(error):
                raise
            self.missing = engine.NO_MOUNT
            return
        descriptors: list[int] = []
        try:
            if self._proxy is not None:
                # The proxy starts while bubblewrap starts.
                self._proxy.start()
            self._outside = self._pool.acquire()
            self._keeper, theirs = Channel.pair()
            with theirs:
                self._errors, errors = os.pipe()
                descriptors.append(errors)
                os.set_blocking(self._errors, False)
                # A command that runs as root could change the mode of /dev/null, so the sandbox
                # gets an empty file instead.
                descriptors.append(nothing := anonymous_file(b""))
                descriptors.append(arguments := anonymous_file(engine.arguments_of(view)))
                descriptors.append(filter_ := anonymous_file(engine.filter_of(self.policy)))
                given = [nothing, errors, errors, theirs.fileno(), arguments, filter_]
                # A machine without this directory has no terminals.
                with suppress(FileNotFoundError):
                    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
                    descriptors.append(terminals := os.open(_TERMINALS, flags))
                    given.append(terminals)
                command = engine.command_of(self.policy, self._pool.mechanism)
                self._is_begun = True
                self._outside.send((RUN, *command, len(given), False, None), tuple(given))
        finally:
            while descriptors:
                os.close(descriptors.pop())

    async def run(self) -> None:
        """Follow the sandbox until none of its processes is left. If this method is cancelled, it
        ends the sandbox before it returns.

        If this method fails, the sandbox ends. If the method is called again, it does the remaining
        work.
        """
        try:
            if self._outside is not None and not self.has_ended:
                await self._follow()
        finally:
            try:
                self.has_ended = True
                self._settled.set()
                with anyio.CancelScope(shield=True):
                    limit = _LAST_END_S if _is_cancelled() else _END_TIMEOUT_S
                    with anyio.move_on_after(limit):
                        await self._end()
            finally:
                self.close()

    async def _follow(self) -> None:
        with anyio.move_on_after(START_TIMEOUT_S):
            await self._enter()
        if not self.is_ready:
            self.missing = self.missing or await self._diagnose()
            return
        self._settled.set()
        assert self._keeper is not None
        async with anyio.create_task_group() as tasks:
            if self._proxy is not None:
                tasks.start_soon(self._proxy.run)
            # The keeper sends no more messages. When its channel ends, the sandbox has ended.
            while await _receive(self._keeper) is not None:
                pass
            tasks.cancel_scope.cancel()

    async def _enter(self) -> None:
        """Wait until the sandbox is complete, or has failed."""
        assert self._outside is not None
        assert self._keeper is not None
        while not self._first:
            messages = await _receive(self._outside)
            if messages is None:
                # The runner has died.
                return
            for message, _ in messages:
                self._note(message)
                if message[0] == STARTED:
                    self._first = message[1]
                elif message[0] in (FAILED, EXITED):
                    return
        self._entered = await _receive(self._keeper) or []
        if not self._entered or self._entered[0][0][0] != ENTERED:
            return
        descriptors = self._entered[0][1]
        if len(descriptors) != _ENTERED_WITH + (self._proxy is not None):
            return
        self._directory, self._nothing, root, mounts = descriptors[:_ENTERED_WITH]
        view, identities = self._view, self._placeholders.identities
        assert view is not None
        is_planned = is_as_planned(self.policy, view, identities, root=root, mounts=mounts)
        descriptors.remove(root)
        os.close(root)
        # A denied path may have been replaced before the mount on it, and put back afterwards.
        if not is_planned or view.is_outdated:
            self._has_other_mounts = True
            self.missing = engine.NO_MOUNT
            return
        self._mount_watch = MountWatch(view, identities, mounts)
        self._placeholders.close_after_start()
        os.mkdir(_NO_FILE, dir_fd=self._directory)
        if self._proxy is not None:
            self.missing = engine.NO_PROXY
            if not await self._proxy.serve(descriptors.pop(), self._first):
                return
            self.missing = None
        self.is_ready = True

    async def _diagnose(self) -> Missing:
        """Return why the sandbox has not started."""
        errors = b""
        with suppress(OSError):
            assert self._errors is not None
            errors = os.read(self._errors, _ERROR_BYTES)
        return engine.diagnose(errors)

    async def wait(self) -> None:
        """Wait until `is_ready` or `has_ended`."""
        await self._settled.wait()

    # -- ending -----------------------------------------------------------------------------

    def end(self) -> None:
        """Kill every process of the sandbox. `run` waits until they have ended."""
        self.has_ended = True
        try:
            self._idle.close()
        finally:
            if self._outside is not None:
                try:
                    self._outside.send((KILL, int(signal.SIGKILL), 0))
                except OSError:
                    # A runner also kills its command when the runner's channel ends.
                    self._outside.shut_down()
            self.is_ending = True

    async def _end(self) -> None:
        """Wait until no process of the sandbox is left."""
        self.end()
        while self._outside is not None and self._outside.is_open and not self.is_gone:
            messages = await _receive(self._outside)
            if messages is None:
                await self._end_without_runner()
                return
            for message, _ in messages:
                self._note(message)

    def _note(self, message: Message) -> None:
        if message[0] == SURVIVORS:
            self.survivors = message[1]
        self.is_gone |= message[0] in (EMPTY, FAILED) or (message[0] == EXITED and message[-1])

    async def _end_without_runner(self) -> None:
        """Wait until the daemon has killed the processes that the sandbox has left behind. The
        sandbox's runner, and the keeper of this runner, have died.
        """
        assert self._outside is not None
        peer = self._outside.peer
        while self._pool.is_dying(None if peer is None else peer.pid):  # noqa: ASYNC110
            await anyio.sleep(KILL_INTERVAL_MS / 1000)
        self._pool.expect_orphans()
        while self._pool.adopts and self._pool.orphans() is None:  # noqa: ASYNC110
            await anyio.sleep(KILL_INTERVAL_MS / 1000)
        self.is_gone = True

    def close(self) -> None:
        """Close all channels and descriptors. `run` calls this. If `start` raises an error, the
        caller of `start` must also call this method.
        """
        self.has_ended = True
        self._settled.set()
        self._idle.close()
        try:
            if self._proxy is not None:
                self._proxy.close()
        finally:
            self._close_own()

    def _close_own(self) -> None:
        for channel in (self._keeper, self._outside):
            if channel is not None:
                channel.close()
        errors, self._errors = self._errors, None
        if errors is not None:
            os.close(errors)
        self._directory = self._nothing = None
        for _, descriptors in self._entered:
            while descriptors:
                os.close(descriptors.pop())
        self._placeholders.close(removes=self.is_gone or not self._is_begun)
        self.is_gone = True

    def abandon(self) -> None:
        """Close the channels in a forked child."""
        if self._proxy is not None:
            self._proxy.close()
        self._idle.close()
        for channel in (self._keeper, self._outside):
            if channel is not None:
                channel.close()

    # -- looking ----------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        """Whether this sandbox shows something that has since appeared on the machine, and that a
        new sandbox would hide, or lacks something that a new sandbox would show.
        """
        view = self._view
        if view is None:
            return False
        try:
            watch = self._mount_watch
            if view.is_outdated or (watch is not None and watch.has_replaced):
                return True
            if self.policy.network == "full":
                # If the sandbox uses the network of the machine, the list also has the sockets that
                # its own commands have made.
                return False
            # The file of a hidden socket may have been renamed.
            new = [
                path
                for path in socket_paths()
                if path not in view.sockets or not os.path.lexists(path)
            ]
            found = shown_sockets(self.policy, view.hidden, view.shown, new)
            return any(path not in view.sockets for path in found)
        except OSError:
            return True

    @property
    def was_too_late(self) -> bool:
        """Whether the sandbox may have failed to start only because a path was replaced meanwhile,
        or a hidden socket was removed.
        """
        view = self._view
        if self.missing is not engine.NO_MOUNT or view is None:
            return False
        return self._has_other_mounts or view.is_outdated or view.is_socket_gone

    @property
    def is_idle(self) -> bool:
        """Whether no command runs in the sandbox, and no spare shell waits in it."""
        return self._guests.are_none and self.is_ready

    def open_file(self) -> tuple[int, str]:
        """Return a descriptor of a new file, and the path of the file in the sandbox.

        `prelude` expects that the name of the file is a number. Raises OSError.
        """
        if self._directory is None:
            raise ProcessLookupError
        # Commands may have changed the mode of the directory.
        os.fchmod(self._directory, _DIRECTORY_MODE)
        # A command can make files in this directory, too, so it must not know the next name.
        name = str(int.from_bytes(os.urandom(_NAME_BYTES)))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, _FILE_MODE, dir_fd=self._directory), f"{PRIVATE}/{name}"

    def has_file(self, descriptor: int, path: str) -> bool:
        """Return whether commands can still write to a file from `open_file` at its path.

        Commands may have deleted or replaced the file, or changed modes.
        """
        if self._directory is None:
            return False
        own, directory = os.fstat(descriptor), os.fstat(self._directory)
        try:
            name = os.path.basename(path)
            found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return False
        modes = (stat.S_IMODE(own.st_mode), stat.S_IMODE(directory.st_mode))
        return os.path.samestat(own, found) and modes == (_FILE_MODE, _DIRECTORY_MODE)

    def open_nothing(self) -> int:
        """Return a descriptor of the sandbox's /dev/null. Raises OSError."""
        if self._nothing is None:
            raise ProcessLookupError
        return os.dup(self._nothing)

    # -- runners ----------------------------------------------------------------------------

    def acquire(self) -> Channel:
        if (channel := self._idle.take()) is not None:
            return channel
        if self._keeper is None or self.has_ended or not self.is_ready:
            raise ConnectionError
        ours, theirs = NamespacedChannel.pair()
        ours.look_up, ours.on_runner = self._look_up, self._note_runner
        with theirs:
            try:
                self._keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
            except BaseException:
                ours.close()
                raise
        return ours

    def release(self, channel: Channel) -> None:
        if self.has_ended:
            channel.close()
        else:
            self._idle.add(channel)

    def join(self, guest: Guest) -> None:
        """Record that a command or a spare shell starts in the sandbox."""
        self._guests.join(guest)

    def leave(self, guest: Guest) -> None:
        """Record that no process of a command or a spare shell is left."""
        try:
            self.collect_denials()
        finally:
            self._guests.leave(guest)
            self.idle_since = time.monotonic()

    def collect_denials(self) -> None:
        """Record the connections that have been refused to the commands until now."""
        if self._proxy is not None:
            self._proxy.collect()

    def trim(self) -> None:
        """End idle runners that no command has needed since the last call."""
        self._idle.trim()

    def stop_runner(self, pid: int) -> None:
        if self._keeper is not None and pid in self._inner_pids:
            with suppress(OSError):
                self._keeper.send((STOP_RUNNER, self._inner_pids[pid]))

    def replace_keeper_of(self, channel: Channel) -> None:
        """End the sandbox, because its keeper does not start any more runners."""
        del channel
        self.end()

    def is_dying(self, runner: int | None) -> bool:
        """Return False. No other wait is needed, because `orphans` waits until the whole sandbox
        has ended.
        """
        del runner
        return False

    def expect_orphans(self) -> None:
        """End the sandbox. Call this if the sandbox's keeper has ended, or does not know which
        processes a runner has left behind.
        """
        self.end()

    def orphans(self) -> list[int] | None:
        return self.survivors if self.is_gone or self.survivors else None

    def _look_up(self, pids: Sequence[int]) -> list[int]:
        return outer_pids(self._first, pids)

    def _note_runner(self, pid: int, inner: int) -> None:
        self._inner_pids[pid] = inner


def _is_cancelled() -> bool:
    """Return whether the current task is ending because of a cancellation."""
    return isinstance(sys.exc_info()[1], anyio.get_cancelled_exc_class())


async def _receive(channel: Channel) -> list[tuple[Message, list[int]]] | None:
    """Wait for messages; return None at the end of the channel."""
    while True:
        await anyio.wait_readable(channel)
        if (messages := channel.receive()) != []:
            return messages
