"""Make many calls of all kinds and check for leaks.

The tests make a short run, and `make soak` makes a long one. Commands end, fail, hang, hide, write
much output and are killed, in sessions that come and go. The client also reads output, cancels
requests, sends nonsense, and sometimes stops reading for a moment. It kills descendants of the
daemon. Every request gets exactly one answer. The run samples the daemon's memory, descriptors,
threads, processes and files again and again. They must not grow.

Usage: python -m soak [--calls N] [--seed N], with tests/helpers on the path, as in `make soak`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from shelld.eventloop.memory import GIVE_BACK_S
from support import Json, RawDaemon, children, descendants, is_alive, spares_of, wait_for

# The kills from outside cause warnings, so log only errors.
OPTIONS = ["--grace", "50", "--max-retained", "200", "--log-level", "error"]
IN_FLIGHT = 24
SESSIONS: list[str | None] = ["main", "a", "b", "c", "d", None]
# The daemon grows until it retains the maximum number of shells.
WARM_UP_CALLS = 5_000
MAX_GROWTH_MB = 5.0
# The daemon holds this many descriptors per spare shell. A spare shell may or may not exist at the
# moment of a sample.
SPARE_DESCRIPTORS = 12

# Nothing here may cause these errors: JSON-RPC's internal error and `shutting_down`.
UNEXPECTED = {-32603, 1006}

COMMANDS = [
    *("true", "echo $RANDOM", "exit 3", "nope", "cd /tmp", "x=$RANDOM; export Y=$x", "f() { :; }"),
    *("head -c 300000 /dev/zero | tr '\\0' x", "printf 'a\\033[31mb\\r\\nc'", "kill -9 $$", "if"),
    *("(setsid sleep 0.2 &)", "sleep 0.01", "unset x Y; unset -f f", "seq 2000; seq 2000 >&2"),
]
LONG_COMMANDS = ["sleep 300", "setsid sleep 300 & sleep 300", "yes", "trap '' TERM; sleep 300"]


class Sample(NamedTuple):
    """The daemon's resources after `calls` calls. Descriptors of spare shells do not count."""

    calls: int
    resident_mb: float
    descriptors: int
    threads: int
    processes: int
    files: int


