"""A runtime for SWE-ReX that runs commands with shelld. Programs for SWE-ReX can use it in place of
`LocalRuntime`.

The daemon may be on another machine or in a container. So this runtime reads and writes files with
commands, too.
"""

from __future__ import annotations

import asyncio
import io
import logging
import shlex
import tarfile
from pathlib import PurePath

from swerex.exceptions import (
    CommandTimeoutError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    CloseBashSessionResponse,
    CloseResponse,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)

from shelld_client import AsyncClient, BashResult, CommandTimedOut, ShellError

MAX_FILE_BYTES = 16 * 1024 * 1024


class ShelldRuntime(AbstractRuntime):
    def __init__(self, shell: AsyncClient) -> None:
        self.logger = logging.getLogger("shelld_runtime")
        self._shell = shell
        self._sessions = set[str]()

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            await asyncio.wait_for(self._shell.ping(), timeout)
        except (ShellError, TimeoutError) as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        self._sessions.add(request.session)
        files = [f"source {shlex.quote(path)}" for path in request.startup_source]
        command = "; ".join(files) or ":"
        started = await self._run(command, request.startup_timeout, session=request.session)
        return CreateBashSessionResponse(output=started.stdout)

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        self._require(action.session)
        if isinstance(action, BashInterruptAction):
            for shell in await self._shell.list_shells(session=action.session):
                if shell.is_running:
                    await self._shell.kill_shell(shell.bash_id, signal="INT")
            return BashObservation(exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise ValueError("a program that asks needs AsyncClient.start(..., tty=True)")
        # The daemon takes no empty command.
        command = action.command or ":"
        result = await self._run(command, action.timeout, session=action.session)
        if action.check == "ignore":
            return BashObservation(output=result.stdout)
        observation = BashObservation(output=result.stdout, exit_code=_exit_code(result))
        if action.check == "raise":
            _check(result, action.command, action.error_msg)
        return observation

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        self._require(request.session)
        self._sessions.discard(request.session)
        await self._shell.close_session(request.session)
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        given = command.command
        if command.shell:
            # As with `subprocess.run`, the first word is the script, and further words are
            # arguments of sh.
            argv = ["/bin/sh", "-c", *([given] if isinstance(given, str) else given)]
        else:
            argv = [given] if isinstance(given, str) else given
        if command.env is not None:
            argv = ["env", "-i", *(f"{name}={value}" for name, value in command.env.items()), *argv]
        result = await self._run(
            _joined(argv), command.timeout, cwd=command.cwd, merge=command.merge_output_streams
        )
        if command.check:
            _check(result, str(given), command.error_msg)
        return CommandResponse(
            stdout=result.stdout, stderr=result.stderr, exit_code=_exit_code(result)
        )

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        async with self._shell.start(f"cat < {shlex.quote(request.path)}", session=None) as job:
            result = await job.wait()
            if result.exit_code:
                raise FileNotFoundError(result.stderr.strip())
            read = await job.output(encoding="base64", max_bytes=MAX_FILE_BYTES)
        if read.more or read.dropped_bytes:
            raise ValueError(f"{request.path} has more than {MAX_FILE_BYTES} bytes")
        data = read.stdout_data
        content = data.decode(request.encoding or "utf-8", request.errors or "strict")
        return ReadFileResponse(content=content)

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        folder, path = shlex.quote(str(PurePath(request.path).parent)), shlex.quote(request.path)
        await self._put(f"mkdir -p -- {folder} && cat > {path}", request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        packed = io.BytesIO()
        target = PurePath(request.target_path)
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(request.source_path, arcname=target.name)
        folder = shlex.quote(str(target.parent))
        await self._put(f"mkdir -p -- {folder} && tar -xf - -C {folder}", packed.getvalue())
        return UploadResponse()

    async def close(self) -> CloseResponse:
        for session in list(self._sessions):
            await self.close_session(CloseBashSessionRequest(session=session))
        return CloseResponse()

    def _require(self, session: str) -> None:
        if session not in self._sessions:
            raise SessionDoesNotExistError(f"session {session!r} does not exist")

    async def _put(self, command: str, data: bytes) -> None:
        result = await self._shell.bash(command, session=None, stdin=data)
        if result.exit_code:
            raise OSError(result.stderr.strip())

    async def _run(
        self,
        command: str,
        timeout: float | None,
        *,
        session: str | None = None,
        cwd: str | None = None,
        merge: bool = True,
    ) -> BashResult:
        # The daemon's limits are 1 s and 600 s. None means no limit, so take the longest.
        seconds = 600 if timeout is None else min(max(timeout, 1), 600)
        try:
            return await self._shell.bash(
                command, session=session, cwd=cwd, timeout=int(seconds * 1000), merge=merge
            )
        except CommandTimedOut as error:
            raise CommandTimeoutError(
                f"timeout after {seconds:g} seconds while running command {command!r}"
            ) from error


def _joined(argv: list[str]) -> str:
    """Return a command line for bash. Its first word is a program. It is never an assignment, and
    never a keyword such as `time`.
    """
    program = argv[0].replace("'", "'\"'\"'")
    return f"'{program}' {shlex.join(argv[1:])}"


def _exit_code(result: BashResult) -> int:
    # If a signal ended the command, there is no exit code, and SWE-ReX has no field for a signal.
    return -1 if result.exit_code is None else result.exit_code


def _check(result: BashResult, command: str, message: str) -> None:
    if result.exit_code != 0:
        text = f"Command {command!r} failed with exit code {_exit_code(result)}: {result.stdout!r}"
        raise NonZeroExitCodeError(f"{message}: {text}" if message else text)
