"""Refuses what a client gives as a policy: the errors, and the order from tight to loose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shelld_protocol.errors import invalid_params

T = TypeVar("T")


def tighter(name: str, own: T, given: T | None, order: Sequence[T]) -> T:
    """Return the value of a call in a session with `own`. `order`: from the tightest.

    Raises `RpcError` (invalid_params) if it is looser.
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
