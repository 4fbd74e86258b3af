"""The search for prompts finds programs that wait for input, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from prompt_corpus import WAITING, Entry
from prompt_decoys import DECOYS
from prompt_shells import (
    PATIENCE_MS,
    batches,
    corpus_daemon,
    each_result,
    end,
    start,
    why_not,
)
from support import Json, RawDaemon

QUICK = [entry for entry in WAITING if entry.is_quick]
QUICK_DECOYS = [entry for entry in DECOYS if entry.is_quick]
# After this many ticks, the modes of a silent terminal count as a sign of waiting.
ROUNDS = 6
TICKS = "while sleep 0.4; do echo tick; done"


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    with corpus_daemon() as running:
        yield running


def found_in(daemon: RawDaemon, entries: list[Entry], place: Path) -> dict[str, Json]:
    """Run the commands of entries until each command waits for input or has ended. Return the
    results.
    """
    found: dict[str, Json] = {}
    for batch in batches(entries):
        shells = [start(daemon, entry, place) for entry in batch]
        wait = {"wait": PATIENCE_MS, "until": "prompt"}
        results = each_result(daemon, "bash_output", [{"bash_id": each, **wait} for each in shells])
        found |= zip([entry.name for entry in batch], results, strict=True)
        end(daemon, shells)
    return found


def is_right(entry: Entry, result: Json) -> bool:
    prompt = result.get("prompt")
    if prompt is None:
        return False
    return prompt["certainty"] == entry.waits and entry.program in ("", prompt["program"])


def flagged_in(daemon: RawDaemon, decoys: list[Entry], place: Path) -> dict[str, Json]:
    """Run decoys, and ask the daemon for their results again and again. Return the prompts that the
    daemon wrongly reports.
    """
    flagged: dict[str, Json] = {}
    clock = daemon.background(TICKS)
    for batch in batches(decoys):
        shells = {start(daemon, decoy, place): decoy for decoy in batch}
        ready = [
            {"bash_id": each, "wait": PATIENCE_MS, "until": "match", "pattern": decoy.ready}
            for each, decoy in shells.items()
        ]
        for decoy, result in zip(batch, each_result(daemon, "bash_output", ready), strict=True):
            assert result.get("reached") == "match", (decoy.name, result)
        for _ in range(ROUNDS):
            assert daemon.call("bash_output", {"bash_id": clock, "wait": PATIENCE_MS})["stdout"]
            for shell in daemon.call("list_shells")["shells"]:
                if shell["bash_id"] in shells:
                    name = shells[shell["bash_id"]].name
                    assert shell["isRunning"], name
                    if shell["prompt"] is not None:
                        flagged[name] = shell["prompt"]
        end(daemon, shells)
    return flagged


def runnable(entry: Entry) -> Entry:
    if entry.is_missed:
        pytest.skip("nothing tells this program from one that works")
    if (reason := why_not(entry)) is not None:
        pytest.skip(reason)
    return entry


def others(entries: Iterable[Entry]) -> list[ParameterSet]:
    return [pytest.param(each, id=each.name) for each in entries if not each.is_quick]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_waiting_programs_of_every_system_are_found(daemon: RawDaemon, tmp_path: Path) -> None:
    found = found_in(daemon, QUICK, tmp_path)
    missed = {each.name for each in QUICK if not is_right(each, found[each.name])}
    assert {name: found[name] for name in missed} == {}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_decoys_of_every_system_are_not_flagged(daemon: RawDaemon, tmp_path: Path) -> None:
    assert flagged_in(daemon, QUICK_DECOYS, tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("entry", others(WAITING))
def test_waiting_program_is_found(daemon: RawDaemon, tmp_path: Path, entry: Entry) -> None:
    result = found_in(daemon, [runnable(entry)], tmp_path)[entry.name]
    assert is_right(entry, result), result


@pytest.mark.long
@pytest.mark.parametrize("entry", others(DECOYS))
def test_decoy_is_not_flagged(daemon: RawDaemon, tmp_path: Path, entry: Entry) -> None:
    assert flagged_in(daemon, [runnable(entry)], tmp_path) == {}


@pytest.mark.parametrize("entries", [WAITING, DECOYS], ids=["waiting", "decoys"])
def test_entries_are_consistent(entries: tuple[Entry, ...]) -> None:
    assert len({entry.name for entry in entries}) == len(entries)
    assert [
        each.name for each in entries if each.is_quick and (each.needs or each.needs_root)
    ] == []
    assert {entry.waits is None for entry in entries} == {entries is DECOYS}
