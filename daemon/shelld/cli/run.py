"""``shelld run [OPTION ...] -- COMMAND``: run one command, and leave nothing behind.

Starts a daemon for the command, and ends the daemon when the command has ended. Shows output as it
comes, byte for byte. Passes standard input on to the command. Ctrl-C, SIGTERM, SIGHUP and SIGQUIT
end the command with all its processes. When the command ends, shelld ends the processes that the
command has left running. A summary goes to stderr.

The exit code is that of the command, or 128 + the number of the signal that ended it. Other exit
codes are 124 if the command was ended at the time limit, 125 if shelld has failed or has lost
output, 126 if the guard has refused the command, and 2 for bad arguments.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Final

from shelld.cli.arguments import ArgumentParser
from shelld.cli.display import Display, OutputLost, Tone
from shelld.cli.exits import FAILED, REFUSED, TIMED_OUT, exit_code_of, name_of
from shelld.cli.formats import duration, size
from shelld.cli.input_forwarder import InputForwarder
from shelld.cli.parser import parse_options
from shelld.cli.raw_terminal import RawTerminal
from shelld.cli.show import USAGE_ERROR
from shelld.cli.stops import Stops
from shelld.cli.words import command_of
from shelld.server.startup import given_environment
from shelld_client import BashOptions, Client, CommandBlocked, ExitEvent, ShellError, SpawnFailed

# These options of the daemon suit a single command. Output stays on disk until it is shown, because
# the command may write output faster than it is shown. The user's options come later on the command
# line, so they win.
_OPTIONS: Final = ("--spare-shells=0", "--retain-bytes=4G", "--retain-total-bytes=4G")
_READ_BYTES: Final = 4 * 2**20
_MAX_TIMEOUT_S: Final = 10**9


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    # `_main` has disabled garbage collection, to make the imports faster.
    gc.enable()
    parser = run_parser()
    arguments, words = _split(arguments, parser)
    own, options = parser.parse_known_args(arguments)
    # Report mistakes before the daemon starts.
    parse_options(options)
    try:
        command = command_of(words)
    except ValueError as error:
        parser.error(str(error))
    display = Display()
    if sys.stdout is None:
        display.say("shelld: cannot write to stdout: it is closed", "bad")
        return FAILED
    if own.tty and not RawTerminal.is_possible():
        display.say("shelld: --tty needs a terminal as stdin and stdout", "bad")
        return USAGE_ERROR
    try:
        with ExitStack() as stack:
            return _Run(command, own, display, stack).run(options)
    except CommandBlocked as error:
        display.say(f"shelld: {error}", "bad")
        return REFUSED
    except SpawnFailed as error:
        display.say(f"shelld: {_problem(error, own.cwd)}", "bad")
        return FAILED
    except ShellError as error:
        display.say(f"shelld: {error}", "bad")
        return FAILED


def _problem(error: SpawnFailed, cwd: str | None) -> str:
    """Return what is wrong. The daemon does not name the directory that cannot be used."""
    number = getattr(errno, error.errno or "", None)
    if cwd is None or number is None or "working directory" not in str(error):
        return str(error)
    return f"cannot use the directory {cwd}: {os.strerror(number)}"


def run_parser() -> argparse.ArgumentParser:
    """Return the parser for the options of `shelld run`. All other options are the daemon's."""
    parser = ArgumentParser(
        prog="shelld run",
        usage="%(prog)s [-h] [-q] [-t] [--cwd DIR] [--timeout S] [OPTION ...] -- COMMAND ...",
        description="Run a command, show its output as it comes, and end with its exit code. No "
        "process of the command outlives it.",
        epilog="OPTION is any option of shelld. COMMAND is a command line as one argument, or a "
        "program and its arguments. exit codes: that of the command, 128 + the signal that ended "
        "it, 124 at the timeout, 125 if shelld failed, 126 if the guard refused the command",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    parser.add_argument(
        "-t", "--tty", action="store_true", help="give the command a terminal, and type into it"
    )
    parser.add_argument(
        "--cwd", type=_directory, metavar="DIR", help="the directory of the command"
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="end the command after this time, in seconds"
    )
    return parser


def _directory(text: str) -> str:
    # The protocol takes only names that are UTF-8. For other names, `encode` raises a ValueError.
    text.encode()
    if not text:
        raise ValueError
    return text


_directory.__name__ = "directory"


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MAX_TIMEOUT_S:
        raise ValueError
    return value


_seconds.__name__ = "number of seconds"


def _split(
    arguments: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the options, and the words of the command."""
    if arguments and not arguments[0].startswith("-"):
        return [], arguments
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    words = arguments[at + 1 :]
    if not words and not {"-h", "--help"} & {*arguments[:at]}:
        parser.error("the command is missing: put it behind --, as in: shelld run -q -- ls -l")
    return arguments[:at], words


class _Run:
    """Runs one command. When the command has ended, the caller leaves `stack`, which ends the
    daemon.
    """

    def __init__(
        self, command: str, own: argparse.Namespace, display: Display, stack: ExitStack
    ) -> None:
        self._command = command
        self._own = own
        self._display = display
        self._stack = stack
        self._terminal = RawTerminal() if own.tty else None
        if self._terminal is None:
            self._stops = Stops(own.timeout)
        else:
            self._stops = Stops(own.timeout, self._terminal.resize, self._terminal.restore)
        self._refusal: ShellError | None = None
        # The reason why output could not be written, and the number of bytes that the daemon
        # dropped before this program read them.
        self._unwritten: OutputLost | None = None
        self._lost = 0

    def run(self, options: Sequence[str]) -> int:
        """Run the command; return the exit code. Raises `ShellError`."""
        daemon = Client.spawn(args=[*_OPTIONS, *options], env=given_environment())
        client = self._stack.enter_context(daemon)
        bash_id = client.bash(self._command, run_in_background=True, **self._options()).bash_id
        self._stops.begin(client, bash_id)
        self._display.begin()
        end = self._stack.enter_context(client.events(bash_id=bash_id, events=["exit"]))
        with self._terminal or nullcontext():
            if self._terminal is not None:
                self._terminal.attach(client, bash_id)
            if sys.stdin is not None:
                InputForwarder(client, bash_id, self._refuse).start()
            try:
                self._follow(client, bash_id)
            except OutputLost as error:
                self._unwritten = error
                client.kill_shell(bash_id)
        self._display.clear()
        exited = next(end)
        assert isinstance(exited, ExitEvent)
        if not self._own.quiet:
            self._summarise(exited)
        self._end_leftovers(client, exited)
        return self._exit_code(exited)

    def _options(self) -> BashOptions:
        options = BashOptions(session=None, cwd=self._own.cwd)
        if self._terminal is not None:
            return {**options, **self._terminal.options}
        options["open_stdin"] = sys.stdin is not None
        options["merge"] = self._display.is_one_stream
        return options

    def _refuse(self, error: ShellError) -> None:
        """Report input that was refused. If the command has no terminal, also end the command."""
        if self._terminal is not None:
            self._display.say(f"shelld: {error}", "bad", end="\r\n")
            return
        self._refusal = error
        self._stops.end_command("TERM")

    def _follow(self, client: Client, bash_id: str) -> None:
        """Show the output until the command ends. Raises `OutputLost`."""
        # Read from explicit offsets. A read without an offset would skip the output that
        # write_stdin has already read.
        stdout = stderr = 0
        while True:
            read = client.bash_output(
                bash_id,
                wait=self._display.patience_ms,
                stdout_offset=stdout,
                stderr_offset=stderr,
                max_bytes=_READ_BYTES,
                encoding="base64",
            )
            stdout, stderr = read.stdout_range.end, read.stderr_range.end
            self._lost += read.dropped_bytes
            if read.stdout:
                self._display.write("stdout", read.stdout_data)
            if read.stderr:
                self._display.write("stderr", read.stderr_data)
            if not (read.is_running or read.more):
                return
            self._display.tick()

    def _summarise(self, exited: ExitEvent) -> None:
        if self._is_timed_out(exited):
            how = f"ended at the timeout of {self._own.timeout:g} s"
        elif exited.signal is not None:
            how = f"ended by {exited.signal}"
        else:
            how = f"exit code {exited.exit_code}"
        if exited.reason is not None:
            how += f" ({exited.reason})"
        took, peak = duration(exited.duration_ms / 1000), size(exited.usage.max_rss_bytes)
        tone: Tone = "good" if exited.exit_code == 0 else "bad"
        self._display.say(f"shelld: {how} after {took}, peak memory {peak}", tone)

    def _is_timed_out(self, exited: ExitEvent) -> bool:
        # If the command ends shortly before the time limit, `shelld run` may still be writing its
        # output when the limit passes. In this case, the limit has not ended the command.
        return self._stops.is_timed_out and exited.status == "killed"

    def _end_leftovers(self, client: Client, exited: ExitEvent) -> None:
        """End and report the processes that the command has left running, even with --quiet."""
        if exited.leftover:
            names = ", ".join(map(name_of, exited.leftover))
            survivors = client.kill_shell(exited.bash_id).survivors
            self._display.say(f"shelld: ended what the command had left running: {names}")
            if survivors:
                alive = ", ".join(map(name_of, survivors))
                self._display.say(f"shelld: could not end {alive}", "bad")
        if self._refusal is not None:
            self._display.say(f"shelld: {self._refusal}", "bad")
        if self._unwritten is not None and not self._unwritten.is_unread:
            self._display.say(f"shelld: {self._unwritten}", "bad")
        if self._lost:
            self._display.say_lost(self._lost)

    def _exit_code(self, exited: ExitEvent) -> int:
        if self._is_timed_out(exited):
            return TIMED_OUT
        if self._refusal is not None:
            return REFUSED
        if self._unwritten is not None and self._unwritten.is_unread:
            return 128 + signal.SIGPIPE
        if self._unwritten is not None or self._lost:
            return FAILED
        return exit_code_of(exited)
