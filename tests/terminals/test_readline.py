"""How readline edits typed keys: examples, and a comparison with bash."""

from __future__ import annotations

import os
import subprocess
import termios
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shelld.terminals.pty import Pty, Size, open_pty
from shelld.terminals.readline import KEY, edited

# This script reads lines with readline, and shows each line as hexadecimal digits. The prompt
# appears once readline takes keys.
READER = r"""
while IFS= read -rep 'go?' line; do
    printf '<%s>' "$(printf %s "$line" | od -An -v -tx1 | tr -d ' \n')"
done
"""


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("idden\x01forb", "forbidden"),
        ("forbiddxen\x1b[D\x1b[D\x7f", "forbidden"),
        ("xforbidden\x1b[H\x1b[3~", "forbidden"),
        ("forbiddne\x14", "forbidden"),
        ("FORBIDDEN\x1bb\x1bl", "forbidden"),
        ("rm -rf x/\x1b[D\x7f", "rm -rf /"),
        ("/ x\x17\x01\x19rm ", "xrm / "),
        ("one two\x02\x0b", "one tw"),
        ("echo rm -rf /\x17\x17\x17\x01\x1b[3~\x1b[3~\x1b[3~\x1b[3~\x1b[3~\x19", "rm -rf /"),
        ("a\x1b[Ab", "ab"),
        # A key that erases a character also erases its marks.
        ("rm /e\u0301\x7f", "rm /"),
        ("rm /xe\u0301\x02\x02\x0b", "rm /"),
        ("e\u0301rm\x01\x1b[3~", "rm"),
        ("e\u0301rm\x01\x06\x0b", "e\u0301"),
        ("rm ae\u0301\x14", "rm e\u0301a"),
        ("e\u0301\x14", "e\u0301"),
        ("rm /re\u0301sume\u0301\x1b\x7f", "rm /"),
        # This vowel sign has a width.
        ("rm /\u0928\u093e\u092e\x1b\x7f", "rm /"),
        ("x\u00b2y\x1b\x7f", "x\u00b2"),
        # Quoted keys are text.
        ("ls\x16\x7f\x7f", "ls"),
        ("ls\x16\x16\x7f", "ls"),
        ("ls\x11\x7f\x7f", "ls"),
        ("ls" + "\x16\x7f" * 2_000 + "\x7f" * 2_000, "ls"),
    ],
)
def test_keys_edit_the_line(typed: str, line: str) -> None:
    assert edited(KEY.split(typed)) == line


def test_line_that_grows_without_limit_is_not_followed() -> None:
    assert edited(KEY.split("a\x15" + "\x19\x19\x15" * 40)) is None


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pty]:
    inputrc = tmp_path_factory.mktemp("readline") / "inputrc"
    # Real terminals describe this key to readline, but TERM is dumb here.
    inputrc.write_text(r'"\e[3~": delete-char')
    pty = open_pty(Size(24, 200))
    os.set_blocking(pty.master, True)
    # C-q reaches bash, as after `stty -ixon`.
    attributes = termios.tcgetattr(pty.slave)
    attributes[0] &= ~termios.IXON
    termios.tcsetattr(pty.slave, termios.TCSANOW, attributes)
    environment = {**os.environ, "INPUTRC": str(inputrc), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    command = ["setsid", "-c", "bash", "--norc", "-c", READER]
    with subprocess.Popen(
        command, stdin=pty.slave, stdout=pty.slave, stderr=pty.slave, env=environment
    ) as child:
        try:
            read_to(pty.master, b"go?")
            yield pty
        finally:
            child.kill()
            for descriptor in pty:
                os.close(descriptor)


def read_to(descriptor: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        data += os.read(descriptor, 10_000)
    return data


KEYS = [
    *("a", "B", "7", " ", "-", "ab", "cd ef"),
    *("\u00e9", "e\u0301", "\u0928\u093e", "\u2764\ufe0f", "\u00b2"),
    *("\x01", "\x02", "\x05", "\x06", "\x08", "\x0b", "\x14", "\x15", "\x17", "\x19", "\x7f"),
    *("\x1b[C", "\x1b[D", "\x1bOD", "\x1b[H", "\x1b[F", "\x1b[3~"),
    *("\x1bb", "\x1bf", "\x1bd", "\x1bc", "\x1bl", "\x1bu", "\x1b\x7f"),
    *("\x16\x7f", "\x16\x15", "\x16\x16", "\x16\x1b", "\x16a", "\x11\x7f", "\x11a"),
]


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(KEYS), max_size=12).map("".join))
def test_readline_model_edits_any_keys_as_bash_does(bash: Pty, typed: str) -> None:
    # Bash pastes the text that was cut last, even if it was cut in an earlier line. So begin each
    # line by cutting the same text.
    typed = "k\x15" + typed
    os.write(bash.master, typed.encode() + b"\n")
    shown = read_to(bash.master, b">go?").rpartition(b"<")[2]
    pieces = KEY.split(typed)
    # Bash may take the keys one by one, or all together.
    expected = {edited(pieces), edited(pieces, is_typed_ahead=True)}
    assert bytes.fromhex(shown[:-4].decode()).decode() in expected
