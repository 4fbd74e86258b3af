"""The daemon's methods as values: the params to send and the decoder of the result. Pure.

Both clients use these, so only this module names parameters and decodes results.
"""

from __future__ import annotations

import base64
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from shelld_client.errors import CommandFailed, ProtocolError, refused_here
from shelld_client.results import decode_result
from shelld_protocol.about import ServerInfoResult
from shelld_protocol.encoding import PLAIN
from shelld_protocol.encoding import decode as decode_json
from shelld_protocol.errors import invalid_params
from shelld_protocol.event_methods import (
    Event,
    EventName,
    ExitEvent,
    LeftoverEvent,
    ListeningEvent,
    OutputEvent,
    PromptEvent,
    ScreenEvent,
    SubscribeResult,
)
from shelld_protocol.input_methods import ResizeShellResult, WriteStdinResult
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.screen_methods import ReadScreenResult
from shelld_protocol.session_methods import (
    CloseSessionResult,
    ConfigureSessionResult,
    EnvironmentRules,
    ExplainCommandResult,
    GetSessionResult,
    ListSessionsResult,
    SessionInfo,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    Encoding,
    HandOverResult,
    KillShellResult,
    ListShellsResult,
    OutputRange,
    ShellInfo,
)
from shelld_protocol.structs import Empty, OnPrompt, ResourceLimits, SignalName, Until
from shelld_protocol.target_methods import (
    AddTargetResult,
    ListTargetsResult,
    RemoveTargetResult,
    TargetInfo,
)
from shelld_protocol.tool_methods import ListToolsResult, ToolFormat
from shelld_protocol.tools import ExecutionContext, ToolResult

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R", bound=BashResult | BackgroundResult | DryRunResult)

AnyBashResult = BashResult | BackgroundResult | DryRunResult

# Takes the output of a command as it comes.
OnOutput: TypeAlias = Callable[[OutputEvent], None]

EVENT_NAMES: Final[Mapping[type[Event], EventName]] = {
    OutputEvent: "output",
    ExitEvent: "exit",
    PromptEvent: "prompt",
    ListeningEvent: "listening",
    LeftoverEvent: "leftover",
    ScreenEvent: "screen",
}


class BashOptions(TypedDict, total=False):
    """Options of a command. `timeout` is in milliseconds, 1,000 to 600,000.

    `idle_timeout` is the longest time without output, in milliseconds, 1,000 to 3,600,000. `env` is
    applied on top of the session's environment; None removes a variable. `stdin` is the command's
    input, as text or bytes; by default the command reads end of file. `session=None` runs the
    command outside all sessions. `tty` runs it in a terminal of `rows` and `cols`; `open_stdin`
    leaves its input open. `merge` gives it one pipe for both streams, so that `stdout` has all its
    output in the order in which it was written. With `idempotency_key`, a call that is repeated
    starts nothing: it returns the shell that the first call with this key has started. `target`
    names the daemon that runs the command; by default, that is where the session is. `sandbox`
    tightens the policy of the session. If a lasting daemon loses this client, the command moves to
    the background, unless `on_disconnect` is "kill".
    """

    description: str | None
    timeout: int | None
    idle_timeout: int | None
    cwd: str | PathLike[str] | None
    env: Mapping[str, str | None] | None
    session: str | None
    stdin: str | bytes | None
    strip_ansi: bool
    tty: bool
    rows: int
    cols: int
    open_stdin: bool
    merge: bool
    idempotency_key: str | None
    target: str | None
    sandbox: SandboxPolicy | None
    on_disconnect: Literal["background", "kill"]


class RunOptions(BashOptions, total=False):
    """Options of a command that its caller waits for.

    With `check`, a command that fails raises `CommandFailed`. `on_output` is called with each
    `OutputEvent` as it comes. It is a plain function, in `AsyncClient`, too; an exception that it
    raises kills the command.
    """

    check: bool
    on_output: OnOutput | None


class StreamOptions(BashOptions, total=False):
    """Options of a command whose output is followed: those of `bash`."""

    on_timeout: Literal["kill", "background"]
    on_prompt: OnPrompt


