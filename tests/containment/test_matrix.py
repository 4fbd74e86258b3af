"""Combine every way in which a command can hide processes with every way in which it can end. No
process may be left.

A *shape* is a way in which a command hides its processes, and an *ending* is a way in which a
command ends. An oracle that the processes cannot evade (see `oracles`) tells whether any process is
left. The test asks the oracle as soon as the daemon reports the end. If the daemon is killed,
nothing may be left after two seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from oracles import Cgroup, Heartbeat, Witness
from sandboxes import why_impossible
from shapes import SHAPES, Shape, command_of
from support import (
    RawDaemon,
    children,
    is_alive,
    parent_of,
    running_below,
    spares_of,
    wait_for,
)

pytestmark = pytest.mark.slow

# Every process that shelld itself starts in a sandbox has this word in its command line.
INSIDE = "shelld.keeper.inside"


class Scene(NamedTuple):
    daemon: RawDaemon
    shape: Shape
    command: str
    witness: Witness
    heartbeat: Heartbeat
    cgroup: Cgroup | None
    has_spares: bool
    has_terminal: bool

    def start(self, **params: object) -> str:
        """Start the command in the background, and wait until it has hidden its processes."""
        bash_id = self.daemon.background(self.command, tty=self.has_terminal, **params)
        self.wait_until_hidden()
        return bash_id

    def start_in_foreground(self, **params: object) -> object:
        params = {"command": self.command, "tty": self.has_terminal, **params}
        request_id = self.daemon.request("bash", params)
        self.wait_until_hidden()
        return request_id

    def wait_until_hidden(self) -> None:
        self.witness.wait_for_lines(self.shape.ready)
        self.wait_for_spare()

    def wait_for_spare(self) -> None:
        if self.has_spares:
            # Wait for the only spare shell, so that none starts while the test counts processes.
            self.daemon.bash("true", session="other")
            self.daemon.wait_for_spare()

    def family(self) -> set[int]:
        """Return the pids of the daemon's own processes."""
        keepers = children(self.daemon.pid)
        runners = {child for keeper in keepers for child in children(keeper)}
        return {
            *(self.daemon.pid, *keepers, *runners, *spares_of(self.daemon)),
            # These are bubblewrap, and the keeper and the runners in its sandbox.
            *running_below(self.daemon.pid, INSIDE),
        }

    def pid_of(self, bash_id: str) -> int:
        shells = {shell["bash_id"]: shell for shell in self.daemon.call("list_shells")["shells"]}
        return int(shells[bash_id]["pid"])

    def assert_nothing_left(self) -> None:
        """Check, without waiting, that no process of the command is left at this moment."""
        assert not self.witness.is_held()
        if self.cgroup is not None:
            left = self.cgroup.pids() - self.family()
            assert not left, described(left)
        assert not self.heartbeat.is_beating()

    def assert_gone(self) -> None:
        """Wait until the daemon and all its processes are gone."""
        try:
            wait_for(self._is_empty, "the end of the daemon and all that it started")
        except AssertionError:
            left = set[int]() if self.cgroup is None else self.cgroup.pids()
            raise AssertionError(described(left)) from None
        assert not self.heartbeat.is_beating()

    def _is_empty(self) -> bool:
        return not self.witness.is_held() and (self.cgroup is None or self.cgroup.is_empty())


def described(pids: set[int]) -> str:
    listing = ["ps", "-o", "pid,ppid,sid,stat,args", "-p", ",".join(map(str, pids)) or "1"]
    return subprocess.run(listing, capture_output=True, text=True, check=False).stdout


# If each runner has a cgroup, `make test` tries only the shapes for which the cgroup makes a
# difference.
SHAPES_FOR_CGROUPS = {
    "comet",
    "sixteen comets",
    "two hundred sessions",
    "daemon that closes everything",
}

# Each shape forms a pair with each ending. `make test` tries one pair in seven. So each shape runs
# with some endings, and each ending with some shapes. `make test-long` tries the other pairs.
SAMPLE = 7


def is_sampled(shape: int, end: int, mechanism: str) -> bool:
    if mechanism == "terminal":
        # On a terminal, try each ending with only one shape.
        return shape == 5 * end % len(SHAPES)
    if mechanism == "cgroup" and list(SHAPES)[shape] not in SHAPES_FOR_CGROUPS:
        return False
    return (shape + end) % SAMPLE == ("subreaper", "cgroup", "sandbox").index(mechanism)


MECHANISMS = ("subreaper", "cgroup", "terminal", "sandbox")


def scenes(
    endings: list[Callable[[Scene], None]], mechanisms: tuple[str, ...] = MECHANISMS
) -> list[ParameterSet]:
    """Return every shape, with every mechanism and every ending."""
    return [
        pytest.param(
            name,
            mechanism,
            ending,
            id=f"{ending.__name__}-{name}-{mechanism}",
            marks=[] if is_sampled(shape, number, mechanism) else [pytest.mark.long],
        )
        for shape, name in enumerate(SHAPES)
        for mechanism in mechanisms
        for number, ending in enumerate(endings)
    ]


