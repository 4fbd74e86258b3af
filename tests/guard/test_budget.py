"""The guard judges a command on the event loop, up to a limit of steps and of parse time.

If a command exceeds this limit, a thread judges it.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from guard_lines import ALLOWED_LINES, BLOCKED_LINES, ENV, HERE
from shelld.guard import StartState, judgement, parse, units
from shelld.guard.budget import CHARACTERS_PER_STEP, Budget, Exhausted
from shelld.guard.ends import Ends
from shelld.guard.evaluation import Evaluation
from shelld.guard.judgement import is_prepared, judge, judge_at_once
from shelld.guard.policy import DEFAULT_POLICY
from shelld.guard.verdict import Verdict
from shelld.methods.guard import verdict_on
from shelld.process import faults
from shelld_protocol.shell_methods import BashParams

# Judging each of these commands takes much longer than its length suggests.
SLOW = {
    "doubling": "x=aaaaaaaaaa; " + "x=$x$x; " * 20 + "rm -rf /$x",
    "many at once": "x=aaaaaaaaaa; " + "x=$x$x; " * 12 + "echo " + "$x" * 1_000,
    "loops": "for i in {1..64}; do for j in {1..64}; do echo $i$j; done; done",
    "functions": "f() { ls $1; }; " + "f a; " * 700,
    "substitutions": "echo " + "$(echo a)" * 400,
    "trimming": "x=" + "a" * 1_500 + "; " + "y=${x%%b*c}; " * 150,
    "pipes": "echo " + "a" * 2_000 + " | sed s/a/b/g" * 100,
    "evals": "eval " * 800 + "ls",
}
# The limit is several times as long as a judgement takes on an idle machine.
MAX_PROCESSOR_SECONDS = 0.1


def context(
    script: bytes = b"", cwd: str = "/work", functions: dict[bytes, bytes] | None = None
) -> Any:
    """Return a request context with the parts that the guard reads."""
    state = SimpleNamespace(
        names=frozenset[bytes](),
        functions={},
        private=(),
        declarations={},
        other_meanings=script,
        cwd=cwd.encode(),
    )
    environment = {name.encode(): value.encode() for name, value in ENV.items()}
    environment |= functions or {}

    def environment_with(_changes: object) -> dict[bytes, bytes]:
        return environment

    def state_of_call(_changes: object) -> Any:
        return state

    session = SimpleNamespace(
        cwd=cwd, state=state, state_of_call=state_of_call, environment=environment_with
    )

    def peek(_name: object) -> Any:
        return session

    manager = SimpleNamespace(sessions=SimpleNamespace(peek=peek))
    return SimpleNamespace(daemon=SimpleNamespace(manager=manager, policy=DEFAULT_POLICY))


def verdict_of(command: str, **circumstances: Any) -> Verdict:
    return anyio.run(verdict_on, context(**circumstances), BashParams(command))


@pytest.fixture
def judging_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the threads that call `judge`.

    The event loop calls `judge_at_once` instead, which gives up after a few milliseconds.
    """
    threads: list[int] = []

    def judged(*args: Any, **options: Any) -> Verdict:
        threads.append(threading.get_ident())
        return judge(*args, **options)

    monkeypatch.setattr(judgement, "judge", judged)
    return threads


@pytest.mark.parametrize("name", SLOW)
def test_slow_command_takes_little_of_event_loop(name: str) -> None:
    async def spent() -> float:
        await verdict_on(context(), BashParams("cat <(ls)"))
        began = time.thread_time()
        await verdict_on(context(), BashParams(SLOW[name]))
        return time.thread_time() - began

    assert len(SLOW[name]) < judgement.MAX_CHARACTERS_AT_ONCE
    assert anyio.run(spent) < MAX_PROCESSOR_SECONDS


@pytest.mark.parametrize("name", [name for name in SLOW if name != "doubling"])
def test_slow_command_is_judged_in_thread(name: str, judging_threads: list[int]) -> None:
    assert verdict_of(SLOW[name]) == judge(SLOW[name], HERE)
    assert judging_threads
    assert threading.get_ident() not in judging_threads


