"""A workload for a daemon with an injected fault. It uses most of the daemon's methods."""

from __future__ import annotations

import time
from typing import Any

from fault_injection.asking import ANSWER_S, MARK, Asker, ViolationError, is_excused
from support import Json

# This input is larger than the buffer of a pipe or a terminal.
LINES = "".join(f"{number:03999}\n" for number in range(18))


class Workload(Asker):
    """One run of the workload."""

    STEPS = (
        "ask_about",
        "run_in_foreground",
        "keep_state",
        "run_in_background",
        "write_input",
        "wait",
        "hand_over",
        "follow",
        "cancel",
        "use_tools",
        "run_as_task",
    )

    def ask_about(self) -> None:
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
        self.daemon.send(
            [{"jsonrpc": "2.0", "id": request_id, "method": "ping"} for request_id in ids]
        )
        answers: Any = self.daemon.receive(ANSWER_S)
        while "method" in answers:
            # This is an event of a subscription. A previous fault has delayed it.
            answers = self.daemon.receive(ANSWER_S)
        is_refused = "error" in answers and answers["id"] is None
        if not is_refused and sorted(answer["id"] for answer in answers) != ids:
            raise ViolationError(f"a batch is not answered: {answers}")

    def run_in_foreground(self) -> None:
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
            self.kill(left["bash_id"])

    def keep_state(self) -> None:
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
        self.close_session("configured")
        self.close_session("kept")

    def run_in_background(self) -> None:
        started = self.bash(
            f"echo start; sleep {MARK} & setsid sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
        )
        if started is None:
            return
        shell = {"bash_id": started["bash_id"]}
        self.ask("bash_output", {**shell, "wait": 60_000}, lambda result: "s" in result["stdout"])
        for pattern in ("^st.rt$", "(?=s)start"):
            # The previous read may have failed before there was output to read.
            read = {**shell, "stdout_offset": 0, "filter": pattern, "wait": 60_000}
            self.ask("bash_output", read, lambda result: result["stdout"] == "start\n")
        self.ask("list_shells", None, lambda result: len(result["shells"]) > 0)
        self.kill(started["bash_id"])

    def write_input(self) -> None:
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
            write = {**shell, "text": LINES, "wait": 60_000}
            end = {**shell, "eof": True}
            if (
                self.ask("write_stdin", write, lambda result: result["written"] == len(LINES))
                and self.ask("write_stdin", end, lambda result: result["written"] < 2)
                # Only if both writes succeeded does the command end. Otherwise, it still waits for
                # input.
            ):
                read = {**shell, "wait": 60_000, "until": "exit", "stdout_offset": 0}
                self.ask("bash_output", read, lambda result: "got" in result["stdout"])
            self.kill(started["bash_id"])

    def wait(self) -> None:
        started = self.bash(
            f"echo ready; read -r line; sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
            tty=True,
        )
        if started is None:
            return
        read = {"bash_id": started["bash_id"], "wait": 60_000, "stdout_offset": 0}
        self._reach("match", {**read, "pattern": "^ready$"})
        self._reach("match", {**read, "pattern": "(?=r)ready"})
        self._reach("prompt", read)
        self._reach("quiet", {**read, "quiet_ms": 20})
        nowhere = {**read, "until": "listening", "wait": 0}
        self.ask("bash_output", nowhere, lambda result: result["reached"] is None)
        self.kill(started["bash_id"])

    def _reach(self, until: str, read: Json) -> None:
        wait = {**read, "until": until}
        self.ask("bash_output", wait, lambda result: result["reached"] == until)

    def hand_over(self) -> None:
        call = self.daemon.request("bash", {"command": f"sleep {MARK}"})
        handed = self.daemon.request("background", {"request_id": call})
        early: Json = {}
        answer = self.answer(handed, "background", early)
        if "error" in answer and call not in early:
            # The call is still in flight. Cancel it twice, because the fault may make one attempt
            # fail.
            for _ in range(2):
                self.daemon.notify("$/cancelRequest", {"id": call})
        given = early.get(call) or self.answer(call, "bash")
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

    def follow(self) -> None:
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
        self.collect(own, "shell/exited", after={"shell_id": started["bash_id"], "signal": "HUP"})
        if subscribed is not None:
            again = {"subscription": own, "from_seq": 0}
            if self.ask("subscribe", again, lambda result: result["seq"] > 0) is not None:
                self.collect(own, "shell/exited")
            name = {"subscription": subscribed["subscription"]}
            self.ask("unsubscribe", name, lambda result: result == {})

    def cancel(self) -> None:
        request_id = self.daemon.request("bash", {"command": f"echo; sleep {MARK}"})
        # The fault may make one notification fail, which then has no effect. So send two.
        for _ in range(2):
            self.daemon.notify("$/cancelRequest", {"id": request_id})
        answer = self.answer(request_id, "cancelled bash")
        if "error" not in answer and answer["result"].get("reason") != "lost":
            raise ViolationError(f"a cancelled request has a result: {str(answer)[:600]}")

    def use_tools(self) -> None:
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

    def run_as_task(self) -> None:
        """Use a task of MCP: listen to the task, read its question, answer the question, cancel the
        task.
        """
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
        listening = self.daemon.request("subscriptions/listen", heard)
        early: Json = {}
        asked: Any = {}
        deadline = time.monotonic() + ANSWER_S
        while not asked.get("inputRequests") and listening not in early:
            look = self.daemon.request("tasks/get", task)
            asked = self.answer(look, "tasks/get", early).get("result") or {}
            if time.monotonic() > deadline:
                raise ViolationError(f"no question: {asked}")
        for key in asked.get("inputRequests") or ():
            response = {"action": "accept", "content": {"answer": "me"}}
            update = {**task, "inputResponses": {key: response}}
            updated = self.daemon.request("tasks/update", update)
            self.note(self.answer(updated, "tasks/update", early), "tasks/update")
        # The fault may make the first `tasks/cancel` fail, so send it twice.
        for _ in range(2):
            cancel = self.daemon.request("tasks/cancel", task)
            self.note(self.answer(cancel, "tasks/cancel", early), "tasks/cancel")
        ended = early.get(listening) or self.answer(listening, "subscriptions/listen")
        self.note(ended, "subscriptions/listen")

    def _use_tool(self, name: str, **arguments: Any) -> Any:
        call = {"name": name, "arguments": arguments}
        return self.ask("call_tool", call, lambda result: result["success"])
