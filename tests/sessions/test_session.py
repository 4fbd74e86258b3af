"""The parts of a command's dump that a session keeps, even if the command tampers with the dump."""

from __future__ import annotations

import _thread
import contextlib
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.process import faults
from shelld.sessions import session as module
from shelld.sessions.declarations import _declaration_on  # pyright: ignore[reportPrivateUsage]
from shelld.sessions.dump import dump_program
from shelld.sessions.dump_parser import (
    _settings,  # pyright: ignore[reportPrivateUsage]
    parse_dump,
)
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.functions import entry_name
from shelld.sessions.mounts import Mounts
from shelld.sessions.recorder import Recorder
from shelld.sessions.session import (
    MAX_DUMP_BYTES,
    LeftState,
    Session,
    ShortDumpBasis,
)
from shelld.sessions.state import OptionNames, ShellState
from shelld_protocol.structs import Unkept

BASE = ShellState(b"/", {b"PATH": b"/usr/bin:/bin"}, inherits_cwd=True)
DUMPED = subprocess.run(
    [b"bash", b"-c", b"x=1 y=$'\\n'; f() { :; }; alias a=b; cd /usr\n" + dump_program(b".")],
    env={b"PATH": b"/usr/bin:/bin"},
    capture_output=True,
    check=False,
).stdout

MOUNTS = Mounts()
# Open the mount list outside the tests, because it stays open.
MOUNTS.may_hang(b"/")


def new_session(base: ShellState) -> Session:
    return Session("main", base, DumpFiles(), MOUNTS)


