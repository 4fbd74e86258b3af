"""All checks of MCP's conformance suite that apply to a server that offers only tools.

The suite speaks HTTP, so a bridge connects the suite to the daemon. HTTP checks of the suite test
the bridge. This server declares no prompts, resources, sampling, elicitation, completion or
logging, so their scenarios do not apply.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_bridge import http_bridge
from installed import node, npm_package
from support import RawDaemon

pytestmark = pytest.mark.slow

PLUGIN = Path(__file__).parents[1] / "conformance_plugin"
CHECK = re.compile(r"\[([\w-]+)\s*\] (SUCCESS|FAILURE|WARNING)")
COLOUR = re.compile(r"\x1b\[\d+m")

HANDSHAKE = "@modelcontextprotocol/conformance"
MODERN = "conformance-2026"

# The checks that must fail, and the reasons.
NO_SAMPLING = {
    # No tool needs a capability of its client.
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
}
NO_PROMPTS_NOR_RESOURCES = {
    "sep-2549-prompts-list-caching-hints",
    "sep-2549-resources-list-caching-hints",
    "sep-2549-resources-templates-list-caching-hints",
}


SCENARIOS: list[tuple[str, str, set[str]]] = [
    (HANDSHAKE, "server-initialize", set()),
    (HANDSHAKE, "ping", set()),
    (HANDSHAKE, "tools-list", set()),
    (HANDSHAKE, "tools-call-simple-text", set()),
    (HANDSHAKE, "tools-call-error", set()),
    (MODERN, "server-initialize", set()),
    (MODERN, "ping", set()),
    (MODERN, "tools-list", set()),
    (MODERN, "tools-call-simple-text", set()),
    (MODERN, "tools-call-error", set()),
    (MODERN, "http-header-validation", set()),
    (MODERN, "server-stateless", NO_SAMPLING),
    (MODERN, "caching", NO_PROMPTS_NOR_RESOURCES),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    daemon = RawDaemon(env={**os.environ, "PYTHONPATH": path})
    with http_bridge(daemon) as url:
        yield url
    daemon.close()
    assert daemon.stderr == b""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("suite", "scenario", "expected_failures"), SCENARIOS)
def test_conformance_scenario_passes(
    url: str, suite: str, scenario: str, expected_failures: set[str]
) -> None:
    options = ["server", "--url", url, "--scenario", scenario]
    ended = subprocess.run(
        [node(), npm_package(suite) / "dist/index.js", *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    checks = CHECK.findall(COLOUR.sub("", ended.stdout))
    assert any(outcome == "SUCCESS" for _, outcome in checks), ended.stdout + ended.stderr
    failed = {name for name, outcome in checks if outcome != "SUCCESS"}
    assert failed == expected_failures, ended.stdout
