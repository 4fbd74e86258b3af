"""The state that a real bash leaves."""

from __future__ import annotations

import os
import subprocess

from shelld.sessions.dump import dump_program, short_dump_program
from shelld.sessions.dump_parser import parse_dump
from shelld.sessions.prelude import prelude
from shelld.sessions.state import ShellState

BASE = ShellState(b"/", {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C.UTF-8"})


def dump_of(
    command: str,
    state: ShellState = BASE,
    *,
    told: bytes = b"",
    lists_options: bool = True,
    only: frozenset[bytes] | None = None,
) -> bytes:
    """Return the dump of a bash that restores `state`, runs the code `told`, and runs `command`.

    With `only`, the dump is short and contains only these variables.
    """
    program = dump_program(b"/nowhere", lists_options=lists_options)
    if only is not None:
        program = short_dump_program(only, b"/nowhere")
    descriptor = os.memfd_create("prelude")
    try:
        os.write(descriptor, prelude(state, descriptor, {}, before_options=told))
        env = {name: value for name, value in state.env.items() if name not in state.later}
        result = subprocess.run(
            [
                b"bash",
                b"-c",
                command.encode() + b"\n{ " + program + b"; } 2>/dev/null",
            ],
            env={**env, **state.functions, b"BASH_ENV": b"/proc/self/fd/%d" % descriptor},
            cwd=state.cwd,
            pass_fds=[descriptor],
            capture_output=True,
            check=False,
        )
    finally:
        os.close(descriptor)
    assert result.stderr == b""
    return result.stdout


def after(command: str, state: ShellState = BASE) -> ShellState:
    parsed = parse_dump(dump_of(command, state))
    assert parsed is not None
    return parsed
