"""The sandbox's proxy in unusual cases: a name gets a new address, too many connections are open,
or a command ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rebinding_names import PORT
from sandboxes import configure, served, why_impossible
from support import Json, raw_daemon

pytestmark = pytest.mark.slow

NAMES = Path(__file__).parents[1] / "helpers" / "rebinding_names.py"
# The names of hosts contain two addresses, with dashes in place of dots. The name server gives the
# first address in its first answer for a name, and the second address in later answers. `OWN` is a
# loopback address.
OWN = "127-0-0-1"
# `PUBLIC` and `OTHER` are public addresses. Nobody here can reach them.
PUBLIC = "93-184-216-34"
OTHER = "93-184-216-35"

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)
if shutil.which("curl") is None:
    pytest.skip("needs curl", allow_module_level=True)


def denied(host: str, port: int, reason: str, count: int = 1) -> Json:
    return {"kind": "network", "host": host, "port": port, "count": count, "reason": reason}


def test_a_name_that_changes_its_address_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    prefix = [sys.executable, str(NAMES), str(log)]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, for a network of its own")
    log.write_text("")
    with raw_daemon(cwd=workspace, prefix=prefix) as daemon:
        hosts = [f"*.rebinding.test:{PORT}"]
        configure(daemon, "main", network="hosts", hosts=hosts)

        def fetch(name: str, **params: Any) -> Json:
            return daemon.bash(f"curl -sS -m 15 http://{name}:{PORT}/", **params)

        # The proxy connects to the public address that it has checked. The name server would now
        # give another address, but the proxy does not ask again.
        changing = f"{PUBLIC}.{OWN}.rebinding.test"
        result = fetch(changing)
        assert "shelld cannot reach" in result["stdout"], result
        assert log.read_text() == f"asked {changing}\n"
        # Now the name has the private address, and the proxy refuses this address without
        # connecting to it.
        result = fetch(changing)
        assert result["denied"] == [denied(changing, PORT, "private_address")]
        # The proxy also refuses a name whose first address is private.
        other = f"{OWN}.{OTHER}.rebinding.test"
        assert fetch(other)["denied"] == [denied(other, PORT, "private_address")]
        # The proxy does not even look up a name that is not listed.
        result = daemon.bash(f"curl -sS http://secret.{OTHER}.example.test/")
        assert [each["reason"] for each in result["denied"]] == ["not_listed"]
        assert log.read_text().splitlines() == [
            f"asked {each}" for each in (changing, changing, other)
        ]
        # If the private address is also listed, the proxy connects to it.
        configure(daemon, "listed", network="hosts", hosts=[*hosts, f"127.0.0.1:{PORT}"])
        assert fetch(changing, session="listed")["stdout"] == "reached\n"
        assert log.read_text().splitlines()[-2:] == [f"asked {changing}", "connected"]


def test_a_full_proxy_refuses_until_there_is_room(workspace: Path) -> None:
    # When a client closes its connection, the server closes the connection, too.
    with served(workspace) as port, raw_daemon(cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[f"127.0.0.1:{port}"])
        code = (
            "import socket\n"
            "def ask():\n"
            "    sock = socket.create_connection(('127.0.0.1', 3128))\n"
            f"    sock.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n"
            "    return sock, sock.recv(1000).split(b' ')[1].decode()\n"
            "held = [ask() for _ in range(200)]\n"
            "print(*{status for _, status in held})\n"
            "print(ask()[1], ask()[1])\n"
            "held.pop()[0].close()\n"
            "while (status := ask()[1]) == '503': pass\n"
            "print(status)\n"
        )
        result = daemon.bash("python3 -", stdin=code)
        assert result["stdout"] == "200\n503 503\n200\n", result
        (refused,) = result["denied"]
        assert refused["count"] >= 2
        assert refused == denied("127.0.0.1", port, "full", refused["count"])


# This daemon learns of refusals only when it asks the proxy for them.
ONLY_ASKS = """
import sys, anyio
from shelld.proxy.process import Proxy
async def run(self):
    await anyio.sleep_forever()
Proxy.run = run
from shelld.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("spares", ["0", "1"])
def test_the_last_refusal_of_a_command_is_in_its_result(workspace: Path, spares: str) -> None:
    command = [sys.executable, "-W", "error", "-c", ONLY_ASKS]
    with raw_daemon("--spare-shells", spares, command=command, cwd=workspace) as daemon:
        configure(daemon, "main", network="hosts", hosts=[])
        for number in range(5):
            result = daemon.bash(f"exec curl -s http://host{number}.invalid/")
            assert result["denied"] == [denied(f"host{number}.invalid", 80, "not_listed")]
