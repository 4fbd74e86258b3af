"""The npm client has the types of the protocol, and drives a real daemon from Node.js."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from installed import NODE_MODULES, node, npm_package
from lasting import lasting_user
from shelld_client import __version__
from shelld_protocol.methods import METHODS
from support import DAEMON_COMMAND, is_alive

PACKAGE = Path(__file__).parents[2] / "client" / "js"
OLDEST_NODE = 20
SCRIPT = Path(__file__).with_name("npm_client.mjs")
PEERS_SCRIPT = SCRIPT.with_name("npm_peers.mjs")
EVENTS_SCRIPT = SCRIPT.with_name("npm_events.mjs")
RESTARTS_SCRIPT = SCRIPT.with_name("npm_restarts.mjs")
NO_MESSAGE = "the daemon wrote something else than messages"


def test_types_are_made_from_the_protocol() -> None:
    spec = importlib.util.spec_from_file_location(
        "make_js_types", PACKAGE.with_name("make_js_types.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (PACKAGE / "src" / "types.ts").read_text()
    assert text == module.made(), "run: make sync"
    assert re.findall(r'^  "([\w.]+)": \{ params', text, re.MULTILINE) == list(METHODS)


def test_package_has_no_dependencies_and_our_version() -> None:
    manifest = json.loads((PACKAGE / "package.json").read_text())
    assert manifest["version"] == __version__
    assert "dependencies" not in manifest


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The compiled package."""
    compiler = npm_package("typescript") / "bin" / "tsc"
    folder = tmp_path / "shelld-client"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    compiled = subprocess.run(
        [node(OLDEST_NODE), str(compiler)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert compiled.returncode == 0, compiled.stdout
    return folder


@pytest.mark.slow
def test_compiled_client_drives_a_daemon(package: Path) -> None:
    program = package / "dist" / "index.js"
    ended = subprocess.run(
        [node(OLDEST_NODE), str(SCRIPT), str(program), *DAEMON_COMMAND],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert not is_alive(found.pop("pid"))
    assert not is_alive(found.pop("abandoned"))
    assert found == {
        "result": ["out\n", "é\n", 3],
        "session": "/usr 1\n",
        "concurrent": True,
        "long": 1_000_000,
        "missing": [True, 1003, "shell_not_found"],
        "cancelled": -32800,
        "aborted": [["ShelldError", -32800, "cancelled"]] * 2,
        "ready": "ready\n",
        "leftBy": ["ready\n", "one\n", "one\n"],
        "timedOut": "the command did not end within 50 ms",
        "bytes": " ff 00\n",
        "asked": 'the command ended with SIGTERM (prompt) and did not write "never"',
        "changed": [],
        "interrupted": 5,
        "events": True,
        "readBefore": ["main log\n", "main ready\n"],
        "heldBack": "log\n",
        "wait": ["got it\n", 4, False],
        "kill": [0, "killed"],
        "subscribed": True,
        "closed": [True, True],
        "refilled": [12, [9, 10, 11]],
        "many": 300_000,
        "offsets": [5, 5],
        "streamed": [200_001, False, 3],
        "ended": -32800,
        "late": [["so far\n"], "timeout"],
        "refused": "spawn_failed",
        "handed": ["running", "invalid_params"],
        "abortedStream": ["so far\n", -32800],
        "commonSignal": [True, []],
        "leftWhileWaiting": [True, True, True],
        "unfit": ["timeout", "timeout", "env.a", "env", "env", "env", "env.a", "env.a"],
        "fit": "😀\n",
        "tooLarge": [None, 102_400],
        "waitFor": ["two (2)", True, "one\ntwo (2)\n", "TypeError", "invalid_params"],
        "wrongTypes": [
            *["TypeError: signal must be an AbortSignal"] * 6,
            "TypeError: the text of waitFor must be a string",
            "TypeError: the port of waitFor must be a number",
            "TypeError: timeout must be a number",
            *["TypeError: waitFor needs a text, a pattern or a port, and only one of them"] * 2,
            "TypeError: events must be a list",
            "ShelldError: Missing required parameter: events",
            *["TypeError: options must be a plain object"] * 7,
        ],
        "changedOptions": ["stream 1\n", "start 1\n", "shell/output"],
        "nullOptions": ["bash\n", "bash\n", "stream\n", "start\n", {}],
        "lines": ["one", "", "two", "three"],
        "patient": "ok\n",
        "twice": 1,
        "gone": True,
        "inFlight": True,
        "restarted": [["77\n", "77\n"], ["the daemon was killed by SIGKILL"]],
        "notAgain": "the client is closed",
        "greeted": "ok\n",
        "strange": [
            "the daemon gave no answer within 100 ms",
            "the program echoes what it reads, so it is not shelld",
            "the program is not shelld: it writes other text",
            "the daemon wrote something else than messages",
            "the daemon could not read a request: Parse error",
            "the daemon closed its output",
        ],
        "deaf": "the daemon closed its input",
        "glued": {},
        "unstarted": [True, "cannot start /nowhere/shelld"],
        "broken": "shelld: error: unrecognized arguments: --nonsense",
    }


@pytest.mark.slow
def test_no_message_of_a_peer_ends_or_blocks_the_program(package: Path) -> None:
    assert _found_by(PEERS_SCRIPT, package) == {
        "nullError": [{}, []],
        "textError": [NO_MESSAGE, NO_MESSAGE],
        "nullData": ["odd", "odd"],
        "textData": ["odd", "odd"],
        "nullNamelessError": [NO_MESSAGE, NO_MESSAGE],
        "list": [NO_MESSAGE, NO_MESSAGE],
        "textId": [NO_MESSAGE, NO_MESSAGE],
        "fraction": [NO_MESSAGE, NO_MESSAGE],
        "nothing": [NO_MESSAGE, NO_MESSAGE],
        "oddMethod": [NO_MESSAGE, NO_MESSAGE],
        "echo": ["the program echoes what it reads, so it is not shelld"] * 2,
        "outputWithoutText": [{}, []],
        "exitWithoutProcesses": [{}, []],
        "oddResults": dict.fromkeys(
            ["null", "number", "text", "list", "empty"], ["ShelldError"] * 3
        ),
        "oddMatch": "the peer's result of bash_output has another form",
        "unnamed": "the answer names no subscription",
        "endless": "the daemon wrote a message of more than 268435456 bytes",
        "shortage": "cannot start sleep: spawn sleep EMFILE",
        "noDirectory": "cannot start sleep: there is no directory /nowhere",
        "refusedOptions": [
            "TypeError: command must have at least one word",
            *["TypeError: command must be a list of words"] * 2,
            *["TypeError: args must be a list of words"] * 2,
            *["RangeError: startTimeout must be a positive number"] * 2,
        ],
    }


@pytest.mark.slow
def test_subscriptions_have_an_end_and_one_reader(package: Path) -> None:
    assert _found_by(EVENTS_SCRIPT, package, *DAEMON_COMMAND) == {
        "oneShell": ["shell/output", "shell/exited"],
        "chosen": ["out\n"],
        "leftover": ["shell/exited", "shell/leftover"],
        "over": [],
        "keyed": [1],
        "overAgain": [1, 2],
        "untold": ["out\n", True],
        "first": ["out\n", "sub was continued by another reader"],
        "second": ["out\n", "more\n"],
        "unlistened": "sub was continued by another reader",
        "left": ["out\n"],
        "ended": "invalid_params",
        "refused": ["invalid_params", "invalid_params"],
        "unknownKey": "shell_not_found",
        "taken": ["shell/output box", "shell/exited box"],
        "lost": ["target_lost", "target_lost"],
    }


@pytest.mark.slow
def test_directories_outlive_a_daemon_and_shells_outlive_a_client(
    package: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "of the sessions"
    folder.mkdir()
    odd = f'{folder}/it\'s a "directory"'
    with lasting_user(tmp_path) as user:
        found = _found_by(RESTARTS_SCRIPT, package, str(folder), *DAEMON_COMMAND, env=user.env)
    assert found == {
        "directory": "/usr\n",
        "places": ["far", "far"],
        "failures": [
            *("timeout", "timeout", "spawn_failed", "invalid_params", "target_lost"),
            *("cancelled", "session_not_found"),
        ],
        "failedPlaces": {
            **dict.fromkeys(("timed out", "streamed", "started"), "far:"),
            **dict.fromkeys(("unknown", "unsent", "aborted", "dry", "closed"), ""),
        },
        "restarts": [
            ["DaemonExited", {"main": "/usr", "streamed": odd, "busy": "/usr"}],
            ["DaemonExited", {}],
        ],
        "limits": [["near:", "77\n"], ["", "78\n"], ["", "79\n"]],
        "withoutRestart": ["TypeError", "TypeError"],
        "forgotten": True,
        "attached": [True, "/usr 1\n"],
        "aborted": ["cancelled", "cancelled"],
        "starts": "start\n",
    }


def _found_by(
    script: Path, package: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> object:
    program = package / "dist" / "index.js"
    ended = subprocess.run(
        [node(OLDEST_NODE), str(script), str(program), *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
def test_example_of_the_readme_runs(package: Path) -> None:
    (code,) = re.findall(r"^```js\n(.*?)^```$", (PACKAGE / "README.md").read_text(), re.M | re.S)
    # A package may import itself by its name.
    (package / "example.mjs").write_text(code)
    folder = str(Path(sys.executable).parent)
    ended = subprocess.run(
        [node(OLDEST_NODE), "example.mjs"],
        cwd=package,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "hello\n 3\n1\n2\n3\n"
