"""Policies: the rules that they add and remove, and how they are read from a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from guard_lines import HERE
from shelld.guard.judgement import judge
from shelld.guard.policy import BlockRule, Policy
from shelld.guard.policy_file import load
from shelld.guard.quick import is_plainly_harmless
from shelld.process.toml_file import TomlError


def test_policy_adds_and_removes_rules_and_allows_commands() -> None:
    policy = Policy(
        disable=frozenset({"mv-system"}),
        allow=["rm -rf /etc/*"],
        block=[BlockRule("no-push", "git", ["push", "--force*"], "no")],
    )
    assert judge("mv /etc /tmp", HERE, policy).verdict == "allow"
    assert judge(" rm -rf /etc/* ", HERE, policy).verdict == "allow"
    assert judge("rm -rf /usr", HERE, policy).verdict == "block"
    verdict = judge("sudo git push origin --force-with-lease", HERE, policy)
    assert (verdict.rule, verdict.reason) == ("no-push", "no")
    assert judge("git push", HERE, policy).verdict == "allow"
    assert not is_plainly_harmless("git push origin --force", policy)


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('disable = ["mkfs"]\nallow = ["a"]\n[[block]]\nname = "n"\nprogram = "p"\n')
    policy = load(file)
    assert policy == Policy(frozenset({"mkfs"}), ["a"], [BlockRule("n", "p")])


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_policy_must_be_in_a_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "rules")
    with pytest.raises(TomlError, match=re.escape(f"not a file: {tmp_path}")):
        load(tmp_path / "rules")


def test_line_that_a_refusal_names_allows_the_command(tmp_path: Path) -> None:
    command = 'mkfs.ext4 -L "my disk" disk.img'
    reason = judge(command.replace('"', ""), HERE).reason or ""
    file = tmp_path / "rules.toml"
    file.write_text(reason.partition("with the line ")[2].removesuffix(" allows it"))
    policy = load(file)
    assert judge("mkfs.ext4 -L my disk disk.img", HERE, policy).verdict == "allow"
    assert judge("mkfs.ext4 /dev/sda", HERE, policy).verdict == "block"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("disable = [", 1, "TOML"),
        ("\nallow = 3\n", 2, "array"),
        ("\n\nforbid = []\n", 3, "forbid"),
        ('allow = []\ndisable = ["nonsense"]\n', 2, "nonsense"),
        ('allow = []\n[[block]]\nprogram = "x"\n', 2, "name"),
        (f"allow = {'[' * 5_000}", 1, "nested"),
        (f"allow = {'9' * 5_000}", 1, "digits"),
    ],
)
def test_broken_policy_names_the_place(tmp_path: Path, text: str, line: int, word: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(TomlError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert word in str(caught.value)
