"""Map tests to rooms, which are the parts of the source that the table in CONTRIBUTING.md lists.

As a program, this module prints the tests of the rooms that are given as arguments. Without
arguments, it prints the tests of all rooms in which files differ from the last commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# These tests always run, whichever rooms have changed. Each takes a few seconds.
ALWAYS = ("tests/test_architecture.py",)


class Paths(NamedTuple):
    own: list[str]
    others: list[str]


def paths_by_room() -> dict[str, Paths]:
    """Return the tests of each room, from the table in CONTRIBUTING.md."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("| room | its own tests |")[2]
    rows = (row.split("|") for row in section.partition("\n\n")[0].splitlines()[2:])
    cells = ([re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows)
    return {room[0]: Paths(own, others) for _, room, own, others, _ in cells}


def room_of(path: str) -> str | None:
    """Return the room of a source file or a test, or None if the file belongs to no room."""
    parts = Path(path).parts
    if parts[:2] == ("daemon", "shelld"):
        return parts[2] if len(parts) > 3 else None
    if parts[0] in ("protocol", "client"):
        return parts[1] if len(parts) > 2 else None
    owners = (
        room for room, tests in paths_by_room().items() if any(map(path.startswith, tests.own))
    )
    return next(owners, None)


def changed_rooms() -> list[str]:
    """Return the rooms in which files differ from the last commit."""
    changed = subprocess.run(
        ("git", "status", "--porcelain", "--no-renames", "-uall"),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if changed.returncode != 0:
        sys.exit("git cannot tell what has changed; name rooms, as in: make quick ROOM=guard")
    paths = (line[3:].strip('"') for line in changed.stdout.splitlines())
    return sorted({room for room in map(room_of, paths) if room is not None})


def main(arguments: list[str]) -> None:
    known = paths_by_room()
    if unknown := sorted(set(arguments) - known.keys()):
        sys.exit(f"no such room: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    tests = [path for room in arguments or changed_rooms() for path in known[room].own]
    sys.stdout.write(" ".join((*tests, *ALWAYS)))


if __name__ == "__main__":
    main(sys.argv[1:])
