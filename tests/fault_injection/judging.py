"""Command lines that the guard judges. None of these lines runs."""

from __future__ import annotations

import guard_builtin_classes
import guard_classes
import guard_detour_classes
import guard_further_classes
import guard_more_classes
import guard_program_classes
import guard_shell_classes
from fault_injection.asking import Asker

CORPORA = (
    guard_classes,
    guard_more_classes,
    guard_further_classes,
    guard_shell_classes,
    guard_builtin_classes,
    guard_program_classes,
    guard_detour_classes,
)
# Judging all lines would take too long. A sample of every n-th line contains lines of almost every
# class.
DANGEROUS = [line for corpus in CORPORA for _, line in corpus.DANGEROUS[::12]]
HARMLESS = [line for corpus in CORPORA for _, line in corpus.HARMLESS[::24]]


class Judging(Asker):
    STEPS = ("judge",)

    def judge(self) -> None:
        """Ask for the guard's verdict on lines. `explain_command` runs nothing."""
        env = {"HOME": "/home/me", "USER": "me", "TMPDIR": "/tmp"}
        for lines, is_dangerous in ((DANGEROUS, True), (HARMLESS, False)):
            for line in lines:
                params = {"command": line, "env": env, "cwd": "/work/project"}
                self.ask(
                    "explain_command",
                    params,
                    lambda result: (result["verdict"] == "block") is is_dangerous,  # noqa: B023
                )
