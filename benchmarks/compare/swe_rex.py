"""SWE-ReX's server, over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from compare.contestant import (
    LIMIT_S,
    PATIENCE_S,
    Answer,
    Contestant,
    NoAnswer,
    NotOffered,
    seconds_since,
)
from compare.installed import Installed
from measure import family_of

START_LIMIT_S = 20.0


class SweRex(Contestant):
    """This contestant runs each command with `execute`, without sessions."""

    name = "SWE-ReX execute"

    def __init__(self, installed: Installed) -> None:
        self.version = installed.version
        self._installed = installed

    def open(self) -> None:
        self._token = secrets.token_hex()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._server = subprocess.Popen(
            [
                self._installed.program,
                *("--host", "127.0.0.1", "--port", str(self._port), "--auth-token", self._token),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.ping()
            except NoAnswer:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.005)
            else:
                break

    def close(self) -> None:
        self._server.kill()
        self._server.wait()

    def server_pids(self) -> list[int]:
        return family_of(self._server.pid)

    def ping(self) -> None:
        self.request("GET", "/is_alive")

    def request(
        self, method: str, path: str, body: object = None, *, limit_s: float = LIMIT_S
    ) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=limit_s)
        try:
            connection.request(
                method,
                path,
                None if body is None else msgspec.json.encode(body),
                {"X-API-Key": self._token, "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            raise NoAnswer(f"no answer in {limit_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer("it has ended") from error
        finally:
            connection.close()
        result: dict[str, Any] = msgspec.json.decode(content)
        if response.status != http.HTTPStatus.OK:
            # Report only the class of the exception that the server raised, not the text.
            raised = result.get("swerexception", {}).get("class_path", "")
            raise NoAnswer(f"an error: HTTP {response.status} {raised.rpartition('.')[2]}".strip())
        return result

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        body = {"command": ["/bin/bash", "-c", command], "timeout": timeout_s}
        began = time.perf_counter()
        result = self.request("POST", "/execute", body, limit_s=timeout_s + PATIENCE_S)
        return Answer(seconds_since(began), result["stdout"])

    def begin(self, command: str) -> object:
        threading.Thread(target=self._run_to_any_end, args=(command,), daemon=True).start()
        return None

    def _run_to_any_end(self, command: str) -> None:
        with contextlib.suppress(NoAnswer):
            self.run(command, timeout_s=LIMIT_S)

    def kill(self, begun: object) -> None:
        raise NotOffered("no such call")

    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        self.begin(command)
        wait_for_start()
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.wait()


class SweRexSession(SweRex):
    """A bash that keeps running. Concurrent commands each get their own session."""

    name = "SWE-ReX session"

    def open(self) -> None:
        super().open()
        self._sessions = 0
        self._more_sessions(1)

    def _more_sessions(self, count: int) -> None:
        if count > 50:
            raise NotOffered("needs one session per command, which is too many")
        while self._sessions < count:
            body = {"session": str(self._sessions), "session_type": "bash", "startup_timeout": 5}
            self.request("POST", "/create_session", body)
            self._sessions += 1

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        self._more_sessions(len(commands))
        with ThreadPoolExecutor(len(commands)) as threads:
            run = partial(self._run_in, timeout_s=timeout_s)
            return list(threads.map(run, map(str, range(len(commands))), commands))

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        return self._run_in("0", command, timeout_s)

    def _run_in(self, session: str, command: str, timeout_s: float) -> Answer:
        body = {
            "action_type": "bash",
            "session": session,
            "command": command,
            "timeout": timeout_s,
        }
        began = time.perf_counter()
        result = self.request("POST", "/run_in_session", body, limit_s=timeout_s + PATIENCE_S)
        return Answer(seconds_since(began), result["output"])

    def kill(self, begun: object) -> None:
        body = {"action_type": "bash_interrupt", "session": "0"}
        self.request("POST", "/run_in_session", body)
