"""The record of one shell."""

from __future__ import annotations

import time

import pytest

from shelld.shells.shell import Shell


def test_shell_expires_after_its_last_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shell = Shell(is_empty=False)
    shell.started()
    shell.end(0, None)
    now += 7_200
    assert not shell.ended_before(3_600)
    shell.become_empty()
    assert not shell.ended_before(3_600)
    now += 3_600
    assert shell.ended_before(3_600)
