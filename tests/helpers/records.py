"""Output in records that contain their own offset, so that every byte can be checked."""

from __future__ import annotations

from typing import Any

from support import RawDaemon

# A record consists of its own offset (15 digits) and a newline.
RECORD = 16


def records(total_bytes: int) -> str:
    return f"seq -f %015.0f 0 {RECORD} {total_bytes - RECORD}"


def expected(start: int, end: int) -> str:
    first = start // RECORD
    text = "".join(f"{number * RECORD:015}\n" for number in range(first, end // RECORD + 1))
    return text[start - first * RECORD : end - first * RECORD]


def read(daemon: RawDaemon, bash_id: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = daemon.call("bash_output", {"bash_id": bash_id, **params})
    return result


def wait_for_end(daemon: RawDaemon, bash_id: str) -> None:
    read(daemon, bash_id, wait=60_000, until="exit", stdout_offset=0, max_bytes=1)


def check_all(daemon: RawDaemon, bash_id: str, total: int, **params: Any) -> tuple[int, int]:
    """Read to the end and check every byte against its offset; return (kept, dropped)."""
    kept = dropped = position = 0
    while True:
        result = read(daemon, bash_id, **params)
        span = result["stdoutRange"]
        assert span["start"] == position
        text = result["stdout"]
        assert text == expected(span["end"] - len(text), span["end"])
        assert span["end"] - span["start"] == len(text) + span["dropped"]
        position = span["end"]
        kept += len(text)
        dropped += span["dropped"]
        if not result["more"]:
            assert position == total
            return kept, dropped
