"""Reads the daemon's options from environment variables and a file. Turns them into words of a
command line.

These words come before the words of the command line. The order is: the file, the variables, the
command line. If an option occurs several times, its last occurrence wins. This module checks all
values, so that an error names the variable, or the file and the line.

```toml
guard = "strict"
max-shells = 32
retain-bytes = "256M"
guard-rules = "rules.toml"        # relative to this file
limit = { memory_bytes = "2G" }
target = { box = "ssh box shelld" }
```
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast, get_args

from shelld.process.toml_file import TomlError, read_toml
from shelld_protocol.sandboxes import SandboxMode

PREFIX: Final = "SHELLD_"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"

# These options concern a single process, so they can be set only on its command line.
_NOT_SETTINGS: Final = frozenset({"help", "version", "stdio", "parent_pid", "config"})
_PATHS: Final = frozenset({"FILE", "DIR", "PATH"})
_TABLES: Final = frozenset({"NAME=VALUE", "NAME=ARGV"})
# These values of --sandbox are not paths.
_MODES: Final = frozenset({"off", *get_args(SandboxMode)})
_SWITCHES: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class SettingsError(Exception):
    """A setting is wrong. The message says what is wrong, and in which variable or line."""


def settings_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Map names such as ``max-shells`` to the options that a file or a variable can set."""
    return {
        action.option_strings[0].removeprefix("--"): action
        for action in parser._actions  # pyright: ignore[reportPrivateUsage]
        if action.dest not in _NOT_SETTINGS
    }


def variable_of(name: str) -> str:
    """Return the name of the variable for an option, such as ``SHELLD_MAX_SHELLS``."""
    return PREFIX + name.upper().replace("-", "_")


def is_path(action: argparse.Action, text: str) -> bool:
    """Return whether the value `text` of an option is a path. An empty text is not a path."""
    may_be = action.metavar in _PATHS or (action.metavar == "POLICY" and text not in _MODES)
    return may_be and text != ""


def words(
    parser: argparse.ArgumentParser,
    config: str | None,
    env: Mapping[str, str],
    replaced: Container[str] = (),
) -> list[str]:
    """Return the options in the file `config` and in the variables `env`, as words of a command
    line.

    The result omits the options in `replaced`, but their values are checked as well. Raises
    `SettingsError`.
    """
    settings = settings_of(parser)
    # The words of each option. If a variable and the file set the same option, the variable
    # replaces the words from the file. But if the option has the form NAME=VALUE, the words from
    # the variable are added.
    chosen: dict[str, list[str]] = {}
    path = config or env.get(CONFIG_VARIABLE)
    if path:
        chosen.update(_from_file(parser, settings, Path(path)))
    for name, action in settings.items():
        if text := env.get(variable_of(name)):
            given = _words_of_variable(name, action, text)
            if (problem := _problem(parser, given)) is not None:
                raise SettingsError(f"{variable_of(name)}: {problem}")
            kept = chosen.get(name, []) if action.metavar == "NAME=VALUE" else []
            chosen[name] = kept + given
    return [word for name, given in chosen.items() if name not in replaced for word in given]


def _words_of_variable(name: str, action: argparse.Action, text: str) -> list[str]:
    if action.nargs == 0:
        switch = _SWITCHES.get(text.lower())
        if switch is None:
            raise SettingsError(f"{variable_of(name)}: must be 1 or 0, not {text!r}")
        return [f"--{name}"] if switch else []
    if action.metavar == "NAME=VALUE":
        return [f"--{name}={each}" for each in re.split(r"[,\s]+", text.strip(", \t\n"))]
    if action.metavar == "NAME=ARGV":
        return [f"--{name}={line.strip()}" for line in text.splitlines() if line.strip()]
    return [f"--{name}={text}"]


def _from_file(
    parser: argparse.ArgumentParser, settings: Mapping[str, argparse.Action], path: Path
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of each option in a file. Raises `SettingsError`."""
    unreadable = f"cannot read the configuration {path}"
    try:
        file = read_toml(path, f"the configuration {path} is not a file", unreadable)
    except TomlError as error:
        raise SettingsError(str(error)) from None
    found: set[str] = set()
    for key, value in file.content.items():
        name = key.replace("_", "-")
        where = file.at(key)
        if name in found:
            raise SettingsError(f"{where}: {key}: given twice")
        found.add(name)
        action = settings.get(name)
        if action is None:
            raise SettingsError(f"{where}: unknown key: {key}{_hint(name, settings)}")
        try:
            given = list(_words_of_value(name, action, value, path.parent))
        except ValueError as error:
            raise SettingsError(f"{where}: {key}: {error}") from None
        if (problem := _problem(parser, given)) is not None:
            raise SettingsError(f"{where}: {key}: {problem}")
        yield name, given


def _words_of_value(
    name: str, action: argparse.Action, value: object, directory: Path
) -> Iterator[str]:
    """Turn the value of an option in a file into the words for a command line. Raises
    ValueError.
    """
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        if value:
            yield f"--{name}"
    elif action.metavar in _TABLES:
        if not isinstance(value, dict):
            raise ValueError("must be a table of names and values")
        for each, inner in cast("dict[str, Any]", value).items():
            if "=" in each:
                raise ValueError(f"a name cannot contain =: {each}")
            yield f"--{name}={each}={_text(inner)}"
    else:
        text = _text(value)
        yield f"--{name}={directory.absolute() / text if is_path(action, text) else text}"


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError("must be text or a whole number")
    return str(value)


def _problem(parser: argparse.ArgumentParser, given: list[str]) -> str | None:
    """Return what is wrong with the value of an option, or None if the value is valid."""
    exits, parser.exit_on_error = parser.exit_on_error, False
    try:
        parser.parse_args(given)
    except argparse.ArgumentError as error:
        return error.message
    finally:
        parser.exit_on_error = exits
    return None


def _hint(name: str, settings: Mapping[str, argparse.Action]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415

    similar = get_close_matches(name, settings, 1)
    return f"; did you mean {similar[0]}?" if similar else ""
