"""The daemon: shell commands for agents and editors, over JSON-RPC on stdio."""

from typing import Final

__version__: Final = "0.1.0"
