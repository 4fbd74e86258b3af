"""Sessions and idempotency keys through both clients, against a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from both_clients import Spawn
from shelld_client import (
    EnvironmentRules,
    InvalidParams,
    ResourceLimits,
    SandboxPolicy,
    Unavailable,
)


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
        with pytest.raises(InvalidParams, match="has already started a command"):
            await shell.configure_session("mine", env=rules)
        with pytest.raises(InvalidParams):
            await shell.configure_session("other", env=EnvironmentRules(remove=["a b"]))


async def test_session_is_limited_before_its_first_command(spawn: Spawn) -> None:
    limits = ResourceLimits(open_files=64, cpu_seconds=100)
    async with spawn(args=["--limit", "open_files=128"]) as shell:
        assert (await shell.configure_session("mine", limits=limits)).limits == limits
        result = await shell.bash("ulimit -n", session="mine")
        assert result.stdout == "64\n"
        assert (result.limits.cpu, result.limits.open_files) == ("watch", "rlimit")
        assert (await shell.get_session("mine")).limits == limits
        assert (await shell.get_session()).limits == ResourceLimits(open_files=128)
        with pytest.raises(InvalidParams, match="exceeds maximum: 128"):
            await shell.configure_session("other", limits=ResourceLimits(open_files=129))


async def test_settings_of_a_session_can_be_plain_mappings(spawn: Spawn) -> None:
    async with spawn() as shell:
        limits: Any = {"open_files": 64}
        rules: Any = {"mode": "core"}
        configured = await shell.configure_session("mine", env=rules, limits=limits)
        assert configured.limits == ResourceLimits(open_files=64)
        wrong: Any = {"open_file": 64}
        with pytest.raises(InvalidParams, match=r"Unknown parameter: limits\.open_file"):
            await shell.configure_session("other", limits=wrong)


async def test_repeated_call_with_a_key_starts_nothing(spawn: Spawn) -> None:
    async with spawn() as shell:
        first = await shell.bash("date +%N", idempotency_key="once")
        again = await shell.bash("date +%N", idempotency_key="once")
        assert (again.bash_id, again.stdout) == (first.bash_id, first.stdout)
        with pytest.raises(InvalidParams, match="another command has this key"):
            await shell.bash("true", idempotency_key="once")


async def test_session_is_put_into_a_sandbox_before_its_first_command(
    spawn: Spawn, tmp_path: Path
) -> None:
    async with spawn() as shell:
        policy = SandboxPolicy(mode="read-only", deny_read=[str(tmp_path)])
        try:
            configured = await shell.configure_session("mine", sandbox=policy)
        except Unavailable:
            # This machine has no sandboxes, so nothing runs.
            with pytest.raises(Unavailable):
                await shell.bash("true", session="mine")
            return
        assert configured.sandbox.deny_read == [str(tmp_path)]
        result = await shell.bash("touch /etc/new", session="mine")
        assert (result.exit_code, result.sandbox.files) == (1, "read-only")
        with pytest.raises(InvalidParams, match="looser"):
            await shell.bash("true", session="mine", sandbox=SandboxPolicy(network="full"))


async def test_results_say_what_the_network_of_a_sandbox_refused(spawn: Spawn) -> None:
    async with spawn() as shell:
        policy = SandboxPolicy(network="hosts", hosts=["pypi.org:443"])
        try:
            configured = await shell.configure_session("mine", sandbox=policy)
        except Unavailable:
            # This machine has no sandboxes.
            return
        assert configured.sandbox.hosts == ["pypi.org:443"]
        ask = (
            r"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT a.invalid:1 HTTP/1.1\r\n\r\n' >&3; "
            "read -r _ status _ <&3; echo $status"
        )
        result = await shell.bash(ask, session="mine")
        assert (result.stdout, result.sandbox.network) == ("403\n", "hosts")
        (denied,) = result.denied
        assert (denied.host, denied.port, denied.count) == ("a.invalid", 1, 1)
        assert (await shell.bash("true", session="mine")).denied is None
