"""Prepares everything that must exist before a runner can start a command.

Owns the pipes and files of one command until it has started. If the runner is lost before the
start, another runner gets the same pipes and files. This module does not follow the command after
its start.
"""

from __future__ import annotations

import errno
import os
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from shelld.eventloop.pipe_locks import close_pipe
from shelld.keeper.channel import RUN, Channel, anonymous_file
from shelld.keeper.start import Restrictions
from shelld.sandbox.sandboxes import SandboxKey
from shelld.sessions.arguments import MAX_ARGUMENT_BYTES
from shelld.sessions.calls import functions_again, lines_of_call, state_of_call, withhold
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.prelude import (
    dump_at_exit,
    may_define_misprinted,
    may_trap,
    needs_prelude,
    prelude,
    short_dump_at_exit,
    startable,
)
from shelld.sessions.recorder import Recorder
from shelld.sessions.session import Session, ShortDumpBasis
from shelld.sessions.side_effects import NOTHING, changes_of
from shelld.sessions.state import ShellState
from shelld.sessions.text import to_bytes
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.pty import Size, open_pty
from shelld.terminals.source import mount_of
from shelld.terminals.typed import NOTHING_TYPED, TypedLine
from shelld_protocol.structs import DEFAULT_SESSION

# If a command is too long for an argument, bash reads the command from a descriptor. Bash closes
# the descriptor before the command runs.
_READ_COMMAND: Final = rb'\builtin eval "\exec 3<&-;%s$(</dev/fd/3)"'
# This form is for a session in which `exec` is a function. Bash keeps a copy of the descriptor
# while the command runs.
_READ_COMMAND_WITHOUT_EXEC: Final = rb'\builtin eval "%s$(</dev/fd/3)" 3<&-'
# Tracing starts after the command has been read. Otherwise the trace would show the whole command.
_TRACE: Final = b"-o xtrace"
_NO_TRACE: Final = b"+o xtrace"
_START_TRACE: Final = rb"\builtin set -x;"


class TimeoutPolicy(Struct, frozen=True):
    """Says what happens when the command has run, or has been silent, for `timeout_ms`.

    With `action` "kill", the command gets SIGTERM, and SIGKILL `grace_ms` later. With "background",
    the command moves to the background.
    """

    timeout_ms: int
    action: Literal["kill", "background"]
    grace_ms: int


class StartRequest(Struct, frozen=True):
    """One command to start.

    `session` is None for a command without a session. `timeout` is None for no limit on the run
    time, and `idle_timeout` is None for no limit on silence. `verdict` is the guard's verdict, and
    `warning` says why the guard would have blocked the command. With `in_foreground`, the session
    keeps the command's state. `terminal` is the size of the command's terminal, or None for no
    terminal. With `open_stdin`, more input may follow `stdin`; a terminal implies `open_stdin`.
    `typed` describes the unfinished line at the end of `stdin`. With `merge`, both output streams
    share one pipe. If `sandbox` is None, the command runs in the sandbox of its session, if the
    session has a sandbox. Otherwise `sandbox` tightens `session_sandbox`, and the command starts
    only if `session_sandbox` is still the session's sandbox. If `judged_state` is given, the
    command starts only if `judged_state` is still the session's state.
    """

    command: str
    description: str | None = None
    session: str | None = DEFAULT_SESSION
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    stdin: str | None = None
    typed: TypedLine = NOTHING_TYPED
    in_foreground: bool = False
    terminal: Size | None = None
    open_stdin: bool = False
    timeout: TimeoutPolicy | None = None
    idle_timeout: TimeoutPolicy | None = None
    verdict: str = "unresolved"
    warning: str | None = None
    merge: bool = False
    sandbox: SandboxKey | None = None
    session_sandbox: SandboxKey | None = None
    judged_state: ShellState | None = None


class StateChangedError(Exception):
    """The guard has judged a command in a state that the session no longer has, or the command
    tightens a sandbox that the session no longer has.
    """


