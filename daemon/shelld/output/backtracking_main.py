"""The process that matches lines with Python's `re`, for as long as it is let live.

A program of its own: it is started by its path, imports nothing of ours, and may be killed at any
moment. It reads and writes frames on its standard input, which is a socket: a length of four bytes
and so much UTF-8. The first one is the pattern, each other one a text. Each is answered: "+" and
the lines that match, or "-" and why not.
"""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import sys


def main(memory_bytes: int, cpu_seconds: int) -> None:
    # The daemon counts the time, but may itself be stopped.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    with contextlib.suppress(ValueError):
        # Not everywhere can this be limited.
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
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

        try:
            search = re.compile(read()).search
        except re.error as error:
            answer(f"-{error}")
            return
        except (RecursionError, OverflowError, MemoryError):
            answer("-too large")
            return
        answer("+")
        while True:
            lines = re.findall(r"[^\n]*\n|[^\n]+", read())
            try:
                answer("+" + "".join([line for line in lines if search(_content(line))]))
            except (RecursionError, MemoryError):
                answer("-needs too much memory")


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
