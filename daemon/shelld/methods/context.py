"""The context that a method body gets besides its params.

The context has the request, and the parts of the daemon that methods use.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Struct, field

from shelld.audit import AuditLog
from shelld.events.subscription import NOBODY, Recipient
from shelld.events.subscriptions import Subscriptions
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.methods.once import Keys
from shelld.process.options import Options
from shelld.sandbox.policy import ResolvedPolicy, resolved
from shelld.sessions.text import current_directory
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.targets.targets import Targets
from shelld_protocol.about import Attachment
from shelld_protocol.errors import cancelled, resource_exhausted
from shelld_protocol.tools import ExecutionContext, ToolResult


class Daemon(Struct, eq=False):
    """Objects that live as long as the daemon. If `draining`, the daemon refuses new requests."""

    options: Options
    manager: Manager
    audit: AuditLog | None = None
    policy: Policy = DEFAULT_POLICY
    started_at: float = field(default_factory=time.monotonic)
    requests: int = 0
    draining: bool = False
    # How the client is attached; None if the daemon is not a lasting daemon.
    attachment: Attachment | None = None
    # The subscriptions of the daemon's client.
    subscriptions: Subscriptions = field(default=None)  # type: ignore[assignment]
    # The idempotency keys of commands.
    keys: Keys = field(default=None)  # type: ignore[assignment]
    targets: Targets = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.subscriptions = Subscriptions(self.manager)
        self.keys = Keys(self.manager)
        self.targets = Targets(lambda session: session in self.manager.sessions.all())


# A function that sends a notification. It returns False if it skipped the notification, which can
# be sent later.
Notify = Callable[[str, Mapping[str, Any]], bool]


class LargeAnswers:
    """Lets one request at a time make a large answer, after the client has read the earlier
    answers.

    In JSON, a text takes up to six times its size. So several large answers at once could exhaust
    the memory. `wait_for_room` waits for the client.
    """

    def __init__(self, wait_for_room: Callable[[], Awaitable[None]]) -> None:
        self._wait_for_room = wait_for_room
        # This is not a lock, because one task may wait for the turn, and another task may end the
        # turn.
        self._turn = anyio.Semaphore(1)
        self._owner: RequestContext | None = None

    def is_turn_of(self, context: RequestContext) -> bool:
        """Return whether it is this request's turn."""
        return self._owner is context

    async def begin(self, context: RequestContext) -> None:
        """Wait for this request's turn, which lasts until `end`.

        Raises `RpcError` (resource_exhausted) if the request's batch holds too many large answers
        already. In this case, the request has not taken any output.
        """
        if self._owner is context:
            return
        await self._turn.acquire()
        try:
            await self._wait_for_room()
            if not context.has_room():
                raise resource_exhausted("memory", "The batch holds too many large answers")
        except BaseException:
            self._turn.release()
            raise
        self._owner = context

    def end(self, context: RequestContext) -> None:
        """End this request's turn, if it has one."""
        if self._owner is context:
            # If `release` fails, `_owner` is still set, so another call can end the turn.
            self._turn.release()
            self._owner = None


def _tell_nobody(_method: str, _params: Mapping[str, Any]) -> bool:
    """Do nothing. This is the `notify` of a context without a client."""
    return True


def _always() -> bool:
    """Return True. This is the `has_room` of a request outside of a batch."""
    return True


def _no_requests(_id: int | str) -> Sequence[RequestContext]:
    """Return no requests. This is the `find_requests` of a context without a client."""
    return ()


class DeferredResult(Protocol):
    """The result of a call that was answered before its command has ended.

    This object must not refer to the shell, so that the shell can expire.
    """

    def settle(self, shell: Shell) -> None:
        """Record that the command has ended. From now on, the result does not change."""
        ...

    async def result(self, shell: Shell) -> ToolResult:
        """Make the result of the call from the output that is still kept, and return it."""
        ...


class Deferral(Protocol):
    """Lets a call be answered before its command has ended."""

    async def wait(self, shell: Shell) -> None:
        """Wait until the call can be answered, with or without its result."""
        ...

    @property
    def seconds_left(self) -> float:
        """How many seconds the call may still wait for its result."""
        ...

    def defer(self, shell: Shell, result: DeferredResult) -> None:
        """Answer the call now. `result` makes the result of the call later."""
        ...


class PassedOn(NamedTuple):
    """A request that was passed on to a target.

    `far_id` is the id of the request at the target, as JSON text. `leave_command` moves the command
    to the background.
    """

    target: str
    far_id: bytes
    leave_command: Callable[[], None] | None = None


