"""`attach` of both clients connects to a daemon that outlives its client."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from lasting import Lasting, lasting_user
from shelld_client import AsyncClient, Client, DaemonExited

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    with lasting_user(tmp_path) as user:
        yield user


async def test_shells_outlive_the_client(user: Lasting) -> None:
    options = ["--max-shells", "7"]
    async with AsyncClient.attach("work", linger=60, args=options, env=user.env) as first:
        job = await first.bash("echo out; sleep 300", run_in_background=True)
        done = await first.bash("date +%N", idempotency_key="once", on_disconnect="kill")
        with (
            pytest.raises(DaemonExited, match="another client is attached") as caught,
            Client.attach("work", env=user.env),
        ):
            pass
        assert caught.value.exit_code == 4
    with Client.attach("work", env=user.env) as second:
        info = second.server_info()
        assert info.limits.max_shells == 7
        assert info.attachment is not None
        assert (info.attachment.name, info.attachment.linger_s) == ("work", 60)
        assert second.bash_output(job.bash_id, stdout_offset=0).stdout == "out\n"
        assert second.bash("date +%N", idempotency_key="once").stdout == done.stdout
        async with AsyncClient.attach("work", steal=True, env=user.env) as thief:
            await thief.kill_shell(job.bash_id, grace=0)
            with pytest.raises(DaemonExited, match="has taken the daemon work"):
                second.ping()
