"""Run a daemon for a host, and record the text that both send.

Usage: let the host start the daemon with `python record_host.py FILE COMMAND...`. Each line of FILE
is a JSON array: "host" or "daemon", and the text that it sent in one go.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path


def record(path: Path, command: list[str]) -> int:
    """Pass on the bytes of the host and of the daemon until the daemon ends. Return its exit
    code.
    """
    daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    ways = {0: ("host", daemon.stdin.fileno()), daemon.stdout.fileno(): ("daemon", 1)}
    with path.open("w", buffering=1) as file:
        while daemon.stdout.fileno() in ways:
            for source in select.select(ways, [], [])[0]:
                speaker, target = ways[source]
                if data := os.read(source, 1_000_000):
                    file.write(json.dumps([speaker, data.decode()]) + "\n")
                    os.write(target, data)
                else:
                    del ways[source]
                    if speaker == "host":
                        daemon.stdin.close()
    return daemon.wait()


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]), sys.argv[2:]))
