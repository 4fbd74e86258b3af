"""A pool of daemons on Ray. The tests with a real Ray are in `tests/helpers/pool_on_ray.py`."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shelld_client import AsyncClient, Client, SessionLost

TESTS = Path(__file__).parents[1]

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: make clients"
)


def run_on_ray(name: str, marks: str, home: Path) -> None:
    """Run the tests of a helper in another process. In that process, Ray keeps its files in `home`,
    and reports no usage statistics.
    """
    env = {
        **os.environ,
        "HOME": str(home),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    env.pop("PYTEST_XDIST_WORKER", None)
    script = str(TESTS / "helpers" / name)
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={home / 'tests'}",
        "--durations=0",
        "-rP",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", marks, script],
        cwd=TESTS.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    print(ended.stdout)  # noqa: T201 - what pytest shows of a failure
    assert ended.returncode == 0, ended.stderr


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_pool_works_on_a_local_ray(tmp_path: Path) -> None:
    run_on_ray("pool_on_ray.py", "not long", tmp_path)


@needs_ray
@pytest.mark.long
def test_pool_passes_all_tests_on_a_local_ray(tmp_path: Path) -> None:
    run_on_ray("pool_on_ray.py", "long", tmp_path)


@needs_ray
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pool_works_on_three_nodes(tmp_path: Path) -> None:
    run_on_ray("pool_on_ray_nodes.py", "long", tmp_path)


def test_client_does_not_import_ray() -> None:
    code = "import sys, shelld_client\nassert not {'ray', 'shelld_client.ray'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_error_names_the_missing_extra() -> None:
    # If `sys.modules` has None for a module, Python does not import the module.
    code = "import sys\nsys.modules['ray'] = None\nimport shelld_client.ray"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    last = ended.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: a pool needs the extra 'ray': pip install 'shelld[ray]'"


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_client_cannot_be_pickled(client: Any) -> None:
    with pytest.raises(TypeError, match="a client cannot be pickled, because its daemon"):
        pickle.dumps(client.spawn())


@pytest.mark.parametrize("session", ["a", None])
def test_lost_session_can_be_pickled(session: str | None) -> None:
    error = SessionLost(session, "the actor died")
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.session, copied.reason, str(copied)) == (session, "the actor died", str(error))