def test_long_command_is_judged_in_thread(judging_threads: list[int]) -> None:
    assert verdict_of("echo '" + "x" * judgement.MAX_CHARACTERS_AT_ONCE + "'").verdict == "allow"
    assert len(judging_threads) == 1
    assert threading.get_ident() not in judging_threads


def test_ordinary_commands_are_judged_at_once(judging_threads: list[int]) -> None:
    for line in [*ALLOWED_LINES, *(line for _, line in BLOCKED_LINES)]:
        assert judge_at_once(line, HERE) == judge(line, HERE)
    assert verdict_of("cat <(rm -rf /)").verdict == "block"
    assert judging_threads == []


def test_long_session_script_is_followed_once(judging_threads: list[int]) -> None:
    script = "".join(f"declare -- v{number}=value\n" for number in range(400))
    assert not is_prepared(StartState("/", ENV, script))
    for _ in range(2):
        assert verdict_of('echo "$v1"', script=script.encode()).verdict == "allow"
    assert is_prepared(StartState("/", ENV, script))
    assert len(judging_threads) == 1


def test_scripts_of_many_sessions_are_not_all_kept() -> None:
    for number in range(100):
        judge("ls", StartState("/", ENV, f"x={number}"))
    assert is_prepared(StartState("/", ENV, "x=99"))
    assert not is_prepared(StartState("/", ENV, "x=0"))


def test_large_states_of_many_sessions_are_not_all_kept() -> None:
    def state(number: int) -> StartState:
        parts = (f"x={number}\n", *(f"y='{'z' * 50_000}'\n" for _ in range(20)))
        return StartState("/", ENV, parts=parts)

    for number in range(10):
        judge("ls", state(number))
    assert not is_prepared(state(0))
    assert is_prepared(state(9))
    huge = StartState("/", ENV, parts=("x=" + "y" * 10_000_000,))
    judge("ls", huge)
    assert is_prepared(huge)
    assert not is_prepared(state(9))


def test_all_parts_of_a_large_state_are_followed() -> None:
    long = f"LONG={'x' * 100_000}\n"
    functions = (f"f{number}() {{ echo {'y' * 100}; }}\n" for number in range(3_000))
    parts = ("T=/\n", long, "g() { rm -rf $T; }\n", *functions, "U=/\n")
    for command in ("rm -rf $T", "rm -rf $U", "g", "h"):
        start = StartState("/work", ENV, "h() { g; }\n", parts=parts)
        assert judge(command, start).verdict == "block"
    assert judge("rm -rf $V", start).verdict != "block"


def test_many_short_variables_are_followed() -> None:
    parts = (*(f"a{number}=\n" for number in range(3_000)), "T=/\n", "U=/tmp/u\n")
    start = StartState("/work", ENV, parts=parts)
    assert judge("rm -rf $T/*", start).verdict == "block"
    assert judge("rm -rf $U/*", start).verdict == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "T=%s",
        "declare -r T=%s",
        "declare -- T=%s; declare -i T",
        "unset -v T; T=%s",
        "{ T=%s; } 2>/dev/null",
        "declare -a T=([0]=%s)",
        "declare -A T=([k]=%s)",
    ],
)
def test_variable_that_cannot_be_followed_is_unknown(line: str) -> None:
    long = line % ("'" + "y" * 100_000 + "'") + "\n"
    others = tuple("x=" + "y" * 10_000 + "\n" for _ in range(200))
    for parts in ((long,), (*others, line % "/tmp" + "\n")):
        verdict = judge("rm -rf $T/*", StartState("/work", ENV, parts=parts)).verdict
        assert verdict == "unresolved"


def test_empty_array_of_large_state_is_unset() -> None:
    parts = (*("x=" + "y" * 10_000 + "\n" for _ in range(200)), "declare -a T=()\n")
    assert judge("rm -rf $T/*", StartState("/work", ENV, parts=parts)).verdict == "block"


