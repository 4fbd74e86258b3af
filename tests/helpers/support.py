"""A real daemon as a child process, driven byte by byte, and helpers that wait for events.

No helper sleeps for a fixed time. Each helper polls for the expected event, with a deadline.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader

DAEMON_COMMAND = [sys.executable, "-W", "error", "-m", "shelld"]
# Only a test that fails takes this long. A busy machine may take long for a simple step.
DEADLINE_S = 60.0

# This program starts a daemon with changed constants, for tests that must not depend on the
# machine's load.
_ALTERED_DAEMON = """
import importlib, json, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, constant = name.rpartition(".")
    module = importlib.import_module(module)
    getattr(module, constant)
    setattr(module, constant, value)
from shelld.__main__ import main
sys.exit(main())
"""

Json = dict[str, Any]
T = TypeVar("T")


def altered_daemon(constants: Mapping[str, float | str]) -> list[str]:
    """Return the command line of a daemon with changed constants. Each key is the name of a
    constant with its module.
    """
    return [sys.executable, "-W", "error", "-c", _ALTERED_DAEMON, json.dumps(constants)]


# This daemon has practically unlimited time for its stop, so it always answers and kills
# everything.
PATIENT_DAEMON = altered_daemon(
    {
        "shelld.app.DRAIN_S": 60,
        "shelld.app.STOP_KILL_S": 60,
        "shelld.app.STOP_S": 60,
        "shelld.app.THREADS_S": 60,
    }
)


# When this daemon stops, each command has practically unlimited time to end after its SIGTERM.
GENTLE_DAEMON = altered_daemon(
    {"shelld.app.STOP_GRACE_MS": 60_000, "shelld.app.STOP_KILL_S": 60, "shelld.app.STOP_S": 60}
)


class SupportsFileno(Protocol):
    def fileno(self) -> int: ...


def is_readable(source: int | SupportsFileno) -> bool:
    """Wait until a descriptor can be read. Unlike select(2), this function takes any descriptor
    number.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(DEADLINE_S * 1_000))


def wait_for(condition: Callable[[], T], what: str = "the condition") -> T:
    """Poll until `condition` is true, and return its value; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {DEADLINE_S:.0f} s")
        select.select([], [], [], 0.005)
    return value


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@contextlib.contextmanager
def stopped(pid: int) -> Generator[None]:
    """Stop a process while the `with` block runs, as if the machine were suspended."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    """Return the pids of the children of `pid`."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of `pid`, in no order."""
    return [below for child in children(pid) for below in (child, *descendants(child))]


def running_below(pid: int, word: str) -> list[int]:
    """Return the descendants of `pid` whose command line contains `word`."""
    found: list[int] = []
    for below in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if word.encode() in Path(f"/proc/{below}/cmdline").read_bytes():
                found.append(below)
    return found


def spares_of(daemon: RawDaemon) -> list[int]:
    """Return the pids of the spare shells."""
    return running_below(daemon.pid, f"# shelld {daemon.pid}.")


