"""Every regular expression of the daemon takes linear time, because others control the text.

The guard has a test of its own.
"""

from __future__ import annotations

from itertools import chain

import pytest

import shelld
import shelld_protocol
from expressions import Expression, check_linear_time, matched, modules_of, used

MODULES = [
    each
    for each in (*modules_of(shelld), *modules_of(shelld_protocol))
    if not each.__name__.startswith("shelld.guard")
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
