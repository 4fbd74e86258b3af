"""No refusal quotes a line with a secret in it."""

from __future__ import annotations

import pytest

from guarded_typing import DASH, at_prompt, keys
from support import Json, RawDaemon


def test_refusal_does_not_quote_a_secret(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    error = typing.refused("forbidden # swordfish\n", secret=True)
    assert error["code"] == 1002
    assert "swordfish" not in str(error)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # The client writes the secret without a line end, and presses Enter in a second write.
        ("forbidden --key=swordfish", keys("Enter")),
        # The command continues on the next line.
        ("KEY=swordfish forb\\\n", {"text": "idden\n"}),
    ],
)
def test_later_refusal_does_not_quote_a_secret(
    guarded: RawDaemon, first: str, second: Json
) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    typing.write(first, secret=True)
    error = typing.refused(**second)
    assert error["code"] == 1002
    assert "swordfish" not in str(error)


def test_refusal_after_a_secret_quotes_again(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    typing.write("echo swordfish\n", secret=True)
    assert "forbidden" in typing.refused("forbidden\n")["data"]["segment"]
