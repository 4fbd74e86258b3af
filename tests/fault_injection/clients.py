"""Clients of a lasting daemon attach, leave, vanish, and take the daemon from another client.

A fault may make a client lose the daemon once. The next client must find all shells and sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fault_injection.asking import FAR, MARK, Asker, ViolationError
from lasting_daemon import LastingDaemon
from support import Json

T = TypeVar("T")

# A client may attach a moment before the daemon notices that the previous client is gone. A fault
# may also make one attempt fail.
ATTEMPTS = 3


class Clients(Asker):
    """One run of the clients of a lasting daemon."""

    STEPS = ("come_and_go", "watch_a_target")

    def __init__(self, daemon: LastingDaemon) -> None:
        super().__init__(daemon)
        self._lasting = daemon
        # This is true once the fault has made a client lose the daemon.
        self._has_lost = False

    def come_and_go(self) -> None:
        self.come(steal=True)
        started = self._guarded(self._start)
        self._guarded(self._ask_beside)
        self._guarded(self._leave_a_command)
        self._lasting.vanish()
        self.come()
        self._guarded(lambda: self._find(started))
        self.come(steal=True)
        self._guarded(lambda: self._find(started))
        self._guarded(self._leave)
        self.come()
        self._guarded(lambda: self._end(started))

    def watch_a_target(self) -> None:
        """Watch a shell of a target, then remove the target while a subscription follows the
        shell.
        """
        self.come(steal=True)
        self._guarded(self._watch_a_target)

    def _watch_a_target(self) -> None:
        if not self.add_target({"name": "box", "argv": FAR}):
            return
        far = {"target": "box", "run_in_background": True, "notify": ["exit"]}
        started = self.bash(f"sleep {MARK}", lambda result: "subscription" in result, **far)
        if started is not None:
            reply = self._lasting.watch()
            if reply != "watching":
                self.excused.append(f"not watching: {reply}")
        self.remove_target("box")

    def come(self, *, steal: bool = False) -> None:
        """Attach. One of `ATTEMPTS` attempts must succeed."""
        replies: list[str] = []
        for _ in range(ATTEMPTS):
            replies.append(self._lasting.attach(steal=steal))
            if replies[-1] == "attached":
                break
        else:
            raise ViolationError(f"no client can attach: {replies}")
        self.excused += replies[:-1]

    def _guarded(self, step: Callable[[], T]) -> T | None:
        """Take a step. If the connection is lost during the step, attach again. This may happen
        only once.
        """
        try:
            return step()
        except (ViolationError, OSError) as error:
            is_lost = "stdout ended" in str(error) or isinstance(error, OSError)
            if self._has_lost or not is_lost:
                raise
            self._has_lost = True
            self.excused.append(f"lost: {error}")
            self._lasting.vanish()
            self.come()
            return None

    def _start(self) -> Json | None:
        """Start a shell and set a variable that must outlive the client."""
        shell = self.bash(
            f"echo begin; sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
            notify=["output", "exit"],
        )
        self.bash("kept=1", lambda result: result["exitCode"] == 0)
        self.ask("server_info", None, lambda result: result["attachment"]["name"] == "main")
        return None if shell is None else dict(shell)

    def _ask_beside(self) -> None:
        """Send requests to the daemon on other connections. The client does not notice."""
        self._lasting.say_nothing()
        for wanted, reply in (
            ("info", self._lasting.ask_about()),
            ("busy", self._lasting.attach()),
            ("watching", self._lasting.watch()),
        ):
            if reply not in (wanted, "gone", "attached"):
                raise ViolationError(f"not {wanted}: {reply}")
            if reply != wanted:
                self.excused.append(f"not {wanted}: {reply}")
        self.ask("ping", {}, lambda result: result == {})

    def _leave_a_command(self) -> None:
        """Send requests that are still in flight when the client vanishes."""
        for command in ({"on_disconnect": "background"}, {"on_disconnect": "kill"}):
            self.daemon.request("bash", {"command": f"sleep {MARK}", **command})
        # The fault may end one of these requests.
        early: Json = {}
        self.note(self.answer(self.daemon.request("ping"), "ping", early), "ping")

    def _find(self, started: Json | None) -> None:
        """Find the shell of an earlier client, and its events."""
        listed = self.ask("list_shells", None, lambda result: "shells" in result)
        if started is None or listed is None:
            return
        shells = {shell["bash_id"]: shell for shell in listed["shells"]}
        shell = shells.get(started["bash_id"], {})
        if shell.get("reason") == "lost":
            # The fault has ended the process that supervised this shell.
            self.excused.append("a lost shell")
            return
        if not shell.get("isRunning"):
            raise ViolationError(f"a shell has not outlived its client: {shell}")
        again = {"subscription": started["subscription"], "from_seq": 0}
        if self.ask("subscribe", again, lambda result: result["seq"] >= 0) is not None:
            self.ask("ping", {}, lambda result: result == {})

    def _leave(self) -> None:
        """Close the stream of requests, and read all remaining messages."""
        asked = [self.daemon.request("ping") for _ in range(2)]
        self._lasting.end_requests()
        seen = [message["id"] for message in self.daemon.answers_to_the_end() if "id" in message]
        if self._lasting.last_words() and seen != asked:
            self.excused.append(f"answers: {seen}")

    def _end(self, started: Json | None) -> None:
        listed = self.ask("list_shells", None, lambda result: "shells" in result)
        shells: list[Json] = [] if listed is None else listed["shells"]
        for shell in shells:
            # The fault makes at most one attempt fail.
            if shell["isRunning"] and not self.kill(shell["bash_id"]):
                self.kill(shell["bash_id"])
        if started is not None:
            read = {"bash_id": started["bash_id"], "stdout_offset": 0}
            self.ask("bash_output", read, lambda result: not result["isRunning"])