def started_at(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Mark:
    """A file that shows whether a command was in time.

    The command has a timeout, and touches the file when it has done what the test needs. On a busy
    machine, the timeout may pass before that. The test then tries again. If the file exists, the
    command was in time, and the daemon's answer must show this.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "mark"
        self.touch = f"touch {self._path}"

    def attempts(self) -> Iterator[int]:
        """Yield a number for each attempt, until the file exists at the end of an attempt."""
        for number in range(20):
            yield number
            if self._path.exists():
                return
        raise AssertionError("the command was never in time")

    def in_time(self, attempt: Callable[[], T]) -> T:
        """Return the result of the first attempt in which the command was in time."""
        return [attempt() for _ in self.attempts()][-1]


class Gate:
    """A gate for a command. The command runs `wait`, and goes on once the test calls `open`.

    Use a gate only once, because one `open` could let two successive `wait`s through.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.wait = f"read < {path}"

    def open(self) -> None:
        self._path.write_text("\n")


def _members(message: Json | list[Json]) -> list[Json]:
    return message if isinstance(message, list) else [message]


class RawDaemon:
    """This client speaks the wire protocol without the client library, and collects answers as they
    come.
    """

    def __init__(
        self,
        *args: str,
        prefix: Sequence[str] = (),
        command: Sequence[str] = DAEMON_COMMAND,
        stdin: int | None = None,
        stdout: int | None = None,
        **popen: Any,
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, *command, *args],
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            bufsize=0,
            **popen,
        )
        self._frames = FrameReader()
        self._ids = itertools.count(1)
        self._unclaimed: list[Any] = []
        self.stderr = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    # -- writing ----------------------------------------------------------------------------

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def send(self, message: Any) -> None:
        self.send_raw(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: Any = None, request_id: Any = None) -> Any:
        """Send a request and return its id."""
        request_id = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        return request_id

    def request_together(self, *requests: tuple[str, Any]) -> list[int]:
        """Send requests in one write, so that the daemon reads them together. Return their ids."""
        ids = [next(self._ids) for _ in requests]
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in zip(ids, requests, strict=True)
        ]
        self.send_raw("".join(f"{line}\n" for line in lines).encode())
        return ids

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    # -- reading ----------------------------------------------------------------------------

    def read_bytes(self, seconds: float = DEADLINE_S) -> bytes:
        """Return the next bytes of stdout, or b"" at its end."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert ready, f"no answer in {seconds:.0f} s"
        return os.read(self.process.stdout.fileno(), 1 << 20)

    def receive(self, seconds: float = DEADLINE_S) -> Any:
        """Return the next message, whatever its id."""
        if self._unclaimed:
            return self._unclaimed.pop(0)
        return self._receive_new(seconds)

    def _receive_new(self, seconds: float = DEADLINE_S) -> Any:
        while (event := self._frames.next_event()) is NEED_DATA:
            data = self.read_bytes(seconds)
            assert data, f"stdout ended; stderr: {self.read_stderr()!r}"
            self._frames.receive_data(data)
        assert not isinstance(event, FrameError)
        return json.loads(event)

    def answers_to_the_end(self) -> Iterator[Json]:
        """Yield all answers that are still to come. Yield the members of a batch one by one."""
        unclaimed, self._unclaimed = self._unclaimed, []
        for message in unclaimed:
            yield from _members(message)
        while True:
            event = self._frames.next_event()
            if event is NEED_DATA:
                data = self.read_bytes()
                if not data:
                    return
                self._frames.receive_data(data)
            else:
                assert isinstance(event, bytes)
                yield from _members(json.loads(event))

    def answer(self, request_id: Any) -> Json:
        """Return the answer to one request; keep the others for later."""
        for position, message in enumerate(self._unclaimed):
            if isinstance(message, dict) and cast("Json", message).get("id") == request_id:
                return cast("Json", self._unclaimed.pop(position))
        while True:
            message = self._receive_new()
            if isinstance(message, dict) and cast("Json", message).get("id") == request_id:
                return cast("Json", message)
            self._unclaimed.append(message)

    def call(self, method: str, params: Any = None) -> Any:
        """Return the result of a request that must succeed."""
        answer = self.answer(self.request(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    def fail(self, method: str, params: Any = None) -> Json:
        """Return the error of a request that must fail."""
        answer = self.answer(self.request(method, params))
        assert "result" not in answer, answer
        return cast("Json", answer["error"])

    def wait_for_spare(self) -> int:
        """Return the pid of the spare shell that the next command uses, if there is a single
        session.
        """
        waiting: list[int] = []

        def one_waits() -> bool:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                waiting[:] = sorted(spares_of(self), key=started_at)
            return bool(waiting)

        wait_for(one_waits, "a bash that waits")
        # If commands follow each other rapidly, the session has two spare shells, and takes the
        # older one first.
        return waiting[0]

    @property
    def unclaimed(self) -> list[Any]:
        """The messages that the test has received but never asked for."""
        return list(self._unclaimed)

    def forget_answers(self) -> None:
        """Drop the answers that the test has received but never asked for."""
        self._unclaimed.clear()

    def bash(self, command: str, **params: Any) -> Json:
        return cast("Json", self.call("bash", {"command": command, **params}))

    def background(self, command: str, **params: Any) -> str:
        """Start a command in the background and return its id."""
        result = self.bash(command, run_in_background=True, **params)
        return cast("str", result["bash_id"])

    def rest(self) -> bytes:
        """Return everything until stdout ends."""
        data = b""
        while chunk := self.read_bytes():
            data += chunk
        return data

    def read_stderr(self) -> bytes:
        assert self.process.stderr is not None
        while select.select([self.process.stderr], [], [], 0)[0]:
            data = os.read(self.process.stderr.fileno(), 65536)
            if not data:
                break
            self.stderr += data
        return self.stderr

    # -- ending -----------------------------------------------------------------------------

    def wait(self, seconds: float = DEADLINE_S) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        """End the daemon, by any means, and all that it started."""
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.read_stderr()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def raw_daemon(*args: str, stderr_is_silent: bool = True, **options: Any) -> Generator[RawDaemon]:
    """Run a daemon while the `with` block runs.

    If `stderr_is_silent`, the daemon must not write to stderr.
    """
    daemon = RawDaemon(*args, **options)
    try:
        yield daemon
    except BaseException as error:
        status = daemon.process.poll()
        error.add_note(f"exit status of the daemon: {status}; stderr: {daemon.read_stderr()!r}")
        raise
    finally:
        daemon.close()
    if stderr_is_silent:
        assert daemon.stderr == b"", daemon.stderr.decode()


def ids_of(messages: Sequence[Json]) -> list[Any]:
    return [message["id"] for message in messages]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in `count` threads at once; raise what any of them raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
