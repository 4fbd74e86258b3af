"""The search finds the ports on which a command listens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from shelld.inspection import ports, sockets
from shelld.inspection.ports import Listening
from support import wait_for

LISTENS = """
import socket, sys
found = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*[each.getsockname()[1] for each in found], flush=True)
sys.stdin.read()
"""
HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)
LINE = (
    "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  0  0 {} 1 0 100 0 0 10 0\n"
)


@contextmanager
def listening(count: int, script: str = LISTENS) -> Generator[tuple[int, list[int]]]:
    """Run a program that listens on some ports. Yield its pid and the ports."""
    command = [sys.executable, "-c", script, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.pid, [int(word) for word in child.stdout.readline().split()]
        finally:
            child.stdin.close()


def find(pid: int, port: int | None = None) -> Iterator[Listening | None]:
    return ports.find(pid, port, sockets.listening("/proc/self"), {})


def found(pid: int, port: int | None = None) -> list[Listening]:
    return [each for each in find(pid, port) if each is not None and each.pid == pid]


def test_each_port_is_found_with_its_process() -> None:
    with listening(3) as (pid, numbers):
        shown = found(pid)
    assert {each.port for each in shown} == set(numbers)
    name = Path(sys.executable).resolve().name[:15]
    assert {(each.address, each.program) for each in shown} <= {("127.0.0.1", name)} | {
        ("127.0.0.1", "python"),
        ("127.0.0.1", "python3"),
    }


def test_one_port_can_be_chosen() -> None:
    with listening(2) as (pid, numbers):
        assert [each.port for each in found(pid, numbers[1])] == [numbers[1]]


def test_process_that_ends_during_the_search_has_no_ports() -> None:
    with listening(1) as (pid, _):
        search = find(pid)
        next(search)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert [each for each in search if each is not None and each.pid == pid] == []


def test_unknown_process_has_no_ports() -> None:
    assert list(find(2**22 + 1)) == []


def test_search_for_ports_pauses_after_each_process() -> None:
    with listening(1) as (pid, _):
        assert None in list(find(pid))


def test_port_of_a_process_with_many_descriptors_is_found() -> None:
    script = "import os; [os.dup(0) for _ in range(5_000)]\n" + LISTENS
    with listening(1, script) as (pid, numbers):
        assert [each.port for each in found(pid)] == numbers


def test_port_is_found_after_its_first_thread_has_ended() -> None:
    script = f"""
import ctypes, threading
threading.Thread(target=exec, args=({LISTENS!r}, {{}})).start()
ctypes.CDLL(None).pthread_exit(0)
"""
    with listening(1, script) as (pid, numbers):
        wait_for(lambda: f"/proc/{pid}/task/" in ports.living_thread(pid))
        assert [each.port for each in found(pid)] == numbers
