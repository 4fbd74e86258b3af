"""A command that a test types into."""

from __future__ import annotations

from typing import Any

from support import Json, RawDaemon, wait_for


class Session:
    """This session types into one command, and collects its output."""

    def __init__(self, daemon: RawDaemon, command: str, **params: Any) -> None:
        params = {"tty": True, **params}
        self.daemon = daemon
        self.bash_id = daemon.background(command, **params)
        self.output = ""

    def write(self, text: str | None = None, **params: Any) -> Json:
        result: Json = self.daemon.call(
            "write_stdin", {"bash_id": self.bash_id, "text": text, **params}
        )
        self.output += result["stdout"]
        return result

    def refused(self, text: str | None = None, **params: Any) -> Json:
        return self.daemon.fail("write_stdin", {"bash_id": self.bash_id, "text": text, **params})

    def until(self, text: str) -> str:
        """Wait for `text` in the output; return and forget the output up to the end of `text`."""

        def shown() -> bool:
            if text not in self.output:
                read = self.daemon.call("bash_output", {"bash_id": self.bash_id, "wait": 1_000})
                self.output += read["stdout"]
            return text in self.output

        wait_for(shown, f"{text!r} in the output")
        before, _, self.output = self.output.partition(text)
        return before + text

    def end(self) -> Json:
        result: Json = self.daemon.call(
            "bash_output", {"bash_id": self.bash_id, "wait": 60_000, "until": "exit"}
        )
        self.output += result["stdout"]
        return result
