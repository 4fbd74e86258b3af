"""Parses the options of a shell, which decide what the shell runs, and how. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class ShellOptions:
    """The options of a shell, and the arguments after them."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.rest = list(arguments)
        self.has_command = self.reads_stdin = self.nounset = False
        self.is_interactive = False
        # The file that an interactive bash runs first; None if the arguments name no such file.
        self.startup_file: str | None = None
        # The names of the options that the arguments turn on, see `Names.options`.
        self.switched: frozenset[str] = frozenset()
        # `is_idle` is true if the shell runs nothing. `tells` is true if the shell only prints its
        # version or its help.
        self.is_idle = self.tells = False
        while self.rest and self.rest[0][:1] in "-+" and len(self.rest[0]) > 1:
            option = self.rest.pop(0)
            if option == "--":
                break
            if option.startswith("--"):
                self._read_name(option)
            else:
                self._read_letters(option)
            if self.is_idle:
                return
        if self.rest[:1] == ["-"]:
            self.rest.pop(0)

    @property
    def may_be_interactive(self) -> bool:
        """Whether the shell is interactive, or would be interactive on a terminal."""
        return self.is_interactive or not (self.has_command or self.rest)

    def _read_name(self, option: str) -> None:
        if option in ("--rcfile", "--init-file"):
            self.startup_file = self.rest.pop(0) if self.rest else None
        elif option in ("--version", "--help"):
            self.is_idle = self.tells = True

    def _read_letters(self, option: str) -> None:
        if option[0] == "-":
            self.is_idle = "n" in option
            self.is_interactive = self.is_interactive or "i" in option
            self.has_command = self.has_command or "c" in option
            self.reads_stdin = self.reads_stdin or "s" in option
        named = self.rest[:1] if option[-1] in "oO" else []
        if option[0] == "-":
            self.switched |= {*named, *(["allexport"] if "a" in option else [])}
        if "u" in option or named == ["nounset"]:
            self.nounset = option[0] == "-"
        del self.rest[: len(named)]
