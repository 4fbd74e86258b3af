"""The part of a session's state that the environment of a bash can hold."""

from __future__ import annotations

import resource

import pytest

from shelld.sessions.arguments import share_of_command, share_of_variables, space_for

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
    assert space_for(stack_limit) == space
    taken = 2 * share_of_variables(space) + share_of_command(space)
    # Together, the shares of variables, functions and the command use nearly all the space.
    assert space - 40 * KIB < taken < space - 30 * KIB
    assert 0 < share_of_command(space) < 128 * KIB
