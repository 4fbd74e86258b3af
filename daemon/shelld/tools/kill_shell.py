"""Implements ``KillShell``, which ends a shell with all its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from shelld.methods.context import RequestContext
from shelld.methods.shells import kill_shell
from shelld.tools.execution import ExecutionTool
from shelld_protocol.shell_methods import KillShellParams
from shelld_protocol.tools import ExecutionContext, ToolResult

_DESCRIPTION: Final = """\
Ends a shell (shell_id is its bash_id) with every process that it started; returns when all are \
dead. BashOutput can still read what it wrote."""


class KillShellTool(ExecutionTool):
    """If processes survive, the result is a failure."""

    aliases = ("KillBash", "kill_shell")
    annotations: ClassVar[Mapping[str, Any]] = {
        "title": "End a shell",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    params_type = KillShellParams
    exposed: ClassVar[Mapping[str, str]] = {
        "shell_id": "ID of the shell to kill",
        "signal": "First signal",
        "grace": "Milliseconds until SIGKILL (default: 1000)",
    }

    @property
    def name(self) -> str:
        return "KillShell"

    @property
    def description(self) -> str:
        return _DESCRIPTION

    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        result = await kill_shell(request, KillShellParams(**params))
        metadata: dict[str, Any] = {
            "shell_id": result.shell_id,
            "command": result.command,
            "status": result.status,
            "already_stopped": result.already_stopped,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "duration_ms": result.duration_ms,
        }
        if result.survivors:
            return ToolResult.fail(result.message, **metadata, survivors=result.survivors)
        return ToolResult.ok(result.message, **metadata)
