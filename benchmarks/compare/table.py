"""Results as a table, for a terminal and for Markdown."""

from __future__ import annotations

from compare.figures import FIGURES
from compare.results import Cell, Results


def shown(value: float) -> str:
    """Return a value with at most three significant digits."""
    if value == round(value) or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def as_cell(cell: Cell, unit: str, *, spread: bool = False) -> str:
    """Return a figure as text, or the first words of the reason why there is no figure."""
    if cell.median is None:
        return (cell.why or "").partition(":")[0]
    text = f"{shown(cell.median)} {unit}".strip()
    if spread and cell.low is not None and cell.high is not None and cell.low != cell.high:
        text += f" ({shown(cell.low)}-{shown(cell.high)})"
    return text


def as_text(results: Results) -> str:
    """Return one block per figure, because the names of ten contestants do not fit side by side."""
    width = max(len(column.name) for column in results.columns)
    lines = [results.machine, "medians (and quartiles); less is better", ""]
    for figure, row in results.rows.items():
        title, unit = FIGURES[figure]
        lines.append(title)
        ours = next(iter(row.values())).median
        for name, cell in row.items():
            if cell.median is None:
                lines.append(f"  {name:<{width}}  {cell.why}")
            else:
                ratio = f"{shown(cell.median / ours)}x" if ours else ""
                lines.append(
                    f"  {name:<{width}}  {as_cell(cell, unit, spread=True):<28}  {ratio}".rstrip()
                )
        lines.append("")
    return "\n".join(lines)
