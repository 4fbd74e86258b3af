"""Tasks whose program waits for input: the questions to the client, and its answers."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator

import pytest

from mcp_tasks import CAPABILITIES, EXTENSION, TaskHost
from shared_daemon import SharedDaemon
from support import Json, wait_for

NAME = "read -p 'Name? ' name; echo Hello $name"
OVERWRITE = "read -p 'Overwrite? ' answer; echo You said $answer"


@pytest.fixture(scope="module")
def shared_interactive_daemon() -> Iterator[SharedDaemon]:
    shared = SharedDaemon("--interactive-tools")
    # Start the daemon now, so that it exists when the first test records the existing processes.
    shared.get()
    yield shared
    shared.close()


@pytest.fixture
def host(shared_interactive_daemon: SharedDaemon) -> Iterator[TaskHost]:
    yield TaskHost(shared_interactive_daemon.get())
    shared_interactive_daemon.tidy()


def question_of(host: TaskHost, task: str) -> tuple[str, str]:
    """Wait for a question; return its key and its message."""
    state: list[Json] = []

    def is_asked() -> bool:
        state[:] = [host.get(task)]
        return bool(state[0]["status"] == "input_required")

    wait_for(is_asked, "a question")
    ((key, request),) = state[0]["inputRequests"].items()
    return key, request["params"]["message"]


def message_of(host: TaskHost, task: str, part: str) -> Json:
    """Wait until the message of a working task contains `part`; return the task's state."""
    state: list[Json] = []

    def is_there() -> bool:
        state[:] = [host.get(task)]
        return part in state[0].get("statusMessage", "")

    wait_for(is_there, part)
    assert state[0]["status"] == "working"
    return state[0]


def respond(host: TaskHost, task: str, key: str, response: object) -> None:
    host.call("tasks/update", taskId=task, inputResponses={key: response})


@pytest.mark.slow
def test_a_call_that_prompts_becomes_a_task_with_a_question(host: TaskHost) -> None:
    # The call becomes a task when the prompt appears. Without the prompt, the call would become a
    # task after ten seconds, and the test would time out.
    task = host.task(f"for i in 1 2; do {NAME}; done", tty=True)
    (asked,) = host.get(task)["inputRequests"].items()
    key, request = asked
    assert key == "prompt_1"
    assert request["params"]["message"] == 'bash waits for input: "Name?"'
    form = request["params"]["requestedSchema"]
    assert form["properties"].keys() == {"answer"}
    host.answer(task, key, "World")
    assert question_of(host, task)[0] == "prompt_2"
    host.answer(task, "prompt_2", "again")
    text = host.result_of(task)["content"][0]["text"]
    assert text == "Name? World\nHello World\nName? again\nHello again\n"


def test_a_listener_hears_of_each_question(host: TaskHost) -> None:
    task = host.task(f"{NAME}; {OVERWRITE}", tty=True)
    states = host.states(task)
    first = next(states)
    assert first["status"] == "input_required"
    assert list(first["inputRequests"]) == ["prompt_1"]
    host.answer(task, "prompt_1", "World")
    assert next(states)["status"] == "working"
    second = next(states)
    assert list(second["inputRequests"]) == ["prompt_2"]
    host.answer(task, "prompt_2", "y")
    rest = [state["status"] for state in states]
    assert rest in (["working", "completed"], ["completed"])


@pytest.mark.slow
def test_a_listener_hears_that_a_question_is_withdrawn(host: TaskHost) -> None:
    # The daemon withdraws the question because bash gives up after three seconds, and not because
    # somebody answers.
    task = host.task("read -t 3 -p 'Name? ' name; sleep 300", tty=True, run_in_background=True)
    states = host.states(task)
    assert next(states)["status"] == "input_required"
    assert next(states)["status"] == "working"
    host.call("tasks/cancel", taskId=task)
    assert [state["status"] for state in states] == ["cancelled"]


def test_a_cancelled_answer_leaves_the_question_open(host: TaskHost) -> None:
    task = host.task("bash --norc --noediting", tty=True, run_in_background=True)
    key, _ = question_of(host, task)
    response = {"action": "accept", "content": {"answer": "echo typed; exit"}}
    request_id = host.daemon.request(
        "tasks/update", {"taskId": task, "inputResponses": {key: response}, "_meta": host.meta}
    )
    host.daemon.notify("$/cancelRequest", {"id": request_id})
    if "error" in host.daemon.answer(request_id):
        assert question_of(host, task)[0] == key
        host.answer(task, key, "echo typed; exit")
    assert "typed" in host.result_of(task)["content"][0]["text"]


