"""Send one request after the other to a faulty daemon, and check each answer.

A fault may turn an answer into an error, or lose a shell. The test excuses such an answer, and
checks nothing that depends on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from support import Json, RawDaemon

# This mark is in the command line of each process that runs until something kills it.
MARK = "3141.59"

# The command line of a target: a plain daemon, in which no fault is injected.
FAR = [sys.executable, "-m", "shelld"]

# The reason that the guard gives when its own code fails. The guard never refuses a command because
# of such a failure.
GUARD_FAILED = "it cannot be followed"

ANSWER_S = 60.0


class ViolationError(AssertionError):
    """The daemon broke a promise."""


def is_excused(answer: Json) -> bool:
    """Return whether an answer reports that something went wrong."""
    if "error" in answer:
        return bool(answer["error"]["code"] != -32600)
    result: Json = answer["result"] or {}
    return (
        result.get("reason") in {"lost", GUARD_FAILED}
        or result.get("stateKept") is False
        or result.get("success") is False
        or result.get("isError") is True
        or result.get("spoolError") is not None
        or result.get("alreadyStopped") is True
    )


class Asker:
    """Sends requests to a daemon, and checks the answers.

    `excused` lists the methods whose answers reported a failure. A subclass has a method for each
    of its `STEPS`. No step depends on another step.
    """

    STEPS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, daemon: RawDaemon) -> None:
        self.daemon = daemon
        self.excused: list[str] = []

    def run(self, *steps: str) -> None:
        """Take these steps, or all steps if none are given."""
        for step in steps or self.STEPS:
            getattr(self, step)()

    def ask(self, method: str, params: Any, check: Callable[[Any], bool]) -> Any:
        """Send a request.

        Return its result, which `check` must accept, or None if the request failed.
        """
        request_id = self.daemon.request(method, params)
        return self.take(request_id, method, check)

    def take(self, request_id: Any, method: str, check: Callable[[Any], bool]) -> Any:
        answer = self.answer(request_id, method)
        if is_excused(answer):
            self.excused.append(f"{method}: {str(answer)[:200]}")
            return None
        if not check(answer["result"]):
            raise ViolationError(f"wrong answer to {method}: {str(answer)[:600]}")
        return answer["result"]

    def answer(self, request_id: Any, method: str, early: Json | None = None) -> Json:
        """Return the answer to a request.

        If `early` is given, put the answers to other requests into `early`.
        """
        while True:
            try:
                message: Json = self.daemon.receive(ANSWER_S)
            except (AssertionError, ValueError) as error:
                raise ViolationError(f"no answer to {method}: {str(error)[-1500:]}") from None
            if "jsonrpc" not in message:
                raise ViolationError(f"a batch is answered twice: {str(message)[:600]}")
            if message.get("id") == request_id:
                return message
            if message.get("id") is None and "error" in message:
                # This error names no request, so treat it as the answer to the request in flight.
                return message
            if early is not None and "method" not in message:
                early[message["id"]] = message
            elif "method" not in message:
                raise ViolationError(f"an answer that nobody waits for: {str(message)[:600]}")

    def kill(self, shell: str) -> bool:
        """Kill a shell, which may have ended already. Return False if the request failed."""
        params = {"shell_id": shell}
        answer = self.answer(self.daemon.request("kill_shell", params), "kill_shell")
        if "error" in answer:
            self.note(answer, "kill_shell")
            return False
        if answer["result"]["survivors"]:
            raise ViolationError(f"wrong answer to kill_shell: {str(answer)[:600]}")
        return True

    def close_session(self, session: str) -> None:
        """Close a session. If the first request fails, send a second request. The first request may
        have taken effect although it failed.
        """
        for _ in range(2):
            params = {"session": session}
            answer = self.answer(self.daemon.request("close_session", params), "close_session")
            if "result" in answer:
                if answer["result"].get("survivors"):
                    raise ViolationError(f"wrong answer to close_session: {str(answer)[:600]}")
                return
            self.note(answer, "close_session")

    def add_target(self, target: Json) -> bool:
        """Add a target.

        If the request fails, remove the target, because it may have been added nevertheless.
        """
        name = target["name"]
        if self.ask("add_target", target, lambda result: result == {"name": name}) is None:
            self.remove_target(name)
            return False
        return True

    def remove_target(self, name: str) -> None:
        """Remove a target. If the first request fails, send a second request. The first request may
        have taken effect although it failed.
        """
        for _ in range(2):
            request = self.daemon.request("remove_target", {"name": name})
            answer = self.answer(request, "remove_target")
            if "result" in answer:
                return
            self.note(answer, "remove_target")

    def bash(self, command: str, check: Callable[[Any], bool], **params: Any) -> Any:
        return self.ask("bash", {"command": command, **params}, check)

    def echo(self, text: str, **params: Any) -> Any:
        return self.bash(f"echo {text}", lambda result: result["stdout"] == f"{text}\n", **params)

    def run_shortly(self) -> None:
        """Run a short workload. All of its requests must succeed."""
        self.ask("ping", {}, lambda result: result == {})
        self.echo("one")
        self.bash("later=1; cd /", lambda result: result["exitCode"] == 0)
        self.bash("echo $later $PWD", lambda result: result["stdout"] == "1 /\n")
        if self.excused:
            raise ViolationError(f"a failure after the fault: {self.excused}")
        self.clean_up()

    def collect(self, subscription: str, last: str, after: Json | None = None) -> None:
        """Read events of a subscription up to the event `last`. If `after` is given, first call
        `kill_shell` with `after` as the params.
        """
        kill = None if after is None else self.daemon.request("kill_shell", after)
        is_killed, seq, has_last = kill is None, 0, False
        while not (is_killed and has_last):
            try:
                message: Json = self.daemon.receive(ANSWER_S)
            except (AssertionError, ValueError) as error:
                raise ViolationError(f"no {last}: {str(error)[-1500:]}") from None
            if kill is not None and message.get("id") == kill:
                # `kill_shell` also succeeds if the fault has already ended the shell.
                is_killed = "result" in message
                if is_excused(message):
                    self.excused.append(f"kill_shell: {str(message)[:200]}")
                if not is_killed:
                    kill = self.daemon.request("kill_shell", after)
            elif message.get("params", {}).get("subscription") == subscription:
                seq += 1
                has_last = message["method"] == last
                if message["params"]["seq"] != seq:
                    raise ViolationError(f"not event {seq}: {str(message)[:600]}")

    def note(self, answer: Json, method: str) -> None:
        """If an answer reports a failure, add it to `excused`. The cause may be the injected fault,
        so the failure breaks no promise.
        """
        if is_excused(answer):
            self.excused.append(f"{method}: {str(answer)[:200]}")

    def clean_up(self) -> None:
        """Close all sessions, which ends their running commands and spare shells."""
        for session in self.daemon.call("list_sessions")["sessions"]:
            params = {"session": session["session"]}
            self.ask("close_session", params, lambda result: not result.get("survivors"))
