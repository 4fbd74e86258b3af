"""The search for a process that waits for its terminal. The result is proved, likely, or
nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import silent_server
from hidden_processes import hide_process
from mount_namespace import run_after
from shelld.inspection import input_reader, kernel, member
from shelld.inspection.delivery import Hop
from shelld.inspection.input_reader import Found, InputState, inspect
from shelld.inspection.kernel import name_of, process, waits
from shelld.inspection.shell_reader import directories_of_readers
from shelld.inspection.sockets import Socket, listening
from shelld.inspection.waiting_calls import Wait
from shelld.terminals.pty import NEW_MODES, Modes, Size, open_pty
from shelld.terminals.source import Source, file_of
from support import children, wait_for

LINES = NEW_MODES
NO_ECHO = NEW_MODES._replace(echo=False)
KEYS = NEW_MODES._replace(line_mode=False, echo=False)
LONG_S = input_reader.LIKELY_AFTER_S
SHORT_S = LONG_S / 2

# This relay passes input on to a second terminal, which has the same number as the first. Two
# terminals can have the same number if one of them is in a container. A child of the relay runs the
# command. The first argument is the directory on which devpts is mounted.
RELAY_TO_THE_SAME_NUMBER = """
import ctypes, os, select, sys
folder, *command = sys.argv[1:]
number = os.minor(os.fstat(0).st_rdev)
masters = [os.open(f"{folder}/ptmx", os.O_RDWR | os.O_NOCTTY) for _ in range(number + 1)]
ctypes.CDLL(None).unlockpt(masters[-1])
if not os.fork():
    os.setsid()
    os.dup2(os.open(f"{folder}/{number}", os.O_RDWR), 0)
    os.execvp(command[0], command)
select.select([0, masters[-1]], [], [])
"""
# This program also runs a command on a second terminal with the same number, but passes no input
# on. The command stays in the program's session, as in most tests of programs that need a terminal.
TERMINAL_OF_THE_SAME_NUMBER = """
import ctypes, os, subprocess, sys, time
folder, *command = sys.argv[1:]
number = os.minor(os.fstat(0).st_rdev)
masters = [os.open(f"{folder}/ptmx", os.O_RDWR | os.O_NOCTTY) for _ in range(number + 1)]
ctypes.CDLL(None).unlockpt(masters[-1])
subprocess.Popen(command, stdin=os.open(f"{folder}/{number}", os.O_RDWR | os.O_NOCTTY))
time.sleep(300)
"""


@contextmanager
def on_terminal(*command: str) -> Generator[tuple[int, Source]]:
    """Run a command on its own terminal, as a child of this process."""
    pty = open_pty(Size(24, 80))
    about = os.fstat(pty.slave)
    try:
        # SIGHUP must end the processes that relays leave behind, even if the tests run under
        # `nohup`.
        start = ["env", "--default-signal=HUP", "setsid", "-c"]
        with subprocess.Popen(
            [*start, *command], stdin=pty.slave, stdout=pty.slave, stderr=pty.slave
        ) as child:
            try:
                yield child.pid, Source(child.pid, (about.st_rdev,), instance=about.st_dev)
            finally:
                child.kill()
    finally:
        for descriptor in pty:
            os.close(descriptor)


def find(pid: int, source: Source, modes: Modes, silent_s: float) -> Found | None:
    return inspect(pid, InputState(source, modes), silent_s).reader


def sleeps(pid: int, name: str) -> Callable[[], bool]:
    def is_so() -> bool:
        comm = Path(f"/proc/{pid}/comm").read_text().strip()
        return comm == name and process(pid).state == "S"

    return is_so


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the waits of all processes from the search.

    The kernel hides the waits of other users' processes in the same way.
    """

    def refuse(_pid: int, _is_spent: Callable[[], bool]) -> Iterator[Wait]:
        raise PermissionError

    monkeypatch.setattr(member, "waits", refuse)


