"""The methods about sessions, and ``explain_command``: their params and results."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shelld_protocol.structs import GuardVerdict, Params, Result, Survivors

# -- sessions ---------------------------------------------------------------------------------


class GetSessionParams(Params):
    session: Annotated[str, Meta(description="The session to look at.")] = "main"


class GetSessionResult(Result):
    """What the next command of a session starts from."""

    session: str
    cwd: Annotated[str, Meta(description="Where the next command runs.")]
    env: Annotated[
        dict[str, str | None],
        Meta(description="Exported variables that differ from the daemon's; null for removed."),
    ]
    shells: Annotated[list[str], Meta(description="The ids of its shells that are running.")]


class SessionInfo(Result):
    """One session."""

    session: str
    cwd: Annotated[str, Meta(description="Where its next command runs.")]
    shells: Annotated[int, Meta(description="How many are running.")]


class ListSessionsResult(Result):
    sessions: list[SessionInfo]


class CloseSessionParams(Params):
    session: Annotated[str, Meta(description="The session to close.")]


class CloseSessionResult(Result):
    """What closing it came to."""

    session: str
    killed: Annotated[int, Meta(description="How many shells ran or had processes left.")]
    survivors: Survivors = []  # noqa: RUF012 - msgspec copies it


# -- explain_command --------------------------------------------------------------------------


class ExplainCommandParams(Params):
    command: Annotated[str, Meta(min_length=1, description="The command; it is not run.")]
    session: Annotated[
        str | None, Meta(description="The session it would run in; null for none.")
    ] = "main"
    env: Annotated[dict[str, str | None], Meta(description="As in bash; null removes.")] | None = (
        None
    )
    cwd: Annotated[str, Meta(min_length=1, description="As in bash.")] | None = None


class ExplainCommandResult(Result):
    """What the guard sees in a command, and why, if anything does."""

    verdict: GuardVerdict
    rule: Annotated[str | None, Meta(description="The name of the rule that blocks it.")]
    segment: Annotated[str | None, Meta(description="The text that the rule is about.")]
    reason: Annotated[str | None, Meta(description="A sentence.")]
    trace: Annotated[
        list[str], Meta(description="The commands that were found, as they would run.")
    ]
