"""Reads the bash programs in the directory of this module."""

from __future__ import annotations

from pathlib import Path


def lines_of(name: str) -> list[bytes]:
    """Return the lines of a program, without comments, empty lines and indentation."""
    lines = Path(__file__).with_name(name).read_bytes().splitlines()
    return [line for each in lines if (line := each.strip()) and not line.startswith(b"#")]