def test_program_that_cannot_even_be_listed_is_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    # Bash has replaced itself with another user's program, and the system hides such programs.
    with on_terminal("cat") as (pid, source), monkeypatch.context() as patch:
        hide_process(patch, pid, FileNotFoundError)
        found = find(pid, source, NO_ECHO, LONG_S)
        assert found == Found(pid, "", is_blocking=False, is_proved=False)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(
    ("modes", "silent_s", "is_likely"),
    [
        (NO_ECHO, LONG_S, True),
        (KEYS, LONG_S, True),
        (NO_ECHO, SHORT_S, False),
        # Programs that do not wait also set these modes.
        (LINES, LONG_S, False),
    ],
)
def test_modes_and_silence_make_a_hidden_program_likely(
    modes: Modes, silent_s: float, is_likely: bool
) -> None:
    with on_terminal("cat") as (pid, source):
        wait_for(sleeps(pid, "cat"), "the start of cat")
        expected = Found(pid, "cat", is_blocking=False, is_proved=False)
        assert find(pid, source, modes, silent_s) == (expected if is_likely else None)


@pytest.mark.usefixtures("hidden")
def test_hidden_program_in_the_background_is_not_likely() -> None:
    with on_terminal("cat") as (pid, source):
        wait_for(sleeps(pid, "cat"), "the start of cat")
        elsewhere = source._replace(file=(source.file[0] + 1,))
        assert find(pid, elsewhere, NO_ECHO, LONG_S) is None


def test_reader_of_a_containers_terminal_does_not_read_ours() -> None:
    # A container has terminals of its own, and numbers them from 0.
    with on_terminal("cat") as (pid, theirs):
        wait_for(lambda: find(pid, theirs, LINES, SHORT_S) is not None, "cat to wait for input")
        ours = theirs._replace(group=os.getpgrp())
        assert find(pid, ours, NO_ECHO, LONG_S) is None


@pytest.mark.usefixtures("hidden")
def test_hidden_reader_of_a_containers_terminal_does_not_read_ours() -> None:
    with on_terminal("cat") as (pid, theirs):
        wait_for(lambda: find(pid, theirs, NO_ECHO, LONG_S) is not None, "the start of cat")
        ours = theirs._replace(group=os.getpgrp())
        assert find(pid, ours, NO_ECHO, LONG_S) is None


def test_reader_of_another_terminal_with_our_number_is_not_found(tmp_path: Path) -> None:
    program = [sys.executable, "-c", TERMINAL_OF_THE_SAME_NUMBER, str(tmp_path)]
    with on_terminal(*mounting(tmp_path), *program, "cat") as (pid, source):
        # If the search does not know the devpts instance, the two terminals look the same.
        by_number = source._replace(instance=None)
        wait_for(lambda: find(pid, by_number, LINES, SHORT_S) is not None, "cat to wait for input")
        assert find(pid, source, LINES, LONG_S) is None


def mounting(folder: Path) -> list[str]:
    """Return the first part of a command line, to which the caller appends a program. The command
    line mounts other terminals on a directory, and then runs the program.
    """
    return run_after('mount -t devpts -o newinstance,ptmxmode=666 devpts "$1"', str(folder))


@pytest.fixture
def relay_to_the_same_number(tmp_path: Path) -> list[str]:
    return [*mounting(tmp_path), sys.executable, "-c", RELAY_TO_THE_SAME_NUMBER, str(tmp_path)]


def test_reader_on_a_containers_terminal_behind_a_relay_is_found(
    relay_to_the_same_number: list[str],
) -> None:
    with on_terminal(*relay_to_the_same_number, "cat") as (pid, source):

        def cat_is_found() -> bool:
            found = find(pid, source, LINES, SHORT_S)
            return found is not None and (found.program, found.is_proved) == ("cat", True)

        wait_for(cat_is_found, "cat to wait for input")
        assert process(children(pid)[0]).terminal == source.file[0]


@pytest.mark.usefixtures("hidden")
def test_modes_tell_nothing_if_a_hidden_relays_terminal_has_our_number(
    relay_to_the_same_number: list[str],
) -> None:
    with on_terminal(*relay_to_the_same_number, "cat") as (pid, source):
        wait_for(lambda: list(map(name_of, children(pid))) == ["cat"], "the program behind it")
        wait_for(lambda: process(pid).state == "S", "the relay to wait")
        assert find(pid, source, KEYS, LONG_S) is None


