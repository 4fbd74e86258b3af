"""The moments at which a watcher acts on a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import anyio
import pytest

from shelld.eventloop.turns import Turns
from shelld.shells.shell import SeenPrompt, Shell
from shelld.waits import watch
from shelld_protocol.structs import Prompt


def prompt(*, proved: bool = True, blocking: bool = True, since_ms: int = 60_000) -> Prompt:
    certainty: Literal["proved", "likely"] = "proved" if proved else "likely"
    return Prompt(certainty, blocking, True, True, 1, "program", since_ms, "text")


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (prompt(since_ms=0), 0.15),
        (prompt(since_ms=100), 0.05),
        (prompt(since_ms=150), 0),
        (prompt(blocking=False, since_ms=150), 0.85),
        (prompt(blocking=False, since_ms=1_000), 0),
    ],
)
def test_prompt_of_polling_program_must_last_longer(found: Prompt, seconds: float) -> None:
    assert watch.time_left(found) == pytest.approx(seconds)


class Watched:
    """A shell in which nothing happens. Each check finds the next of `prompts`."""

    def __init__(self, prompts: list[Prompt | None]) -> None:
        self.released = False
        self.released_at: SeenPrompt | None = None
        self.activity = 0, 0.0
        self.silent_s = self.quiet_s = 0.0
        self.checks = 0
        self.acts: list[Any] = []
        self._prompts = prompts

    async def wait_for_news(self, _deadline: float) -> bool:
        await anyio.lowlevel.checkpoint()
        return False

    def check(self, _shell: Shell) -> Prompt | None:
        self.checks += 1
        return self._prompts.pop(0) if self._prompts else None

    def takes_input(self, _shell: Shell) -> bool:
        return bool(self._prompts)

    def release(self) -> bool:
        self.acts.append("release")
        return True

    async def end_tree(self, _number: int, _grace: int, **reason: str) -> list[int]:
        self.acts.append(reason)
        return []


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    def make(*prompts: Prompt | None) -> Watched:
        shell = Watched(list(prompts))
        monkeypatch.setattr(watch, "settled_prompt_of", shell.check)
        monkeypatch.setattr(watch, "takes_input", shell.takes_input)
        return shell

    return make


async def test_only_a_proved_prompt_counts(watched: Callable[..., Watched]) -> None:
    shell = watched(None, prompt(proved=False), prompt(), None)
    await watch.watch(cast(Shell, shell), "kill", 0, Turns())
    assert (shell.checks, shell.acts) == (3, [{"reason": "prompt"}])


async def test_prompt_waits_for_silence(watched: Callable[..., Watched]) -> None:
    shell = watched(prompt(since_ms=10), prompt(since_ms=149), prompt(since_ms=150), None)
    await watch.watch(cast(Shell, shell), "background", 0, Turns())
    assert (shell.checks, shell.acts) == (3, ["release"])
    assert shell.released_at is not None
    assert shell.released_at[:2] == (prompt(since_ms=150), shell.activity)


async def test_watch_ends_when_the_input_closes(watched: Callable[..., Watched]) -> None:
    shell = watched(None, None)
    await watch.watch(cast(Shell, shell), "kill", 0, Turns())
    assert (shell.checks, shell.acts) == (2, [])


@pytest.mark.parametrize("on_prompt", ["kill", "background"])
async def test_command_handed_over_during_a_check_is_not_killed(
    watched: Callable[..., Watched],
    monkeypatch: pytest.MonkeyPatch,
    on_prompt: Literal["kill", "background"],
) -> None:
    shell = watched(prompt())

    def check(_shell: Shell) -> Prompt | None:
        shell.released = True
        return shell.check(_shell)

    monkeypatch.setattr(watch, "settled_prompt_of", check)
    await watch.watch(cast(Shell, shell), on_prompt, 0, Turns())
    assert (shell.checks, shell.acts) == (1, [])
