"""Provides the daemon's methods as typed Python methods, without framing or request ids."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from shelld_client.call_options import (
    BashOptions,
    EventOptions,
    InputOptions,
    KillOptions,
    OutputOptions,
    ReadOptions,
    RunOptions,
    ScreenOptions,
    StreamOptions,
    TypingOptions,
)
from shelld_client.errors import (
    AnswerTooLarge,
    CommandBlocked,
    CommandFailed,
    CommandTimedOut,
    DaemonExited,
    InvalidParams,
    JobEnded,
    MessageTooLarge,
    NotPossible,
    ProtocolError,
    RequestCancelled,
    ResourceExhausted,
    SessionLost,
    SessionNotFound,
    ShellError,
    ShellNotFound,
    ShuttingDown,
    SpawnFailed,
    StdinClosed,
    TargetLost,
    Unavailable,
    WaitTimedOut,
)
from shelld_client.jobs import Job
from shelld_client.restarts import Restart
from shelld_client.streams import EventStream, OutputStream
from shelld_client.sync import Client
from shelld_protocol.about import Attachment, Containment, Counters, Limits, ServerInfoResult
from shelld_protocol.event_methods import (
    Event,
    ExitEvent,
    LeftoverEvent,
    ListeningEvent,
    OutputEvent,
    PromptEvent,
    ScreenEvent,
)
from shelld_protocol.input_methods import ResizeShellResult, WriteStdinResult
from shelld_protocol.sandboxes import Denied, EnforcedSandbox, SandboxPolicy
from shelld_protocol.screen_methods import ReadScreenResult, ScreenCursor
from shelld_protocol.session_methods import (
    CloseSessionResult,
    ConfigureSessionResult,
    EnvironmentRules,
    ExplainCommandResult,
    GetSessionResult,
    SessionInfo,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    HandOverResult,
    KillShellResult,
    OutputRange,
    ShellInfo,
)
from shelld_protocol.structs import EnforcedLimits, Listener, Matched, Prompt, ResourceLimits, Usage
from shelld_protocol.target_methods import RemoveTargetResult, TargetInfo
from shelld_protocol.tools import ExecutionContext, ToolResult

if TYPE_CHECKING:
    from shelld_client.async_jobs import AsyncJob
    from shelld_client.async_streams import AsyncEventStream, AsyncOutputStream
    from shelld_client.client import AsyncClient

__version__: Final = "0.1.0"

__all__ = [
    "AnswerTooLarge",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncJob",
    "AsyncOutputStream",
    "Attachment",
    "BackgroundResult",
    "BashOptions",
    "BashOutputResult",
    "BashResult",
    "Client",
    "CloseSessionResult",
    "CommandBlocked",
    "CommandFailed",
    "CommandTimedOut",
    "ConfigureSessionResult",
    "Containment",
    "Counters",
    "DaemonExited",
    "Denied",
    "DryRunResult",
    "EnforcedLimits",
    "EnforcedSandbox",
    "EnvironmentRules",
    "Event",
    "EventOptions",
    "EventStream",
    "ExecutionContext",
    "ExitEvent",
    "ExplainCommandResult",
    "GetSessionResult",
    "HandOverResult",
    "InputOptions",
    "InvalidParams",
    "Job",
    "JobEnded",
    "KillOptions",
    "KillShellResult",
    "LeftoverEvent",
    "Limits",
    "Listener",
    "ListeningEvent",
    "Matched",
    "MessageTooLarge",
    "NotPossible",
    "OutputEvent",
    "OutputOptions",
    "OutputRange",
    "OutputStream",
    "Prompt",
    "PromptEvent",
    "ProtocolError",
    "ReadOptions",
    "ReadScreenResult",
    "RemoveTargetResult",
    "RequestCancelled",
    "ResizeShellResult",
    "ResourceExhausted",
    "ResourceLimits",
    "Restart",
    "RunOptions",
    "SandboxPolicy",
    "ScreenCursor",
    "ScreenEvent",
    "ScreenOptions",
    "ServerInfoResult",
    "SessionInfo",
    "SessionLost",
    "SessionNotFound",
    "ShellError",
    "ShellInfo",
    "ShellNotFound",
    "ShuttingDown",
    "SpawnFailed",
    "StdinClosed",
    "StreamOptions",
    "TargetInfo",
    "TargetLost",
    "ToolResult",
    "TypingOptions",
    "Unavailable",
    "Usage",
    "WaitTimedOut",
    "WriteStdinResult",
    "__version__",
]

# Maps each name that needs an event loop to its module. `Client` needs no event loop, so a program
# that uses only `Client` does not import one.
_ASYNC: Final = {
    "AsyncClient": "client",
    "AsyncEventStream": "async_streams",
    "AsyncJob": "async_jobs",
    "AsyncOutputStream": "async_streams",
}

if not TYPE_CHECKING:
    # Hide this function from type checkers: if they see it, they accept any name.
    def __getattr__(name: str) -> object:
        if name not in _ASYNC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_ASYNC[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ASYNC})
