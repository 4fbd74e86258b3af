"""The lengths of the pauses between checks."""

from __future__ import annotations

import pytest

from shelld.eventloop.turns import Turns
from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses


@pytest.mark.parametrize(("quiet_s", "expected"), [(0.0, 0.01), (0.9, 0.3), (800.0, 8.0)])
def test_pause_grows_with_the_silence_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, quiet_s: float, expected: float
) -> None:
    monkeypatch.setattr(Shell, "quiet_s", quiet_s)
    pauses = Pauses(Turns())
    assert pauses.next(Shell("x")) == pytest.approx(0.01)
    pauses.begin_check()
    assert pauses.next(Shell("x")) == pytest.approx(expected)
