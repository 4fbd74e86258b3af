"""Find the points where shelld can be made to fail, and cause the faults one at a time.

A first run records which lines of shelld's code run and where system calls are made. Every later
run arms one of these points, runs the whole workload, and then checks the promises: each request
was answered once, the daemon answers further requests, and no process and no descriptor is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fault_injection.asking import MARK, Asker, ViolationError
from fault_injection.clients import Clients
from fault_injection.inject import COLLECT, FAILURES, SIZE, Control
from fault_injection.scenes import SCENES, Scene
from lasting_daemon import LastingDaemon
from leaks import descriptors_beyond, descriptors_of
from shelld.app import STDOUT_FAILED
from support import descendants, is_alive, running_below, spares_of, wait_for

FOLDER = Path(__file__).parents[2] / "daemon" / "shelld"

# These lines cannot raise. Most of them only branch, assign or compare values, or change a
# collection. A line that closes a descriptor also counts, because close(2) never fails for the
# kinds of descriptors that we use.
_VALUE = r"(?:not )?(?:-?[\w.]+|b?f?\"[^\"{]*\")"
_TEST = rf"{_VALUE}(?: is (?:not )?\w+| [<>]=? -?\d+)?"
_SAFE_LINE = re.compile(
    rf"(?:try|else|finally|while True):|pass|break|continue|return(?: {_VALUE})?|raise\b.*"
    rf"|[\w.]+(?:: [^=]+| = [\w.]+)? = {_VALUE}|{_VALUE},?|[\w]+={_VALUE},?"
    rf"|(?:if|while|elif) {_TEST}(?: (?:and|or) {_TEST})*:|for \w+ in \({_VALUE}, {_VALUE}\):"
    rf"|[\w.]+\.(?:append|add)\({_VALUE}\)|[\w.]+\.pop\({_VALUE}, None\)"
    rf"|os\.close\((?:{_VALUE}|[\w.]+\.pop\(\))\)"
    # Python reaches the line of `with` again when it leaves the block, but runs none of our code at
    # that moment.
    r"|(?:async )?with .*"
    r"|\W*|(?:async )?def .*|class .*|@.*|except.*|\"\"\".*|nonlocal .*|global .*"
)

# These are the exit codes of a daemon whose client is gone, and of a daemon that cannot write its
# answers.
ENDS_OF_STREAMS = (0, STDOUT_FAILED)


class Point(NamedTuple):
    """When the line `line` of `file` runs for the `time`-th time, `call` fails with `errno`. If
    `call` is None, the line raises an exception. `scene` and `step` are the names of the scene and
    the step that reach this line.
    """

    scene: str
    step: str
    role: str
    file: str
    line: int
    call: str | None
    errno: int
    time: int

    def __str__(self) -> str:
        what = "raises" if self.call is None else f"{self.call} {os.strerror(self.errno)}"
        where = f"{self.scene}.{self.step}: {self.role} {self.file}:{self.line}"
        return f"{where} {what} (time {self.time})"


class Faulty:
    """A daemon with an injector in it. If `record` names a file, the injector writes points to that
    file and injects nothing.
    """

    def __init__(
        self, folder: Path, scene: Scene, step: str = "", record: Path | None = None
    ) -> None:
        self.scene = scene
        self.step = step
        self._folder = folder
        path = folder / "control"
        path.write_bytes(b"\0" * 8 + b"null\0" + b"\0" * (SIZE - 13))
        self.control = Control(str(path))
        environment = {
            **os.environ,
            "SHELLD_FAULTS_CONTROL": str(path),
            "SHELLD_FAULTS_FOLDER": str(FOLDER),
        }
        if record is not None:
            environment["SHELLD_FAULTS_RECORD"] = str(record)
        self.daemon = scene.start(folder, environment)
        # Make the daemon load the tools and the guard, and create the objects that it keeps for
        # later.
        self.run(step)
        self.run_shortly()
        wait_for(lambda: not spares_of(self.daemon), "the end of the spare shells")
        # The thread that watches for locked pipes opens its files soon after the first command.
        wait_for(lambda: "syscall" in descriptors_of(self.daemon.pid))
        self.baseline = descriptors_of(self.daemon.pid)

    def run(self, step: str = "") -> list[str]:
        """Take one step of the scene, or all steps. Return the failures that the fault excuses."""
        asker = self.scene.asker(self.daemon, self._folder)
        asker.run(*filter(None, [step]))
        return asker.excused

    def run_shortly(self) -> None:
        """Run a short workload. All of its requests must succeed."""
        if isinstance(self.daemon, LastingDaemon):
            Clients(self.daemon).come(steal=True)
        Asker(self.daemon).run_shortly()

    def close(self) -> None:
        self.daemon.close()

    def check(self) -> None:
        """Check the promises after a fault. Raise `ViolationError` if one is broken."""
        self.control.arm(None)
        if excused := self.run(self.step):
            raise ViolationError(f"a failure after the fault: {excused}")
        self.run_shortly()
        self.daemon.process.send_signal(COLLECT)
        left: list[Any] = []

        def is_clean() -> bool:
            pid = self.daemon.pid
            left[:] = [running_below(pid, f"sleep\0{MARK}"), descriptors_beyond(pid, self.baseline)]
            return not any(left)

        try:
            wait_for(is_clean, "a clean daemon")
        except AssertionError:
            raise ViolationError(f"left: processes {left[0]}, descriptors {left[1]}") from None


# A place is a line, or a call in a line. Its members are a role, a file, a line, and the name of
# the call. If the place is a line, this name is "".
Place = tuple[str, str, int, str]


def record_points(folder: Path, scenes: Iterable[str] = ()) -> list[Point]:
    """Return the points that the scenes reach. For each place, one point is the first time that the
    place runs, and another point is a later time.

    A point belongs to the first step that reaches its place. Without `scenes`, run all scenes.
    """
    points: list[Point] = []
    known: set[Place] = set()
    for name in scenes or SCENES:
        own = folder / name
        own.mkdir(exist_ok=True)
        points += _points_of(SCENES[name], own, known)
    return points


def _points_of(scene: Scene, folder: Path, known: set[Place]) -> Iterator[Point]:
    """Yield the points of a scene that are not in `known`, and add them to `known`."""
    record = folder / "record"
    # The record also contains lines that run only while the daemon starts. No fault can be injected
    # in these lines.
    faulty = Faulty(folder, scene, record=record)
    versions: dict[int, str] = {}
    for step in scene.steps:
        faulty.control.arm(None)
        versions[faulty.control.version] = step
        for _ in range(2):
            faulty.run(step)
    faulty.control.arm(None)
    faulty.close()
    counts = _counts(record)
    assert versions.keys() <= {version for version, _ in counts}, "a step reached no code"
    chosen = random.Random(0)
    for (version, place), count in sorted(counts.items()):
        times = sorted({1, chosen.randint(1, max(1, count // 2))})
        if version not in versions or place in known:
            continue
        known.add(place)
        role, file, line, call = place
        at = (scene.name, versions[version], role, file, line)
        for time in times:
            if call:
                for number in FAILURES[call]:
                    yield Point(*at, call, number, time)
            elif not _is_safe(file, line):
                yield Point(*at, None, 0, time)


def _counts(record: Path) -> dict[tuple[int, Place], int]:
    counts: dict[tuple[int, Place], int] = {}
    for text in record.read_text().splitlines():
        version, role, file, line, call, count = json.loads(text)
        key = (version, (role, file, line, call))
        counts[key] = max(count, counts.get(key, 0))
    return counts


_sources: dict[str, list[str]] = {}


def _is_safe(file: str, line: int) -> bool:
    if file not in _sources:
        _sources[file] = (FOLDER / file).read_text().splitlines()
    text = re.sub(r"\s*# .*", "", _sources[file][line - 1].strip())
    return _SAFE_LINE.fullmatch(text) is not None


class Outcome(NamedTuple):
    """What happened at one point: whether the code reached it, and which promise was broken."""

    point: Point
    fired: bool
    violation: str | None


def try_points(points: Iterable[Point], folder: Path, per_daemon: int = 40) -> Iterator[Outcome]:
    """Cause the faults at `points`, one after the other. If a fault has harmed the daemon, the next
    point gets a new daemon.
    """
    faulty: Faulty | None = None
    tried = 0
    try:
        for point in points:
            # Start a new daemon for each fault in a keeper or a runner, because a keeper lives as
            # long as its daemon.
            if faulty is not None and (
                tried >= per_daemon
                or point.role in ("keeper", "runner")
                or (point.scene, point.step) != (faulty.scene.name, faulty.step)
            ):
                _end(faulty)
                faulty = None
            if faulty is None:
                faulty, tried = Faulty(folder, SCENES[point.scene], point.step), 0
            tried += 1
            outcome = _try(faulty, point)
            yield outcome
            if outcome.violation is not None or faulty.daemon.process.poll() is not None:
                _destroy(faulty)
                faulty = None
    finally:
        if faulty is not None:
            _destroy(faulty)


def try_in_threads(points: Sequence[Point], folder: Path, jobs: int) -> Iterator[Outcome]:
    """Cause the faults at `points` in `jobs` threads. The threads do not share daemons. The order
    of the outcomes is arbitrary.
    """
    outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()

    def work(number: int) -> None:
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        try:
            for outcome in try_points(points[number::jobs], own):
                outcomes.put(outcome)
        finally:
            outcomes.put(None)

    with ThreadPoolExecutor(jobs) as threads:
        running = [threads.submit(work, number) for number in range(jobs)]
        for _ in running:
            yield from iter(outcomes.get, None)
        for each in running:
            each.result()


def _try(faulty: Faulty, point: Point) -> Outcome:
    faulty.control.arm(point._asdict())
    try:
        faulty.run(point.step)
        fired = bool(faulty.control.fired)
        if fired:
            if point.role == "runner":
                # The fault may be about to end this runner. If a command got this runner now, the
                # command could not start.
                wait_for(lambda: not _runs(faulty.control.hit), "a runner that sleeps or has ended")
            faulty.check()
    except (AssertionError, OSError) as error:
        if point.file == "server/stdio.py" and _has_stopped_in_order(faulty):
            return Outcome(point, True, None)
        return Outcome(point, True, f"{type(error).__name__}: {error}")
    return Outcome(point, fired, None)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] in ("R", "D")


def _has_stopped_in_order(faulty: Faulty) -> bool:
    """Return whether the daemon has ended as it should after a protocol stream breaks."""
    try:
        return faulty.daemon.wait(5) in ENDS_OF_STREAMS
    except subprocess.TimeoutExpired:
        return False


def _end(faulty: Faulty) -> None:
    faulty.control.arm(None)
    faulty.close()


def _destroy(faulty: Faulty) -> None:
    family = descendants(faulty.daemon.pid)
    faulty.daemon.process.kill()
    faulty.close()
    for pid in family:
        if is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
