"""Terminals and input through the clients, against a real daemon."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from both_clients import Shell, Spawn
from shelld_client import CommandBlocked, InvalidParams, NotPossible, StdinClosed


async def screen_with(shell: Shell, bash_id: str, line: str) -> Any:
    """Return the first screen that shows a line."""
    with anyio.fail_after(60):
        while True:
            screen = await shell.read_screen(bash_id, wait=100)
            if line in screen.lines:
                return screen


async def test_command_in_the_foreground_has_a_terminal(spawn: Spawn) -> None:
    async with spawn() as shell:
        result = await shell.bash("stty size; test -t 2", tty=True, rows=5, cols=7)
        assert (result.stdout, result.exit_code) == ("5 7\r\n", 0)


async def test_client_answers_a_program_that_asks(spawn: Spawn) -> None:
    async with spawn() as shell:
        command = "read -rp 'Name? ' name; clear; echo Hello $name; cat"
        job = await shell.bash(command, tty=True, rows=5, cols=30, run_in_background=True)
        asked = await screen_with(shell, job.bash_id, "Name?")
        assert (asked.rows, asked.cols, asked.cursor.row, asked.cursor.col) == (5, 30, 0, 6)
        written = await shell.write_stdin(job.bash_id, "World", keys=["Enter"])
        assert (written.written, written.pending_bytes, written.is_running) == (6, 0, True)
        shown = await screen_with(shell, job.bash_id, "Hello World")
        assert shown.version > asked.version
        resized = await shell.resize_shell(job.bash_id, 4, 20)
        assert (resized.rows, resized.cols, resized.is_running) == (4, 20, True)
        small = await shell.read_screen(job.bash_id)
        assert (small.rows, small.cols) == (4, 20)
        ended = await shell.write_stdin(job.bash_id, eof=True, wait=60_000, until="exit")
        assert (ended.exit_code, ended.written) == (0, 1)
        last = await shell.read_screen(job.bash_id)
        assert (last.is_running, last.exit_code) == (False, 0)


async def test_open_input_accepts_bytes_and_its_end(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("cat", open_stdin=True, stdin="first ", run_in_background=True)
        await shell.write_stdin(job.bash_id, "then ", base64="bGFzdA==")
        ended = await shell.write_stdin(job.bash_id, eof=True, wait=60_000, until="exit")
        read = await shell.bash_output(job.bash_id, stdout_offset=0)
        assert (ended.exit_code, read.stdout) == (0, "first then last")
        with pytest.raises(StdinClosed):
            await shell.write_stdin(job.bash_id, "more")


async def test_refused_input_is_an_exception(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("exec bash --norc -i", tty=True, run_in_background=True)
        # While the command starts, other programs may be in the foreground.
        await shell.bash_output(job.bash_id, wait=60_000, until="prompt")
        with pytest.raises(InvalidParams):
            await shell.write_stdin(job.bash_id, keys=["Retrun"])
        with pytest.raises(CommandBlocked):
            await shell.write_stdin(job.bash_id, "rm --help -rf /\n")
        plain = await shell.bash("sleep 300", run_in_background=True)
        for call in (
            shell.resize_shell(plain.bash_id, 4, 20),
            shell.read_screen(plain.bash_id),
        ):
            with pytest.raises(NotPossible):
                await call


async def test_secret_needs_a_hidden_prompt(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("read -rsp 'Word: ' word; cat", tty=True, run_in_background=True)
        await screen_with(shell, job.bash_id, "Word:")
        written = await shell.write_stdin(job.bash_id, "swordfish\n", secret=True)
        assert written.written == 10
        job = await shell.bash("cat", tty=True, run_in_background=True)
        with pytest.raises(NotPossible):
            await shell.write_stdin(job.bash_id, "swordfish\n", secret=True)


async def test_bytes_go_in_and_come_out_unchanged(spawn: Spawn) -> None:
    data = bytes(range(256))
    async with spawn() as shell:
        result = await shell.bash("cat", stdin=data)
        assert (result.stdout_bytes, result.invalid_bytes) == (256, 128)
        for bytes_like in (bytearray(b"odd"), memoryview(b"o-d-d")[::2]):
            assert (await shell.bash("cat", stdin=bytes_like)).stdout == "odd"
            async with shell.start("cat", open_stdin=True) as job:
                await job.write(data=bytes_like, eof=True)
                assert (await job.wait()).stdout == "odd"
        read = await shell.bash_output(result.bash_id, stdout_offset=0, encoding="base64")
        assert (read.stdout_data, read.stderr_data) == (data, b"")
        text = await shell.bash_output(result.bash_id, stdout_offset=97, max_bytes=3)
        assert text.stdout_data == b"abc"


async def test_merged_streams_keep_their_order(spawn: Spawn) -> None:
    async with spawn() as shell:
        result = await shell.bash("echo one; echo two >&2; echo three", merge=True)
        assert (result.stdout, result.stderr) == ("one\ntwo\nthree\n", "")
