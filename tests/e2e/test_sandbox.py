"""Commands in a sandbox: the actions that work or fail, and the requests that the daemon
refuses.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lasting import Lasting
from sandboxes import Workspace, configure, why_impossible
from support import (
    DAEMON_COMMAND,
    Json,
    is_alive,
    raw_daemon,
    running_below,
    wait_for,
)

pytestmark = pytest.mark.slow

ESCAPES = Path(__file__).parents[1] / "helpers" / "escapes.py"
ENFORCED = {
    "engine": "bwrap",
    "files": "workspace",
    "network": "none",
    "processes": "isolated",
}


if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(scope="module")
def shared(places: Path) -> Iterator[Workspace]:
    """A daemon that starts in a workspace."""
    path = places / "shared"
    path.mkdir()
    with raw_daemon(cwd=path, env={**os.environ, "A_TOKEN": "hidden", "SEEN": "yes"}) as daemon:
        yield Workspace(daemon, path)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


# -- what works -------------------------------------------------------------------------------


def test_commands_work_in_a_sandbox_as_outside(shared: Workspace, session: str) -> None:
    daemon, path = shared
    shown = configure(daemon, session, mode="workspace", network="none")["sandbox"]
    assert (shown["mode"], shown["write"]) == ("workspace", [str(path)])
    result = daemon.bash("x=1; cd /tmp; f() { echo f$x; }; echo $PWD", session=session)
    assert result["stdout"] == "/tmp\n"
    assert result["sandbox"] == ENFORCED
    assert "stateReason" not in result
    # The session keeps its state although its directory exists only in the sandbox.
    daemon.bash("mkdir private; cd private", session=session)
    result = daemon.bash("f; pwd", session=session)
    assert result["stdout"] == "f1\n/tmp/private\n"
    assert result["sessionCwd"] == "/tmp/private"
    assert not os.path.exists("/tmp/private")
    daemon.bash(f"cd {path}; echo written > {session}", session=session)
    assert (path / session).read_text() == "written\n"


@pytest.mark.parametrize("exists_outside", [False, True])
def test_the_directory_of_a_call_is_the_one_in_the_sandbox(
    shared: Workspace, session: str, exists_outside: bool
) -> None:
    daemon, path = shared
    configure(daemon, session, mode="workspace", network="none")
    name = f"shelld-{os.getpid()}-{exists_outside:d}"
    link = Path("/tmp", name)
    if exists_outside:
        link.symlink_to("/usr")
    try:
        # Inside, the link leads elsewhere than outside.
        daemon.bash(f"ln -s /etc {link}", session=session)
        for command in ("pwd; text=$(echo text)", "pwd; number=1"):
            result = daemon.bash(command, session=session, cwd=str(link))
            assert (result["stdout"], result["sessionCwd"]) == ("/etc\n", str(path))
        result = daemon.bash("cd /usr", session=session, cwd=str(link))
        assert result["sessionCwd"] == "/usr"
    finally:
        link.unlink(missing_ok=True)


def test_the_directory_of_a_call_is_not_kept_without_pwd(shared: Workspace, session: str) -> None:
    daemon, path = shared
    (path / "below").mkdir(exist_ok=True)
    configure(daemon, session, mode="workspace", network="none")
    daemon.bash("unset PWD", session=session)
    result = daemon.bash("text=$(echo text)", session=session, cwd="below/../below")
    assert result["sessionCwd"] == str(path)


def test_the_directory_of_a_call_leads_elsewhere_outside(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, mode="workspace", network="none")
    link = Path("/tmp", f"shelld-{os.getpid()}-elsewhere")
    link.symlink_to("/usr")
    try:
        daemon.bash(f"mkdir {link}; cd {link}; unset PWD", session=session)
        result = daemon.bash("cd /usr", session=session, cwd=str(link))
        assert result["sessionCwd"] == "/usr"
    finally:
        link.unlink()


def test_a_command_cannot_take_the_names_of_state_files(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, mode="workspace", network="none")
    daemon.bash("mkdir /run/shelld/{0..1000} 2>/dev/null", session=session)
    # Each of these commands needs a file of its own at the same time.
    commands = [f"sleep 0.2; x=$(echo {number})" for number in range(4)]
    requests = [daemon.request("bash", {"command": each, "session": session}) for each in commands]
    for request in requests:
        result = daemon.answer(request)["result"]
        assert (result["status"], "stateReason" in result) == ("completed", False)


@pytest.mark.parametrize(
    "change",
    [
        "chmod 000 /run/shelld/*",
        "chmod 000 /run/shelld",
        'for f in /run/shelld/[0-9]*; do mv "$f" /run/shelld/moved; mkfifo "$f"; done; exec true',
    ],
)
def test_a_command_cannot_change_the_state_files_of_later_ones(
    shared: Workspace, session: str, change: str
) -> None:
    daemon, path = shared
    # The session has a sandbox of its own, so there is only one state file.
    own = str(path / f"denied-{len(change)}")
    configure(daemon, session, mode="workspace", network="none", deny_read=[own])
    daemon.bash(change, session=session)
    result = daemon.bash("x=$(echo 1)", session=session, timeout=5_000)
    assert (result["status"], "stateReason" in result) == ("completed", False)


def test_policy_shows_a_path_that_is_not_utf_8(places: Path) -> None:
    path = places / os.fsdecode(b"work\xff")
    path.mkdir()
    with raw_daemon(cwd=path) as daemon:
        answer = configure(daemon, "main", mode="workspace", deny_read=["secret"])
        assert answer["sandbox"]["write"] == [f"{places}/work\ufffd"]
        assert answer["sandbox"]["deny_read"] == [f"{places}/work\ufffd/secret"]
        found = daemon.call("get_session", {"session": "main"})
        assert found["sandbox"] == answer["sandbox"]
        assert daemon.bash("touch made")["exitCode"] == 0
    assert (path / "made").exists()


def test_a_deleted_private_directory_is_left_for_one_above(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, mode="workspace", network="none")
    # The directory exists outside, but not in the sandbox.
    with tempfile.TemporaryDirectory(dir="/tmp") as outside:
        below = f"{outside}/below"
        daemon.bash(f"mkdir -p {below}; cd {below}; rm -r {outside}", session=session)
        error = daemon.fail("bash", {"command": "pwd", "session": session})
        assert error["data"] == {"kind": "spawn_failed", "errno": "ENOENT"}
        assert daemon.bash("pwd", session=session)["stdout"] == "/tmp\n"
        # A command can make the directory again.
        daemon.bash(f"mkdir -p {below}; cd {below}", session=session)
        assert daemon.bash("pwd", session=session)["stdout"] == f"{below}\n"


def test_a_deleted_directory_of_the_daemon_is_left_for_one_above(session: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        own = Path(parent, "own")
        own.mkdir()
        with raw_daemon(cwd=own) as daemon:
            daemon.call("ping")
            own.rmdir()
            configure(daemon, session, mode="read-only")
            error = daemon.fail("bash", {"command": "pwd", "session": session})
            assert error["data"] == {"kind": "spawn_failed", "errno": "ENOENT"}
            assert daemon.bash("pwd", session=session)["stdout"] == "/tmp\n"


def test_a_spare_shell_waits_in_the_sandbox(places: Path) -> None:
    with raw_daemon("--sandbox", "read-only", cwd=places) as daemon:
        daemon.bash("true")

        def spare_is_used() -> bool:
            result = daemon.bash("test -e /etc/hostname; touch /etc/new")
            assert "Read-only" in result["stderr"]
            assert result["sandbox"]["files"] == "read-only"
            used: int = daemon.call("server_info")["counters"]["sparesUsed"]
            return used > 3

        wait_for(spare_is_used, "spare shells")


def test_a_spare_shell_waits_in_a_private_directory(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, mode="workspace", network="none")
    daemon.bash(f"mkdir /tmp/{session}; cd /tmp/{session}", session=session)
    before: int = daemon.call("server_info")["counters"]["sparesUsed"]

    def spare_is_used() -> bool:
        result = daemon.bash("pwd", session=session)
        assert result["stdout"] == f"/tmp/{session}\n"
        return int(daemon.call("server_info")["counters"]["sparesUsed"]) > before

    wait_for(spare_is_used, "spare shells")


def test_terminals_and_background_shells_work(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session)
    typed = {"tty": True, "stdin": "word\n", "session": session}
    assert "got word" in daemon.bash("read x; echo got $x; test -t 0", **typed)["stdout"]
    started = daemon.bash("echo $$; exec sleep 300", session=session, run_in_background=True)
    assert started["sandbox"] == ENFORCED
    # This is the pid outside the sandbox, and not the pid inside it.
    assert is_alive(started["pid"])
    assert Path(f"/proc/{started['pid']}/cwd").resolve() == shared.path
    daemon.call("kill_shell", {"shell_id": started["bash_id"]})
    assert not is_alive(started["pid"])


def test_leftover_processes_have_pids_of_the_machine(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session)
    result = daemon.bash("setsid sleep 300 & disown; sleep 300 &", session=session)
    assert len(result["leftover"]) == 2
    assert all(map(is_alive, result["leftover"]))
    killed = daemon.call("kill_shell", {"shell_id": result["bash_id"]})
    assert killed.get("survivors", []) == []
    assert not any(map(is_alive, result["leftover"]))


def test_sockets_that_commands_make_work(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="loopback")
    code = (
        "import socket, threading\n"
        "for family, address in ((socket.AF_UNIX, 'made'), (socket.AF_INET, ('127.0.0.1', 0))):\n"
        "    server = socket.socket(family); server.bind(address); server.listen()\n"
        "    client = socket.socket(family); client.connect(server.getsockname())\n"
        "    print('connected')\n"
    )
    result = daemon.bash("python3 -", session=session, stdin=code)
    assert result["stdout"] == "connected\n" * 2, result["stderr"]
    assert result["sandbox"]["network"] == "loopback"


def test_an_allowed_socket_can_be_used(shared: Workspace, session: str) -> None:
    daemon, path = shared
    code = "import socket; socket.socket(socket.AF_UNIX).connect('allowed'); print('connected')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "allowed"))
        server.listen()
        configure(daemon, session, unix_sockets=["allowed"])
        assert daemon.bash(f'python3 -c "{code}"', session=session)["stdout"] == "connected\n"
        # A single call can deny access to the socket.
        tighter: Json = {"session": session, "sandbox": {"unix_sockets": []}}
        assert daemon.bash(f'python3 -c "{code}"', **tighter)["exitCode"] == 1


def test_the_environment_has_no_secrets(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    rules = {"session": session, "sandbox": {}, "env": {"remove": ["*_TOKEN"]}}
    daemon.call("configure_session", rules)
    look = "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c"
    assert daemon.bash(f"{look} A_TOKEN", session=session)["stdout"] == "0\n"
    assert daemon.bash(f"{look} SEEN", session=session)["stdout"] != "0\n"


# -- what is denied ---------------------------------------------------------------------------


def prepare(path: Path) -> None:
    """Make a workspace, a directory beside it, and the files in both that `escapes.py` needs."""
    outside = path / "outside"
    for each in ("kept", "denied", "upper/inner/kept"):
        (path / "workspace" / each).mkdir(parents=True)
    (outside / "empty").mkdir(parents=True)
    os.mkfifo(outside / "pipe")
    for name in ("kept/file", "kept/own", "denied-file", "denied/file", "upper/inner/kept/file"):
        (path / "workspace" / name).write_text("content")
    (outside / "file").write_text("content")
    shutil.copy(ESCAPES, path / "workspace")


@pytest.mark.parametrize("user", ["root", "ordinary"])
@pytest.mark.parametrize("network", ["none", "loopback", "hosts", "full"])
def test_nothing_escapes(
    places: Path, user: str, network: str, request: pytest.FixtureRequest
) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the attempts have the numbers of system calls of x86-64")
    popen: dict[str, Any] = {"command": DAEMON_COMMAND}
    path = places / f"{user}-{network}"
    prepare(path)
    if user == "ordinary":
        popen = dict(request.getfixturevalue("unprivileged"))
        who = {key: popen[key] for key in ("user", "group", "extra_groups")}
        if problem := why_impossible(**who):
            pytest.skip(problem)
        for each in (path, *path.rglob("*")):
            os.chown(each, popen["user"], popen["group"])
    popen["cwd"] = path / "workspace"
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as renamed,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        raw_daemon(**popen) as daemon,
    ):
        server.bind(str(path / "outside/host"))
        renamed.bind(str(path / "outside/first"))
        (path / "outside/first").rename(path / "outside/renamed")
        for name in ("host", "renamed"):
            os.chmod(path / "outside" / name, 0o777)
        abstract.bind(f"\0shelld-escape-{daemon.pid}")
        for listener in (server, renamed, abstract):
            listener.listen()
        policy: Json = {
            "network": network,
            # A writable directory may be inside another writable directory.
            "write": [".", "upper/inner"],
            "deny_read": ["denied", "denied-file"],
            "deny_write": ["kept/file", "missing/below", "upper/inner/kept/file"],
        }
        if network == "hosts":
            policy["hosts"] = ["localhost", "127.0.0.1:1", "192.0.2.1:1", "*.invalid"]
        configure(daemon, "main", **policy)
        port = tcp.getsockname()[1]
        # This process is outside the sandbox, so `escapes.py` must not find it.
        outside = daemon.background("exec -a 'a witness outside' sleep 300", session="outside")
        attempt = f"python3 escapes.py {path}/outside {daemon.pid} {port}"
        result = daemon.bash(attempt)
        daemon.call("kill_shell", {"shell_id": outside})
        *escaped, count = result["stdout"].splitlines()
        # A sandbox with the machine's network can reach the machine's loopback.
        allowed: set[str] = {"the loopback of the host"} if network == "full" else set()
        assert set(escaped) <= allowed, result
        assert int(count.split()[0]) >= 60
    assert (path / "outside/file").read_text() == "content"
    assert (path / "workspace/kept/file").read_text() == "content"
    # On a busy machine, the daemon may stop before the sandbox has ended. If so, the directory for
    # the missing path stays, but it is empty.
    assert not (path / "workspace/missing").exists() or not os.listdir(path / "workspace/missing")


def test_the_directory_for_a_missing_path_goes_with_the_sandbox(places: Path) -> None:
    path = places / "placeholder"
    path.mkdir()
    with raw_daemon(cwd=path) as daemon:
        configure(daemon, "main", deny_write=["missing/below"])
        assert daemon.bash("mkdir missing")["exitCode"] == 1
        assert os.listdir(path) == ["missing"]
        for pid in running_below(daemon.pid, "shelld.keeper.inside"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not os.listdir(path), "the removal of the directory")
        # The next command gets another sandbox.
        assert daemon.bash("mkdir missing")["exitCode"] == 1


def test_the_attempts_to_escape_succeed_without_a_sandbox(places: Path, tmp_path: Path) -> None:
    # If the attempts also failed here, `test_nothing_escapes` would prove nothing. The attempts in
    # this list do no harm outside a sandbox.
    path = places / "control"
    prepare(path)
    names = ["read a denied file", "change outside", "signal a process outside", "AF_PACKET"]
    names += ["write to a FIFO outside", "a unix socket of the host that was renamed"]
    names += ["rename a directory above a protected file"]
    names += ["a unix socket of the host", "a user namespace"] if os.geteuid() == 0 else []
    code = (
        "import escapes, sys\n"
        f"print([name for name in {names!r} if not escapes.succeeds(escapes.ATTEMPTS[name])])"
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "outside/host"))
        (path / "outside/renamed").hardlink_to(path / "outside/host")
        server.listen()
        command = [sys.executable, "-c", code, f"{path}/outside", str(os.getpid()), "1"]
        ended = subprocess.run(
            command, cwd=path / "workspace", capture_output=True, text=True, check=True
        )
    assert ended.stdout == "[]\n"


def test_a_socket_made_later_is_hidden_from_the_next_command(
    shared: Workspace, session: str
) -> None:
    daemon, path = shared
    configure(daemon, session)
    code = "import socket; socket.socket(socket.AF_UNIX).connect('later')"
    assert daemon.bash("true", session=session)["exitCode"] == 0
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "later"))
        server.listen()
        result = daemon.bash(f'python3 -c "{code}"', session=session)
        assert "Error" in result["stderr"]
    (path / "later").unlink()


def test_a_socket_that_gets_another_name_stays_hidden(shared: Workspace, session: str) -> None:
    # ssh makes the sockets of its shared connections like this.
    daemon, path = shared
    code = "import socket; socket.socket(socket.AF_UNIX).connect('shown'); print('connected')"
    configure(daemon, session)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "temporary"))
        server.listen()
        assert daemon.bash("true", session=session)["exitCode"] == 0
        (path / "shown").hardlink_to(path / "temporary")
        (path / "temporary").unlink()
        result = daemon.bash(f'python3 -c "{code}"', session=session)
        assert (result["stdout"], result["exitCode"]) == ("", 1)
    (path / "shown").unlink()


def test_a_sandbox_cannot_reach_a_lasting_daemon(places: Path) -> None:
    # A lasting daemon would run commands without any sandbox.
    path = places / "lasting"
    (path / "runtime").mkdir(mode=0o700, parents=True)
    lasting = Lasting(path / "runtime")
    code = (
        "import socket; made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "made.connect('runtime/shelld/%s.sock'); print('connected')"
    )
    try:
        with (
            raw_daemon(cwd=path, env=lasting.env) as daemon,
            raw_daemon(cwd=path) as other,
            lasting.attach() as attached,
        ):
            attached.call("ping")
            configure(daemon, "main")
            configure(attached, "own", write=[str(path)])
            # The daemon `other` does not know the directory of the lasting daemon's socket, but it
            # hides each socket that the kernel lists.
            configure(other, "main")
            for each, session in ((daemon, "main"), (attached, "own"), (other, "main")):
                command = f"cd {path}; python3 -"
                result = each.bash(command, stdin=code % "main", session=session)
                assert (result["stdout"], result["exitCode"]) == ("", 1)
            # The sandbox also hides the socket of a lasting daemon that starts later.
            with lasting.attach("--name", "later") as later:
                later.call("ping")
                result = daemon.bash("python3 -", stdin=code % "later")
                assert (result["stdout"], result["exitCode"]) == ("", 1)
        lasting.connect().close()
    finally:
        lasting.stop_all()


@pytest.mark.parametrize("kind", ["replaced", "appeared"])
def test_a_denied_path_that_changes_outside_stays_denied(
    shared: Workspace, places: Path, session: str, kind: str
) -> None:
    daemon, path = shared
    denied = path / "denied" if kind == "replaced" else places / "appears"
    if kind == "replaced":
        denied.write_text("old")
    configure(daemon, session, deny_read=[str(denied)])
    assert daemon.bash(f"cat {denied}", session=session)["exitCode"] == 1
    new = denied.with_suffix(".new")
    new.write_text("new")
    new.rename(denied)
    assert daemon.bash(f"cat {denied}", session=session)["stdout"] == ""
    denied.unlink()


def test_a_denied_file_stays_denied_although_its_inode_is_used_again(
    shared: Workspace, session: str
) -> None:
    daemon, path = shared
    denied, new = path / "saved", path / "saved.new"
    denied.write_text("old")
    configure(daemon, session, deny_read=[str(denied)])
    assert daemon.bash(f"cat {denied}", session=session)["exitCode"] == 1
    inode = denied.stat().st_ino
    for _ in range(20):
        new.write_text("new")
        new.rename(denied)
        if denied.stat().st_ino == inode:
            break
    assert daemon.bash(f"cat {denied}", session=session)["stdout"] == ""
    denied.unlink()


def test_a_socket_that_its_server_makes_again_stays_hidden(shared: Workspace, session: str) -> None:
    daemon, path = shared
    code = "import socket; socket.socket(socket.AF_UNIX).connect('restarted'); print('connected')"
    configure(daemon, session)
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path / "restarted"))
            server.listen()
            result = daemon.bash(f'python3 -c "{code}"', session=session)
            assert (result["stdout"], result["exitCode"]) == ("", 1)
        (path / "restarted").unlink()


def test_a_private_tmp_does_not_hide_a_workspace_below_it(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.write_text("x")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with raw_daemon("--sandbox", "workspace", cwd=workspace) as daemon:
        result = daemon.bash("touch made && ls; ls ..; ls /tmp | wc -l")
        assert result["stdout"] == "made\nworkspace\n1\n"


def test_denying_writes_below_a_private_tmp_shows_no_other_files(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "kept").mkdir(parents=True)
    for path in (tmp_path / "beside", workspace / "kept/file"):
        path.write_text("content")
    with raw_daemon(cwd=workspace) as daemon:
        # A private directory becomes read-only, and still hides the machine's directory.
        configure(daemon, "whole", deny_write=["/tmp", str(tmp_path / "absent"), "kept"])
        result = daemon.bash("ls ..; cat kept/file; touch kept/new /tmp/new made", session="whole")
        assert result["stdout"] == "absent\nworkspace\ncontent"
        # The workspace also becomes read-only, because denying a directory denies everything below
        # it.
        assert result["stderr"].count("Read-only") == 3, result
        assert os.listdir(workspace) == ["kept"]
        # In the mode read-only, protected files can still be read.
        configure(daemon, "read-only", mode="read-only", deny_write=["kept", "kept/file"])
        assert daemon.bash("cat kept/file", session="read-only")["stdout"] == "content"


@pytest.mark.parametrize("member", ["deny_read", "deny_write"])
@pytest.mark.parametrize("denied", ["/run", "/var", "/tmp", "/usr/share"])
def test_directories_of_the_system_can_be_denied(
    shared: Workspace, session: str, member: str, denied: str
) -> None:
    # Some of these directories contain files that shelld itself needs in a sandbox.
    daemon, path = shared
    configure(daemon, session, **{member: [denied]})
    command = f"echo kept > {path}/kept; touch {denied}/new; ls {denied}; x=1"
    result = daemon.bash(command, session=session)
    assert (path / "kept").read_text() == "kept\n"
    assert "cannot touch" in result["stderr"], result
    if member == "deny_read":
        # A private directory shows no file of the machine except the files that shelld needs.
        assert result["stdout"] in ("", "shelld\n")
    assert daemon.bash("echo $x", session=session)["stdout"] == "1\n"


def test_a_directory_that_the_user_cannot_read_can_be_denied(
    places: Path, unprivileged: dict[str, Any]
) -> None:
    who = {key: unprivileged[key] for key in ("user", "group", "extra_groups")}
    if problem := why_impossible(**who):
        pytest.skip(problem)
    path = places / "unreadable"
    (path / "closed").mkdir(parents=True)
    os.chown(path, unprivileged["user"], unprivileged["group"])
    (path / "closed").chmod(0o700)
    popen: dict[str, Any] = {**unprivileged, "cwd": path}
    with raw_daemon(**popen) as daemon:
        configure(daemon, "main", deny_read=["closed"], deny_write=["/root"])
        result = daemon.bash("ls closed; mv closed moved; echo ran")
        assert result["stdout"] == "ran\n"
        assert os.listdir(path) == ["closed"]


# -- tightening -------------------------------------------------------------------------------


def test_a_call_tightens_its_session(shared: Workspace, session: str) -> None:
    daemon, path = shared
    configure(daemon, session, network="loopback")
    tight = {"session": session, "sandbox": {"mode": "read-only", "network": "none"}}
    daemon.bash("x=session", session=session)
    result = daemon.bash("echo $x; x=call; echo new > tightened", **tight)
    assert result["stdout"] == "session\n"
    assert "Read-only" in result["stderr"]
    # If the session kept this state, a later command could run a function of this command in a
    # looser sandbox.
    assert (result["stateKept"], result["stateReason"]) == (False, "sandbox")
    assert (result["sandbox"]["files"], result["sandbox"]["network"]) == ("read-only", "none")
    assert not (path / "tightened").exists()
    result = daemon.bash("echo $x", session=session)
    assert (result["stdout"], result["sandbox"]["network"]) == ("session\n", "loopback")
    # If the policy of a call allows everything that the session allows, the command runs in the
    # session's sandbox.
    assert "stateKept" not in daemon.bash("x=same", session=session, sandbox={})
    assert daemon.bash("echo $x", session=session)["stdout"] == "same\n"
    error = daemon.fail("bash", {"command": "true", "session": session, "sandbox": {"mode": "off"}})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "sandbox.mode")


def test_a_tighter_sandbox_does_not_move_its_session(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, mode="workspace", network="none")
    daemon.bash("mkdir /tmp/private; cd /tmp/private", session=session)
    # The sandbox of the call has its own /tmp, without this directory.
    params = {"command": "true", "session": session, "sandbox": {"mode": "read-only"}}
    error = daemon.fail("bash", params)
    assert error["data"] == {"kind": "spawn_failed", "errno": "ENOENT"}
    assert daemon.bash("pwd", session=session)["stdout"] == "/tmp/private\n"


def test_a_call_in_a_session_without_a_sandbox_gets_one(shared: Workspace, session: str) -> None:
    daemon, path = shared
    command = "touch() { echo planted; }; cd /; command touch /etc/new"
    result = daemon.bash(command, session=session, sandbox={"mode": "workspace"})
    assert (result["exitCode"], result["sandbox"]) == (1, ENFORCED)
    result = daemon.bash("type -t touch; pwd", session=session)
    assert "sandbox" not in result
    assert result["stdout"] == f"file\n{path}\n"


# -- refusals ---------------------------------------------------------------------------------


def test_a_policy_is_refused_after_the_first_command(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    daemon.bash("true", session=session)
    error = daemon.fail("configure_session", {"session": session, "sandbox": {}})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "session")


@pytest.mark.parametrize("policy", [{"engine": "landlock"}])
def test_a_policy_that_cannot_be_enforced_is_refused(
    shared: Workspace, session: str, policy: Json
) -> None:
    daemon, path = shared
    params = {"session": session, "sandbox": policy}
    error = daemon.fail("configure_session", params)
    assert (error["code"], error["data"]["kind"]) == (1010, "unavailable")
    # The daemon refuses the command, whether the session or the call has the policy, and nothing
    # runs.
    for more in ({"session": session}, params):
        error = daemon.fail("bash", {"command": "touch witness", **more})
        assert (error["code"], error["data"]["what"]) == (1010, "sandbox")
    assert not (path / "witness").exists()


@pytest.mark.parametrize("missing", ["bwrap", "userns"])
def test_a_missing_mechanism_is_named_and_nothing_runs(
    places: Path, tmp_path: Path, missing: str
) -> None:
    # PATH has either no bubblewrap, or a script in its place. The script fails as bubblewrap does
    # on a system without user namespaces.
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("env", "sh", "touch", "bash"):
        (programs / name).symlink_to(shutil.which(name) or "")
    if missing == "userns":
        (programs / "bwrap").write_text(
            "#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2; exit 1\n"
        )
        (programs / "bwrap").chmod(0o755)
    workspace = places / f"without-{missing}"
    workspace.mkdir()
    env = {**os.environ, "PATH": str(programs)}
    with raw_daemon("--sandbox", "workspace", cwd=workspace, env=env) as daemon:
        error = daemon.fail("bash", {"command": "touch witness"})
        assert (error["code"], error["data"]["missing"]) == (1010, missing)
        assert not (workspace / "witness").exists()


# -- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_sandbox_outlives_the_daemon(places: Path, number: int) -> None:
    with raw_daemon("--sandbox", "workspace", cwd=places, stderr_is_silent=False) as daemon:
        started = daemon.bash("setsid sleep 300 & exec sleep 300", run_in_background=True)
        os.kill(daemon.pid, number)
        daemon.wait()
        wait_for(lambda: not is_alive(started["pid"]), "the end of the sandbox")


def test_a_command_that_kills_everything_ends_only_its_sandbox(
    shared: Workspace, session: str
) -> None:
    daemon, _ = shared
    configure(daemon, session)
    outside = daemon.background("sleep 300", session=None)
    result = daemon.bash("kill -9 -1; kill -9 1 2 3; sleep 300", session=session, timeout=10_000)
    assert result["status"] in ("killed", "failed")
    assert result["leftover"] == []
    assert daemon.bash("echo next", session=session)["stdout"] == "next\n"
    listed = daemon.call("list_shells")["shells"]
    assert [each["isRunning"] for each in listed if each["bash_id"] == outside] == [True]
    daemon.call("kill_shell", {"shell_id": outside})


# -- limits -----------------------------------------------------------------------------------


def test_a_private_tmp_counts_as_memory(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    limits = {"memory_bytes": 48 * 1024 * 1024}
    params = {"session": session, "sandbox": {}, "limits": limits}
    daemon.call("configure_session", params)
    answer = daemon.answer(
        daemon.request(
            "bash",
            {"command": "head -c 100M /dev/zero > /tmp/large; echo ended", "session": session},
        )
    )
    if "error" in answer:
        # This machine has no cgroup, so nothing could limit the memory that the files in /tmp take.
        assert (answer["error"]["code"], answer["error"]["data"]["missing"]) == (1010, "a cgroup")
        return
    result = answer["result"]
    assert (result["limits"]["memory"], result["reason"]) == ("cgroup", "memory")
    result = daemon.bash("true", session=session)
    assert result["limits"]["memory"] == "cgroup"


def test_a_limit_on_processes_holds_in_a_sandbox(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    params = {"session": session, "sandbox": {}, "limits": {"processes": 5}}
    daemon.call("configure_session", params)
    crowd = "for i in {1..30}; do sleep 300 & done; wait"
    result = daemon.bash(f"timeout 10 bash -c '{crowd}'", session=session, timeout=60_000)
    assert result["reason"] == "processes", result
    assert daemon.bash("echo next", session=session)["stdout"] == "next\n"
