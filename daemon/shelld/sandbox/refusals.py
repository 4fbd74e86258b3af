"""Makes the errors for a refused policy, and finds the values that loosen a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shelld_protocol.errors import invalid_params

T = TypeVar("T")


def tighter(name: str, own: T, given: T | None, order: Sequence[T]) -> T:
    """Return the value that holds for a call. `own` is the value of its session. `order`: all
    values, from the tightest to the loosest.

    Raises `RpcError` (invalid_params) if the given value is looser.
    """
    if given is None:
        return own
    if order.index(given) > order.index(own):
        raise looser(name)
    return given


def looser(name: str) -> Exception:
    return invalid(name, "is looser than the policy of the session")


def invalid(name: str, problem: str) -> Exception:
    parameter = f"sandbox.{name}"
    return invalid_params(f"Invalid value for {parameter}: it {problem}", parameter)
