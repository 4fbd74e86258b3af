"""The way into the guard: a command and what its shell would know in, a verdict out."""

from __future__ import annotations

from functools import lru_cache

from shelld.guard import Circumstances, parse
from shelld.guard.budget import Blocked, Budget
from shelld.guard.escapes import PRIVATE
from shelld.guard.evaluation import Evaluation
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.guard.verdict import Verdict


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
    shell = _prepared(circumstances.script).copy(budget)
    shell.variables = {**circumstances.env, **shell.variables}
    shell.exported = frozenset(circumstances.env)
    shell.cwd, shell.home = circumstances.cwd, circumstances.env.get("HOME")
    try:
        shell.run_script(PRIVATE.sub("?", command), PRIVATE.sub("?", circumstances.stdin))
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
        shell.run_script(PRIVATE.sub("?", script), "")
    return shell
