"""A sandbox that the daemon replaces, and paths that are replaced while a sandbox starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from leaks import targets_of
from sandboxes import Workspace, configure, why_impossible
from support import DAEMON_COMMAND, Json, raw_daemon, wait_for

pytestmark = pytest.mark.slow

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def workspace(places: Path, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A daemon in a workspace, in a network namespace of its own. Otherwise, unix sockets of other
    programs would also replace its sandboxes.
    """
    path = places / request.node.name
    path.mkdir()
    with raw_daemon(command=["unshare", "-rn", *DAEMON_COMMAND], cwd=path) as daemon:
        yield Workspace(daemon, path)


@contextmanager
def new_socket(workspace: Workspace) -> Generator[None]:
    """Bind a unix socket that a running sandbox shows and a new sandbox hides."""
    daemon, path = workspace
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind('{path}/socket'); s.listen()"
    command = f'python3 -uc "{code}; print(1); s.accept()"'
    shell = daemon.background(command, session="outside")
    assert daemon.call("bash_output", {"bash_id": shell, "wait": 60_000})["stdout"]
    try:
        yield
    finally:
        daemon.call("kill_shell", {"shell_id": shell, "grace": 0})


def replaced(result: Json) -> bool:
    return cast("bool", result["sandbox"].get("replaced", False))


def test_the_first_result_in_a_new_sandbox_says_so(workspace: Workspace) -> None:
    daemon = workspace.daemon
    for session in ("first", "second", "third"):
        configure(daemon, session)
    for session in ("first", "second"):
        assert not replaced(daemon.bash("touch /tmp/kept", session=session))
    daemon.wait_for_spare()
    with new_socket(workspace):
        for session in ("first", "second"):
            result = daemon.bash("ls /tmp", session=session)
            assert (result["stdout"], replaced(result)) == ("", True)
            assert not replaced(daemon.bash("true", session=session))
        # This session has lost nothing.
        assert not replaced(daemon.bash("true", session="third"))


def test_a_background_shell_in_a_new_sandbox_says_so(workspace: Workspace) -> None:
    daemon = workspace.daemon
    configure(daemon, "one")
    daemon.bash("true", session="one")
    with new_socket(workspace):
        shell = daemon.background("true", session="one")
        assert replaced(daemon.call("bash_output", {"bash_id": shell}))
        assert not replaced(daemon.bash("true", session="one"))


def test_the_result_after_a_command_that_cannot_start_says_so(workspace: Workspace) -> None:
    daemon = workspace.daemon
    configure(daemon, "one")
    daemon.bash("mkdir /tmp/private; cd /tmp/private", session="one")
    with new_socket(workspace):
        error = daemon.fail("bash", {"command": "true", "session": "one"})
        assert error["data"]["kind"] == "spawn_failed"
        assert replaced(daemon.bash("true", session="one"))


def test_the_result_after_a_cancelled_command_says_so(workspace: Workspace) -> None:
    daemon = workspace.daemon
    configure(daemon, "one")
    daemon.bash("true", session="one")
    with new_socket(workspace):
        request = daemon.request("bash", {"command": "touch started; sleep 600", "session": "one"})
        wait_for((workspace.path / "started").exists)
        daemon.notify("$/cancelRequest", {"id": request})
        assert daemon.answer(request)["error"]["data"]["kind"] == "cancelled"
        assert replaced(daemon.bash("true", session="one"))
        assert not replaced(daemon.bash("true", session="one"))


def test_the_sandbox_of_a_call_is_no_replacement(workspace: Workspace) -> None:
    daemon = workspace.daemon
    configure(daemon, "one")
    for policy in (None, {"mode": "read-only"}, None):
        assert not replaced(daemon.bash("true", session="one", sandbox=policy))


def test_a_model_reads_that_its_sandbox_is_new(workspace: Workspace) -> None:
    daemon = workspace.daemon
    configure(daemon, "main")

    def text(**arguments: object) -> str:
        result = daemon.call("call_tool", {"name": "Bash", "arguments": arguments})
        return cast("str", result["output"])

    assert "new sandbox" not in text(command="true")
    with new_socket(workspace):
        assert "[This ran in a new sandbox: " in text(command="true", run_in_background=True)
        assert "new sandbox" not in text(command="true")


# -- paths that are replaced while a sandbox runs --------------------------------------------------


