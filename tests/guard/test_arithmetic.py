"""Arithmetic yields and assigns the same values as in bash. The tests compare the values with
bash.
"""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shelld.guard.arithmetic import MAX_EXPRESSION, arithmetic
from shelld.guard.markers import UNKNOWN


class Variables:
    def __init__(self, **values: str) -> None:
        self.values = values

    def value_of(self, name: str) -> str | None:
        return self.values.get(name)

    def assign(self, name: str, value: str) -> None:
        self.values[name] = value

    def list_of(self, name: str) -> list[str]:
        return ["7", "8", "9"] if name == "l" else []

    def substituted(self, text: str) -> None:
        pass


OPERATORS = [
    *("+", "-", "*", "/", "%", "**", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^"),
    *("&&", "||", "=", "+=", "-=", "*=", ","),
]
ATOMS = st.sampled_from(
    [
        *("0", "1", "2", "7", "010", "0x1f", "2#101", "x", "y", "z", "x++", "--y", "-3", "!x"),
        *("~y", "(x=4)", "(y+1)", "x?y:z", "x?(y=2):(z=3)"),
    ]
)


@pytest.mark.slow
@settings(max_examples=300)
@example("x?y:z", [("**", "--y"), ("**", "0")])
@given(ATOMS, st.lists(st.tuples(st.sampled_from(OPERATORS), ATOMS), max_size=4))
def test_expression_has_the_value_of_bash(first: str, rest: list[tuple[str, str]]) -> None:
    expression = " ".join([first, *(f"{operator} {atom}" for operator, atom in rest)])
    script = f"x=3 y=0 z=5 l=(7 8 9); v=$(({expression})); echo $v $x $y $z"
    theirs = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, timeout=100, check=False
    )
    ours = Variables(x="3", y="0", z="5")
    value = arithmetic(expression, ours)
    if theirs.returncode != 0:
        assert value == UNKNOWN
    else:
        values = [value, ours.values["x"], ours.values["y"], ours.values["z"]]
        assert values == theirs.stdout.decode().split()


@pytest.mark.parametrize(
    ("expression", "value", "y"),
    [
        *(
            ("", "0", "1"),
            ("y", "1", "1"),
            ("y=7", "7", "7"),
            ("n", "7", "7"),
            ("y += 2", "3", "3"),
        ),
        *(("0 && (y=7)", "0", "1"), ("1 || (y=7)", "1", "1"), ("u", UNKNOWN, "1")),
        *(("y = u", UNKNOWN, UNKNOWN), ("y++ + u", UNKNOWN, UNKNOWN), ("1 +", UNKNOWN, "1")),
        *(("y = 1 / 0", UNKNOWN, UNKNOWN), ("y=" + "1" * MAX_EXPRESSION, UNKNOWN, UNKNOWN)),
        *(("l[1]", "8", "1"), ("l[y=2]", "9", "2"), ("l[9]", "0", "1"), ("2 ** -1", UNKNOWN, "1")),
        *(("r", UNKNOWN, "1"), ("9223372036854775807 + 1", "-9223372036854775808", "1")),
    ],
)
def test_expression_assigns_unknown_values(expression: str, value: str, y: str) -> None:
    variables = Variables(y="1", n="y=7", u=UNKNOWN, r="r")
    assert arithmetic(expression, variables) == value
    assert variables.values["y"] == y
