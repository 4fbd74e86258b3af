"""Maps the name of each method to the function that answers its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import shelld_protocol as wire
from shelld.mcp.methods import McpMethods
from shelld.mcp.task_methods import TaskMethods
from shelld.mcp.tasks import Tasks
from shelld.mcp.toolbox import Toolbox
from shelld.methods.about import discover, server_info
from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
from shelld.methods.context import RequestContext
from shelld.methods.events import subscribe, unsubscribe
from shelld.methods.guard import explain_command
from shelld.methods.input import resize_shell, write_stdin
from shelld.methods.screen import read_screen
from shelld.methods.sessions import (
    close_session,
    configure_session,
    get_session,
    list_sessions,
)
from shelld.methods.shells import (
    background,
    kill_shell,
    list_shells,
)
from shelld.methods.targets import add_target, list_targets, passing_on, remove_target
from shelld.server.dispatch import Method, as_method
from shelld_protocol import mcp, mcp_tasks
from shelld_protocol.structs import Params

P = TypeVar("P", bound=Params)


def _anywhere(
    name: str, params_type: type[P], body: Callable[[RequestContext, P], Awaitable[Any]]
) -> Method:
    """Return a method that passes requests for a target on to the target."""
    return as_method(params_type, body, passing_on(name, params_type))


def routes(toolbox: Toolbox, task_table: Tasks) -> Mapping[str, Method]:
    """Return the methods of one client, except `shutdown` and `exit`, which the server answers."""
    mcp_methods = McpMethods(toolbox, task_table)
    tasks = TaskMethods(mcp_methods)
    return {
        "bash": _anywhere("bash", wire.BashParams, bash),
        "bash_output": _anywhere("bash_output", wire.BashOutputParams, bash_output),
        "write_stdin": _anywhere("write_stdin", wire.WriteStdinParams, write_stdin),
        "resize_shell": _anywhere("resize_shell", wire.ResizeShellParams, resize_shell),
        "read_screen": _anywhere("read_screen", wire.ReadScreenParams, read_screen),
        "kill_shell": _anywhere("kill_shell", wire.KillShellParams, kill_shell),
        "background": _anywhere("background", wire.BackgroundParams, background),
        "list_shells": _anywhere("list_shells", wire.ListShellsParams, list_shells),
        "subscribe": _anywhere("subscribe", wire.SubscribeParams, subscribe),
        "unsubscribe": _anywhere("unsubscribe", wire.UnsubscribeParams, unsubscribe),
        "configure_session": _anywhere(
            "configure_session", wire.ConfigureSessionParams, configure_session
        ),
        "get_session": _anywhere("get_session", wire.GetSessionParams, get_session),
        "list_sessions": as_method(wire.NoParams, list_sessions),
        "close_session": _anywhere("close_session", wire.CloseSessionParams, close_session),
        "explain_command": _anywhere("explain_command", wire.ExplainCommandParams, explain_command),
        "add_target": _anywhere("add_target", wire.AddTargetParams, add_target),
        "list_targets": _anywhere("list_targets", wire.ListTargetsParams, list_targets),
        "remove_target": _anywhere("remove_target", wire.RemoveTargetParams, remove_target),
        "list_tools": as_method(wire.ListToolsParams, toolbox.list_tools),
        "call_tool": as_method(wire.CallToolParams, toolbox.call_tool),
        "server_info": as_method(wire.NoParams, server_info),
        "rpc.discover": as_method(wire.NoParams, discover),
        # The methods of MCP. Any client may call `ping`.
        "ping": as_method(mcp.PingParams, mcp_methods.ping),
        "initialize": as_method(mcp.InitializeParams, mcp_methods.initialize),
        "server/discover": as_method(mcp.McpParams, mcp_methods.discover),
        "tools/list": as_method(mcp.ListToolsMcpParams, mcp_methods.list_tools),
        "tools/call": as_method(mcp.CallToolMcpParams, mcp_methods.call_tool),
        "tasks/get": as_method(mcp_tasks.TaskParams, tasks.get),
        "tasks/update": as_method(mcp_tasks.UpdateTaskParams, tasks.update),
        "tasks/cancel": as_method(mcp_tasks.TaskParams, tasks.cancel),
        "subscriptions/listen": as_method(mcp_tasks.ListenParams, tasks.listen),
    }
