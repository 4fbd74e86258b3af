"""Commands in other places: in a sandbox, and at a target.

Each run starts a new sandbox and connects to a new target, so a fault can hit every step of the
start and of the connection.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fault_injection.asking import FAR, MARK, Asker, ViolationError, is_excused
from sandboxes import why_impossible
from support import RawDaemon


class Places(Asker):
    """One run of commands in sandboxes and at targets. Sandboxes can write to `folder`, which has
    the control file.
    """

    STEPS = (
        *(() if why_impossible() else ("use_sandbox",)),
        *("use_target", "bring_shelld", "lose_target"),
    )

    def __init__(self, daemon: RawDaemon, folder: Path) -> None:
        super().__init__(daemon)
        self._folder = folder

    # -- the sandbox ------------------------------------------------------------------------

    def _replace_denied_path(self) -> None:
        """Make the sandbox outdated, so that the next command gets a new one."""
        new = self._folder / "new"
        new.write_text("denied")
        os.replace(new, self._folder / "denied")

    def use_sandbox(self) -> None:
        self._replace_denied_path()
        session = {"session": "boxed"}
        sandbox = {
            "write": [str(self._folder)],
            "deny_read": [str(self._folder / "denied"), str(self._folder / "missing" / "below")],
            "deny_write": ["/nowhere/to/be/found"],
            "network": "hosts",
            "hosts": [],
        }
        params = {**session, "sandbox": sandbox}
        configured = self.ask("configure_session", params, lambda result: "sandbox" in result)
        if configured is None:
            return
        denied = f"cat {self._folder}/denied; x=1; cd /usr; f() {{ echo f$x; }}"
        kept = self.bash(
            denied, lambda result: result["stdout"] == "" and "sandbox" in result, **session
        )
        found = self.bash("f; pwd; unknown", lambda result: "sandbox" in result, **session)
        if kept is not None and found is not None and found["stdout"] != "f1\n/usr\n":
            raise ViolationError(f"the state of a session is wrong: {found}")
        left = self.bash(
            f"sleep {MARK} & echo left", lambda result: len(result["leftover"]) == 1, **session
        )
        if left is not None:
            self.kill(left["bash_id"])
        started = self.bash(
            f"read -r line; echo got $line; sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
            tty=True,
            **session,
        )
        if started is not None:
            shell = {"bash_id": started["bash_id"]}
            prompt = {**shell, "until": "prompt", "wait": 60_000}
            self.ask("bash_output", prompt, lambda result: result["reached"] == "prompt")
            self.ask("list_shells", None, lambda result: len(result["shells"]) > 0)
            self.kill(started["bash_id"])
        self._replace_denied_path()
        self.bash("echo again", lambda result: result["stdout"] == "again\n", **session)
        tighter = {"deny_read": ["/mnt"]}
        # The session does not keep the state of this command, because the command runs in a
        # different sandbox.
        request = self.daemon.request("bash", {"command": "x=2", "sandbox": tighter, **session})
        answer = self.answer(request, "bash")
        if "error" in answer or answer["result"].get("reason") == "lost":
            self.note(answer, "bash")
        elif "sandbox" not in answer["result"]:
            raise ViolationError(f"a command is not in its sandbox: {answer}")
        self.close_session("boxed")

    # -- the target -------------------------------------------------------------------------

    def use_target(self) -> None:
        if not self.add_target({"name": "box", "argv": FAR}):
            return
        far = {"target": "box"}
        self.bash("echo far; cd /tmp", lambda result: result["stdout"] == "far\n", **far)
        placed = {"session": "placed"}
        kept = self.bash("x=1", lambda result: result["exitCode"] == 0, **far, **placed)
        found = self.bash("echo $x", lambda _: True, **placed)
        # If the fault cuts the connection after `x=1`, a new daemon of the target runs the second
        # command, and does not know the session.
        if kept is not None and found is not None and found["stdout"] not in ("1\n", "\n"):
            raise ViolationError(f"the state of a session is wrong: {found}")
        started = self.bash(
            f"echo out; read -r line; echo got $line; sleep {MARK}",
            lambda result: result["bash_id"].startswith("box:"),
            run_in_background=True,
            tty=True,
            notify=["exit"],
            **far,
        )
        if started is not None:
            shell = {"bash_id": started["bash_id"]}
            prompt = {**shell, "until": "prompt", "wait": 60_000}
            self.ask("bash_output", prompt, lambda result: result["reached"] == "prompt")
            write = {**shell, "text": "word\n", "wait": 60_000}
            self.ask("write_stdin", write, lambda result: result["written"] == len("word\n"))
            self.kill(started["bash_id"])
        self._cancel(far)
        self.ask("list_targets", None, lambda result: len(result["targets"]) == 1)
        self.close_session("placed")
        self.remove_target("box")

    def _cancel(self, far: dict[str, Any]) -> None:
        """Cancel a command at the target."""
        request = self.daemon.request("bash", {"command": f"sleep {MARK}", **far})
        for _ in range(2):
            self.daemon.notify("$/cancelRequest", {"id": request})
        answer = self.answer(request, "cancelled bash")
        if not is_excused(answer):
            raise ViolationError(f"a cancelled request has a result: {str(answer)[:600]}")

    def bring_shelld(self) -> None:
        """Use a target to which the daemon sends shelld."""
        argv = ["env", f"HOME={self._folder}", "sh"]
        if self.add_target({"name": "bare", "argv": argv, "bootstrap": True}):
            self.bash("echo far", lambda result: result["stdout"] == "far\n", target="bare")
            self.remove_target("bare")

    def lose_target(self) -> None:
        """Use targets that do not answer."""
        for name, argv in (("gone", ["sh", "-c", "echo why >&2; exit 3"]), ("no", ["/no/where"])):
            add = {"name": name, "argv": argv}
            self.ask("add_target", add, lambda _: True)
            request = self.daemon.request("bash", {"command": "true", "target": name})
            answer = self.answer(request, "bash")
            # The answer must be an error, even if the fault has prevented `add_target`.
            if "result" in answer:
                raise ViolationError(f"a lost target has answered: {str(answer)[:600]}")
            self.remove_target(name)