@pytest.fixture
def scene(shape: str, mechanism: str, tmp_path: Path) -> Iterator[Scene]:
    if mechanism == "cgroup" and not Cgroup.is_possible():
        pytest.skip("needs a cgroup v2 directory that can be divided")
    if mechanism == "sandbox" and (problem := why_impossible()):
        pytest.skip(problem)
    if mechanism == "sandbox" and shape == "pid namespace of its own":
        pytest.skip("a sandbox lets no command make a namespace")
    hiding = SHAPES[shape]
    witness = Witness(tmp_path / "witness")
    heartbeat = Heartbeat(tmp_path / "beat")
    os.mkfifo(tmp_path / "fifo")
    command = command_of(hiding, witness=witness.path, beat=heartbeat.path, fifo=tmp_path / "fifo")
    cgroup = Cgroup() if Cgroup.is_possible() else None
    # The commands run in spare shells only with the mechanism "subreaper".
    has_spares = mechanism == "subreaper"
    has_terminal = mechanism == "terminal"
    containment = "cgroup" if mechanism == "cgroup" else "subreaper"
    options = ["--grace", "200", "--spare-shells", str(int(has_spares))]
    options += ["--containment", containment]
    if mechanism == "sandbox":
        policy = tmp_path / "policy.toml"
        policy.write_text(f"write = ['{tmp_path}']\n")
        options += ["--sandbox", str(policy)]
    daemon = RawDaemon(*options, prefix=() if cgroup is None else cgroup.prefix)
    try:
        daemon.call("ping")
        if has_spares:
            daemon.bash("true")
            daemon.wait_for_spare()
        yield Scene(daemon, hiding, command, witness, heartbeat, cgroup, has_spares, has_terminal)
    finally:
        daemon.close()
        witness.close()
        if cgroup is not None:
            cgroup.close()
    assert daemon.stderr == b""


# -- one command ends, and the daemon survives --------------------------------------------------


def end_by_kill_shell(scene: Scene) -> None:
    result = scene.daemon.call("kill_shell", {"shell_id": scene.start(), "grace": 200})
    assert (result["status"], result["survivors"]) == ("killed", [])


def end_by_kill_of_leftovers(scene: Scene) -> None:
    # The test first ends bash, then kills the leftover processes.
    bash_id = scene.start()
    os.kill(scene.pid_of(bash_id), signal.SIGKILL)
    read = scene.daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert (read["status"], read["signal"]) == ("failed", "SIGKILL")
    result = scene.daemon.call("kill_shell", {"shell_id": bash_id, "grace": 200})
    assert result["survivors"] == []


def end_by_timeout(scene: Scene) -> None:
    # The processes of the command must hide before the timeout. On a busy machine, many processes
    # can take seconds to hide, so try again with more time. The first timeout is short, because the
    # shape "comet" keeps the processors busy until the timeout.
    for timeout_ms in (2_000, 16_000):
        params = {"command": scene.command, "tty": scene.has_terminal, "timeout": timeout_ms}
        request_id = scene.daemon.request("bash", params)
        scene.wait_for_spare()
        error = scene.daemon.answer(request_id)["error"]
        assert (error["code"], error["data"]["status"]) == (1001, "timeout")
        assert "survivors" not in error["data"]
        scene.assert_nothing_left()
        if scene.witness.take_lines() >= scene.shape.ready:
            return
    raise AssertionError("the shape has not hidden before the timeout")


def end_by_cancel(scene: Scene) -> None:
    request_id = scene.start_in_foreground()
    scene.daemon.notify("$/cancelRequest", {"id": request_id})
    error = scene.daemon.answer(request_id)["error"]
    assert (error["code"], error["data"]) == (-32800, {"kind": "cancelled"})


def end_by_close_session(scene: Scene) -> None:
    scene.start(session="mine")
    result = scene.daemon.call("close_session", {"session": "mine"})
    assert result == {"session": "mine", "killed": 1}


def wait_until_lost(scene: Scene, bash_id: str) -> None:
    read = scene.daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert (read["status"], read["signal"]) == ("killed", "SIGKILL")
    assert read["reason"] == "lost"


def end_by_sigkill_of_the_runner(scene: Scene) -> None:
    bash_id = scene.start()
    os.kill(parent_of(scene.pid_of(bash_id)), signal.SIGKILL)
    wait_until_lost(scene, bash_id)


def end_by_sigkill_of_runner_and_keeper(scene: Scene) -> None:
    bash_id = scene.start()
    (keeper,) = children(scene.daemon.pid)
    runner = parent_of(scene.pid_of(bash_id))
    os.kill(keeper, signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    wait_until_lost(scene, bash_id)


def end_by_kill_shell_after_sigkill_of_the_keeper(scene: Scene) -> None:
    bash_id = scene.start()
    (keeper,) = children(scene.daemon.pid)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper), "the keeper's end")
    assert scene.daemon.call("bash_output", {"bash_id": bash_id})["isRunning"] is True
    assert scene.daemon.bash("echo next", session=None)["stdout"] == "next\n"
    result = scene.daemon.call("kill_shell", {"shell_id": bash_id, "grace": 200})
    assert (result["status"], result["survivors"]) == ("killed", [])


