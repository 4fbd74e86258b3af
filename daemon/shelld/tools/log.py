"""Writes log lines about executions, with names, sizes and outcomes.

This module never logs the values of parameters, because they can be secrets. It logs only the first
line of an error, because a command's output may follow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from shelld.process.logs import Log
from shelld_protocol.tools import ToolResult

logger = Log("shelld.tools")

_MAX_CHARACTERS: Final = 500


def log_call(tool_name: str, params: Mapping[str, Any]) -> None:
    logger.info("Executing tool: %s", tool_name)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("Tool %s parameters: %.500s", tool_name, _outline_of(params))


def log_result(tool_name: str, result: ToolResult) -> None:
    if result.success:
        logger.info("Tool %s succeeded", tool_name)
    else:
        # If an error has a kind, log only the kind, because the error's text may quote a parameter.
        reason = result.metadata.get("kind") or (result.error or "").partition("\n")[0]
        reason = str(reason)[:_MAX_CHARACTERS]
        logger.warning("Tool %s failed: %s", tool_name, reason)


def _outline_of(params: Mapping[str, Any]) -> str:
    """Return the names of parameters, and the sizes or types of their values."""
    sizes = {
        name: f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        for name, value in params.items()
    }
    return ", ".join(f"{name!r}: {size}" for name, size in sizes.items())
