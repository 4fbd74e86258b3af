"""The table of targets, with a link that the test provides."""

from __future__ import annotations

from typing import cast

import pytest

from shelld.targets.link import Link
from shelld.targets.targets import Targets


class FailingLink:
    """A link whose `end` fails, and whose `cut` works."""

    is_over = False
    is_cut = False

    async def end(self) -> bool:
        raise MemoryError

    def cut(self) -> None:
        self.is_cut = True


async def test_link_of_a_removed_target_is_cut_although_its_end_fails() -> None:
    targets = Targets(lambda _session: False)
    targets.add("box", ["true"])
    target = targets.get("box")
    assert target is not None
    link = FailingLink()
    target.link = cast("Link", link)
    with pytest.raises(MemoryError):
        await targets.remove(target)
    assert link.is_cut
    assert targets.get("box") is None
