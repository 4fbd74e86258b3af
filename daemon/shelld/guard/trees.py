"""Finds code that changes or removes every file of a tree, or every file that a pattern matches.

Pure. The module ignores a call that uses no variable of the loop. So code that walks through a tree
and only prints the names is harmless, even if it removes another file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from shelld.guard.calls import LITERAL, compiled, end_of_arguments, given, values_in

# The guard reads at most `_MAX_WALKS` loops that walk through a tree, and at most `_MAX_BODY`
# characters of the body of each loop.
_MAX_WALKS: Final = 8
_MAX_BODY: Final = 4 * 1024
# A walk is a loop such as ``for root, dirs, files in os.walk("/")`` or ``for p in
# Path("/").rglob("*")``.
_WALK: Final = (
    r"\bfor\s{1,8}([\w ,()]{1,80}?)\s{1,8}in\s{1,8}"
    r"(?=[^\n]{0,80}?(?:\b(?:fwalk|walk|rglob|i?glob|scandir|listdir|iterdir)\b|\*\*))"
)
# Other walks are ``find(sub { ... }, "/")`` in Perl and ``Find.find("/") { |p| ... }`` in Ruby.
_FIND: Final = r"\b(?:finddepth|find)\b\s{0,8}\((?=\s{0,8}(?:sub\b|\{|\\&|['\"]))"
_INNER: Final = r"\bfor\s{1,8}(\w{1,40})\s{1,8}in\s{1,8}([^\n:]{1,80})"
_NAMES: Final = re.compile(r"\w+")
# Maps each program to a pattern. The pattern matches functions that have the same effect on one
# path. `_PROGRAMS` has commands that have this effect on a whole tree.
_ACTS: Final = {
    "rm": r"\b(?:rmtree|remove|unlink|unlink_missing_ok|rmdir|removedirs|delete|rm|rm_f|rm_rf)\b",
    "chmod": r"\bl?chmod\b",
    "chown": r"\bl?chown\b",
}
_PROGRAMS: Final = {
    "rm": ("rm", "-r", "--"),
    "chmod": ("chmod", "-R", "777"),
    "chown": ("chown", "-R", "0"),
}
# `_OWNER` matches the object before the name of a method. `_METHODS` has the methods of path
# objects.
_OWNER: Final = re.compile(r"\b(\w+)\.\Z")
_MAX_OWNER: Final = 40
_METHODS: Final = frozenset({"unlink", "rmdir", "chmod", "lchmod"})
# If code contains one of these words, it chooses among the files, and the guard does not know which
# files it chooses.
_CHOOSES: Final = r"\b(?:if|unless|continue|next|match|case)\b"
# Perl has ``unlink glob "/*"`` and ``unlink </*>``, which remove files without a loop.
_UNLINKED: Final = (
    r"(?:\bunlink\b\s{0,8}\(?\s{0,8}glob\b"
    r"|\barray_map\s{0,8}\(\s{0,8}['\"]unlink['\"]\s{0,8},\s{0,8}glob\b)"
)
_ANGLES: Final = (
    r"\bunlink\b\s{0,8}\(?(?:\s{0,8}\$_)?\s{0,8}(?:\bfor(?:each)?\b)?\s{0,8}<([^<>\n]{1,80})>"
)


def commands_on_trees(code: str) -> Iterator[list[str]]:
    """Yield a command for each tree whose files the code removes or changes one by one."""
    for match in islice(compiled(_WALK).finditer(code), _MAX_WALKS):
        end = _end_of_header(code, match.end())
        first, *others = [*values_in(code[match.end() : end]), ""]
        # In ``glob("/**/*.o")``, one string contains the tree and the pattern.
        root, _, pattern = first.partition("**")
        root = root.removesuffix("/*") or root[:1]
        before = _element(code, match.start())
        if before and root and not "".join([pattern, *others]).strip("*./"):
            yield from _acts(root, before, set(_NAMES.findall(match[1])))
        if root and not "".join([pattern, *others]).strip("*./"):
            yield from _acts(root, code[end : end + _MAX_BODY], set(_NAMES.findall(match[1])))
    for match in islice(compiled(_FIND).finditer(code), _MAX_WALKS):
        end = end_of_arguments(code, match.end() - 1)
        roots = values_in(code[match.end() : end])
        body = code[match.end() : end + _MAX_BODY]
        for act, pattern in _ACTS.items() if roots and not compiled(_CHOOSES).search(body) else ():
            if compiled(pattern).search(body):
                yield [*_PROGRAMS[act], roots[-1]]


def _element(code: str, position: int) -> str:
    """Return the element of the comprehension whose ``for`` is at `position`, or "" if there is no
    comprehension.
    """
    line = code[max(code.rfind("\n", 0, position) + 1, position - _MAX_ELEMENT) : position]
    start = line.rfind("[") if "[" in line else line.find("(")
    return line[start + 1 :] if line.strip() and start >= 0 else ""


_MAX_ELEMENT: Final = 120


def _end_of_header(code: str, position: int) -> int:
    """Return the end of the header of a loop, which is a colon or a newline outside of quotes."""
    for match in compiled(rf"{LITERAL}|:(?=\s)|\n").finditer(code, position):
        if match[0] in ":\n":
            return match.end()
    return len(code)


def _acts(root: str, body: str, names: set[str]) -> Iterator[list[str]]:
    """A loop goes through the files of the tree `root`. Yield commands that change the tree in the
    same way.

    `body` is the body of the loop, and `names` are the variables of the loop.
    """
    for inner in islice(compiled(_INNER).finditer(body), _MAX_WALKS):
        if not names.isdisjoint(_NAMES.findall(inner[2])):
            names = names | {inner[1]}
    choice = compiled(_CHOOSES).search(body)
    body = body if choice is None else body[: choice.start()]
    for act, pattern in _ACTS.items():
        for call in islice(compiled(pattern).finditer(body), _MAX_WALKS):
            arguments = _NAMES.findall(body[call.end() : end_of_arguments(body, call.end())])
            owner = _OWNER.search(body, max(0, call.start() - _MAX_OWNER), call.start())
            is_method = owner is not None and owner[1] in names
            # In ``dirs.remove(name)``, the method changes a list, and not a file.
            if call[0] in _METHODS if is_method else not names.isdisjoint(arguments):
                yield [*_PROGRAMS[act], root]
                break


def globs_removed(code: str) -> Iterator[str]:
    """Yield each glob pattern in `code` if one call removes all files that match the pattern."""
    for values in given(code, _UNLINKED):
        yield values[0]
    for match in islice(compiled(_ANGLES).finditer(code), _MAX_WALKS):
        yield match[1]
