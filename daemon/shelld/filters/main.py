"""The program of the helper process. It matches lines with RE2, or else with Python's `re`.

This is a separate program, which `process` starts by its path. The program exchanges frames of
UTF-8, as `helpers.program` describes. The first frame that it reads is the pattern. Each later
frame is a text. The program answers the pattern with "+" and the engine. It answers a text with "+"
and the lines that match. If it cannot compile the pattern or match a text, it answers "-" and the
reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable


def main(memory_bytes: int, cpu_seconds: int, paths: list[str]) -> None:
    sys.path += paths
    from shelld.helpers.program import Frames  # noqa: PLC0415

    with Frames(memory_bytes, cpu_seconds) as frames:

        def answer(text: str) -> None:
            frames.write(text.encode())

        pattern = frames.read().decode()
        try:
            matching_lines = _with_re2(pattern)
            engine = "re2"
            if matching_lines is None:
                matching_lines = _with_re(pattern)
                engine = "re"
        except re.error as error:
            answer(f"-{error}")
            return
        except (RecursionError, OverflowError, MemoryError):
            answer("-too large")
            return
        answer("+" + engine)
        while True:
            text = frames.read().decode()
            try:
                answer("+" + matching_lines(text))
            except (RecursionError, MemoryError):
                answer("-needs too much memory")


def _with_re2(pattern: str) -> Callable[[str], str] | None:
    """Return a function that finds lines; None if RE2 is missing or refuses the pattern."""
    try:
        from shelld.filters.linear import compile_linear  # noqa: PLC0415

        linear = compile_linear(pattern)
    except ImportError:
        return None
    return None if linear is None else linear.matching_lines


def _with_re(pattern: str) -> Callable[[str], str]:
    search = re.compile(pattern).search

    def matching_lines(text: str) -> str:
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        return "".join([line for line in lines if search(_content(line))])

    return matching_lines


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
