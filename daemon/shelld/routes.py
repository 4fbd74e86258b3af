"""Maps each method to the body that answers it."""

from __future__ import annotations

from collections.abc import Mapping

import shelld_protocol as wire
from shelld.mcp.methods import McpMethods
from shelld.mcp.task_methods import TaskMethods
from shelld.mcp.toolbox import Toolbox
from shelld.methods.about import discover, server_info
from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
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
from shelld.server.dispatch import Method, as_method
from shelld_protocol import mcp, mcp_tasks


def routes(toolbox: Toolbox) -> Mapping[str, Method]:
    """Return all methods but `shutdown` and `exit`, which the server answers itself."""
    hosts = McpMethods(toolbox)
    tasks = TaskMethods(hosts)
    return {
        "bash": as_method(wire.BashParams, bash),
        "bash_output": as_method(wire.BashOutputParams, bash_output),
        "write_stdin": as_method(wire.WriteStdinParams, write_stdin),
        "resize_shell": as_method(wire.ResizeShellParams, resize_shell),
        "read_screen": as_method(wire.ReadScreenParams, read_screen),
        "kill_shell": as_method(wire.KillShellParams, kill_shell),
        "background": as_method(wire.BackgroundParams, background),
        "list_shells": as_method(wire.ListShellsParams, list_shells),
        "subscribe": as_method(wire.SubscribeParams, subscribe),
        "unsubscribe": as_method(wire.UnsubscribeParams, unsubscribe),
        "configure_session": as_method(wire.ConfigureSessionParams, configure_session),
        "get_session": as_method(wire.GetSessionParams, get_session),
        "list_sessions": as_method(wire.NoParams, list_sessions),
        "close_session": as_method(wire.CloseSessionParams, close_session),
        "explain_command": as_method(wire.ExplainCommandParams, explain_command),
        "list_tools": as_method(wire.ListToolsParams, toolbox.list_tools),
        "call_tool": as_method(wire.CallToolParams, toolbox.call_tool),
        "server_info": as_method(wire.NoParams, server_info),
        "rpc.discover": as_method(wire.NoParams, discover),
        # The methods of MCP. Any client may call `ping`.
        "ping": as_method(mcp.PingParams, hosts.ping),
        "initialize": as_method(mcp.InitializeParams, hosts.initialize),
        "server/discover": as_method(mcp.McpParams, hosts.discover),
        "tools/list": as_method(mcp.ListToolsMcpParams, hosts.list_tools),
        "tools/call": as_method(mcp.CallToolMcpParams, hosts.call_tool),
        "tasks/get": as_method(mcp_tasks.TaskParams, tasks.get),
        "tasks/update": as_method(mcp_tasks.UpdateTaskParams, tasks.update),
        "tasks/cancel": as_method(mcp_tasks.TaskParams, tasks.cancel),
        "subscriptions/listen": as_method(mcp_tasks.ListenParams, tasks.listen),
    }
