"""Sessions that leave out a part of the daemon's environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support import RawDaemon, raw_daemon

SECRET = "do-not-show"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/",
    "GITHUB_TOKEN": SECRET,
    "CI": "true",
    "SHELLOPTS": "braceexpand",
}


@pytest.fixture(scope="module", params=[0, 4], ids=["without spares", "with spares"])
def daemon(request: pytest.FixtureRequest) -> Iterator[RawDaemon]:
    with raw_daemon("--spare-shells", str(request.param), env=ENVIRONMENT) as running:
        yield running


@pytest.fixture
def session(daemon: RawDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    yield name
    daemon.call("close_session", {"session": name})


def test_entry_without_a_name_is_left_out() -> None:
    with raw_daemon("--spare-shells", "0", env={**ENVIRONMENT, "": SECRET}) as daemon:
        for params in ({}, {"env": {"A": "1"}}, {"session": None}):
            result = daemon.bash("x=1; cat /proc/self/environ", **params)
            assert "CI=true" in result["stdout"]
            assert SECRET not in result["stdout"].replace(f"GITHUB_TOKEN={SECRET}", "")


def configure(daemon: RawDaemon, session: str, **env: Any) -> Any:
    return daemon.call("configure_session", {"session": session, "env": env})


def test_commands_of_a_session_do_not_see_removed_variables(
    daemon: RawDaemon, session: str
) -> None:
    answer = configure(daemon, session, remove=["*_TOKEN"])
    assert answer == {"session": session, "removed": ["GITHUB_TOKEN"]}
    # The commands follow each other without a pause, so spare shells run some of them. Each command
    # changes the session's state.
    for number in range(6):
        look = f"x={number}; env; tr '\\0' '\\n' < /proc/$$/environ; set; bash -c env"
        result = daemon.bash(look, session=session)
        assert SECRET not in result["stdout"]
        assert "CI=true\n" in result["stdout"]
        # Other sessions still have the variable.
        assert daemon.bash("printenv GITHUB_TOKEN")["stdout"] == f"{SECRET}\n"
    assert daemon.bash("printenv GITHUB_TOKEN", session=None)["stdout"] == f"{SECRET}\n"
    state = daemon.call("get_session", {"session": session})
    assert (state["env"], state["removed"]) == ({}, ["GITHUB_TOKEN"])
    assert "removed" not in daemon.call("get_session", {"session": "main"})


def test_core_leaves_only_usual_variables(daemon: RawDaemon, session: str) -> None:
    answer = configure(daemon, session, mode="core", keep=["C?"], remove=["HOME"])
    assert answer["removed"] == ["GITHUB_TOKEN", "HOME"]
    names = daemon.bash("env | cut -d= -f1 | sort", session=session)["stdout"].split()
    assert names == ["CI", "PATH", "PWD", "SHLVL", "_"]


def test_session_can_set_a_removed_variable(daemon: RawDaemon, session: str) -> None:
    configure(daemon, session, remove=["*_TOKEN"])
    given = {"env": {"GITHUB_TOKEN": "given"}, "session": session}
    assert daemon.bash("printenv GITHUB_TOKEN", **given)["stdout"] == "given\n"
    assert daemon.bash("printenv GITHUB_TOKEN", session=session)["stdout"] == ""
    daemon.bash("export GITHUB_TOKEN=own", session=session)
    assert daemon.bash("printenv GITHUB_TOKEN", session=session)["stdout"] == "own\n"


def test_rules_hold_until_the_session_is_closed(daemon: RawDaemon, session: str) -> None:
    configure(daemon, session, remove=["CI"])
    # The rules can be replaced until the session has run its first command.
    assert configure(daemon, session, remove=["*_TOKEN"])["removed"] == ["GITHUB_TOKEN"]
    daemon.bash("true", session=session)
    daemon.call("close_session", {"session": session})
    assert daemon.bash("printenv GITHUB_TOKEN", session=session)["stdout"] == f"{SECRET}\n"


@pytest.mark.parametrize("in_background", [False, True])
def test_session_that_has_run_a_command_is_refused(
    daemon: RawDaemon, session: str, in_background: bool
) -> None:
    daemon.bash("true", session=session, run_in_background=in_background)
    error = daemon.fail("configure_session", {"session": session, "env": {"mode": "core"}})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "session")
    assert daemon.bash("printenv CI", session=session)["stdout"] == "true\n"


def test_blocked_command_does_not_use_a_session(daemon: RawDaemon, session: str) -> None:
    assert daemon.fail("bash", {"command": "mkfs /dev/none", "session": session})["code"] == 1002
    assert configure(daemon, session, remove=["CI"])["removed"] == ["CI"]


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({}, "session"),
        ({"session": None}, "session"),
        ({"session": "x", "env": []}, "env"),
        ({"session": "x", "env": {"mode": "none"}}, "env.mode"),
        ({"session": "x", "env": {"remove": "CI"}}, "env.remove"),
        ({"session": "x", "env": {"remove": ["A", 1]}}, "env.remove"),
        ({"session": "x", "env": {"remove": ["A"] * 101}}, "env.remove"),
        ({"session": "x", "env": {"keep": ["A" * 65]}}, "env.keep"),
        ({"session": "x", "env": {"remove": [""]}}, "env.remove"),
        ({"session": "x", "env": {"keep": ["A", "a b"]}}, "env.keep"),
        ({"session": "x", "env": {"keep": ["A\n"]}}, "env.keep"),
        ({"session": "x", "env": {"remove": ["[A-Z]*"]}}, "env.remove"),
        ({"session": "x", "env": {"other": []}}, "env.other"),
        ({"session": "x", "others": {}}, "others"),
    ],
)
def test_wrong_rules_are_invalid_params(daemon: RawDaemon, params: Any, parameter: str) -> None:
    error = daemon.fail("configure_session", params)
    assert (error["code"], error["data"].get("parameter")) == (-32602, parameter)
    # The refused call has created no session.
    assert daemon.fail("get_session", {"session": "x"})["code"] == 1007


@pytest.mark.slow
def test_core_option_applies_to_all_sessions() -> None:
    with raw_daemon("--env", "core", env=ENVIRONMENT) as daemon:
        for session in ("main", "other", None):
            assert SECRET not in daemon.bash("env; set", session=session)["stdout"]
        assert daemon.call("get_session")["removed"] == ["CI", "GITHUB_TOKEN"]
        # A session without a mode of its own has the daemon's mode.
        assert configure(daemon, "new", keep=["CI"])["removed"] == ["GITHUB_TOKEN"]
        assert configure(daemon, "new", mode="inherit") == {"session": "new"}
        assert daemon.bash("printenv GITHUB_TOKEN", session="new")["stdout"] == f"{SECRET}\n"


@pytest.mark.slow
def test_shared_spare_shell_is_not_for_a_configured_session() -> None:
    with raw_daemon(env=ENVIRONMENT) as daemon:
        daemon.bash("true")
        shared = daemon.wait_for_spare()
        configure(daemon, "new", remove=["*_TOKEN"])
        result = daemon.bash("echo $$; tr '\\0' '\\n' < /proc/$$/environ", session="new")
        assert SECRET not in result["stdout"]
        assert int(result["stdout"].split()[0]) != shared


@pytest.mark.slow
def test_configured_session_has_spare_shells_of_its_own() -> None:
    with raw_daemon(env=ENVIRONMENT) as daemon:
        configure(daemon, "new", remove=["*_TOKEN"])
        daemon.bash("true", session="new")
        spare = daemon.wait_for_spare()
        assert daemon.bash("echo $$", session="new")["stdout"] == f"{spare}\n"
