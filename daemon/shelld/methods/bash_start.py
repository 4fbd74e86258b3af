"""Makes a `StartRequest` from the params of a ``bash`` request.

Never starts or judges a command. Every function raises `RpcError` for params that the daemon cannot
satisfy.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import NamedTuple

import msgspec

from shelld.eventloop.threads import run_in_thread
from shelld.guard.verdict import Verdict
from shelld.methods.context import RequestContext
from shelld.output.text import STEP_BYTES
from shelld.sandbox.policy import tightened
from shelld.sandbox.sandboxes import SandboxKey
from shelld.sessions.state import ShellState
from shelld.sessions.text import to_text
from shelld.shells.launch import StartRequest, TimeoutPolicy
from shelld.terminals.pty import Size
from shelld.terminals.typed import TypedLine
from shelld_protocol.errors import invalid_params
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.shell_methods import BashParams

# The name of the terminfo entry that describes the terminals of commands.
TERM = "xterm-256color"


class Admitted(NamedTuple):
    """What is known about a command that the guard has admitted.

    `typed` describes the unfinished line of the command's stdin. The command starts only if
    `judged_state` is still the state of its session; None means any state.
    """

    verdict: Verdict
    typed: TypedLine
    judged_state: ShellState | None


async def with_text_stdin(params: BashParams) -> BashParams:
    """Return the params, with `stdin` decoded from `stdin_base64`. Raises `RpcError`."""
    if params.stdin_base64 is None:
        return params
    if params.stdin is not None:
        raise invalid_params("Give stdin or stdin_base64, not both", "stdin_base64")
    decode = partial(_decoded, params.stdin_base64)
    try:
        is_long = len(params.stdin_base64) > STEP_BYTES
        text = await run_in_thread(decode, abandon_on_cancel=True) if is_long else decode()
    except ValueError:
        sentence = "Invalid value for stdin_base64: not in base64"
        raise invalid_params(sentence, "stdin_base64") from None
    return msgspec.structs.replace(params, stdin=text)


def _decoded(text: str) -> str:
    """Decode base64. Raises ValueError.

    Decodes the text in steps, so that other threads can run between two steps. If a character is
    split between two steps, it becomes surrogates, which stand for the same bytes.
    """
    parts = [text[start : start + STEP_BYTES] for start in range(0, len(text), STEP_BYTES)]
    return "".join(to_text(base64.b64decode(part, validate=True)) for part in parts)


def start_request(
    context: RequestContext,
    params: BashParams,
    admitted: Admitted,
    timeout_ms: int | None,
) -> StartRequest:
    """Return the `StartRequest` for a command. `timeout_ms`: see `run_for_answer`."""
    verdict = admitted.verdict
    sandbox = None if params.sandbox is None else _sandbox(context, params, params.sandbox)
    env = _with_terminal(params.env) if params.tty else params.env
    return StartRequest(
        command=params.command,
        description=params.description,
        session=params.session,
        cwd=params.cwd,
        env=_with_proxy(context, params, sandbox, env),
        stdin=params.stdin,
        typed=admitted.typed,
        terminal=Size(params.rows, params.cols) if params.tty else None,
        open_stdin=params.open_stdin,
        merge=params.merge,
        timeout=timeout_policy(context, params, timeout_ms),
        idle_timeout=_idle_policy(context, params),
        in_foreground=not params.run_in_background,
        verdict=verdict.verdict,
        warning=verdict.reason if verdict.verdict == "block" else None,
        sandbox=sandbox,
        session_sandbox=context.daemon.manager.sessions.peek(params.session).sandbox,
        judged_state=admitted.judged_state,
    )


def _sandbox(
    context: RequestContext, params: BashParams, given: SandboxPolicy
) -> SandboxKey | None:
    """Return the sandbox of a call that tightens the sandbox of its session. Raises `RpcError`."""
    session = context.daemon.manager.sessions.peek(params.session)
    own = None if session.sandbox is None else session.sandbox.policy
    engine = context.daemon.options.sandbox_engine
    policy = tightened(own, given, session.cwd, engine)
    return None if policy is None else SandboxKey(policy, session.rules)


def _with_proxy(
    context: RequestContext,
    params: BashParams,
    sandbox: SandboxKey | None,
    env: dict[str, str | None] | None,
) -> dict[str, str | None] | None:
    """Return the variables of a command.

    If there are proxies, a command with these variables finds only the proxy of its own sandbox.
    """
    own = context.daemon.manager.sessions.peek(params.session).sandbox
    if sandbox is None or sandbox == own:
        return env
    unset = {} if own is None else dict.fromkeys(own.policy.variables)
    return {**unset, **sandbox.policy.variables, **(env or {})} or env


def _with_terminal(env: dict[str, str | None] | None) -> dict[str, str | None]:
    """Return the variables of a command that has a terminal."""
    # Remove LINES and COLUMNS, because programs would use them instead of the terminal's size.
    return {"TERM": TERM, "LINES": None, "COLUMNS": None, **(env or {})}


def timeout_policy(
    context: RequestContext, params: BashParams, timeout_ms: int | None
) -> TimeoutPolicy | None:
    options = context.daemon.options
    if params.run_in_background:
        if params.timeout is None:
            return None
        return TimeoutPolicy(params.timeout, "kill", options.grace)
    timeout_ms = params.timeout or timeout_ms or options.default_timeout
    return TimeoutPolicy(timeout_ms, params.on_timeout, options.grace)


def _idle_policy(context: RequestContext, params: BashParams) -> TimeoutPolicy | None:
    if params.idle_timeout is None:
        return None
    action = "kill" if params.run_in_background else params.on_timeout
    return TimeoutPolicy(params.idle_timeout, action, context.daemon.options.grace)
