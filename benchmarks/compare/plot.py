"""The plot in the documents, made from `results.json`. This program needs matplotlib.

Usage: python -m compare.plot
"""

# Only `make bench-peers` installs matplotlib, whose types do not satisfy pyright's strict mode.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from compare.figures import FIGURES
from compare.report import OURS, PLOT, PLOTTED, RESULTS
from compare.results import Results, read
from compare.table import as_cell

COLOURS = {True: "#1f77b4", False: "#9aa5b1"}


def _panel(axes: Axes, results: Results, figure: str, *, names: bool) -> None:
    title, unit = FIGURES[figure]
    row = results.rows[figure]
    cells = list(reversed(row.items()))
    values = [cell.median or 0.0 for _, cell in cells]
    bars = axes.barh(
        [name for name, _ in cells], values, color=[COLOURS[name == OURS] for name, _ in cells]
    )
    axes.bar_label(bars, [as_cell(cell, unit) for _, cell in cells], padding=3, fontsize=8)
    axes.set_title(title.replace("`", ""), fontsize=9, loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(bottom=False, labelbottom=False, labelleft=names, labelsize=8)
    if unit:
        axes.set_xscale("symlog", linthresh=1)
    axes.margins(x=0.35)
    if not unit:
        axes.set_xlim(0, 4)


def main() -> None:
    results = read(RESULTS)
    # Write text as text, not as outlines, and make the output reproducible.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "shelld"})
    plot, panels = pyplot.subplots(1, len(PLOTTED), figsize=(11, 3.2), layout="constrained")
    for number, (axes, figure) in enumerate(zip(panels, PLOTTED, strict=True)):
        _panel(axes, results, figure, names=number == 0)
    plot.savefig(PLOT, metadata={"Date": None})


main()
