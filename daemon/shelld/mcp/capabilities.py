"""Reads the capabilities that the client of a request has declared. Pure.

In the modern era, every request declares the capabilities of its client. Only the capabilities in
the request itself count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from shelld.mcp.revisions import Meta, revision_of
from shelld_protocol.errors import RpcError, method_not_found, missing_capability
from shelld_protocol.mcp import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from shelld_protocol.mcp_tasks import TASKS_CAPABILITY, TASKS_EXTENSION


def declares_tasks(meta: Meta) -> bool:
    """Return whether the client accepts a task as the answer to its request."""
    extensions = _member(_capabilities(meta), "extensions")
    return extensions is not None and isinstance(extensions.get(TASKS_EXTENSION), dict)


def accepts_forms(meta: Meta) -> bool:
    """Return whether the client can show a form to a person. A form is the default mode of
    elicitation.
    """
    elicitation = _member(_capabilities(meta), "elicitation")
    return elicitation is not None and ("form" in elicitation or "url" not in elicitation)


def require_tasks(meta: Meta, agreed: str | None, method: str) -> None:
    """Refuse a request whose client does not declare tasks. Raises `RpcError`.

    `agreed`: the revision of the last ``initialize``. Revisions with a handshake do not have the
    extension for tasks.
    """
    if meta is None or PROTOCOL_VERSION_KEY not in meta:
        raise missing_tasks() if agreed is None else method_not_found(method)
    # This call refuses a revision that is unknown or has the wrong form.
    revision_of(meta, agreed)
    if not declares_tasks(meta):
        raise missing_tasks()


def missing_tasks() -> RpcError:
    return missing_capability(TASKS_CAPABILITY)


def _capabilities(meta: Meta) -> Mapping[str, Any] | None:
    return None if meta is None else _member(meta, CLIENT_CAPABILITIES_KEY)


def _member(of: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """Return the member with this name if it is an object, and None otherwise."""
    value = None if of is None else of.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None
