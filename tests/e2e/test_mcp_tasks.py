"""MCP's tasks on the wire: the calls that become tasks, and the clients that use tasks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_messages import CAPABILITIES_KEY, META, bash, initialize, modern
from mcp_tasks import (
    EXTENSION,
    META_WITH_TASKS,
    SUBSCRIPTION_KEY,
    TaskHost,
    check_notification,
    check_result,
)
from shared_daemon import SharedDaemon
from support import Gate, Json, Mark, RawDaemon, is_alive, raw_daemon, running_below, wait_for

METHODS: dict[str, Json] = {
    "tasks/get": {"taskId": "shell_1"},
    "tasks/update": {"taskId": "shell_1", "inputResponses": {}},
    "tasks/cancel": {"taskId": "shell_1"},
    "subscriptions/listen": {"notifications": {"taskIds": ["shell_1"]}},
}


@pytest.fixture(scope="module")
def shared_eager_daemon() -> Iterator[SharedDaemon]:
    """A daemon that makes a task of every call that does not end at once."""
    shared = SharedDaemon("--task-after", "0")
    # Start the daemon now, so that it exists when the first test records the existing processes.
    shared.get()
    yield shared
    shared.close()


@pytest.fixture
def eager(shared_eager_daemon: SharedDaemon) -> Iterator[TaskHost]:
    yield TaskHost(shared_eager_daemon.get())
    shared_eager_daemon.tidy()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def shell_of(host: TaskHost, task_id: str) -> Json:
    shells = host.daemon.call("list_shells")["shells"]
    return next(shell for shell in shells if shell["bash_id"] == task_id)


# -- which calls become tasks -----------------------------------------------------------------


@pytest.mark.slow
def test_a_short_call_gets_its_result(daemon: RawDaemon) -> None:
    host = TaskHost(daemon)
    result = host.bash("echo hi")
    assert result["resultType"] == "complete"
    assert result["content"] == [{"type": "text", "text": "hi\n"}]


@pytest.mark.slow
def test_a_long_call_becomes_a_task_with_the_id_of_its_shell(eager: TaskHost, gate: Gate) -> None:
    created = eager.bash(gate.wait)
    assert created["status"] == "working"
    assert created["ttlMs"] == 3_600_000
    assert created["pollIntervalMs"] == 5_000
    assert shell_of(eager, created["taskId"])["command"] == gate.wait
    gate.open()
    assert eager.end_of(created["taskId"])["status"] == "completed"


@pytest.mark.slow
def test_a_long_call_becomes_a_task_in_time(gate: Gate) -> None:
    # The test opens the gate only after the call is answered, so the answer must be a task.
    with raw_daemon("--task-after", "50") as daemon:
        host = TaskHost(daemon)
        task = host.task(gate.wait)
        gate.open()
        assert host.end_of(task)["status"] == "completed"


def test_a_background_call_becomes_a_task_at_once(daemon: RawDaemon, gate: Gate) -> None:
    host = TaskHost(daemon)
    task = host.task(f"echo one; {gate.wait}; echo two; exit 3", run_in_background=True)
    assert host.get(task)["status"] == "working"
    gate.open()
    result = host.result_of(task)
    text = result["content"][0]["text"]
    assert text.startswith("one\ntwo\n[Status: failed, exit code 3. Duration: ")
    assert result["isError"] is False
    assert result["structuredContent"]["metadata"]["exit_code"] == 3


def test_a_background_call_returns_when_its_wait_is_met(daemon: RawDaemon) -> None:
    host = TaskHost(daemon)
    arguments = {"run_in_background": True, "until": "match", "pattern": "rea.y"}
    result = host.bash("echo ready; sleep 300", **arguments)
    assert result["resultType"] == "complete"
    assert '[Matched: "ready"]' in result["content"][0]["text"]


def test_a_background_call_that_waits_too_long_becomes_a_task(eager: TaskHost) -> None:
    arguments = {"run_in_background": True, "until": "match", "pattern": "never"}
    task = eager.task("echo hi; sleep 300", **arguments)
    assert eager.get(task)["status"] == "working"


def test_only_bash_makes_tasks(eager: TaskHost) -> None:
    task = eager.task("sleep 300")
    arguments = {"bash_id": task, "wait": 100}
    read = eager.call("tools/call", name="BashOutput", arguments=arguments)
    assert read["resultType"] == "complete"


def test_a_call_that_cannot_start_is_no_task(eager: TaskHost) -> None:
    result = eager.bash("echo hi", cwd="/nonexistent", run_in_background=True)
    assert result["isError"] is True
    assert eager.bash("echo hi", timeout=1)["isError"] is True


# -- what becomes of the command --------------------------------------------------------------


def without_chance(result: Json) -> Json:
    """Return a result without the parts that differ from run to run."""
    metadata = result["structuredContent"]["metadata"]
    metadata |= {"bash_id": "", "command": "", "duration_ms": 0}
    return result


@pytest.mark.parametrize(
    "command",
    [
        "echo out; echo err >&2",
        "echo no; exit 3",
        "x=1; kill -9 $$",
        "cd /tmp; pwd",
        r"printf '\e[1mbold\e[0m\r\nprogress 1\rprogress 2\n'",
    ],
)
def test_a_task_has_the_same_result_as_a_plain_call(
    eager: TaskHost, gate: Gate, command: str
) -> None:
    task = eager.task(f"{gate.wait}; {command}", session="tasks", description="about it")
    gate.open()
    late = eager.result_of(task)
    direct = bash(eager.daemon, command, session="calls", description="about it")
    assert without_chance(late) == without_chance(direct)
    assert without_chance(eager.get(task)["result"]) == late


def test_the_result_is_bounded_and_always_the_same(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(f"{gate.wait}; seq 100000")
    gate.open()
    first = eager.result_of(task)
    text = first["content"][0]["text"]
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000\n")
    assert 25_000 < len(text) < 31_000
    assert f"BashOutput, bash_id={task}, stdout_offset=" in text
    assert eager.get(task)["result"] == first


@pytest.mark.parametrize("in_background", [False, True])
def test_a_long_command_is_cut_in_the_first_result_too(
    eager: TaskHost, gate: Gate, tmp_path: Path, in_background: bool
) -> None:
    first_gate = Gate(tmp_path / "first")
    command = f"({gate.wait}) & {first_gate.wait}; : {'x' * 5_000}"
    task = eager.task(command, description="y" * 5_000, run_in_background=in_background)
    first_gate.open()
    first = eager.result_of(task)
    metadata = first["structuredContent"]["metadata"]
    assert metadata["command"] == command[:4_096] + "... (truncated)"
    gate.open()
    wait_for(lambda: not shell_of(eager, task)["leftover"])
    assert eager.get(task)["result"] == first


def test_leftover_processes_do_not_change_the_result(
    eager: TaskHost, gate: Gate, tmp_path: Path
) -> None:
    first_gate = Gate(tmp_path / "first")
    task = eager.task(f"({gate.wait}; echo later) & {first_gate.wait}; echo done")
    first_gate.open()
    first = eager.result_of(task)
    assert first["content"][0]["text"].startswith("done\n[Left running: 1 of its processes")
    gate.open()
    wait_for(lambda: not shell_of(eager, task)["leftover"])
    assert eager.get(task)["result"] == first
    # The output in the task's result counts as read, so `bash_output` returns only the later
    # output.
    assert eager.daemon.call("bash_output", {"bash_id": task})["stdout"] == "later\n"


def test_the_timeout_of_the_call_still_holds(eager: TaskHost, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = f"echo before; {mark.touch}; sleep 300"
    result = mark.in_time(lambda: eager.result_of(eager.task(command, timeout=1000)))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("Command timed out after 1000ms\nbefore\n")


def test_a_command_that_outlives_its_timeout_stays_a_task(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(f"{gate.wait}; echo done", timeout=1000, on_timeout="background")
    wait_for(lambda: not shell_of(eager, task).get("inForeground"))
    assert eager.get(task)["status"] == "working"
    gate.open()
    text = eager.result_of(task)["content"][0]["text"]
    assert text.startswith("done\n[Status: completed, exit code 0.")


def test_the_session_keeps_the_state_that_a_task_leaves(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(f"{gate.wait}; cd /; x=5; greet() {{ echo hello; }}")
    gate.open()
    result = eager.result_of(task)
    assert result["structuredContent"]["metadata"]["session_cwd"] == "/"
    assert bash(eager.daemon, "pwd; echo $x; greet")["content"][0]["text"] == "/\n5\nhello\n"


def test_the_session_keeps_a_large_state_that_a_task_leaves(eager: TaskHost, gate: Gate) -> None:
    # The state is so large that a thread reads it.
    task = eager.task(f"{gate.wait}; printf -v large '%1000000s' end; last=set")
    gate.open()
    eager.result_of(task)
    assert bash(eager.daemon, "echo ${#large} $last")["content"][0]["text"] == "1000000 set\n"


def test_cancelling_the_answered_call_does_nothing(eager: TaskHost, gate: Gate) -> None:
    arguments = {"command": f"{gate.wait}; echo done"}
    request_id = eager.request("tools/call", name="Bash", arguments=arguments)
    task = eager.daemon.answer(request_id)["result"]["taskId"]
    for method, name in (("notifications/cancelled", "requestId"), ("$/cancelRequest", "id")):
        eager.daemon.notify(method, {name: request_id})
    assert eager.get(task)["status"] == "working"
    gate.open()
    assert eager.result_of(task)["content"][0]["text"] == "done\n"


def test_cancelling_a_call_before_its_task_kills_the_command(daemon: RawDaemon) -> None:
    host = TaskHost(daemon)
    request_id = host.request("tools/call", name="Bash", arguments={"command": "sleep 3141"})
    wait_for(lambda: running_below(daemon.pid, "3141"))
    daemon.notify("notifications/cancelled", {"requestId": request_id})
    wait_for(lambda: not running_below(daemon.pid, "3141"))
    killed = daemon.call("list_shells")["shells"][-1]["bash_id"]
    assert host.fail("tasks/get", taskId=killed)["message"] == "Task not found"


@pytest.mark.slow
def test_progress_ends_when_the_call_becomes_a_task(gate: Gate) -> None:
    with raw_daemon("--task-after", "700") as daemon:
        meta = {**META_WITH_TASKS, "progressToken": "p"}
        params: Json = {"name": "Bash", "arguments": {"command": f"echo hi; {gate.wait}"}}
        request_id = daemon.request("tools/call", {**params, "_meta": meta})
        methods: list[str] = []
        while (message := daemon.receive()).get("id") != request_id:
            methods.append(message["method"])
        assert set(methods) == {"notifications/progress"}
        host = TaskHost(daemon)
        gate.open()
        # `end_of` accepts only messages of its subscription, so it would fail on a progress report.
        assert host.end_of(message["result"]["taskId"])["status"] == "completed"


# -- asking and cancelling --------------------------------------------------------------------


def test_a_working_task_shows_its_last_line(eager: TaskHost) -> None:
    task = eager.task("echo compiling; sleep 300")
    wait_for(lambda: eager.get(task).get("statusMessage") == "compiling")


def test_a_task_has_its_times_and_is_kept_for_an_hour(eager: TaskHost, gate: Gate) -> None:
    created = eager.bash(gate.wait)
    gate.open()
    over = eager.end_of(created["taskId"])
    assert over["createdAt"] == created["createdAt"] == created["lastUpdatedAt"]
    assert over["lastUpdatedAt"] >= over["createdAt"]
    # The daemon keeps the task for an hour after its end.
    assert over["ttlMs"] >= 3_600_000
    assert eager.get(created["taskId"])["ttlMs"] == over["ttlMs"]


def test_cancelling_a_task_kills_the_whole_tree(eager: TaskHost) -> None:
    task = eager.task("setsid sleep 3141 & sleep 3142")
    wait_for(lambda: running_below(eager.daemon.pid, "3141"))
    eager.call("tasks/cancel", taskId=task)
    assert not running_below(eager.daemon.pid, "314")
    assert eager.get(task)["status"] == "cancelled"
    # Cancelling again is not an error.
    eager.call("tasks/cancel", taskId=task)


def test_a_task_that_was_over_stays_completed(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(f"sleep 3143 & {gate.wait}")
    gate.open()
    assert eager.end_of(task)["status"] == "completed"
    eager.call("tasks/cancel", taskId=task)
    assert running_below(eager.daemon.pid, "3143")
    assert eager.get(task)["status"] == "completed"


def test_a_task_killed_by_other_means_has_a_result(eager: TaskHost) -> None:
    task = eager.task("echo hi; sleep 300")
    wait_for(lambda: eager.get(task).get("statusMessage") == "hi")
    eager.call("tools/call", name="KillShell", arguments={"shell_id": task})
    result = eager.result_of(task)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("Command was ended by SIGTERM\nhi\n")


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_an_unknown_task_is_refused(daemon: RawDaemon, method: str) -> None:
    host = TaskHost(daemon)
    others: Json = {"inputResponses": {}} if method == "tasks/update" else {}
    # A shell that was not started as a task is not a task.
    for task_id in ("shell_nope", "", daemon.background("sleep 300")):
        error = host.fail(method, taskId=task_id, **others)
        assert (error["code"], error["message"]) == (-32602, "Task not found")
    params = {**others, "_meta": META_WITH_TASKS}
    assert daemon.fail(method, params)["message"] == "Missing required parameter: taskId"


@pytest.mark.slow
def test_an_expired_task_is_refused(gate: Gate) -> None:
    with raw_daemon("--task-after", "0", "--retain-seconds", "0") as daemon:
        host = TaskHost(daemon)
        task = host.task(gate.wait)
        gate.open()

        def has_expired() -> bool:
            answer = daemon.answer(host.request("tasks/get", taskId=task))
            return bool(answer.get("error", {}).get("message") == "Task has expired")

        wait_for(has_expired)
        assert host.fail("tasks/cancel", taskId=task)["code"] == -32602


# -- clients that do not declare the extension ------------------------------------------------


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"extensions": {}},
        {"extensions": {EXTENSION: None}},
        {"extensions": {EXTENSION: True}},
        {"extensions": [EXTENSION]},
        {"tasks": {}},
        {EXTENSION: {}},
    ],
)
def test_clients_without_tasks_get_plain_results(eager: TaskHost, capabilities: Json) -> None:
    meta = {**META, CAPABILITIES_KEY: capabilities}
    params: Json = {"name": "Bash", "arguments": {"command": "sleep 0.1; echo hi"}}
    result = eager.daemon.call("tools/call", {**params, "_meta": meta})
    assert result.keys() == {"resultType", "_meta", "content", "isError", "structuredContent"}
    assert result["content"][0]["text"] == "hi\n"
    params["arguments"]["run_in_background"] = True
    started = eager.daemon.call("tools/call", {**params, "_meta": meta})
    assert started["content"][0]["text"].startswith("Started background shell")
    for method, rest in METHODS.items():
        error = eager.daemon.fail(method, {**rest, "_meta": meta})
        assert error["code"] == -32021
        required: Json = {"extensions": {EXTENSION: {}}}
        assert error["data"] == {"kind": "missing_capability", "requiredCapabilities": required}


def test_clients_without_tasks_cannot_listen(daemon: RawDaemon) -> None:
    params: Json = {"notifications": {"toolsListChanged": True}, "_meta": META}
    assert daemon.fail("subscriptions/listen", params)["code"] == -32601


def test_a_declaration_counts_for_one_request(eager: TaskHost) -> None:
    task = eager.task("sleep 300")
    assert eager.daemon.fail("tasks/get", {"taskId": task, "_meta": META})["code"] == -32021
    assert bash(eager.daemon, "sleep 0.1; echo hi")["resultType"] == "complete"
    assert eager.get(task)["status"] == "working"


@pytest.mark.slow
def test_revisions_with_handshake_have_no_tasks() -> None:
    with raw_daemon("--task-after", "0") as daemon:
        for method, params in METHODS.items():
            code = -32601 if method == "subscriptions/listen" else -32021
            assert daemon.fail(method, {**params, "notifications": {}})["code"] == code
        assert initialize(daemon)["capabilities"] == {"tools": {}}
        arguments = {"command": "sleep 0.1; echo hi"}
        result = daemon.call("tools/call", {"name": "Bash", "arguments": arguments})
        assert result.keys() == {"content", "isError", "structuredContent"}
        for method, params in METHODS.items():
            assert daemon.fail(method, params)["code"] == -32601


def test_wrong_revision_is_reported_before_an_unknown_task(daemon: RawDaemon) -> None:
    meta = {**META_WITH_TASKS, "io.modelcontextprotocol/protocolVersion": "2025-11-25"}
    assert daemon.fail("tasks/get", {"taskId": "x", "_meta": meta})["code"] == -32022


def test_discovery_declares_tasks(daemon: RawDaemon) -> None:
    for meta in (META, META_WITH_TASKS):
        capabilities = modern(daemon, "server/discover", _meta=meta)["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        assert "tasks" not in capabilities


# -- listening --------------------------------------------------------------------------------


def test_a_listener_hears_of_the_end_once(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(f"{gate.wait}; echo done")
    states = eager.states(task)
    gate.open()
    (state,) = states
    assert (state["taskId"], state["status"]) == (task, "completed")
    heard = {name: value for name, value in state.items() if name != "_meta"}
    asked = eager.get(task)
    assert asked.pop("resultType") == "complete"
    asked.pop("_meta")
    assert heard == asked


def test_a_late_listener_hears_of_the_end_too(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(gate.wait)
    gate.open()
    wait_for(lambda: eager.get(task)["status"] == "completed")
    (state,) = eager.states(task)
    assert state["status"] == "completed"


def test_one_listener_hears_of_many_tasks(eager: TaskHost, tmp_path: Path) -> None:
    gates = [Gate(tmp_path / str(number)) for number in range(3)]
    tasks = [eager.task(f"{gate.wait}; echo {n}") for n, gate in enumerate(gates)]
    states = eager.states(*tasks)
    heard: list[tuple[str, str]] = []
    for gate in reversed(gates):
        gate.open()
        state = next(states)
        heard.append((state["taskId"], state["result"]["content"][0]["text"]))
    assert heard == [(tasks[number], f"{number}\n") for number in (2, 1, 0)]
    assert list(states) == []


def test_cancelling_a_task_ends_its_subscription(eager: TaskHost) -> None:
    task = eager.task("sleep 300")
    other = TaskHost(eager.daemon)
    states = eager.states(task)
    request_id = other.request("tasks/cancel", taskId=task)
    assert "error" not in other.daemon.answer(request_id)
    assert [state["status"] for state in states] == ["cancelled"]


def test_unknown_tasks_are_not_listened_to(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(gate.wait)
    gate.open()
    names = {"taskIds": ["shell_nope", task, task]}
    request_id = eager.request("subscriptions/listen", notifications=names)
    (state,) = eager.heard(request_id, [task])
    assert state["status"] == "completed"
    nothing = {"taskIds": ["shell_nope"]}
    assert eager.fail("subscriptions/listen", notifications=nothing)["code"] == -32602


def test_other_requests_do_not_wait_for_many_unknown_tasks(eager: TaskHost) -> None:
    ids = [f"shell_{number}" for number in range(100_000)]
    listen = {"notifications": {"taskIds": ids}, "_meta": eager.meta}
    listening, pinging = eager.daemon.request_together(
        ("subscriptions/listen", listen), ("ping", {})
    )
    assert eager.daemon.receive()["id"] == pinging
    assert eager.daemon.answer(listening)["error"]["data"]["parameter"] == "notifications.taskIds"


@pytest.mark.parametrize("names", [None, 5, {}, ["x", 1]])
def test_an_invalid_subscription_is_refused(eager: TaskHost, names: object) -> None:
    if names is None:
        error = eager.fail("subscriptions/listen")
    else:
        error = eager.fail("subscriptions/listen", notifications={"taskIds": names})
    assert error["code"] == -32602


def test_other_notifications_are_left_out_of_the_agreement(eager: TaskHost) -> None:
    wanted = {"toolsListChanged": True}
    request_id = eager.request("subscriptions/listen", notifications=wanted)
    acknowledged = eager.daemon.receive()
    check_notification(acknowledged)
    assert acknowledged["params"]["notifications"] == {}
    assert eager.daemon.receive()["id"] == request_id


@pytest.mark.parametrize("method", ["notifications/cancelled", "$/cancelRequest"])
def test_a_cancelled_listener_hears_nothing_more(eager: TaskHost, gate: Gate, method: str) -> None:
    task = eager.task(f"{gate.wait}; echo done")
    names = {"taskIds": [task]}
    request_id = eager.request("subscriptions/listen", notifications=names)
    acknowledged = eager.daemon.receive()
    assert acknowledged["params"]["_meta"] == {SUBSCRIPTION_KEY: request_id}
    name = "id" if method.startswith("$") else "requestId"
    eager.daemon.notify(method, {name: request_id})
    if method.startswith("$"):
        assert eager.daemon.answer(request_id)["error"]["code"] == -32800
    # The task goes on, and another listener learns of the end of the task. `states` accepts only
    # messages of its own subscription.
    states = eager.states(task)
    gate.open()
    assert [state["status"] for state in states] == ["completed"]


def test_a_subscription_has_the_id_of_its_request(eager: TaskHost, gate: Gate) -> None:
    task = eager.task(gate.wait)
    gate.open()
    params = {"notifications": {"taskIds": [task]}, "_meta": META_WITH_TASKS}
    eager.daemon.request("subscriptions/listen", params, request_id='a "name"')
    assert [state["status"] for state in eager.heard('a "name"', [task])] == ["completed"]


@pytest.mark.slow
def test_too_many_tasks_are_not_listened_to(eager: TaskHost) -> None:
    tasks = [eager.task("sleep 300") for _ in range(8)]
    # The limit applies to the tasks of all subscriptions together.
    ids = [
        eager.request("subscriptions/listen", notifications={"taskIds": tasks})
        for _ in range(1_024 // 8)
    ]
    error = eager.fail("subscriptions/listen", notifications={"taskIds": tasks})
    assert (error["code"], error["data"]["limit"]) == (1005, "subscriptions")
    eager.daemon.notify("$/cancelRequest", {"id": ids[0]})
    eager.daemon.answer(ids[0])
    for task in tasks:
        eager.call("tasks/cancel", taskId=task)
    request_id = eager.request("subscriptions/listen", notifications={"taskIds": tasks})
    for each in (*ids[1:], request_id):
        assert "error" not in eager.daemon.answer(each)


# -- the end of the daemon --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("end", ["eof", "signal"])
def test_the_end_of_the_daemon_ends_tasks_and_listeners(end: str) -> None:
    with raw_daemon("--task-after", "0") as daemon:
        host = TaskHost(daemon)
        task = host.task("setsid sleep 3144 & sleep 3145")
        wait_for(lambda: running_below(daemon.pid, "3144"))
        processes = running_below(daemon.pid, "314")
        request_id = host.request("subscriptions/listen", notifications={"taskIds": [task]})
        check_notification(daemon.receive())
        if end == "eof":
            daemon.end_input()
        else:
            daemon.process.send_signal(signal.SIGTERM)
        (answer,) = [each for each in daemon.answers_to_the_end() if "id" in each]
        assert answer["id"] == request_id
        check_result("subscriptions/listen", answer["result"])
        assert answer["result"]["_meta"][SUBSCRIPTION_KEY] == request_id
        assert daemon.wait() == 0
        wait_for(lambda: not any(map(is_alive, processes)))
