"""A search finds the same line, however the output arrives."""

from __future__ import annotations

import re
from collections.abc import Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from shelld.filters.filter import Filters
from shelld.keeper.pool import RunnerPool
from shelld.output import escapes
from shelld.output.retention import ShellOutput, StreamName
from shelld.output.text import STEP_BYTES
from shelld.shells.shell import Shell
from shelld.waits import matches
from shelld.waits.matches import Search
from shelld_protocol.structs import FilterEngine, Matched

FOREVER = float("inf")


def a_shell(retain_bytes: int = 1 << 24) -> Shell:
    shell = Shell("shell_a", output=ShellOutput(retain_bytes))
    shell.started()
    return shell


def write(shell: Shell, data: bytes, stream: str = "stdout") -> None:
    getattr(shell, stream).store.append(data)
    shell.notify()


def end(shell: Shell) -> None:
    shell.end(0, None)
    shell.become_empty()


async def found(
    shell: Shell,
    pattern: str,
    give_up_at: float = FOREVER,
    *,
    strip: bool = True,
    starts: tuple[int, int] = (0, 0),
) -> Matched | None:
    async with Filters(RunnerPool()).open(pattern, "pattern") as line_filter:
        assert line_filter is not None
        places: dict[StreamName, int] = {"stdout": starts[0], "stderr": starts[1]}
        search = Search(shell, line_filter, places, strip=strip)
        with anyio.fail_after(60):
            return await search.wait(give_up_at)


async def settle() -> None:
    """Let the other tasks run until they wait for something. This takes no time."""
    for _ in range(20):
        await checkpoint()


def first_match(data: bytes, pattern: str) -> tuple[str, int, int] | None:
    """Find the expected match with a slow and simple version of the search."""
    start = 0
    for line in data.split(b"\n"):
        if re.search(pattern, line.decode("utf-8", "replace")):
            return line.decode("utf-8", "replace"), start, start + len(line)
        start += len(line) + 1
    return None


LINES = st.lists(st.sampled_from([b"", b"a", b"ab", b"b", b"\xc3\xa9b", b"xx" * 40, b"\xff"]))


@given(LINES, st.booleans(), st.lists(st.integers(1, 90)), st.sampled_from(["b", "^ab$", "x{80}"]))
def test_first_matching_line_is_found_however_it_arrives(
    lines: list[bytes], is_open: bool, sizes: list[int], pattern: str
) -> None:
    data = b"\n".join(lines) + (b"" if is_open else b"\n")

    async def run() -> Matched | None:
        shell, result = a_shell(), list[Matched | None]()

        async def arrive() -> None:
            rest = data
            for size in sizes:
                write(shell, rest[:size])
                rest = rest[size:]
                await checkpoint()
            write(shell, rest)
            end(shell)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(arrive)
            result.append(await found(shell, pattern))
        return result[0]

    with pytest.MonkeyPatch.context() as patch:
        # A part of a line must not count as the line, even if the rest arrives late.
        patch.setattr(matches, "_REST_OF_LINE_S", 3_600.0)
        result = anyio.run(run)
    expected = first_match(data, pattern)
    if expected is None:
        assert result is None
    else:
        assert result == Matched(expected[0], "stdout", expected[1], expected[2])


