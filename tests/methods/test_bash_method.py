"""The method `bash`: which state its command starts in, when it answers, and what it leaves behind
if the call fails or is cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from shelld.guard.verdict import Verdict
from shelld.methods.bash import MAX_JUDGEMENTS, bash, is_answerable, run_for_answer
from shelld.methods.bash_results import result_of
from shelld.methods.context import Daemon, LargeAnswers, RequestContext
from shelld.methods.guard import admit
from shelld.methods.sessions import get_session
from shelld.output.retention import ShellOutput
from shelld.process.options import Options
from shelld.sandbox.policy import resolved
from shelld.sessions import session as session_module
from shelld.sessions.session import LeftState
from shelld.sessions.state import OptionNames
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld_protocol.errors import RpcError, resource_exhausted
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.session_methods import GetSessionParams
from shelld_protocol.shell_methods import BackgroundResult, BashParams, BashResult
from shelld_protocol.structs import NO_LIMITS
from support import DEADLINE_S


def test_released_command_answers_after_start() -> None:
    shell = Shell(id="shell_1", command="true", working_dir="/")
    shell.is_empty = False
    shell.released = True
    assert not is_answerable(shell)
    shell.pid = 1
    assert is_answerable(shell)


async def test_output_is_pinned_until_the_answer_is_made() -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        outputs: list[ShellOutput] = []

        async def is_pinned(shell: Shell) -> bool:
            assert shell.has_ended
            outputs.append(shell.output)
            return shell.output.is_pinned

        async def fail(shell: Shell) -> None:
            assert await is_pinned(shell)
            raise resource_exhausted("memory", "no room")

        assert await run_for_answer(context, BashParams("true"), is_pinned)
        with pytest.raises(RpcError, match="no room"):
            await run_for_answer(context, BashParams("true"), fail)
        assert [output.is_pinned for output in outputs] == [False, False]


@pytest.mark.parametrize(("changes", "judgements"), [(0, 1), (1, 2), (100, MAX_JUDGEMENTS)])
async def test_command_is_judged_again_if_its_session_has_changed(
    changes: int, judgements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    async def admit_and_change(context: RequestContext, params: BashParams) -> Verdict:
        nonlocal count
        verdict = await admit(context, params)
        if params.command == "echo $x":
            count += 1
            if count <= changes:
                await bash(RequestContext(context.daemon), BashParams(f"x={count}"))
        return verdict

    monkeypatch.setattr("shelld.methods.bash.admit", admit_and_change)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        answer = await bash(context, BashParams("echo $x"))
        assert isinstance(answer, BashResult)
        assert count == judgements
        assert answer.stdout.strip() == str(min(changes, judgements) or "")


async def test_call_cannot_loosen_the_sandbox_of_a_session_configured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.shells.manager._TURNS_TO_RELEASE", 1_000_000)
    refused = list[RpcError]()

    async def run(context: RequestContext, params: BashParams) -> None:
        with pytest.raises(RpcError) as caught:
            await bash(context, params)
        refused.append(caught.value)

    async with Manager(ManagerOptions(max_shells=1)) as manager:
        context = RequestContext(Daemon(Options(guard="off"), manager))
        await bash(context, BashParams("sleep 300", run_in_background=True))
        loose = SandboxPolicy(mode="workspace", network="full")
        async with anyio.create_task_group() as tasks:
            # The command waits until the other command has ended.
            tasks.start_soon(run, context, BashParams("true", session="s", sandbox=loose))
            await anyio.lowlevel.checkpoint()
            policy = resolved(SandboxPolicy(mode="read-only"), "/", "auto")
            manager.sessions.configure("s", manager.sessions.rules, NO_LIMITS, policy)
            assert not refused
            await manager.kill_all(0)
    (error,) = refused
    assert error.data["parameter"] == "sandbox.network"


async def test_command_sent_at_the_end_of_another_starts_in_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_parsing, may_parse = anyio.Event(), anyio.Event()
    outputs: list[str] = []

    parsed: Callable[[LeftState, OptionNames], Awaitable[object]] = vars(session_module)["_parsed"]

    async def parse_later(left: LeftState, names: OptionNames) -> object:
        is_parsing.set()
        await may_parse.wait()
        return await parsed(left, names)

    monkeypatch.setattr(session_module, "_parsed", parse_later)
    async with Manager() as manager:
        daemon = Daemon(Options(), manager)

        async def run(command: str) -> None:
            result = await bash(RequestContext(daemon), BashParams(command))
            assert isinstance(result, BashResult)
            outputs.append(result.stdout)

        async def look() -> None:
            session = await get_session(RequestContext(daemon), GetSessionParams())
            outputs.append(session.cwd)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "cd /usr; long=$(printf %0100000d 0)")
            await is_parsing.wait()
            # The first command has ended, as its events report, but its request has no answer yet.
            assert [shell.has_ended for shell in manager.list_shells()] == [True]
            tasks.start_soon(run, "echo $PWD ${#long}; z=1")
            tasks.start_soon(look)
            await anyio.wait_all_tasks_blocked()
            may_parse.set()
        await run("echo ${#long} $z")
    assert sorted(outputs) == ["", "/usr", "/usr 100000\n", "100000 1\n"]


async def test_cancelled_background_call_leaves_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = anyio.Event()
    shells: list[Shell] = []

    async def wait_for_start(shell: Shell) -> None:
        await shell.wait_until(lambda: shell.pid is not None)
        shells.append(shell)
        started.set()
        await anyio.sleep_forever()

    monkeypatch.setattr("shelld.methods.bash.wait_for_start", wait_for_start)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bash, context, BashParams("sleep 300", run_in_background=True))
            await started.wait()
            assert not shells[0].is_empty
            tasks.cancel_scope.cancel()
        assert shells[0].is_empty


async def no_wait() -> None:
    """Return at once, as if the client had read everything."""


async def test_large_result_waits_for_memory() -> None:
    async with Manager() as manager:
        answers = LargeAnswers(no_wait)
        daemon = Daemon(Options(), manager)
        context = RequestContext(daemon, large_answers=answers, has_room=lambda: False)
        small = await bash(context, BashParams("echo small"))
        assert isinstance(small, BashResult)
        assert small.stdout == "small\n"
        with pytest.raises(RpcError, match="large answers") as refused:
            await bash(context, BashParams("head -c 300000 /dev/zero"))
        assert refused.value.data["limit"] == "memory"
        shell = manager.get(refused.value.data["bash_id"])
        assert shell.stdout.unread_bytes == 300_000
        # The refused request no longer keeps other requests from making large answers.
        context = RequestContext(daemon, large_answers=answers)
        large = await bash(context, BashParams("head -c 300000 /dev/zero"))
        assert isinstance(large, BashResult)
        assert large.stdout_bytes == 300_000
        assert answers.is_turn_of(context)


@pytest.mark.parametrize("in_background", [False, True])
async def test_a_call_that_fails_leaves_no_command(in_background: bool) -> None:
    class Failing:
        seconds_left = 0.0

        async def wait(self, shell: Shell) -> None:
            await shell.wait_until(lambda: shell.pid is not None)

        def defer(self, shell: Shell, result: object) -> None:
            raise NotImplementedError

    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager), deferral=Failing())
        shells: list[Shell] = []

        async def fail(shell: Shell) -> None:
            shells.append(shell)
            assert not shell.has_ended
            raise MemoryError

        with pytest.raises(MemoryError):
            params = BashParams("sleep 300", run_in_background=in_background)
            await run_for_answer(context, params, fail)
        with anyio.fail_after(DEADLINE_S):
            await shells[0].wait_until(lambda: shells[0].is_empty)


@pytest.mark.parametrize("checks", [True, False], ids=["noticed", "noticed at the end"])
@pytest.mark.parametrize("in_background", [False, True])
async def test_cancellation_before_answer_kills_leftovers(
    checks: bool, in_background: bool
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("sleep 300 & true", run_in_background=in_background)
        shells: list[Shell] = []

        async def cancel(shell: Shell) -> None:
            shells.append(shell)
            assert not shell.is_empty
            context.is_over = True
            scope.cancel()
            if checks:
                await anyio.lowlevel.checkpoint()

        with anyio.CancelScope() as scope:
            await run_for_answer(context, params, cancel)
        assert scope.cancelled_caught
        assert shells[0].is_empty
        assert not shells[0].survivors


@pytest.mark.slow
async def test_other_requests_run_while_the_first_input_is_followed() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    content = "x\n" * 500_000
    async with Manager() as manager, anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        context = RequestContext(Daemon(Options(), manager))
        await bash(context, BashParams("true", tty=True, stdin=content, dry_run=True))
        tasks.cancel_scope.cancel()
    assert turns >= len(content) / 16_384


async def test_kill_at_a_prompt_answers_when_the_tree_is_dead() -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(grace=200), manager))
        # Bash ends before its child.
        command = "(trap '' TERM HUP; exec sleep 300) & read -r answer"
        params = BashParams(command, tty=True, on_prompt="kill", timeout=60_000)
        result = await bash(context, params)
        assert isinstance(result, BashResult)
        assert (result.status, result.reason, result.leftover) == ("killed", "prompt", [])


@pytest.mark.parametrize("is_left", [True, False])
async def test_output_in_an_answer_counts_as_read_unless_the_client_is_lost(is_left: bool) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("echo out; echo err >&2", session=None)

        async def answer(shell: Shell) -> BashResult | BackgroundResult:
            context.is_left = is_left
            return await result_of(context, params, shell)

        result = await run_for_answer(context, params, answer)
        assert isinstance(result, BashResult)
        shell = manager.get(result.bash_id)
        assert (result.stdout, result.stderr) == ("out\n", "err\n")
        unread = 4 if is_left else 0
        assert (shell.stdout.unread_bytes, shell.stderr.unread_bytes) == (unread, unread)


async def test_command_that_starts_after_the_loss_of_its_client_moves_to_the_background() -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        context.leave_command()
        with anyio.fail_after(DEADLINE_S):
            result = await bash(context, BashParams("sleep 300"))
        assert isinstance(result, BackgroundResult)
