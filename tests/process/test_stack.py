"""With memory reserved for frames, deep calls need no new memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shelld.process.stack import with_room_for_frames

# This program makes deep calls while the kernel gives the process no more memory. With the argument
# "room", the program has reserved memory for the frames. Without this memory, Python may crash.
PROGRAM = """
import resource, sys
from shelld.process.stack import with_room_for_frames

def deep(level):
    return deep(level - 1) + 1 if level else 0

def short():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1, hard))
    depth = deep(400)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return depth

print(with_room_for_frames(short)() if sys.argv[1] == "room" else short())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count mapped memory")
@pytest.mark.parametrize(("room", "works"), [("room", True), ("none", False)])
def test_deep_calls_work_without_memory(room: str, works: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, room], capture_output=True, text=True, check=False
    )
    assert (done.stdout == "400\n") is works, done.stderr


def test_arguments_results_and_errors_pass_through() -> None:
    assert with_room_for_frames(divmod)(7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        with_room_for_frames(divmod)(7, 0)
