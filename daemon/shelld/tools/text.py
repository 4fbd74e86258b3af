"""Makes the output that a model sees. It is never longer than its limit, and never cut without a
notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shelld.output.excerpt import ExcerptReader, Notice
from shelld.output.reader import Read
from shelld.output.retention import StreamName
from shelld.sessions.text import join_streams
from shelld.shells.shell import Shell
from shelld_protocol.sandboxes import Denied

NO_OUTPUT = "(no output)"

MAX_OUTPUT_SIZE: Final = 30_000

# The maximum number of refused hosts that a result names.
_MAX_DENIED: Final = 5

# The characters in `_ILLEGIBLE` occur in no text. Output counts as binary if it has at least
# `_LEAST_BINARY` of these characters, and if more than 1/_BINARY_SHARE of all characters are such
# characters. Text in another encoding has only a few of them.
_LEAST_BINARY: Final = 16
_BINARY_SHARE: Final = 10
_ILLEGIBLE: Final = dict.fromkeys(
    [0xFFFD, 0x7F, *(code for code in range(1, 32) if chr(code) not in "\a\b\t\n\v\f\r\x1b")]
)


def legible(text: str, size: int) -> str:
    """Return text for a model. If the output is binary, return a notice instead. `size`: the size
    of the output in bytes.

    NUL is not a sign of binary output, because many programs end names with NUL.
    """
    if len(text) < _LEAST_BINARY:
        return text
    illegible = len(text) - len(text.translate(_ILLEGIBLE))
    is_binary = illegible >= _LEAST_BINARY and illegible * _BINARY_SHARE > len(text)
    return f"[binary, {size} bytes]" if is_binary else text


def output_of(shell: Shell, stdout: str, stderr: str = "") -> str:
    """Return both streams as one text. Remove carriage returns that a terminal adds to lines."""
    text = join_streams(stdout, stderr)
    return text.replace("\r\n", "\n") if shell.has_terminal else text


def excerpt_readers(
    shell: Shell, limit: int, ends: Mapping[StreamName, int] | None = None
) -> dict[StreamName, ExcerptReader]:
    """Return a reader of each stream. Together, the two readers return at most `limit` characters.

    Without `ends`, the readers read the unread output. With `ends`, the readers read all output up
    to these offsets and move no read position. If one stream needs less than half of the limit, the
    other stream can use the rest of the limit. What a stream needs is counted in bytes. This is
    safe, because no text has more characters than bytes.
    """
    half = limit // 2
    stdout, stderr = shell.stdout, shell.stderr

    def size(name: StreamName) -> int:
        if ends is not None:
            return ends[name]
        return (stdout if name == "stdout" else stderr).unread_bytes

    return {
        "stdout": ExcerptReader(
            stdout,
            limit=lambda: limit - min(size("stderr"), half),
            notice=_notice(shell.id, "stdout"),
            end=None if ends is None else ends["stdout"],
        ),
        "stderr": ExcerptReader(
            stderr,
            limit=lambda: limit - min(size("stdout"), limit - half),
            notice=_notice(shell.id, "stderr"),
            end=None if ends is None else ends["stderr"],
        ),
    }


def _notice(bash_id: str, stream: str) -> Notice:
    def notice(start: int, end: int) -> str:
        return (
            f"[Output truncated: {end - start} bytes are left out here. To read them: "
            f"BashOutput, bash_id={bash_id}, {stream}_offset={start}]"
        )

    return notice


def dropped_notice(reads: Mapping[StreamName, Read]) -> list[str]:
    """Return a list with a line about dropped output, or an empty list if nothing was dropped."""
    dropped = sum(read.dropped for read in reads.values())
    return (
        [f"[{dropped} bytes were dropped, because the kept output is limited]"] if dropped else []
    )


def denied_lines(denied: list[Denied] | None) -> list[str]:
    """Return a line about the hosts that the sandbox has refused. Without such a line, models try
    again and again.
    """
    if not denied:
        return []
    named = [
        f"{each.host}:{each.port}" + (f" ({each.count} times)" if each.count > 1 else "")
        for each in denied[:_MAX_DENIED]
    ]
    if len(denied) > _MAX_DENIED:
        named.append("and others")
    hosts = ", ".join(named)
    return [f"[The sandbox refused {hosts}: commands reach only the hosts of its policy]"]


def cut_in_the_middle(text: str, limit: int, notice: str) -> str:
    """Return `text`. If it has more than `limit` characters, replace its middle with the notice."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n{notice}\n{text[len(text) - (limit - half) :]}"


def with_lines(text: str, lines: list[str]) -> str:
    """Return `text`, followed by lines about the text."""
    if not lines:
        return text
    line_end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{line_end}" + "\n".join(lines)
