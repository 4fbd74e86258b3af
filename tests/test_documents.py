"""The examples in the documents run, and the names in the documents exist."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest

from shelld import __version__
from shelld.cli.parser import parse_options
from shelld.guard import StartState
from shelld.guard.judgement import judge
from shelld.guard.policy import Policy
from shelld.guard.policy_file import load
from shelld.guard.rules import RULES
from shelld_client.calls import EVENT_NAMES
from shelld_protocol.errors import ErrorKind
from shelld_protocol.event_methods import (
    DEFAULT_CHUNK_BYTES,
    DEFAULT_INTERVAL_MS,
    JOURNAL_EVENTS,
    MAX_SUBSCRIPTIONS,
    NOTIFICATIONS,
    Event,
    EventName,
)
from shelld_protocol.methods import METHODS
from shelld_protocol.structs import Unkept

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
GUARD_PAGE = (ROOT / "docs" / "guard.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(language, text, id=f"{path.stem}-{number}")
    for path in DOCUMENTS
    for number, (language, text) in enumerate(BLOCK.findall(path.read_text()))
]


@pytest.mark.slow
@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_every_code_block_runs(language: str, text: str) -> None:
    if "shelld_client.ray" in text:
        pytest.skip("tests/helpers/pool_on_ray.py runs it")
    if '"vim ' in text and shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    if language == "python":
        command = [sys.executable, "-W", "error", "-c", text]
    elif language == "toml":
        assert tomllib.loads(text)
        return
    elif language == "json":
        for line in text.splitlines():
            assert msgspec.json.decode(line)["jsonrpc"] == "2.0"
        return
    elif language == "text":
        return
    else:
        assert language == "sh"
        # This test may itself run under one of these targets, so only list the commands of the
        # targets.
        bin_folder = str(Path(sys.executable).parent)
        script = re.sub(r"^make ", "make --dry-run ", text, flags=re.MULTILINE)
        command = ["/bin/bash", "-euc", script.replace(".venv/bin", bin_folder)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stderr
    # A block may print exit code 1 because of a refused command, or because a promise fails on this
    # machine.
    assert set(re.findall(r"^exit code (\d+)$", ended.stdout, re.MULTILINE)) <= {"1"}
    if language == "sh" and "echo hi" in text:
        assert '"stdout":"hi\\n"' in ended.stdout
    if language == "sh" and '"background"' in text:
        assert '"status":"running"' in ended.stdout
    if language == "sh" and "shelld explain" in text:
        assert "exit code 1\n" in ended.stdout


def test_readme_names_every_method() -> None:
    readme = (ROOT / "README.md").read_text()
    for method in METHODS:
        assert f"`{method}`" in readme


def test_readme_and_index_name_every_page() -> None:
    readme, index = (ROOT / "README.md").read_text(), (ROOT / "docs" / "index.md").read_text()
    assert "(docs/index.md)" in readme
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index


LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as code hosts derive them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.stem)
def test_every_internal_link_leads_somewhere(path: Path) -> None:
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", path.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


def test_recorded_exchanges_are_as_a_daemon_answers() -> None:
    record = runpy.run_path(str(ROOT / "docs" / "record.py"))
    recorded = msgspec.json.decode((ROOT / "docs" / "exchanges.json").read_bytes())
    assert [form(each) for each in recorded] == [form(each) for each in record["record"]()]
    methods = {each["request"]["method"] for each in recorded}
    # The answer to `rpc.discover` is the whole document, and `exit` has no answer.
    assert methods == METHODS.keys() - {"rpc.discover", "exit"}


def form(value: Any) -> Any:
    """Return a value without numbers and machine-dependent parts."""
    if isinstance(value, dict):
        return {
            name: name if name in ("containment", "tools", "env") else form(inner)
            for name, inner in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        # One of the two type checkers does not know the type of the list's items.
        values = cast("list[Any]", cast("object", value))
        return [form(inner) for inner in values]
    return 0 if isinstance(value, int) else value


def test_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.pages().items():
        assert path.read_text() == text, f"{path.name} is out of date; run: make docs"


def test_the_reference_names_every_method_error_and_parameter() -> None:
    reference = (ROOT / "docs" / "protocol.md").read_text()
    for kind in ErrorKind:
        assert f"| `{kind.value}` | {kind.code} | " in reference
    for method, types in METHODS.items():
        assert f"## `{method}`" in reference
        for field in msgspec.structs.fields(types.params):
            assert f"| `{field.encode_name}` |" in reference


def test_sessions_page_has_every_reason() -> None:
    table = (ROOT / "docs" / "sessions.md").read_text().partition("| `stateReason` |")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == [reason.value for reason in Unkept]


def test_events_page_has_every_event_and_limit() -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(shell/\w+)` \|.*\|(.*)\|$", page, re.MULTILINE)
    assert {(name, method) for name, method, _ in rows} == {
        (EVENT_NAMES[kind], method) for method, kind in NOTIFICATIONS.items()
    }
    assert set(get_args(EventName)) == {name for name, _, _ in rows}
    common = {field.encode_name for field in msgspec.structs.fields(Event)}
    for _, method, members in rows:
        fields = {field.encode_name for field in msgspec.structs.fields(NOTIFICATIONS[method])}
        assert set(re.findall(r"`(\w+)`", members)) == fields - common
    for limit in (JOURNAL_EVENTS, MAX_SUBSCRIPTIONS, DEFAULT_INTERVAL_MS, DEFAULT_CHUNK_BYTES):
        assert f"{limit:,}" in page


def test_the_guard_page_names_every_rule() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", GUARD_PAGE.partition("| `--guard`")[0], re.MULTILINE)
    named = re.findall(r"`([^`]+)`", ", ".join(rows))
    assert sorted(named) == sorted(RULES)
    assert len(named) == 12
    assert "Twelve rules" in GUARD_PAGE


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git push --force-with-lease", "block"),
        ("git push -f", "block"),
        ("sudo git -C x push origin -fu", "block"),
        ("git stash push -f", "block"),
        ("git commit -m push -f", "block"),
        ("git push --force$(x)", "block"),
        ("git push", "allow"),
        ("git stash push", "allow"),
        ("git commit -m push", "allow"),
        ("git push -uf", "allow"),
        ("git push origin +main", "allow"),
        (" mkfs.ext4 build/disk.img ", "allow"),
        ("mkfs.ext4 build/disk2.img", "block"),
        ("mv /etc x", "allow"),
    ],
)
def test_rules_of_the_guard_page_work(command: str, verdict: str, tmp_path: Path) -> None:
    (rules,) = re.findall(r"^```toml\n(.*?)^```$", GUARD_PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "rules.toml").write_text(rules)
    policy = load(tmp_path / "rules.toml")
    assert judge(command, StartState("/home/me", {}), policy).verdict == verdict


def test_star_in_allow_matches_separators_too() -> None:
    assert '`"make *"` also allows `make x; rm -rf /`' in GUARD_PAGE
    policy = Policy(allow=["make *"])
    assert judge("make x; rm -rf /", StartState("/", {}), policy).verdict == "allow"


# The first expression finds options in Python lists that contain no variables. The second one finds
# options on command lines.
LISTED_OPTIONS = re.compile(r'args=(\["--[^\](]*\])')
WRITTEN_OPTIONS = re.compile(r"`shelld (--(?!help)[^`]*)`")


def test_options_in_the_text_are_accepted() -> None:
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    options = [ast.literal_eval(each) for each in LISTED_OPTIONS.findall(text)]
    options += map(shlex.split, WRITTEN_OPTIONS.findall(text))
    assert len(options) > 4
    for each in options:
        parse_options(each)


def test_architecture_document_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^(?:  )?(\S+/?)  +(\S.*\n(?: {15}.*\n)*)", text, re.MULTILINE)
    row_of = dict(rows)
    for folder in ("protocol/shelld_protocol", "daemon/shelld", "client/shelld_client"):
        for path in (ROOT / folder).iterdir():
            if path.suffix == ".py" and path.stem != "__init__":
                assert path.name in text
            elif path.is_dir() and path.name != "__pycache__":
                assert names_without(row_of[f"{path.name}/"], path) == []


def names_without(row: str, room: Path) -> list[str]:
    """Return the modules in the folder `room` that `row` does not name.

    `row` is the row of this folder in the map in ARCHITECTURE.md.
    """
    files = [path for path in room.iterdir() if path.suffix == ".py" and path.stem != "__init__"]
    return [path.name for path in files if not re.search(rf"\b{re.escape(path.name)}\b", row)]


def test_project_version_matches_package_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_paths_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:benchmarks|client|daemon|docs|protocol|tests)/[\w/.]+)`", text)
    assert "daemon/shelld/routes.py" in paths
    for path in paths:
        assert (ROOT / path).exists(), path


def test_links_between_documents_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), target
