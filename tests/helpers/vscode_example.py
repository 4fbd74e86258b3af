"""The example for VS Code, ready to run."""

from __future__ import annotations

import shutil
from pathlib import Path

from installed import NODE_MODULES, npm_package

EXAMPLE = Path(__file__).parents[2] / "examples" / "vscode-jsonrpc"


def install_in(folder: Path) -> Path:
    """Copy the scripts to a folder with vscode-jsonrpc. Return the path of `run.mjs`."""
    npm_package("vscode-jsonrpc")
    (folder / "node_modules").symlink_to(NODE_MODULES)
    for script in EXAMPLE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder / "run.mjs"
