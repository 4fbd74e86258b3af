"""Send the recorded messages of a host to the daemon again, and compare the answers.

`record_host.py` makes the recordings.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from shelld_protocol.framing import NEED_DATA, FrameReader
from support import RawDaemon

_SHELL_ID = re.compile(r"shell_[0-9a-f]{9}")
# These parts of a message differ from run to run. Each has its replacement.
_VARIABLE = [
    (re.compile(r'"(durationMs|duration_ms|userMs|systemMs|maxRssBytes|pid)":\d+'), r'"\1":0'),
    (re.compile(r"Duration: [\d.]+m?s"), "Duration: 0ms"),
    (re.compile(r'"(cwd|sessionCwd|session_cwd)":"[^"]*"'), r'"\1":"/project"'),
    (re.compile(r'("name":"shelld",)"version":"[^"]*"'), r'\1"version":"0"'),
]


class ShellIds:
    """The ids of shells, in the order in which they appear."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def learn(self, text: str) -> None:
        for each in _SHELL_ID.findall(text):
            if each not in self.ids:
                self.ids.append(each)

    def in_place_of(self, others: ShellIds, text: str) -> str:
        """Return `text` with each id of `others` replaced by the matching id of this object."""
        ids = dict(zip(others.ids, self.ids, strict=True))
        return _SHELL_ID.sub(lambda found: ids.get(found[0], found[0]), text)

    def comparable(self, message: bytes) -> str:
        """Return a message without the parts that differ from run to run."""
        text = message.decode()
        self.learn(text)
        text = _SHELL_ID.sub(lambda found: f"shell_{self.ids.index(found[0])}", text)
        for pattern, replacement in _VARIABLE:
            text = pattern.sub(replacement, text)
        return text


def read(path: Path) -> list[tuple[str, str]]:
    """Return the parts of a recording: each is a sender, and the text that it sent in one go."""
    return [(who, text) for who, text in map(json.loads, path.read_text().splitlines())]


def play(daemon: RawDaemon, recording: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Send the host's parts of a recording. Send each part only after the daemon has answered the
    earlier parts.

    Return the recorded answers of the daemon, and all answers that it gives now.
    """
    then, now = ShellIds(), ShellIds()
    recorded, frames = FrameReader(), FrameReader()
    expected: list[str] = []
    answers: list[str] = []
    for who, text in recording:
        if who == "daemon":
            recorded.receive_data(text.encode())
            expected += _messages(recorded, then)
            while len(answers) < len(expected):
                data = daemon.read_bytes()
                assert data, f"the daemon has ended after {answers}"
                frames.receive_data(data)
                answers += _messages(frames, now)
        else:
            daemon.send_raw(now.in_place_of(then, text).encode())
    daemon.end_input()
    frames.receive_data(daemon.rest())
    return expected, answers + _messages(frames, now)


def _messages(frames: FrameReader, ids: ShellIds) -> list[str]:
    found: list[str] = []
    while (event := frames.next_event()) is not NEED_DATA:
        assert isinstance(event, bytes), event
        found.append(ids.comparable(event))
    return found