@pytest.mark.usefixtures("hidden")
def test_modes_of_a_hidden_relay_tell_nothing() -> None:
    relay = "import pty; pty.spawn('cat')"
    with on_terminal(sys.executable, "-c", relay) as (pid, source):
        wait_for(lambda: list(map(name_of, children(pid))) == ["cat"], "the program behind it")
        wait_for(lambda: process(pid).state == "S", "the relay to wait")
        assert find(pid, source, KEYS, LONG_S) is None


@pytest.mark.parametrize(
    ("modes", "silent_s", "is_likely"),
    [(KEYS, LONG_S, True), (KEYS, SHORT_S, False), (LINES, LONG_S, False)],
)
@pytest.mark.parametrize("name", ["ssh", "picocom", "qemu-system-x86_64"])
def test_program_that_may_send_keys_elsewhere_is_likely_at_best(
    tmp_path: Path, name: str, modes: Modes, silent_s: float, is_likely: bool
) -> None:
    remote = tmp_path / name
    remote.symlink_to(sys.executable)
    wait = "import select; select.select([0], [], [])"
    with on_terminal(str(remote), "-S", "-c", wait) as (pid, source):
        wait_for(
            lambda: find(pid, source, KEYS, LONG_S) is not None, "the program to wait for input"
        )
        expected = Found(pid, name[:15], is_blocking=True, is_proved=False)
        assert find(pid, source, modes, silent_s) == (expected if is_likely else None)


@pytest.mark.parametrize("is_connected", [False, True])
def test_program_that_passes_input_on_to_a_connection_is_likely_at_best(
    tmp_path: Path, is_connected: bool
) -> None:
    remote = tmp_path / "socat"
    remote.symlink_to(sys.executable)
    code = (
        'import select, socket; server = socket.create_server(("127.0.0.1", 0));'
        " client = socket.create_connection(server.getsockname());"
        f" select.select([0, client][:{1 + is_connected}], [], [])"
    )
    with on_terminal(str(remote), "-S", "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "the program to wait")
        found = find(pid, source, KEYS, LONG_S)
        assert found == Found(pid, "socat", not is_connected, not is_connected)


@pytest.mark.parametrize(
    ("other", "is_blocking"),
    [
        ("socket.create_connection(server.getsockname())", False),
        ("socket.socket(type=socket.SOCK_DGRAM)", False),
        pytest.param(
            "socket.socket(type=socket.SOCK_RAW, proto=254)",
            False,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="Only root opens raw sockets"),
        ),
        ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", True),
        ("server", True),
        # Every event loop has such a pair of sockets, to wake itself up.
        ("(pair := socket.socketpair())[0]", True),
        ("0", True),
    ],
)
def test_program_that_waits_for_the_network_too_is_proved_later(
    other: str, is_blocking: bool
) -> None:
    code = (
        'import select, socket; server = socket.create_server(("127.0.0.1", 0));'
        f" other = {other}; select.select([0, other], [], [])"
    )
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "the program to wait")
        for modes in (KEYS, LINES):
            found = find(pid, source, modes, SHORT_S)
            assert found is not None
            assert (found.is_proved, found.is_blocking) == (True, is_blocking)


@pytest.mark.parametrize(("seconds", "is_blocking"), [(300, False), (0, True)])
def test_program_that_waits_for_a_timer_too_is_proved_later(
    seconds: int, is_blocking: bool
) -> None:
    code = (
        "import ctypes, select; clib = ctypes.CDLL(None); timer = clib.timerfd_create(1, 0);"
        f" when = (ctypes.c_long * 4)(0, 0, {seconds}, 0);"
        " clib.timerfd_settime(timer, 0, when, None);"
        " polled = select.epoll(); polled.register(0, 1); polled.register(timer, 1); polled.poll()"
    )
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "the program to wait")
        found = find(pid, source, LINES, SHORT_S)
        assert found is not None
        assert (found.is_proved, found.is_blocking) == (True, is_blocking)


def test_program_waits_for_the_network_if_another_thread_does() -> None:
    code = (
        'import os, socket, threading; server = socket.create_server(("127.0.0.1", 0));'
        " other = socket.create_connection(server.getsockname());"
        " threading.Thread(target=other.recv, args=(1,), daemon=True).start(); os.read(0, 1)"
    )
    with on_terminal(sys.executable, "-c", code) as (pid, source):

        def waits_for_both() -> bool:
            found = find(pid, source, KEYS, SHORT_S)
            return found is not None and found.is_proved and not found.is_blocking

        wait_for(waits_for_both, "both threads to wait")


