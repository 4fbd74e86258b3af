"""The error for a mistake in the operator's TOML files names the file, and the line if possible."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import Struct

from shelld.process.toml_file import TomlError, read_toml


class Shape(Struct, forbid_unknown_fields=True):
    number: int = 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("number = 1\nnumber = 2\n", ":2: "),
        ("\nnumber = 'x'\n", ":2: "),
        ("number = 1\n[other]\n", ":2: "),
        ("number = " + "[" * 100_000, ":1: "),
        ("number = " + "9" * 5_000, ":1: "),
    ],
)
def test_mistake_names_its_place(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(TomlError) as mistake:
        read_toml(path, "no file", "unreadable").converted(Shape)
    assert str(mistake.value).startswith(f"{path}{place}")


def test_fifo_and_missing_file_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing"):
        with pytest.raises(TomlError, match="no file"):
            read_toml(tmp_path / name, "no file", "unreadable")


def test_bytes_that_are_not_utf_8_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(b"number = 1\n# caf\xe9\n")
    with pytest.raises(TomlError) as mistake:
        read_toml(path, "no file", "unreadable")
    assert str(mistake.value) == f"{path}:2: not UTF-8"


def test_key_is_found_in_tables_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text('x = 1\n"quoted" = 2\n[table]\n[[list]]\ny.z = 3\n')
    file = read_toml(path, "", "")
    lines = [file.at(key).rpartition(":")[2] for key in ("quoted", "table", "list", "y", "gone")]
    assert lines == ["2", "3", "4", "5", "1"]
