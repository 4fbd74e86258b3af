"""Records one exchange with a daemon for each method, for protocol.md: `make exchanges`.

Values that differ from run to run (pids, times, paths, sizes of this machine) are replaced by fixed
ones. A test compares the form of the record with the answers of a daemon.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, cast

RECORD: Final = Path(__file__).with_name("exchanges.json")
PROJECT: Final = "/home/me/project"
# How many characters of a text to show.
MAX_SHOWN: Final = 120
_ID: Final = re.compile(r"\b((?:shell|sub)_\d+)[0-9a-f]{8}\b")

# The requests are sent to one daemon in this order. "$2" stands for the id of the shell that
# request 2 has started, and "$14.subscription" for the subscription that request 14 has begun.
REQUESTS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("bash", {"command": "mkdir -p src && cd src && echo hello"}),
    ("bash", {"command": "echo ready; sleep 300", "run_in_background": True}),
    ("bash_output", {"bash_id": "$2", "wait": 5000}),
    (
        "bash",
        {"command": "read -r name; echo $name", "tty": True, "rows": 3, "on_prompt": "background"},
    ),
    ("bash_output", {"bash_id": "$4", "wait": 5000, "until": "prompt"}),
    ("write_stdin", {"bash_id": "$4", "text": "Ada\n", "wait": 5000, "until": "exit"}),
    ("resize_shell", {"bash_id": "$4", "rows": 40, "cols": 100}),
    ("read_screen", {"bash_id": "$4"}),
    ("bash", {"command": "sleep 300", "timeout": 60_000}),
    ("background", {"request_id": 9}),
    ("list_shells", {"session": "main"}),
    ("kill_shell", {"shell_id": "$2"}),
    ("bash", {"command": "echo hello", "run_in_background": True, "notify": ["output", "exit"]}),
    ("subscribe", {"bash_id": "$2", "events": ["exit"]}),
    ("unsubscribe", {"subscription": "$14.subscription"}),
    ("configure_session", {"session": "build", "env": {"remove": ["DEPLOY_*"]}}),
    ("get_session", {"session": "main"}),
    ("list_sessions", {}),
    ("explain_command", {"command": "echo hi; rm -rf /"}),
    ("bash", {"command": "echo hi; rm -rf /", "dry_run": True}),
    ("list_tools", {"format": "anthropic"}),
    ("call_tool", {"name": "Bash", "arguments": {"command": "echo hi"}}),
    ("close_session", {"session": "main"}),
    ("add_target", {"name": "box", "argv": ["ssh", "box", "shelld"]}),
    ("list_targets", {}),
    ("remove_target", {"name": "box"}),
    ("server_info", {}),
    ("ping", {}),
    ("bash_output", {"bash_id": "shell_999999999"}),
    ("shutdown", {}),
]

# The request with this number is answered only after the next request.
ANSWERED_LATER: Final = 9

# Maps the number of a request to how many events follow its answer.
EVENTS: Final = {13: 2, 14: 1}

# The fixed values of members, by the member's name.
_FIXED: Final[dict[str, Any]] = {
    "pid": 4711,
    "durationMs": 3,
    "sinceMs": 101,
    "duration_ms": 3,
    "uptimeMs": 60_000,
    "userMs": 1,
    "systemMs": 1,
    "maxRssBytes": 3_633_152,
    "startedAt": "2026-01-31T12:00:00.000Z",
    "createdAt": "2026-01-31T12:00:00.000Z",
}


def exchange(command: list[str], directory: str) -> list[dict[str, Any]]:
    """Send each request to a daemon. Return each request with its answer and the events after the
    answer.
    """
    exchanges: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "DEPLOY_TOKEN": "secret"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        for number, (method, params) in enumerate(REQUESTS, 1):
            request: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
            if params:
                request["params"] = {
                    name: ids.get(value, value) if isinstance(value, str) else value
                    for name, value in params.items()
                }
            daemon.stdin.write(json.dumps(request).encode() + b"\n")
            daemon.stdin.flush()
            exchanges.append({"request": request})
            if number == ANSWERED_LATER:
                continue
            for _ in range(1 + (number == ANSWERED_LATER + 1)):
                answer = json.loads(daemon.stdout.readline())
                exchanges[answer["id"] - 1]["answer"] = answer
                result: dict[str, Any] = answer.get("result") or {}
                ids[f"${answer['id']}"] = result.get("bash_id", "")
                ids[f"${answer['id']}.subscription"] = result.get("subscription", "")
            if number in EVENTS:
                exchanges[-1]["events"] = [
                    json.loads(daemon.stdout.readline()) for _ in range(EVENTS[number])
                ]
        daemon.stdin.close()
    return exchanges


def settled(value: Any, directory: str) -> Any:
    """Return an exchange. Replace values that differ from run to run by fixed values."""
    if isinstance(value, dict):
        return {
            name: _FIXED[name]
            if name in _FIXED and inner is not None
            else settled(inner, directory)
            for name, inner in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        # Only one of the two type checkers knows what is in the list.
        values = cast("list[Any]", cast("object", value))
        return [settled(inner, directory) for inner in values]
    if not isinstance(value, str):
        return value
    value = _ID.sub(r"\1c0ffee42", value.replace(directory, PROJECT))
    return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}..."


def record() -> list[dict[str, Any]]:
    """Exchange messages with a daemon of this environment. Return the exchanges as `settled` makes
    them.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory).resolve())
        return [settled(each, path) for each in exchange([sys.executable, "-m", "shelld"], path)]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=1) + "\n")
