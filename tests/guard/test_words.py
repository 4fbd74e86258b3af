"""Words expand as in bash. The tests compare the fields with the fields that bash itself makes."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import ClassVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shelld.guard.fallback import simple_commands
from shelld.guard.markers import plain
from shelld.guard.words import expand_word


class Names:
    """The variables to which words may refer, in the guard and in the bash used for comparison."""

    home: str | None = None
    VALUES: ClassVar[dict[str, str]] = {
        "a": "one",
        "b": "two words",
        "e": "",
        "p": "/usr/local/lib",
        "s": "a,b",
        "HOME": "/h",
        "#": "2",
    }

    def value_of(self, name: str) -> str | None:
        return self.VALUES.get(name)

    def miss(self, name: str) -> None:
        pass

    def spend(self, characters: int) -> None:
        pass

    def list_of(self, name: str) -> list[str]:
        return ["x y", "z"] if name == "@" else []

    def member_of(self, name: str, index: int) -> str | None:
        return None

    def assign(self, name: str, value: str) -> None:
        raise AssertionError

    def output_of(self, script: str) -> str:
        return script.removeprefix("echo ")

    def file_of(self, script: str, *, is_read: bool) -> str:
        raise AssertionError

    def substituted(self, text: str) -> None:
        raise AssertionError


PIECES = st.sampled_from(
    [
        *("a", "/", ".", "-", "=", "x,y", " ", "'q u'", '"d"', "\\ ", "\\$", "$a", "$b", '"$b"'),
        *("$e", '"$e"', "${a}", "${b%o*}", "${p##*/}", "${p%/*}", "${p/l/L}", "${p//l/}", "${#p}"),
        *("${a^^}", "${u:-d e}", '"${u:-d e}"', "${a:+s}", "${a:1:1}", "${p: -3}", "$@", '"$@"'),
        *("$#", "{1,2}", "{a..c}", "{3..1}", "{x}", "{,y}", "$'\\x41\\n'", "$(echo a)", "`echo b`"),
        *("$((1+2*3))", "$((7/2-1))", "${s//,/ }", "${b@U}", "~", '"~"', "\\\\", "'\\'"),
    ]
)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_words_are_expanded_as_bash_expands_them(word: str) -> None:
    # The guard does not look up users and their home directories.
    assume(not re.search(r"~[^/\s]", word))
    values = " ".join(
        f"{name}={shlex.quote(value)}" for name, value in Names.VALUES.items() if name != "#"
    )
    script = f"{values}; set -f; set -- 'x y' z; printf '%s\\0' start {word}"
    theirs = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, timeout=100, check=False
    )
    expected = theirs.stdout.decode().split("\0")[1:-1]
    ours: list[str] = []

    (command,) = simple_commands(f"echo {word}")
    for each in command.words[1:]:
        ours += [plain(field) for field in expand_word(each, Names())]
    assert ours == expected