class Launch:
    """A bash that is about to start. `stdout` and `stderr` are the read ends of its pipes.

    With a terminal, `stdout` is the descriptor of the terminal and `stderr` is None. `stderr` is
    also None if there is one pipe for both streams. `restrictions` are the limits with which bash
    must start. `files` are the files to which commands write their states, if bash starts in a
    sandbox.

    A read from `stdout` or `stderr` never blocks. The supervisor owns these descriptors after
    `hand_over`. The constructor raises OSError if a resource is short.
    """

    # Whether bash is a spare shell that still waits for a command.
    is_waiting = False

    def __init__(
        self,
        session: Session,
        bash: str,
        restrictions: Restrictions | None,
        files: DumpFiles | None,
    ) -> None:
        # The descriptors of the daemon and of the command. `close` closes `_ours`, unless the
        # command was handed over. `close` always closes `_theirs`, because the runner gets copies
        # of them.
        self._ours: list[int] = []
        self.is_handed_over = False
        self._theirs: list[int] = []
        self.stdout = -1
        self.stderr: int | None = None
        # The input of the command, if the command can get more input once it runs; otherwise None.
        self.input: PipeInput | TerminalInput | None = None
        # The supervisor owns the recorder after `hand_over`.
        self.recorder: Recorder | None = None
        self._session = session
        self._files = files
        self._program = to_bytes(bash)
        self._argv: list[bytes] = []
        self._env: dict[bytes, bytes] = {}
        self._cwd = b""
        self._descriptors: list[int] = []
        self._restrictions = restrictions

    def hand_over(self, channel: Channel) -> None:
        """Give the command to a runner. If sending fails, this closes the channel."""
        handles = [] if self._files is None else self._open_cgroups()
        descriptors = (*self._descriptors, *handles)
        count, has_terminal = len(descriptors), isinstance(self.input, TerminalInput)
        what = (self._program, self._argv, self._env, self._cwd, count, has_terminal)
        restrictions = self._restrictions and (*self._restrictions[:2], len(handles))
        try:
            channel.send((RUN, *what, restrictions), descriptors)
        except BaseException:
            # A part of the message may have arrived, so the runner must end.
            channel.close()
            raise
        finally:
            for handle in handles:
                os.close(handle)
        self._ours.clear()
        self.is_handed_over = True

    def _open_cgroups(self) -> list[int]:
        """Return handles with which bash can enter its cgroups from a sandbox.

        Returns an empty list if a cgroup cannot be opened.
        """
        handles: list[int] = []
        if self._restrictions is not None:
            try:
                for directory in self._restrictions.cgroups:
                    path = directory + b"/cgroup.procs"
                    handles.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            except OSError:
                while handles:
                    os.close(handles.pop())
        return handles

    def bash_runs(self, pid: int) -> None:
        """Record that the runner has started bash. Raises OSError if this bash cannot be used."""

    def close(self) -> None:
        """Close the descriptors that are no longer needed once bash runs, or has failed to start.

        They include our copies of the pipes' write ends. As long as these copies are open, no pipe
        reaches end of file and wakes the daemon. So closing them late saves a wake-up.
        """
        if self._ours and self.recorder is not None:
            # This launch still owns its recorder, because the command was not handed over.
            self.recorder.close()
        if self.input is not None and not self.is_handed_over:
            if self.input.descriptor in self._theirs:
                self._theirs.remove(self.input.descriptor)
            self.input.close("ended")
        for descriptors in (self._theirs, self._ours):
            while descriptors:
                close_pipe(descriptors.pop())

    def __del__(self) -> None:
        # Close the descriptors of a launch that was never supervised.
        if self._theirs or self._ours:
            self.close()

    def _open_streams(self, stdin: str | None, *, merge: bool = False) -> None:
        if stdin is None:
            files = self._files or self._session.dump_files
            self._give(files.open_nothing())
        else:
            self._add_file(to_bytes(stdin))
        self._open_outputs(merge=merge)

    def _open_outputs(self, *, merge: bool) -> None:
        self.stdout = self._add_output()
        if merge:
            self._descriptors.append(self._descriptors[-1])
        else:
            self.stderr = self._add_output()

    def _open_terminal(self, size: Size) -> None:
        self.stdout, slave = open_pty(size)
        self._ours.append(self.stdout)
        self._theirs.append(slave)
        self._descriptors += [slave] * 3
        about, mount = os.fstat(slave), mount_of("/proc/self", slave)
        self.input = TerminalInput(self.stdout, size, about.st_rdev, mount, about.st_dev)

    def _open_input(self, *, merge: bool) -> None:
        self._theirs += os.pipe()
        read, write = self._theirs[-2:]
        self._descriptors.append(read)
        os.set_blocking(write, False)
        self.input = PipeInput(write)
        self._theirs.remove(write)
        self._open_outputs(merge=merge)

    def _add_output(self) -> int:
        read, write = os.pipe()
        self._ours.append(read)
        self._theirs.append(write)
        self._descriptors.append(write)
        os.set_blocking(read, False)
        return read

    def _add_file(self, content: bytes) -> None:
        self._give(anonymous_file(content))

    def _give(self, descriptor: int) -> None:
        """Pass a descriptor on to bash, where it gets the next free number."""
        self._theirs.append(descriptor)
        self._descriptors.append(descriptor)

    def _go_to(self, cwd: str | None) -> None:
        # A runner in a sandbox does not start in the daemon's directory.
        if cwd is not None or not self._session.inherits_cwd or self._files is not None:
            self._cwd = to_bytes(self._session.resolve(cwd))

    def _record(
        self,
        request: StartRequest,
        state: ShellState,
        changes: frozenset[bytes] | None,
        *,
        has_report: bool = False,
        has_startup_file: bool = False,
    ) -> bytes:
        """Return the lines that make bash report its state; b"" if the state is not kept.

        `state` is the state from which the command starts. `changes` has the variables that the
        command can change, see `changes_of`. `has_report`: whether bash also runs `lines_of_call`.
        """
        session = self._session
        if not request.in_foreground or session.name is None:
            return b""
        cwd = request.cwd and session.resolve(request.cwd)
        is_apart = request.sandbox not in (None, session.sandbox)
        recorder = Recorder(
            session,
            cwd,
            request.env,
            self._files,
            is_apart=is_apart,
            has_report=has_report,
            has_terminal=request.terminal is not None,
        )
        self.recorder = recorder
        if not recorder.is_open:
            return b""
        if changes is not None and not request.env:
            recorder.basis = ShortDumpBasis(state, changes)
            return short_dump_at_exit(
                recorder.path, recorder.own_directory, recorder.mark, names=changes
            )
        command = to_bytes(request.command)
        shares_trap = has_startup_file or may_trap(command, state)
        again = functions_again(request.env, session.state) if request.env else b""
        return dump_at_exit(
            recorder.path,
            recorder.own_directory,
            recorder.mark,
            shares_trap=shares_trap,
            # If a command may set traps, it may also run other text, and this text may define
            # functions.
            checks_functions=shares_trap or may_define_misprinted(command),
            lists_options=not state.option_names.is_known,
            before_dump=again,
        )


