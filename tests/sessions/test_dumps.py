"""The files to which bashes write their state."""

from __future__ import annotations

from shelld.sessions.dumps import DumpFiles


def test_file_given_back_twice_is_used_once() -> None:
    files = DumpFiles()
    first = files.take()
    # If something fails after the daemon has given a file back, the daemon gives the same file back
    # again.
    files.give_back(first)
    files.give_back(first)
    taken = [files.take(), files.take()]
    assert taken[0] == first != taken[1]
    for descriptor in taken:
        files.give_back(descriptor)
    files.close()
