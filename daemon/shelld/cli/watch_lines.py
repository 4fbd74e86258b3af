"""Describes the changes at a watched daemon as lines of text. Pure.

Remembers the last view. Each view has only the last lines of output, so the result is not a
complete log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shelld.cli.formats import duration, printable
from shelld.lasting.views import Info, View, WatchedShell


def one_line(command: str) -> str:
    """Return a command as one line."""
    return printable(" ".join(command.split()))


def how_it_ended(shell: WatchedShell) -> str:
    """Describe how a shell has ended: ``exit code 1``, ``killed (SIGKILL)``."""
    if shell.exit_code is not None and shell.status in ("completed", "failed"):
        return f"exit code {shell.exit_code}"
    status = shell.status if shell.signal is None else f"{shell.status} ({shell.signal})"
    return printable(status)


def client_of(info: Info) -> str:
    return "no client" if info.client is None else f"client {info.client}"


def new_lines(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """Return the lines at the end of `now` that `before` does not contain."""
    known = set(before)
    count = next((at for at, line in enumerate(reversed(now)) if line in known), len(now))
    return now[len(now) - count :]


class Changes:
    def __init__(self, name: str) -> None:
        self._name = name
        self._info: Info | None = None
        self._shells: dict[str, WatchedShell] = {}
        self._is_silent = False

    def since(self, view: View, *, is_silent: bool) -> list[str]:
        """Return the changes since the last view. If `is_silent`, the daemon does not answer."""
        lines = [*self._of_daemon(view.info, is_silent=is_silent)]
        for shell in view.shells:
            lines += self._of_shell(shell)
        self._info, self._is_silent = view.info, is_silent
        self._shells.update((each.id, each) for each in view.shells)
        return lines

    def _of_daemon(self, info: Info, *, is_silent: bool) -> Iterator[str]:
        if self._info is None:
            yield f"{self._name}: pid {info.pid}, {client_of(info)}"
        elif self._info.client != info.client:
            yield f"{self._name}: {client_of(info)}"
        if is_silent != self._is_silent:
            yield f"{self._name}: {'does not answer' if is_silent else 'answers again'}"

    def _of_shell(self, shell: WatchedShell) -> Iterator[str]:
        before, name = self._shells.get(shell.id), printable(shell.id)
        if before is None:
            is_new = self._info is not None
            state = "started" if is_new else "runs" if shell.is_running else how_it_ended(shell)
            yield f"{name}: {state}: {one_line(shell.command)}"
        if before is None or before.written != shell.written:
            for line in new_lines([] if before is None else before.lines, shell.lines):
                yield f"{name} | {printable(line)}"
        was_running = self._info is not None if before is None else before.is_running
        if was_running and not shell.is_running:
            yield f"{name}: {how_it_ended(shell)} after {duration(shell.elapsed_ms / 1000)}"
