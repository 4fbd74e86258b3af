"""The variables that a session takes from the daemon's environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from shelld.sessions.environment import CORE as CORE_NAMES
from shelld.sessions.environment import EnvironmentRules
from shelld_protocol import EnvironmentRules as WireRules

ENV = {
    b"PATH": b"/bin",
    b"HOME": b"/root",
    b"LC_CTYPE": b"C.UTF-8",
    b"GITHUB_TOKEN": b"1",
    b"github_token": b"2",
    b"API_KEY_FILE": b"3",
    b"CI": b"true",
    b"BASH_FUNC_f%%": b"() { :; }",
    b"odd-\xff": b"4",
}
CORE = {b"PATH", b"HOME", b"LC_CTYPE"}


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (EnvironmentRules(), set(ENV)),
        (EnvironmentRules("core"), CORE),
        (EnvironmentRules("core", keep=("ci",)), CORE | {b"CI"}),
        (EnvironmentRules("core", remove=("lc_*", "P?TH")), {b"HOME"}),
        (EnvironmentRules(remove=("*_TOKEN",)), set(ENV) - {b"GITHUB_TOKEN", b"github_token"}),
        (EnvironmentRules(remove=("*_KEY",)), set(ENV)),
        (
            EnvironmentRules(remove=("*KEY*", "bash_func_*")),
            set(ENV) - {b"API_KEY_FILE", b"BASH_FUNC_f%%"},
        ),
        (EnvironmentRules(remove=("*",), keep=("PATH", "c?")), {b"PATH", b"CI"}),
        (EnvironmentRules(keep=("PATH",)), set(ENV)),
    ],
)
def test_environment_rules_choose_the_variables(rules: EnvironmentRules, taken: set[bytes]) -> None:
    assert rules.apply(ENV) == {name: ENV[name] for name in taken}


def test_documents_list_the_core_variables() -> None:
    mode = {field.name: field for field in fields(WireRules)}["mode"]
    description = str(mode.type)
    sessions = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text()
    for name in CORE_NAMES:
        assert re.search(rf"\b{re.escape(name)}", description), name
        assert f"`{name}`" in sessions, name


names = st.text("aAbB_*?", min_size=1, max_size=8)


@given(pattern=names, name=st.text("aAbB_", min_size=1, max_size=8))
def test_wildcards_are_those_of_a_shell(pattern: str, name: str) -> None:
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    is_removed = re.fullmatch(expression, name, re.IGNORECASE) is not None
    left = EnvironmentRules(remove=(pattern,)).apply({name.encode(): b""})
    assert (left == {}) is is_removed
