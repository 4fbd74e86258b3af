"""Tests which target each session belongs to. The test provides the link to the target."""

from __future__ import annotations

from typing import cast

import pytest

from shelld.targets.link import Link
from shelld.targets.targets import Targets
from shelld_protocol.errors import RpcError
from shelld_protocol.structs import DEFAULT_SESSION


class FailingLink:
    """A link whose `end` fails, and whose `cut` works."""

    is_over = False
    is_cut = False

    async def end(self) -> bool:
        raise MemoryError

    def cut(self) -> None:
        self.is_cut = True


def used(targets: Targets, session: str, target: str) -> int:
    use = targets.use(session, target)
    assert use is not None
    return use


def test_session_is_at_its_target_while_one_request_may_create_it() -> None:
    targets = Targets(lambda _session: False)
    first, second = used(targets, "one", "box"), used(targets, "one", "box")
    targets.settle("one", first, may_exist=False)
    assert targets.place_of("one") == ("box", "")
    with pytest.raises(RpcError, match="is at target box"):
        targets.use("one", "other")
    targets.settle("one", second, may_exist=False)
    assert targets.place_of("one") is None
    targets.use("one", "other")


def test_session_that_exists_stays_although_later_requests_fail() -> None:
    targets = Targets(lambda _session: False)
    targets.settle("one", used(targets, "one", "box"), may_exist=True)
    targets.settle("one", used(targets, "one", "box"), may_exist=False)
    assert targets.place_of("one") == ("box", "")


async def test_late_end_of_a_request_changes_no_new_session_of_the_same_name() -> None:
    targets = Targets(lambda _session: False)
    targets.add("box", ["true"])
    box = targets.get("box")
    assert box is not None
    late = used(targets, "one", "box")
    await targets.remove(box)
    new = used(targets, "one", "other")
    targets.settle("one", late, may_exist=False)
    assert targets.place_of("one") == ("other", "")
    targets.settle("one", late, may_exist=True)
    targets.settle("one", new, may_exist=False)
    assert targets.place_of("one") is None


def test_closed_session_stays_if_a_later_request_uses_its_name() -> None:
    targets = Targets(lambda _session: False)
    targets.use("one", "box")
    before = targets.last_use("one")
    targets.use("one", "box")
    targets.forget_if_unused("one", before)
    assert targets.place_of("one") == ("box", "")
    targets.forget_if_unused("one", targets.last_use("one"))
    assert targets.place_of("one") is None


def test_each_target_has_a_default_session() -> None:
    targets = Targets(lambda _session: True)
    assert targets.use(DEFAULT_SESSION, "box") is None
    assert targets.place_of(DEFAULT_SESSION) is None
    with pytest.raises(RpcError, match="is at this daemon"):
        targets.use("one", "box")


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
