"""The workload of a faulty daemon: everything once, one request after the other.

Each step knows its right answer. If a fault hits a step, the answer may be an error or a lost
shell; later steps that depend on that step are then not checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from support import Json, RawDaemon

# Marks the command line of each process that runs until something kills it.
MARK = "3141.59"

# More than a pipe or a terminal takes at once.
LINES = "".join(f"{number:099}\n" for number in range(700))

# The guard's reason when its own code fails. It never refuses a command because of such a failure.
GUARD_FAILED = "it cannot be followed"

ANSWER_S = 20.0


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


class Workload:
    """One run of the workload. `excused`: the methods whose answers reported a failure."""

    def __init__(self, daemon: RawDaemon) -> None:
        self._daemon = daemon
        self.excused: list[str] = []

    def ask(self, method: str, params: Any, check: Callable[[Any], bool]) -> Any:
        """Return the right result, or None if the answer reports a failure."""
        request_id = self._daemon.request(method, params)
        return self.take(request_id, method, check)

    def take(self, request_id: Any, method: str, check: Callable[[Any], bool]) -> Any:
        answer = self._answer(request_id, method)
        if is_excused(answer):
            self.excused.append(f"{method}: {str(answer)[:200]}")
            return None
        if not check(answer["result"]):
            raise ViolationError(f"wrong answer to {method}: {str(answer)[:600]}")
        return answer["result"]

    def _answer(self, request_id: Any, method: str, early: Json | None = None) -> Json:
        """Return the answer to a request. Others, if there may be any, go into `early`."""
        while True:
            try:
                message: Json = self._daemon.receive(ANSWER_S)
            except (AssertionError, ValueError) as error:
                raise ViolationError(f"no answer to {method}: {str(error)[-1500:]}") from None
            if message.get("id") == request_id:
                return message
            if message.get("id") is None and "error" in message:
                # A message with an unknown id. Take it as the answer to the request in flight.
                return message
            if early is not None and "method" not in message:
                early[message["id"]] = message
            elif "method" not in message:
                raise ViolationError(f"an answer that nobody waits for: {str(message)[:600]}")

    def bash(self, command: str, check: Callable[[Any], bool], **params: Any) -> Any:
        return self.ask("bash", {"command": command, **params}, check)

    def echo(self, text: str, **params: Any) -> Any:
        return self.bash(f"echo {text}", lambda result: result["stdout"] == f"{text}\n", **params)

    # -- the steps --------------------------------------------------------------------------

    def run(self) -> None:
        self._ask_about()
        self._run_in_foreground()
        self._keep_state()
        self._run_in_background()
        self._write_input()
        self._wait()
        self._hand_over()
        self._follow()
        self._cancel()
        self._use_tools()
        self._run_as_task()

    def run_shortly(self) -> None:
        """Run a short workload, all of which must succeed."""
        self.ask("ping", {}, lambda result: result == {})
        self.echo("one")
        self.bash("later=1; cd /", lambda result: result["exitCode"] == 0)
        self.bash("echo $later $PWD", lambda result: result["stdout"] == "1 /\n")
        if self.excused:
            raise ViolationError(f"a failure after the fault: {self.excused}")
        self._clean_up()

    def _ask_about(self) -> None:
        self.ask("ping", None, lambda result: result == {})
        self.ask("server_info", None, lambda result: result["name"] == "shelld")
        self.ask(
            "explain_command",
            {"command": "rm -rf /etc"},
            lambda result: result["verdict"] == "block",
        )
        params = {"command": "sudo true", "dry_run": True}
        self.ask("bash", params, lambda result: result["dryRun"] is True)
        ids = [f"b{number}" for number in range(3)]
        self._daemon.send(
            [{"jsonrpc": "2.0", "id": request_id, "method": "ping"} for request_id in ids]
        )
        answers: Any = self._daemon.receive(ANSWER_S)
        while "method" in answers:
            # An event of a subscription that the last fault has kept from its end.
            answers = self._daemon.receive(ANSWER_S)
        is_refused = "error" in answers and answers["id"] is None
        if not is_refused and sorted(answer["id"] for answer in answers) != ids:
            raise ViolationError(f"a batch is not answered: {answers}")

    def _run_in_foreground(self) -> None:
        self.bash(
            "echo out; echo err >&2; exit 3",
            lambda result: (
                (result["stdout"], result["stderr"], result["exitCode"]) == ("out\n", "err\n", 3)
            ),
        )
        for text in ("a", "b", "c"):
            self.echo(text)
        self.bash("cat", lambda result: result["stdout"] == "given", stdin="given", env={"A": "b"})
        self.bash("seq 30000", lambda result: result["stdoutBytes"] == 168_894)
        left = self.bash(f"sleep {MARK} & echo left", lambda result: len(result["leftover"]) == 1)
        if left is not None:
            params = {"shell_id": left["bash_id"]}
            self.ask("kill_shell", params, lambda result: result["survivors"] == [])

    def _keep_state(self) -> None:
        session = {"session": "kept"}
        kept = self.bash(
            "x=1; f() { echo f$x; }; cd /tmp", lambda result: result["exitCode"] == 0, **session
        )
        found = self.bash("echo $x $PWD; f", lambda _: True, **session)
        if kept is not None and found is not None and found["stdout"] != "1 /tmp\nf1\n":
            raise ViolationError(f"the state of a session is wrong: {found}")
        self.ask("get_session", session, lambda result: result["session"] == "kept")
        params = {
            "session": "configured",
            "env": {"mode": "core", "remove": ["LANG"]},
            "limits": {
                "memory_bytes": 2**30,
                "processes": 999,
                "cpu_seconds": 999,
                "open_files": 99,
            },
        }
        self.ask("configure_session", params, lambda result: result["session"] == "configured")
        self.bash("echo $HOME", lambda _: True, session="configured")
        self.ask("close_session", {"session": "configured"}, lambda result: not result["killed"])
        self.ask("close_session", session, lambda result: result["session"] == "kept")

    def _run_in_background(self) -> None:
        started = self.bash(
            f"echo start; sleep {MARK} & setsid sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
        )
        if started is None:
            return
        shell = {"bash_id": started["bash_id"]}
        self.ask("bash_output", {**shell, "wait": 10_000}, lambda result: "s" in result["stdout"])
        for pattern in ("^st.rt$", "(?=s)start"):
            # The previous read may have failed before there was output to read.
            read = {**shell, "stdout_offset": 0, "filter": pattern, "wait": 10_000}
            self.ask("bash_output", read, lambda result: result["stdout"] == "start\n")
        self.ask("list_shells", None, lambda result: len(result["shells"]) > 0)
        kill = {"shell_id": started["bash_id"]}
        self.ask("kill_shell", kill, lambda result: result["survivors"] == [])

    def _write_input(self) -> None:
        for params in ({"tty": True}, {"open_stdin": True}):
            started = self.bash(
                "read -r line; echo got $line; cat",
                lambda result: result["status"] == "running",
                run_in_background=True,
                **params,
            )
            if started is None:
                continue
            shell = {"bash_id": started["bash_id"]}
            if "tty" in params:
                size = {**shell, "rows": 10, "cols": 40}
                if self.ask("resize_shell", size, lambda result: result["cols"] == 40):
                    self.ask("read_screen", shell, lambda result: len(result["lines"]) == 10)
            write = {**shell, "text": LINES, "wait": 10_000}
            end = {**shell, "eof": True}
            if (
                self.ask("write_stdin", write, lambda result: result["written"] == len(LINES))
                and self.ask("write_stdin", end, lambda result: result["written"] < 2)
                # Without input, the command waits for more.
            ):
                read = {**shell, "wait": 10_000, "until": "exit", "stdout_offset": 0}
                self.ask("bash_output", read, lambda result: "got" in result["stdout"])
            kill = {"shell_id": started["bash_id"]}
            self.ask("kill_shell", kill, lambda result: result["survivors"] == [])

    def _wait(self) -> None:
        started = self.bash(
            f"echo ready; read -r line; sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
            tty=True,
        )
        if started is None:
            return
        read = {"bash_id": started["bash_id"], "wait": 10_000, "stdout_offset": 0}
        self._reach("match", {**read, "pattern": "^ready$"})
        self._reach("match", {**read, "pattern": "(?=r)ready"})
        self._reach("prompt", read)
        self._reach("quiet", {**read, "quiet_ms": 20})
        nowhere = {**read, "until": "listening", "wait": 0}
        self.ask("bash_output", nowhere, lambda result: result["reached"] is None)
        kill = {"shell_id": started["bash_id"]}
        self.ask("kill_shell", kill, lambda result: result["survivors"] == [])

    def _reach(self, until: str, read: Json) -> None:
        wait = {**read, "until": until}
        self.ask("bash_output", wait, lambda result: result["reached"] == until)

    def _hand_over(self) -> None:
        call = self._daemon.request("bash", {"command": f"sleep {MARK}"})
        handed = self._daemon.request("background", {"request_id": call})
        early: Json = {}
        answer = self._answer(handed, "background", early)
        if "error" in answer and call not in early:
            # The call is still in flight.
            for _ in range(2):
                self._daemon.notify("$/cancelRequest", {"id": call})
        given = early.get(call) or self._answer(call, "bash")
        if is_excused(answer) or is_excused(given):
            self.excused.append(f"background: {str(answer)[:200]} {str(given)[:200]}")
        elif given["result"]["bash_id"] != answer["result"]["bash_id"]:
            raise ViolationError(f"wrong answer to a hand-over: {str(given)[:600]}")
        self.bash(
            "read -r line",
            lambda result: (result["status"], result["reason"]) == ("killed", "prompt"),
            tty=True,
            on_prompt="kill",
        )

    def _follow(self) -> None:
        names = ["output", "exit", "prompt", "listening", "leftover", "screen"]
        subscribed = self.ask("subscribe", {"events": names}, lambda result: result["seq"] == 0)
        started = self.bash(
            f"echo out; setsid sleep {MARK} & read -r line",
            lambda result: result["status"] == "running",
            run_in_background=True,
            tty=True,
            notify=["exit"],
        )
        if started is None:
            return
        own = started["subscription"]
        self._collect(own, "shell/exited", after={"shell_id": started["bash_id"], "signal": "HUP"})
        if subscribed is not None:
            again = {"subscription": own, "from_seq": 0}
            if self.ask("subscribe", again, lambda result: result["seq"] > 0) is not None:
                self._collect(own, "shell/exited")
            name = {"subscription": subscribed["subscription"]}
            self.ask("unsubscribe", name, lambda result: result == {})

    def _collect(self, subscription: str, last: str, after: Json | None = None) -> None:
        """Take the events of a subscription to one of this name; `after` a kill, if it is given."""
        kill = None if after is None else self._daemon.request("kill_shell", after)
        is_killed, seq, has_last = kill is None, 0, False
        while not (is_killed and has_last):
            try:
                message: Json = self._daemon.receive(ANSWER_S)
            except (AssertionError, ValueError) as error:
                raise ViolationError(f"no {last}: {str(error)[-1500:]}") from None
            if kill is not None and message.get("id") == kill:
                # A result also tells of a shell that the fault has ended.
                is_killed = "result" in message
                if is_excused(message):
                    self.excused.append(f"kill_shell: {str(message)[:200]}")
                if not is_killed:
                    kill = self._daemon.request("kill_shell", after)
            elif message.get("params", {}).get("subscription") == subscription:
                seq += 1
                has_last = message["method"] == last
                if message["params"]["seq"] != seq:
                    raise ViolationError(f"not event {seq}: {str(message)[:600]}")

    def _cancel(self) -> None:
        request_id = self._daemon.request("bash", {"command": f"echo; sleep {MARK}"})
        # The fault may hit a notification, which then has no effect; so send two.
        for _ in range(2):
            self._daemon.notify("$/cancelRequest", {"id": request_id})
        answer = self._answer(request_id, "cancelled bash")
        if "error" not in answer and answer["result"].get("reason") != "lost":
            raise ViolationError(f"a cancelled request has a result: {str(answer)[:600]}")

    def _use_tools(self) -> None:
        self.ask("list_tools", None, lambda result: len(result["tools"]) == 5)
        call = {"name": "Bash", "arguments": {"command": "echo tool"}}
        self.ask("call_tool", call, lambda result: "tool" in result["output"])
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "fault-injection", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": "t",
        }
        self.ask("tools/list", {"_meta": meta}, lambda result: len(result["tools"]) == 5)
        self.ask("tools/call", {**call, "_meta": meta}, lambda result: not result["isError"])

        start = {"command": "read -r line; cat", "tty": True, "run_in_background": True}
        started = self._use_tool("Bash", **start)
        if started is None:
            return
        shell = {"bash_id": started["metadata"]["bash_id"]}
        self._use_tool("BashInput", **shell, text="typed", keys=["Enter"], wait=0)
        self._use_tool("BashScreen", **shell)
        self._use_tool("KillShell", shell_id=started["metadata"]["bash_id"])

    def _run_as_task(self) -> None:
        """Use a task of MCP: listen to it, look at its question, answer that, and cancel it."""
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "fault-injection", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {},
                "extensions": {"io.modelcontextprotocol/tasks": {}},
            },
        }
        command = f"read -rp 'Name? ' line; sleep {MARK}"
        arguments = {"command": command, "tty": True, "run_in_background": True}
        call = {"name": "Bash", "arguments": arguments, "_meta": meta}
        started = self.ask("tools/call", call, lambda result: result["resultType"] == "task")
        if started is None:
            return
        task = {"taskId": started["taskId"], "_meta": meta}
        heard = {"notifications": {"taskIds": [started["taskId"]]}, "_meta": meta}
        listening = self._daemon.request("subscriptions/listen", heard)
        early: Json = {}
        asked: Any = {}
        deadline = time.monotonic() + ANSWER_S
        while not asked.get("inputRequests") and listening not in early:
            look = self._daemon.request("tasks/get", task)
            asked = self._answer(look, "tasks/get", early).get("result") or {}
            if time.monotonic() > deadline:
                raise ViolationError(f"no question: {asked}")
        for key in asked.get("inputRequests") or ():
            response = {"action": "accept", "content": {"answer": "me"}}
            update = {**task, "inputResponses": {key: response}}
            updated = self._daemon.request("tasks/update", update)
            self._note(self._answer(updated, "tasks/update", early), "tasks/update")
        # The fault may hit the first one.
        for _ in range(2):
            cancel = self._daemon.request("tasks/cancel", task)
            self._note(self._answer(cancel, "tasks/cancel", early), "tasks/cancel")
        ended = early.get(listening) or self._answer(listening, "subscriptions/listen")
        self._note(ended, "subscriptions/listen")

    def _note(self, answer: Json, method: str) -> None:
        """Note a failure, which the fault excuses."""
        if is_excused(answer):
            self.excused.append(f"{method}: {str(answer)[:200]}")

    def _use_tool(self, name: str, **arguments: Any) -> Any:
        call = {"name": name, "arguments": arguments}
        return self.ask("call_tool", call, lambda result: result["success"])

    def _clean_up(self) -> None:
        """Close all sessions, which ends their running commands and spare shells."""
        for session in self._daemon.call("list_sessions")["sessions"]:
            params = {"session": session["session"]}
            self.ask("close_session", params, lambda result: not result.get("survivors"))