def functions_dump(count: int) -> bytes:
    """Return a dump like `DUMPED`, with `count` more functions."""
    parts = DUMPED.split(b"\0")
    names = [b"g%d" % number for number in range(count)]
    parts[4] += b"".join(b"declare -f %s\n" % name for name in names)
    parts[5] += b"".join(b"%s () \n{ \n    echo hi\n}\n" % name for name in names)
    return b"\0".join(parts)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Return a real dump with a few changes."""
    dump = bytearray(DUMPED)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(dump)))
        end = draw(st.integers(start, min(len(dump), start + 200)))
        dump[start:end] = draw(
            st.binary(max_size=8) | st.sampled_from([b"\0", b"\n", b'"', b"\r", b"declare -f \n"])
        )
    return bytes(dump)


@given(st.binary(max_size=400) | mutated())
def test_arbitrary_dump_never_makes_session_raise(dump: bytes) -> None:
    session = new_session(BASE)
    reason = session.keep(LeftState(dump))
    assert reason in (None, Unkept.MISSING, Unkept.INCOMPLETE, Unkept.UNREADABLE)
    before = BASE
    if reason is None:
        # The next command starts from the state that the session claims to keep.
        before = parse_dump(dump) or pytest.fail("it was said to be readable")
    assert session.state.variables == before.variables
    assert session.resolve(None).startswith("/")


@given(mutated() | st.lists(st.binary(max_size=30), min_size=10).map(b"\0".join))
def test_cache_changes_no_state(dump: bytes) -> None:
    parsed = parse_dump(dump)
    for cached in (_declaration_on, _settings):
        cached.cache_clear()
    assert parse_dump(dump) == parsed


@given(st.binary(max_size=100))
def test_text_before_the_dump_is_ignored(printed: bytes) -> None:
    assert parse_dump(printed + DUMPED) == parse_dump(DUMPED)


@pytest.mark.parametrize("cwd", [b"", b".", b"/", b"//", b"gone", b"/nowhere/at/all"])
def test_every_state_leads_to_a_directory(cwd: bytes) -> None:
    session = new_session(ShellState(cwd, {}, inherits_cwd=True))
    assert session.resolve(None) == cwd.decode()
    session = new_session(BASE)
    session._state = ShellState(cwd, {})  # pyright: ignore[reportPrivateUsage]
    assert session.resolve(None) in ("/", "//", "", ".")


def test_dump_without_directory_keeps_session_directory() -> None:
    session = new_session(BASE)
    assert session.keep(LeftState(DUMPED.replace(b"/usr\n.\0\0", b"\0\0"))) is None
    assert session.state.cwd == b"/"
    assert b"x=" in session.state.variables


def seconds_to_parse(dump: bytes) -> float:
    """Return the lowest processor time of three runs, in seconds."""
    times: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        assert parse_dump(dump) is not None
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.slow
def test_parsing_time_is_linear_in_functions() -> None:
    few, many = functions_dump(5_000), functions_dump(40_000)
    assert len((parse_dump(many) or BASE).names) == 40_002
    # `many` has eight times as many functions as `few`. If the search were quadratic, it would take
    # 64 times as long.
    assert seconds_to_parse(many) < 24 * seconds_to_parse(few)


async def test_a_long_dump_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[int] = []

    def parse(dump: bytes, known: OptionNames) -> ShellState | None:
        readers.append(threading.get_ident())
        return parse_dump(dump, known)

    monkeypatch.setattr(module, "parse_dump", parse)
    session = new_session(BASE)
    dump = functions_dump(40_000)
    left = session.keep(LeftState(dump))
    assert isinstance(left, LeftState)
    settled: list[bool] = []
    assert session.when_settled(lambda: settled.append(True))
    # Until a thread has parsed the dump, the session keeps its old state.
    assert session.state is BASE
    assert await session.settle(left) is None
    assert b"g39999" in session.state.names
    assert readers
    assert threading.get_ident() not in readers
    assert settled == [True]
    assert not session.when_settled(lambda: None)


async def test_a_long_dump_is_read_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_args: object) -> None:
        raise RuntimeError(faults.NO_THREAD)

    monkeypatch.setattr(_thread, "start_new_thread", no_thread)
    session = new_session(BASE)
    left = session.keep(LeftState(functions_dump(5_000)))
    assert isinstance(left, LeftState)
    assert await session.settle(left) is None
    assert b"g4999" in session.state.names


async def test_unreadable_long_dump_is_not_kept() -> None:
    session = new_session(BASE)
    left = session.keep(LeftState(functions_dump(5_000).replace(b"declare -- x", b"declare x")))
    assert isinstance(left, LeftState)
    assert await session.settle(left) == Unkept.UNREADABLE
    assert session.state is BASE


@pytest.mark.parametrize("count", [1, 5_000])
async def test_function_that_cannot_be_read_loses_no_other_state(count: int) -> None:
    parts = functions_dump(count).split(b"\0")
    parts[6] += b"g0\n"
    session = new_session(BASE)
    result = session.keep(LeftState(b"\0".join(parts)))
    if isinstance(result, LeftState):
        result = await session.settle(result)
    assert result == Unkept.FUNCTIONS
    assert session.state.cwd == b"/usr"
    names = {b"f", *(b"g%d" % number for number in range(1, count))}
    assert session.state.function_names == names
    assert session.state.functions.keys() == {entry_name(name) for name in names}


async def test_later_command_wins_over_long_dump() -> None:
    session = new_session(BASE)
    left = session.keep(LeftState(functions_dump(5_000)))
    assert isinstance(left, LeftState)
    assert session.keep(LeftState(DUMPED)) is None
    assert await session.settle(left) is None
    assert session.state.names == {b"f", b"a"}


def test_failed_parsing_keeps_the_previous_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> ShellState | None:
        raise MemoryError

    session = new_session(BASE)
    monkeypatch.setattr(module, "parse_dump", fail)
    with pytest.raises(MemoryError):
        session.keep(LeftState(DUMPED))
    assert session.state is BASE
    monkeypatch.undo()
    assert session.keep(LeftState(DUMPED)) is None
    assert session.state.cwd == b"/usr"


@pytest.mark.parametrize(
    ("written", "has_exited", "reason"),
    [
        (DUMPED, True, None),
        (None, True, Unkept.MISSING),
        (DUMPED[:-1], True, Unkept.INCOMPLETE),
        (DUMPED.replace(b"declare -- x", b"declare x"), True, Unkept.UNREADABLE),
        (DUMPED.ljust(MAX_DUMP_BYTES + 1), True, Unkept.TOO_LARGE),
        (DUMPED, False, Unkept.SIGNAL),
    ],
)
def test_recorder_says_why_state_is_not_kept(
    written: bytes | None, has_exited: bool, reason: str | None
) -> None:
    session = new_session(BASE)
    recorder = Recorder(session, None, None)
    try:
        if written is not None:
            Path(recorder.path).write_bytes(written + recorder.mark)
        recorder.keep(has_exited=has_exited)
        assert recorder.reason == reason
        assert (session.state is BASE) == (reason is not None)
    finally:
        recorder.close()
        session.dump_files.close()


def test_a_closed_recorder_keeps_nothing() -> None:
    session = new_session(BASE)
    recorder = Recorder(session, None, None)
    recorder.close()
    session.dump_files.close()
    recorder.keep(has_exited=True)
    assert recorder.reason == Unkept.UNAVAILABLE


def test_a_late_write_reaches_no_other_file(tmp_path: Path) -> None:
    session = new_session(BASE)
    first = Recorder(session, None, None)
    path = Path(first.path)
    first.close()
    with contextlib.ExitStack() as stack:
        files = [tmp_path / str(number) for number in range(50)]
        for file in files:
            stack.enter_context(file.open("w")).write("untouched")
        path.write_bytes(DUMPED + first.mark)
    assert {file.read_text() for file in files} == {"untouched"}
    session.dump_files.close()


SHORT_DUMP = b'\0declare -- x="1"\n\0/usr\n\0'


@pytest.mark.parametrize(
    ("dump", "basis"),
    [(DUMPED, None), (SHORT_DUMP, ShortDumpBasis(BASE, frozenset({b"x"})))],
    ids=["whole", "short"],
)
def test_recorder_keeps_no_state_of_another_command(
    dump: bytes, basis: ShortDumpBasis | None
) -> None:
    session = new_session(BASE)
    first = Recorder(session, None, None)
    path = Path(first.path)
    first.close()
    path.write_bytes(dump + first.mark)
    second = Recorder(session, None, None)
    # The second recorder uses the same file, and has emptied it.
    assert (second.path, path.read_bytes()) == (str(path), b"")
    second.basis = basis
    for mark, reason, cwd in ((first.mark, Unkept.INCOMPLETE, "/"), (second.mark, None, "/usr")):
        path.write_bytes(dump + mark)
        second.keep(has_exited=True)
        assert (second.reason, session.cwd) == (reason, cwd)
    second.close()
    session.dump_files.close()


def test_concurrent_commands_have_different_files() -> None:
    session = new_session(BASE)
    recorders = [Recorder(session, None, None) for _ in range(3)]
    assert len({recorder.path for recorder in recorders}) == 3
    session.dump_files.close()
    for recorder in recorders:
        recorder.close()
