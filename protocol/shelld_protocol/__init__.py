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
    DryRunResult,
    KillShellParams,
    KillShellResult,
    ListShellsParams,
    ListShellsResult,
    OutputRange,
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
    "DryRunResult",
    "ErrorKind",
    "KillShellParams",
    "KillShellResult",
    "ListShellsParams",
    "ListShellsResult",
    "OutputRange",
    "RpcError",
    "ServerInfoResult",
    "ShellInfo",
    "Usage",
]
