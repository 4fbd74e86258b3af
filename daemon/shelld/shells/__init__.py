"""The shells: what runs, what has run, and what belongs together."""

from shelld.shells.lifecycle import ShellStatus
from shelld.shells.manager import ShellManager
from shelld.shells.process import ShellProcess

__all__ = ["ShellManager", "ShellProcess", "ShellStatus"]