def test_listening_sockets_are_listed_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import select, socket, threading\n"
        "for _ in range(20):\n"
        "    server = socket.create_server(('127.0.0.1', 0))\n"
        "    watch = ([server], [], [])\n"
        "    threading.Thread(target=select.select, args=watch, daemon=True).start()\n"
        "select.select([0], [], [])"
    )
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, KEYS, SHORT_S) is not None, "the program to wait")
        listed = list[str]()

        def count(place: str) -> list[Socket]:
            listed.append(place)
            return listening(place)

        monkeypatch.setattr(input_reader, "listening", count)
        found = find(pid, source, KEYS, SHORT_S)
        assert found is not None
        assert (found.is_blocking, len(listed)) == (True, 1)


def test_check_stops_when_its_time_budget_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal("cat") as (pid, source):
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "cat to wait for input")
        monkeypatch.setattr(input_reader, "MAX_CHECK_S", 0.0)
        assert find(pid, source, LINES, SHORT_S) is None


# This relay copies its input to the terminal of a child. Another process copies the output of the
# child.
RELAY_IN_TWO_PROCESSES = """
import os, pty, sys
pid, master = pty.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
source, target = (0, master) if os.fork() else (master, 1)
while data := os.read(source, 4096):
    os.write(target, data)
"""
# The first process reads our terminal, and the second process reads the terminal of its child. A
# socket connects the two processes.
CLIENT_AND_SERVER = """
import os, pty, select, socket, sys
ours, theirs = socket.socketpair()
if os.fork():
    select.select([0, ours], [], [])
pid, master = pty.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
os.close(0)
select.select([master, theirs], [], [])
"""


def names_below(pid: int) -> set[str]:
    below = children(pid)
    return {name_of(each) for each in below}.union(*map(names_below, below))


@pytest.mark.parametrize("inner", ["cat", "sleep"])
def test_reader_behind_two_processes_that_relay_is_found(inner: str) -> None:
    command = [sys.executable, "-c", RELAY_IN_TWO_PROCESSES, inner, *["300"] * (inner == "sleep")]
    with on_terminal(*command) as (pid, source):
        wait_for(lambda: inner in names_below(pid), "the program behind the relay")

        def both_relay() -> bool:
            relays = [pid, *(each for each in children(pid) if name_of(each) != inner)]
            waiting = [wait for each in relays for wait in waits(each) if wait.is_read]
            return len(waiting) == 2

        wait_for(both_relay, "the relay to wait")
        if inner == "sleep":
            assert find(pid, source, KEYS, LONG_S) is None
        else:

            def program() -> str | None:
                found = find(pid, source, KEYS, LONG_S)
                return None if found is None else found.program

            wait_for(lambda: program() == "cat", "the program to wait for input")


def test_reader_that_holds_the_terminal_of_a_child_is_proved() -> None:
    # A program that uses pexpect does this. The parent asks a question itself, and nobody reads the
    # child's output.
    code = "import os, pty\nif pty.fork()[0]: os.read(0, 1)\nelse: os.execvp('cat', ['cat'])"
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "the parent to wait")
        found = find(pid, source, LINES, SHORT_S)
        assert found is not None
        assert (found.pid, found.is_proved, found.is_blocking) == (pid, True, True)


def test_client_whose_server_has_a_terminal_is_likely_at_best() -> None:
    command = [sys.executable, "-c", CLIENT_AND_SERVER, "sleep", "300"]
    with on_terminal(*command) as (pid, source):
        wait_for(lambda: "sleep" in names_below(pid), "the program behind the server")
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "the client to wait")
        found = find(pid, source, KEYS, LONG_S)
        assert found is not None
        assert (found.pid, found.is_proved, found.is_blocking) == (pid, False, False)
        assert find(pid, source, KEYS, SHORT_S) is None


