from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from leaks import Resources, assert_nothing_new_since
from oracles import Freezer
from shared_daemon import SharedDaemon
from shelld.embed import ShellManager
from shelld.keeper.tree import become_subreaper
from shelld.tools import ToolRegistry
from support import RawDaemon

ROOT = Path(__file__).parents[1]

# How long something takes says nothing here: other tests run at the same time.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Of nobody: whatever is done to its processes is done to those of the test.
UNPRIVILEGED_UID = 64_999


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One that nobody else puts anything into."""
    directory = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(autouse=True)
def leaks_nothing(own_temporary_directory: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes every test a test of what it leaves behind."""
    if "shared_daemon" in request.fixturenames:
        # It outlives the test, so it starts before.
        request.getfixturevalue("shared_daemon").get()
    before = Resources.now()
    yield
    assert_nothing_new_since(before)


@pytest.fixture(autouse=True)
def own_singletons(leaks_nothing: None) -> Iterator[None]:
    """No test sees what another has registered, or its shells."""
    yield
    # An event loop for each test would take as long as most of them.
    if vars(ShellManager)["_instance"] is not None:
        anyio.run(ShellManager.reset)
    ToolRegistry.reset()


def pytest_configure() -> None:
    become_subreaper()


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[SharedDaemon]:
    shared = SharedDaemon()
    yield shared
    shared.close()


@pytest.fixture
def daemon(shared_daemon: SharedDaemon) -> Iterator[RawDaemon]:
    """A daemon with default options, which the tests of a module share."""
    yield shared_daemon.get()
    shared_daemon.tidy()


@pytest.fixture
def new_daemon() -> Iterator[RawDaemon]:
    """A daemon for a test that ends it, changes it for good, or reads its counters."""
    shared = SharedDaemon()
    yield shared.get()
    shared.close()


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    """What stands in for a process in an uninterruptible system call."""
    if not Freezer.is_possible():
        pytest.skip("needs a writable cgroup v1 freezer")
    freezer = Freezer()
    yield freezer
    freezer.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can enter. Each start of pytest closes its own to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="session")
def unprivileged() -> dict[str, Any]:
    """Arguments for a `RawDaemon` of an ordinary user that has no other processes."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user that has no other processes")
    if os.stat(os.devnull).st_mode & 0o006 != 0o006:
        pytest.skip("needs a /dev/null that every user may open")
    folders = [str(ROOT / name) for name in ("protocol", "daemon")]
    path = os.pathsep.join([*folders, sysconfig.get_path("purelib")])
    popen: dict[str, Any] = {
        "env": {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": "/"},
        "cwd": "/",
        "user": UNPRIVILEGED_UID,
        "group": UNPRIVILEGED_UID,
        "extra_groups": [],
    }
    # The interpreter of a virtual environment is often in somebody's home.
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = [python, "-c", "import shelld.app, sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            subprocess.run(check, **popen, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return {"command": [python, "-P", "-m", "shelld"], **popen}
    pytest.skip("no Python that an unprivileged user can run has what the daemon needs")
