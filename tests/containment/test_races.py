"""Several events hit a command at the same moment.

The command has one outcome, and all answers agree on this outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from leaks import descriptors_beyond, descriptors_of, targets_of
from shelld.keeper.idle_runners import MAX_IDLE
from support import Json, RawDaemon, children, descendants, raw_daemon, wait_for

# One of these commands runs during the race. Bash takes a millisecond or two to start.
COMMANDS = [
    ":",
    "exit 3",
    "sleep 0.001",
    "kill -9 $$",
    "sleep 300 & exit 5",
    "setsid sleep 300 & sleep 300",
    "trap 'exit 7' TERM; sleep 300 & wait",
    "exec sleep 300",
]
# Check the name of the runner's parent first. If the keeper was killed earlier, the parent is the
# daemon, which must not be killed.
KILL_KEEPER_AND_RUNNER = """
keeper=$(cut -d' ' -f4 /proc/$PPID/stat)
grep -qx shelld-keeper /proc/$keeper/comm && kill -9 $keeper
kill -9 $PPID; sleep 300
"""
# The number of rounds that run at the same time.
AT_ONCE = 20
ENDED = {"completed", "failed", "killed", "timeout"}


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    with raw_daemon("--grace", "50", "--retain-seconds", "600", "--max-retained", "200") as running:
        running.call("ping")
        yield running
        assert all(shell["leftover"] == [] for shell in running.call("list_shells")["shells"])


def outcome(result: Json) -> tuple[object, ...]:
    return result["status"], result["exitCode"], result["signal"]


def is_terminal(target: str) -> bool:
    return target.startswith(("/dev/pts/", "/dev/ptmx"))


class Holdings:
    """The descriptors and processes that a daemon and its keeper hold between commands."""

    def __init__(self, daemon: RawDaemon) -> None:
        self._daemon = daemon
        # Let the daemon create the objects that it keeps for later commands.
        daemon.bash("true", tty=True)
        self._end_session()
        # The thread that watches for locked pipes opens its files soon after the first command.
        wait_for(lambda: "syscall" in descriptors_of(daemon.pid))
        (self._keeper,) = children(daemon.pid)
        self._before = {pid: descriptors_of(pid) for pid in (daemon.pid, self._keeper)}

    def _end_session(self) -> None:
        """Close the session, which also ends the spare shells."""
        self._daemon.call("close_session", {"session": "main"})

    def assert_nothing_new(self) -> None:
        self._end_session()
        left: list[str] = []

        def nothing_is_left() -> bool:
            left[:] = self._new()
            return not left

        try:
            wait_for(nothing_is_left)
        except AssertionError:
            raise AssertionError(f"the daemon or its processes keep {left}") from None

    def _new(self) -> list[str]:
        found: list[str] = []
        for pid, before in self._before.items():
            found += descriptors_beyond(pid, before)
        for pid in (self._daemon.pid, *descendants(self._daemon.pid)):
            # /dev/pts has an entry for each master side that is open.
            found += [f"{target} in {pid}" for target in targets_of(pid) if is_terminal(target)]
        runners = children(self._keeper)
        return found + [f"runner {pid}" for pid in runners[MAX_IDLE:]]


def rounds(short: int, long: int) -> pytest.MarkDecorator:
    many = pytest.param(long, marks=[pytest.mark.long, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("count", [short, many])


@pytest.mark.slow
@rounds(200, 10_000)
def test_two_kills_and_a_read_agree_at_the_end(daemon: RawDaemon, count: int) -> None:
    chance = random.Random(count)
    for _ in range(count // AT_ONCE):
        ids = [daemon.background(chance.choice(COMMANDS)) for _ in range(AT_ONCE)]
        asked: list[tuple[str, list[object]]] = []
        for bash_id in ids:
            if chance.random() < 0.5:
                time.sleep(chance.random() / 500)
            kill = {"shell_id": bash_id, "grace": chance.choice([0, 1, 20])}
            read = {"bash_id": bash_id, "wait": 60_000, "until": "exit"}
            requests = [("kill_shell", kill), ("kill_shell", kill), ("bash_output", read)]
            chance.shuffle(requests)
            asked.append((bash_id, [daemon.request(*request) for request in requests]))
        for bash_id, requests_sent in asked:
            results = [daemon.answer(request_id)["result"] for request_id in requests_sent]
            last = daemon.call("kill_shell", {"shell_id": bash_id})
            assert last["alreadyStopped"] is True
            assert last["status"] in ENDED
            assert (last["exitCode"] is None) != (last["signal"] is None)
            assert {outcome(result) for result in results} == {outcome(last)}
            assert all(result.get("survivors", []) == [] for result in results)


@pytest.mark.slow
@rounds(200, 10_000)
def test_input_resize_kill_and_exit_agree(daemon: RawDaemon, count: int) -> None:
    chance = random.Random(count)
    commands = ["cat", "exit 3", "read -r x; exit 4", "stty raw; sleep 300", "sleep 300 & exit 5"]
    holdings = Holdings(daemon)
    for _ in range(count // AT_ONCE):
        asked: list[tuple[str, list[object], list[object]]] = []
        for _ in range(AT_ONCE):
            bash_id = daemon.background(chance.choice(commands), tty=True)
            name = {"bash_id": bash_id}
            inputs: list[tuple[str, Json]] = [
                ("write_stdin", {**name, "text": "text\n"}),
                ("write_stdin", {**name, "keys": ["C-c"]}),
                ("write_stdin", {**name, "eof": True}),
                ("resize_shell", {**name, "rows": chance.randint(1, 99), "cols": 80}),
                ("resize_shell", {**name, "rows": chance.randint(1, 99), "cols": 80}),
            ]
            chance.shuffle(inputs)
            ends: list[tuple[str, Json]] = [
                ("kill_shell", {"shell_id": bash_id, "grace": chance.choice([0, 20])}),
                ("bash_output", {**name, "wait": 60_000, "until": "exit"}),
            ]
            at = chance.randint(0, len(inputs))
            sent = [daemon.request(*each) for each in inputs[:at]]
            ending = [daemon.request(*each) for each in ends]
            sent += [daemon.request(*each) for each in inputs[at:]]
            asked.append((bash_id, sent, ending))
        for bash_id, sent, ending in asked:
            for request_id in sent:
                answer = daemon.answer(request_id)
                assert "result" in answer or answer["error"]["code"] in {1008, 1009}
            results = [daemon.answer(request_id)["result"] for request_id in ending]
            last = daemon.call("kill_shell", {"shell_id": bash_id})
            assert last["alreadyStopped"] is True
            assert last["status"] in ENDED
            assert {outcome(result) for result in results} == {outcome(last)}
            assert results[0]["survivors"] == []
    holdings.assert_nothing_new()


@pytest.mark.slow
@rounds(200, 10_000)
def test_start_is_either_cancelled_or_completed(daemon: RawDaemon, count: int) -> None:
    chance = random.Random(count)
    for _ in range(count // AT_ONCE):
        asked: list[object] = []
        for _ in range(AT_ONCE):
            asked.append(daemon.request("bash", {"command": chance.choice(COMMANDS)}))
            if chance.random() < 0.5:
                time.sleep(chance.random() / 500)
            for _ in range(chance.choice([1, 1, 2])):
                daemon.notify("$/cancelRequest", {"id": asked[chance.randrange(len(asked))]})
        for request_id in asked:
            daemon.notify("$/cancelRequest", {"id": request_id})
        for request_id in asked:
            answer = daemon.answer(request_id)
            if "error" in answer:
                assert answer["error"]["data"] == {"kind": "cancelled"}
            else:
                assert answer["result"]["status"] in {"completed", "failed"}
        daemon.call("close_session", {"session": "main"})
    assert daemon.call("server_info")["counters"]["shellsRunning"] == 0


@pytest.mark.slow
@rounds(100, 10_000)
def test_simultaneous_timeout_kill_and_exit_agree(daemon: RawDaemon, count: int) -> None:
    chance = random.Random(count)
    for _ in range(count // (5 * AT_ONCE)):
        # Race against the shortest possible timeout.
        began = time.monotonic()
        ids = [
            daemon.background(f"sleep {chance.uniform(0.97, 1.03):.3f}", timeout=1_000)
            for _ in range(5 * AT_ONCE)
        ]
        reads = [
            daemon.request("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
            for bash_id in ids
        ]
        time.sleep(max(0, began + 0.99 - time.monotonic()))
        kills = [daemon.request("kill_shell", {"shell_id": bash_id}) for bash_id in ids[::2]]
        for request_id in kills:
            result = daemon.answer(request_id)["result"]
            assert result["survivors"] == []
        for bash_id, request_id in zip(ids, reads, strict=True):
            read = daemon.answer(request_id)["result"]
            last = daemon.call("kill_shell", {"shell_id": bash_id})
            assert outcome(read) == outcome(last)
            assert read["status"] in ENDED - {"failed"}


@pytest.mark.slow
@rounds(100, 10_000)
def test_commands_survive_killed_runners_and_keepers(daemon: RawDaemon, count: int) -> None:
    # One command in five kills its runner. One in fifty also kills the keeper.
    chance = random.Random(count)
    for _ in range(count // AT_ONCE):
        asked: dict[object, str] = {}
        for _ in range(AT_ONCE):
            command = chance.choice([":", "sleep 0.005", "echo x", "sleep 300 & exit 0"])
            if chance.random() < 0.2:
                command = "kill -9 $PPID; sleep 300"
            if chance.random() < 0.02:
                command = KILL_KEEPER_AND_RUNNER
            asked[daemon.request("bash", {"command": command})] = command
        for request_id, command in asked.items():
            answer = daemon.answer(request_id)
            if "error" in answer:
                # The keeper that was to fork the command's runner had just been killed.
                assert answer["error"]["data"] == {
                    "kind": "resource_exhausted",
                    "limit": "processes",
                }
            elif "PPID" in command:
                result = answer["result"]
                assert (result["status"], result["reason"]) == ("killed", "lost")
                assert result["leftover"] == []
            else:
                assert answer["result"]["status"] == "completed"
        daemon.call("close_session", {"session": "main"})
    assert daemon.bash("echo next")["stdout"] == "next\n"
    daemon.call("close_session", {"session": "main"})
