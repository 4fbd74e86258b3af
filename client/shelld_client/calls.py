"""Represents calls of the daemon's methods as values with params and a decoder of the result. Pure.

Both clients use these values, so only this module names parameters and decodes results.
"""

from __future__ import annotations

import base64
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, urandom
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from shelld_client.call_options import OnOutput
from shelld_client.errors import (
    CommandFailed,
    ProtocolError,
    ShellError,
    ShellNotFound,
    refused_here,
)
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
    HandOverResult,
    KillShellResult,
    ListShellsResult,
    OutputRange,
    ShellInfo,
)
from shelld_protocol.structs import DEFAULT_SESSION, MAX_WAIT_MS, Empty, ResourceLimits
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

EVENT_NAMES: Final[Mapping[type[Event], EventName]] = {
    OutputEvent: "output",
    ExitEvent: "exit",
    PromptEvent: "prompt",
    ListeningEvent: "listening",
    LeftoverEvent: "leftover",
    ScreenEvent: "screen",
}


class Call(NamedTuple, Generic[T]):
    """Holds one call.

    `decode` raises `ProtocolError` if the result does not match the method. `note` is called with
    the result or the error as soon as this arrives. The caller may take the result much later.
    `note` must not raise. If nobody waits for the call, `losses` counts the connections that were
    lost before its answer came.
    """

    method: str
    params: dict[str, Any]
    decode: Callable[[bytes], T]
    note: Callable[[bytes | ShellError], None] | None = None
    losses: int = 0


def find_again(call: Call[Any]) -> Call[Any] | None:
    """Return a call that finds what `call` has begun. It is needed if the answer to `call` is lost.

    The returned call starts no command. Return None if `call` has no key.
    """
    if call.params.get("idempotency_key") is None:
        return None
    if call.method == "bash":
        return call._replace(params={**call.params, "key_must_exist": True})
    return call if call.method == "subscribe" else None


def to_give_up(call: Call[Any]) -> Call[Any] | None:
    """Return the call that finds the command of `call`, so that this command can be killed.

    Return None if `call` has no key, or if its command is meant to go on in the background.
    """
    return None if call.params.get("run_in_background") else find_again(call)


def kill_if_running(call: Call[Any], answer: bytes) -> Call[Any] | None:
    """Return the call that kills the command of `call`, or None if no command runs.

    `answer` is the result of `call` (JSON). Raises `ProtocolError`.
    """
    if call.method != "bash":
        return None
    result = call.decode(answer)
    return kill_shell(result.bash_id, {}) if isinstance(result, BackgroundResult) else None


def bash(command: str, options: Mapping[str, Any]) -> Call[AnyBashResult]:
    params: dict[str, Any] = {"command": command}
    for name, value in options.items():
        # For `session`, None is not "absent": it means no session.
        if value is not None or name == "session":
            params[name] = value
    if "env" in params:
        params["env"] = _members("env", params["env"])
    if "sandbox" in params:
        params["sandbox"] = msgspec.to_builtins(params["sandbox"])
    if isinstance(params.get("stdin"), (bytes, bytearray, memoryview)):
        if "stdin_base64" in params:
            raise refused_here(
                invalid_params("Give stdin or stdin_base64, not both", "stdin_base64")
            )
        params["stdin_base64"] = base64.b64encode(bytes(params.pop("stdin"))).decode()

    def decode(result: bytes) -> AnyBashResult:
        if options.get("dry_run"):
            return _decode(DryRunResult, result)
        if options.get("run_in_background"):
            return _decode(BackgroundResult, result)
        try:
            return _decode(BashResult, result)
        except ProtocolError as error:
            # A command may have moved to the background at its timeout, at a prompt, or by
            # `background`.
            try:
                return _decode(BackgroundResult, result)
            except ProtocolError:
                raise error from None

    return Call("bash", params, decode)


def has_run(error: ShellError) -> bool:
    """Return whether an error of `bash` is about a command that has run. Such an error names the
    command's shell.
    """
    # The error about an unknown key, or about a key whose shell is gone, has a `bash_id`, too.
    return "bash_id" in error.data and not isinstance(error, ShellNotFound)


def checked(result: R) -> R:
    """Return `result`. Raises `CommandFailed` if `result` says that the command has failed."""
    if isinstance(result, BashResult) and result.exit_code != 0:
        raise CommandFailed(result)
    return result


def check_run_options(options: Mapping[str, Any], on_output: OnOutput | None) -> None:
    """Raise TypeError for options that contradict `check` or `on_output`."""
    for name in ("run_in_background", "dry_run"):
        if options.get(name):
            raise TypeError(f"check and on_output cannot be combined with {name}")
    if on_output is not None and not is_plain_function(on_output):
        raise TypeError("on_output must be a plain function; to await something, use stream")


def is_plain_function(value: object) -> bool:
    """Return whether `value` can be called, and a call does its work without `await`."""
    if not callable(value):
        return False
    return not any(map(inspect.iscoroutinefunction, (value, type(value).__call__)))


def followed_bash(
    command: str, options: Mapping[str, Any], notify: Sequence[EventName] | None
) -> Call[AnyBashResult]:
    """Return the call that runs a command and asks for the command's events. `notify` names them.

    Raises TypeError for a dry run.
    """
    if options.get("dry_run"):
        raise TypeError("dry_run works only with bash, because a dry run has no output to follow")
    return bash(command, {**options, "notify": notify})


