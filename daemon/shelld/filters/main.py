"""The helper process: matches lines with RE2, or else with Python's `re`.

A separate program: `process` starts it by its path. It imports nothing but `linear` and what that
needs, and may be killed at any moment.

It reads and writes frames on its standard input, which is a socket. A frame is a length in four
bytes, big-endian, and that many bytes of UTF-8. First, the program writes an empty frame to report
that it runs. The first frame that it reads is the pattern; each later frame is a text. It answers
the pattern with "+" and the engine, and a text with "+" and the lines that match. If either fails,
it answers "-" and the reason.
"""

from __future__ import annotations

import contextlib
import math
import re
import resource
import socket
import sys
import time
from collections.abc import Callable


def main(memory_bytes: int, cpu_seconds: int, paths: list[str]) -> None:
    # SIGXCPU, sent at the limit of processor time, would leave a core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_time(cpu_seconds)
    with contextlib.suppress(ValueError):
        # Not every system supports this limit.
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    sys.path += paths
    with socket.socket(fileno=0) as connection, connection.makefile("rwb") as stream:

        def read() -> str:
            size = stream.read(4)
            if len(size) < 4:
                sys.exit()
            return stream.read(int.from_bytes(size, "big")).decode()

        def answer(text: str) -> None:
            data = text.encode()
            stream.write(len(data).to_bytes(4, "big") + data)
            stream.flush()

        answer("")
        pattern = read()
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
            text = read()
            _limit_time(cpu_seconds)
            try:
                answer("+" + matching_lines(text))
            except (RecursionError, MemoryError):
                answer("-needs too much memory")


def _limit_time(seconds: int) -> None:
    """Limit the processor time that this process may use from now on.

    The daemon measures the time as well, but the daemon may be stopped.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time()) + seconds
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))


def _with_re2(pattern: str) -> Callable[[str], str] | None:
    """Return a function that finds the lines; None if RE2 refuses the pattern or is missing."""
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
