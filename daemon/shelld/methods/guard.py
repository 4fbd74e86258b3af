"""Gets the guard's verdict on a command in its session. Has the method ``explain_command``."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

import anyio
import msgspec

from shelld.eventloop.threads import run_in_thread
from shelld.eventloop.turns import do_serially
from shelld.guard import CHUNK_CHARACTERS, CHUNK_PARTS, StartState
from shelld.guard.quick import is_plainly_harmless
from shelld.guard.verdict import MAX_SEGMENT, Verdict
from shelld.methods.context import RequestContext
from shelld.process.user import home_without_variable
from shelld.sessions.calls import state_of_call, telling_lines_of_call
from shelld.sessions.functions import function_of
from shelld.sessions.session import Session
from shelld.sessions.text import check_text
from shelld_protocol.errors import blocked
from shelld_protocol.session_methods import ExplainCommandParams, ExplainCommandResult
from shelld_protocol.shell_methods import BashParams

# The daemon loads the guard this long after its start, so a command that arrives early does not
# wait until the guard is loaded.
LOAD_DELAY_S: Final = 0.03

# If a call sets these variables, bash expands BASH_ENV when it starts, and PS4 when it traces.
_EXPANDED: Final = ("BASH_ENV", "PS4")
# How long it may take to parse one function of the environment, or one typed command. Other
# requests wait during this time.
MAX_PARSING_S: Final = 0.01

_ALLOWED: Final = Verdict("allow")
# The verdict with `--guard off`. It means that the guard has not checked the command.
_NOT_JUDGED: Final = Verdict("unresolved")


async def verdict_on(
    context: RequestContext,
    params: BashParams | ExplainCommandParams,
    *,
    traces: bool = False,
    knows_stdin: bool = True,
) -> Verdict:
    """Return the guard's verdict, even if `--guard` lets every command run."""
    daemon, command = context.daemon, params.command
    session = daemon.manager.sessions.peek(params.session)
    is_usual = not (traces or params.env or _is_in_dev(session, params))
    if is_usual and is_plainly_harmless(command, daemon.policy, session.state.names):
        return _ALLOWED
    # Import this here, because most commands never need it, and the first command must not wait for
    # it.
    from shelld.guard.judgement import judge, judge_at_once  # noqa: PLC0415

    start = await _start_state(session, params)
    if not knows_stdin:
        start = msgspec.structs.replace(start, stdin=None)
    verdict = judge_at_once(command, start, daemon.policy, traces=traces)
    if verdict is not None:
        return verdict
    # Judge in a thread, so that other requests do not wait.
    judgement = partial(judge, command, start, daemon.policy, traces=traces)
    return await run_in_thread(judgement, abandon_on_cancel=True)


def _is_in_dev(session: Session, params: BashParams | ExplainCommandParams) -> bool:
    """Return whether the command starts in /dev, where a name without a path may name a disk."""
    if params.cwd is None:
        return session.state.cwd.startswith(b"/dev")
    if "dev" not in params.cwd and b"dev" not in session.state.cwd:
        # This check is enough for nearly all commands, and is faster than building the path.
        return False
    return os.path.normpath(os.path.join(session.cwd, params.cwd)).startswith("/dev")


async def admit(context: RequestContext, params: BashParams | ExplainCommandParams) -> Verdict:
    """Judge a command; return the verdict if the command may run. Raises `RpcError` (blocked)."""
    mode = context.daemon.options.guard
    if mode == "off":
        return _NOT_JUDGED
    verdict = await verdict_on(context, params)
    is_refused = verdict.verdict == "block" or (mode == "strict" and verdict.verdict != "allow")
    if is_refused and mode != "warn":
        segment = verdict.segment or params.command[:MAX_SEGMENT]
        raise blocked(verdict.rule or "unresolved", segment, verdict.reason or "")
    return verdict


async def may_run_stdin(context: RequestContext, params: BashParams) -> bool:
    """Return whether the verdict may depend on the command's input, because a shell may run the
    input.
    """
    if context.daemon.options.guard == "off":
        return False
    return (await verdict_on(context, params, knows_stdin=False)).verdict != "allow"


async def load_soon() -> None:
    """Import the modules that the guard needs to judge commands, if possible before a command needs
    them.
    """
    await anyio.sleep(LOAD_DELAY_S)
    await run_in_thread(_load, abandon_on_cancel=True)


def _load() -> None:
    from shelld.guard import judgement  # noqa: PLC0415

    judgement.load()


async def _start_state(session: Session, params: BashParams | ExplainCommandParams) -> StartState:
    # Import this here for the same reason as in `verdict_on`.
    from shelld.guard.judgement import MAX_CHARACTERS_AT_ONCE  # noqa: PLC0415
    from shelld.guard.parse import is_function  # noqa: PLC0415

    functions: dict[str, str] = {}
    environment: dict[str, str] = {}
    # The session's state may change during the loop.
    state = state_of_call(session.state, params.env)
    cwd = os.path.join(session.cwd, params.cwd or "")
    known = session.state.functions
    parsed = 0
    for key, content in session.environment(params.env).items():
        value = content.decode("utf-8", "replace")
        function = function_of(key)
        if function is None:
            environment[key.decode("utf-8", "replace")] = value
            continue
        name = function.decode("utf-8", "replace")
        # Bash itself has reported the functions in `known`, so these functions need no check.
        is_certain = known.get(key) == content
        if not is_certain:
            check = partial(is_function, name, value, MAX_PARSING_S)
            # Let other requests run between two checks, because a call may have many functions.
            parsed += len(value)
            is_certain = check() if parsed <= MAX_CHARACTERS_AT_ONCE else await do_serially(check)
        if is_certain:
            functions[name] = f"{name} {value}\n"
    private = {name.decode("utf-8", "replace") for name in state.private}
    exported = tuple(functions.keys() - private)
    # Bash imports the functions before it runs the script.
    others = state.other_meanings + telling_lines_of_call(params.env)
    meanings = [*state.declarations.values(), others]
    size = sum(map(len, functions.values())) + sum(map(len, meanings))
    if size <= CHUNK_CHARACTERS and len(functions) + len(meanings) <= CHUNK_PARTS:
        parts: tuple[str, ...] = ()
        script = "".join(functions.values()) + b"".join(meanings).decode("utf-8", "replace")
    else:
        *variables, script = (each.decode("utf-8", "replace") for each in meanings)
        parts = (*functions.values(), *variables)
    stdin = params.stdin or "" if isinstance(params, BashParams) else ""
    home = home_without_variable(environment)
    expanded = tuple(name for name in _EXPANDED if (params.env or {}).get(name))
    return StartState(cwd, environment, script, stdin, home, exported, parts, expanded)


async def explain_command(
    context: RequestContext, params: ExplainCommandParams
) -> ExplainCommandResult:
    check_text(params.command, params.cwd, params.env)
    await context.daemon.manager.sessions.peek(params.session).settle_all()
    verdict = await verdict_on(context, params, traces=True)
    return ExplainCommandResult(
        verdict.verdict, verdict.rule, verdict.segment, verdict.reason, verdict.trace
    )
