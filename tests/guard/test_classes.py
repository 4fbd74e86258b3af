"""Whole classes of commands: each has dangerous lines, and harmless lines that look like them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import guard_builtin_classes
import guard_classes
import guard_detour_classes
import guard_further_classes
import guard_indirect_classes
import guard_more_classes
import guard_program_classes
import guard_shell_classes
import guard_tool_classes
from guard_lines import HERE
from shelld.guard.judgement import judge
from shelld.guard.quick import is_plainly_harmless


def is_blocked(line: str) -> bool:
    """Judge a line as the daemon does, with the quick check first."""
    return not is_plainly_harmless(line) and judge(line, HERE).verdict == "block"


def by_class(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = {}
    for name, line in lines:
        classes.setdefault(name, []).append(line)
    return classes


CORPORA = (
    guard_classes,
    guard_more_classes,
    guard_further_classes,
    guard_shell_classes,
    guard_builtin_classes,
    guard_program_classes,
    guard_detour_classes,
    guard_indirect_classes,
    guard_tool_classes,
)
DANGEROUS = by_class(each for corpus in CORPORA for each in corpus.DANGEROUS)
HARMLESS = by_class(each for corpus in CORPORA for each in corpus.HARMLESS)


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous_lines_of_a_class_are_blocked(name: str) -> None:
    assert [line for line in DANGEROUS[name] if not is_blocked(line)] == []


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_lines_of_a_class_are_not_blocked(name: str) -> None:
    assert [line for line in HARMLESS[name] if is_blocked(line)] == []


@pytest.mark.parametrize(
    "prefix", ["builtin", r"\builtin --", "command", "command -p", "builtin command"]
)
@pytest.mark.parametrize(
    "line",
    [
        "cd /; rm -rf etc",
        "declare x=/; rm -rf $x",
        "printf -v x /; rm -rf $x",
        "eval 'x=/'; rm -rf $x",
        "alias -- x='rm -rf /'\nx",
        "cd() { :; }\n{prefix} cd /; rm -rf etc",
    ],
)
def test_builtin_run_by_name_changes_the_shell(prefix: str, line: str) -> None:
    line = line.replace("{prefix}", prefix) if "{prefix}" in line else f"{prefix} {line}"
    assert is_blocked(f"shopt -s expand_aliases\n{line}")


@pytest.mark.parametrize("line", ["command -v cd /; rm -rf etc", "builtin echo cd /; rm -rf etc"])
def test_mentioned_builtin_changes_nothing(line: str) -> None:
    assert not is_blocked(line)


@pytest.mark.parametrize("first", ["ls", "x=1", "cd /tmp", "ls | cat", "x=$(ls)", "! true", "ls\n"])
@pytest.mark.parametrize("second", [r"\rm -rf /", r"\cd /; rm -rf etc", r"\eval 'rm -rf /'"])
def test_line_beginning_with_backslash_is_a_command(first: str, second: str) -> None:
    assert is_blocked(f"{first}\n{second}")


def test_continued_line_is_one_command() -> None:
    assert is_blocked("rm \\\n\\\n -rf \\\n/")
    assert not is_blocked("echo \\\nrm -rf /")
    assert not is_blocked("echo 'a\n\\rm -rf /'")


@pytest.mark.parametrize(
    "line",
    [
        "mkdir b && cat > b/y.sh <<'EOF' && bash b/y.sh\nrm -rf /\nEOF",
        "D=/ && bash <<EOF\nrm -rf $D\nEOF",
        "ls && cat <<EOF | sh\nrm -rf /\nEOF",
        "ls || cat <<EOF > x && bash x\nrm -rf /\nEOF",
        "false && cat <<EOF || rm -rf /\nls\nEOF",
        "ls | cat <<EOF && D=/dev/sda\nls\nEOF\necho x > $D",
        "ls | bash <<EOF\nrm -rf /\nEOF",
    ],
)
def test_here_document_belongs_to_last_member_of_list(line: str) -> None:
    assert is_blocked(line)


@pytest.mark.parametrize(
    "line",
    [
        "false && bash <<EOF\nrm -rf /\nEOF",
        "bash | cat <<EOF\nrm -rf /\nEOF",
        "false && cat <<EOF | sh\nrm -rf /\nEOF",
    ],
)
def test_here_document_is_not_read_by_first_member_of_list(line: str) -> None:
    assert not is_blocked(line)


@pytest.mark.parametrize(
    "line",
    [
        "ls /dev/sd* | xargs wipefs -a",
        "for d in $(ls /dev/sd*); do wipefs -a $d; done",
        "lsblk -no path | while read d; do dd if=/dev/zero of=$d; done",
        "dd if=x of=/dev/$(lsblk -no name | head -1)",
        "dd if=x of=/$(cat f)/sda",
        'cd "$(cat f)" && dd if=x of=sda',
        "sgdisk -Z $(cat f)",
        "cryptsetup luksFormat $(cat f)",
    ],
)
def test_unknown_disk_is_unresolved(line: str) -> None:
    assert judge(line, HERE).verdict == "unresolved"


@pytest.mark.parametrize(
    "line",
    ["dd if=/dev/zero of=$(mktemp) count=1", 'cd "$(mktemp -d)" && dd of=test.img', "dd of=x"],
)
def test_known_file_is_no_disk(line: str) -> None:
    assert judge(line, HERE).verdict == "allow"


def test_command_on_a_known_disk_is_blocked_despite_an_unknown_argument() -> None:
    assert is_blocked("wipefs -a $(cat f) /dev/sda")


@pytest.mark.parametrize(
    "line",
    [
        "for x in {1..70} /; do rm -rf $x; done",
        "echo {1..40} / | xargs rm -rf",
        "parallel rm -rf ::: {1..40} /",
    ],
)
def test_list_that_is_too_long_is_unresolved(line: str) -> None:
    assert judge(line, HERE).verdict == "unresolved"
