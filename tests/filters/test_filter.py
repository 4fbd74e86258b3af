"""Filters: the lines that match, the patterns that are refused, and searches that delay no other
task.
"""

from __future__ import annotations

import base64
import errno
import os
import random
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio.lowlevel import current_token
from hypothesis import given
from hypothesis import strategies as st

from shelld.eventloop.threadsafe import call_threadsafe
from shelld.filters import filter as filter_module
from shelld.filters import process
from shelld.filters.filter import MAX_PATTERN_CHARACTERS, Filters
from shelld.filters.linear import LinearPattern, split_lines
from shelld.keeper.pool import RunnerPool
from shelld_protocol.errors import ErrorKind, RpcError
from support import DEADLINE_S, running_below, wait_for

# Each case has a pattern, a text, and the lines that match with either engine.
CASES = [
    ("b", "abc\nxyz\nb", "abc\nb"),
    ("^b", "abc\nbcd\n", "bcd\n"),
    ("c$", "abc\nabcd\nabc\r\n", "abc\nabc\r\n"),
    ("", "a\n\nb\n", "a\n\nb\n"),
    ("^$", "a\n\nb\n", "\n"),
    ("^$", "a\n", ""),
    ("$", "a\nb", "a\nb"),
    ("x*", "a\n\nb", "a\n\nb"),
    ("x", "a\u2028x\nb\u0085\n", "a\u2028x\n"),
    ("(?i:ERROR)|warn", "error\nWarn\nwarn\n", "error\nwarn\n"),
    ("(?i)ERROR", "an error\nnone\n", "an error\n"),
    ("a.c", "abc", "abc"),
    ("a.c", "a\nc\n", ""),
    ("(?s)a.c", "a\nc\nabc\n", "abc\n"),
    (r"a\sc", "a\nc\na c\n", "a c\n"),
    (r"a[^x]c", "a\nc\naxc\nabc\n", "abc\n"),
    (r"^\w+$", "one\ntwo three\nfour\r\n", "one\nfour\r\n"),
    (r"\bx\b", "ax\nx\nxa\n", "x\n"),
    ("ä|€", "a\nä\n€€\n", "ä\n€€\n"),
    ("^6", "\r60%\n16%\n", "\r60%\n"),
    ("b|(x)", "b\n\n\nx\nb\n", "b\nx\nb\n"),
    ("a\x00b", "a\x00b\n", "a\x00b\n"),
]
# Each of these two lists has patterns that only one of the two engines supports.
RE2_CASES = [
    (r"\p{Greek}", "α\nb\n", "α\n"),
    (r"\Aa", "a\nba\n", "a\n"),
    (r"b\z", "b\nba\nb\r\n", "b\nb\r\n"),
    (r"(?-m:^a)", "x\na\n", "a\n"),
    (r"(?m-s:^a.c)", "x\na\nc\nabc\n", "abc\n"),
    (r"\Qa.c\E", "abc\na.c\n", "a.c\n"),
]
RE_CASES = [
    (r"(?<!x)err", "xerr\nerr\n", "err\n"),
    (r"(?=.*b)a", "ab\na\nba\n", "ab\n"),
    (r"^(\w)\1$", "aa\nab\nbb\r\n", "aa\nbb\r\n"),
    (r"(?!)|^$", "a\n\nb\n", "\n"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def filters() -> AsyncIterator[Filters]:
    pool = RunnerPool()
    yield Filters(pool)
    pool.close()


async def matching(filters: Filters, pattern: str, text: str) -> tuple[str, str]:
    async with filters.open(pattern) as line_filter:
        assert line_filter is not None
        return await line_filter.lines(text), line_filter.engine


@pytest.mark.parametrize(("pattern", "text", "expected"), [*CASES, *RE2_CASES])
async def test_only_matching_lines_are_returned(
    filters: Filters, pattern: str, text: str, expected: str
) -> None:
    assert await matching(filters, pattern, text) == (expected, "re2")
    # Repeat the text until it is long enough to be searched in a thread.
    many = 5000
    separate = "" if text.endswith("\n") else "\n"
    assert await matching(filters, pattern, (text + separate) * many) == (
        (expected + ("\n" if expected and not expected.endswith("\n") else "")) * many,
        "re2",
    )


@pytest.mark.slow
async def test_the_backtracking_engine_returns_the_same_lines(filters: Filters) -> None:
    # One test runs all cases, so that they share a keeper. Each case still has its own helper
    # process.
    for pattern, text, expected in [*CASES, *RE_CASES]:
        flags = re.match(r"\(\?[a-z]+\)", pattern)
        start = flags.end() if flags else 0
        needy = f"{pattern[:start]}(?:{pattern[start:]})(?!(?!))"
        assert await matching(filters, needy, text) == (expected, "re"), (pattern, text)


lines = st.lists(st.text("ab\r ", max_size=5), max_size=30).map("\n".join)


@given(
    lines,
    st.sampled_from(["a", "^$", "b$", "^a*$", "a|$", r"\b", r"a\s*b", "[^a]", "^(a|b)+ ?", "$^"]),
)
def test_lines_are_matched_one_by_one(text: str, pattern: str) -> None:
    linear = filter_module._compile(pattern)  # pyright: ignore[reportPrivateUsage]
    assert linear is not None
    expected = [line for line in split_lines(text) if linear.matching_lines(line)]
    assert linear.matching_lines(text) == "".join(expected)


def test_lines_end_at_newlines_alone() -> None:
    assert split_lines("a\r\nb\x0bc\u2028d\n\ne") == ["a\r\n", "b\x0bc\u2028d\n", "\n", "e"]
    assert split_lines("") == []
    assert split_lines("\n") == ["\n"]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(a", "\\", "*", "(?P<a>", "(?<=a*)b", "a{2,1}"])
async def test_invalid_pattern_is_refused(filters: Filters, pattern: str) -> None:
    with pytest.raises(RpcError, match=r"^Invalid filter regex: ."):
        await matching(filters, pattern, "x")


async def test_an_over_long_pattern_is_refused(filters: Filters) -> None:
    with pytest.raises(RpcError, match="Invalid filter regex: longer than 10000 characters"):
        await matching(filters, "a" * (MAX_PATTERN_CHARACTERS + 1), "x")


@pytest.mark.parametrize("pattern", ["\ud800", "a+\ud800", "(?=a)\udcff"], ids=ascii)
async def test_a_lone_surrogate_is_refused(filters: Filters, pattern: str) -> None:
    with pytest.raises(RpcError, match="Invalid filter regex: it has lone surrogates"):
        await matching(filters, pattern, "x")


CATASTROPHIC = ["(a+)+$", "(a|aa)+$", "(x+x+)+y", r"^(\w+\s?)*$", "(.*)*="]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
async def test_no_pattern_takes_more_than_linear_time(filters: Filters, pattern: str) -> None:
    # A backtracking engine would take longer than the age of the universe.
    _, engine = await matching(filters, pattern, ("a" * 5000 + "!\n") * 20 + "x" * 5000)
    assert engine == "re2"


async def runs_beside(work: Awaitable[object]) -> bool:
    """Return whether other tasks run before `work` ends."""
    ended = others_ran = False

    async def look() -> None:
        nonlocal others_ran
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        others_ran = not ended

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await work
        ended = True
    return others_ran


async def test_exploding_pattern_is_stopped_and_delays_nobody(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIME_BUDGET_S", 0.5)
    async with filters.open("(a+)+(?!a)$") as line_filter:
        assert line_filter is not None
        lines = line_filter.lines

        async def explode() -> None:
            with pytest.raises(RpcError, match="Invalid filter regex: takes more than"):
                await lines("a" * 50 + "!\n")

        assert await runs_beside(explode())
    wait_for(lambda: not helpers(), "the end of the process")


def helpers() -> list[int]:
    """Return the pids of the processes that run the backtracking engine."""
    return running_below(os.getpid(), "filters/main.py")


async def test_time_budget_is_shared_by_all_searches(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIME_BUDGET_S", 0.4)
    # Each search takes some hundredths of a second.
    text = "a" * 18 + "!\n"
    async with filters.open("^(a+)+(?!a)$") as line_filter:
        assert line_filter is not None
        with pytest.raises(RpcError, match="takes more than"):
            for _ in range(1000):
                assert await line_filter.lines(text) == ""


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


# One event loop is enough, because the limits apply to another process.
@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_renewing_extends_the_time_budget(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIME_BUDGET_S", 0)
    text = "a" * 18 + "!\n"
    async with filters.open("^(a+)+(?!a)$") as line_filter:
        assert line_filter is not None
        monkeypatch.setattr(process, "TIME_BUDGET_S", 60)
        (pid,) = helpers()
        # The filter began without a time budget, and with a limit of two seconds of processor time.
        while processor_seconds(pid) < 2.5:
            line_filter.renew()
            assert await line_filter.lines(text) == ""


@pytest.mark.parametrize("pattern", [r"(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}(?=b)", "(?=a)" * 3000])
async def test_large_compiled_pattern_leaves_next_filter_working(
    filters: Filters, pattern: str
) -> None:
    try:
        await matching(filters, pattern, "aab\n")
    except RpcError as error:
        assert str(error).startswith("Invalid filter regex: ")
    # The next filter works, whether this filter was refused or not.
    assert await matching(filters, "a(?=b)", "ab\nb\n") == ("ab\n", "re")
    wait_for(lambda: not helpers(), "the end of the processes")


async def test_killed_filter_process_is_answered_with_error(filters: Filters) -> None:
    async with filters.open("(?=a)") as line_filter:
        assert line_filter is not None
        (pid,) = helpers()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RpcError, match="Invalid filter regex: takes too much"):
            await line_filter.lines("a\n")


async def test_cancelled_filter_leaves_no_process(filters: Filters) -> None:
    with anyio.move_on_after(0.3) as scope:
        await matching(filters, "(a+)+(?!a)$", "a" * 50 + "!\n")
    assert scope.cancelled_caught
    wait_for(lambda: not helpers(), "the end of the process")


async def test_number_of_backtracking_filters_is_limited(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_module, "MAX_PROCESSES", 1)
    async with filters.open("(?=a)"):
        with pytest.raises(RpcError) as caught:
            await matching(filters, "(?=a)", "a")
        assert caught.value.kind is ErrorKind.RESOURCE_EXHAUSTED
        assert await matching(filters, "a+", "a") == ("a", "re2")
    assert await matching(filters, "(?=a)", "a") == ("a", "re")


async def test_large_text_survives_the_backtracking_engine(filters: Filters) -> None:
    text = "".join(f"line {number} ä\n" for number in range(300_000))
    found, engine = await matching(filters, r"7(?= ä)", text)
    assert engine == "re"
    assert found.count("\n") == 30_000


async def test_missing_filter_process_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_pool: RunnerPool) -> None:
        raise BlockingIOError

    monkeypatch.setattr(RunnerPool, "acquire", refuse)
    with pytest.raises(RpcError) as caught:
        await matching(Filters(RunnerPool()), "(?=a)", "a")
    assert caught.value.kind is ErrorKind.RESOURCE_EXHAUSTED


async def test_filter_without_descriptors_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pool: RunnerPool) -> None:
        raise OSError(errno.EMFILE, "")

    monkeypatch.setattr(RunnerPool, "acquire", refuse)
    with pytest.raises(RpcError) as caught:
        await matching(Filters(RunnerPool()), "(?=a)", "a")
    assert caught.value.data["limit"] == "files"


async def test_early_end_of_filter_program_is_resource_exhausted(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PROGRAM", os.devnull)
    with pytest.raises(RpcError) as caught:
        await matching(filters, "(?=a)", "a")
    assert caught.value.kind is ErrorKind.RESOURCE_EXHAUSTED


MEGABYTES = "a" * 8_000_000 + "\n"


@pytest.mark.parametrize("pattern", [r"z\d", "(?=z)z"])
async def test_a_line_of_megabytes_delays_nobody(
    filters: Filters, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIME_BUDGET_S", 60.0)
    async with filters.open(pattern) as line_filter:
        assert line_filter is not None
        with anyio.fail_after(DEADLINE_S):
            # On a busy machine, a search may end before any other task runs.
            while not await runs_beside(line_filter.lines(MEGABYTES)):
                pass


# RE2 needs half a minute or more for this pattern in this line.
NOISE = base64.b64encode(random.Random(0).randbytes(4_000_000)).decode()
COSTLY = "(?:[a-q]?){900}[^u-z]{13}~"


async def test_costly_search_of_long_line_is_stopped(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TIME_BUDGET_S", 0.5)
    with pytest.raises(RpcError, match="Invalid filter regex: takes more than"):
        await matching(filters, COSTLY, NOISE)
    wait_for(lambda: not helpers(), "the end of the process")


@pytest.mark.slow
async def test_a_large_pattern_finds_a_long_line(filters: Filters) -> None:
    words = "|".join(f"needle{number}[0-9]" for number in range(50))
    found = "a" * 8_000_000 + "needle377\n"
    assert await matching(filters, words, "few\n" + found + MEGABYTES) == (found, "re2")
    # The helper process compiles this pattern, because the compiled pattern exceeds the limit for
    # the daemon's own process.
    assert await matching(filters, r"\pL{200}\d", f"ä\n{'ä' * 200}1\n") == (
        "ä" * 200 + "1\n",
        "re2",
    )


@pytest.mark.slow
async def test_large_pattern_is_compiled_off_the_event_loop(filters: Filters) -> None:
    began = time.thread_time()
    for number in range(900, 908):
        with pytest.raises(RpcError, match="Invalid filter regex"):
            await matching(filters, rf"(?:\pL?){{{number}}}x", "x")
    assert time.thread_time() - began < 0.2


async def test_cancelled_search_is_stopped(
    filters: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end, ended = anyio.Event(), threading.Event(), threading.Event()

    loop = current_token()

    def search(_pattern: LinearPattern, _text: str) -> str:
        call_threadsafe(loop, has_begun.set)
        may_end.wait(DEADLINE_S)
        ended.set()
        return ""

    monkeypatch.setattr(LinearPattern, "matching_lines", search)

    async def give_up(scope: anyio.CancelScope) -> None:
        await has_begun.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        may_end.set()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(give_up, scope)
            await matching(filters, "a+", MEGABYTES)
        # The cancelled call has waited for the end of its search. If searches went on after their
        # calls, any number of searches could run at once.
        assert ended.is_set()


async def test_search_for_a_word_takes_little_processor_time(filters: Filters) -> None:
    # The search runs on the event loop's thread, where other requests wait for it.
    began = time.thread_time()
    assert await matching(filters, "plain", MEGABYTES) == ("", "re2")
    assert time.thread_time() - began < 1