class EventOptions(TypedDict, total=False):
    """Which events to receive: of a shell, of a session, or of all shells.

    All shells are those of the daemon, or of `target`.

    `events` are "exit", "output", "prompt", "listening", "leftover" and "screen". At least
    `interval_ms` (0 to 5,000) pass between two events with output of one shell, unless `max_bytes`
    (1,024 to 1,048,576) of output have come. `subscription` names a subscription to continue. The
    events after `from_seq` then come again.
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


class ScreenOptions(TypedDict, total=False):
    """Options of a read of a terminal's screen.

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
    """What to write to a shell's input. Text, keys, data and eof are written in this order.

    `keys` are keys, named as in tmux, such as "Enter", "C-c" and "Up"; `data` is bytes; `eof` ends
    the input. With `secret`, nothing is written if the terminal could show the text. With
    `paste`, text and data are marked as pasted, if the program asked for that.
    """

    keys: Sequence[str] | None
    data: bytes | None
    eof: bool
    secret: bool
    paste: bool


class InputOptions(TypingOptions, total=False):
    """Options of a write to a shell's input: what to write, and then what to wait for.

    `wait` (up to 600,000 ms) waits for `until`, before the output is read. The output is read as
    with `OutputOptions`.
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
    """Options of a read. `wait` (up to 600,000 ms) waits for `until`, or the end of the command.

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
    """Options of a read, and from where to read.

    If an offset is given, only streams with an offset are read, and the position of plain reads
    does not move.
    """

    stdout_offset: int | None
    stderr_offset: int | None


class KillOptions(TypedDict, total=False):
    """Options of a kill: first `signal`, then SIGKILL after `grace` milliseconds (up to 60,000)."""

    signal: SignalName
    grace: int | None


class Call(NamedTuple, Generic[T]):
    """One call. `decode` raises `ProtocolError` if the result does not match the method."""

    method: str
    params: dict[str, Any]
    decode: Callable[[bytes], T]


# Takes the result of a call (JSON). Returns a second call, which undoes the effect of the first;
# None if there is nothing to undo.
Undo: TypeAlias = Callable[[bytes], Call[Any] | None]


def bash(command: str, options: Mapping[str, Any]) -> Call[AnyBashResult]:
    params: dict[str, Any] = {"command": command}
    for name, value in options.items():
        # For `session`, None is a value: no session.
        if value is not None or name == "session":
            params[name] = value
    if "env" in params:
        params["env"] = _members("env", params["env"])
    if "sandbox" in params:
        params["sandbox"] = msgspec.to_builtins(params["sandbox"])
    if isinstance(params.get("stdin"), bytes):
        params["stdin_base64"] = base64.b64encode(params.pop("stdin")).decode()

    def decode(result: bytes) -> AnyBashResult:
        if options.get("dry_run"):
            return _decode(DryRunResult, result)
        if options.get("run_in_background"):
            return _decode(BackgroundResult, result)
        try:
            return _decode(BashResult, result)
        except ProtocolError as error:
            # A command may move to the background: at its timeout, at a prompt, or by `background`.
            try:
                return _decode(BackgroundResult, result)
            except ProtocolError:
                raise error from None

    return Call("bash", params, decode)


def checked(result: R) -> R:
    """Return a result. Raises `CommandFailed` if it is that of a command that has failed."""
    if isinstance(result, BashResult) and result.exit_code != 0:
        raise CommandFailed(result)
    return result


def check_run_options(options: Mapping[str, Any], on_output: OnOutput | None) -> None:
    """Raise TypeError for options that need a command in the foreground, if it is not there."""
    for name in ("run_in_background", "dry_run"):
        if options.get(name):
            raise TypeError(f"check and on_output do not go together with {name}")
    if inspect.iscoroutinefunction(on_output):
        raise TypeError("on_output must be a plain function; to await something, use stream")


def followed_bash(
    command: str, options: Mapping[str, Any], notify: Sequence[EventName] | None
) -> Call[AnyBashResult]:
    """Run a command and send the events `notify` about it. Raises TypeError for a dry run."""
    if options.get("dry_run"):
        raise TypeError("dry_run is an option of bash only: nothing runs that could be followed")
    return bash(command, {**options, "notify": notify})


