"""Reads a TOML file of the operator, and finds the line of a mistake in this file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class TomlError(Exception):
    """A TOML file cannot be used.

    The message names the file and, if it is known, the line of the mistake.
    """


class TomlFile(NamedTuple):
    """A file whose text is valid TOML."""

    path: Path
    text: str
    content: dict[str, Any]

    def at(self, key: str) -> str:
        """Return where a top-level key is, as ``FILE:LINE``.

        For a missing key, the line is 1.
        """
        form = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
        numbers = (n for n, line in enumerate(self.text.splitlines(), 1) if form.match(line))
        return f"{self.path}:{next(numbers, 1)}"

    def converted(self, shape: type[S]) -> S:
        """Return the content as a struct. Raises TomlError."""
        try:
            return msgspec.convert(self.content, shape)
        except msgspec.ValidationError as error:
            where = re.search(r"`\$\.?(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
            unknown = [name for name in self.content if name not in shape.__struct_fields__]
            key = where[1] if where else next(iter(unknown), "")
            reason = str(error).partition(" - at ")[0]
            raise TomlError(f"{self.at(key)}: {reason}") from None


def read_toml(path: Path, no_file: str, unreadable: str) -> TomlFile:
    """Read a file.

    Raises TomlError. The error's message is `no_file` if `path` is not a file, and `unreadable` if
    the file cannot be read.
    """
    try:
        # Check the type first, because reading a FIFO or a device may never end.
        if not path.is_file():
            raise TomlError(no_file)
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise TomlError(unreadable) from None
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise TomlError(f"{path}:{number}: not UTF-8") from None
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        raise TomlError(f"{path}:{number}: not valid TOML") from None
    except ValueError:
        # Python refuses to convert a number of more than 4,300 digits. The error does not say in
        # which line the number is.
        raise TomlError(f"{path}:1: a number has too many digits") from None
    except RecursionError:
        raise TomlError(f"{path}:1: the values are nested too deeply") from None
