"""Options from variables and from a file get the same checks. Errors name the variable or file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from shelld.cli.explain import explain
from shelld.cli.parser import option_parser, parse_options
from shelld.cli.settings import settings_of, variable_of
from shelld.process.options import Options
from shelld_protocol import ResourceLimits
from support import RawDaemon

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
# Each option has a valid value here that differs from the default.
SAMPLES = {
    action.option_strings[0].removeprefix("--"): (
        "1"
        if action.nargs == 0
        else "processes=7"
        if action.metavar == "NAME=VALUE"
        else "box=true"
        if action.metavar == "NAME=ARGV"
        else "read-only"
        if action.metavar == "POLICY"
        else next(each for each in action.choices if each != action.default)
        if action.choices is not None
        else "/x"
        if action.metavar in ("FILE", "DIR", "PATH")
        else str(action.default + 1)
    )
    for action in settings_of(option_parser()).values()
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "shelld.toml"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Check that the options are refused; return the last line on stderr, without its prefix."""
    with pytest.raises(SystemExit) as exited:
        parse_options(arguments)
    assert exited.value.code == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("shelld: error: ")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_option_can_come_from_a_variable_or_the_file(
    name: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES[name]
    action = settings_of(option_parser())[name]
    switch = action.nargs == 0
    given = parse_options([f"--{name}"] if switch else [f"--{name}", sample])
    assert given != Options()
    value = "true" if switch else f'"{sample}"'
    if action.metavar in ("NAME=VALUE", "NAME=ARGV"):
        inner, _, text = sample.partition("=")
        value = f'{{ {inner} = "{text}" }}'
    for key in (name, name.replace("-", "_")):
        config.write_text(f"{key} = {value}\n")
        assert parse_options(["--config", str(config)]) == given
    monkeypatch.setenv(variable_of(name), sample)
    assert parse_options([]) == given


def test_command_line_wins_over_variables_and_those_over_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(
        'guard = "off"\ngrace = 1\nmax-shells = 1\ninteractive-tools = true\n'
        "limit.processes = 11\nlimit.open_files = 100\n"
    )
    monkeypatch.setenv("SHELLD_CONFIG", str(config))
    monkeypatch.setenv("SHELLD_GUARD", "warn")
    monkeypatch.setenv("SHELLD_GRACE", "2")
    monkeypatch.setenv("SHELLD_INTERACTIVE_TOOLS", "no")
    monkeypatch.setenv("SHELLD_LIMIT", "processes=12, cpu_seconds=5")
    # Other programs may use such names, and an empty variable counts as unset.
    monkeypatch.setenv("SHELLD_UNKNOWN", "x")
    monkeypatch.setenv("SHELLD_MAX_RETAINED", "")
    assert parse_options(["--guard", "strict", "--limit", "cpu_seconds=6"]) == Options(
        guard="strict",
        grace=2,
        max_shells=1,
        limits=ResourceLimits(processes=12, open_files=100, cpu_seconds=6),
    )


def test_paths_in_a_file_are_relative_to_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('guard-rules = "rules.toml"\nbash = "/bin/bash"\n')
    monkeypatch.chdir("/")
    options = parse_options(["--config", os.path.relpath(config)])
    assert options.sandbox is None
    assert options.guard_rules == str(tmp_path / "rules.toml")
    assert options.bash == "/bin/bash"


def test_targets_of_a_stronger_source_replace_the_others(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('target = { a = "ssh a shelld", b = "ssh b shelld" }\n')
    monkeypatch.setenv("SHELLD_CONFIG", str(config))
    in_file = (("a", ("ssh", "a", "shelld")), ("b", ("ssh", "b", "shelld")))
    assert parse_options([]).targets == in_file
    monkeypatch.setenv("SHELLD_TARGET", "b=shelld\nc=shelld --env core\n")
    assert parse_options([]).targets == (("b", ("shelld",)), ("c", ("shelld", "--env", "core")))
    assert parse_options(["--target", "b=x"]).targets == (("b", ("x",)),)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("\n# x\nmax-shell = 3\n", 3, "unknown key: max-shell; did you mean max-shells?"),
        ("parent-pid = 3\n", 1, "unknown key: parent-pid"),
        ("zzz.x = 3\n", 1, "unknown key: zzz"),
        ("\n[zzz]\nguard = 3\n", 2, "unknown key: zzz"),
        ('config = "x"\n', 1, "unknown key: config"),
        ('grace = 1\n"guard" = "x"\n', 2, "guard: invalid choice: 'x' (choose from "),
        ("max-shells = 0\n", 1, "max-shells: invalid integer from 1 to 1000000 value: '0'"),
        ("max-shells = 1.5\n", 1, "max-shells: must be text or a whole number"),
        ("max-shells = true\n", 1, "max-shells: must be text or a whole number"),
        ("interactive-tools = 1\n", 1, "interactive-tools: must be true or false"),
        ("limit = 1\n", 1, "limit: must be a table of names and values"),
        ("\n[limit]\nx = 1\n", 2, "limit: no such limit: x; one of "),
        ('sandbox = "x"\n', 1, "sandbox: "),
        ('[sandbox]\nmode = "workspace"\n', 1, "sandbox: must be text or a whole number"),
        ("grace = 1\ngrace = 2\n", 2, "not valid TOML"),
        ("max-shells = 1\nmax_shells = 2\n", 2, "max_shells: given twice"),
        ('[target]\n"a=b" = "x"\n', 1, "target: a name cannot contain =: a=b"),
        ("grace = \n", 1, "not valid TOML"),
    ],
)
def test_error_in_a_file_names_file_and_line(
    text: str, line: int, problem: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    assert refused(capsys, "--config", str(config)).startswith(f"{config}:{line}: {problem}")


def test_deeply_nested_file_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("x = " + "[" * 100_000)
    assert (
        refused(capsys, "--config", str(config)) == f"{config}:1: the values are nested too deeply"
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SHELLD_GUARD", "x", "invalid choice: 'x' (choose from "),
        ("SHELLD_MAX_SHELLS", "many", "invalid integer from 1 to 1000000 value: 'many'"),
        ("SHELLD_INTERACTIVE_TOOLS", "2", "must be 1 or 0, not '2'"),
        ("SHELLD_LIMIT", "processes=1", "processes takes a number from 2 to "),
    ],
)
def test_error_in_a_variable_names_the_variable(
    name: str,
    value: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert refused(capsys).startswith(f"{name}: {problem}")


def test_configuration_that_is_no_readable_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing", ""):
        path = tmp_path / name
        assert refused(capsys, "--config", str(path)) == f"the configuration {path} is not a file"
    (tmp_path / "binary").write_bytes(b"\xff")
    problem = refused(capsys, "--config", str(tmp_path / "binary"))
    assert problem == f"{tmp_path}/binary:1: not UTF-8"


def test_daemon_and_explain_use_variables_and_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = config.with_name("rules.toml")
    rules.write_text('allow = ["rm -rf /"]\n')
    config.write_text('max-shells = 3\nguard-rules = "rules.toml"\n')
    monkeypatch.setenv("SHELLD_CONFIG", str(config))
    monkeypatch.setenv("SHELLD_DEFAULT_TIMEOUT", "4000")
    daemon = RawDaemon()
    limits = daemon.call("server_info")["limits"]
    assert (limits["maxShells"], limits["defaultTimeoutMs"]) == (3, 4000)
    daemon.close()
    assert explain(["rm -rf /"]) == 0


def test_file_of_the_documentation_is_valid(config: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    config.write_text(text)
    options = parse_options(["--config", str(config)])
    assert options.guard_rules == str(config.with_name("rules.toml"))
    assert options == Options(
        guard="strict",
        guard_rules=options.guard_rules,
        max_shells=32,
        retain_bytes=256 * 2**20,
        interactive_tools=True,
        targets=(("box", ("ssh", "box", "shelld")),),
        limits=ResourceLimits(memory_bytes=2 * 2**30, processes=100),
    )