def test_state_beyond_the_limit_is_left_out() -> None:
    parts = (*("x=" + "y" * 10_000 + "\n" for _ in range(200)), "rm() { :; }\n")
    start = StartState("/work", ENV, "T=/\n", parts=parts)
    assert judge("rm -rf $T", start).verdict == "block"


def test_name_in_dev_is_judged_as_a_disk() -> None:
    assert verdict_of("cp /tmp/a sda", cwd="/dev").verdict == "block"
    assert verdict_of("cp /tmp/a sda", cwd="/work").verdict == "allow"
    params = BashParams("curl -o sda x.org", cwd="../dev")
    assert anyio.run(verdict_on, context(), params).verdict == "block"


def test_no_path_is_built_for_usual_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    normpath = os.path.normpath

    def counted(path: str) -> str:
        built.append(path)
        return normpath(path)

    monkeypatch.setattr(os.path, "normpath", counted)
    for cwd in (None, "src", "/work/src"):
        assert anyio.run(verdict_on, context(), BashParams("true", cwd=cwd)).verdict == "allow"
    assert built == []


@pytest.mark.parametrize(
    ("session", "cwd"),
    [
        ("/work", "/dev"),
        ("/work", "../dev/"),
        ("/dev", "."),
        ("/dev/shm", ".."),
        ("/", "de/../dev"),
    ],
)
def test_disk_directory_detected_in_any_spelling(session: str, cwd: str) -> None:
    params = BashParams("cp /tmp/a sda", cwd=cwd)
    assert anyio.run(verdict_on, context(cwd=session), params).verdict == "block"


def test_requests_run_while_many_functions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    turns_at_checks: list[int] = []
    is_function = parse.is_function

    def noted(name: str, value: str, seconds: float) -> bool:
        turns_at_checks.append(turns)
        return is_function(name, value, seconds)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async def judge_in_company() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count_turns)
            await verdict_on(context(functions=functions), BashParams("cat <(ls)"))
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(parse, "is_function", noted)
    body = b"() { " + b"echo; " * 500 + b"}"
    functions = {b"BASH_FUNC_f%d%%%%" % number: body for number in range(20)}
    anyio.run(judge_in_company)
    assert len(turns_at_checks) == len(functions)
    assert len(set(turns_at_checks)) > len(functions) // 2


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "")])
def test_shortage_is_raised_instead_of_verdict(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Evaluation, "run_script", fail)
    with pytest.raises(type(error)):
        anyio.run(verdict_on, context(), BashParams("sudo true"))


def test_failure_of_guard_is_unresolved_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(Evaluation, "run_script", fail)
    before = faults.count()
    assert judge("sudo true", HERE).verdict == "unresolved"
    assert faults.count() == before + 1


def test_budget_counts_steps_and_characters() -> None:
    budget = Budget(policy=DEFAULT_POLICY, traces=False, steps=10, gives_up=True)
    for _ in range(5):
        assert budget.take()
    budget.spend(4 * CHARACTERS_PER_STEP)
    with pytest.raises(Exhausted):
        budget.take()
    budget = Budget(policy=DEFAULT_POLICY, traces=False, steps=2)
    assert budget.take()
    assert not budget.take()


@pytest.mark.parametrize("noise", [")" * 10_000, "$[" * 10_000, "case x in " * 3_000])
def test_script_that_parses_slowly_is_still_judged(noise: str) -> None:
    began = time.thread_time()
    verdict = judge(f"rm -rf /\n{noise}", HERE)
    assert time.thread_time() - began < 1
    # Bash runs the first line before it finds the error in the second line.
    assert verdict.verdict == "block"
    assert judge(f"ls\n{noise}", HERE).verdict != "block"


def test_parser_forgets_abandoned_text() -> None:
    with pytest.raises(parse.TooSlow):
        parse.parse(")" * 40_000, 0.01)
    assert not parse.parse("ls\n" * 400).has_error
    assert not parse.parse("ls").has_error


