"""Reads the state that one command leaves, and passes this state to the session."""

from __future__ import annotations

import os

import anyio

from shelld.process import faults
from shelld.sessions.calls import split_report
from shelld.sessions.dumps import CAN_RECORD, DumpFiles
from shelld.sessions.session import MAX_DUMP_BYTES, LeftState, Session, ShortDumpBasis
from shelld_protocol.structs import Unkept


class Recorder:
    """Owns the file to which the bash of one command writes its state.

    The command has no descriptor for that file. When bash ends, it opens the file by `path`, as any
    process of the same user could, and writes its state and then `mark`. On a system without paths
    to descriptors, no state is kept. `files`: the files of the command's sandbox, if it has one.
    `is_apart`: the command has a tighter sandbox than its session. The state of such a command is
    not kept either. Otherwise the session's later commands would run the functions of this command
    outside the tighter sandbox. `has_report`: before the command starts, bash runs `lines_of_call`.
    If these lines have written their report, bash has restored the session's state.
    """

    def __init__(
        self,
        session: Session,
        cwd: str | None,
        changes: dict[str, str | None] | None,
        files: DumpFiles | None = None,
        *,
        is_apart: bool = False,
        has_report: bool = False,
        has_terminal: bool = False,
    ) -> None:
        self._session = session
        self._has_terminal = has_terminal
        self._has_report = has_report
        self._is_apart = is_apart
        if cwd is None and "PWD" in (changes or ()):
            # Bash takes the path of its directory from PWD. Without the session's PWD, bash may
            # know the directory by another path.
            cwd = session.cwd
        self._started_in = () if cwd is None else session.paths_of(cwd)
        self._changes = changes
        # This is set if bash writes a short dump.
        self.basis: ShortDumpBasis | None = None
        self._files = session.dump_files if files is None else files
        self.mark = self._files.next_mark()
        # Take the file last, because a later failure would leave the file without an owner.
        self._descriptor = self._files.take() if CAN_RECORD and not is_apart else None
        self._unsettled: LeftState | None = None
        self._lock: anyio.Lock | None = None
        # The reason why the state was not kept; None if there is no reason.
        self.reason: Unkept | None = None

    @property
    def path(self) -> str:
        """The path to which the command's bash writes its state."""
        assert self._descriptor is not None
        return self._files.path(self._descriptor)

    @property
    def own_directory(self) -> str:
        """A path to the daemon's own directory."""
        return self._files.own_directory

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def keep(self, *, has_exited: bool) -> None:
        """Keep the state of a command that was not killed.

        `has_exited`: bash has exited by itself, and no signal has ended it.
        """
        kept: LeftState | Unkept | None = Unkept.SIGNAL
        if has_exited:
            kept = self._keep()
        if isinstance(kept, LeftState):
            self._unsettled = kept
            self._session.unsettled.append(self.settle)
        else:
            self.reason = kept

    def _keep(self) -> LeftState | Unkept | None:
        descriptor = self._descriptor
        if descriptor is None:
            return Unkept.SANDBOX if self._is_apart else Unkept.UNAVAILABLE
        size = os.fstat(descriptor).st_size
        if size > MAX_DUMP_BYTES:
            return Unkept.TOO_LARGE
        dump = os.pread(descriptor, size, 0)
        report = None
        if self._has_report:
            # The startup file may have kept bash from writing the report. Then `split_report` takes
            # the beginning of the dump for the report, and the rest of the dump is incomplete.
            report, dump = split_report(dump)
        if not dump.endswith(self.mark):
            # Bash has written no dump or only a part of it, or another command wrote to the file.
            return Unkept.INCOMPLETE if dump else Unkept.MISSING
        dump = dump.removesuffix(self.mark)
        return self._session.keep(
            LeftState(
                dump,
                self._started_in,
                self._changes,
                report,
                self.basis,
                has_terminal=self._has_terminal,
            )
        )

    def give_up(self) -> None:
        """Record that the state could not be kept."""
        self.reason = Unkept.UNREADABLE

    async def settle(self) -> None:
        """Wait until the session has the command's state.

        Call this before the client gets the answer.
        """
        if self._unsettled is not None:
            self._lock = self._lock or anyio.Lock()
            async with self._lock:
                await self._settle()

    async def _settle(self) -> None:
        left = self._unsettled
        if left is not None:
            with anyio.CancelScope(shield=True):
                try:
                    self.reason = await self._session.settle(left)
                except Exception:
                    faults.report("the state of a session")
                    self.give_up()
                self._unsettled = None
                self._session.unsettled.remove(self.settle)

    def close(self) -> None:
        """Give the file back. From now on, no state is recorded."""
        if self._descriptor is not None:
            self._files.give_back(self._descriptor)
            self._descriptor = None
