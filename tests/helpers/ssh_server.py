"""An sshd on loopback for one test, with keys of its own. It serves the user who runs the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from support import wait_for

# sshd must be started by its absolute path.
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
NEEDED = ("ssh", "ssh-keygen")

_SSHD_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Banner {directory}/banner
"""


@contextlib.contextmanager
def ssh_server(directory: Path) -> Generator[list[str]]:
    """Yield the command line of an ssh to the server. Skip the test if a program is missing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or SSHD is None:
        pytest.skip(f"{', '.join(missing or ['sshd'])} is not installed")
    if os.geteuid() == 0:
        # sshd does not start without this directory.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
        subprocess.run(keygen, check=True)
    (directory / "banner").write_text("All access is logged.\n")
    port = _free_port()
    config = directory / "sshd_config"
    config.write_text(_SSHD_CONFIG.format(port=port, directory=directory))
    log = directory / "sshd.log"
    server = subprocess.Popen([SSHD, "-D", "-f", str(config), "-E", str(log)])
    try:
        wait_for(lambda: _listens(port) or server.poll() is not None, "sshd")
        assert server.poll() is None, log.read_text()
        yield [
            *("ssh", "-F", "none", "-p", str(port), "-i", str(directory / "user")),
            *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"),
            *("-o", f"UserKnownHostsFile={directory}/known"),
            f"{getpass.getuser()}@127.0.0.1",
        ]
    finally:
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