ENDINGS_OF_A_COMMAND: list[Callable[[Scene], None]] = [
    end_by_kill_shell,
    end_by_kill_of_leftovers,
    end_by_timeout,
    end_by_cancel,
    end_by_close_session,
    end_by_sigkill_of_the_runner,
    end_by_sigkill_of_runner_and_keeper,
    end_by_kill_shell_after_sigkill_of_the_keeper,
]


@pytest.mark.parametrize(("shape", "mechanism", "end"), scenes(ENDINGS_OF_A_COMMAND))
def test_nothing_is_left_of_a_command(scene: Scene, end: Callable[[Scene], None]) -> None:
    if end is end_by_kill_of_leftovers and not scene.shape.waits:
        pytest.skip("this shape is bash itself")
    end(scene)
    scene.assert_nothing_left()
    answer = scene.daemon.bash("echo next")
    assert answer["stdout"] == "next\n"


# -- a sandbox ends, and the daemon survives ----------------------------------------------------


def helpers_of(bash: int) -> list[int]:
    """Return the ancestors of a bash in a sandbox: runner, keeper, bubblewrap, outer runner."""
    found = [parent_of(bash)]
    for _ in range(3):
        found.append(parent_of(found[-1]))
    return found


def end_with_the_keeper_of_the_sandbox(scene: Scene) -> None:
    bash_id = scene.start()
    os.kill(helpers_of(scene.pid_of(bash_id))[1], signal.SIGKILL)
    wait_until_lost(scene, bash_id)


def end_by_kill_shell_after_sigkill_of_bubblewrap(scene: Scene) -> None:
    # Bubblewrap has set up the sandbox, and now only waits for the end of the sandbox. So the
    # command continues if bubblewrap is killed.
    bash_id = scene.start()
    bubblewrap = helpers_of(scene.pid_of(bash_id))[2]
    os.kill(bubblewrap, signal.SIGKILL)
    wait_for(lambda: not is_alive(bubblewrap), "bubblewrap's end")
    assert scene.daemon.call("bash_output", {"bash_id": bash_id})["isRunning"] is True
    result = scene.daemon.call("kill_shell", {"shell_id": bash_id, "grace": 200})
    assert (result["status"], result["survivors"]) == ("killed", [])


def end_with_the_runner_of_bubblewrap(scene: Scene) -> None:
    bash_id = scene.start()
    os.kill(helpers_of(scene.pid_of(bash_id))[3], signal.SIGKILL)
    wait_until_lost(scene, bash_id)


ENDINGS_OF_A_SANDBOX: list[Callable[[Scene], None]] = [
    end_with_the_keeper_of_the_sandbox,
    end_by_kill_shell_after_sigkill_of_bubblewrap,
    end_with_the_runner_of_bubblewrap,
]


@pytest.mark.parametrize(("shape", "mechanism", "end"), scenes(ENDINGS_OF_A_SANDBOX, ("sandbox",)))
def test_nothing_is_left_of_a_sandbox(scene: Scene, end: Callable[[Scene], None]) -> None:
    end(scene)
    scene.assert_nothing_left()
    assert scene.daemon.bash("echo next")["stdout"] == "next\n"


# -- the daemon ends -----------------------------------------------------------------------------


def end_of_input(scene: Scene) -> None:
    scene.daemon.end_input()
    assert scene.daemon.wait() == 0


def sigterm(scene: Scene) -> None:
    scene.daemon.process.send_signal(signal.SIGTERM)
    assert scene.daemon.wait() == 0


def sighup(scene: Scene) -> None:
    scene.daemon.process.send_signal(signal.SIGHUP)
    assert scene.daemon.wait() == 0


def sigkill(scene: Scene) -> None:
    scene.daemon.process.kill()


def sigkill_of_daemon_and_keeper(scene: Scene) -> None:
    (keeper,) = children(scene.daemon.pid)
    os.kill(keeper, signal.SIGKILL)
    scene.daemon.process.kill()


ENDINGS_OF_THE_DAEMON: list[Callable[[Scene], None]] = [
    end_of_input,
    sigterm,
    sighup,
    sigkill,
    sigkill_of_daemon_and_keeper,
]


def sigkill_of_everything_outside_the_sandbox(scene: Scene) -> None:
    (shell,) = scene.daemon.call("list_shells")["shells"]
    _, _, bubblewrap, runner = helpers_of(shell["pid"])
    for pid in (*children(scene.daemon.pid), runner, bubblewrap, scene.daemon.pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("shape", "mechanism", "end"),
    [
        *scenes(ENDINGS_OF_THE_DAEMON),
        *scenes([sigkill_of_everything_outside_the_sandbox], ("sandbox",)),
    ],
)
def test_nothing_is_left_of_the_daemon(scene: Scene, end: Callable[[Scene], None]) -> None:
    scene.start()
    end(scene)
    scene.assert_gone()
    if scene.cgroup is not None:
        wait_for(lambda: not scene.cgroup or not scene.cgroup.divisions(), "its cgroups' removal")