class RequestContext(Struct, eq=False):
    """One request. `notify` sends a notification (method, params) to its client.

    `error_data` goes into the error if the request is cancelled. `shell` is the shell that the
    request concerns. `command` is this shell if the request has started it, otherwise None.
    `is_over`: the request was cancelled or answered, so no more messages about the request may be
    sent. `large_answers` is None without a client. `has_room` returns whether the batch of the
    request may hold another large answer. `is_notification`: no client gets the result.
    `find_requests` returns the requests in flight that have a given id and may start a command.
    `recipient` gets events, which may come after the answer. `request_id` is the id as JSON text,
    or None for a notification. `subscription` is the id of the subscription that the request has
    begun. `deferral` is None if the request must be answered with its result. If the stop of the
    daemon ends the request, `result_at_stop` is the answer. If `result_at_stop` is None, the answer
    is the error shutting_down. `passed_on` is None for a request that this daemon answers itself.
    """

    daemon: Daemon
    notify: Notify = _tell_nobody
    error_data: dict[str, Any] = {}
    shell: Shell | None = None
    command: Shell | None = None
    is_over: bool = False
    large_answers: LargeAnswers | None = None
    has_room: Callable[[], bool] = _always
    is_notification: bool = False
    find_requests: Callable[[int | str], Sequence[RequestContext]] = _no_requests
    recipient: Recipient = NOBODY
    request_id: bytes | None = None
    subscription: str | None = None
    deferral: Deferral | None = None
    result_at_stop: object = None
    passed_on: PassedOn | None = None
    # True if the request goes to a target. It may still wait for the settings of its session.
    is_for_target: bool = False
    # True if the client was lost before the request has ended.
    is_left: bool = False
    # True if the command ends when its client is lost.
    ends_with_client: bool = False
    _progress: anyio.Event | None = None
    _lock: anyio.Lock | None = None

    def runs(self, shell: Shell) -> None:
        """Record the shell that this request has started."""
        self.command = self.concerns(shell)
        if self.leaves_command:
            # The client was lost before the command started.
            self.leave_command()

    def concerns(self, shell: Shell) -> Shell:
        """Record the shell that this request concerns. Return the shell."""
        self.shell = shell
        self._tell_of_progress()
        return shell

    def end(self) -> None:
        """Record that the request was cancelled or answered."""
        self.is_over = True
        self._tell_of_progress()

    async def end_if_cancelled(self) -> None:
        """If a cancellation has just arrived, let it end this task.

        If a result and a cancellation arrive together, the task may continue with the result. So
        call this before the task takes something that no other request can get afterwards.
        """
        if self.is_over:
            await checkpoint()

    @property
    def leaves_command(self) -> bool:
        """True if the command goes on although the request is cancelled."""
        # The command may have started only after the client was lost.
        return self.is_left and not self.ends_with_client

    def end_if_left(self) -> None:
        """Refuse to start a command that ends with its client, if the client is already lost.

        The client may have been lost while the request waited for its turn. If the command started
        now, it would be killed at once. Raises `RpcError` (cancelled).
        """
        if self.is_left and self.ends_with_client:
            raise cancelled()

    def leave_command(self) -> None:
        """Move the command to the background, because the client is lost.

        Does not wait for the command.
        """
        self.is_left = True
        if self.passed_on is not None and self.passed_on.leave_command is not None:
            self.passed_on.leave_command()
        if self.command is not None and self.command.is_in_foreground:
            self.command.release()
        elif self.command is not None:
            # The call that started the command was answered. This request may be a repeated call
            # that still waits for the command.
            self.command.hand_over_repeats()

    def passes_on(self, passed_on: PassedOn) -> None:
        """Record that this request was passed on to its target."""
        self.passed_on = passed_on
        self._tell_of_progress()

    async def wait_until_passed_on(self) -> None:
        """Wait until this request was passed on to its target, or is over."""
        while self.passed_on is None and not self.is_over:
            self._progress = self._progress or anyio.Event()
            await self._progress.wait()

    async def wait_for_command(self) -> Shell | None:
        """Wait until this request has started a shell.

        Return the shell, or None if the request starts no shell.

        If several tasks call this, the calls return in the order in which they were made. So their
        callers write input in this order.
        """
        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            while self.shell is None and not self.is_over:
                self._progress = self._progress or anyio.Event()
                await self._progress.wait()
        return self.command

    def _tell_of_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    @property
    def may_make_large_answer(self) -> bool:
        """True if this request may make a large answer without waiting for other requests."""
        return self.large_answers is None or self.large_answers.is_turn_of(self)

    async def begin_large_answer(self) -> None:
        """Wait until this request may make a large answer.

        Other requests wait until `end_large_answer`.
        """
        if self.large_answers is not None:
            await self.large_answers.begin(self)

    def end_large_answer(self) -> None:
        """Record that the request has written its large answer, or will not make one."""
        if self.large_answers is not None:
            self.large_answers.end(self)


class ToolContext(ExecutionContext):
    """The context of a tool that a request calls."""

    request: RequestContext | None = None


def policy_of(options: Options) -> ResolvedPolicy | None:
    """Return the sandbox policy that `options` has for all sessions. Raises `RpcError`
    (invalid_params).
    """
    if options.sandbox is None:
        return None
    return resolved(options.sandbox, current_directory(), options.sandbox_engine)


def manager_options(options: Options) -> ManagerOptions:
    """Return those options of the daemon that the manager needs.

    Raises `RpcError` (invalid_params) if the sandbox policy is not valid on this machine.
    """
    return ManagerOptions(
        bash=options.bash,
        env=options.env,
        limits=options.limits,
        sandbox=policy_of(options),
        max_shells=options.max_shells,
        spare_shells=options.spare_shells,
        max_retained=options.max_retained,
        retain_seconds=options.retain_seconds,
        retain_bytes=options.retain_bytes,
        retain_total_bytes=options.retain_total_bytes,
        spool_directory=options.spool_dir,
        grace_ms=options.grace,
    )
