"""Each scene is a kind of daemon, together with the steps that its clients take.

A run of all steps takes seconds, so the campaign tries each point with only the step that reaches
it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fault_injection.asking import Asker
from fault_injection.clients import Clients
from fault_injection.endings import Endings
from fault_injection.judging import Judging
from fault_injection.looks import RULES, Looks
from fault_injection.places import Places
from fault_injection.workload import Workload
from lasting_daemon import LastingDaemon
from support import RawDaemon

LAUNCHER = Path(__file__).with_name("launcher.py")


class Scene(NamedTuple):
    """`start` starts a daemon, given a folder for its files and an environment.

    `asker` makes an `Asker` for this daemon and folder.
    """

    name: str
    steps: tuple[str, ...]
    start: Callable[[Path, dict[str, str]], RawDaemon]
    asker: Callable[[RawDaemon, Path], Asker]


def _options(folder: Path) -> tuple[str, ...]:
    rules = folder / "rules.toml"
    rules.write_text(RULES)
    return (
        *("--audit-log", str(folder / "audit.log"), "--guard-rules", str(rules)),
        *("--grace", "200", "--interactive-tools"),
    )


def _start(folder: Path, environment: dict[str, str]) -> RawDaemon:
    command = [sys.executable, str(LAUNCHER)]
    return RawDaemon(*_options(folder), command=command, env=environment)


def _start_lasting(folder: Path, environment: dict[str, str]) -> RawDaemon:
    command = [sys.executable, str(LAUNCHER)]
    return LastingDaemon(*_options(folder), runtime=folder, command=command, env=environment)


def _workload(daemon: RawDaemon, _folder: Path) -> Asker:
    return Workload(daemon)


def _judging(daemon: RawDaemon, _folder: Path) -> Asker:
    return Judging(daemon)


def _looks(daemon: RawDaemon, _folder: Path) -> Asker:
    return Looks(daemon)


def _clients(daemon: RawDaemon, _folder: Path) -> Asker:
    assert isinstance(daemon, LastingDaemon)
    return Clients(daemon)


SCENES = {
    scene.name: scene
    for scene in (
        Scene("commands", Workload.STEPS, _start, _workload),
        Scene("judging", Judging.STEPS, _start, _judging),
        Scene("looks", Looks.STEPS, _start, _looks),
        Scene("endings", Endings.STEPS, _start, Endings),
        Scene("places", Places.STEPS, _start, Places),
        Scene("clients", Clients.STEPS, _start_lasting, _clients),
    )
}
