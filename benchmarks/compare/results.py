"""The answers, as they are written to a file."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from compare.figures import FIGURES

# Medians within this ratio count as equal.
SAME = 1.05


class Cell(msgspec.Struct, omit_defaults=True):
    """`low` and `high` are the quartiles. `why` is a short reason for a missing figure."""

    median: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    why: str | None = None


class Column(msgspec.Struct):
    name: str
    version: str


# The keys are contestants.
Row = dict[str, Cell]


class Results(msgspec.Struct):
    """`rows` has a row for each figure.

    `missing` has the contestants that could not run, and for each of them the reason.
    """

    machine: str
    columns: list[Column]
    missing: dict[str, str]
    rows: dict[str, Row]


def cell_of(values: list[float]) -> Cell:
    low, median, high = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return Cell(round(median, 4), round(low, 4), round(high, 4), len(values))


def ahead_of(results: Results, figure: str, name: str) -> list[str]:
    """Return the contestants with a lower figure than `name`."""
    row = results.rows[figure]
    ours = row[name].median
    if ours is None:
        return []
    return [
        other
        for other, cell in row.items()
        if cell.median is not None and cell.median * SAME < ours
    ]


def merged(results: Results, path: Path) -> Results:
    """Add to `results` the rows that only the file has.

    Raises SystemExit if the file is about other contestants or another machine.
    """
    if not path.exists():
        return results
    before = read(path)
    versions = {column.name: column.version for column in before.columns}
    if (
        before.machine != results.machine
        or any(versions.get(each.name, each.version) != each.version for each in results.columns)
        or any(
            before.rows.get(figure, row).keys() != row.keys()
            for figure, row in results.rows.items()
        )
    ):
        raise SystemExit(f"{path} is about other contestants, or another machine")
    rows = {**before.rows, **results.rows}
    new = [column for column in results.columns if column.name not in versions]
    return Results(
        results.machine,
        before.columns + new,
        {**before.missing, **results.missing},
        {figure: rows[figure] for figure in FIGURES if figure in rows},
    )


def write(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def read(path: Path) -> Results:
    results = msgspec.json.decode(path.read_bytes(), type=Results)
    assert set(results.rows) <= set(FIGURES)
    return results
