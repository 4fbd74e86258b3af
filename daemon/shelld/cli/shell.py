"""``shelld shell [OPTION ...]``: an interactive prompt for one session, to try things.

Starts a daemon of its own, with the given options of shelld. Each command runs in the foreground of
the session, so the directory, the variables and the functions are kept. Ctrl-C ends the running
command, Ctrl-D leaves. Without a terminal, the commands come from standard input, and no prompt is
shown. The commands get no input. A line that begins with a colon and a letter is a command of the
prompt itself, such as ``:help``.

As with bash, the exit code is that of the last command. It is 125 if shelld has failed or has lost
output, and 2 for bad arguments.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from shelld.cli.arguments import ArgumentParser
from shelld.cli.display import Display, OutputLost
from shelld.cli.exits import FAILED, REFUSED, TIMED_OUT, exit_code_of, name_of
from shelld.cli.formats import duration, printable
from shelld.cli.lines import Lines
from shelld.cli.parser import parse_options
from shelld.server.startup import given_environment
from shelld_client import (
    BashResult,
    Client,
    CommandBlocked,
    CommandTimedOut,
    DaemonExited,
    OutputEvent,
    ProtocolError,
    ShellError,
)
from shelld_protocol.structs import DEFAULT_SESSION, MAX_TIMEOUT_MS

_INTERRUPTED: Final = 130
_OWN_COMMAND: Final = re.compile(r"\s*:([a-z]+)(?:\s+(.*))?", re.DOTALL)
# Matches the beginning of the prompt's own commands, even of unknown ones. Does not match `:bg` and
# `:explain`, because a shell command follows them.
_OWN_LINE: Final = re.compile(r"\s*:(?!(?:bg|explain)\b)[a-z]")
_EXIT: Final = re.compile(r"\s*exit(?:\s+(\d{1,3}))?\s*")

_HELP: Final = """\
:bg COMMAND         run a command in the background
:shells             list the commands that run or have ended
:output ID          show new output of one of them
:kill ID            end one of them, with all its processes
:explain COMMAND    show what the guard thinks of a command
:session [NAME]     show the sessions, or go to another one
:help               show this list
exit [N], Ctrl-D    leave
Ctrl-C ends the running command. A command that needs a terminal: shelld run -t -- COMMAND"""


def shell(arguments: Sequence[str]) -> int:
    """Read and run commands until the end; return the exit code."""
    # `_main` has disabled garbage collection, to make the imports faster.
    gc.enable()
    parser = ArgumentParser(
        prog="shelld shell",
        usage="%(prog)s [-h] [OPTION ...]",
        description="Type commands into one session of a daemon. Ctrl-C ends the running command, "
        "Ctrl-D leaves. :help lists what else there is.",
        epilog="OPTION is any option of shelld.",
    )
    _, options = parser.parse_known_args(arguments)
    bash = parse_options(options).bash
    display = Display()
    if sys.stdout is None:
        display.say("shelld: cannot write to stdout: it is closed", "bad")
        return FAILED
    try:
        with Client.spawn(args=options, env=given_environment()) as client:
            return _Shell(client, Lines(bash, _OWN_LINE), display).run()
    except OutputLost as error:
        if not error.is_unread:
            display.say(f"shelld: {error}", "bad")
        return FAILED
    except ShellError as error:
        display.say(f"shelld: {error}", "bad")
        return FAILED


class _Shell:
    def __init__(self, client: Client, lines: Lines, display: Display) -> None:
        self._client = client
        self._lines = lines
        self._display = display
        self._session = DEFAULT_SESSION
        self._cwd = self._first_cwd = client.get_session().cwd
        # The exit code of the last command.
        self._code = 0
        self._own: Mapping[str, Callable[[str], None]] = {
            "bg": self._start,
            "shells": self._list,
            "output": self._show_output,
            "kill": self._kill,
            "explain": self._explain,
            "session": self._switch,
            "help": lambda _: self._print(_HELP),
        }

    def run(self) -> int:
        """Read and run commands. Raises `DaemonExited`, `ProtocolError`, `OutputLost`."""
        if self._lines.is_terminal:
            self._display.say("shelld shell: type commands; :help helps, Ctrl-D leaves")
        while True:
            try:
                command = self._next_command()
                if command is None:
                    if self._lines.is_terminal:
                        self._display.say("")
                    return self._code
                if (left := _EXIT.fullmatch(command)) is not None:
                    return self._code if left[1] is None else int(left[1]) & 0xFF
                self._run_line(command)
            except KeyboardInterrupt:
                self._display.say("")
                self._code = _INTERRUPTED

    def _next_command(self) -> str | None:
        """Return None at the end of the input, or if it cannot be read."""
        try:
            return self._lines.next_command(self._prompt)
        except OSError as error:
            self._display.say(f"shelld: cannot read commands: {error.strerror}", "bad")
            self._code = FAILED
            return None

    @property
    def _prompt(self) -> str:
        home = os.environ.get("HOME", "").rstrip("/")
        cwd = self._cwd
        if home and (cwd == home or cwd.startswith(f"{home}/")):
            cwd = f"~{cwd[len(home) :]}"
        session = "" if self._session == DEFAULT_SESSION else f"{self._session} "
        # Escape control characters, because the name of a directory must not control the terminal.
        return printable(f"{session}{cwd} $ ")

    def _run_line(self, command: str) -> None:
        own = _OWN_COMMAND.fullmatch(command)
        try:
            if own is None:
                self._run_command(command)
            elif (action := self._own.get(own[1])) is None:
                self._display.say(f"no such command: :{own[1]}; :help lists the commands", "bad")
            else:
                action((own[2] or "").strip())
        except (DaemonExited, ProtocolError):
            raise
        except ShellError as error:
            self._code = FAILED
            if isinstance(error, CommandBlocked):
                self._code = REFUSED
            elif isinstance(error, CommandTimedOut):
                self._code = TIMED_OUT
            self._display.say(str(error), "bad")

    def _run_command(self, command: str) -> None:
        if not command.strip():
            return
        output = self._client.stream(
            command,
            session=self._session,
            timeout=MAX_TIMEOUT_MS,
            on_timeout="background",
            strip_ansi=False,
            merge=self._display.is_one_stream,
        )
        # If Ctrl-C interrupts the `with` block, leaving the block kills the command.
        lost = 0
        with output:
            for item in output:
                if isinstance(item, OutputEvent):
                    self._display.write(item.stream, item.text.encode())
                    lost += item.dropped
                elif isinstance(item, BashResult):
                    self._finish(item)
                else:
                    self._display.say(f"after 10 min, it goes on in the background: {item.bash_id}")
        self._report_lost(lost)

    def _report_lost(self, count: int) -> None:
        if count:
            self._display.say_lost(count)
            self._code = FAILED

    def _finish(self, result: BashResult) -> None:
        self._code = exit_code_of(result)
        if result.session_cwd is not None:
            self._cwd = result.session_cwd
            # Readline completes file names in our working directory.
            with suppress(OSError):
                os.chdir(self._cwd.encode())
        if not self._lines.is_terminal:
            return
        how = f"ended by {result.signal}" if result.signal else f"exit code {result.exit_code}"
        if result.exit_code != 0:
            self._display.say(f"[{how} after {duration(result.duration_ms / 1000)}]", "bad")
        if result.leftover:
            names = ", ".join(map(name_of, result.leftover))
            self._display.say(f"[{result.bash_id} goes on: {names}]")

    def _print(self, text: str) -> None:
        self._display.write("stdout", text.encode("utf-8", "backslashreplace") + b"\n")

    # -- commands of the shell itself -----------------------------------------------------------

    def _start(self, command: str) -> None:
        started = self._client.bash(command, run_in_background=True, session=self._session)
        self._print(started.bash_id)

    def _list(self, _rest: str) -> None:
        for each in self._client.list_shells():
            unread = f", {each.unread_bytes} bytes unread" if each.unread_bytes else ""
            self._print(f"{each.bash_id}  {each.status}{unread}  {shlex.quote(each.command)}")

    def _show_output(self, bash_id: str) -> None:
        read = self._client.bash_output(bash_id, strip_ansi=False)
        self._display.write("stdout", read.stdout.encode())
        self._display.write("stderr", read.stderr.encode())
        self._report_lost(read.dropped_bytes)
        if read.more:
            self._display.say(f"there is more: :output {bash_id}")

    def _kill(self, bash_id: str) -> None:
        self._print(self._client.kill_shell(bash_id).message)

    def _explain(self, command: str) -> None:
        verdict = self._client.explain_command(command, session=self._session)
        reason = f": {verdict.reason}" if verdict.reason else ""
        self._print(f"{verdict.verdict}{reason}")

    def _switch(self, name: str) -> None:
        try:
            # As in a command, quotes are not part of the name.
            name = " ".join(shlex.split(name))
        except ValueError:
            self._display.say(f"a quote in the name of the session is not closed: {name}", "bad")
            return
        if not name:
            for each in self._client.list_sessions():
                self._print(printable(f"{each.session}  {each.cwd}"))
            return
        self._session = name
        known = {each.session: each.cwd for each in self._client.list_sessions()}
        # A new session starts in the directory in which the first session started.
        self._cwd = known.get(name, self._first_cwd)
