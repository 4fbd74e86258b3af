"""Defines ``subscribe``, ``unsubscribe``, and the notifications that subscribers receive."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.screen_methods import ScreenCursor
from shelld_protocol.structs import (
    MAX_KEY_CHARACTERS,
    Cols,
    DurationMs,
    EndSignal,
    ExitCode,
    IsRunning,
    Leftover,
    Listener,
    Params,
    Prompt,
    Reason,
    Result,
    Rows,
    ShellId,
    SpoolError,
    Status,
    Usage,
)
from shelld_protocol.target_methods import Target

EventName: TypeAlias = Literal["exit", "output", "prompt", "listening", "leftover", "screen"]

# How many events each subscription keeps, so that a client can continue it.
JOURNAL_EVENTS: Final = 10_000
MAX_SUBSCRIPTIONS: Final = 256
DEFAULT_INTERVAL_MS: Final = 50
MAX_INTERVAL_MS: Final = 5_000
DEFAULT_CHUNK_BYTES: Final = 64 * 1024
MIN_CHUNK_BYTES: Final = 1_024
MAX_CHUNK_BYTES: Final = 1024 * 1024

Events: TypeAlias = Annotated[
    list[EventName],
    Meta(
        description="What to send: exit, when the command ends; output, when it writes; prompt, "
        "when it begins or stops waiting for input; listening, when its TCP ports change; "
        "leftover, when the processes that outlive it change; screen, when its terminal shows "
        "something else.",
    ),
]


class SubscribeParams(Params):
    """Without `bash_id` and `session`, the subscription is for all shells."""

    bash_id: Annotated[str, Meta(description="The shell, running or retained.")] | None = None
    session: (
        Annotated[
            str,
            Meta(description="The session: its running shells, and shells that will start in it."),
        ]
        | None
    ) = None
    events: Events | None = None
    subscription: (
        Annotated[str, Meta(description="A subscription to continue. `events` is not needed then.")]
        | None
    ) = None
    from_seq: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="With subscription or idempotency_key: send the events after this "
                "number again. Default: only new events, or with idempotency_key, all events.",
            ),
        ]
        | None
    ) = None
    interval_ms: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MAX_INTERVAL_MS,
                description="Milliseconds between two events with output, or with a screen, of one "
                "shell. The first event is sent at once, and so is output of max_bytes. Default: "
                "50.",
            ),
        ]
        | None
    ) = None
    max_bytes: (
        Annotated[
            int,
            Meta(
                ge=MIN_CHUNK_BYTES,
                le=MAX_CHUNK_BYTES,
                description="Bytes of output in one event. Default: 65,536.",
            ),
        ]
        | None
    ) = None
    strip_ansi: (
        Annotated[bool, Meta(description="Remove terminal escape sequences. Default: true.")] | None
    ) = None
    target: Target | None = None
    idempotency_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_KEY_CHARACTERS,
                description="A key of the client's choice. As long as the subscription is kept, "
                "another request with this key continues it. Not together with subscription.",
            ),
        ]
        | None
    ) = None


SubscriptionId: TypeAlias = Annotated[str, Meta(description="The name of the subscription.")]


class SubscribeResult(Result):
    """The events follow this answer, unless the answer is part of a batch."""

    subscription: SubscriptionId
    seq: Annotated[
        int,
        Meta(description="The number of the last event of the subscription; 0 before the first."),
    ]
    events: Annotated[list[EventName], Meta(description="The events that it sends.")]
    bash_id: Annotated[
        str | None,
        Meta(description="The shell. Left out if the subscription is for several shells."),
    ] = None
    is_over: Annotated[
        bool,
        Meta(description="Whether the event with this seq is the last one. Left out if false."),
    ] = False


class UnsubscribeParams(Params):
    subscription: SubscriptionId


class Event(Result, kw_only=True):
    """The members of all events."""

    subscription: SubscriptionId
    seq: Annotated[int, Meta(description="1 for the first event of a subscription, then 2, ...")]
    bash_id: ShellId
    session: Annotated[str | None, Meta(description="The session of the shell; null for none.")]
    request_id: Annotated[
        int | float | str | None,
        Meta(
            description="The id of the request that began the subscription, or last continued it."
        ),
    ] = None
    target: Annotated[
        str | None,
        Meta(description="The target of the shell. Left out for a shell of this daemon."),
    ] = None


class OutputEvent(Event, kw_only=True):
    """New output. If the client reads too slowly, `skipped` bytes before `start` are not sent."""

    stream: Annotated[Literal["stdout", "stderr"], Meta(description="The stream.")]
    text: Annotated[str, Meta(description="The text of the bytes from start to end.")]
    start: Annotated[int, Meta(description="Byte offset of the beginning of `text` in the stream.")]
    end: Annotated[int, Meta(description="Byte offset of the end of `text`.")]
    dropped: Annotated[int, Meta(description="Bytes from start to end that are no longer kept.")]
    skipped: Annotated[
        int, Meta(description="Bytes before start that were not sent. bash_output can read them.")
    ]


class ExitEvent(Event, kw_only=True):
    """The command has ended.

    The shell has ended. The only event that may follow is `shell/leftover`.
    """

    status: Status
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    duration_ms: DurationMs
    leftover: Leftover
    usage: Usage
    stdout_bytes: Annotated[int, Meta(description="Total bytes that the command wrote to stdout.")]
    stderr_bytes: Annotated[int, Meta(description="Total bytes that the command wrote to stderr.")]
    unread_bytes: Annotated[int, Meta(description="Bytes that a plain bash_output would return.")]
    skipped: Annotated[
        int, Meta(description="Bytes of both streams that were not sent to a slow client.")
    ]
    reason: Reason = None
    spool_error: SpoolError = None


class PromptEvent(Event, kw_only=True):
    prompt: Annotated[
        Prompt | None,
        Meta(description="What the command waits for; null once it no longer waits."),
    ]


class ListeningEvent(Event, kw_only=True):
    listening: Annotated[
        list[Listener], Meta(description="All TCP ports on which the command listens now.")
    ]


class LeftoverEvent(Event, kw_only=True):
    """Follows `shell/exited`. The last event of a shell has an empty list."""

    leftover: Leftover


class ScreenEvent(Event, kw_only=True):
    """The rows that have changed since the last `shell/screen`.

    If events are sent again, only the last screen of a shell has rows, and it has all rows.
    """

    version: Annotated[int, Meta(description="As in read_screen.")]
    rows: Rows
    cols: Cols
    lines: Annotated[list[str], Meta(description="The rows that `changed` lists.")]
    changed: Annotated[list[int], Meta(description="The numbers of the rows in `lines`, from 0.")]
    cursor: ScreenCursor
    alt_screen: Annotated[
        bool, Meta(description="Whether a program has the whole screen, as editors do.")
    ]
    title: Annotated[str, Meta(description="The title that the program has set.")]


class LostSubscription(Result, kw_only=True):
    """The params of ``shell/lost``. This notification says that a subscription at a target sends
    nothing more, because the connection to the target is gone. It has no number, because only the
    target can number events.
    """

    subscription: SubscriptionId
    request_id: int | float | str | None = None
    target: str
    message: str


LOST_NOTIFICATION: Final = "shell/lost"


class SubscriptionOver(Result, kw_only=True):
    """The params of ``shell/over``.

    This notification says that a continued subscription of one shell sends nothing more.

    If the events of the subscription include `exit`, the exit event already says so, and this
    notification is not sent. The notification has no number, because it is never sent again.
    """

    subscription: SubscriptionId
    request_id: int | float | str | None = None
    target: str | None = None


OVER_NOTIFICATION: Final = "shell/over"

# The method and the params of each event.
NOTIFICATIONS: Final[dict[str, type[Event]]] = {
    "shell/output": OutputEvent,
    "shell/exited": ExitEvent,
    "shell/prompt": PromptEvent,
    "shell/listening": ListeningEvent,
    "shell/leftover": LeftoverEvent,
    "shell/screen": ScreenEvent,
}
