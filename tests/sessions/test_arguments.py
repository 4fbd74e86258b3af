"""How much of a state travels in the environment."""

from __future__ import annotations

import resource

import pytest

from shelld.sessions.arguments import share_of

KIB = 1024


@pytest.mark.parametrize(
    ("stack_limit", "space"),
    [
        (8 * KIB * KIB, 2 * KIB * KIB),
        (KIB * KIB, 256 * KIB),
        (512 * KIB, 128 * KIB),
        (16 * KIB, 128 * KIB),
        (resource.RLIM_INFINITY, 6 * KIB * KIB),
        (1 << 40, 6 * KIB * KIB),
    ],
)
def test_variables_functions_and_command_fit(stack_limit: int, space: int) -> None:
    share = share_of(stack_limit)
    assert share == 0 or 2 * share + 128 * KIB < space
    # Nearly all is used.
    assert 2 * share + 200 * KIB > space
