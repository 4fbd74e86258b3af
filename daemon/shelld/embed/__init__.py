"""Runs commands for a program that embeds shelld: one manager per process, for any event loop."""

from shelld.embed.manager import ShellManager
from shelld.embed.process import ShellProcess
from shelld.shells.lifecycle import ShellStatus

__all__ = ["ShellManager", "ShellProcess", "ShellStatus"]
