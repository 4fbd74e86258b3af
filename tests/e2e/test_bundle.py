"""The bundle needs only Python, on this machine and on a target to which shelld sends it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.cli.commands import SUBCOMMANDS
from ssh_server import ssh_server
from support import Json, RawDaemon, raw_daemon

pytestmark = pytest.mark.slow

# This is the interpreter of the virtual environment, but it does not see the environment's
# packages.
BARE = os.path.realpath(sys.executable)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawDaemon]:
    """A daemon that keeps its bundle in a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")
    with raw_daemon(env={**os.environ, "XDG_CACHE_HOME": str(cache)}) as daemon:
        daemon.call("ping")
        yield daemon


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "shelld.pyz"
    command = [sys.executable, "-m", "shelld", "bundle", "-o", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (made.stdout, made.stderr) == (f"{path}\n", "")
    return path


def bare_environment(home: Path, path: str = "/usr/bin:/bin") -> list[str]:
    return ["env", "-i", f"HOME={home}", f"PATH={os.path.dirname(BARE)}:{path}"]


def run_bundle(bundle: Path, *env: str) -> subprocess.CompletedProcess[str]:
    request = '{"jsonrpc": "2.0", "id": 1, "method": "bash", "params": {"command": "echo hi"}}'
    # The option -S leaves out site-packages.
    command = ["env", "-i", "PATH=/usr/bin:/bin", *env, BARE, "-I", "-S", str(bundle)]
    return subprocess.run(command, input=request, capture_output=True, text=True, check=False)


# -- the file -----------------------------------------------------------------------------------


def test_bundle_runs_with_python_alone(bundle: Path, tmp_path: Path) -> None:
    unpacked: list[str] = []
    for _ in range(2):
        done = run_bundle(bundle, f"HOME={tmp_path}")
        assert '"stdout":"hi\\n"' in done.stdout, done.stderr
        unpacked += os.listdir(tmp_path / ".cache" / "shelld")
    # The second run uses the files that the first one has unpacked.
    assert len(unpacked) == 2
    assert len(set(unpacked)) == 1
    assert os.access(bundle, os.X_OK)


@pytest.mark.parametrize("name", ["run", "shell", "completion"])
def test_bundle_says_which_commands_it_lacks(bundle: Path, tmp_path: Path, name: str) -> None:
    command = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={tmp_path}", BARE, str(bundle), name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    problem = f"a bundle has no command {name}: install shelld"
    assert (ended.returncode, ended.stderr) == (2, f"shelld: {problem}\n")
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=60, check=False).returncode == 2


@pytest.mark.parametrize("word", ["help", "--help"])
def test_help_lists_only_commands_that_the_bundle_has(
    bundle: Path, tmp_path: Path, word: str
) -> None:
    command = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={tmp_path}", BARE, str(bundle), word]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^(?:       |  )shelld ([a-z-]+)", shown, re.MULTILINE))
    assert listed == SUBCOMMANDS.keys() - {"completion", "mcp-config", "run", "shell"}


def test_bundle_starts_a_lasting_daemon(bundle: Path, tmp_path: Path) -> None:
    runtime = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [BARE, "-I", "-S", str(bundle)]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=runtime,
            timeout=60,
            check=False,
        )

    try:
        ended = run("attach", "--linger", "60")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert run("list", "--json").stdout.startswith('[{"name": "main"')
    finally:
        run("stop", "main")
    refused = run("mcp-config", "zed")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "write the configuration by hand" in refused.stderr


def test_bundle_is_unpacked_again_if_a_file_of_it_was_removed(bundle: Path, tmp_path: Path) -> None:
    run_bundle(bundle, f"HOME={tmp_path}")
    [directory] = (tmp_path / ".cache" / "shelld").iterdir()
    for removed in ("shelld/app.py", "ABOUT"):
        (directory / removed).unlink()
        assert '"stdout":"hi\\n"' in run_bundle(bundle, f"HOME={tmp_path}").stdout
        assert (directory / removed).exists()
        assert [*directory.parent.iterdir()] == [directory]


