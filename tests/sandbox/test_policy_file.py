"""A policy in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shelld.process.toml_file import TomlError
from shelld.sandbox.policy_file import load
from shelld_protocol.sandboxes import SandboxPolicy


def test_a_file_has_the_members_of_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('mode = "read-only"\ndeny_read = ["~/.ssh"]\n')
    assert load(path) == SandboxPolicy(mode="read-only", deny_read=["~/.ssh"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('mode = "read-only"\nnetwork = 1\n', 2),
        ("\n\nmode = = 1\n", 3),
        ('tmp = "private"\nunknown = 1\n', 2),
        ('mode = "open"\n', 1),
        (f"write = {'[' * 5_000}{']' * 5_000}\n", 1),
        (f"write = {'9' * 5_000}\n", 1),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(TomlError, match=rf"policy\.toml:{line}: "):
        load(path)


def test_directory_in_place_of_a_policy_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match="no such policy or file"):
        load(tmp_path)
