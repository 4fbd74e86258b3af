"""Defines the params and the result of ``read_screen``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from shelld_protocol.structs import (
    Cols,
    EndSignal,
    ExitCode,
    IsRunning,
    IsStopped,
    Params,
    PromptNow,
    Result,
    Rows,
    ShellId,
    Wait,
)

MAX_SCROLLBACK: Final = 10_000
MAX_QUIET_MS: Final = 60_000
DEFAULT_SCREEN_QUIET_MS: Final = 150


class ReadScreenParams(Params):
    bash_id: Annotated[str, Meta(description="The id that bash returned.")]
    wait: Wait = 0
    until: Annotated[
        Literal["change", "stable", "prompt"],
        Meta(
            description="What to wait for. change: a version after `since`, or after the current "
            "one. stable: a screen that has not changed for quiet_ms. prompt: the command waits "
            "for input. The end of the command ends every wait."
        ),
    ] = "stable"
    quiet_ms: Annotated[
        int,
        Meta(ge=1, le=MAX_QUIET_MS, description="Milliseconds without a change, for `stable`."),
    ] = DEFAULT_SCREEN_QUIET_MS
    since: (
        Annotated[
            int, Meta(ge=0, description="A version: return only the rows that changed after it.")
        ]
        | None
    ) = None
    scrollback: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_SCROLLBACK,
            description="Maximum number of lines above the screen to return.",
        ),
    ] = 0


class ScreenCursor(Result):
    row: Annotated[int, Meta(description="Counted from 0, at the top.")]
    col: Annotated[int, Meta(description="Counted from 0, at the left.")]
    visible: bool


class ReadScreenResult(Result):
    """What a person would see. Lines have no colours, and no spaces at their ends."""

    bash_id: ShellId
    rows: Rows
    cols: Cols
    lines: Annotated[
        list[str],
        Meta(description="The lines of `scrollback`, then the rows that `changed` lists."),
    ]
    cursor: ScreenCursor
    alt_screen: Annotated[
        bool, Meta(description="Whether a program has the whole screen, as editors do.")
    ]
    title: Annotated[str, Meta(description="The title that the program has set.")]
    version: Annotated[int, Meta(description="Grows with each change of what is shown.")]
    changed: Annotated[
        list[int],
        Meta(
            description="The numbers, from 0, of the rows that changed after `since`; without "
            "`since`, of all rows."
        ),
    ]
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    prompt: PromptNow
    is_stopped: IsStopped = False
