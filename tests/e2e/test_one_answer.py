"""Every request gets exactly one answer, in whatever order requests, cancels and kills come.

If a client cancels a request with MCP's notification, the request gets an answer only if the answer
was already under way.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from soak import run
from support import RawDaemon

pytestmark = pytest.mark.slow

SHORT = ["true", "exit 3", "nope", "cd /tmp", "echo x; (sleep 0.05 &)", "kill -9 $$", "seq 5000"]
LONG = ["sleep 300", "setsid sleep 300 & sleep 300", "trap '' TERM; sleep 300", "yes"]
SESSIONS = ["main", "a", "b"]


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.daemon = RawDaemon("--grace", "50", "--log-level", "error")
        self.expected: Counter[str] = Counter()
        # The requests in `expected` that the daemon need not answer.
        self.silenced: Counter[str] = Counter()
        self.shells: list[str] = []

    def ask(self, request_id: str, method: str, **params: Any) -> None:
        self.daemon.request(method, params, request_id)
        self.expected[request_id] += 1

    @rule(
        number=st.integers(0, 5), command=st.sampled_from(SHORT), session=st.sampled_from(SESSIONS)
    )
    def run_to_its_end(self, number: int, command: str, session: str) -> None:
        self.ask(f"short{number}", "bash", command=command, session=session)

    @rule(number=st.integers(0, 2), command=st.sampled_from(LONG))
    def run_for_long(self, number: int, command: str) -> None:
        self.ask(f"long{number}", "bash", command=command, session="main")

    @rule(command=st.sampled_from(SHORT + LONG))
    def run_in_background(self, command: str) -> None:
        params = {"command": command, "run_in_background": True}
        self.shells.append(self.daemon.call("bash", params)["bash_id"])

    @precondition(lambda self: self.shells)
    @rule(data=st.data(), wait=st.sampled_from([0, 10, 60_000]))
    def read(self, data: st.DataObject, wait: int) -> None:
        bash_id = data.draw(st.sampled_from(self.shells))
        self.ask("read", "bash_output", bash_id=bash_id, wait=wait, until="exit")

    @precondition(lambda self: self.shells)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.ask("kill", "kill_shell", shell_id=data.draw(st.sampled_from(self.shells)))

    @rule(session=st.sampled_from(SESSIONS))
    def close_session(self, session: str) -> None:
        self.ask("close", "close_session", session=session)

    @rule(data=st.data(), method=st.sampled_from(["$/cancelRequest", "$/cancel_request"]))
    def cancel(self, data: st.DataObject, method: str) -> None:
        if self.expected:
            request_id = data.draw(st.sampled_from(sorted(self.expected)))
            self.daemon.notify(method, {"id": request_id, "requestId": request_id})

    @rule(data=st.data())
    def cancel_silently(self, data: st.DataObject) -> None:
        if self.expected:
            request_id = data.draw(st.sampled_from(sorted(self.expected)))
            self.daemon.notify("notifications/cancelled", {"requestId": request_id})
            self.silenced[request_id] = self.expected[request_id]

    @rule(method=st.sampled_from(["nope", "bash", "ping"]))
    def ask_in_a_batch(self, method: str) -> None:
        request = {"jsonrpc": "2.0", "id": "batch", "method": method}
        self.daemon.send([request, {"jsonrpc": "2.0", "method": method}])
        self.expected["batch"] += 1

    def teardown(self) -> None:
        self.daemon.end_input()
        answered: Counter[str] = Counter()
        for answer in self.daemon.answers_to_the_end():
            answered[answer["id"]] += 1
        for request_id, count in self.expected.items():
            least = count - self.silenced[request_id]
            assert least <= answered[request_id] <= count, (request_id, answered)
        assert answered.keys() <= self.expected.keys()
        self.daemon.close()
        assert self.daemon.stderr == b""


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=8, stateful_step_count=25)


@pytest.mark.slow
def test_short_soak_answers_all_and_leaves_nothing() -> None:
    samples = run(600, 7, every=200, say=lambda _line: None)
    assert samples[-1].files == samples[0].files