def test_a_background_command_asks_too(host: TaskHost) -> None:
    task = host.task(NAME, tty=True, run_in_background=True)
    key, _ = question_of(host, task)
    host.answer(task, key, "World")
    assert "Hello World" in host.result_of(task)["content"][0]["text"]


def test_a_session_keeps_what_an_answered_command_sets(host: TaskHost) -> None:
    task = host.task("read -p 'Name? ' name", tty=True)
    host.answer(task, question_of(host, task)[0], "World")
    host.result_of(task)
    assert host.bash("echo $name")["content"][0]["text"] == "World\n"


def test_a_question_keeps_its_key(host: TaskHost) -> None:
    task = host.task(NAME, tty=True)
    assert question_of(host, task) == question_of(host, task)
    # Other clients see the same question.
    other = TaskHost(host.daemon)
    assert question_of(other, task)[0] == "prompt_1"


def test_an_answer_counts_once(host: TaskHost) -> None:
    task = host.task(f"{NAME}; {OVERWRITE}", tty=True)
    # No question has this key yet.
    host.answer(task, "prompt_1", "nobody")
    assert question_of(host, task)[0] == "prompt_1"
    host.answer(task, "prompt_1", "World")
    host.answer(task, "prompt_1", "y")
    assert question_of(host, task)[0] == "prompt_2"
    for key in ("prompt_1", "prompt_3", "name", ""):
        host.answer(task, key, "y")
    host.answer(task, "prompt_2", "n")
    assert host.result_of(task)["content"][0]["text"].endswith("You said n\n")


def test_an_answer_to_a_question_that_is_gone_is_ignored(host: TaskHost) -> None:
    task = host.task(f"{NAME}; {OVERWRITE}", tty=True)
    key, _ = question_of(host, task)
    # A model answers the question by writing to the shell.
    host.daemon.call("write_stdin", {"bash_id": task, "text": "World\n", "wait": 0})
    wait_for(lambda: "Overwrite" in host.get(task).get("statusMessage", ""))
    host.answer(task, key, "y")
    key, message = question_of(host, task)
    assert (key, message) == ("prompt_2", 'bash waits for input: "Overwrite?"')


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_question_leaves_the_program_waiting(host: TaskHost, action: str) -> None:
    task = host.task(NAME, tty=True)
    key, _ = question_of(host, task)
    respond(host, task, key, {"action": action})
    state = message_of(host, task, "the client gave no answer")
    assert state["statusMessage"].startswith('bash waits for input: "Name?"; ')
    # After this response of the client, only a write to the shell can answer the program.
    host.answer(task, key, "World")
    assert host.get(task)["status"] == "working"
    host.call("tools/call", name="BashInput", arguments={"bash_id": task, "text": "you\n"})
    assert host.result_of(task)["content"][0]["text"].endswith("Hello you\n")


@pytest.mark.parametrize(
    "response",
    [
        None,
        {},
        "World",
        {"action": "perhaps"},
        {"action": ["accept"], "content": {"answer": "World"}},
        {"action": {"decline": True}},
        {"action": "accept"},
        {"action": "accept", "content": {"answer": 5}},
        {"action": "accept", "content": ["World"]},
    ],
)
def test_invalid_response_leaves_the_question_open(host: TaskHost, response: object) -> None:
    task = host.task(NAME, tty=True)
    key, _ = question_of(host, task)
    meta = {"taskId": task, "inputResponses": {key: response}}
    request_id = host.daemon.request("tasks/update", {**meta, "_meta": host.meta})
    assert host.daemon.answer(request_id)["error"]["code"] == -32602
    assert question_of(host, task)[0] == key


def test_answer_that_a_terminal_would_cut_leaves_the_question_open(host: TaskHost) -> None:
    task = host.task(NAME, tty=True)
    key, _ = question_of(host, task)
    response = {"action": "accept", "content": {"answer": "x" * 5_000}}
    error = host.fail("tasks/update", taskId=task, inputResponses={key: response})
    name = f"inputResponses.{key}.content.answer"
    assert (
        error["message"]
        == f"Invalid value for {name}: a terminal accepts at most 4095 bytes per line"
    )
    assert error["data"]["parameter"] == name
    assert question_of(host, task)[0] == key


def test_responses_are_required(host: TaskHost) -> None:
    task = host.task(NAME, tty=True)
    error = host.daemon.fail("tasks/update", {"taskId": task, "_meta": host.meta})
    assert error["message"] == "Missing required parameter: inputResponses"


