"""The ten tasks with shelld."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import anyio

from shelld_client import AsyncClient, Client, DaemonExited
from ten_tasks import commands
from ten_tasks.commands import Model


def run() -> tuple[int | None, str]:
    with Client.spawn() as shell:
        result = shell.bash(commands.RUN)
        return result.exit_code, result.stdout


def follow(show: Callable[[str], None]) -> None:
    with Client.spawn() as shell:
        shell.bash(commands.FOLLOW, on_output=lambda event: show(event.text))


def serve(port: int, use: Callable[[], object]) -> None:
    with Client.spawn() as shell, shell.start(commands.SERVE.format(port=port)) as job:
        job.wait_for(port=port, timeout=30)
        use()


def answer() -> str:
    with Client.spawn() as shell, shell.start(commands.ASK, tty=True) as job:
        job.wait_for(commands.QUESTION, timeout=30)
        job.write("yes\n")
        return job.wait().stdout


def cancel(is_told: Callable[[str], object]) -> str:
    with Client.spawn() as shell, shell.start(commands.TREE) as job:
        is_told(job.wait_for("started").line or "")
        job.kill()
        return job.wait().stdout


def page(show: Callable[[str], None]) -> None:
    with Client.spawn() as shell, shell.start(commands.LONG) as job:
        job.wait()
        while part := job.output(max_bytes=commands.PAGE_BYTES).stdout:
            show(part)


def many() -> list[str]:
    with Client.spawn() as shell, ThreadPoolExecutor(len(commands.MANY)) as threads:
        begun = [threads.submit(shell.bash, each, session=None) for each in commands.MANY]
        return [each.result().stdout for each in begun]


def restart(end: Callable[[int], object]) -> str:
    async def run_all() -> str:
        async with AsyncClient.spawn(restart=True, keep_directories=True) as shell:
            await shell.bash("cd /usr")
            end(shell.pid)
            try:
                return (await shell.bash("pwd")).stdout
            except DaemonExited:
                return (await shell.bash("pwd")).stdout

    return anyio.run(run_all)


def give_tools(model: Model) -> None:
    with Client.spawn() as shell:
        text = None
        while call := model(shell.tool_schemas("openai"), text):
            text = shell.call_tool(*call).to_display()


def fetch() -> bytes | None:
    with Client.spawn() as shell, shell.start(commands.BINARY) as job:
        job.wait()
        return job.output(encoding="base64").stdout_data
