"""Defines the params and results of the session methods and ``explain_command``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.structs import (
    DEFAULT_SESSION,
    GuardVerdict,
    Params,
    ResourceLimits,
    Result,
    Survivors,
)
from shelld_protocol.target_methods import Target

# -- sessions ---------------------------------------------------------------------------------

Removed = Annotated[
    list[str],
    Meta(description="Variables of the daemon's environment that the session does not take."),
]


SessionLimits = Annotated[
    ResourceLimits | None,
    Meta(description="The limits of the session, as configure_session takes them."),
]


SessionSandbox = Annotated[
    SandboxPolicy | None,
    Meta(
        description="The policy of the session's sandbox, with real and absolute paths. Left out "
        "if the session has no sandbox."
    ),
]


class EnvironmentRules(Params):
    """Which variables a session takes from the daemon's environment.

    A pattern of names has at most 64 characters: letters, digits, `_`, `%` and the wildcards `*`
    and `?`, as in `*_TOKEN`. Case does not matter. `remove` and `keep` may have 100 patterns
    each.
    """

    mode: (
        Annotated[
            Literal["inherit", "core"],
            Meta(
                description="inherit: all variables; core: only HOME, LANG, LANGUAGE, LC_*, "
                "LOGNAME, PATH, PWD, SHELL, SHLVL, TEMP, TERM, TMP, TMPDIR, TZ and USER. The "
                "default is the daemon's --env."
            ),
        ]
        | None
    ) = None
    remove: Annotated[list[str], Meta(description="Patterns of names to leave out.")] = []  # noqa: RUF012 - msgspec copies it
    keep: Annotated[
        list[str],
        Meta(description="Patterns of names to take in any case, whatever mode and remove say."),
    ] = []  # noqa: RUF012 - msgspec copies it


class ConfigureSessionParams(Params):
    session: Annotated[
        str, Meta(description="The session, which must not have started a command yet.")
    ]
    env: EnvironmentRules | None = None
    limits: ResourceLimits | None = None
    target: Target | None = None
    sandbox: SandboxPolicy | None = None


class ConfigureSessionResult(Result):
    """The configuration of a session."""

    session: str
    removed: Removed = []  # noqa: RUF012 - msgspec copies it
    limits: SessionLimits = None
    sandbox: SessionSandbox = None


class GetSessionParams(Params):
    session: Annotated[str, Meta(description="The session to describe.")] = DEFAULT_SESSION
    target: Target | None = None


class GetSessionResult(Result):
    """The state in which the session's next command starts."""

    session: str
    cwd: Annotated[str, Meta(description="Working directory of the next command.")]
    env: Annotated[
        dict[str, str | None],
        Meta(
            description="Exported variables that commands have set or changed, with their values; "
            "null if a command has removed the variable."
        ),
    ]
    shells: Annotated[list[str], Meta(description="Ids of the session's running shells.")]
    removed: Removed = []  # noqa: RUF012 - msgspec copies it
    limits: SessionLimits = None
    sandbox: SessionSandbox = None


class SessionInfo(Result):
    """One session."""

    session: str
    cwd: Annotated[str, Meta(description="Working directory of its next command.")]
    shells: Annotated[int, Meta(description="Number of its running shells.")]


class ListSessionsResult(Result):
    sessions: list[SessionInfo]


class CloseSessionParams(Params):
    session: Annotated[str, Meta(description="The session to close.")]
    target: Target | None = None


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
