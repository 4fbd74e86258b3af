"""Converts paths and values to text and back, independently of the locale.

The kernel and bash use bytes, but requests and answers are UTF-8. For bytes that are not UTF-8,
text has surrogates, so that encoding gives the same bytes again. Text with surrogates never leaves
the process, because answers hold the result of `shown`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from shelld_protocol.errors import invalid_params
from shelld_protocol.structs import CUT_MARK, MAX_SHOWN_CHARACTERS

# The maximum number of variables in the `env` of a call. A larger number would delay other
# requests.
MAX_VARIABLES: Final = 20_000


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def check_text(
    command: str,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str | None] | None,
    stdin: str | None = None,
) -> None:
    """Refuse text that bash cannot take. Raises `RpcError` (invalid_params)."""
    _check("command", command)
    if cwd is not None:
        _check("cwd", os.fspath(cwd))
    if stdin is not None:
        _check("stdin", stdin, may_have_nul=True)
    if env is not None and len(env) > MAX_VARIABLES:
        raise invalid_params(f"Too many items in env: at most {MAX_VARIABLES}", "env")
    for key, value in (env or {}).items():
        if not key or "=" in key or "\0" in key:
            sentence = "Invalid value for env: a name must not be empty nor contain = or NUL"
            raise invalid_params(sentence, "env")
        _check("env", key)
        if value is not None:
            _check("env", value)


def check_input(text: str | None) -> None:
    """Refuse text that cannot be encoded. Raises `RpcError` (invalid_params)."""
    if text is not None:
        _check("text", text, may_have_nul=True)


def _check(name: str, text: str, *, may_have_nul: bool = False) -> None:
    if "\0" in text and not may_have_nul:
        raise invalid_params(f"Invalid value for {name}: must not contain NUL", name)
    # A surrogate that represents a byte is valid. Such a surrogate can come only from a program
    # that embeds shelld.
    if text.isascii():
        return
    try:
        to_bytes(text)
    except UnicodeEncodeError:
        sentence = f"Invalid value for {name}: must not contain lone surrogates"
        raise invalid_params(sentence, name) from None


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def beginning(text: str) -> str:
    """Return a text as it appears in lists. A long text is cut and ends with a mark."""
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return text[:MAX_SHOWN_CHARACTERS] + CUT_MARK


def shown(text: str) -> str:
    """Return text that can be encoded, with U+FFFD for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def join_streams(stdout: str, stderr: str = "") -> str:
    """Return both streams as one text, with stderr after a line ``[stderr]``."""
    if not stderr:
        return stdout
    line_end = "" if not stdout or stdout.endswith("\n") else "\n"
    return f"{stdout}{line_end}[stderr]\n{stderr}"


def current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        # The directory was deleted. Commands still run in the deleted directory, and print their
        # own errors.
        return os.environ.get("PWD", "/")
