"""The error message with which the daemon refuses a typed line."""

from __future__ import annotations

from shelld.methods.typed_lines import without_secret
from shelld_protocol.errors import blocked, not_possible


def test_refusal_of_a_secret_has_no_text_of_the_line() -> None:
    advice = 'rules with the line allow = ["KEY=swordfish mkfs x"] allow it'
    error = without_secret(blocked("mkfs", "KEY=swordfish mkfs x", advice))
    assert "swordfish" not in str((error, error.data))
    assert error.data == {"kind": "blocked", "rule": "mkfs", "segment": ""}


def test_other_errors_of_a_write_are_unchanged() -> None:
    error = not_possible("secret", "The terminal shows what is typed")
    assert without_secret(error) is error
