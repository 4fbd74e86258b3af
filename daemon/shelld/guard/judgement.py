"""The way into the guard: a command and what its shell would know in, a verdict out."""

from __future__ import annotations

import logging
from functools import lru_cache

from shelld.guard import Circumstances, parse
from shelld.guard.budget import Blocked, Budget
from shelld.guard.evaluation import Evaluation
from shelld.guard.markers import cleaned
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.guard.verdict import Verdict

logger = logging.getLogger("shelld.guard")


# What bash sets when it starts, whatever the environment says.
_INITIAL = {"IFS": " \t\n"}


def load() -> None:
    """Import ahead of need what the first judgement would wait for."""
    parse.load()


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
    try:
        shell = _prepared(circumstances.script).copy(budget)
        shell.variables = {**circumstances.env, **_INITIAL, **shell.variables}
        shell.exported = frozenset(circumstances.env)
        shell.cwd, shell.home = circumstances.cwd, circumstances.env.get("HOME")
        shell.run_script(cleaned(command), cleaned(circumstances.stdin))
    except Blocked as blocked:
        return Verdict("block", blocked.rule, blocked.segment, blocked.reason, budget.trace)
    except RecursionError:
        return Verdict("unresolved", reason="it is nested too deeply to be followed")
    except Exception:
        # A mistake of the guard's is not the command's.
        logger.exception("the guard cannot follow a command")
        return Verdict("unresolved", reason="it cannot be followed")
    if budget.unresolved is not None:
        return Verdict("unresolved", reason=budget.unresolved, trace=budget.trace)
    return Verdict("allow", trace=budget.trace)


@lru_cache(maxsize=32)
def _prepared(script: str) -> Evaluation:
    """Return a shell that a session's script has made; it is followed once for all commands."""
    budget = Budget(policy=DEFAULT_POLICY, traces=False, reports=False)
    shell = Evaluation(budget, {}, "/", None)
    if script:
        shell.run_script(cleaned(script), "")
    return shell
