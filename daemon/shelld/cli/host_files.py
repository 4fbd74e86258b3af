"""Adds the configuration of shelld to the configuration file of an MCP host, and keeps everything
else in the file.

Never changes a file that it cannot parse, such as JSON with comments. Never leaves half a file,
because it writes a new file and then replaces the old one.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import tomllib
from pathlib import Path
from typing import Any, cast


class FileProblem(Exception):
    """The file was not changed. The message says why."""


def write_into(path: Path, snippet: str) -> None:
    """Merge a snippet into a file. Raises `FileProblem`.

    The snippet is TOML if the name of the file ends in ``.toml``, otherwise JSON.
    """
    merge = _merged_toml if path.suffix == ".toml" else _merged_json
    try:
        # The file may be a symbolic link into a directory of settings. Replace the file, but keep
        # the link. This fails if the path is relative and the working directory was deleted.
        path = Path(os.path.realpath(path))
        text = _read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, merge(path, text, snippet))
    except UnicodeError:
        raise FileProblem(f"{path} is not UTF-8") from None
    except OSError as error:
        raise FileProblem(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> str:
    """Return the text, or "" if there is no file. Raises `FileProblem`, OSError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return ""
    # Reading a FIFO or a device may never end.
    if not stat.S_ISREG(mode):
        raise FileProblem(f"{path} is not a regular file")
    # A rename could replace even a read-only file. But the owner of a read-only file does not want
    # the file to change.
    if not (mode & 0o222 and os.access(path, os.W_OK)):
        raise FileProblem(f"{path} is read-only")
    return path.read_text(encoding="utf-8")


def _merged_json(path: Path, text: str, snippet: str) -> str:
    """Add the server from the snippet to the text.

    If the text has an older entry of this server, replace only the members that the snippet has.
    The user may have added others, such as `env`.
    """
    try:
        content: object = json.loads(text, object_pairs_hook=_members) if text.strip() else {}
        ((key, servers),) = json.loads(snippet).items()
        members = _object(path, content)
        known = _object(path, members.get(key, {}))
        for name, entry in servers.items():
            older = known.get(name)
            known[name] = {**older, **entry} if isinstance(older, dict) else entry
        members[key] = known
        # If a number in the file is too large, Python has read it as infinity. `allow_nan=False`
        # refuses such a file.
        return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError):
        raise FileProblem(f"{path} is not plain JSON; add the configuration by hand") from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the members of a JSON object.

    Raises ValueError if a name occurs twice, because one of the two members would be lost.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError
    return members


def _object(path: Path, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileProblem(
            f"{path} does not have the expected objects; add the configuration by hand"
        )
    return cast("dict[str, Any]", value)


def _merged_toml(path: Path, text: str, snippet: str) -> str:
    """Return the text, followed by the snippet."""
    merged = f"{text.rstrip()}\n\n{snippet}\n".lstrip()
    try:
        tomllib.loads(text)
        # This fails if the file already has the table, because a table may occur only once in TOML.
        tomllib.loads(merged)
    except (ValueError, RecursionError):
        raise FileProblem(f"{path} already has an entry for shelld, or is not valid TOML") from None
    return merged


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if path.exists():
                os.fchmod(descriptor, path.stat().st_mode & 0o777)
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
