"""The words both sides speak: framing, envelopes, errors, and the types of every method.

Pure: no I/O, no tasks, nothing of the daemon or the client.
"""

from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.methods import (
    METHODS,
    BackgroundResult,
    BashOutputParams,
    BashOutputResult,
    BashParams,
    BashResult,
    Containment,
    Counters,
    DryRunResult,
    Empty,
    KillShellParams,
    KillShellResult,
    Limits,
    ListShellsParams,
    ListShellsResult,
    NoParams,
    OutputRange,
    Params,
    Result,
    ServerInfoResult,
    ShellInfo,
    Usage,
)

__all__ = [
    "METHODS",
    "BackgroundResult",
    "BashOutputParams",
    "BashOutputResult",
    "BashParams",
    "BashResult",
    "Containment",
    "Counters",
    "DryRunResult",
    "Empty",
    "ErrorKind",
    "KillShellParams",
    "KillShellResult",
    "Limits",
    "ListShellsParams",
    "ListShellsResult",
    "NoParams",
    "OutputRange",
    "Params",
    "Result",
    "RpcError",
    "ServerInfoResult",
    "ShellInfo",
    "Usage",
]