def bash_output(bash_id: str, options: Mapping[str, Any]) -> Call[BashOutputResult]:
    return Call("bash_output", _given(bash_id=bash_id, **options), _decoder(BashOutputResult))


def write_stdin(
    bash_id: str, text: str | None, options: Mapping[str, Any]
) -> Call[WriteStdinResult]:
    params = _given(bash_id=bash_id, text=text, **options)
    data: bytes | None = params.pop("data", None)
    if data is not None:
        params["base64"] = base64.b64encode(data).decode()
    return Call("write_stdin", params, _decoder(WriteStdinResult))


def resize_shell(bash_id: str, rows: int, cols: int) -> Call[ResizeShellResult]:
    params = {"bash_id": bash_id, "rows": rows, "cols": cols}
    return Call("resize_shell", params, _decoder(ResizeShellResult))


def read_screen(bash_id: str, options: Mapping[str, Any]) -> Call[ReadScreenResult]:
    return Call("read_screen", _given(bash_id=bash_id, **options), _decoder(ReadScreenResult))


def subscribe(params: Mapping[str, Any]) -> Call[SubscribeResult]:
    return Call("subscribe", _given(**params), _decoder(SubscribeResult))


def unsubscribe(subscription: str) -> Call[Empty]:
    return Call("unsubscribe", {"subscription": subscription}, _decoder(Empty))


def output_at(
    bash_id: str, stream: str, start: int, size: int, *, strip: bool | None
) -> Call[BashOutputResult]:
    """Read a part of one stream. Does not move the position of plain reads."""
    options = {f"{stream}_offset": start, "max_bytes": size, "strip_ansi": strip}
    return bash_output(bash_id, options)


def output_event(
    event: Event, stream: Literal["stdout", "stderr"], read: BashOutputResult
) -> OutputEvent:
    """Make an event from output that was read. Copy the ids and the number of `event`."""
    text, part = read.stdout, read.stdout_range
    if stream == "stderr":
        text, part = read.stderr, read.stderr_range
    return _output_event(event, stream, text, part)


def lost_output(
    event: Event, stream: Literal["stdout", "stderr"], start: int, end: int
) -> OutputEvent:
    """Make an event for lost output. Copy the ids and the number of `event`."""
    return _output_event(event, stream, "", OutputRange(start, end, end - start))


def _output_event(
    event: Event, stream: Literal["stdout", "stderr"], text: str, part: OutputRange
) -> OutputEvent:
    return OutputEvent(
        subscription=event.subscription,
        seq=event.seq,
        bash_id=event.bash_id,
        session=event.session,
        request_id=event.request_id,
        stream=stream,
        text=text,
        start=part.start,
        end=part.end,
        dropped=part.dropped,
        skipped=0,
    )


def kill_shell(shell_id: str, options: Mapping[str, Any]) -> Call[KillShellResult]:
    return Call("kill_shell", _given(shell_id=shell_id, **options), _decoder(KillShellResult))


def background(bash_id: str) -> Call[HandOverResult]:
    return Call("background", {"bash_id": bash_id}, _decoder(HandOverResult))


def list_shells(session: str | None, target: str | None) -> Call[list[ShellInfo]]:
    def decode(result: bytes) -> list[ShellInfo]:
        return _decode(ListShellsResult, result).shells

    return Call("list_shells", _given(session=session, target=target), decode)


def configure_session(
    session: str,
    env: EnvironmentRules | None,
    limits: ResourceLimits | None,
    target: str | None,
    sandbox: SandboxPolicy | None,
) -> Call[ConfigureSessionResult]:
    params = _given(
        session=session,
        env=None if env is None else msgspec.structs.asdict(env),
        limits=None if limits is None else msgspec.structs.asdict(limits),
        target=target,
        sandbox=None if sandbox is None else msgspec.to_builtins(sandbox),
    )
    return Call("configure_session", params, _decoder(ConfigureSessionResult))


