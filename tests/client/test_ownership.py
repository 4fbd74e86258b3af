"""The client knows which request owns a subscription, whatever the order in which requests begin,
are answered and end.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld_client import calls
from shelld_client.connection import Connection
from shelld_client.errors import ShellError
from shelld_client.mailbox import Mailbox
from shelld_client.ongoing import Ongoing
from shelld_client.ownership import Ownership

NAME = "sub_1"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["continue", "answer", "interrupt", "refuse", "leave"]),
            st.integers(0, 5),
        )
    )
)
def test_subscription_ends_once_when_nobody_needs_it(steps: list[tuple[str, int]]) -> None:
    """If everything happens in one thread, the subscription ends exactly when its owner and all
    readers that could inherit it have left.
    """
    ownership = Ownership()
    ownership.claim(NAME, 1)
    owner: int | None = 1
    heirs: list[int] = []
    number = 1
    is_ended = False
    for action, which in steps:
        if is_ended:
            break
        if action == "continue":
            number += 1
            ownership.expect(NAME, number)
            heirs.append(number)
        elif action == "leave" and owner is not None and not which:
            must_end = ownership.leave(NAME, owner)
            owner = None
            is_ended = not heirs
            assert must_end == is_ended
        elif heirs:
            heir = heirs.pop(which % len(heirs))
            if action == "answer":
                assert ownership.claim(NAME, heir) == owner
                owner = heir
            elif action == "interrupt":
                before = ownership.claim(NAME, heir)
                assert before == owner
                if before is not None:
                    ownership.give_back(NAME, heir, before)
                must_end = ownership.leave(NAME, heir)
                is_ended = owner is None and not heirs
                assert must_end == is_ended
            else:
                must_end = ownership.leave(NAME, heir)
                is_ended = owner is None and not heirs
                assert must_end == is_ended


def test_subscription_that_is_given_back_survives_a_request_that_fails() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    assert ownership.claim(NAME, 2) == 1
    ownership.give_back(NAME, 2, 1)
    assert not ownership.leave(NAME, 2)
    ownership.expect(NAME, 3)
    assert not ownership.leave(NAME, 3)
    assert ownership.leave(NAME, 1)


def test_subscription_ends_if_given_back_to_a_reader_that_has_left() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    assert ownership.claim(NAME, 2) == 1
    assert not ownership.leave(NAME, 1)
    ownership.give_back(NAME, 2, 1)
    assert ownership.leave(NAME, 2)


def test_failed_request_for_the_end_is_repeated() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    assert ownership.leave(NAME, 1)
    assert ownership.leave(NAME, 1)
    ownership.ended(NAME)
    assert not ownership.leave(NAME, 1)


def test_subscription_that_is_being_ended_cannot_be_continued() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    assert ownership.leave(NAME, 1)
    with pytest.raises(ShellError, match="was ended"):
        ownership.expect(NAME, 2)
    ownership.ended(NAME)
    # Now the daemon answers that the subscription does not exist.
    ownership.expect(NAME, 3)


def test_request_that_may_never_be_answered_keeps_no_subscription() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    ownership.expect(NAME, 2)
    assert not ownership.renounce(NAME, 2)
    assert ownership.leave(NAME, 1)


def test_request_answered_before_it_is_renounced_can_give_back() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    ownership.expect(NAME, 2)
    assert ownership.claim(NAME, 2) == 1
    # The answer to request 2 came in another thread.
    assert not ownership.renounce(NAME, 2)
    ownership.give_back(NAME, 2, 1)
    assert not ownership.leave(NAME, 2)
    assert ownership.leave(NAME, 1)


def test_request_that_is_no_longer_the_owner_gives_nothing_back() -> None:
    ownership = Ownership()
    ownership.claim(NAME, 1)
    assert ownership.claim(NAME, 2) == 1
    assert ownership.claim(NAME, 3) == 2
    ownership.give_back(NAME, 2, 1)
    assert not ownership.leave(NAME, 2)
    assert not ownership.leave(NAME, 1)
    assert ownership.leave(NAME, 3)
    ownership.ended(NAME)
    assert not any(vars(ownership).values())


def continuation(connection: Connection[Mailbox]) -> Ongoing:
    """Send a request that continues the subscription."""
    return Ongoing(
        connection,
        lambda _frame: None,
        Mailbox(),
        calls.subscribe({"subscription": NAME}),
        check=lambda: None,
        check_taker=lambda: None,
    )


def test_interrupted_continuation_is_undone_once_and_leaves_nothing() -> None:
    connection: Connection[Mailbox] = Connection()
    given_back = list[str]()

    class Recording(Ownership):
        def give_back(self, subscription: str, request_id: int, reader: int) -> None:
            given_back.append(subscription)
            super().give_back(subscription, request_id, reader)

    ownership, reader = Recording(), connection.new_id()
    connection.ownership = ownership
    ownership.claim(NAME, reader)
    ongoing = continuation(connection)
    answer = b'{"jsonrpc":"2.0","id":2,"result":{"subscription":"%s"}}\n' % NAME.encode()
    for mailbox, result in connection.receive(answer):
        mailbox.put(result)
    # The request is abandoned twice: by the end of the `with` block, and by the finaliser.
    ongoing.abandon()
    ongoing.abandon()
    assert given_back == [NAME]
    assert ownership.leave(NAME, reader)
    ownership.ended(NAME)
    assert not any(vars(ownership).values())


def test_request_that_has_withdrawn_claims_nothing_when_it_is_answered() -> None:
    connection: Connection[Mailbox] = Connection()
    ongoing = continuation(connection)
    ongoing.withdraw()
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"subscription":"%s"}}\n' % NAME.encode()
    for mailbox, result in connection.receive(answer):
        mailbox.put(result)
    assert not connection.ownership.has_reader(NAME)
    assert not any(vars(connection.ownership).values())
