"""The tables of programs, and the parsing of arguments by these tables."""

from __future__ import annotations

import tomllib

import pytest

from guard_lines import HERE
from shelld.guard import vocabulary
from shelld.guard.disks import targets_of
from shelld.guard.globs import matches, matches_most_letters
from shelld.guard.judgement import judge
from shelld.guard.launchers import HANDLERS
from shelld.guard.markers import ANY, ONE, SET
from shelld.guard.options import all_options, leading_options
from shelld.guard.policy import Policy
from shelld.guard.rules import is_judged
from shelld.guard.specification import specification
from shelld.guard.units import joined_lines
from shelld.guard.wrappers import Inner, unwrapped

# The kinds of options that a line of a table can name.
KINDS = {
    "cd",
    "script",
    "first",
    "argv",
    "idle",
    "sub",
    "to",
    "if",
    "order",
    "says",
    "file",
    "env",
} | {"into", "default", "shell", "tells", "options"}
MARKS = {"assigns", "joins", "leads", "away", "all", "last", "rest", "appends", "bash", "shell"}


@pytest.mark.parametrize(
    "table", ["WRAPPERS", "EVERYDAY_WRAPPERS", "WRITERS", "SPEAKERS", "OPTIONS", "MKFS"]
)
def test_table_lines_are_parsed(table: str) -> None:
    programs: dict[str, str] = getattr(vocabulary, table)
    for program, lines in programs.items():
        for line in lines.split(";"):
            spec = specification(line)
            assert spec.options.keys() <= KINDS | {"key"}, program
            assert spec.marks <= MARKS, program
            # A line must begin with the letters of options, not with a word such as `cd:D`.
            assert ":" not in line.split(maxsplit=1)[0], program


def test_every_starter_has_its_handler() -> None:
    assert set(vocabulary.STARTERS.values()) == set(HANDLERS)
    assert all(map(is_judged, [*vocabulary.JUDGED, *vocabulary.WRITERS, "mkfs.xfs"]))
    assert vocabulary.SPEAKERS.keys() >= vocabulary.LISTENERS


@pytest.mark.parametrize(
    ("command", "inner"),
    [
        ("sudo -nE ls", Inner(["ls"])),
        ("sudo -Eu me A=1 ls -l", Inner(["ls", "-l"], {"A": "1"})),
        ("sudo -ll rm", None),
        ("sudo", None),
        ("sudo -k", None),
        ("sudo -iu me", Inner(["bash"])),
        ("sudo -s ls", Inner(["ls"])),
        ("su", Inner(["bash"])),
        ("su - me", Inner(["bash"])),
        ("su me x.sh a", Inner(["bash", "x.sh", "a"])),
        ("runuser -u me", None),
        ("runuser - me", Inner(["bash"])),
        ("script -q log", Inner(["bash"])),
        ("ssh -p 22 host -tt", Inner(["bash"], away=True)),
        ("ssh -fNL 1:h:1 host", None),
        ("sg me ls -l", Inner([], script="ls -l")),
        ("env -iC /x ls", Inner(["ls"], cwd="/x")),
        ("env - A=1 ls", Inner(["ls"], {"A": "1"})),
        ("env -S ls -l", Inner([], script="ls -l")),
        ("timeout -k5 10 ls", Inner(["ls"])),
        ("timeout -- 10 ls", Inner(["ls"])),
        ("nice -5 ls", Inner(["ls"])),
        ("su - root -c ls", Inner([], script="ls")),
        ("runuser -u me -- ls", Inner(["ls"])),
        ("git bisect run make test", Inner(["make", "test"])),
        ("git bisect start", None),
        ("git log run", None),
        ("docker -H x exec -w /y -e A=1 web ls", Inner(["ls"], cwd="/y", away=True)),
        ("docker container exec web ls", Inner(["ls"], away=True)),
        ("docker ps", None),
        ("kubectl exec pod -c web -- ls", Inner(["ls"], away=True)),
        ("nix develop -c ls -l", Inner(["ls", "-l"])),
        ("start-stop-daemon -S -x /bin/ls -- -l", Inner(["/bin/ls", "-l"])),
        ("ld.so --list ls", None),
        ("ld.so --library-path /x ls", Inner(["ls"])),
        ("ls -l", None),
    ],
)
def test_wrapper_before_a_command_is_removed(command: str, inner: Inner | None) -> None:
    program, *arguments = command.split()
    assert unwrapped(program, arguments) == inner


