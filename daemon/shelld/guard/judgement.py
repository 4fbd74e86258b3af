"""Returns the verdict on a command. The functions of this module are the guard's entry points."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from shelld.guard import CHUNK_CHARACTERS, CHUNK_PARTS, StartState, parse
from shelld.guard.budget import Blocked, Budget, Exhausted
from shelld.guard.evaluation import Evaluation
from shelld.guard.markers import UNKNOWN, cleaned
from shelld.guard.names import function_entry
from shelld.guard.paths import normalized
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.guard.verdict import MAX_SEGMENT, Verdict
from shelld.process import faults

# A judgement within these limits takes at most a few milliseconds, so it may run on the event loop.
MAX_CHARACTERS_AT_ONCE: Final = 4 * 1024
MAX_STEPS_AT_ONCE: Final = 400
# The guard caches at most this many shells, one for each session script.
_MAX_SHELLS: Final = 32
# The maximum total length of the scripts of all cached shells. A shell takes about four times as
# much memory as its scripts. The guard always caches the newest shell.
_MAX_CACHED_CHARACTERS: Final = 8 * 1024 * 1024
# The maximum number of chunks that the guard follows. A chunk usually takes less than a
# tenth of a second.
_MAX_CHUNKS: Final = 32

# Bash sets these variables when it starts, even if the environment has other values.
_INITIAL: Final = {"IFS": " \t\n"}
# Matches a script that gives a value to a variable. Does not match namerefs, empty arrays, and
# exported variables, whose values are in the environment.
_SETS_VARIABLE: Final = re.compile(
    r"(?:unset -v \w+; |\{ )?(?:declare -[^\snx]+ )?([A-Za-z_]\w*)=(?!\(\)\s)"
)

# The parts and the script of a state.
_Scripts: TypeAlias = tuple[tuple[str, ...], str]


class _Cached(NamedTuple):
    """A shell whose state was set up by scripts, and the length of these scripts."""

    shell: Evaluation
    characters: int


def load() -> None:
    """Import the parser early, so that the first judgement does not wait for it."""
    parse.load()


def judge(
    command: str,
    start: StartState,
    policy: Policy = DEFAULT_POLICY,
    *,
    traces: bool = False,
) -> Verdict:
    """Return the verdict on a command. Raises only if memory or another resource runs short."""
    return _judge(command, start, Budget(policy=policy, traces=traces))


def judge_at_once(
    command: str,
    start: StartState,
    policy: Policy = DEFAULT_POLICY,
    *,
    traces: bool = False,
) -> Verdict | None:
    """Return the verdict on a command, or None if judging takes more than a few milliseconds.

    If the result is None, call `judge`.
    """
    unprepared = 0 if is_prepared(start) else len(start.script) + sum(map(len, start.parts))
    if len(command) + len(start.stdin or "") + unprepared > MAX_CHARACTERS_AT_ONCE:
        return None
    budget = Budget(policy=policy, traces=traces, steps=MAX_STEPS_AT_ONCE, gives_up=True)
    try:
        return _judge(command, start, budget)
    except Exhausted:
        return None


def _judge(command: str, start: StartState, budget: Budget) -> Verdict:
    if budget.policy.allows(command):
        return Verdict("allow", reason="a rule of the operator allows it")
    try:
        shell = _prepared(start.parts, start.script).copy(budget)
        variables = {**start.env, **_INITIAL}
        # Bash sets PWD to its working directory, even if its environment has another PWD.
        variables.pop("PWD", None)
        variables.update(shell.variables)
        # The value of `_` before the first command of a bash is unknown.
        variables.pop("_", None)
        shell.variables = variables
        # Bash exports OLDPWD when `cd` sets it.
        exported = (*start.env, "OLDPWD", *map(function_entry, start.functions))
        shell.exported = shell.exported.union(exported)
        shell.cwd = normalized(cleaned(start.cwd), "/")
        shell.home = start.env.get("HOME", start.home)
        for name in start.expanded:
            shell.expanded_value(name)
        stdin = UNKNOWN if start.stdin is None else cleaned(start.stdin)
        shell.follow(cleaned(command), stdin)
    except Blocked as blocked:
        finding, reason = blocked.finding, blocked.finding.reason
        if finding.suggests_allowing and len(command) <= MAX_SEGMENT:
            reason = f"{reason}; --guard-rules with the line {_allowing(command)} allows it"
        return Verdict("block", finding.rule, blocked.segment, reason, budget.trace)
    except Exhausted:
        raise
    except RecursionError:
        return Verdict("unresolved", reason="it is nested too deeply to be followed")
    except Exception as error:
        if faults.shortage(error) is not None:
            # The guard has not judged the command, so the command must not run.
            raise
        # A bug in the guard does not mean that the command is dangerous, so the verdict is not
        # "block".
        faults.report("the guard")
        return Verdict("unresolved", reason="it cannot be followed")
    if budget.unresolved is not None:
        return Verdict("unresolved", reason=budget.unresolved, trace=budget.trace)
    return Verdict("allow", trace=budget.trace)


def _allowing(command: str) -> str:
    """Return the line of a policy file (TOML) that allows this command and no other."""
    pattern = re.sub(r"[*?[]", r"[\g<0>]", command.strip())
    return f"allow = [{json.dumps(pattern, ensure_ascii=False)}]"


def is_prepared(start: StartState) -> bool:
    """Return whether `start` has no scripts, or `_prepared` has cached their result."""
    return not (start.parts or start.script) or (start.parts, start.script) in _shells


def _prepared(parts: tuple[str, ...], script: str) -> Evaluation:
    """Return a shell whose state was set up by the scripts of a session. The result is cached."""
    known = _shells.get((parts, script))
    if known is not None:
        return known.shell
    shell = Evaluation(_preparing_budget(), {}, "/", None)
    for text in (*_chunks(parts), script):
        if text:
            shell = shell.copy(_preparing_budget())
            shell.run_script(cleaned(text), "")
    _forget_values(shell, parts)
    _cache((parts, script), shell)
    return shell


def _cache(key: _Scripts, shell: Evaluation) -> None:
    characters = len(key[1]) + sum(map(len, key[0]))
    total = characters + sum(each.characters for each in list(_shells.values()))
    # Copy the keys first, because another thread may change the cache at any time.
    for oldest in list(_shells):
        if len(_shells) < _MAX_SHELLS and total <= _MAX_CACHED_CHARACTERS:
            break
        removed = _shells.pop(oldest, None)
        total -= removed.characters if removed is not None else 0
    _shells[key] = _Cached(shell, characters)


def _forget_values(shell: Evaluation, parts: tuple[str, ...]) -> None:
    """If the guard has not followed a part, mark the variables that the part sets as unknown.

    Otherwise, they would count as unset, and ``rm -rf "$x"/*`` would mean ``rm -rf /*``.
    """
    found = {match[1] for part in parts if (match := _SETS_VARIABLE.match(part)) is not None}
    # The variable `name[key]` stands for a member of an associative array.
    known = {name.partition("[")[0] for name in shell.variables}
    shell.variables.update(dict.fromkeys(found - known - shell.arrays.keys(), UNKNOWN))


def _preparing_budget() -> Budget:
    return Budget(policy=DEFAULT_POLICY, traces=False, reports=False)


def _chunks(parts: Iterable[str]) -> Iterator[str]:
    """Join scripts into chunks, each short enough for one budget.

    Leave out the parts after `_MAX_CHUNKS` chunks.
    """
    chunk: list[str] = []
    size = count = 0
    for part in parts:
        is_full = size + len(part) > CHUNK_CHARACTERS or len(chunk) == CHUNK_PARTS
        if chunk and is_full:
            yield "".join(chunk)
            count += 1
            chunk, size = [], 0
        if count == _MAX_CHUNKS:
            return
        chunk.append(part)
        size += len(part)
    yield "".join(chunk)


_shells: dict[_Scripts, _Cached] = {}
