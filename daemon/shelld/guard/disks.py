"""Uses the table `vocabulary.WRITERS` to find the files that a program overwrites. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import all_options
from shelld.guard.specification import Specification, specification
from shelld.guard.vocabulary import WRITERS


def targets_of(program: str, arguments: Sequence[str], stdin: str = "") -> list[str]:
    """Return the files that a program overwrites, given its arguments and stdin."""
    line = WRITERS.get(program) or WRITERS.get(program.partition(".")[0])
    if line is None:
        return []
    spec = specification(line)
    if program == "tar" and arguments and not arguments[0].startswith("-"):
        # The traditional option style of tar has no dash.
        arguments = ["-" + arguments[0], *arguments[1:]]
    options, operands = all_options(arguments, spec.letters, spec.names)
    said = {name for name, _ in options}
    targets = [value for name, value in options if value and spec.has("to", name)]
    targets += [
        f"{value}/{each.rpartition('/')[2]}"
        for name, value in options
        if value and spec.has("into", name)
        for each in operands
    ]
    keys = [each.partition("=")[::2] for each in operands]
    targets += [value for key, value in keys if value and spec.has("key", key)]
    if not said.isdisjoint(spec.options.get("idle", ())):
        return []
    if not _writes(spec, said | set(operands), stdin):
        return []
    if "all" in spec.marks:
        targets += operands
    elif "rest" in spec.marks:
        targets += operands[1:]
    elif "last" in spec.marks and len(operands) > 1:
        # The last operand may be a directory. In this case, the program writes one file in this
        # directory for each operand before the last.
        names = [each.rstrip("/").rpartition("/")[2] for each in operands[:-1]]
        targets += [operands[-1], *(f"{operands[-1]}/{name}" for name in names)]
    return targets


def _writes(spec: Specification, said: set[str], stdin: str) -> bool:
    """Return whether an option, an operand or stdin tells the program to write."""
    conditions, orders = spec.options.get("if"), spec.options.get("order", ())
    if conditions is None and not orders:
        return True
    if conditions is not None and not said.isdisjoint(conditions):
        return True
    if "" in orders:
        return stdin != ""
    if not orders or stdin in ("", UNKNOWN):
        return False
    return any(
        line.split()[:1] == [order] for line in plain(stdin).splitlines() for order in orders
    )
