"""Builds the pages of docs/ as a site: `make site`.

The pages are plain Markdown. The source directory is the root of the repository, so that links to
files outside docs/ work as they do on a code host.
"""

from __future__ import annotations

import re
from typing import Any

project = "shelld"
author = "the authors of shelld"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "shelld"
root_doc = "docs/index"
include_patterns = ["docs/*.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
# Headings of the first three levels get the same link targets as on a code host.
myst_heading_anchors = 3
nitpicky = True


def _add_tables_of_contents(_app: Any, name: str, source: list[str]) -> None:
    """Make the site's navigation from the lists in the index: Sphinx needs toctrees."""
    if name != root_doc:
        return
    trees: list[str] = []
    for section in source[0].split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        pages = re.findall(r"\]\((.+?)\.md\)", text)
        targets = (
            page.removeprefix("../") if page.startswith("../") else f"/docs/{page}"
            for page in pages
        )
        lines = (target if target.startswith("/") else f"/{target}" for target in targets)
        trees.append(
            "\n".join(("```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"))
        )
    source[0] = "\n\n".join((source[0], *trees, ""))


def setup(app: Any) -> None:
    app.connect("source-read", _add_tables_of_contents)