@pytest.mark.parametrize("keeps_old", [False, True])
def test_a_path_to_write_to_that_was_replaced_can_be_written(
    workspace: Workspace, keeps_old: bool
) -> None:
    daemon, path = workspace
    inner, old = path / "inner", path / "old"
    inner.mkdir()
    configure(daemon, "one", write=["inner"])
    daemon.bash("true", session="one")
    inner.rename(old)
    if not keeps_old:
        old.rmdir()
    # Nothing is there, so a new sandbox could not start.
    assert not replaced(daemon.bash("true", session="one"))
    inner.mkdir()
    result = daemon.bash("touch inner/made", session="one")
    assert (result["exitCode"], replaced(result)) == (0, True)
    assert (inner / "made").exists()
    assert not replaced(daemon.bash("true", session="one"))


@pytest.mark.parametrize("removed", ["inner/denied", "inner"], ids=["itself", "above"])
def test_a_missing_denied_path_stays_denied_if_its_placeholder_is_removed(
    workspace: Workspace, removed: str
) -> None:
    daemon, path = workspace
    (path / "inner").mkdir()
    configure(daemon, "one", deny_write=["inner/denied"])
    daemon.bash("true", session="one")
    shutil.rmtree(path / removed)
    (path / "inner").mkdir(exist_ok=True)
    for is_new in (True, False):
        result = daemon.bash("touch inner/made; mkdir -p inner/denied/made", session="one")
        assert (result["exitCode"], replaced(result)) == (1, is_new)
    daemon.call("shutdown")
    daemon.notify("exit", {})
    assert daemon.process.wait(20) == 0
    assert os.listdir(path / "inner") == ["made"]


# -- paths that are replaced while a sandbox starts ------------------------------------------------


@pytest.fixture
def swapping(places: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a bubblewrap. If it has a file `swap`, this program first replaces the
    directory `inner` with a link to `elsewhere`. If it has `new`, this program first moves `inner`
    to `away`, and `new` to `inner`.
    """
    path = places / "swapping"
    path.mkdir()
    program = path / "bwrap"
    program.write_text(
        f"#!/bin/bash\ncd {path}\n"
        "[[ -e swap ]] && mv inner away && ln -s elsewhere inner\n"
        "[[ -e new ]] && mv inner away && mv new inner\n"
        f'exec {shutil.which("bwrap")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    yield path
    shutil.rmtree(path)


def test_the_daemon_does_not_keep_open_what_commands_write_to(workspace: Workspace) -> None:
    daemon = workspace.daemon
    inner = workspace.path / "inner"
    inner.mkdir()
    configure(daemon, "one", write=["inner"])
    daemon.bash("true", session="one")
    # An open path would keep its file system busy, so nobody could unmount it.
    assert str(inner) not in targets_of(daemon.pid)


@pytest.mark.parametrize("policy", [{"write": ["inner"]}, {"deny_write": ["inner/denied"]}])
def test_a_link_that_appears_while_a_sandbox_starts_opens_nothing(
    swapping: Path, policy: dict[str, list[str]]
) -> None:
    for name in ("inner", "elsewhere"):
        (swapping / name / "denied").mkdir(parents=True)
    with raw_daemon(cwd=swapping) as daemon:
        configure(daemon, "one", **policy)
        # Without a link, the sandbox starts.
        daemon.bash("touch inner/made", session="one")
        (swapping / "swap").touch()
        params = {"session": "two", "sandbox": {"network": "loopback", **policy}}
        error = daemon.fail("configure_session", params)
        assert error["data"]["missing"] == "a path of its policy"
    assert os.readlink(swapping / "inner") == "elsewhere"


@pytest.mark.parametrize("member", ["write", "deny_write", "deny_read"])
def test_a_file_that_is_replaced_while_a_sandbox_starts_is_no_failure(
    swapping: Path, member: str
) -> None:
    (swapping / "inner").touch()
    with raw_daemon(cwd=swapping) as daemon:
        (swapping / "new").touch()
        configure(daemon, "one", **{member: ["inner"]})
        assert not (swapping / "new").exists()
        result = daemon.bash("echo text >> inner", session="one")
        assert (result["exitCode"] == 0) is (member == "write")


def test_a_denied_directory_stays_denied_if_it_was_away_while_a_sandbox_started(
    swapping: Path,
) -> None:
    (swapping / "inner").mkdir()
    (swapping / "inner" / "secret").touch()
    with raw_daemon(cwd=swapping) as daemon:
        (swapping / "new").mkdir()
        configure(daemon, "one", deny_read=["inner"])
        (swapping / "inner").rename(swapping / "decoy")
        (swapping / "away").rename(swapping / "inner")
        assert "secret" not in daemon.bash("ls inner", session="one")["stdout"]
