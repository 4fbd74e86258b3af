"""MCP messages on the wire: what the daemon offers and refuses in each of MCP's two eras."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp_messages import (
    HANDSHAKES,
    META,
    MODERN,
    VERSION_KEY,
    bash,
    initialize,
    modern,
)
from shared_daemon import SharedDaemon
from support import Json, Mark, RawDaemon, raw_daemon


@pytest.fixture
def host(daemon: RawDaemon) -> RawDaemon:
    """A daemon after an MCP handshake."""
    initialize(daemon)
    return daemon


@pytest.fixture(scope="module")
def daemon_without_handshake() -> Iterator[RawDaemon]:
    """A daemon that tests share. It refuses each request of these tests, so no request counts as a
    handshake.
    """
    shared = SharedDaemon()
    yield shared.get()
    shared.close()


# -- the modern era ---------------------------------------------------------------------------


def test_discovery_lists_versions_and_capabilities(daemon: RawDaemon) -> None:
    result = modern(daemon, "server/discover")
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"] == {
        "tools": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "shelld"
    assert isinstance(result["ttlMs"], int)
    assert result["cacheScope"] == "private"


def test_every_modern_result_has_its_type(daemon: RawDaemon) -> None:
    for result in (modern(daemon, "tools/list"), bash(daemon, "true")):
        assert result["resultType"] == "complete"
        assert "io.modelcontextprotocol/serverInfo" in result["_meta"]
    assert "ttlMs" not in bash(daemon, "true")


def test_tool_schemas_are_portable_with_true_annotations(daemon: RawDaemon) -> None:
    tools = {tool["name"]: tool for tool in modern(daemon, "tools/list")["tools"]}
    assert list(tools) == ["Bash", "BashOutput", "KillShell"]
    for tool in tools.values():
        assert '"type":["' not in str(tool).replace(" ", "").replace("'", '"')
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
    assert tools["Bash"]["annotations"]["destructiveHint"] is True
    assert tools["Bash"]["annotations"]["openWorldHint"] is True
    assert tools["BashOutput"]["annotations"]["readOnlyHint"] is True
    assert tools["KillShell"]["annotations"]["destructiveHint"] is True


@pytest.mark.parametrize(
    ("command", "is_error", "text"),
    [
        ("echo hi", False, "hi\n"),
        ("echo no; exit 3", True, "Command failed with exit code 3\nno\n"),
    ],
)
def test_a_result_is_text_and_a_tool_result(
    daemon: RawDaemon, command: str, is_error: bool, text: str
) -> None:
    schema = modern(daemon, "tools/list")["tools"][0]["outputSchema"]
    result = bash(daemon, command)
    assert result["isError"] is is_error
    assert result["content"] == [{"type": "text", "text": text}]
    structured = result["structuredContent"]
    jsonschema.validate(structured, schema)
    assert structured["success"] is not is_error
    assert (structured["error"] if is_error else structured["output"]) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Missing required parameter: command"),
        ({"command": 1}, "Invalid type for command: expected string"),
        (
            {"command": "ls", "timeout": 1},
            "Value for timeout is below minimum: 1000 (milliseconds, ",
        ),
        ({"command": "ls", "nope": 1}, "Unknown parameter: nope"),
    ],
)
def test_mistake_of_model_is_failed_result(daemon: RawDaemon, arguments: Json, text: str) -> None:
    result = modern(daemon, "tools/call", name="Bash", arguments=arguments)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(text)


@pytest.mark.slow
def test_blocked_command_is_failed_result_with_reason() -> None:
    with raw_daemon() as daemon:
        # This disk does not exist, so the command would do no harm even if it ran.
        result = bash(daemon, "dd if=/nonexistent of=/dev/sdzz9/nothing")
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("Command blocked: dangerous (dd-disk)")
        assert result["structuredContent"]["metadata"]["rule"] == "dd-disk"


def test_timeout_is_failed_result_with_partial_output(daemon: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = f"echo before; {mark.touch}; sleep 300"
    result = mark.in_time(partial(bash, daemon, command, timeout=1000))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(
        "Command timed out after 1000ms\nbefore\n[For more time: "
    )
    assert result["structuredContent"]["metadata"]["status"] == "timeout"


def test_background_shells_are_named_by_their_ids(daemon: RawDaemon) -> None:
    started = bash(daemon, "echo one; sleep 300", run_in_background=True)
    bash_id = started["structuredContent"]["metadata"]["bash_id"]
    assert bash_id in started["content"][0]["text"]
    read = modern(
        daemon, "tools/call", name="BashOutput", arguments={"bash_id": bash_id, "wait": 60_000}
    )
    assert read["content"][0]["text"].startswith("one\n")
    killed = modern(daemon, "tools/call", name="KillShell", arguments={"shell_id": bash_id})
    assert killed["isError"] is False
    assert killed["structuredContent"]["metadata"]["status"] == "killed"


def test_session_argument_defaults_to_main(daemon: RawDaemon) -> None:
    bash(daemon, "x=1; cd /")
    bash(daemon, "x=2", session="other")
    assert bash(daemon, 'echo "$x $PWD"')["content"][0]["text"] == "1 /\n"
    assert bash(daemon, 'echo "$x"', session="other")["content"][0]["text"] == "2\n"
    assert daemon.bash('echo "$x"')["stdout"] == "1\n"


def test_other_names_of_a_tool_are_understood(daemon: RawDaemon) -> None:
    result = modern(daemon, "tools/call", name="bash", arguments={"command": "echo hi"})
    assert result["content"][0]["text"] == "hi\n"


# -- the handshake era ------------------------------------------------------------------------


@pytest.mark.parametrize("version", HANDSHAKES)
def test_handshake_agrees_on_common_version(daemon: RawDaemon, version: str) -> None:
    result = initialize(daemon, version)
    assert result["protocolVersion"] == version
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["name"] == "shelld"
    assert result["instructions"]
    assert daemon.call("ping") == {}
    assert daemon.call("ping", {"_meta": {"progressToken": 1}}) == {}


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "", "latest"])
def test_an_unknown_version_is_answered_with_the_newest(daemon: RawDaemon, version: str) -> None:
    assert initialize(daemon, version)["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("version", HANDSHAKES)
def test_each_revision_gets_only_its_members(daemon: RawDaemon, version: str) -> None:
    initialize(daemon, version)
    listed = daemon.call("tools/list")
    assert listed.keys() == {"tools"}
    result = daemon.call("tools/call", {"name": "Bash", "arguments": {"command": "echo hi"}})
    assert result["content"] == [{"type": "text", "text": "hi\n"}]
    assert result["isError"] is False
    for tool in listed["tools"]:
        assert ("annotations" in tool) == (version >= "2025-03-26")
        assert ("outputSchema" in tool) == (version >= "2025-06-18")
    assert ("structuredContent" in result) == (version >= "2025-06-18")
    assert not {"resultType", "_meta"} & result.keys()


def test_a_second_handshake_replaces_the_first(daemon: RawDaemon) -> None:
    initialize(daemon, "2024-11-05")
    initialize(daemon, "2025-11-25")
    assert "outputSchema" in daemon.call("tools/list")["tools"][0]


def test_both_eras_and_plain_requests_share_the_stream(host: RawDaemon) -> None:
    assert "ttlMs" in modern(host, "tools/list")
    assert "ttlMs" not in host.call("tools/list")
    assert host.bash("echo plain")["stdout"] == "plain\n"
    assert bash(host, "echo modern")["resultType"] == "complete"


def test_mcp_works_in_both_framings() -> None:
    with raw_daemon() as daemon:
        body = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"%b":"%b",'
        body += b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
        body %= VERSION_KEY.encode(), MODERN.encode()
        daemon.send_raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert daemon.answer(1)["result"]["supportedVersions"] == [MODERN]


# -- errors -----------------------------------------------------------------------------------

BROKEN_META: list[tuple[Any, int]] = [
    (None, -32602),
    ({}, -32602),
    ({"progressToken": 1}, -32602),
    ("x", -32602),
    ({VERSION_KEY: MODERN}, -32602),
    ({**META, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
    ({**META, VERSION_KEY: 20260728}, -32602),
    ({**META, VERSION_KEY: None}, -32602),
    ({**META, VERSION_KEY: "2025-11-25"}, -32022),
    ({**META, VERSION_KEY: "1999-01-01"}, -32022),
]


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover"])
@pytest.mark.parametrize(("meta", "code"), BROKEN_META)
def test_request_without_revision_is_refused(
    daemon_without_handshake: RawDaemon, method: str, meta: Any, code: int
) -> None:
    params: Json = {"name": "Bash", "arguments": {"command": "true"}, "_meta": meta}
    error = daemon_without_handshake.fail(method, params)
    assert error["code"] == code
    if meta == {VERSION_KEY: MODERN}:
        missing = "_meta.io.modelcontextprotocol/clientCapabilities"
        assert error["message"] == f"Missing required parameter: {missing}"
    if code == -32022:
        requested = meta[VERSION_KEY]
        assert error["data"] == {
            "kind": "unsupported_version",
            "supported": [MODERN],
            "requested": requested,
        }


@pytest.mark.parametrize("method", ["initialize", "logging/setLevel", "resources/list"])
def test_modern_era_lacks_removed_methods(host: RawDaemon, method: str) -> None:
    for params in ({"_meta": META}, {"_meta": META, "protocolVersion": MODERN}):
        assert host.fail(method, params)["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("initialize", None, "Missing required parameter: protocolVersion"),
        ("initialize", {"protocolVersion": 1}, "Invalid type for protocolVersion: expected string"),
        ("tools/call", None, "Missing required parameter: name"),
        ("tools/call", {"name": "Nope"}, "Unknown tool: Nope"),
        ("tools/call", {"name": 1}, "Invalid type for name: expected string"),
        (
            "tools/call",
            {"name": "Bash", "arguments": []},
            "Invalid type for arguments: expected object",
        ),
        (
            "tools/call",
            {"name": "Bash", "arguments": {"command": "true"}, "_meta": {"progressToken": True}},
            "Invalid type for _meta.progressToken: expected string",
        ),
        ("tools/list", {"cursor": "x"}, "Invalid value for cursor: all tools are on one page"),
    ],
)
def test_malformed_tool_call_is_an_error(
    host: RawDaemon, method: str, params: Any, message: str
) -> None:
    error = host.fail(method, params)
    assert (error["code"], error["message"]) == (-32602, message)


def test_members_of_later_revisions_are_ignored(host: RawDaemon) -> None:
    assert host.call("tools/list", {"later": 1, "_meta": {"also/later": {}}})["tools"]
    params = {"name": "Bash", "arguments": {"command": "echo hi"}, "task": {"ttl": 1}}
    assert host.call("tools/call", params)["isError"] is False


def test_unknown_notifications_are_ignored(host: RawDaemon) -> None:
    for method in ("notifications/roots/list_changed", "notifications/progress", "notifications/x"):
        host.notify(method, {"progressToken": 1, "progress": 1})
    assert host.call("ping") == {}