# No program reads from the terminal behind the relay.
@pytest.mark.parametrize(
    ("command", "is_proved"),
    [
        ("cat | {relay}", False),
        ("cat | tee /dev/null | {relay}", False),
        ("cat | sort", True),
        # The relay writes into the pipe, and reads nothing that the program writes.
        ("{relay} < /dev/null | (cat <&2)", True),
    ],
)
def test_reader_is_not_proved_if_a_relay_reads_what_it_writes(
    command: str, is_proved: bool
) -> None:
    code = "import pty; pty.spawn(['sleep', '300'])"
    relay = f'{sys.executable} -c "{code}"'
    with on_terminal("bash", "-c", command.format(relay=relay)) as (pid, source):
        if "relay" in command:
            wait_for(lambda: "sleep" in names_below(pid), "the program behind the relay")
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "cat to wait for input")
        found = find(pid, source, KEYS, LONG_S)
        assert found is not None
        assert (found.program, found.is_proved, found.is_blocking) == ("cat", is_proved, is_proved)


def test_relay_whose_terminal_is_not_found_is_likely_at_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "MAX_DESCRIPTORS", 3)
    code = "import os, select; spare = [os.dup(2) for _ in range(5)]; select.select([0], [], [])"
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "the program to wait")
        found = find(pid, source, KEYS, LONG_S)
        assert found is not None
        assert (found.is_proved, found.is_blocking) == (False, False)


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        # The epoll set still contains the pipe, although the pipe's descriptor number now belongs
        # to the terminal.
        ("r, w = os.pipe(); a = os.dup(r); p.register(r, 1); os.dup2(0, r); p.poll()", False),
        # The epoll set contains the pipe and the terminal, both under the same number.
        (
            "r, w = os.pipe(); a = os.dup(r); p.register(r, 1); os.dup2(0, r); p.register(r, 1);"
            " p.poll()",
            True,
        ),
        ("p.register(0, 1); p.poll()", True),
        ("q = select.epoll(); q.register(0, 1); p.register(q.fileno(), 1); p.poll()", True),
        (
            "r, w = os.pipe(); a = os.dup(r); q = select.epoll(); q.register(r, 1);"
            " os.dup2(0, r); p.register(q.fileno(), 1); p.poll()",
            False,
        ),
    ],
)
def test_epoll_set_waits_for_the_file_that_was_registered(code: str, is_found: bool) -> None:
    code = f"import os, select; p = select.epoll(); {code}"
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(partial(waits_for_something, pid), "the system call")
        assert (find(pid, source, KEYS, LONG_S) is not None) is is_found


def waits_for_something(pid: int) -> bool:
    return any(each.descriptors for each in waits(pid))


def test_process_that_waits_for_the_write_end_is_no_reader() -> None:
    read, write = os.pipe()
    code = "import os, select; p = select.poll(); p.register(int(os.sys.argv[1]), 1); p.poll()"
    source = Source(None, file_of(read))
    for descriptor, is_found in ((read, True), (write, False)):
        command = [sys.executable, "-c", code, str(descriptor)]
        with subprocess.Popen(command, pass_fds=(read, write)) as child:
            try:
                pid = child.pid
                wait_for(partial(waits_for_something, pid), "the call")
                found = inspect(pid, InputState(source, None), LONG_S).reader
                assert (found is not None) is is_found
            finally:
                child.kill()
    os.close(read)
    os.close(write)


def is_stopped(pid: int, source: Source) -> bool:
    return inspect(pid, InputState(source, LINES), SHORT_S).is_stopped


