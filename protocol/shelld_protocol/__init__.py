"""The protocol shared by daemon and client: framing, envelopes, errors, types of every method.

Pure: no I/O, no tasks, no imports from the daemon or the client.
"""

from shelld_protocol.about import (
    Containment,
    Counters,
    Limits,
    ServerInfoResult,
)
from shelld_protocol.errors import (
    ErrorKind,
    RpcError,
)
from shelld_protocol.input_methods import (
    ResizeShellParams,
    ResizeShellResult,
    WriteStdinParams,
    WriteStdinResult,
)
from shelld_protocol.methods import METHODS, MethodTypes
from shelld_protocol.screen_methods import ReadScreenParams, ReadScreenResult, ScreenCursor
from shelld_protocol.session_methods import (
    CloseSessionParams,
    CloseSessionResult,
    ExplainCommandParams,
    ExplainCommandResult,
    GetSessionParams,
    GetSessionResult,
    ListSessionsResult,
    SessionInfo,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputParams,
    BashOutputResult,
    BashParams,
    BashResult,
    DryRunResult,
    KillShellParams,
    KillShellResult,
    ListShellsParams,
    ListShellsResult,
    OutputRange,
    ShellInfo,
    Usage,
)
from shelld_protocol.structs import (
    Empty,
    EndReason,
    FilterEngine,
    GuardVerdict,
    NoParams,
    Params,
    Result,
    SignalName,
    Status,
)
from shelld_protocol.tool_methods import (
    CallContext,
    CallToolParams,
    ListToolsParams,
    ListToolsResult,
    ToolFormat,
)
from shelld_protocol.tools import (
    ExecutionContext,
    JsonType,
    ToolCategory,
    ToolError,
    ToolParameter,
    ToolResult,
)

__all__ = [
    "METHODS",
    "BackgroundResult",
    "BashOutputParams",
    "BashOutputResult",
    "BashParams",
    "BashResult",
    "CallContext",
    "CallToolParams",
    "CloseSessionParams",
    "CloseSessionResult",
    "Containment",
    "Counters",
    "DryRunResult",
    "Empty",
    "EndReason",
    "ErrorKind",
    "ExecutionContext",
    "ExplainCommandParams",
    "ExplainCommandResult",
    "FilterEngine",
    "GetSessionParams",
    "GetSessionResult",
    "GuardVerdict",
    "JsonType",
    "KillShellParams",
    "KillShellResult",
    "Limits",
    "ListSessionsResult",
    "ListShellsParams",
    "ListShellsResult",
    "ListToolsParams",
    "ListToolsResult",
    "MethodTypes",
    "NoParams",
    "OutputRange",
    "Params",
    "ReadScreenParams",
    "ReadScreenResult",
    "ResizeShellParams",
    "ResizeShellResult",
    "Result",
    "RpcError",
    "ScreenCursor",
    "ServerInfoResult",
    "SessionInfo",
    "ShellInfo",
    "SignalName",
    "Status",
    "ToolCategory",
    "ToolError",
    "ToolFormat",
    "ToolParameter",
    "ToolResult",
    "Usage",
    "WriteStdinParams",
    "WriteStdinResult",
]