@pytest.mark.parametrize(
    ("command", "targets"),
    [
        ("dd if=a of=b", ["b"]),
        ("tee -a b c", ["b", "c"]),
        ("cp a/b c", ["c", "c/b"]),
        ("cp -t c a/b", ["c/b"]),
        ("cp a", []),
        ("curl -sSLo b x", ["b"]),
        ("curl -sSLob x", ["b"]),
        ("openssl rand -out b 1", ["b"]),
        ("tar cf b c", ["b"]),
        ("tar -xf b", []),
        ("tar -c --file=b c", ["b"]),
        ("wipefs -an b", []),
        ("wipefs -a b", ["b"]),
        ("wipefs b", []),
        ("parted -s b mklabel gpt", ["b", "mklabel", "gpt"]),
        ("parted -s b print", []),
        ("nvme format b", ["b"]),
        ("ls b", []),
        ("partclone.ext4 -r -s a -o b", ["b"]),
    ],
)
def test_files_that_a_program_writes_are_found(command: str, targets: list[str]) -> None:
    program, *arguments = command.split()
    assert targets_of(program, arguments) == targets


@pytest.mark.parametrize(
    ("command", "stdin", "writes"),
    [
        ("fdisk b", "", False),
        ("fdisk b", "p\nq\n", False),
        ("fdisk b", "o\n w \n", True),
        ("fdisk -l b", "w", False),
        ("sfdisk b", "", False),
        ("sfdisk b", ",,L", True),
        ("sfdisk -n b", ",,L", False),
        ("parted b", "mklabel gpt", True),
    ],
)
def test_stdin_decides_whether_disk_is_written(command: str, stdin: str, writes: bool) -> None:
    program, *arguments = command.split()
    assert bool(targets_of(program, arguments, stdin)) is writes


def test_options_are_taken_apart() -> None:
    options, rest = leading_options(["-0rn1", "-I{}", "-ix", "a", "-b"], "nI", (), "i")
    assert options == [("0", None), ("r", None), ("n", "1"), ("I", "{}"), ("i", "x")]
    assert rest == ["a", "-b"]
    options, operands = all_options(["a", "-ex", "b", "--c=d", "-e", "f", "--", "-g"], "", ("ex",))
    assert options == [("ex", "b"), ("c", "d"), ("e", None)]
    assert operands == ["a", "f", "-g"]
    assert leading_options(["-n"], "n") == ([("n", "")], [])


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (f"/e{ANY}", "/etc", True),
        (f"/e{ANY}", "/etc/a", False),
        (f"/{ANY}/{ANY}", "/usr/bin", True),
        (f"/et{ONE}", "/etc", True),
        (f"/e{ONE}", "/etc", False),
        (f"/e{SET}st]c", "/etc", True),
        (f"/e{SET}!t]c", "/etc", False),
        (f"/e{SET}^t]c", "/etc", False),
        (f"/e{SET}[:alpha:]]c", "/etc", True),
        ("/e*", "/etc", False),
        ("/e*", "/e*", True),
        (f"/e[t]{ANY}", "/etc", False),
        (f"/{SET}z-a]", "/etc", False),
        ("/" + ANY * 1000 + "x", "/etc", False),
    ],
)
def test_patterns_match_paths_as_in_bash(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


def test_pattern_matching_most_letters_is_recognised() -> None:
    assert matches_most_letters(f"{SET}a-z]{ANY}")
    assert matches_most_letters(f"{SET}!.]{ANY}")
    assert not matches_most_letters(f"{SET}0-9]{ANY}")
    assert not matches_most_letters(f"{SET}a-h]{ANY}")


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("a b", "a b"),
        ("r\\\nm", "rm"),
        ('"r\\\nm"', '"rm"'),
        ("'r\\\nm'", "'r\\\nm'"),
        ("r\\\\\nm", "r\\\\\nm"),
        ("# a \\\nb\\\nc", "# a \\\nbc"),
        ("a#b\\\nc", "a#bc"),
        ('"it\'s" \\\na', '"it\'s" a'),
        ("'a", "'a"),
        ("\\\n", ""),
    ],
)
def test_continued_lines_are_joined_as_in_bash(text: str, joined: str) -> None:
    assert joined_lines(text) == joined