def bash_output(bash_id: str, options: Mapping[str, Any]) -> Call[BashOutputResult]:
    return Call("bash_output", _given(bash_id=bash_id, **options), _decoder(BashOutputResult))


def write_stdin(
    bash_id: str, text: str | None, options: Mapping[str, Any]
) -> Call[WriteStdinResult]:
    params = _given(bash_id=bash_id, text=text, **options)
    data: bytes | bytearray | memoryview | None = params.pop("data", None)
    if data is not None:
        if "base64" in params:
            raise refused_here(invalid_params("Give data or base64, not both", "base64"))
        # `b64encode` refuses a view with gaps, but `tobytes` copies it.
        plain = data.tobytes() if isinstance(data, memoryview) else data
        params["base64"] = base64.b64encode(plain).decode()
    return Call("write_stdin", params, _decoder(WriteStdinResult))


def resize_shell(bash_id: str, rows: int, cols: int) -> Call[ResizeShellResult]:
    params = {"bash_id": bash_id, "rows": rows, "cols": cols}
    return Call("resize_shell", params, _decoder(ResizeShellResult))


def read_screen(bash_id: str, options: Mapping[str, Any]) -> Call[ReadScreenResult]:
    return Call("read_screen", _given(bash_id=bash_id, **options), _decoder(ReadScreenResult))


def subscribe(params: Mapping[str, Any]) -> Call[SubscribeResult]:
    return Call("subscribe", _given(**params), _decoder(SubscribeResult))


def beginning(started: Call[Any], answer: bytes) -> Event:
    """Return an event with the number 0, which stands for the beginning of a subscription.

    `started` is the call that has started the shell, and `answer` is the answer to `subscribe` for
    this shell. Raises `ProtocolError`.
    """
    result = _decode(SubscribeResult, answer)
    bash_id = result.bash_id or ""
    return Event(
        subscription=result.subscription,
        seq=0,
        bash_id=bash_id,
        session=started.params.get("session", DEFAULT_SESSION),
        target=bash_id.rpartition(":")[0] or None,
    )


def repeatable(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of `subscribe` with which a repeated request joins the first subscription."""
    if options.get("subscription") is not None:
        return options
    if options.get("idempotency_key") is not None:
        # Without `from_seq`, the caller wants all kept events, not an error if some are missing.
        return options
    from_seq = options.get("from_seq")
    return {**options, "idempotency_key": urandom(16).hex(), "from_seq": from_seq or 0}


def kept_after(error: ShellError) -> int | None:
    """If `error` says that the daemon has refused the `from_seq` of a call, return the lowest
    `from_seq` with which the subscription can continue. Return None for other errors.
    """
    available = error.data.get("available")
    kept = cast("dict[str, object]", available).get("from") if isinstance(available, dict) else None
    return kept if isinstance(kept, int) else None


def with_time_left(call: Call[T], elapsed_s: float) -> Call[T]:
    """Return a copy of a call whose `wait` is `elapsed_s` seconds shorter.

    Otherwise, the wait of a repeated call would begin again after each lost connection. Returns the
    call itself if it has no valid `wait`.
    """
    wait, elapsed_ms = call.params.get("wait"), int(elapsed_s * 1000)
    # The daemon refuses other values, among them True. So send such a value unchanged.
    if type(wait) is not int or not 0 < wait <= MAX_WAIT_MS or not elapsed_ms:
        return call
    return call._replace(params={**call.params, "wait": max(0, wait - elapsed_ms)})


def unsubscribe(subscription: str) -> Call[Empty]:
    return Call("unsubscribe", {"subscription": subscription}, _decoder(Empty))


def output_at(
    bash_id: str, stream: str, start: int, size: int, *, strip: bool | None
) -> Call[BashOutputResult]:
    """Return the call that reads a part of one stream.

    The call does not change the position at which the next read without offsets begins.
    """
    options = {f"{stream}_offset": start, "max_bytes": size, "strip_ansi": strip}
    return bash_output(bash_id, options)


def output_event(
    event: Event, stream: Literal["stdout", "stderr"], read: BashOutputResult
) -> OutputEvent:
    """Make an event from the result of a read. Copy the ids and the number of `event`."""
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
        target=event.target,
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
        env=None if env is None else msgspec.to_builtins(env),
        limits=None if limits is None else msgspec.to_builtins(limits),
        target=target,
        sandbox=None if sandbox is None else msgspec.to_builtins(sandbox),
    )
    return Call("configure_session", params, _decoder(ConfigureSessionResult))


def get_session(session: str, target: str | None) -> Call[GetSessionResult]:
    if cast("str | None", session) is None:
        # Refuse None here, because the daemon would take null as the session "main".
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
        # A string is also a sequence, so each of its characters would become a word.
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
        # JSON has no infinity. An infinite timeout means the same as no timeout.
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
            raise ProtocolError("the peer's result is not a document")
        return cast("dict[str, Any]", found)

    return Call("rpc.discover", {}, decode)


def ping() -> Call[Empty]:
    return Call("ping", {}, _decoder(Empty))


def literal(text: str) -> str:
    """Return a pattern that matches exactly `text`.

    Raises ValueError if no line can contain the text.
    """
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
        raise ProtocolError(f"the peer's result is not a valid {shape.__name__}") from error
