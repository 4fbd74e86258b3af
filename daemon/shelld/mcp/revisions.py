"""Finds the MCP revision of a request. Pure.

Each request has its own revision. A request with a revision in ``_meta`` belongs to the modern era.
Any other request has the revision of the last ``initialize``. So requests of both eras can come on
the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shelld_protocol.errors import (
    RpcError,
    invalid_params,
    method_not_found,
    missing_parameter,
    unsupported_version,
)
from shelld_protocol.mcp import (
    CLIENT_CAPABILITIES_KEY,
    HANDSHAKE_REVISIONS,
    MODERN_REVISIONS,
    PROTOCOL_VERSION_KEY,
)

Meta = Mapping[str, Any] | None


def is_modern(revision: str) -> bool:
    return revision in MODERN_REVISIONS


def agreed_on(requested: str) -> str:
    """Return the revision that ``initialize`` agrees on if the client requests `requested`."""
    return requested if requested in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[-1]


def revision_of(meta: Meta, agreed: str | None) -> str:
    """Return the revision of a request. `agreed`: the revision of the last ``initialize``.

    Raises `RpcError`: invalid_params without a revision, unsupported_version for an unknown one.
    """
    if meta is None or PROTOCOL_VERSION_KEY not in meta:
        if agreed is None:
            raise _missing(PROTOCOL_VERSION_KEY)
        return agreed
    return _modern_revision(meta)


def refuse_modern(meta: Meta, method: str) -> None:
    """Refuse a method that the modern era does not have. Raises `RpcError`."""
    if meta is not None and PROTOCOL_VERSION_KEY in meta:
        _modern_revision(meta)
        raise method_not_found(method)


def _modern_revision(meta: Mapping[str, Any]) -> str:
    revision, capabilities = meta[PROTOCOL_VERSION_KEY], meta.get(CLIENT_CAPABILITIES_KEY)
    if not isinstance(revision, str):
        raise _wrong_type(PROTOCOL_VERSION_KEY, "string")
    if revision not in MODERN_REVISIONS:
        raise unsupported_version(revision, MODERN_REVISIONS)
    if capabilities is None:
        raise _missing(CLIENT_CAPABILITIES_KEY)
    if not isinstance(capabilities, dict):
        raise _wrong_type(CLIENT_CAPABILITIES_KEY, "object")
    return revision


def _missing(key: str) -> RpcError:
    return missing_parameter(f"_meta.{key}")


def _wrong_type(key: str, expected: str) -> RpcError:
    return invalid_params(f"Invalid type for _meta.{key}: expected {expected}", f"_meta.{key}")
