"""Checks that a request is for this daemon."""

from __future__ import annotations

from shelld_protocol.errors import unknown_target


def check_is_here(target: str | None) -> None:
    """Raise `RpcError` (invalid_params) if a request names a target.

    Requests for known targets were passed on before their params were decoded.
    """
    if target is not None:
        raise unknown_target(target)
