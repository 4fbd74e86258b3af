"""The scripts of GNU bash's test suite, as commands, have the same results as in ``bash -c``.

The suite has another licence and is not part of this repository. The test downloads bash's source
package from the system's package sources, and uses it in a temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shelld_client import Client, CommandTimedOut
from shelld_protocol.shell_methods import BashResult
from support import children

pytestmark = pytest.mark.long

FETCH_TIMEOUT_S = 180
SCRIPT_TIMEOUT_S = 120
# Some outputs differ between two runs of plain bash, so they may also differ here.
ATTEMPTS = 4
WORKERS = 4

# These scripts differ only in a session; docs/sessions.md explains why.
DOCUMENTED_DIFFERENCES = frozenset(
    (
        # The script lists BASH_ARGC, which a bash with a startup file has from its start.
        "array as text",
        # With `set -T`, a DEBUG trap also runs in the function that replaces `trap`.
        "dbg-support sourced",
        "dbg-support as text",
        "dbg-support2 sourced",
        "dbg-support2 as text",
    )
)


class Script(NamedTuple):
    name: str
    command: str


class Outcome(NamedTuple):
    stdout: str
    stderr: str
    code: int


def fetched(place: Path) -> Path:
    """Return the directory of the suite, or skip the test with the reason."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get, with which the sources of bash could be fetched")
    parts = place / "parts"
    for directory in (parts, place / "lists" / "partial", place / "cache/archives/partial"):
        directory.mkdir(parents=True)
    for listed in Path("/etc/apt").glob("sources.list.d/*.sources"):
        text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", listed.read_text())
        (parts / listed.name).write_text(text)
    for listed in (Path("/etc/apt/sources.list"), *Path("/etc/apt").glob("sources.list.d/*.list")):
        if listed.exists():
            text = re.sub(r"(?m)^deb\s", "deb-src ", listed.read_text())
            (parts / listed.with_suffix(".list").name).write_text(text)
    options = {
        "Dir::Etc::sourcelist": os.devnull,
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root",
    }
    arguments = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    for command in (["update"], ["source", "--download-only", "bash"]):
        try:
            subprocess.run(
                ["apt-get", *arguments, *command],
                cwd=place,
                capture_output=True,
                timeout=FETCH_TIMEOUT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"the sources of bash cannot be fetched: {error}")
    archives = list(place.glob("bash_*.orig.tar.*"))
    if not archives:
        pytest.skip("the source package of bash has no archive of that name")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(place / "source", filter="data")
    (suite,) = (place / "source").glob("*/tests")
    if compiler := shutil.which("cc"):
        for program in ("recho", "zecho"):
            source = suite.parent / "support" / f"{program}.c"
            flags = ["-w", "-DHAVE_STRING_H", "-DHAVE_STDLIB_H", f"-I{suite.parent}"]
            subprocess.run(
                [compiler, *flags, "-o", suite / program, source], capture_output=True, check=False
            )
    return suite


class Place:
    """A copy of the suite. Each run gets a new copy, because scripts leave files behind."""

    def __init__(self, suite: Path, root: Path) -> None:
        self._suite = suite
        self.directory = root / "suite"
        self.home = root / "home"
        self._temporary = root / "tmp"
        self.environment = {
            "PATH": f"{self.directory}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self._temporary),
            "BASH_TSTOUT": str(self._temporary / "out"),
            "THIS_SH": "/bin/bash",
            "LC_ALL": "C.UTF-8",
            "SHLVL": "1",
        }

    def renew(self) -> None:
        for directory in (self.directory, self.home, self._temporary):
            shutil.rmtree(directory, ignore_errors=True)
        for directory in (self.home, self._temporary):
            directory.mkdir(parents=True)
        shutil.copytree(self._suite, self.directory, symlinks=True)

    def by_bash(self, command: str) -> Outcome:
        self.renew()
        done = subprocess.run(
            ["bash", "-c", command],
            executable="/bin/bash",
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            timeout=SCRIPT_TIMEOUT_S,
            check=False,
        )
        stdout, stderr = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
        return Outcome(stdout, stderr, done.returncode)

    def by_daemon(self, client: Client, command: str, session: str | None) -> Outcome:
        self.renew()
        result = client.bash(
            command,
            session=session,
            cwd=str(self.directory),
            strip_ansi=False,
            timeout=SCRIPT_TIMEOUT_S * 1000,
        )
        assert isinstance(result, BashResult)
        if result.leftover:
            client.kill_shell(result.bash_id, grace=0)
        if session is not None:
            client.close_session(session)
        code = -signal.Signals[result.signal] if result.signal else result.exit_code
        assert code is not None
        return Outcome(result.stdout, result.stderr, code)


def without_numbers(text: str) -> str:
    """Return text without pids and times."""
    text = re.sub(r"\b\d{3,}\b", "N", text)
    return re.sub(r"\d+[.:]\d+", "T", text)


def equal(one: Outcome, other: Outcome) -> bool:
    return one == other or (
        one.code == other.code
        and without_numbers(one.stdout) == without_numbers(other.stdout)
        and without_numbers(one.stderr) == without_numbers(other.stderr)
    )


def differences(suite: Path, root: Path, scripts: list[Script]) -> dict[str, list[str]]:
    """Return the names of the scripts whose outcomes differ, for commands without and with a
    session.
    """
    found: dict[str, list[str]] = {"none": [], "session": []}
    waiting: queue.SimpleQueue[Script] = queue.SimpleQueue()
    for script in scripts:
        waiting.put(script)

    def differs(place: Place, client: Client, script: Script, session: str | None) -> bool:
        expected: list[Outcome] = []
        found: list[Outcome] = []
        for _ in range(ATTEMPTS):
            try:
                expected.append(place.by_bash(script.command))
            except subprocess.TimeoutExpired:
                # Some scripts wait for a terminal, so there is nothing to compare.
                return False
            with contextlib.suppress(CommandTimedOut):
                found.append(place.by_daemon(client, script.command, session))
            # Some scripts are also races in plain bash, so accept any outcome that plain bash had.
            if any(equal(one, other) for one in expected for other in found):
                return False
        return True

    def work(number: int) -> None:
        place = Place(suite, root / str(number))
        place.renew()
        options = ("--guard", "off", "--spare-shells", "0")
        home = str(place.home)
        with Client.spawn(args=options, env=place.environment, cwd=home) as client:
            while not waiting.empty():
                try:
                    script = waiting.get_nowait()
                except queue.Empty:
                    break
                if differs(place, client, script, None):
                    found["none"].append(script.name)
                if differs(place, client, script, script.name):
                    found["session"].append(script.name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reap()
    return found


def reap() -> None:
    """Kill and reap the processes that plain bash left behind. They became children of this
    process.
    """
    for pid in children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass


def scripts_of(suite: Path) -> Iterator[Script]:
    """Yield each script as a file to source, and as a command if a request can hold it."""
    for path in sorted(suite.glob("*.tests")):
        yield Script(f"{path.stem} sourced", f". ./{path.name}")
        with contextlib.suppress(UnicodeDecodeError):
            yield Script(f"{path.stem} as text", path.read_text("utf-8"))


@pytest.mark.timeout(3600)
def test_bash_suite_output_equals_bash(tmp_path: Path) -> None:
    suite = fetched(tmp_path)
    scripts = list(scripts_of(suite))
    assert len(scripts) > 100
    found = differences(suite, tmp_path, scripts)

    assert found["none"] == []
    assert set(found["session"]) <= DOCUMENTED_DIFFERENCES