def test_the_guard_judges_an_answer_to_a_shell(host: TaskHost) -> None:
    task = host.task("bash --norc --noediting", tty=True)
    key, _ = question_of(host, task)
    # This disk does not exist, so the command would do no harm even if it ran.
    dangerous = "dd if=/nonexistent of=/dev/sdzz9/nothing"
    response = {"action": "accept", "content": {"answer": dangerous}}
    error = host.fail("tasks/update", taskId=task, inputResponses={key: response})
    assert (error["code"], error["data"]["rule"]) == (1002, "dd-disk")
    # The daemon has written nothing, and the question is still open.
    assert question_of(host, task)[0] == key
    host.answer(task, key, "exit 4")
    metadata = host.result_of(task)["structuredContent"]["metadata"]
    assert metadata["exit_code"] == 4


def test_a_secret_is_never_asked_for(host: TaskHost) -> None:
    task = host.task("read -s -p 'Password: ' p; echo; echo ${#p}", tty=True)
    state = message_of(host, task, "secret")
    assert state["statusMessage"] == "bash waits for a secret: a person must type it"
    for key in ("prompt_0", "prompt_1", "None", ""):
        host.answer(task, key, "guessed")
    assert host.get(task)["status"] == "working"
    secret = {"bash_id": task, "text": "sesame\n", "secret": True}
    host.daemon.call("write_stdin", secret)
    assert host.result_of(task)["content"][0]["text"].endswith("\n6\n")


def test_a_question_is_withdrawn_once_the_terminal_hides_what_is_typed(host: TaskHost) -> None:
    task = host.task("read -p 'Password: ' p; echo; echo ${#p}", tty=True)
    key, _ = question_of(host, task)
    (shell,) = [each for each in host.daemon.call("list_shells")["shells"] if each["isRunning"]]
    # The same process still waits, and the daemon writes nothing, so only the echo changes.
    hide_typing(shell["prompt"]["pid"])
    assert "a person must type it" in message_of(host, task, "secret")["statusMessage"]
    host.answer(task, key, "guessed")
    assert host.get(task)["status"] == "working"
    secret = {"bash_id": task, "text": "sesame\n", "secret": True}
    host.daemon.call("write_stdin", secret)
    assert host.result_of(task)["content"][0]["text"].endswith("\n6\n")


def hide_typing(pid: int) -> None:
    """Switch off the echo of a process's terminal."""
    terminal = os.open(f"/proc/{pid}/fd/0", os.O_RDWR | os.O_NOCTTY)
    try:
        modes = termios.tcgetattr(terminal)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
    finally:
        os.close(terminal)


def test_a_listener_hears_that_a_person_must_type(host: TaskHost) -> None:
    task = host.task("read -s -p 'Password: ' p", tty=True)
    states = host.states(task)
    assert "a person must type it" in next(states)["statusMessage"]
    host.call("tasks/cancel", taskId=task)
    assert [state["status"] for state in states][-1] == "cancelled"


def test_client_is_not_asked_for_single_keys(host: TaskHost) -> None:
    task = host.task("stty -echo -icanon; head -c1 > /dev/null", tty=True)
    message_of(host, task, "head waits for input")


@pytest.mark.parametrize(
    "elicitation", [{}, {"elicitation": None}, {"elicitation": {"url": {}}}], ids=str
)
def test_a_client_without_forms_is_asked_nothing(host: TaskHost, elicitation: Json) -> None:
    extensions: Json = {"extensions": {EXTENSION: {}}}
    without_forms = TaskHost(host.daemon, {**extensions, **elicitation})
    task = without_forms.task(NAME, tty=True)
    message_of(without_forms, task, "the client cannot show a form")
    # A client that can show forms gets the question.
    key, _ = question_of(host, task)
    host.answer(task, key, "World")
    assert "Hello World" in host.result_of(task)["content"][0]["text"]


def test_forms_are_the_default_of_elicitation(host: TaskHost) -> None:
    forms = TaskHost(host.daemon, {**CAPABILITIES, "elicitation": {"form": {}, "url": {}}})
    task = forms.task(NAME, tty=True)
    assert question_of(forms, task)[0] == "prompt_1"


def test_a_program_that_looks_like_a_prompt_is_not_asked_about(host: TaskHost) -> None:
    task = host.task("echo -n 'Name? '; sleep 300", tty=True, run_in_background=True)
    assert message_of(host, task, "Name?")["statusMessage"] == "Name?"


def test_of_two_answers_at_once_only_the_first_counts(host: TaskHost) -> None:
    task = host.task(f"{NAME}; {OVERWRITE}", tty=True)
    key, _ = question_of(host, task)
    responses = [
        {key: {"action": "accept", "content": {"answer": text}}} for text in ("World", "you")
    ]
    ids = [host.request("tasks/update", taskId=task, inputResponses=each) for each in responses]
    assert all("error" not in host.daemon.answer(each) for each in ids)
    assert question_of(host, task)[0] == "prompt_2"
    host.answer(task, "prompt_2", "y")
    assert "Hello World\n" in host.result_of(task)["content"][0]["text"]