@pytest.mark.parametrize("size", [1, 2, STEP_BYTES // 2, STEP_BYTES - 1, STEP_BYTES + 1])
async def test_line_is_found_around_the_end_of_a_step(size: int) -> None:
    shell = a_shell()
    before = b"x" * (size - 1) + b"\n"
    write(shell, before * (3 * STEP_BYTES // size) + b"here it is\nmore\n")
    end(shell)
    start = len(before) * (3 * STEP_BYTES // size)
    assert await found(shell, "here") == Matched("here it is", "stdout", start, start + 10)


async def test_search_goes_on_after_a_gap() -> None:
    shell = a_shell(retain_bytes=1 << 20)
    for _ in range(64):
        shell.stdout.store.append(b"line\n" * 20_000)
    write(shell, b"last\n")
    end(shell)
    matched = await found(shell, "last")
    written = shell.stdout.store.written
    assert matched == Matched("last", "stdout", written - 5, written - 1)


async def test_search_begins_at_its_start_offset() -> None:
    shell = a_shell()
    write(shell, b"here\nhere\n")
    write(shell, b"here\n", "stderr")
    end(shell)
    assert await found(shell, "here", starts=(5, 0)) == Matched("here", "stdout", 5, 9)
    assert await found(shell, "here", starts=(10, 0)) == Matched("here", "stderr", 0, 4)
    assert await found(shell, "here", starts=(10, 5)) is None


async def test_overwritten_states_of_a_line_do_not_count() -> None:
    shell = a_shell()
    write(shell, b"10 %\r50 %\rdone\n")
    end(shell)
    assert await found(shell, "50") is None
    assert await found(shell, "done") == Matched("done", "stdout", 0, 14)
    assert await found(shell, "50", strip=False) is not None


async def test_long_line_is_cut_but_its_offsets_are_those_of_the_whole_line() -> None:
    shell = a_shell()
    write(shell, b"x" * 10_000 + b"y\n")
    end(shell)
    matched = await found(shell, "y$")
    assert matched is not None
    assert matched.line == "x" * 4_096 + "... (truncated)"
    assert (matched.start, matched.end) == (0, 10_001)


async def test_rest_of_a_line_gets_time_to_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "_REST_OF_LINE_S", 3_600.0)
    shell = a_shell()
    seen: list[Matched | None] = []

    async def search() -> None:
        seen.append(await found(shell, "Listening"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search)
        await settle()
        write(shell, b"Listening on http://lo")
        await settle()
        assert not seen
        write(shell, b"calhost:80\n")
    [matched] = seen
    assert matched is not None
    assert matched.line == "Listening on http://localhost:80"


async def test_line_that_never_ends_is_found() -> None:
    shell = a_shell()
    write(shell, b"ready> ")

    async def write_on(done: Callable[[], bool]) -> None:
        # The search covers a line that grows all the time, although the line never ends.
        while not done():
            write(shell, b".", "stderr")
            await anyio.sleep(0.01)

    seen: list[Matched | None] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_on, lambda: bool(seen))
        seen.append(await found(shell, "> $"))
    assert seen == [Matched("ready> ", "stdout", 0, 7)]


async def test_deadline_in_the_past_allows_one_search() -> None:
    shell = a_shell()
    write(shell, b"one\ntwo")
    now = anyio.current_time()
    assert await found(shell, "two", now - 1) == Matched("two", "stdout", 4, 7)
    assert await found(shell, "three", now - 1) is None


async def test_cancelled_search_can_be_repeated() -> None:
    shell = a_shell()
    write(shell, b"one\n")
    with anyio.move_on_after(0.05) as scope:
        await found(shell, "two")
    assert scope.cancelled_caught
    write(shell, b"two\n")
    assert await found(shell, "two") is not None


async def test_line_longer_than_a_step_is_whole() -> None:
    shell = a_shell()
    write(shell, b"first\nstart" + b"x" * (2 * STEP_BYTES) + b"end\nlast\n")
    end(shell)
    matched = await found(shell, "^start.*end$")
    assert matched is not None
    assert (matched.start, matched.end) == (6, 6 + 8 + 2 * STEP_BYTES)


@pytest.mark.slow
async def test_match_next_to_a_gap_has_exact_offsets() -> None:
    shell = a_shell(retain_bytes=262_144)
    for number in range(200_000):
        shell.stdout.store.append(b"%09d\n" % number)
    end(shell)
    matched = await found(shell, "^.*[0-9]$", starts=(70_000, 0))
    assert matched is not None
    kept = shell.stdout.store.read(matched.start, matched.end - matched.start)
    assert kept.data[: matched.end - matched.start].decode() == matched.line


async def test_line_end_within_a_control_string_ends_no_line() -> None:
    shell = a_shell()
    write(shell, b"\x1b]0;x\nneedle\x07ok\nneedle real\n")
    end(shell)
    assert await found(shell, "needle") == Matched("needle real", "stdout", 16, 27)
    assert await found(shell, "ok") == Matched("ok", "stdout", 0, 15)


async def test_kept_control_string_is_text_with_line_ends() -> None:
    shell = a_shell()
    write(shell, b"\x1b]0;x\nneedle\x07ok\nneedle real\n")
    end(shell)
    matched = await found(shell, "needle", strip=False)
    assert matched == Matched("needle\x07ok", "stdout", 6, 15)


@pytest.mark.parametrize("unit", [b"\x1b]%s\x07", b"\x1bP%s\x1b\\"])
async def test_control_strings_full_of_line_ends_cost_few_searches(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def open_string(data: bytes, line_end: int) -> int | None:
        searched.append(line_end)
        return escapes.open_string(data, line_end)

    monkeypatch.setattr(matches, "open_string", open_string)
    shell = a_shell()
    hidden = unit % (b"\n" * 60_000) * 20
    write(shell, hidden + b"one\n" + hidden + b"needle\n" + hidden)
    end(shell)
    start = len(hidden) + 4
    expected = Matched("needle", "stdout", start, start + len(hidden) + 6)
    assert await found(shell, "needle") == expected
    assert len(searched) < 1_000


class FeedingFilter:
    """A filter that matches nothing. Each time it searches text, the command writes twice as much
    new text.
    """

    engine: FilterEngine = "re2"

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.asked = 0

    def renew(self) -> None:
        pass

    async def lines(self, text: str) -> str:
        self.asked += 1
        self._shell.stdout.store.append(b"x\n" * len(text))
        return ""


@pytest.mark.parametrize("wait", [-1, 0.05])
async def test_search_ends_although_the_command_writes_faster(wait: float) -> None:
    shell = a_shell()
    feeding = FeedingFilter(shell)
    write(shell, b"line\n" * 10_000)
    search = Search(shell, feeding, {"stdout": 0}, strip=True)
    # Without this limit, a search that never ends would hang the test.
    with anyio.fail_after(60):
        assert await search.wait(anyio.current_time() + wait) is None
    assert feeding.asked > 0
