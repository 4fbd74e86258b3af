"""The daemon, which runs shell commands for agents and editors. They send JSON-RPC on stdio."""

from typing import Final

__version__: Final = "0.1.0"
