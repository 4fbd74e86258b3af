"""The guard quickly reaches a verdict on any command, and always reaches the same verdict."""

from __future__ import annotations

import time

from shelld.guard import StartState
from shelld.guard.fallback import simple_commands
from shelld.guard.judgement import judge
from shelld.guard.policy import DEFAULT_POLICY
from shelld.guard.quick import is_plainly_harmless

HERE = StartState("/work", {"HOME": "/home/me", "X": "x y", "EMPTY": ""})

# This limit is in processor time. The guard gives up after a quarter of a second, then needs time
# to unwind.
LIMIT_S = 2.0


def check(data: bytes) -> None:
    """Judge the command in `data`. Raise AssertionError if a promise is broken."""
    command = data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()
    began = time.thread_time()
    verdict = judge(command, HERE, traces=True)
    assert time.thread_time() - began < LIMIT_S
    assert verdict.reason != "it cannot be followed"
    assert (verdict.verdict == "block") == (verdict.rule is not None)
    assert judge(command, HERE, traces=True) == verdict
    if is_plainly_harmless(command, DEFAULT_POLICY):
        assert verdict.verdict == "allow"
    simple_commands(command)
