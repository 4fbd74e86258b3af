"""Params and results of the session methods and ``explain_command``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shelld_protocol.structs import DEFAULT_SESSION, GuardVerdict, Params, Result, Survivors

# -- sessions ---------------------------------------------------------------------------------


class GetSessionParams(Params):
    session: Annotated[str, Meta(description="The session to describe.")] = DEFAULT_SESSION


class GetSessionResult(Result):
    """The state in which the session's next command starts."""

    session: str
    cwd: Annotated[str, Meta(description="Working directory of the next command.")]
    env: Annotated[
        dict[str, str | None],
        Meta(description="Exported variables that differ from the daemon's; null if removed."),
    ]
    shells: Annotated[list[str], Meta(description="Ids of the session's running shells.")]


class SessionInfo(Result):
    """One session."""

    session: str
    cwd: Annotated[str, Meta(description="Working directory of its next command.")]
    shells: Annotated[int, Meta(description="Number of its running shells.")]


class ListSessionsResult(Result):
    sessions: list[SessionInfo]


class CloseSessionParams(Params):
    session: Annotated[str, Meta(description="The session to close.")]


class CloseSessionResult(Result):
    """The outcome of closing a session."""

    session: str
    killed: Annotated[
        int, Meta(description="Number of shells that were running or had leftover processes.")
    ]
    survivors: Survivors = []  # noqa: RUF012 - msgspec copies it


# -- explain_command --------------------------------------------------------------------------


class ExplainCommandParams(Params):
    command: Annotated[str, Meta(min_length=1, description="The command, which is not run.")]
    session: Annotated[
        str | None, Meta(description="The session that the command would run in; null for none.")
    ] = DEFAULT_SESSION
    env: (
        Annotated[
            dict[str, str | None], Meta(description="Like env of bash; null removes variables.")
        ]
        | None
    ) = None
    cwd: Annotated[str, Meta(min_length=1, description="Like cwd of bash.")] | None = None


class ExplainCommandResult(Result):
    """The guard's verdict on a command, and the reason for it, if any."""

    verdict: GuardVerdict
    rule: Annotated[str | None, Meta(description="Name of the rule that blocks the command.")]
    segment: Annotated[
        str | None, Meta(description="The part of the command that matches the rule.")
    ]
    reason: Annotated[str | None, Meta(description="The reason for the verdict, as a sentence.")]
    trace: Annotated[
        list[str], Meta(description="The commands that the guard found, as they would run.")
    ]