class CommandLaunch(Launch):
    """A bash that starts with its command."""

    def __init__(
        self,
        request: StartRequest,
        session: Session,
        bash: str,
        restrictions: Restrictions | None = None,
        files: DumpFiles | None = None,
    ) -> None:
        super().__init__(session, bash, restrictions, files)
        try:
            self._prepare(request)
        except BaseException:
            self.close()
            raise

    def _prepare(self, request: StartRequest) -> None:
        if request.terminal is not None:
            self._open_terminal(request.terminal)
        elif request.open_stdin:
            self._open_input(merge=request.merge)
        else:
            self._open_streams(request.stdin, merge=request.merge)
        if self.input is not None and request.stdin:
            self.input.typed = request.typed
            self.input.write(to_bytes(request.stdin))
        command = to_bytes(request.command)
        # Error messages of bash begin with $0. So $0 is always "bash", whatever the path of this
        # bash.
        self._argv = [b"bash", b"-c", command]
        base, changes = self._session.base, request.env
        state = state_of_call(self._session.state, changes)
        if len(command) > MAX_ARGUMENT_BYTES:
            has_exec = b"exec" in state.function_names
            read = _READ_COMMAND_WITHOUT_EXEC if has_exec else _READ_COMMAND
            self._argv[-1] = read % (_START_TRACE if _TRACE in state.options else b"")
            state = replace(state, options=state.options.replace(_TRACE, _NO_TRACE))
            self._add_file(command)
        self._env = self._session.environment(request.env)
        self._go_to(request.cwd)
        # If an earlier command has set BASH_ENV, that value is for the programs that commands
        # start. This bash must not read the startup file.
        is_for_bash = "BASH_ENV" in (request.env or {}) or b"BASH_ENV" in base.env
        startup_file = self._env.get(b"BASH_ENV", b"") if is_for_bash else b""
        recording = b""
        # In a sandbox, the path of the call may lead to another directory than outside of the
        # sandbox. So only bash can tell in which directory it has started.
        reports_directory = request.cwd is not None and self._session.sandbox is not None
        has_report = bool(changes or startup_file) or reports_directory
        # A startup file may define functions with the names of commands, so the command may change
        # anything.
        changed = None if startup_file else changes_of(request.command, state)
        if changed != NOTHING:
            recording = self._record(
                request,
                state,
                changed,
                has_report=has_report,
                has_startup_file=bool(startup_file),
            )
        if recording or self._session.state is not base or needs_prelude(self._env):
            if changes:
                withhold(self._env, changes)
            told_to = self.recorder if recording and has_report else None
            path = None if told_to is None else told_to.path
            # A startup file may end bash before bash has restored the session's state. Bash then
            # reports a wrong state as it ends. The daemon notices this, because the report of these
            # lines is missing.
            lines = lines_of_call(changes or {}, path, reports_directory=reports_directory)
            env, withheld = startable(self._env)
            descriptor = len(self._descriptors)
            env[b"BASH_ENV"] = b"/proc/self/fd/%d" % descriptor
            text = prelude(
                state,
                descriptor,
                withheld,
                startup_file,
                recording,
                before_options=lines,
                last_word=env.get(b"_", b"bash"),
            )
            try:
                self._add_file(text)
            except OSError as error:
                if error.errno != errno.EFBIG or self._session.state is not base:
                    raise
                # RLIMIT_FSIZE forbids writing the prelude. It would also keep bash from writing its
                # state.
                if self.recorder is not None:
                    self.recorder.close()
            else:
                self._env = env
