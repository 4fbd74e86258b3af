"""Every regular expression of the daemon takes linear time, because others control the text.

The tests of the guard check the expressions of the guard.
"""

from __future__ import annotations

from itertools import chain

import pytest

import shelld
import shelld_protocol
from expressions import Expression, check_linear_time, matched, modules_of, used

# These packages search only text of the operator and of a person at a terminal.
LEFT_OUT = ("shelld.guard", "shelld.cli")
MODULES = [
    each
    for each in (*modules_of(shelld), *modules_of(shelld_protocol))
    if not each.__name__.startswith(LEFT_OUT)
]
FOUND = chain.from_iterable(chain(used(each), matched(each)) for each in MODULES)
EXPRESSIONS = sorted(set(FOUND), key=repr)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=repr)
def test_search_takes_linear_time(expression: Expression) -> None:
    check_linear_time(expression)


def test_expressions_are_found() -> None:
    assert len(EXPRESSIONS) > 100
    assert {"search", "match", "fullmatch", "finditer"} <= {method for *_, method in EXPRESSIONS}