@pytest.mark.parametrize(
    "command",
    [
        "mkfs.ext4 -L root disk.img",
        "mke2fs disk.img",
        "sudo /sbin/mkfs.ext4  disk.img",
        "truncate -s 1G disk.img && mkfs.ext4 disk.img",
        r"""mkfs.ext4 "my disk.img"; echo 'a\b' [*?]""",
    ],
)
def test_mkfs_refusal_on_file_quotes_the_allowing_line(command: str) -> None:
    reason = judge(command, HERE).reason
    assert reason is not None
    line = reason.partition("with the line ")[2].removesuffix(" allows it")
    policy = Policy(allow=tomllib.loads(line)["allow"])
    assert judge(command, HERE, policy).verdict == "allow"
    assert judge("mkfs.ext4 other.img", HERE, policy).verdict == "block"


@pytest.mark.parametrize("target", ["/dev/sda1", "$(cat name)", "disk*.img"])
def test_mkfs_refusal_on_possible_disk_suggests_nothing(target: str) -> None:
    reason = judge(f"mkfs.ext4 {target}", HERE).reason
    assert reason is not None
    assert "allow" not in reason


@pytest.mark.parametrize(
    "command",
    [
        *("mkfs.ext4 -h", "mkfs.ext4 -V", "mke2fs -D -n /dev/sda1", "mkfs.xfs -h", "mkfs -h"),
        *("mkfs.btrfs -h", "mkfs.ntfs -h", "mkfs.ntfs -n /dev/sda1", "mkfs.f2fs -h /dev/sda1"),
        *("mkfs.exfat -h", "mkfs.minix -h", "mkfs.vfat --help", "mkfs -t ext4 -h", "mkfs.odd -V"),
    ],
)
def test_mkfs_help_is_allowed(command: str) -> None:
    assert judge(command, HERE).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        # In the first four commands, -h does not ask for help. It sets the number of hidden sectors
        # (vfat) or a hash function (reiserfs), or the guard does not know its meaning (odd).
        *("mkfs.vfat -h 0 /dev/sda1", "mkfs.reiserfs -h r5 /dev/sda1", "mkfs.odd -h 0 /dev/sda1"),
        *("mkfs -t vfat -F 32 -h 0 /dev/sda1", "mkfs.ext4 -L -h /dev/sda1"),
        *("mkfs -t ext4 -L --help /dev/sda1", "mkfs.xfs -L -V /dev/sda1"),
        *("mkfs.btrfs -L --help /dev/sda1", "mkfs.bfs -V -h /dev/sda1", "mkfs.ext4 -D /dev/sda1"),
    ],
)
def test_mkfs_with_help_as_value_is_blocked(command: str) -> None:
    assert judge(command, HERE).verdict == "block"


def test_rsync_that_changes_nothing_is_allowed() -> None:
    for command in ("rsync -an --delete a/ /", "rsync --delete --dry-run a/ /", "rsync --del / a"):
        assert judge(command, HERE).verdict == "allow", command
    for command in ("rsync -a --del --log-file x a/ /", "rsync -a --remove-source-files / b"):
        assert judge(command, HERE).verdict == "block", command


@pytest.mark.parametrize("shell", sorted(vocabulary.SHELLS))
def test_script_of_a_shell_is_judged(shell: str) -> None:
    assert judge(f"{shell} -c 'mkfs.ext4 /dev/sda'", HERE).verdict == "block"
