"""The contestants for the questions about commands, and for the questions about terminals."""

from __future__ import annotations

from collections.abc import Callable

from compare.codex import AppServer, ExecServer
from compare.codex_terminals import AppServerTerminals, ExecServerTerminals
from compare.commander_terminals import DesktopCommanderTerminals
from compare.contestant import Contestant
from compare.expect import Pexpect, PexpectWithoutPause
from compare.installed import from_npm, from_pypi
from compare.mcp import DesktopCommander, McpShellServer
from compare.our_terminals import ShelldTerminals
from compare.ours import Shelld
from compare.questions import P
from compare.stdlib import Anyio, Asyncio, SubprocessRun
from compare.swe_rex import SweRex, SweRexSession
from compare.swe_rex_terminals import SweRexTerminals
from compare.terminal import HasTerminals
from compare.tmux import Tmux

CODEX = ("@openai/codex", "@openai/codex-*/vendor/*/bin/codex")
DESKTOP_COMMANDER = (
    "@wonderwhy-er/desktop-commander",
    "@wonderwhy-er/desktop-commander/dist/index.js",
)

# A function that makes a contestant. It may raise `NotInstalled`.
Maker = Callable[[], P]

BASELINES: dict[str, Maker[Contestant]] = {
    each.name: each for each in (Shelld, SubprocessRun, Asyncio, Anyio)
}
PEERS: dict[str, Maker[Contestant]] = {
    McpShellServer.name: lambda: McpShellServer(from_pypi("mcp-shell-server", "mcp-shell-server")),
    DesktopCommander.name: lambda: DesktopCommander(from_npm(*DESKTOP_COMMANDER)),
    SweRex.name: lambda: SweRex(from_pypi("swe-rex", "swerex-remote")),
    SweRexSession.name: lambda: SweRexSession(from_pypi("swe-rex", "swerex-remote")),
    ExecServer.name: lambda: ExecServer(from_npm(*CODEX)),
    AppServer.name: lambda: AppServer(from_npm(*CODEX)),
}

TERMINAL_BASELINES: dict[str, Maker[HasTerminals]] = {
    ShelldTerminals.name: ShelldTerminals,
    Tmux.name: Tmux,
}
TERMINAL_PEERS: dict[str, Maker[HasTerminals]] = {
    Pexpect.name: Pexpect,
    PexpectWithoutPause.name: PexpectWithoutPause,
    DesktopCommander.name: lambda: DesktopCommanderTerminals(from_npm(*DESKTOP_COMMANDER)),
    SweRexSession.name: lambda: SweRexTerminals(from_pypi("swe-rex", "swerex-remote")),
    ExecServer.name: lambda: ExecServerTerminals(from_npm(*CODEX)),
    AppServer.name: lambda: AppServerTerminals(from_npm(*CODEX)),
}
