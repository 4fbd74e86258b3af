"""The guard replaces extended globs by other globs. Bash confirms that the other globs match at
least the same names.
"""

from __future__ import annotations

import itertools
import subprocess

import pytest

from shelld.guard.extended_globs import simplified

CONTENTS = (
    *("etc", "etc|usr", "e|t|c", "[a-e]", "[!x]tc", "?", "e*", "*.log|etc", "bo|ot", "[e|x]tc"),
    *('"etc"|usr', "'e'tc", "usr|", "|", "etc|[a-z]"),
)
NAMES = ("", "etc", "usr", "ee", "etcetc", "boot", "bobo", "tc", "x", "xtc", "|tc", "a.log", "te")


@pytest.mark.parametrize("content", CONTENTS)
def test_simplified_globs_match_at_least_as_much(content: str) -> None:
    # With `set -f`, bash does not expand the globs in the list of `for`.
    script = ['set -f; m() { [[ $2 == $1 ]] && echo "$3 $2"; }']
    for kind in "!@?+*":
        globs = simplified(kind, content, "", is_assigned=False)
        for name in map("'/{}'".format, NAMES):
            # In `[[`, bash accepts an extended glob even without `extglob`.
            test = f"[[ {name} == /{kind}({content}) ]]"
            script.append(f"{test} && echo 'extended {kind}' {name}")
            script.append(f"for each in /{globs}; do m \"$each\" {name} 'other {kind}'; done")
    run = subprocess.run(
        ["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=False
    )
    found = set(run.stdout.splitlines())
    matched = {line.removeprefix("extended ") for line in found if line.startswith("extended")}
    assert matched
    assert matched <= {line.removeprefix("other ") for line in found if line.startswith("other")}


@pytest.mark.parametrize(("kind", "content"), [*itertools.product("!@?+*", ("etc", "etc|usr"))])
def test_glob_in_an_assignment_has_no_braces(kind: str, content: str) -> None:
    assert simplified(kind, content, "", is_assigned=True) == "*"


def test_substitutions_of_a_glob_stay() -> None:
    assert "$(rm x)" in simplified("!", "a|$(rm x)", "$(rm x)", is_assigned=False)
