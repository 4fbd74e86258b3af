"""The benchmarks run, and the documents report their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_documents_and_plot_show_the_measured_figures() -> None:
    checked = run("compare.report", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


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
    assert rows["ping"]["asyncio"] == {"why": "there is nobody to ask"}
    for figure in ("crash_left", "forgotten"):
        medians = {name: cell["median"] for name, cell in rows[figure].items()}
        # Only the daemon leaves nothing and forgets nothing.
        assert medians.pop("shelld") == 0
        assert all(medians.values())
