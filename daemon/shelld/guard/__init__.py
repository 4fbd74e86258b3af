"""Is this command dangerous? Asked before a command runs, and instead of it in a dry run.

Pure: a verdict is made from the text of a command and what its shell would know; nothing is run or
looked up. What is followed is what bash would do, not what the text looks like: words are expanded,
wrappers taken off, scripts within scripts followed. Text that is only data stays that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from shelld.guard.evaluation import Evaluation
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.guard.programs import TELLING
from shelld.guard.verdict import Blocked, Budget, Verdict

__all__ = [
    "DANGEROUS_PATTERNS",
    "Circumstances",
    "Policy",
    "Verdict",
    "is_plainly_harmless",
    "judge",
]

# What must not run, in its plainest form. The rules are about what commands do, not how they look.
DANGEROUS_PATTERNS: Final = (
    "rm -rf /",
    "rm -rf /*",
    "mkfs.*",
    "dd if=* of=/dev/sd*",
    "> /dev/sd*",
    "chmod -R 777 /",
    ":(){:|:&};:",
    "mv / *",
    "chown -R * /",
)

_PRIVATE: Final = re.compile("[\ue000-\ue004]")

# A command of these characters is no more than it looks like.
_SIMPLE: Final = re.compile(r"[\w \t\n./:,=@%+&|;-]*")
_SEPARATORS: Final = re.compile(r"[\s;&|=]+")
_SOURCES: Final = re.compile(r"(?:^|[;&|\n])[ \t]*\.[ \t]")


class Circumstances(Struct, frozen=True):
    """What the shell of a command would know.

    `env` is what it is started with. `script` makes the rest of its state: other variables,
    functions, aliases.
    """

    cwd: str
    env: Mapping[str, str]
    script: str = ""


def is_plainly_harmless(command: str, policy: Policy = DEFAULT_POLICY) -> bool:
    """Whether nothing in a command could be a program that a rule is about, or starts others.

    For most commands that is enough to know, if no function or alias stands for something else.
    """
    if policy.block or not _SIMPLE.fullmatch(command):
        return False
    if "/dev/" in command or _SOURCES.search(command):
        return False
    return not any(
        word.rpartition("/")[2] in TELLING or "mkfs" in word for word in _SEPARATORS.split(command)
    )


def judge(
    command: str,
    circumstances: Circumstances,
    policy: Policy = DEFAULT_POLICY,
    *,
    traces: bool = False,
) -> Verdict:
    """Return the verdict on one command. Raises nothing, whatever the command is."""
    if policy.allows(command):
        return Verdict("allow", reason="the rules of this place allow it")
    budget = Budget(policy=policy, traces=traces)
    shell = _prepared(circumstances.script).copy(budget)
    shell.variables = {**circumstances.env, **shell.variables}
    shell.exported = frozenset(circumstances.env)
    shell.cwd, shell.home = circumstances.cwd, circumstances.env.get("HOME")
    try:
        shell.run_script(_PRIVATE.sub("?", command), "")
    except Blocked as blocked:
        return Verdict("block", blocked.rule, blocked.segment, blocked.reason, budget.trace)
    except RecursionError:
        return Verdict("unresolved", reason="it is nested too deeply to be followed")
    if budget.unresolved is not None:
        return Verdict("unresolved", reason=budget.unresolved, trace=budget.trace)
    return Verdict("allow", trace=budget.trace)


@lru_cache(maxsize=32)
def _prepared(script: str) -> Evaluation:
    """Return a shell that a session's script has made; it is followed once for all commands."""
    budget = Budget(policy=DEFAULT_POLICY, traces=False, reports=False)
    shell = Evaluation(budget, {}, "/", None)
    if script:
        shell.run_script(_PRIVATE.sub("?", script), "")
    return shell