class Soak:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._directory = tempfile.TemporaryDirectory()
        environment = {**os.environ, "TMPDIR": self._directory.name}
        self.daemon = RawDaemon(*OPTIONS, env=environment)
        self._next_id = 0
        self._waiting: dict[int, threading.Event] = {}
        self._room = threading.Semaphore(IN_FLIGHT)
        self._shells: list[str] = []
        self.answers = 0
        self.problems: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # -- the client -------------------------------------------------------------------------

    def _read(self) -> None:
        choose = random.Random(0)
        while True:
            try:
                message = self.daemon.receive(120)
            except (AssertionError, OSError, ValueError):
                return
            self._note(message)
            if choose.random() < 0.001:
                # While the client reads nothing, answers pile up and commands continue.
                time.sleep(0.2)

    def _note(self, message: Json) -> None:
        done = self._waiting.pop(message["id"], None)
        if done is None:
            self.problems.append(f"an answer to nothing: {str(message)[:300]}")
            return
        self.answers += 1
        if message.get("error", {}).get("code") in UNEXPECTED:
            self.problems.append(str(message)[:300])
        bash_id = message.get("result", {}).get("bash_id")
        if bash_id is not None:
            self._shells = [*self._shells[-50:], bash_id]
        done.set()
        self._room.release()

    def request(self, method: str, **params: Any) -> int:
        """Wait until fewer than `IN_FLIGHT` requests are unanswered. Then send a request; return
        its id.
        """
        self._room.acquire()
        self._next_id += 1
        self._waiting[self._next_id] = threading.Event()
        self.daemon.request(method, params, self._next_id)
        return self._next_id

    # -- actions ----------------------------------------------------------------------------

    def step(self) -> None:
        (action,) = self._random.choices(list(ACTIONS), list(ACTIONS.values()))
        action(self)

    def run(self) -> None:
        command, session = self._random.choice(COMMANDS), self._random.choice(SESSIONS)
        self.request("bash", command=command, session=session)

    def run_in_background(self) -> None:
        command = self._random.choice(COMMANDS + LONG_COMMANDS)
        self.request("bash", command=command, run_in_background=True, session="main")

    def cancel(self) -> None:
        request_id = self.request("bash", command=self._random.choice(LONG_COMMANDS))
        if self._random.random() < 0.5:
            time.sleep(self._random.random() / 100)
        self.daemon.notify("$/cancelRequest", {"id": request_id})

    def time_out(self) -> None:
        self.request("bash", command=self._random.choice(LONG_COMMANDS), timeout=1000)

    def bash_output(self) -> None:
        more: Json = self._random.choice(
            [{}, {"filter": "1"}, {"stdout_offset": 5}, {"wait": 5}, {"max_bytes": 10}]
        )
        self.request("bash_output", bash_id=self._some_shell(), **more)

    def kill(self) -> None:
        self.request("kill_shell", shell_id=self._some_shell())

    def _some_shell(self) -> str:
        return self._random.choice(self._shells) if self._shells else "shell_none"

    def close_session(self) -> None:
        self.request("close_session", session=self._random.choice(["a", "b", "c", "d", "main"]))

    def look(self) -> None:
        method = self._random.choice(
            ["list_shells", "list_sessions", "get_session", "server_info", "ping", "list_tools"]
        )
        self.request(method)

    def use_a_tool(self) -> None:
        arguments = {"command": self._random.choice(COMMANDS)}
        if self._random.random() < 0.5:
            self.request("call_tool", name="Bash", arguments=arguments)
            return
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        self.request("tools/call", name="Bash", arguments=arguments, _meta=meta)

    def talk_nonsense(self) -> None:
        nonsense: list[tuple[str, Json]] = [
            *(("bash", {}), ("nope", {}), ("bash", {"command": 1})),
            ("bash_output", {"bash_id": "x"}),
        ]
        method, params = self._random.choice(nonsense)
        self.request(method, **params)

    def kill_from_outside(self) -> None:
        """Kill a runner, the keeper, or a process of a command."""
        victims = descendants(self.daemon.pid)
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(victims), signal.SIGKILL)

    # -- samples ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for all answers, then end everything that runs."""
        self._wait_for_answers()
        for session in ("main", "a", "b", "c", "d"):
            self.request("close_session", session=session)
        self._wait_for_answers()

    def _wait_for_answers(self) -> None:
        for done in list(self._waiting.values()):
            assert done.wait(60), "a request has no answer"

    def strangers(self) -> set[int]:
        """Return the pids of the daemon's descendants that are neither helpers nor spare shells."""
        helpers = {child for keeper in children(self.daemon.pid) for child in children(keeper)}
        own = {*children(self.daemon.pid), *helpers, *spares_of(self.daemon)}
        return set(descendants(self.daemon.pid)) - own

    def status(self) -> dict[str, str]:
        text = Path(f"/proc/{self.daemon.pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def resident_mb(self) -> float:
        return int(self.status()["VmRSS"].split()[0]) / 1024

    def sample(self, calls: int, *, rest_s: float) -> Sample:
        """Wait for all answers and for the end of killed processes. Then pause for `rest_s`, and
        sample the daemon.
        """
        self.settle()
        pid = self.daemon.pid
        wait_for(lambda: not self.strangers(), "the end of what was killed")
        time.sleep(rest_s)
        return Sample(
            calls,
            self.resident_mb(),
            len(os.listdir(f"/proc/{pid}/fd")) - SPARE_DESCRIPTORS * len(spares_of(self.daemon)),
            int(self.status()["Threads"]),
            len(descendants(pid)),
            len(os.listdir(self._directory.name)),
        )

    @property
    def has_been_answered(self) -> bool:
        return not self._waiting and self.answers == self._next_id

    def close(self) -> None:
        family = children(self.daemon.pid)
        self.daemon.close()
        if self.daemon.stderr:
            self.problems.append(self.daemon.stderr.decode()[-2000:])
        wait_for(lambda: not any(map(is_alive, family)), "the end of the daemon's helpers")
        self._reader.join(10)
        self._directory.cleanup()


ACTIONS: dict[Callable[[Soak], None], float] = {
    Soak.run: 56,
    Soak.run_in_background: 8,
    Soak.cancel: 6,
    Soak.time_out: 0.2,
    Soak.bash_output: 12,
    Soak.kill: 6,
    Soak.close_session: 1,
    Soak.look: 3,
    Soak.use_a_tool: 5,
    Soak.talk_nonsense: 2.7,
    Soak.kill_from_outside: 0.1,
}


def run(
    calls: int, seed: int, *, every: int, say: Callable[[str], None], rest_s: float = 0.0
) -> list[Sample]:
    """Make `calls` calls; return one sample per `every` calls. Raise AssertionError on a problem.

    `rest_s` is how long the daemon rests before the first and the last sample.
    """
    soak = Soak(seed)
    samples: list[Sample] = []
    try:
        for number in range(1, calls + 1):
            soak.step()
            if number % every == 0 or number == calls:
                is_compared = number in (every, calls)
                samples.append(soak.sample(number, rest_s=rest_s if is_compared else 0.0))
                say("  ".join(f"{key}={value:g}" for key, value in samples[-1]._asdict().items()))
    finally:
        soak.close()
    assert not soak.problems, soak.problems[:3]
    assert soak.has_been_answered
    return samples


def check_growth(samples: list[Sample]) -> None:
    """Check that the last sample does not exceed the first, which was taken after the warm-up."""
    settled, last = samples[0], samples[-1]
    assert last.resident_mb <= settled.resident_mb + MAX_GROWTH_MB, (settled, last)
    # A spare shell that is just starting or ending may have only half of its descriptors open.
    assert last.descriptors <= settled.descriptors + 8 + SPARE_DESCRIPTORS, (settled, last)
    assert last.threads <= settled.threads + 2, (settled, last)
    assert last.files <= settled.files, (settled, last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    samples = run(
        options.calls,
        options.seed,
        every=WARM_UP_CALLS,
        rest_s=GIVE_BACK_S + 1,
        say=lambda line: print(line, flush=True),  # noqa: T201
    )
    seconds = time.monotonic() - began
    check_growth(samples)
    sys.stdout.write(f"{options.calls} calls in {seconds:.0f} s, each answered once\n")


if __name__ == "__main__":
    main()