def test_program_is_stopped_although_its_first_thread_has_ended() -> None:
    code = """
import ctypes, os, threading
threading.Thread(target=lambda: os.read(0, 1)).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "the thread to wait")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(pid, source), "the stop")
        assert find(pid, source, LINES, LONG_S) is None


@pytest.mark.parametrize(
    ("then", "is_stopped_then"),
    [("while :; do :; done", False), ("read -p 'Name? ' x", False), ("wait", True)],
)
def test_stopped_child_counts_only_if_its_parent_waits(then: str, is_stopped_then: bool) -> None:
    command = f"sleep 300 & kill -STOP $!; {then}"
    with on_terminal("bash", "-c", command) as (pid, source):

        def child_is_stopped() -> bool:
            return any(process(each).is_stopped for each in children(pid))

        wait_for(child_is_stopped, "the stop of the child")
        try:
            if is_stopped_then:
                wait_for(lambda: is_stopped(pid, source), "the stop of the command")
            else:
                expected = "R" if then.startswith("while") else "S"
                wait_for(lambda: process(pid).state == expected, "the shell to go on")
                assert not is_stopped(pid, source)
        finally:
            os.kill(children(pid)[0], signal.SIGKILL)


def test_program_that_polls_is_found_again_after_a_stop() -> None:
    code = "import select; p = select.poll(); p.register(0, 1); p.poll()"
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "the program to wait")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(pid, source), "the stop")
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: find(pid, source, LINES, SHORT_S) is not None, "the program to wait")


# The parent has its child's terminal open, and asks a question itself.
WITH_A_CHILD = """
import os, pty, select, threading
pid, master = pty.fork()
if not pid:
    os.execvp(os.sys.argv[1], os.sys.argv[1:])
"""


@pytest.mark.parametrize(
    "wait",
    [
        "os.read(0, 1)",
        "select.select([0], [], [])",
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); os.read(0, 1)",
    ],
)
@pytest.mark.parametrize("child", [["cat"], ["sleep", "300"]])
def test_parent_that_does_not_read_its_childs_terminal_is_proved(
    wait: str, child: list[str]
) -> None:
    with on_terminal(sys.executable, "-c", WITH_A_CHILD + wait, *child) as (pid, source):

        def is_proved() -> bool:
            found = find(pid, source, LINES, SHORT_S)
            return found is not None and (found.pid, found.is_proved) == (pid, True)

        wait_for(is_proved, "the parent to wait")


def test_relay_whose_other_half_is_at_work_is_not_proved() -> None:
    busy = ["bash", "-c", "while :; do echo x; done"]
    with on_terminal(sys.executable, "-c", RELAY_IN_TWO_PROCESSES, *busy) as (pid, source):
        wait_for(lambda: "bash" in names_below(pid), "the program behind the relay")
        wait_for(partial(waits_for_something, pid), "the relay to wait")
        # The second process of the relay fills our terminal, which nobody reads, and then waits for
        # room in the terminal.
        for _ in range(100):
            found = find(pid, source, KEYS, SHORT_S)
            assert found is None or not found.is_proved


CLIENT_WITH_TWO_THREADS = CLIENT_AND_SERVER.replace(
    "    select.select([0, ours], [], [])\n",
    "    import threading\n"
    "    threading.Thread(target=ours.recv, args=(1,), daemon=True).start()\n"
    "    os.read(0, 1)\n",
)


def test_client_that_reads_in_another_thread_is_likely_at_best() -> None:
    command = [sys.executable, "-c", CLIENT_WITH_TWO_THREADS, "sleep", "300"]
    with on_terminal(*command) as (pid, source):
        wait_for(lambda: "sleep" in names_below(pid), "the program behind the server")
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "the client to wait")
        found = find(pid, source, KEYS, LONG_S)
        assert found is not None
        assert (found.pid, found.is_proved, found.is_blocking) == (pid, False, False)


def test_reader_on_one_of_two_terminals_behind_a_relay_is_likely_at_best() -> None:
    code = """
import os, pty, select, sys
masters = []
for command in (["sleep", "300"], ["cat"]):
    pid, master = pty.fork()
    if not pid:
        os.execvp(command[0], command)
    masters.append(master)
select.select([0, *masters], [], [])
"""
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(lambda: names_below(pid) == {"sleep", "cat"}, "both programs")
        wait_for(lambda: find(pid, source, KEYS, LONG_S) is not None, "cat to wait")
        found = find(pid, source, KEYS, LONG_S)
        assert found is not None
        assert (found.program, found.is_proved, found.is_blocking) == ("cat", False, False)


def test_relay_is_followed_although_its_first_thread_has_ended() -> None:
    code = """
import ctypes, os, pty, select, threading
pid, master = pty.fork()
if not pid:
    os.execvp("sleep", ["sleep", "300"])
