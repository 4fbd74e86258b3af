"""Starting the daemon by hand: the text that a person sees, and the errors that prevent the
start.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from shelld.server.startup import problem_with_bash
from support import DAEMON_COMMAND, DEADLINE_S, RawDaemon, raw_daemon

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
END_OF_FILE = b"\x04"


@contextlib.contextmanager
def daemon_on_terminal() -> Generator[tuple[RawDaemon, int]]:
    """Yield a daemon whose stdin is a terminal, and the other side of the terminal."""
    ours, theirs = os.openpty()
    try:
        daemon = RawDaemon(stdin=theirs)
        os.close(theirs)
        try:
            yield daemon, ours
        finally:
            daemon.close()
    finally:
        os.close(ours)


# -- by hand ----------------------------------------------------------------------------------


# This program runs a daemon in which an import fails.
_FAILING = """
import builtins, signal, sys
real = builtins.__import__
def failing(name, *rest):
    if name == "shelld.cli.parser":
        FAIL
    return real(name, *rest)
signal.signal(signal.SIGINT, signal.default_int_handler)
builtins.__import__ = failing
from shelld.__main__ import main
sys.exit(main())
"""


def test_interrupt_during_the_start_shows_no_traceback() -> None:
    program = _FAILING.replace("FAIL", "signal.raise_signal(signal.SIGINT)")
    command = [sys.executable, "-c", program, "run", "--", "true"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


@pytest.mark.parametrize("arguments", [["run", "--", "echo no"], []], ids=["run", "daemon"])
def test_interrupt_during_an_import_waits_for_the_end_of_the_import(arguments: list[str]) -> None:
    # Python may lose an interrupt within an import.
    interrupt = "signal.raise_signal(signal.SIGINT); print('went on')"
    program = _FAILING.replace("FAIL", interrupt)
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stderr) == (130, b"")
    assert set(ended.stdout.splitlines()) == {b"went on"}


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError",
        "SystemError('error return without exception set')",
        "ImportError('libssl.so: failed to map segment from shared object')",
        "ImportError('libstdc++.so.6: cannot map zero-fill pages')",
    ],
)
def test_start_without_memory_says_so(error: str) -> None:
    program = _FAILING.replace("FAIL", f"raise {error}")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"shelld: cannot start: there is no memory\n"


def test_only_attach_starts_a_lasting_daemon() -> None:
    for descriptor in ("x", "0", "99", "9" * 30):
        command = [*DAEMON_COMMAND, "lasting", "main", "60", descriptor]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout) == (2, b"")
        assert ended.stderr == b"shelld: `shelld attach` starts lasting daemons\n"


@pytest.mark.slow
def test_daemon_on_terminal_shows_what_to_type() -> None:
    with daemon_on_terminal() as (daemon, terminal):
        os.write(terminal, PING)
        assert daemon.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        greeting = daemon.read_stderr().decode()
        assert max(map(len, greeting.splitlines())) < 80
        for words in ("JSON-RPC", "`shelld --help`", "`shelld doctor`", "Ctrl-D"):
            assert words in greeting
        (request,) = (line for line in greeting.splitlines() if line.startswith("{"))
        os.write(terminal, request.encode() + b"\n")
        assert daemon.receive()["result"]["stdout"] == "hello\n"
        os.write(terminal, END_OF_FILE)
        assert daemon.wait() == 0
        assert daemon.read_stderr().decode() == greeting


@pytest.mark.slow
def test_daemon_on_terminal_repeats_hint_after_help() -> None:
    with daemon_on_terminal() as (daemon, terminal):
        os.write(terminal, PING)
        daemon.receive()
        greeting = daemon.read_stderr().decode()
        os.write(terminal, b"help\n")
        assert daemon.receive()["error"]["code"] == -32700
        os.write(terminal, PING)
        daemon.receive()
        hint = daemon.read_stderr().decode().removeprefix(greeting)
        assert hint.startswith("That is not a JSON-RPC request.")
        requests = [
            [line for line in text.splitlines() if line.startswith("{")]
            for text in (greeting, hint)
        ]
        assert requests[0] == requests[1]
        os.write(terminal, END_OF_FILE)
        assert daemon.wait() == 0


@pytest.mark.parametrize("kind", ["full pipe", "closed pipe", "full disk"])
def test_daemon_on_a_terminal_serves_without_stderr(kind: str) -> None:
    ours, theirs = os.openpty()
    reader, stderr = os.pipe()
    if kind == "full pipe":
        os.set_blocking(stderr, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(stderr, bytes(4096))
        os.set_blocking(stderr, True)
    elif kind == "closed pipe":
        os.close(reader)
    else:
        os.close(stderr)
        stderr = os.open("/dev/full", os.O_WRONLY)
    process = subprocess.Popen(
        DAEMON_COMMAND, stdin=theirs, stdout=subprocess.PIPE, stderr=stderr, bufsize=0
    )
    try:
        assert process.stdout is not None
        os.write(ours, PING)
        assert select.select([process.stdout], [], [], DEADLINE_S)[0]
        assert process.stdout.readline() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
        os.write(ours, END_OF_FILE)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        for descriptor in (ours, theirs, stderr):
            os.close(descriptor)
        if kind != "closed pipe":
            os.close(reader)


def test_daemon_on_pipe_is_silent() -> None:
    # `raw_daemon` fails if the daemon writes anything to stderr.
    with raw_daemon() as daemon:
        assert daemon.call("ping") == {}
        daemon.send_raw(b"help\n")
        assert daemon.receive()["error"]["code"] == -32700


# -- a broken bash ----------------------------------------------------------------------------


def _missing(path: Path) -> None:
    pass


def _directory(path: Path) -> None:
    path.mkdir()


def _not_executable(path: Path) -> None:
    path.write_text("#!/bin/bash\n")


def _no_program(path: Path) -> None:
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)


def _another_shell(path: Path) -> None:
    path.write_text('#!/bin/sh\nunset BASH_VERSION\ntest -n "$BASH_VERSION"\n')
    path.chmod(0o755)


UNUSABLE: list[tuple[Callable[[Path], None], str]] = [
    (_missing, "No such file or directory"),
    (_directory, "not a file"),
    (_not_executable, "not executable"),
    (_no_program, "Exec format error"),
    (_another_shell, "not bash"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "reason"), UNUSABLE)
def test_unusable_bash_is_refused_at_start(
    make: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "bash"
    make(path)
    ended = subprocess.run(
        [*DAEMON_COMMAND, "--bash", str(path)],
        input=PING,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert ended.stdout == b""
    assert ended.stderr.decode() == f"shelld: cannot run commands with {path}: {reason}\n"
    assert ended.returncode == 2


@pytest.mark.parametrize(("make", "reason"), UNUSABLE[:3])
def test_unusable_default_bash_is_found_without_running(
    make: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "bash"
    make(path)
    assert problem_with_bash(str(path), is_trusted=True) == reason


def test_trusted_bash_is_not_started(tmp_path: Path) -> None:
    path, ran = tmp_path / "bash", tmp_path / "ran"
    path.write_text(f"#!/bin/sh\ntouch {ran}\n")
    path.chmod(0o755)
    assert problem_with_bash(str(path), is_trusted=True) is None
    assert not ran.exists()


@pytest.mark.slow
def test_relative_bash_runs_in_any_directory(tmp_path: Path) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    with raw_daemon("--bash", "./bash", cwd=tmp_path) as daemon:
        assert daemon.bash("echo $BASH_VERSION", cwd="/")["stdout"] != ""


def test_startup_file_is_not_run_to_check_bash(tmp_path: Path) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    startup_file = tmp_path / "startup"
    startup_file.write_text(f"echo x >> {tmp_path}/ran\n")
    environment = {**os.environ, "BASH_ENV": str(startup_file)}
    with raw_daemon("--bash", str(tmp_path / "bash"), env=environment) as daemon:
        daemon.call("ping")
        assert not (tmp_path / "ran").exists()


# -- an unwritable stdout ---------------------------------------------------------------------


@pytest.mark.slow
def test_full_stdout_is_reported_and_exits_3() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            DAEMON_COMMAND,
            input=PING,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=100,
            check=False,
        )
    assert ended.stderr == b"shelld: cannot write to stdout: No space left on device\n"
    assert ended.returncode == 3


@pytest.mark.slow
def test_unused_full_stdout_exits_zero() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            DAEMON_COMMAND, input=b"", stdout=full, stderr=subprocess.PIPE, timeout=100, check=False
        )
    assert (ended.stderr, ended.returncode) == (b"", 0)


@pytest.mark.slow
def test_file_that_reaches_its_size_limit_exits_3(tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as answers:
        ended = subprocess.run(
            ["/bin/bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *DAEMON_COMMAND],
            input=PING.replace(b"ping", b"rpc.discover"),
            stdout=answers,
            stderr=subprocess.PIPE,
            timeout=100,
            check=False,
        )
    assert ended.stderr == b"shelld: cannot write to stdout: File too large\n"
    assert ended.returncode == 3


def test_closed_terminal_counts_as_vanished_client() -> None:
    ours, theirs = os.openpty()
    daemon = RawDaemon(stdout=theirs)
    try:
        os.close(theirs)
        daemon.send_raw(PING)
        assert json.loads(os.read(ours, 4096)) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        os.close(ours)
        daemon.send_raw(PING)
        assert daemon.wait() == 0
    finally:
        daemon.close()
    assert daemon.stderr == b""


def test_daemon_without_thread_reports_it() -> None:
    # The limit sets the size of a thread's stack, and no address space is that large.
    limited = ["bash", "-c", 'ulimit -S -s $((1 << 45)) && exec "$@"', "bash", *DAEMON_COMMAND]
    done = subprocess.run(limited, input=PING, capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"shelld: cannot start a thread: Resource temporarily unavailable\n"


@pytest.mark.parametrize("limit", range(6, 11))
def test_daemon_without_descriptors_reports_it(limit: int) -> None:
    limited = ["bash", "-c", f'ulimit -n {limit} && exec "$@"', "bash", *DAEMON_COMMAND]
    done = subprocess.run(limited, input=PING, capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(rb"shelld: cannot [a-z ]+: Too many open files\n", done.stderr)


def test_module_of_the_working_directory_is_not_imported(tmp_path: Path) -> None:
    # Without -P, Python searches the working directory first. The daemon imports `re2` for the
    # first filter that needs it.
    command = [sys.executable, "-m", "shelld"]
    with raw_daemon(cwd=str(tmp_path), command=command) as daemon:
        bash_id = daemon.bash('echo \'open("imported", "w")\' > re2.py; echo line')["bash_id"]
        read = {"bash_id": bash_id, "filter": "l[a-i]ne", "stdout_offset": 0}
        assert daemon.call("bash_output", read)["stdout"] == "line\n"
    assert [path.name for path in tmp_path.iterdir()] == ["re2.py"]


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [([], 0, b'{"jsonrpc":"2.0","id":1,"result":{}}\n'), (["--max-shells", "0"], 2, b"")],
)
def test_pythoninspect_does_not_keep_the_daemon_running(
    arguments: list[str], code: int, printed: bytes
) -> None:
    done = subprocess.run(
        [*DAEMON_COMMAND, *arguments],
        input=PING,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONINSPECT": "1"},
    )
    assert (done.returncode, done.stdout) == (code, printed)
    assert b"Traceback" not in done.stderr
