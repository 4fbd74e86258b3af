"""Directories, registries and workspaces for the tests of sandboxes."""

from __future__ import annotations

import http.server
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from support import Json, RawDaemon


def why_impossible(**popen: Any) -> str:
    """Return the reason why this machine has no sandboxes, or "" if it has them."""
    if shutil.which("bwrap") is None:
        return "needs bubblewrap"
    if platform.machine() not in ("x86_64", "aarch64"):
        return "needs a machine whose system calls are known"
    command = ["bwrap", "--unshare-user", "--unshare-net", "--unshare-pid", "--cap-drop", "ALL"]
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"]
    quiet = subprocess.DEVNULL
    status = subprocess.call(command, stdout=quiet, stderr=quiet, **popen)
    return "" if status == 0 else "needs user namespaces"


@contextmanager
def directory_for_workspaces() -> Generator[Path]:
    """Make a directory that no sandbox hides."""
    writable = [path for path in ("/opt", "/srv", str(Path.home())) if os.access(path, os.W_OK)]
    with tempfile.TemporaryDirectory(dir=writable[0]) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(directory: Path) -> Generator[int]:
    """Serve a directory on the loopback of the machine, as a stand-in for a registry."""
    handler = partial(_Files, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Workspace(NamedTuple):
    daemon: RawDaemon
    path: Path


def configure(daemon: RawDaemon, session: str, **policy: Any) -> Json:
    answer: Json = daemon.call("configure_session", {"session": session, "sandbox": policy})
    return answer
