"""Ends a command on Ctrl-C, on other signals, and at a time limit.

Owns the signals that end `shelld run`. All threads block these signals, and one thread waits for
them. So a signal interrupts no other work, and the command's last output is still shown. If the
parent process ignores a signal, as nohup does, `shelld run` ignores it as well.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shelld_client import Client, ShellError
from shelld_protocol.structs import SignalName

_ENDING: Final[dict[int, SignalName]] = {
    signal.SIGINT: "INT",
    signal.SIGTERM: "TERM",
    signal.SIGHUP: "HUP",
    signal.SIGQUIT: "QUIT",
}


class Stops:
    """Ends the command on signals, and after `limit_s` seconds (None: no limit).

    The first signal is sent to the command, which then has the daemon's usual grace period. The
    second signal kills the command at once. The third signal ends this process, its daemon, and all
    processes of the command; just before that, `on_exit` is called.
    """

    def __init__(
        self,
        limit_s: float | None,
        on_resize: Callable[[], None] | None = None,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        self.is_timed_out = False
        self._limit_s = limit_s
        self._on_resize = on_resize
        self._on_exit = on_exit
        self._client: Client | None = None
        self._bash_id = ""
        self._kills = 0
        self._waited_for = {
            number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN
        }
        if on_resize is not None:
            self._waited_for.add(signal.SIGWINCH)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._waited_for)
        _start(threading.Thread(target=self._watch))

    def begin(self, client: Client, bash_id: str) -> None:
        """From now on, a signal ends this command. Start the time limit of the command.

        Before this call, a signal ends the process.
        """
        self._bash_id = bash_id
        self._client = client
        if self._limit_s is not None:
            _start(threading.Timer(self._limit_s, self._time_out))

    def end_command(self, name: SignalName) -> None:
        """Send a signal to the command, and later SIGKILL to all its remaining processes.

        Does not wait.
        """
        self._kills += 1
        grace = None if self._kills == 1 else 0
        _start(threading.Thread(target=self._kill, args=(name, grace)))

    def _time_out(self) -> None:
        self.is_timed_out = True
        self.end_command("TERM")

    def _watch(self) -> None:
        while True:
            number = signal.sigwait(self._waited_for)
            if number == signal.SIGWINCH:
                assert self._on_resize is not None
                self._on_resize()
            elif self._client is None or self._kills >= 2:
                if self._on_exit is not None:
                    self._on_exit()
                os._exit(128 + number)
            else:
                self.end_command(_ENDING[number])

    def _kill(self, name: SignalName, grace: int | None) -> None:
        # If the daemon has ended, the command has ended as well.
        with suppress(ShellError):
            if self._client is not None:
                self._client.kill_shell(self._bash_id, signal=name, grace=grace)


def _start(thread: threading.Thread) -> None:
    # When the process ends, it does not wait for these threads.
    thread.daemon = True
    thread.start()
