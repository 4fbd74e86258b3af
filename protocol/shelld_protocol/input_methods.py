"""Defines the params and results of ``write_stdin`` and ``resize_shell``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shelld_protocol.shell_methods import BashOutputResult, MaxBytes, Offset
from shelld_protocol.structs import (
    DEFAULT_QUIET_MS,
    DEFAULT_READ_BYTES,
    Cols,
    IsRunning,
    Params,
    Pattern,
    Port,
    QuietMs,
    RequestId,
    Result,
    Rows,
    ShellId,
    StripAnsi,
    Until,
    Wait,
)


class WriteStdinParams(Params):
    """Give either `bash_id` or `request_id`. Also give at least one of `text`, `keys`, `base64` and
    `eof`, which are written in this order.
    """

    bash_id: Annotated[str, Meta(description="The id that bash returned.")] | None = None
    text: Annotated[str, Meta(description="Text to write, as it is.")] | None = None
    keys: (
        Annotated[
            list[str],
            Meta(
                description="Keys, named as in tmux, such as Enter, Tab, Up, C-c, M-x, F1; or "
                "single characters."
            ),
        ]
        | None
    ) = None
    base64: Annotated[str, Meta(description="Bytes to write, in base64.")] | None = None
    eof: Annotated[
        bool,
        Meta(description="Finally, end the input: type the end-of-file key, or close the pipe."),
    ] = False
    secret: Annotated[
        bool, Meta(description="Write only if the terminal cannot show the text.")
    ] = False
    paste: Annotated[
        bool, Meta(description="Mark text and base64 as pasted, if the program asked for that.")
    ] = False
    wait: Wait = 0
    until: Until = "output"
    strip_ansi: StripAnsi = True
    pattern: Pattern | None = None
    quiet_ms: QuietMs = DEFAULT_QUIET_MS
    port: Port | None = None
    request_id: RequestId | None = None
    stdout_offset: Offset | None = None
    stderr_offset: Offset | None = None
    max_bytes: MaxBytes = DEFAULT_READ_BYTES


class WriteStdinResult(BashOutputResult, kw_only=True):
    """The result of bash_output, taken after the write and the wait."""

    written: Annotated[int, Meta(description="Bytes that this call has written or queued.")]
    pending_bytes: Annotated[
        int, Meta(description="Bytes that all calls have written and the program has not read yet.")
    ]


class ResizeShellParams(Params):
    """Give `rows`, `cols`, and either `bash_id` or `request_id`."""

    bash_id: Annotated[str, Meta(description="The id that bash returned.")] | None = None
    rows: Rows | None = None
    cols: Cols | None = None
    request_id: RequestId | None = None


class ResizeShellResult(Result):
    """If the shell has ended, nothing is resized, and this is not an error."""

    bash_id: ShellId
    rows: Rows
    cols: Cols
    is_running: IsRunning
