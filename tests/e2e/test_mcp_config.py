"""``shelld mcp-config`` prints a configuration that starts the daemon, in each host's format."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from shelld.cli.mcp_config import HOSTS
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


def test_file_options_become_absolute_paths(tmp_path: Path) -> None:
    options = ["--guard-rules", "rules.toml", "--audit-log=log", "--guard", "warn"]
    command = command_in(json.loads(mcp_config("--", *options, cwd=tmp_path).stdout))
    expected = ["--guard-rules", f"{tmp_path}/rules.toml", f"--audit-log={tmp_path}/log"]
    assert command[-5:] == [*expected, "--guard", "warn"]


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


def test_mcp_config_refuses_files_in_a_deleted_directory(tmp_path: Path) -> None:
    program = f"cd {tmp_path}; mkdir gone; cd gone; rmdir ../gone; exec "
    line = shlex.join([sys.executable, "-P", "-m", "shelld", "mcp-config", "--", "--log-file", "x"])
    ended = subprocess.run(
        ["bash", "-c", program + line], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "shelld: cannot find the working directory: it was deleted\n"


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
