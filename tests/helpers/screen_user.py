"""Use a command with a terminal as a person does: read the screen, and type."""

from __future__ import annotations

from typing import Any

from support import Json, RawDaemon, wait_for


class ScreenUser:
    """This user starts one command, and uses its terminal."""

    def __init__(self, daemon: RawDaemon, command: str, **params: Any) -> None:
        self.daemon = daemon
        self.bash_id = daemon.background(command, tty=True, **params)

    def read(self, **params: Any) -> Json:
        result: Json = self.daemon.call("read_screen", {"bash_id": self.bash_id, **params})
        return result

    def until_line(self, line: str) -> Json:
        """Wait until the screen shows exactly this line; return the screen."""
        wait_for(lambda: line in self.read()["lines"], f"{line!r} on the screen")
        return self.read()

    def until_text(self, text: str) -> list[str]:
        """Wait until a line of the screen has this text; return the lines."""
        seen: list[str] = []

        def is_shown() -> bool:
            seen[:] = self.read(wait=100)["lines"]
            return any(text in line for line in seen)

        try:
            wait_for(is_shown, text)
        except AssertionError:
            raise AssertionError(f"{text!r} is not on the screen:\n" + "\n".join(seen)) from None
        return seen

    def type(self, *texts_or_keys: str | list[str]) -> None:
        """Type texts and keys. A list contains the names of keys."""
        for each in texts_or_keys:
            what: Any = {"text": each} if isinstance(each, str) else {"keys": each}
            self.daemon.call("write_stdin", {"bash_id": self.bash_id, **what})

    def end(self) -> Json:
        """Wait for the end of the command."""
        params = {"bash_id": self.bash_id, "wait": 60_000, "until": "exit"}
        result: Json = self.daemon.call("bash_output", params)
        return result
