"""The methods of sessions through both clients, against a real daemon."""

from __future__ import annotations

import pytest

from both_clients import Spawn
from shelld_client import EnvironmentRules, InvalidParams


async def test_session_is_configured_before_its_first_command(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "secret")
    rules = EnvironmentRules(remove=["*_TOKEN"], keep=["PATH"])
    async with spawn() as shell:
        assert "DEPLOY_TOKEN" in (await shell.configure_session("mine", env=rules)).removed
        result = await shell.bash("echo ${DEPLOY_TOKEN-unset}", session="mine")
        assert result.stdout == "unset\n"
        assert "DEPLOY_TOKEN" in (await shell.get_session("mine")).removed
        with pytest.raises(InvalidParams, match="has run a command"):
            await shell.configure_session("mine", env=rules)
        with pytest.raises(InvalidParams):
            await shell.configure_session("other", env=EnvironmentRules(remove=["a b"]))
