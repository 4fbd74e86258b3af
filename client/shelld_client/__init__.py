"""What a harness imports: the daemon's methods, typed, with framing and ids out of sight."""

from shelld_client.calls import BashOptions, KillOptions, OutputOptions
from shelld_client.client import AsyncClient
from shelld_client.errors import (
    CommandBlocked,
    CommandTimedOut,
    DaemonExited,
    InvalidParams,
    ProtocolError,
    ResourceExhausted,
    ShellError,
    ShellNotFound,
    SpawnFailed,
)
from shelld_client.sync import Client
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    KillShellResult,
    ShellInfo,
)

__all__ = [
    "AsyncClient",
    "BackgroundResult",
    "BashOptions",
    "BashOutputResult",
    "BashResult",
    "Client",
    "CommandBlocked",
    "CommandTimedOut",
    "DaemonExited",
    "DryRunResult",
    "InvalidParams",
    "KillOptions",
    "KillShellResult",
    "OutputOptions",
    "ProtocolError",
    "ResourceExhausted",
    "ShellError",
    "ShellInfo",
    "ShellNotFound",
    "SpawnFailed",
]
