"""Defines the types of keyword arguments. Each keyword argument is an option of a method.

`calls` turns these options into params. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

from shelld_protocol.event_methods import EventName, OutputEvent
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.shell_methods import Encoding
from shelld_protocol.structs import OnPrompt, SignalName, Until

# A function that takes the output of a command as it comes.
OnOutput: TypeAlias = Callable[[OutputEvent], None]


class BashOptions(TypedDict, total=False):
    """Options of a command. `timeout` is in milliseconds, 1,000 to 600,000.

    `idle_timeout` is the longest time without output, in milliseconds, 1,000 to 3,600,000. `env` is
    applied on top of the session's environment; None removes a variable. `stdin` is the command's
    input, as text or bytes; by default the command reads end of file. `session=None` runs the
    command outside all sessions. `tty` runs the command in a terminal of `rows` and `cols`;
    `open_stdin` leaves the command's input open. `merge` gives the command one pipe for both
    streams, so `stdout` has all output in the order of the writes. With `idempotency_key`, a
    repeated call starts nothing: it returns the shell that the first call with this key has
    started. With `key_must_exist`, no call starts a command: if the key is unknown, the call raises
    `ShellNotFound`. `target` names the daemon that runs the command; the default is the daemon of
    the session. `sandbox` makes the session's policy stricter for this command. If a lasting daemon
    loses this client, the command moves to the background, unless `on_disconnect` is "kill".
    """

    description: str | None
    timeout: int | None
    idle_timeout: int | None
    cwd: str | PathLike[str] | None
    env: Mapping[str, str | None] | None
    session: str | None
    stdin: str | bytes | bytearray | memoryview | None
    strip_ansi: bool
    tty: bool
    rows: int
    cols: int
    open_stdin: bool
    merge: bool
    idempotency_key: str | None
    key_must_exist: bool
    target: str | None
    sandbox: SandboxPolicy | None
    on_disconnect: Literal["background", "kill"]


class RunOptions(BashOptions, total=False):
    """Options of a command in the foreground: the caller waits until the command has ended.

    With `check`, a command that fails raises `CommandFailed`. `on_output` is called with each
    `OutputEvent` as it comes. `on_output` must be a plain function, also with `AsyncClient`. If
    `on_output` raises an exception, the command is killed.
    """

    check: bool
    on_output: OnOutput | None


class StreamOptions(BashOptions, total=False):
    """Options of a command whose output is streamed. They have the same meaning as for `bash`."""

    on_timeout: Literal["kill", "background"]
    on_prompt: OnPrompt


class EventOptions(TypedDict, total=False):
    """Options that choose the events of a shell, of a session, or of all shells.

    Without `bash_id` and `session`, the events are those of all shells of the daemon (or of the
    daemon that `target` names).

    `events` are "exit", "output", "prompt", "listening", "leftover" and "screen". Output events of
    one shell are at least `interval_ms` (0 to 5,000) apart, unless `max_bytes` (1,024 to 1,048,576)
    of output have come since the last event. `subscription` names a subscription to continue. With
    `from_seq`, the daemon sends the events after this number again. `idempotency_key` continues the
    subscription that an earlier call with this key has begun.
    """

    bash_id: str | None
    session: str | None
    events: Sequence[EventName] | None
    subscription: str | None
    from_seq: int | None
    interval_ms: int | None
    max_bytes: int | None
    strip_ansi: bool | None
    target: str | None
    idempotency_key: str | None


class ScreenOptions(TypedDict, total=False):
    """Options for reading a terminal's screen.

    `wait` (up to 600,000 ms) waits for `until`: "change" (the screen has a version after `since`),
    "stable" (the screen has not changed for `quiet_ms`) or "prompt" (the command waits for input).
    With `since`, only the rows that have changed after that version are returned. `scrollback` adds
    up to 10,000 lines above the screen.
    """

    wait: int
    until: Literal["change", "stable", "prompt"]
    quiet_ms: int
    since: int | None
    scrollback: int


class TypingOptions(TypedDict, total=False):
    """Options that say what to write to a shell's input.

    Text, keys, data and eof are written in this order.

    `keys` are keys, named as in tmux, such as "Enter", "C-c" and "Up"; `data` is bytes; `eof` ends
    the input. With `secret`, nothing is written if the terminal could show the text. With `paste`,
    text and data are marked as pasted, if the program has enabled bracketed paste.
    """

    keys: Sequence[str] | None
    data: bytes | bytearray | memoryview | None
    eof: bool
    secret: bool
    paste: bool


class InputOptions(TypingOptions, total=False):
    """Options for writing to a shell's input.

    They say what to write, and what to wait for afterwards. `wait` (up to 600,000 ms) waits for
    `until`; then the output is read, as with `OutputOptions`.
    """

    wait: int
    until: Until
    pattern: str | None
    quiet_ms: int
    port: int | None
    strip_ansi: bool
    stdout_offset: int | None
    stderr_offset: int | None
    max_bytes: int


class ReadOptions(TypedDict, total=False):
    """Options for reading output. `wait` is how long to wait, up to 600,000 ms. The wait ends early
    when the condition `until` is met or the command ends.

    `until` is "output", "exit", "prompt" (the command waits for input), "match" (`pattern`, an RE2
    pattern, matches a line), "quiet" (no output for `quiet_ms`, by default 500) or "listening" (a
    process of the command listens on a TCP port, or on `port`).

    `max_bytes` is per stream; `filter` is an RE2 pattern for lines. With `encoding="base64"`,
    `stdout_data` and `stderr_data` of the result are exactly the bytes that the command wrote:
    `strip_ansi` does nothing, and a `filter` is refused.
    """

    filter: str | None
    wait: int
    until: Until
    pattern: str | None
    quiet_ms: int
    port: int | None
    max_bytes: int
    strip_ansi: bool
    encoding: Encoding


class OutputOptions(ReadOptions, total=False):
    """Options for reading output, with the offsets at which to start.

    If only one stream has an offset, only this stream is read. A read with an offset does not
    affect where a read without offsets continues.
    """

    stdout_offset: int | None
    stderr_offset: int | None


class KillOptions(TypedDict, total=False):
    """Options for killing a shell.

    A kill sends `signal` first, then SIGKILL after `grace` milliseconds (up to 60,000).
    """

    signal: SignalName
    grace: int | None
