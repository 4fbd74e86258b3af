"""Hide a process of this user, as hidepid in proc(5) hides the processes of other users."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


def hide_process(patch: pytest.MonkeyPatch, pid: int, refusal: type[OSError]) -> None:
    """Make each access to the files of a process in /proc fail with `refusal`."""

    def without(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *others: Any) -> Any:
            if str(path).startswith(f"/proc/{pid}/"):
                raise refusal
            return function(path, *others)

        return call

    for name in ("open", "readlink", "listdir", "stat"):
        patch.setattr(os, name, without(getattr(os, name)))
