"""Turns the prompt of a task's program into a question to the client. The question is a form.

Owns the keys of a task's questions. A prompt becomes a question only if the kernel proves that the
program waits for input, and if the answer is not a secret. If the program reads from a pipe, or
from a terminal that echoes input, the answer does not count as a secret. A form never asks for a
secret. Instead, the message of the task says that a person must type the secret.

A question lasts as long as its prompt (see `identity_of`). An answer to an earlier question is
ignored, because the client gave it to another prompt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio

from shelld.eventloop.turns import Turns
from shelld.methods.context import RequestContext
from shelld.methods.input import write
from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import (
    PromptIdentity,
    identity_of,
    sentence_of,
    settled_prompt_of,
    takes_input,
    wait_for_prompt,
)
from shelld.waits.watch import time_left
from shelld_protocol.errors import RpcError, invalid_params
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.mcp_tasks import ANSWER_NAME, AnswerForm, ElicitParams, InputRequest
from shelld_protocol.structs import Prompt

# The pause after a check that has found only a likely prompt.
_LIKELY_PAUSE_S: Final = 1.0
_CHECKS_PER_ANSWER: Final = 3

_DECLINED: Final = "; the client gave no answer, and the program still waits"
_NO_FORMS: Final = "; the client cannot show a form"


class Questions:
    """The questions of one task.

    `seen` is the number of the question that the last check has found, or None if there was none.
    `changed_at` is the time.time() at which a question last opened or closed, or 0. `pauses` are
    the pauses between two checks.
    """

    def __init__(self, check_turns: Turns) -> None:
        self.pauses = Pauses(check_turns)
        self.seen: int | None = None
        self.changed_at = 0.0
        # The last question. `_key` is the key of this question until the question is answered or
        # declined. A question for a secret has no key.
        self._last: PromptIdentity | None = None
        self._number = 0
        self._key: str | None = None
        self._is_declined = False
        self._noted_key: str | None = None

    @property
    def _open_key(self) -> str | None:
        return None if self.seen is None else self._key

    async def ask(
        self, shell: Shell, *, forms_allowed: bool
    ) -> tuple[str | None, dict[str, InputRequest] | None]:
        """Find out which answer a program waits for. Return the task's message and the open
        question.
        """
        if takes_input(shell):
            prompt = await self.pauses.check(self._check, shell)
        else:
            prompt = self._check(shell)
        if prompt is None or self.seen is None:
            return None, None
        message = sentence_of(prompt, "a person must type it")
        if self._key is None or not forms_allowed:
            if self._key is not None:
                message += _NO_FORMS
            return message + (_DECLINED if self._is_declined else ""), None
        form = ElicitParams(message=message, mode="form", requested_schema=AnswerForm())
        return message, {self._key: InputRequest(method="elicitation/create", params=form)}

    async def answer(
        self, context: RequestContext, shell: Shell, responses: Mapping[str, object]
    ) -> None:
        """Give the program the client's response to the open question. Ignore other responses.

        Raises `RpcError`: invalid_params, blocked, resource_exhausted. After such an error, the
        question stays open.
        """
        key = self._key
        if key is None or key not in responses:
            return
        text = _answer_in(responses[key], key)
        asked, number, self._key = self._last, self._number, None
        if text is None:
            self._is_declined = True
            self._note_change(shell)
            return

        def is_open() -> bool:
            # Check whether the program still waits. This function must return at once, so it does
            # not wait for its turn to check. If another process writes a line during a check, the
            # result is useless, so try several times.
            checks = (self._check(shell) for _ in range(_CHECKS_PER_ANSWER))
            return any(prompt is not None for prompt in checks) and self._number == number

        params = WriteStdinParams(shell.id, text=f"{text}\n")
        try:
            if not await write(context, shell, params, is_open) and self._number == number:
                # Nothing was written, because the program no longer waited for this answer. If the
                # program asks again, the question gets a new key.
                self._last = None
        except BaseException as error:
            if self._number == number and _is_unanswered(shell, asked):
                # Nothing was written, so the question stays open, even if the request was
                # cancelled.
                self._key = key
            elif isinstance(error, RpcError):
                return
            if isinstance(error, RpcError) and error.data.get("parameter") == "text":
                # The client has sent a response and no parameter `text`, so the error must name the
                # response.
                name = _name_of_answer(key)
                raise invalid_params(error.message.replace("text", name, 1), name) from None
            raise
        finally:
            self._note_change(shell)

    def activity(self, shell: Shell) -> tuple[object, ...]:
        """Return a value that changes whenever the program may have begun to wait for other
        input.
        """
        written_at = None if shell.input is None else shell.input.written_at
        return self._open_key, takes_input(shell), written_at, shell.output.written

    def _note_change(self, shell: Shell) -> None:
        """If a question has opened or closed, note the time and wake all tasks that wait."""
        if self._open_key != self._noted_key:
            self._noted_key, self.changed_at = self._open_key, time.time()
            shell.notify()

    def _check(self, shell: Shell) -> Prompt | None:
        prompt = settled_prompt_of(shell) if takes_input(shell) else None
        if prompt is None or not self._is_asked(shell, prompt):
            self.seen = None
            self._note_change(shell)
            return None
        # While the answer is on its way to the program, the question is not open.
        is_answered = _may_be_asked(prompt) and self._key is None and not self._is_declined
        self.seen = None if is_answered else self._number
        self._note_change(shell)
        return prompt

    def _is_asked(self, shell: Shell, prompt: Prompt) -> bool:
        """Record the question of a prompt. Return False if the prompt is too new."""
        question, last = identity_of(shell, prompt), self._last
        if last is not None and question.is_same(last):
            # If a question is recorded already, do not wait for silence again, because other
            # processes may keep writing.
            self._last = question.since(last)
            return True
        if time_left(prompt) > 0:
            return False
        number = self._number + 1
        key = f"prompt_{number}" if _may_be_asked(prompt) else None
        # Set all of these members in one step. A question without its key would never be asked.
        self._last, self._number, self._key, self._is_declined = question, number, key, False
        return True


async def next_prompt(
    shell: Shell, is_over: Callable[[], bool], pauses: Pauses, *, only_proved: bool = False
) -> None:
    """Wait until a program has waited long enough for input, or until `is_over` returns True."""

    async def watch_prompts() -> None:
        while (prompt := await wait_for_prompt(shell, math.inf, pauses)) is not None:
            left = time_left(prompt)
            if only_proved and prompt.certainty != "proved":
                left = max(left, _LIKELY_PAUSE_S)
            if left <= 0:
                tasks.cancel_scope.cancel()
                return
            await shell.wait_for_news(anyio.current_time() + left)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_prompts)
        await shell.wait_until(is_over)
        tasks.cancel_scope.cancel()


def _may_be_asked(prompt: Prompt) -> bool:
    """Return whether the prompt may become a question to the client. The kernel must prove the
    prompt, and the prompt must not be for a secret.
    """
    return prompt.certainty == "proved" and prompt.echo is not False


def _answer_in(response: object, key: str) -> str | None:
    """Return the text of a response; None if there is none. Raises `RpcError` (invalid_params)."""
    name = f"inputResponses.{key}"
    given = cast("dict[str, Any]", response) if isinstance(response, dict) else {}
    action = given.get("action")
    # Compare with a tuple and not with a set, because the action may have any type, even one
    # without a hash.
    if action in ("decline", "cancel"):
        return None
    if action != "accept":
        actions = "['accept', 'decline', 'cancel']"
        raise invalid_params(f"Invalid value for {name}.action: must be one of {actions}", name)
    content = given.get("content")
    fields = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    # The form has a single member. Some clients answer with another name for this member.
    others = list(fields.values()) if len(fields) == 1 else [None]
    text = fields.get(ANSWER_NAME, others[0])
    if not isinstance(text, str):
        name = _name_of_answer(key)
        raise invalid_params(f"Invalid type for {name}: expected string", name)
    return text


def _name_of_answer(key: str) -> str:
    """Return the full name of the parameter that contains the answer to a question."""
    return f"inputResponses.{key}.content.{ANSWER_NAME}"


def _is_unanswered(shell: Shell, asked: PromptIdentity | None) -> bool:
    """Return True if input can be written to the program and none was written since the question
    was asked.
    """
    stdin = shell.input
    if asked is None or stdin is None or not takes_input(shell):
        return False
    return stdin.written_at == asked.written_at
