"""The method bodies: params in, one call on the manager, result out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shelld.dispatch import Method, as_method
from shelld.methods.about import discover, ping, server_info, shutdown
from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
from shelld.methods.shells import (
    close_session,
    get_session,
    kill_shell,
    list_sessions,
    list_shells,
)
from shelld_protocol import methods as wire
from shelld_protocol.structs import NoParams

METHODS: Final[Mapping[str, Method]] = {
    "bash": as_method(wire.BashParams, bash),
    "bash_output": as_method(wire.BashOutputParams, bash_output),
    "kill_shell": as_method(wire.KillShellParams, kill_shell),
    "list_shells": as_method(wire.ListShellsParams, list_shells),
    "get_session": as_method(wire.GetSessionParams, get_session),
    "list_sessions": as_method(NoParams, list_sessions),
    "close_session": as_method(wire.CloseSessionParams, close_session),
    "server_info": as_method(NoParams, server_info),
    "ping": as_method(NoParams, ping),
    "rpc.discover": as_method(NoParams, discover),
    "shutdown": as_method(NoParams, shutdown),
}
