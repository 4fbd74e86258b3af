"""Each room, a folder of the source code, imports only the rooms below it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rooms import paths_by_room, room_of

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("protocol/shelld_protocol", "daemon/shelld", "client/shelld_client")
    for path in (ROOT / folder).rglob("*.py")
)

# The rooms are in order from the top down. A room may import the rooms below it.
DAEMON_ROOMS = [
    "__main__",
    "start",
    "app",
    "routes",
    "cli",
    "server",
    "mcp",
    "tools",
    "methods",
    "audit",
    "embed",
    "events",
    "waits",
    "shells",
    "sessions",
    "limits",
    "sandbox",
    "screens",
    "inspection",
    "terminals",
    "guard",
    "output",
    "filters",
    "targets",
    "proxy",
    "helpers",
    "eventloop",
    "lasting",
    "keeper",
    "process",
]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[1]


def test_packages_import_only_the_protocol() -> None:
    ours = {"shelld", "shelld_client", "shelld_protocol"}
    for path in SOURCES:
        allowed = {package_of(path), "shelld_protocol"}
        if path.parent.name == "cli":
            # These programs are clients of a daemon of their own.
            allowed.add("shelld_client")
        found = {name.partition(".")[0] for name in imports(path)} & ours
        assert found <= allowed, path


@pytest.mark.parametrize("room", DAEMON_ROOMS)
def test_room_imports_only_lower_rooms(room: str) -> None:
    below = set(DAEMON_ROOMS[DAEMON_ROOMS.index(room) :])
    place = ROOT / "daemon" / "shelld" / room
    paths = [*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")]
    assert paths
    for path in paths:
        for name in imports(path):
            package, _, rest = name.partition(".")
            if package == "shelld" and rest:
                assert rest.partition(".")[0] in below, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if package_of(path) == "shelld_protocol"],
    ids=lambda path: path.stem,
)
def test_the_protocol_does_no_io(path: Path) -> None:
    io = {"os", "io", "socket", "select", "subprocess", "threading", "asyncio", "anyio", "pathlib"}
    assert not io & {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.parent.name == "keeper"],
    ids=lambda path: path.stem,
)
def test_the_keeper_needs_nothing_but_the_standard_library(path: Path) -> None:
    for name in imports(path):
        package = name.partition(".")[0]
        assert package in sys.stdlib_module_names or name.startswith("shelld.keeper")


def test_the_daemon_never_loads_the_client() -> None:
    # Modules for subcommands would make the daemon start slower, so the daemon loads none.
    code = "import sys, shelld.app, shelld.start, shelld.__main__; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert {name for name in loaded if name.startswith(("shelld_client", "shelld.cli."))} == {
        *("shelld.cli.commands", "shelld.cli.numbers", "shelld.cli.parser", "shelld.cli.show")
    }
    assert "argparse" not in loaded


def test_one_file_imports_jsonrpcserver() -> None:
    naming = [path.name for path in SOURCES if '"jsonrpcserver"' in path.read_text()]
    assert naming == ["dispatch.py"]


def test_no_module_prints() -> None:
    for path in SOURCES:
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert "print" not in names


def handlers(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    """Yield each `except` below a node, with the names of the classes and functions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from handlers(child, (*names, child.name))
        else:
            if isinstance(child, ast.ExceptHandler):
                yield names, child
            yield from handlers(child, names)


def is_catch_all(handler: ast.AST) -> bool:
    """Return whether a handler catches all exceptions and does not end with `raise`."""
    assert isinstance(handler, ast.ExceptHandler)
    if isinstance(handler.body[-1], ast.Raise):
        return False
    caught = [] if handler.type is None else [ast.unparse(each) for each in ast.walk(handler.type)]
    return handler.type is None or not {"Exception", "BaseException"}.isdisjoint(caught)


def test_no_regex_repeats_a_group_possessively() -> None:
    # Before 3.11.5, Python matches a possessively repeated group wrongly. `(?>(?:...)*)` matches
    # the same text correctly. Repeated single characters are safe.
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if possessive.search(repr(node.value).replace("\\\\", "\\"))
    ]
    assert found == []


def test_exceptions_stop_only_at_documented_boundaries() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## Where an unexpected exception stops")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`([\w.]+)`", section))
    for path in [path for path in SOURCES if package_of(path) == "shelld"]:
        for names, handler in handlers(ast.parse(path.read_text()), ()):
            if is_catch_all(handler):
                # The document names a class, one of its methods, or a function of a module.
                places = {names[0], ".".join(names[:2]), f"{path.stem}.{names[0]}"}
                assert places & documented, f"{path.name}: {'.'.join(names)}"


def test_table_of_words_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## The words")[2].partition("\n## ")[0]
    owners = re.findall(r"\| `([\w./]+)` \|$", section, re.MULTILINE)
    assert len(owners) == section.count("\n|") - 2
    for owner in owners:
        assert (ROOT / "daemon" / "shelld" / owner).exists(), owner


def test_imports_have_no_cycle() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__"): path
        for path in SOURCES
    }
    graph = {
        name: set(modules_imported(path, set(modules))) - {name} for name, path in modules.items()
    }
    # A module that imports none of the remaining modules is in no cycle.
    while free := {name for name, imported in graph.items() if not imported & set(graph)}:
        graph = {name: imported for name, imported in graph.items() if name not in free}
    assert graph == {}


def modules_imported(path: Path, modules: set[str]) -> Iterator[str]:
    """Yield the members of `modules` that a file imports, including imports for types and within
    functions.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield from {submodule if submodule in modules else node.module} & modules
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules


def test_table_of_tests_names_every_room() -> None:
    table = paths_by_room()
    folders = {path.name for path in (ROOT / "daemon" / "shelld").iterdir() if path.is_dir()}
    expected = folders - {"__pycache__"} | {"shelld_protocol", "shelld_client", "js"}
    assert table.keys() == expected
    for own, others in table.values():
        assert own
        assert [path for path in own + others if not (ROOT / path).exists()] == []


def test_changed_file_leads_to_its_room() -> None:
    assert room_of("daemon/shelld/guard/rules.py") == "guard"
    assert room_of("client/shelld_client/calls.py") == "shelld_client"
    assert room_of("client/js/src/job.ts") == "js"
    assert room_of("client/make_sync.py") is None
    assert room_of("tests/sessions/test_state.py") == "sessions"
    assert room_of("tests/e2e/test_doctor.py") == "cli"
    assert room_of("daemon/shelld/app.py") is None
    assert room_of("README.md") is None


def test_repository_has_no_links_of_one_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("this is not a clone of git")
    link = "120000 "
    assert [line for line in listed.stdout.splitlines() if line.startswith(link)] == []
