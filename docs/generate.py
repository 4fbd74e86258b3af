"""Writes what can be known from the code: protocol.md from the types, options.md from the parser.

Usage: python docs/generate.py; `make docs` does so, and a test sees whether it was forgotten.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
