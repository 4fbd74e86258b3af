"""``shelld mcp-config`` prints a configuration that starts the daemon, in each host's format."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from lasting import lasting_user
from mcp_messages import bash
from shelld.cli.mcp_config import ALIASES, HOSTS
from shelld.cli.mcp_config import mcp_config as run_here
from support import Json, RawDaemon

EXAMPLES = Path(__file__).parents[2] / "examples" / "mcp"
SCRIPT = Path(sys.executable).with_name("shelld")


def mcp_config(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "shelld", "mcp-config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def command_in(configuration: Any) -> list[str]:
    """Return the command line that a host derives from a configuration."""
    ((_, servers),) = configuration.items()
    server = servers["shelld"]
    command = server["command"]
    return cast("list[str]", command) if isinstance(command, list) else [command, *server["args"]]


@pytest.mark.slow
@pytest.mark.parametrize("host", [None, *HOSTS])
def test_printed_configuration_starts_a_daemon_anywhere(host: str | None, tmp_path: Path) -> None:
    ended = mcp_config(*([] if host is None else [host]), "--", "--guard", "off", cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stderr.startswith("# for ")
    parse = tomllib.loads if host == "codex" else json.loads
    command = command_in(parse(ended.stdout))
    assert command[-2:] == ["--guard", "off"]
    assert Path(command[0]).is_absolute()
    daemon = RawDaemon(command=command, cwd=tmp_path)
    params: Json = {"protocolVersion": "2025-06-18", "capabilities": {}}
    assert daemon.call("initialize", params)["serverInfo"]["name"] == "shelld"
    daemon.close()


@pytest.mark.slow
def test_printed_configuration_joins_a_lasting_daemon(tmp_path: Path) -> None:
    ended = mcp_config("--attach", "work", "cursor", "--", "--guard", "warn", cwd=tmp_path)
    command = command_in(json.loads(ended.stdout))
    assert command[-4:] == ["--name=work", "--", "--guard", "warn"]
    outputs: list[str] = []
    with lasting_user(tmp_path) as user:
        for _ in range(2):
            daemon = RawDaemon(command=command, env=user.env)
            result = bash(daemon, "echo $((n += 1))")
            outputs.append(result["structuredContent"]["output"])
            daemon.close()
    assert outputs == ["1\n", "2\n"]


def test_attach_is_refused_with_an_option_that_attach_refuses() -> None:
    ended = mcp_config("--attach", "work", "--", "--parent-pid", "1")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "leave out --parent-pid" in ended.stderr


def test_attach_is_refused_for_a_name_with_a_slash() -> None:
    ended = mcp_config("--attach", "a/b")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "slash" in ended.stderr


def test_file_options_become_absolute_paths(tmp_path: Path) -> None:
    options = ["--guard-rules", "rules.toml", "--audit-log=log", "--guard", "warn"]
    command = command_in(json.loads(mcp_config("--", *options, cwd=tmp_path).stdout))
    expected = ["--guard-rules", f"{tmp_path}/rules.toml", f"--audit-log={tmp_path}/log"]
    assert command[-5:] == [*expected, "--guard", "warn"]
    (tmp_path / "policy.toml").write_text('mode = "workspace"\n')
    for given, meant in (("policy.toml", f"{tmp_path}/policy.toml"), ("read-only", "read-only")):
        options = ["--sandbox", given, f"--sandbox={given}", "--limit", "processes=9"]
        command = command_in(json.loads(mcp_config("--", *options, cwd=tmp_path).stdout))
        assert command[-5:-2] == ["--sandbox", meant, f"--sandbox={meant}"]


@pytest.mark.parametrize("host", [None, *HOSTS])
def test_configuration_keeps_odd_paths(host: str | None, tmp_path: Path) -> None:
    rules = tmp_path.joinpath("a\x7fb", 'quo"te', "back\\slash", "caf\u00e9", "\U0001f600")
    ended = mcp_config(*([] if host is None else [host]), "--", "--guard-rules", str(rules))
    assert ended.stdout.isascii()
    parse = tomllib.loads if host == "codex" else json.loads
    assert command_in(parse(ended.stdout))[-1] == str(rules)


def test_mcp_config_refuses_path_that_is_not_utf8() -> None:
    ended = mcp_config("--", "--guard-rules", "/tmp/\udcff")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "shelld: cannot write a path that is not UTF-8 into a configuration\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "--log-file", "x"], "cannot find the working directory: it was deleted"),
        (["--write", "cursor"], "cannot write .cursor/mcp.json: No such file or directory"),
    ],
)
def test_mcp_config_refuses_files_in_a_deleted_directory(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    program = f"cd {tmp_path}; mkdir gone; cd gone; rmdir ../gone; exec "
    line = shlex.join([sys.executable, "-P", "-m", "shelld", "mcp-config", *arguments])
    ended = subprocess.run(
        ["bash", "-c", program + line], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"shelld: {message}\n"


def test_the_installed_program_is_named_by_its_path() -> None:
    ended = subprocess.run([SCRIPT, "mcp-config"], capture_output=True, text=True, check=True)
    assert command_in(json.loads(ended.stdout)) == [str(SCRIPT)]


@pytest.mark.parametrize("arguments", [["nope"], ["cursor", "more"], ["cursor", "--", "--nope"]])
def test_mcp_config_refuses_bad_arguments(arguments: list[str]) -> None:
    ended = mcp_config(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("usage: ")


def test_examples_equal_printed_configurations() -> None:
    written = {path.stem: path.read_text() for path in EXAMPLES.iterdir()}
    assert written == {name: host.snippet(["shelld"]) + "\n" for name, host in HOSTS.items()}


def read(path: Path) -> Any:
    return (tomllib.loads if path.suffix == ".toml" else json.loads)(path.read_text())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is both the home directory and the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("host", HOSTS)
def test_configuration_is_added_to_an_existing_file(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here([host]) == 0
    printed = capsys.readouterr().out
    assert run_here(["--write", host]) == 0
    written = capsys.readouterr().out.removeprefix("wrote ").strip()
    path = Path(written).expanduser()
    ((key, servers),) = read(path).items()
    assert {key: servers} == (tomllib.loads if path.suffix == ".toml" else json.loads)(printed)
    # An existing file keeps its other entries and its mode. A link to the file stays a link.
    real = home / "real"
    path.unlink()
    path.symlink_to(real)
    other = {"a": 1, key: {"other": {"b": 2}}}
    real.write_text(
        f"a = 1 # kept\n[{key}.other]\nb = 2" if path.suffix == ".toml" else json.dumps(other)
    )
    real.chmod(0o640)
    assert run_here(["--write", host]) == 0
    assert path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert read(path) == {"a": 1, key: {"other": {"b": 2}, **servers}}
    assert [each.name for each in home.iterdir() if each.name.startswith(".real")] == []


@pytest.mark.parametrize("older", [{"command": "older", "env": {"A": "1"}}, "older"])
def test_updated_entry_keeps_what_the_user_has_added(older: object, home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"shelld": older}}))
    assert run_here(["--write", "cursor", "--", "--guard", "strict"]) == 0
    entry = read(path)["mcpServers"]["shelld"]
    assert entry["args"][-2:] == ["--guard", "strict"]
    assert entry["command"] != "older"
    assert entry.get("env") == (older["env"] if isinstance(older, dict) else None)


@pytest.mark.parametrize(
    ("host", "text", "problem"),
    [
        ("zed", "{} // mine", "is not plain JSON; add the configuration by hand"),
        ("zed", "[]", "does not have the expected objects; add the configuration by hand"),
        ("zed", '{"a": 1, "a": 2}', "is not plain JSON; add the configuration by hand"),
        ("zed", '{"a": 1e400}', "is not plain JSON; add the configuration by hand"),
        ("zed", "[" * 100_000, "is not plain JSON; add the configuration by hand"),
        ("zed", r'{"a": "\ud800"}', "is not UTF-8"),
        ("codex", "x = " + "[" * 100_000, "already has an entry for shelld, or is not valid TOML"),
        (
            "zed",
            '{"context_servers": 3}',
            "does not have the expected objects; add the configuration by hand",
        ),
        ("codex", "[mcp_servers.shelld]", "already has an entry for shelld, or is not valid TOML"),
        ("codex", "x = ", "already has an entry for shelld, or is not valid TOML"),
    ],
)
def test_file_that_is_not_understood_stays_unchanged(
    host: str, text: str, problem: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(HOSTS[host].file).expanduser()
    assert path.is_relative_to(home)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert run_here(["--write", host]) == 2
    assert capsys.readouterr().err == f"shelld: {path} {problem}\n"
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("kind", "problem"), [("fifo", "is not a regular file"), ("mode", "is read-only")]
)
def test_file_that_must_not_be_replaced_stays_unchanged(
    kind: str, problem: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".mcp.json"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("{}")
        path.chmod(0o444)
    before = path.stat()
    assert run_here(["--write", "claude"]) == 2
    assert capsys.readouterr().err == f"shelld: {path} {problem}\n"
    assert path.stat() == before


def test_other_text_in_a_file_keeps_its_characters(home: Path) -> None:
    path = home / ".mcp.json"
    path.write_text('{"é": "→"}')
    assert run_here(["--write", "claude"]) == 0
    assert '"é": "→"' in path.read_text(encoding="utf-8")


def test_folder_that_cannot_be_made_is_reported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".codex").touch()
    assert run_here(["--write", "codex"]) == 2
    path = home / ".codex" / "config.toml"
    assert capsys.readouterr().err.startswith(f"shelld: cannot write {path}: ")


@pytest.mark.parametrize("value", ["", "here", None])
def test_file_in_an_unknown_home_is_not_written(
    value: str | None,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "HOME is not an absolute path"
    if value is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
        why = "the user has none"
    else:
        monkeypatch.setenv("HOME", value)

    def write_into(path: Path, *_: object) -> None:
        # Root could write into /.
        pytest.fail(f"{path} was written")

    monkeypatch.setattr("shelld.cli.mcp_config.write_into", write_into)
    assert run_here(["--write", "codex"]) == 2
    expected = f"shelld: cannot find the home directory for ~/.codex/config.toml: {why}\n"
    assert capsys.readouterr().err == expected
    assert [*home.iterdir()] == []
    # A configuration file in the project does not need a home directory.
    monkeypatch.undo()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", "")
    assert run_here(["--write", "claude"]) == 0


def test_writing_needs_a_host(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_here(["--write"])
    assert "--write needs a HOST" in capsys.readouterr().err


def test_aliases_are_other_names_of_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    for alias, name in ALIASES.items():
        assert run_here([alias]) == 0
        shown = capsys.readouterr()
        assert run_here([name]) == 0
        assert capsys.readouterr() == shown