def test_bundle_without_a_home_unpacks_next_to_temporary_files(
    bundle: Path, tmp_path: Path
) -> None:
    place = ("HOME=/dev/null", f"TMPDIR={tmp_path}")
    assert '"stdout":"hi\\n"' in run_bundle(bundle, *place).stdout
    (directory,) = tmp_path.glob("shelld-*")
    # Another user might have written the files that the bundle would run.
    directory.chmod(0o777)
    refused = run_bundle(bundle, *place)
    assert refused.returncode == 2
    assert refused.stderr == "shelld: no directory for the bundle can be written\n"


def test_bundle_for_another_machine_is_refused(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(other, "w") as changed:
        changed.writestr("__main__.py", source.read("__main__.py"))
        changed.writestr("ABOUT", "c0ffee\ncpython-399 linux-abacus\n")
    refused = run_bundle(other, f"HOME={tmp_path}")
    assert refused.returncode == 2
    assert "this bundle is for cpython-399 linux-abacus, and this is " in refused.stderr


def test_same_packages_make_the_same_bundle(bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    command = [sys.executable, "-m", "shelld", "bundle", "-o", str(again)]
    subprocess.run(command, capture_output=True, check=True)
    assert again.read_bytes() == bundle.read_bytes()


def test_bundle_makes_the_same_bundle(bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    command = [*bare_environment(tmp_path), BARE, "-I", "-S", str(bundle), "bundle", "-o"]
    subprocess.run([*command, str(again)], check=True, capture_output=True)
    assert again.read_bytes() == bundle.read_bytes()


def test_bundle_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shelld", "bundle", "-o", str(tmp_path / "none" / "x")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "shelld: cannot write the bundle: No such file or directory\n"


@pytest.mark.parametrize("is_pipe", [False, True])
def test_bundle_goes_to_stdout_alone(bundle: Path, tmp_path: Path, is_pipe: bool) -> None:
    # Like /dev/stdout, this link leads to descriptor 1.
    link, file = tmp_path / "stdout", tmp_path / "file"
    link.symlink_to("/proc/self/fd/1")
    command = [sys.executable, "-m", "shelld", "bundle", "-o", str(link)]
    with file.open("wb") as out:
        stdout = subprocess.PIPE if is_pipe else out
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=True)
    assert (done.stdout if is_pipe else file.read_bytes()) == bundle.read_bytes()
    assert done.stderr == b""
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_bundle_for_stdout_goes_into_a_deleted_file(
    bundle: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "deleted"
    command = [sys.executable, "-m", "shelld", "bundle", "-o", name]
    with path.open("w+b") as file:
        path.unlink()
        subprocess.run(command, stdout=file, check=True, cwd=tmp_path)
        file.seek(0)
        assert file.read() == bundle.read_bytes()
    assert [*tmp_path.iterdir()] == []


# -- bootstraps ---------------------------------------------------------------------------------


def bootstrapped(hub: RawDaemon, argv: list[str]) -> Json:
    """Return the answer of a target to which the daemon has sent shelld."""
    hub.call("add_target", {"name": "bare", "argv": argv, "bootstrap": True})
    try:
        return hub.answer(hub.request("bash", {"command": "echo $HOME", "target": "bare"}))
    finally:
        hub.call("remove_target", {"name": "bare"})


@pytest.mark.parametrize("end", [[], ["sh"], ["bash", "--norc"], [BARE, "-I"]])
def test_shelld_is_sent_to_a_bare_python(hub: RawDaemon, tmp_path: Path, end: list[str]) -> None:
    for _ in range(2):
        answer = bootstrapped(hub, [*bare_environment(tmp_path), *end])
        assert "error" not in answer, answer
        assert answer["result"]["stdout"] == f"{tmp_path}\n"
        # The second time, the target already has the bundle.
        assert len(os.listdir(tmp_path / ".cache" / "shelld")) == 1


def test_commands_of_a_bare_python_have_the_environment_of_the_target(
    hub: RawDaemon, tmp_path: Path
) -> None:
    # Python must not import this module from its working directory.
    (tmp_path / "tempfile.py").write_text("raise SystemExit(5)\n")
    startup = tmp_path / "startup.py"
    startup.write_text("raise SystemExit(5)\n")
    env = [*bare_environment(tmp_path), f"PYTHONSTARTUP={startup}"]
    argv = ["sh", "-c", 'cd "$0" && exec "$@"', str(tmp_path), *env, BARE]
    hub.call("add_target", {"name": "plain", "argv": argv, "bootstrap": True})
    found = hub.bash("echo [$LINES$COLUMNS]", target="plain")
    assert found["stdout"] == "[]\n"
    hub.call("remove_target", {"name": "plain"})


@pytest.mark.parametrize("end", [[], [BARE]], ids=["sh", "python"])
@pytest.mark.parametrize("given", [[], ["LC_CTYPE=POSIX"]], ids=["unset", "set"])
def test_commands_of_a_bundle_have_the_locale_of_the_target(
    hub: RawDaemon, tmp_path: Path, given: list[str], end: list[str]
) -> None:
    # In the C locale, the Python that unpacks the bundle sets LC_CTYPE for its children.
    argv = [*bare_environment(tmp_path), *given, *end]
    hub.call("add_target", {"name": "plain", "argv": argv, "bootstrap": True})
    found = hub.bash("printenv LC_CTYPE", target="plain")["stdout"].split()
    hub.call("remove_target", {"name": "plain"})
    assert [f"LC_CTYPE={each}" for each in found] == given


def test_error_tells_which_python_the_target_has(hub: RawDaemon, tmp_path: Path) -> None:
    error = bootstrapped(hub, ["env", "-i", "PATH=/nowhere", "/bin/sh"])["error"]
    assert (error["code"], error["data"]["found"]) == (1010, "no Python")
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] || exit 1\necho Python 3.8.1\n')
    old.chmod(0o755)
    error = bootstrapped(hub, ["env", "-i", f"PATH={tmp_path}", "/bin/sh"])["error"]
    assert (error["code"], error["data"]["found"]) == (1010, "Python 3.8.1")
    assert error["data"]["missing"] == f"Python {sys.version_info[0]}.{sys.version_info[1]}"


def test_error_names_a_target_that_can_store_nothing(hub: RawDaemon) -> None:
    argv = [*bare_environment(Path("/dev/null")), "TMPDIR=/dev/null", "sh"]
    error = bootstrapped(hub, argv)["error"]
    assert (error["code"], error["data"]["missing"]) == (1010, "a place for the bundle")


def test_error_quotes_a_program_that_is_no_shell(hub: RawDaemon) -> None:
    error = bootstrapped(hub, ["sh", "-c", "echo denied >&2; exit 255", "sh"])["error"]
    assert (error["code"], error["data"]["text"]) == (1011, "denied")


def test_shelld_is_sent_over_ssh(hub: RawDaemon, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with ssh_server(tmp_path) as ssh:
        argv = [*ssh, shlex.join(bare_environment(home))]
        assert bootstrapped(hub, argv)["result"]["stdout"] == f"{home}\n"


def test_bootstrap_option_sends_shelld_to_a_target(tmp_path: Path) -> None:
    line = shlex.join(bare_environment(tmp_path))
    options = [f"--bootstrap=bare={line}", "--target=other=true"]
    with raw_daemon(*options, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}) as daemon:
        listed = daemon.call("list_targets")["targets"]
        assert [(each["name"], each.get("bootstrap", False)) for each in listed] == [
            ("other", False),
            ("bare", True),
        ]
        assert daemon.bash("echo hi", target="bare")["stdout"] == "hi\n"
    # Two targets cannot have the same name.
    with raw_daemon(f"--bootstrap=bare={line}", "--target=bare=true", stderr_is_silent=False) as x:
        assert x.wait() == 2
