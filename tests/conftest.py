from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from leaks import Resources, assert_nothing_new_since
from oracles import Freezer
from sandboxes import directory_for_workspaces
from shared_daemon import SharedDaemon
from shelld.embed import ShellManager
from shelld.keeper.prctl import become_subreaper
from shelld.tools import ToolRegistry
from support import RawDaemon

ROOT = Path(__file__).parents[1]

# Set no Hypothesis deadlines, because tests that run at the same time slow each other down.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Only one worker of pytest uses this uid. The kernel counts all processes of a user together, so
# the limits of a test must not count the processes of another worker.
UNPRIVILEGED_UID = 64_900 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

# Where CI's time is limited, no slow test starts after this time (s since the epoch).
SLOW_TESTS_UNTIL = float(os.environ.get("SLOW_TESTS_UNTIL", "inf"))
# If given, this decides on the order of the test files, and so on which tests are left out.
ORDER_OF_TESTS = os.environ.get("ORDER_OF_TESTS")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a temporary directory that nobody else writes to."""
    directory = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", None)
        # Without this variable, npm would leave a cache of compiled code in the directory.
        patch.setenv("NODE_DISABLE_COMPILE_CACHE", "1")
        yield


@pytest.fixture(autouse=True)
def leaks_nothing(own_temporary_directory: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test that it leaves nothing behind."""
    if "shared_daemon" in request.fixturenames:
        # The shared daemon outlives the test, so start the daemon before recording the existing
        # resources.
        request.getfixturevalue("shared_daemon").get()
    before = Resources.now()
    yield
    assert_nothing_new_since(before)


@pytest.fixture(autouse=True)
def own_singletons(leaks_nothing: None) -> Iterator[None]:
    """Reset the singletons, so that no test sees the registrations or shells of another test."""
    yield
    # Run an event loop only if needed, because starting an event loop takes as long as most tests.
    if vars(ShellManager)["_instance"] is not None:
        anyio.run(ShellManager.reset)
    ToolRegistry.reset()


def pytest_configure() -> None:
    become_subreaper()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the mark `long` to the tests that `sampled` leaves out.

    pytest calls this function before it selects tests by their marks.
    """
    counts: Counter[object] = Counter()
    for item in items:
        if (sampled := item.get_closest_marker("sampled")) is not None:
            function = item.nodeid.partition("[")[0]
            if counts[function] % sampled.args[0]:
                item.add_marker(pytest.mark.long)
            counts[function] += 1
    if ORDER_OF_TESTS is not None:
        items.sort(key=lambda item: zlib.crc32(f"{ORDER_OF_TESTS} {item.path.name}".encode()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > SLOW_TESTS_UNTIL and item.get_closest_marker("slow") is not None:
        pytest.skip("no time is left for slow tests: make test-slow runs all of them")


def pytest_collection_finish() -> None:
    """Exclude the present objects, which are never freed, from all later garbage collections.

    Otherwise, each garbage collection in a test would scan all modules and all test items.
    """
    gc.collect()
    gc.freeze()


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
    """A cgroup freezer, which makes a process behave as in an uninterruptible system call."""
    if not Freezer.is_possible():
        pytest.skip("needs a writable cgroup v1 freezer")
    freezer = Freezer()
    yield freezer
    freezer.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's temporary directories."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="module")
def places() -> Iterator[Path]:
    """A directory for workspaces, which no sandbox hides."""
    with directory_for_workspaces() as path:
        yield path


@pytest.fixture(scope="session")
def unprivileged() -> dict[str, Any]:
    """Arguments for a `RawDaemon` that runs as an ordinary user with no other processes."""
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
    # A virtual environment's interpreter is often in a home directory that this user cannot enter.
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = [python, "-c", "import shelld.app, sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            subprocess.run(check, **popen, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return {"command": [python, "-P", "-m", "shelld"], **popen}
    pytest.skip("no Python that an unprivileged user can run has what the daemon needs")
