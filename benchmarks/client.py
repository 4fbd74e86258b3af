"""The cost of `Client`'s jobs and streams, compared with the bare requests, and the cost of an
import.

Usage: python benchmarks/client.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from typing import Any

from measure import RawDaemon, interleaved, report
from shelld_client import Client

_PUSHED_BYTES = 20_000_000
_PUSH = f"head -c {_PUSHED_BYTES} /dev/zero | tr '\\0' x"
# Keep all output, so that a busy machine loses nothing.
_KEEP_ALL = ("--retain-bytes", "64M", "--retain-total-bytes", "256M")
_FOREVER_MS = 600_000
_PAUSE_S = 0.01


class Raw:
    """Calls a daemon without the client library."""

    def __init__(self) -> None:
        self._daemon = RawDaemon(*_KEEP_ALL)

    def _ask(self, method: str, **params: object) -> Any:
        return json.loads(self._daemon.request(method, params))["result"]

    def job(self) -> None:
        """Start a command, wait until it has ended, and make sure that nothing is left of it."""
        bash_id = self._ask("bash", command="true", run_in_background=True)["bash_id"]
        self._ask("bash_output", bash_id=bash_id, until="exit", wait=_FOREVER_MS)
        self._ask("kill_shell", shell_id=bash_id)

    def stream(self, command: str) -> int:
        """Run a command, take its events, and return the number of characters in them."""
        self._daemon.send("bash", {"command": command, "notify": ["output", "exit"]})
        awaited, count = {"answer", "shell/exited"}, 0
        while awaited:
            message = json.loads(self._daemon.reader.readline())
            name = message.get("method", "answer")
            awaited.discard(name)
            if name == "shell/output":
                count += len(message["params"]["text"])
        return count

    def close(self) -> None:
        self._daemon.close()


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds: int = parser.parse_args().rounds
    raw = Raw()
    with Client.spawn(args=_KEEP_ALL) as shell:

        def calls() -> None:
            bash_id = shell.bash("true", run_in_background=True).bash_id
            shell.bash_output(bash_id, until="exit", wait=_FOREVER_MS)
            shell.kill_shell(bash_id)

        def job() -> None:
            with shell.start("true") as job:
                job.wait()

        def stream(command: str) -> int:
            return sum(len(getattr(item, "text", "")) for item in shell.stream(command))

        def check(count: int) -> None:
            assert count == _PUSHED_BYTES, count

        for name, times in {
            "a job": interleaved(rounds, _PAUSE_S, raw=raw.job, calls=calls, client=job),
            "stream of `true`": interleaved(
                rounds, _PAUSE_S, raw=lambda: raw.stream("true"), client=lambda: stream("true")
            ),
            "stream of 20 MB": interleaved(
                rounds // 20,
                _PAUSE_S,
                raw=lambda: check(raw.stream(_PUSH)),
                client=lambda: check(stream(_PUSH)),
            ),
            "import of `Client`": interleaved(
                rounds // 4,
                _PAUSE_S,
                anyio_and_msgspec=partial(run_python, "import anyio, msgspec"),
                async_client=partial(run_python, "from shelld_client import AsyncClient"),
                client=partial(run_python, "from shelld_client import Client"),
            ),
        }.items():
            ratios = {f"of_{way}": times["client"] / times[way] for way in times if way != "client"}
            report(name, **times, **ratios)
    raw.close()


if __name__ == "__main__":
    main()
