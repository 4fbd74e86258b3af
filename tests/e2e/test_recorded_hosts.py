"""Hosts that use neither events nor tasks get the same messages as before these features existed.

The recordings are from the last daemon that had neither feature. They contain its messages with
five hosts: the official MCP SDK, the MCP inspector and three editors. The comparison leaves out
only the parts that differ from run to run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import recordings
from support import raw_daemon

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))
# Today's answers differ from the recorded ones only by this text. Each answer that lists extensions
# contains it, because a server lists all its extensions to every client.
DISCOVERED = ',"extensions":{"io.modelcontextprotocol/tasks":{}}'


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_host_that_asks_for_nothing_new_gets_the_recorded_bytes(path: Path, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo first; echo second >&2; exit 3\n")
    with raw_daemon(cwd=tmp_path) as daemon:
        expected, answers = recordings.play(daemon, recordings.read(path))
    discovered = [each for each in answers if '"supportedVersions"' in each]
    assert [each.count(DISCOVERED) for each in discovered] == [1] * len(discovered)
    assert [each.replace(DISCOVERED, "") for each in answers] == expected
