"""The contestants."""

from __future__ import annotations

from collections.abc import Callable

from compare.codex import AppServer, ExecServer
from compare.contestant import Contestant
from compare.installed import from_npm, from_pypi
from compare.mcp import DesktopCommander, McpShellServer
from compare.ours import Shelld
from compare.stdlib import Anyio, Asyncio, SubprocessRun
from compare.swe_rex import SweRex, SweRexSession

CODEX = ("@openai/codex", "@openai/codex-*/vendor/*/bin/codex")
DESKTOP_COMMANDER = (
    "@wonderwhy-er/desktop-commander",
    "@wonderwhy-er/desktop-commander/dist/index.js",
)

# Each may raise `NotInstalled`.
Maker = Callable[[], Contestant]

BASELINES: dict[str, Maker] = {each.name: each for each in (Shelld, SubprocessRun, Asyncio, Anyio)}
PEERS: dict[str, Maker] = {
    McpShellServer.name: lambda: McpShellServer(from_pypi("mcp-shell-server", "mcp-shell-server")),
    DesktopCommander.name: lambda: DesktopCommander(from_npm(*DESKTOP_COMMANDER)),
    SweRex.name: lambda: SweRex(from_pypi("swe-rex", "swerex-remote")),
    SweRexSession.name: lambda: SweRexSession(from_pypi("swe-rex", "swerex-remote")),
    ExecServer.name: lambda: ExecServer(from_npm(*CODEX)),
    AppServer.name: lambda: AppServer(from_npm(*CODEX)),
}
