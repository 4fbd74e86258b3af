"""Messages of both eras of MCP: with a handshake, and without one (the modern era)."""

from __future__ import annotations

from typing import Any

from support import Json, RawDaemon

MODERN = "2026-07-28"
HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
META: Json = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}}


def modern(daemon: RawDaemon, method: str, **params: Any) -> Any:
    return daemon.call(method, {**params, "_meta": {**META, **params.get("_meta", {})}})


def initialize(daemon: RawDaemon, version: str = HANDSHAKES[-1]) -> Json:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    result: Json = daemon.call("initialize", params)
    daemon.notify("notifications/initialized", {})
    return result


def bash(daemon: RawDaemon, command: str, **arguments: Any) -> Json:
    result: Json = modern(
        daemon, "tools/call", name="Bash", arguments={"command": command, **arguments}
    )
    return result


def messages_before(daemon: RawDaemon, request_id: Any) -> list[Json]:
    """Return all messages that arrive before the answer to a request."""
    messages: list[Json] = []
    while (message := daemon.receive()).get("id") != request_id:
        messages.append(message)
    return messages
