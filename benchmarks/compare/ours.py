"""shelld, through its client library."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import cast

from compare.contestant import LIMIT_S, Answer, Contestant, NoAnswer, seconds_since
from measure import family_of
from shelld import __version__
from shelld_client import Client, ShellError


class Shelld(Contestant):
    name = "shelld"
    version = __version__

    def open(self) -> None:
        self._until_close = ExitStack()
        client = Client.spawn(args=["--max-shells", "2000"])
        self._client = self._until_close.enter_context(client)

    def close(self) -> None:
        self._until_close.close()

    def server_pids(self) -> list[int]:
        assert self._client.pid is not None
        return family_of(self._client.pid)

    def ping(self) -> None:
        self._client.ping()

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        began = time.perf_counter()
        try:
            result = self._client.bash(command, timeout=int(timeout_s * 1000))
        except ShellError as error:
            raise NoAnswer(str(error)) from error
        return Answer(seconds_since(began), result.stdout)

    def begin(self, command: str) -> object:
        return self._client.bash(command, run_in_background=True).bash_id

    def kill(self, begun: object) -> None:
        self._client.kill_shell(cast(str, begun))

    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        self.begin(command)
        wait_for_start()
        assert self._client.pid is not None
        os.kill(self._client.pid, signal.SIGKILL)
