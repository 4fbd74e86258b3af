"""The benchmarks run, and the documents report their results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_documents_and_plot_show_the_measured_figures() -> None:
    checked = run("compare.report", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.long
def test_every_contestant_has_a_figure_or_reason(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.json"
    figures = ("ping", "apart", "crash_left", "forgotten")
    only = [word for figure in figures for word in ("--only", figure)]
    ended = run("compare", "--rounds", "1", "--output", str(file), *only)
    assert ended.returncode == 0, ended.stderr
    assert "subprocess.run" in ended.stdout
    results = json.loads(file.read_text())
    names = [column["name"] for column in results["columns"]]
    assert names == ["shelld", "subprocess.run", "asyncio", "anyio.run_process"]
    rows = results["rows"]
    for name in names:
        assert 0 < rows["apart"][name]["low"] <= rows["apart"][name]["median"]
    assert rows["ping"]["asyncio"] == {"why": "no server to ask"}
    for figure in ("crash_left", "forgotten"):
        medians = {name: cell["median"] for name, cell in rows[figure].items()}
        # Only shelld leaves no process behind and forgets no state.
        assert medians.pop("shelld") == 0
        assert all(medians.values())


@pytest.mark.slow
def test_every_contestant_with_terminals_has_a_figure_or_reason(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    figures = ("tty_start", "tty_answer", "tty_output", "tty_screen")
    only = [word for figure in figures for word in ("--only", figure)]
    ended = run("compare", "--rounds", "1", "--output", str(file), *only)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(file.read_text())
    names = ["shelld", *(["tmux"] if shutil.which("tmux") else [])]
    assert [column["name"] for column in results["columns"]] == names
    assert list(results["rows"]) == list(figures)
    for row in results["rows"].values():
        assert list(row) == names
        assert 0 < row["shelld"]["low"] <= row["shelld"]["median"]
        assert all(("median" in cell) != ("why" in cell) for cell in row.values())


@pytest.mark.slow
def test_new_rows_join_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for figure in ("ping", "tty_start"):
        ended = run("compare", "--rounds", "1", "--output", str(file), "--only", figure)
        assert ended.returncode == 0, ended.stderr
    results = json.loads(file.read_text())
    assert list(results["rows"]) == ["ping", "tty_start"]
    assert "asyncio" in results["rows"]["ping"]
    assert "asyncio" not in results["rows"]["tty_start"]

    columns = [column for column in results["columns"] if column["name"] == "shelld"]
    columns[0]["version"] = "0.0"
    file.write_text(json.dumps(results))
    refused = run("compare", "--rounds", "1", "--output", str(file), "--only", "tty_start")
    assert refused.returncode == 1
    assert refused.stderr.endswith("is about other contestants, or another machine\n")