def get_session(session: str, target: str | None) -> Call[GetSessionResult]:
    if cast("str | None", session) is None:
        # The daemon would take null as the session "main".
        raise refused_here(invalid_params("Invalid type for session: expected string", "session"))
    params = _given(session=session, target=target)
    return Call("get_session", params, _decoder(GetSessionResult))


def list_sessions() -> Call[list[SessionInfo]]:
    def decode(result: bytes) -> list[SessionInfo]:
        return _decode(ListSessionsResult, result).sessions

    return Call("list_sessions", {}, decode)


def close_session(session: str, target: str | None) -> Call[CloseSessionResult]:
    params = {"session": session, **_given(target=target)}
    return Call("close_session", params, _decoder(CloseSessionResult))


def add_target(name: str, argv: Sequence[str], *, bootstrap: bool) -> Call[AddTargetResult]:
    if isinstance(argv, str):
        # A string is a sequence, too, and its characters would be words.
        raise refused_here(invalid_params("Invalid type for argv: expected array", "argv"))
    params = {"name": name, "argv": list(argv), "bootstrap": bootstrap}
    return Call("add_target", params, _decoder(AddTargetResult))


def list_targets(target: str | None) -> Call[list[TargetInfo]]:
    def decode(result: bytes) -> list[TargetInfo]:
        return _decode(ListTargetsResult, result).targets

    return Call("list_targets", _given(target=target), decode)


def remove_target(name: str) -> Call[RemoveTargetResult]:
    return Call("remove_target", {"name": name}, _decoder(RemoveTargetResult))


def explain_command(
    command: str,
    session: str | None,
    env: Mapping[str, str | None] | None,
    cwd: str | PathLike[str] | None,
) -> Call[ExplainCommandResult]:
    params = _given(command=command, env=None if env is None else _members("env", env), cwd=cwd)
    return Call("explain_command", {**params, "session": session}, _decoder(ExplainCommandResult))


def list_tools(format: ToolFormat) -> Call[list[dict[str, Any]]]:  # noqa: A002
    def decode(result: bytes) -> list[dict[str, Any]]:
        return _decode(ListToolsResult, result).tools

    return Call("list_tools", {"format": format}, decode)


def call_tool(
    name: str,
    arguments: Mapping[str, Any] | None,
    context: ExecutionContext | Mapping[str, Any] | None,
) -> Call[ToolResult]:
    given = {} if arguments is None else _members("arguments", arguments)
    params: dict[str, Any] = {"name": name, "arguments": given}
    if context is not None:
        if isinstance(context, ExecutionContext):
            context = msgspec.structs.asdict(context)
        members = _members("context", context)
        # JSON has no infinity. Here it means the same as leaving the member out.
        if members.get("timeout") == math.inf:
            del members["timeout"]
        params["context"] = _given(**members)
    return Call("call_tool", params, _decoder(ToolResult))


def server_info() -> Call[ServerInfoResult]:
    return Call("server_info", {}, _decoder(ServerInfoResult))


def discover() -> Call[dict[str, Any]]:
    def decode(result: bytes) -> dict[str, Any]:
        try:
            found = decode_json(result, PLAIN)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProtocolError("the peer's result is no document")
        return cast("dict[str, Any]", found)

    return Call("rpc.discover", {}, decode)


def ping() -> Call[Empty]:
    return Call("ping", {}, _decoder(Empty))


def literal(text: str) -> str:
    """Return a pattern that matches exactly `text`. Raises ValueError if no line can have it."""
    if "\n" in text:
        raise ValueError("a line cannot have a line end in it: wait for one of the lines")
    return re.escape(text)


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _members(name: str, value: object) -> dict[str, Any]:
    """Return a copy of a mapping. Raises TypeError with a clearer message than `dict` gives."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return dict(cast("Mapping[str, Any]", value))


def _decoder(shape: type[S]) -> Callable[[bytes], S]:
    return lambda result: _decode(shape, result)


def _decode(shape: type[S], result: bytes) -> S:
    try:
        return decode_result(shape, result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the peer's result is no {shape.__name__}") from error
