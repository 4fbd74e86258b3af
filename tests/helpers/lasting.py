"""Lasting daemons for tests: attach to them, and leave none behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Generator, Mapping
from pathlib import Path

from support import DAEMON_COMMAND, Json, RawDaemon, is_alive, wait_for


class Lasting:
    """A user whose lasting daemons have their sockets in a directory below `runtime`."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.env: Mapping[str, str] = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}

    @property
    def directory(self) -> Path:
        return self.runtime / "shelld"

    def socket_of(self, name: str = "main") -> Path:
        return self.directory / f"{name}.sock"

    @contextlib.contextmanager
    def attach(self, *args: str) -> Generator[RawDaemon]:
        """Run `shelld attach` while the `with` block runs."""
        client = RawDaemon("attach", *args, env=self.env)
        try:
            yield client
        except BaseException as error:
            error.add_note(f"stderr of attach: {client.read_stderr()!r}")
            raise
        finally:
            client.close()

    def attach_in_vain(self, *args: str) -> tuple[int, str]:
        """Run `shelld attach`, which must end by itself. Return its exit code and stderr."""
        ended = self.run("attach", *args)
        assert ended.stdout == ""
        return ended.returncode, ended.stderr

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        # Keep stdin open, because `attach` exits when its stdin ends.
        reader, writer = os.pipe()
        try:
            return subprocess.run(
                [*DAEMON_COMMAND, *args],
                stdin=reader,
                capture_output=True,
                text=True,
                env=self.env,
                timeout=60,
                check=False,
            )
        finally:
            os.close(reader)
            os.close(writer)

    def list(self) -> list[Json]:
        found: list[Json] = json.loads(self.run("list", "--json").stdout)
        return found

    def connect(self, name: str = "main") -> socket.socket:
        """Connect to the socket of a daemon."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(self.socket_of(name)))
        return connection

    def stop_all(self) -> None:
        names = [each.stem for each in self.directory.glob("*.sock") if each.is_socket()]
        for name in names:
            self.run("stop", name)


@contextlib.contextmanager
def lasting_user(runtime: Path) -> Generator[Lasting]:
    user = Lasting(runtime)
    try:
        yield user
    finally:
        user.stop_all()


def kill_attach(client: RawDaemon) -> None:
    """Kill `shelld attach`, as a failure of the machine would."""
    client.process.kill()
    client.process.wait()


def daemon_pid(client: RawDaemon) -> int:
    pid: int = client.call("server_info")["pid"]
    return pid


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    wait_for(lambda: not is_alive(pid), f"the end of {pid}")