def test_script_that_parses_slowly_goes_to_a_thread() -> None:
    assert judge_at_once(")" * 4_000, HERE) is None


@pytest.mark.parametrize("length", [60_000, 100_000, 1_000_000])
def test_long_rest_of_command_hides_no_danger(length: int) -> None:
    for rest in ("# " + "x" * length, "echo " + "x " * length, f"cat <<'E'\n{'x y' * length}\nE"):
        assert judge(f"rm -rf /\n{rest}", HERE).verdict == "block"
    assert judge(f"cat > f <<'E'\n{'x y' * length}\nE\nrm -rf /", HERE).verdict == "block"


@pytest.mark.parametrize(
    "word",
    [
        "{a," * 500 + "x" + "}" * 500,
        "{a,{b," * 300 + "c" + "}" * 600,
        *("{" * 2_000, "{" * 1_000 + "}" * 1_000, "{a,b}" * 8 + "x" * 1_000),
    ],
)
def test_braces_are_scanned_only_once(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    positions: list[int] = []
    of_unit = Ends.of_unit

    def counted(ends: Ends, position: int) -> int:
        positions.append(position)
        return of_unit(ends, position)

    monkeypatch.setattr(Ends, "of_unit", counted)
    with suppress(units.TooLarge):
        units.expand_braces(word)
    assert len(positions) <= len(word)


def test_expanded_braces_are_counted() -> None:
    spent: list[int] = []
    units.expand_braces("{a,b}" * 8 + "x" * 100, spent.append)
    assert sum(spent) > 256 * 100
    with pytest.raises(units.TooLarge):
        units.expand_braces("{a,b}" * 10 + "x" * 1_000, spent.append)


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf / {1..2000}", "rm -rf / " + "{a,b}" * 11, "rm -rf / {1.." + "9" * 5_000 + "}"),
        *("rm -rf / " + "{a," * 100 + "b" + "}" * 100, "x=$(seq 900); rm -rf x$x$x$x /"),
    ],
)
def test_word_of_too_many_fields_hides_no_danger(command: str) -> None:
    assert judge(command, HERE).verdict == "block"


@pytest.mark.parametrize(
    "command",
    [
        "sed 's/" + r"\.x" * 1_000 + "/y/' f",
        "echo a | sed 's/" + r"\.x" * 1_000 + "/y z/q' | sh",
        "echo a | sed 's/a/" + r"\.x" * 1_000 + "!' | sh",
        "sed 's" + "\\" * 20_000 + "x' f",
        "echo a | sed 's" + "\\" * 20_000 + "x' | sh",
        "sed 's/a/b/" + "e" * 20_000 + "!' f",
    ],
)
def test_substitution_of_sed_is_read_in_linear_time(command: str) -> None:
    began = time.thread_time()
    judge(command, HERE)
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    "command",
    [
        r"sed 's/a\/b/rm -rf \//e' f",
        r"sed '1s|\\|rm -rf /|ge' f",
        r"echo 'r/ -rf a' | sed 's|\/|m|; s|a|/|' | sh",
        "sed 's/a\nb/rm -rf \\//e' f",
    ],
)
def test_escapes_in_substitution_of_sed_are_followed(command: str) -> None:
    assert judge(command, HERE).verdict == "block"
    harmless = command.replace("rm -rf", "ls -la").replace("r/ -rf a", "m/ -rf b")
    assert judge(harmless, HERE).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "true && : " + ">x " * 15_000,
        ": " + "{a}>x " * 9_000,
        "python3 -c '" + "os.system(" * 1_500 + "'",
        "echo " + "@(" * 5_000 + ")" * 5_000,
    ],
    ids=["redirections", "descriptors", "nested calls", "extended globs"],
)
def test_long_repetition_is_bounded(command: str) -> None:
    began = time.thread_time()
    judge(command, HERE)
    assert time.thread_time() - began < 2