threading.Thread(target=lambda: select.select([0, master], [], [])).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
    with on_terminal(sys.executable, "-c", code) as (pid, source):
        wait_for(partial(waits_for_something, pid), "the relay to wait")
        assert find(pid, source, KEYS, LONG_S) is None


def test_command_is_stopped_if_a_child_in_another_group_is() -> None:
    # timeout(1) makes a process group of its own. This group is in the background, so the terminal
    # stops `cat` when it reads.
    with on_terminal("bash", "-c", "timeout 300 cat; :") as (pid, source):
        wait_for(lambda: is_stopped(pid, source), "the stop")
        for each in children(pid):
            # Even a stopped process dies of this signal.
            os.kill(each, signal.SIGKILL)


def requests_to(server: int, log: Path) -> list[int]:
    """Return the requests that a silent server has received. Skip the test if the mount failed."""
    if log.exists():
        return [int(line) for line in log.read_text().split()]
    if not Path(f"/proc/{server}").exists() or process(server).is_dead:
        pytest.skip("needs the right to mount a file system of its own")
    return []


@pytest.mark.parametrize(
    ("code", "is_found"),
    [("os.read(file, 1)", False), ("os.read(0, 1)", True)],
    ids=["reads-a-file", "reads-the-terminal"],
)
def test_check_sends_no_request_to_a_hanging_file_server(
    tmp_path: Path, code: str, is_found: bool
) -> None:
    folder, log = tmp_path / "mounted", tmp_path / "log"
    folder.mkdir()
    # In both cases, another thread of the program waits for the silent server.
    code = f"import os, threading; threading.Thread(target=os.read, args=(file, 1)).start(); {code}"
    command = [sys.executable, silent_server.__file__, str(folder), str(log), code]
    with on_terminal(*command) as (pid, source):
        requests = partial(requests_to, pid, log)
        wait_for(lambda: silent_server.READ in requests(), "the read")
        wait_for(lambda: len(list(waits(children(pid)[0]))) == 2, "both threads to wait")
        before = requests()
        assert (find(pid, source, KEYS, LONG_S) is not None) is is_found
        directories_of_readers(pid, source)
        assert requests() == before


# The program polls a list of descriptors, and then maps a file at the address of this list.
POLL_WITH_A_FILE = """
import ctypes, mmap, os, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fixed = 0x10
place = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
ctypes.memmove(place, bytes([0, 0, 0, 0, 1, 0, 0, 0]), 8)
poller = threading.Thread(target=libc.poll, args=(ctypes.c_void_p(place), 1, -1))
poller.start()
while b"poll" not in open(f"/proc/self/task/{poller.native_id}/wchan", "rb").read():
    pass
libc.mmap(place, 4096, 1, mmap.MAP_PRIVATE | fixed, file, 0)
poller.join()
"""


def test_check_reads_no_memory_that_a_hanging_server_provides(tmp_path: Path) -> None:
    folder, log = tmp_path / "mounted", tmp_path / "log"
    folder.mkdir()
    code = POLL_WITH_A_FILE
    command = [sys.executable, silent_server.__file__, str(folder), str(log), code]
    with on_terminal(*command) as (pid, source):
        requests = partial(requests_to, pid, log)
        wait_for(lambda: silent_server.OPEN in requests(), "the start of the program")

        def has_mapped() -> bool:
            program = children(pid)[0]
            return "/mounted/file" in Path(f"/proc/{program}/maps").read_text()

        wait_for(has_mapped, "the map of the file")
        assert find(pid, source, KEYS, LONG_S) is None
        assert silent_server.READ not in requests()


@pytest.mark.parametrize("is_on_its_way", [False, True])
def test_program_whose_input_is_on_its_way_through_a_relay_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, is_on_its_way: bool
) -> None:
    def answer(hops: list[Hop]) -> bool:
        assert [name_of(each.member.pid) for each in hops] == ["script", "cat"]
        return is_on_its_way

    with on_terminal("script", "-qc", "exec cat", "/dev/null") as (pid, source):

        def name() -> str | None:
            found = find(pid, source, KEYS, SHORT_S)
            return found and found.program

        wait_for(lambda: name() == "cat", "cat to wait for input")
        monkeypatch.setattr(input_reader, "is_on_its_way", answer)
        assert name() == (None if is_on_its_way else "cat")
