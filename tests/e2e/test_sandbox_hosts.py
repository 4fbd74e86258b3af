"""Commands in a sandbox can reach the listed hosts only through the proxy of the sandbox."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandboxes import Workspace, configure, served, why_impossible
from shelld.keeper.proc import info_of
from support import Json, altered_daemon, is_alive, raw_daemon, running_below, wait_for

pytestmark = pytest.mark.slow

PROXY = "shelld.proxy.main"

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)
if shutil.which("curl") is None:
    pytest.skip("needs curl", allow_module_level=True)


@pytest.fixture(scope="module")
def registry(places: Path) -> Iterator[tuple[Path, int]]:
    path = places / "registry"
    path.mkdir()
    (path / "file").write_text("content\n")
    with served(path) as port:
        yield path, port


@pytest.fixture(scope="module")
def shared(places: Path) -> Iterator[Workspace]:
    path = places / "workspace"
    path.mkdir()
    with raw_daemon(cwd=path) as daemon:
        yield Workspace(daemon, path)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def denied(host: str, port: int, count: int = 1, reason: str = "not_listed") -> Json:
    return {"kind": "network", "host": host, "port": port, "count": count, "reason": reason}


# -- what works -------------------------------------------------------------------------------


def test_only_listed_hosts_are_reached(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    hosts = [f"127.0.0.1:{port}", "*.example.org:443"]
    shown = configure(daemon, session, network="hosts", hosts=hosts)["sandbox"]
    assert (shown["network"], shown["hosts"]) == ("hosts", sorted(hosts))
    fetch = f"curl -sS http://127.0.0.1:{port}/file"
    result = daemon.bash(f"{fetch}; {fetch} -p; {fetch} -d posted", session=session)
    assert result["stdout"] == "content\ncontent\nposted"
    assert result["sandbox"]["network"] == "hosts"
    assert "denied" not in result
    # For a URL with https, curl shows only the status code of the refusal.
    refused = "curl -sS https://example.org https://pypi.org http://127.0.0.1:1; true"
    result = daemon.bash(f"{refused}; {refused}", session=session)
    assert result["stderr"].count("403") == 4
    assert result["stdout"] == "shelld refuses 127.0.0.1:1: it is not in hosts\n" * 2
    assert result["denied"] == [
        *(denied("example.org", 443, 2), denied("pypi.org", 443, 2), denied("127.0.0.1", 1, 2))
    ]
    # Without the proxy, the command reaches no host.
    result = daemon.bash(f"{fetch} --noproxy '*'", session=session)
    assert "Could not connect" in result["stderr"] or "Failed to connect" in result["stderr"]
    assert "denied" not in result


def test_long_bodies_arrive_unchanged(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    configure(daemon, session, network="hosts", hosts=[f"127.0.0.1:{port}"])
    # curl asks for 100 Continue before it sends a body of this size.
    send = f"curl -sS -H 'Expect: 100-continue' --data-binary @sent http://127.0.0.1:{port}/"
    command = f"head -c 5M /dev/urandom > sent; for how in '' -p; do {send} $how | cmp - sent; done"
    result = daemon.bash(command, session=session)
    assert (result["stdout"], result["stderr"], result["exitCode"]) == ("", "", 0)


def test_proxy_speaks_socks(shared: Workspace, session: str, registry: tuple[Path, int]) -> None:
    daemon, _ = shared
    _, port = registry
    configure(daemon, session, network="hosts", hosts=[f"127.0.0.1:{port}", f"localhost:{port}"])
    for scheme in ("socks5", "socks5h"):
        proxy = f"env -u no_proxy -u NO_PROXY curl -sS -x {scheme}://127.0.0.1:3128"
        result = daemon.bash(f"{proxy} http://127.0.0.1:{port}/file", session=session)
        assert result["stdout"] == "content\n", result
        result = daemon.bash(f"{proxy} http://10.1.2.3/", session=session)
        assert result["denied"] == [denied("10.1.2.3", 80)]
    # The name is listed, and its address as well.
    result = daemon.bash(f"{proxy} http://localhost:{port}/file", session=session)
    assert result["stdout"] == "content\n", result


def test_a_listed_name_does_not_open_a_private_address(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    configure(daemon, session, network="hosts", hosts=[f"localhost:{port}"])
    result = daemon.bash(f"curl -sS http://localhost:{port}/file", session=session)
    assert result["denied"] == [denied("localhost", port, reason="private_address")]


def test_pip_downloads_from_a_listed_index(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, path = shared
    directory, port = registry
    wheel = directory / "simple/shown/shown-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    info = "shown-1.0.dist-info"
    contents = {
        "shown.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: shown\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(wheel, "w") as file:
        lines: list[str] = []
        for name, text in contents.items():
            file.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            lines.append(f"{name},sha256={digest.rstrip(b'=').decode()},{len(text)}\n")
        file.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")
    wheel.with_name("index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    configure(daemon, session, network="hosts", hosts=[f"127.0.0.1:{port}"])
    pip = f"{sys.executable} -m pip download --isolated --disable-pip-version-check --no-cache-dir"
    index = f"--index-url http://127.0.0.1:{port}/simple/ --trusted-host 127.0.0.1"
    result = daemon.bash(f"{pip} -q -d got {index} shown", session=session)
    assert result["exitCode"] == 0, result
    assert (path / "got" / wheel.name).read_bytes() == wheel.read_bytes()
    index = "--index-url https://pypi.invalid/simple/ --retries 1"
    result = daemon.bash(f"{pip} {index} shown", session=session)
    assert result["exitCode"] == 1
    assert "shelld refuses pypi.invalid:443" in result["stderr"]
    assert [each["host"] for each in result["denied"]] == ["pypi.invalid"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_clones_from_a_listed_host(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, path = shared
    directory, port = registry
    bare = directory / "repository.git"
    source = directory / "source"

    def git(*words: object) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        command = ["git", *names, *map(str, words)]
        subprocess.run(command, check=True, capture_output=True)

    git("init", source)
    (source / "file").write_text("cloned")
    git("-C", source, "add", "file")
    git("-C", source, "commit", "-m", "A file")
    git("clone", "--bare", source, bare)
    git("-C", bare, "update-server-info")
    configure(daemon, session, network="hosts", hosts=[f"127.0.0.1:{port}"])
    url = f"http://127.0.0.1:{port}/repository.git"
    result = daemon.bash(f"git clone -q {url} cloned", session=session)
    assert result["exitCode"] == 0, result
    assert (path / "cloned/file").read_text() == "cloned"


def test_servers_in_the_sandbox_are_reached_directly(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    result = daemon.bash("echo $no_proxy", session=session)
    assert result["stdout"] == "localhost,127.0.0.1,::1\n"
    serve = (
        "echo own > own; python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!"
    )
    fetch = "curl -sS --retry 50 --retry-connrefused --retry-delay 0 http://127.0.0.1:8123/own"
    result = daemon.bash(f"{serve}; {fetch}; kill $server; wait", session=session)
    assert result["stdout"] == "own\n", result
    assert "denied" not in result


def test_spare_shells_have_the_proxy(places: Path, registry: tuple[Path, int]) -> None:
    _, port = registry
    policy = places / "policy.toml"
    policy.write_text(f'network = "hosts"\nhosts = ["127.0.0.1:{port}"]\n')
    workspace = places / "spares"
    workspace.mkdir()
    with raw_daemon("--sandbox", str(policy), cwd=workspace) as daemon:

        def spare_is_used() -> bool:
            result = daemon.bash(f"curl -sS http://127.0.0.1:{port}/file http://127.0.0.1:1")
            assert result["stdout"].startswith("content\n")
            assert result["denied"] == [denied("127.0.0.1", 1)]
            # The daemon does not know which command made these attempts, but it must not report
            # them for the next command.
            daemon.bash(
                "for i in {1..20}; do printf 'CONNECT x.invalid:1 HTTP/1.1\r\n\r\n' "
                "> /dev/tcp/127.0.0.1/3128; done; curl -s http://127.0.0.1:1"
            )
            used: int = daemon.call("server_info")["counters"]["sparesUsed"]
            return used > 3

        wait_for(spare_is_used, "spare shells")


# -- reports of refusals ---------------------------------------------------------------------


def test_a_result_lists_the_hosts_refused_to_its_command(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])

    def ask(host: str) -> Any:
        command = f"for i in 1 2 3; do curl -s http://{host}/; done; read -t 1 <> <(:); true"
        return daemon.request("bash", {"command": command, "session": session})

    asked = {f"host{number}.invalid": ask(f"host{number}.invalid") for number in range(4)}
    for host, number in asked.items():
        assert daemon.answer(number)["result"]["denied"] == [denied(host, 80, 3)]


def test_a_read_lists_the_refused_hosts_of_a_running_command(
    shared: Workspace, session: str
) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    command = "curl -s http://one.invalid/; (curl -s http://two.invalid/); exec sleep 300"
    shell = daemon.background(command, session=session)
    read: Json = {"bash_id": shell, "wait": 60_000, "until": "match", "pattern": "two.invalid"}
    result = daemon.call("bash_output", read)
    assert result["denied"] == [denied("one.invalid", 80), denied("two.invalid", 80)]
    daemon.call("kill_shell", {"shell_id": shell})


def test_a_timeout_error_lists_the_refused_hosts(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    command = "curl -s http://one.invalid/; sleep 300"
    error = daemon.fail("bash", {"command": command, "session": session, "timeout": 5_000})
    assert error["data"]["denied"] == [denied("one.invalid", 80)]


def test_a_tool_result_lists_the_refused_hosts(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    line = (
        "[The sandbox refused one.invalid:80 (2 times), two.invalid:80: commands reach only the "
        "hosts of its policy]"
    )
    command = "curl -s one.invalid one.invalid two.invalid >/dev/null; true"
    params: Json = {"name": "Bash", "arguments": {"command": command}}
    params["context"] = {"session_id": session}
    result = daemon.call("call_tool", params)
    assert line in result["output"].splitlines()
    assert [each["host"] for each in result["metadata"]["denied"]] == ["one.invalid", "two.invalid"]
    params["name"], params["arguments"] = "BashOutput", {"bash_id": result["metadata"]["bash_id"]}
    result = daemon.call("call_tool", params)
    assert line in result["output"].splitlines()
    assert len(result["metadata"]["denied"]) == 2


def test_refused_hosts_after_the_first_100_are_counted_together(
    shared: Workspace, session: str
) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    code = (
        "import socket\n"
        "for number in range(130):\n"
        "    with socket.create_connection(('127.0.0.1', 3128)) as sock:\n"
        "        sock.sendall(b'CONNECT host%d.invalid:1 HTTP/1.1\\r\\n\\r\\n' % number)\n"
        "        sock.recv(1000)\n"
    )
    result = daemon.bash("python3 -", session=session, stdin=code)
    assert result["exitCode"] == 0, result
    assert len(result["denied"]) == 101
    assert result["denied"][-1] == denied("*", 0, 30)


# -- tightening -------------------------------------------------------------------------------


def test_a_call_tightens_the_hosts(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    fetch = f"curl -sS http://127.0.0.1:{port}/file"
    configure(daemon, session, network="hosts", hosts=["127.0.0.1", "*.example.org"])
    for given in ([], ["a.example.org"]):
        result = daemon.bash(fetch, session=session, sandbox={"hosts": given})
        # 127.0.0.1 is not listed, so it is the loopback of the sandbox.
        assert result["exitCode"] != 0
        assert result["sandbox"]["network"] == "hosts"
    policy = {"hosts": [f"127.0.0.1:{port}"]}
    assert daemon.bash(fetch, session=session, sandbox=policy)["stdout"] == "content\n"
    result = daemon.bash(fetch, session=session, sandbox={"network": "none"})
    assert (result["exitCode"] != 0, result["sandbox"]["network"]) == (True, "none")
    # Without a proxy, the environment has no variable for a proxy.
    lookup = "env | grep -ci _proxy"
    for network, count in (("none", "0\n"), ("hosts", "8\n")):
        result = daemon.bash(lookup, session=session, sandbox={"network": network})
        assert result["stdout"] == count
    for looser in ({"hosts": ["example.org"]}, {"hosts": ["10.0.0.1"]}, {"network": "full"}):
        params = {"command": "true", "session": session, "sandbox": looser}
        error = daemon.fail("bash", params)
        assert (error["code"], error["data"]["parameter"]) == (
            *(-32602, f"sandbox.{next(iter(looser))}"),
        )


def test_a_call_in_a_session_without_a_sandbox_finds_the_proxy(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    policy = {"network": "hosts", "hosts": [f"127.0.0.1:{port}"]}
    command = f"curl -sS http://127.0.0.1:{port}/file https://pypi.org"
    result = daemon.bash(command, session=session, sandbox=policy)
    assert result["stdout"] == "content\n"
    assert result["denied"] == [denied("pypi.org", 443)]
    assert daemon.bash("echo $https_proxy", session=session)["stdout"] == "\n"


# -- failures ---------------------------------------------------------------------------------


def test_a_killed_proxy_is_replaced_and_lets_nothing_through(
    places: Path, registry: tuple[Path, int]
) -> None:
    _, port = registry
    workspace = places / "killed"
    workspace.mkdir()
    with raw_daemon(cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[f"127.0.0.1:{port}"])
        fetch = f"curl -sS http://127.0.0.1:{port}/file http://127.0.0.1:1"
        for has_parent_killed in (False, False, True):
            for pid in running_below(daemon.pid, PROXY):
                with suppress(ProcessLookupError):
                    # The parent of the proxy is a runner, and the proxy ends with the runner.
                    os.kill(info_of(pid).parent if has_parent_killed else pid, signal.SIGKILL)
            # The connection waits until the next proxy runs.
            result = daemon.bash(fetch)
            assert result["stdout"].startswith("content\n"), result
            assert result["denied"] == [denied("127.0.0.1", 1)]
        assert len(running_below(daemon.pid, PROXY)) == 1


def test_without_a_proxy_nothing_runs(places: Path) -> None:
    workspace = places / "without"
    workspace.mkdir()
    program = altered_daemon({"shelld.proxy.process._BOOT": "raise SystemExit"})
    with raw_daemon(cwd=workspace, command=program) as daemon:
        params: Json = {"session": "main", "sandbox": {"network": "hosts", "hosts": []}}
        for error in (
            daemon.fail("configure_session", params),
            daemon.fail("bash", {"command": "touch witness"}),
        ):
            assert (error["code"], error["data"]["missing"]) == (1010, "its proxy")
        assert not (workspace / "witness").exists()
        # A sandbox that lists no hosts needs no proxy.
        result = daemon.bash("true", session=None, sandbox={"network": "loopback"})
        assert result["sandbox"]["network"] == "loopback"


def test_a_proxy_ends_with_its_sandbox(places: Path) -> None:
    workspace = places / "ended"
    workspace.mkdir()
    with raw_daemon(cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[])
        assert len(running_below(daemon.pid, PROXY)) == 1
        for pid in running_below(daemon.pid, "shelld.keeper.inside"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not running_below(daemon.pid, PROXY), "the end of the proxy")
        assert daemon.bash("true")["sandbox"]["network"] == "hosts"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_proxy_does_not_outlive_the_daemon(places: Path, number: int) -> None:
    workspace = places / f"outlived-{number}"
    workspace.mkdir()
    with raw_daemon(cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[])
        pids = running_below(daemon.pid, PROXY)
        assert pids
        os.kill(daemon.pid, number)
        daemon.wait()
        wait_for(lambda: not any(map(is_alive, pids)), "the end of the proxy")


def test_commands_cannot_reach_the_proxy_itself(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    result = daemon.bash("cat /proc/*/cmdline | tr '\\0' ' '; kill -9 -1", session=session)
    assert PROXY not in result["stdout"]
    assert running_below(daemon.pid, PROXY)


def test_hostile_clients_harm_neither_the_daemon_nor_others(
    shared: Workspace, session: str, registry: tuple[Path, int]
) -> None:
    daemon, _ = shared
    _, port = registry
    configure(daemon, session, network="hosts", hosts=[f"127.0.0.1:{port}"])
    code = (
        "import os, socket\n"
        "held = []\n"
        "for number in range(150):\n"
        "    sock = socket.create_connection(('127.0.0.1', 3128))\n"
        "    sock.sendall(os.urandom(200) if number % 2 else b'GET ')\n"
        "    held.append(sock)\n"
        "print('held', flush=True)\n"
        "input()\n"
    )
    shell = daemon.background(f"exec python3 -c '{code}'", session=session, open_stdin=True)
    read: Json = {"bash_id": shell, "wait": 60_000, "until": "match", "pattern": "held"}
    daemon.call("bash_output", read)
    result = daemon.bash(f"curl -sS http://127.0.0.1:{port}/file", session=session)
    assert result["stdout"] == "content\n", result
    daemon.call("kill_shell", {"shell_id": shell})


def test_an_ordinary_user_reaches_the_listed_hosts(
    places: Path, unprivileged: dict[str, Any], registry: tuple[Path, int]
) -> None:
    who = {key: unprivileged[key] for key in ("user", "group", "extra_groups")}
    if problem := why_impossible(**who):
        pytest.skip(problem)
    _, port = registry
    workspace = places / "ordinary"
    workspace.mkdir()
    os.chown(workspace, unprivileged["user"], unprivileged["group"])
    popen: dict[str, Any] = {**unprivileged, "cwd": workspace}
    with raw_daemon(**popen) as daemon:
        configure(daemon, "main", network="hosts", hosts=[f"127.0.0.1:{port}"])
        # Two commands run at once, and the proxy finds the owner of each connection.
        waits = f"curl -sS http://127.0.0.1:{port}/file; curl -s http://{{}}.invalid/; sleep 0.3"
        asked = {
            name: daemon.request("bash", {"command": waits.format(name)}) for name in ("one", "two")
        }
        for name, number in asked.items():
            result = daemon.answer(number)["result"]
            assert result["stdout"].startswith("content\n"), result
            assert result["denied"] == [denied(f"{name}.invalid", 80)]


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "parameter"),
    [
        ({"network": "hosts"}, "sandbox.hosts"),
        ({"network": "hosts", "hosts": ["https://pypi.org"]}, "sandbox.hosts"),
        ({"network": "hosts", "hosts": ["*"]}, "sandbox.hosts"),
        ({"network": "none", "hosts": ["pypi.org"]}, "sandbox.hosts"),
        ({"hosts": ["pypi.org"]}, "sandbox.hosts"),
    ],
)
def test_an_invalid_policy_is_refused(
    shared: Workspace, session: str, policy: Json, parameter: str
) -> None:
    error = shared.daemon.fail("configure_session", {"session": session, "sandbox": policy})
    assert (error["code"], error["data"]["parameter"]) == (-32602, parameter)


@pytest.mark.skipif(platform.system() != "Linux", reason="needs /proc")
def test_the_proxy_has_no_environment(shared: Workspace, session: str) -> None:
    daemon, _ = shared
    configure(daemon, session, network="hosts", hosts=[])
    for pid in running_below(daemon.pid, PROXY):
        names = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        allowed = (b"LD_LIBRARY_PATH=", b"LOCALDOMAIN=", b"RES_OPTIONS=")
        assert all(not name or name.startswith(allowed) for name in names)
