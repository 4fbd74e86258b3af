"""The benchmarks run, and the documents say what they have measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_documents_say_what_was_measured() -> None:
    checked = run("compare.report", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_plot_is_of_those_who_were_asked() -> None:
    plot = (ROOT / "docs" / "benchmarks.svg").read_text()
    for column in json.loads((BENCHMARKS / "results.json").read_text())["columns"]:
        assert f">{column['name']}<" in plot


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("benchmarks") / "new" / "results.json"
    figures = ("ping", "apart", "crash_left", "forgotten")
    only = [word for figure in figures for word in ("--only", figure)]
    ended = run("compare", "--rounds", "1", "--output", str(file), *only)
    assert ended.returncode == 0, ended.stderr
    assert "subprocess.run" in ended.stdout
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_whoever_answers_has_a_figure(results: dict[str, Any]) -> None:
    names = [column["name"] for column in results["columns"]]
    assert names == ["shelld", "subprocess.run", "asyncio", "anyio.run_process"]
    for name in names:
        cell = results["rows"]["apart"][name]
        assert 0 < cell["low"] <= cell["median"] <= cell["high"]


def test_whoever_does_not_has_a_reason(results: dict[str, Any]) -> None:
    assert results["rows"]["ping"]["asyncio"] == {"why": "there is nobody to ask"}


def test_only_the_daemon_leaves_nothing_and_forgets_nothing(results: dict[str, Any]) -> None:
    for figure in ("crash_left", "forgotten"):
        medians = {name: cell["median"] for name, cell in results["rows"][figure].items()}
        assert medians.pop("shelld") == 0
        assert all(medians.values())
