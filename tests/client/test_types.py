"""Type checkers infer these types for results. `make types` fails if they infer other types."""

from __future__ import annotations

from typing import Literal, assert_type

import pytest

from shelld_client import AsyncClient, BackgroundResult, BashResult, Client, DryRunResult

Way = Literal["kill", "background"]


@pytest.mark.parametrize(("flag", "way"), [(False, "kill"), (True, "background")])
def test_result_type_follows_the_flags(flag: bool, way: Way) -> None:
    background = BackgroundResult if flag else BashResult
    with Client.spawn() as shell:
        assert_type(shell.bash("true"), BashResult)
        assert_type(shell.bash("true", run_in_background=True), BackgroundResult)
        assert_type(shell.bash("true", dry_run=True), DryRunResult)
        moved = shell.bash("true", on_timeout=way)
        assert isinstance(assert_type(moved, BashResult | BackgroundResult), BashResult)
        started = shell.bash("true", run_in_background=flag)
        assert isinstance(assert_type(started, BashResult | BackgroundResult), background)
        asked = shell.bash("true", dry_run=flag)
        assert_type(asked, BashResult | BackgroundResult | DryRunResult)
        assert isinstance(asked, DryRunResult if flag else BashResult)


@pytest.mark.parametrize(("flag", "way"), [(False, "kill"), (True, "background")])
async def test_awaited_result_type_follows_the_flags(flag: bool, way: Way) -> None:
    background = BackgroundResult if flag else BashResult
    async with AsyncClient.spawn() as shell:
        assert_type(await shell.bash("true"), BashResult)
        assert_type(await shell.bash("true", run_in_background=True), BackgroundResult)
        assert_type(await shell.bash("true", dry_run=True), DryRunResult)
        moved = await shell.bash("true", on_timeout=way)
        assert isinstance(assert_type(moved, BashResult | BackgroundResult), BashResult)
        started = await shell.bash("true", run_in_background=flag)
        assert isinstance(assert_type(started, BashResult | BackgroundResult), background)
        asked = await shell.bash("true", dry_run=flag)
        assert_type(asked, BashResult | BackgroundResult | DryRunResult)
        assert isinstance(asked, DryRunResult if flag else BashResult)


class OwnClient(Client):
    pass


class OwnAsyncClient(AsyncClient):
    pass


async def test_entering_a_subclass_returns_its_type() -> None:
    with OwnClient.spawn() as shell:
        assert type(assert_type(shell, OwnClient)) is OwnClient
    async with OwnAsyncClient.spawn() as async_shell:
        assert type(assert_type(async_shell, OwnAsyncClient)) is OwnAsyncClient
