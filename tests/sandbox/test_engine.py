"""Messages of bubblewrap contain the reason why a sandbox has not started."""

from __future__ import annotations

import pytest

from shelld.sandbox.engine import NO_FILTER, NO_KEEPER, NO_MOUNT, NO_NAMESPACES, Missing, diagnose


@pytest.mark.parametrize(
    ("errors", "missing"),
    [
        (b"bwrap: Creating new namespace failed: Operation not permitted\n", NO_NAMESPACES),
        (b"bwrap: setting up uid map: Permission denied\n", NO_NAMESPACES),
        (b"bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n", NO_NAMESPACES),
        (b"bwrap: prctl(PR_SET_SECCOMP): Invalid argument\n", NO_FILTER),
        (b"bwrap: Can't find source path /gone: No such file or directory\n", NO_MOUNT),
        (b"bwrap: execvp /opt/python: Permission denied\n", NO_KEEPER),
        (b"Could not find platform independent libraries <prefix>\n", NO_KEEPER),
        (b"", NO_KEEPER),
    ],
)
def test_message_of_bubblewrap_tells_the_missing_feature(errors: bytes, missing: Missing) -> None:
    assert diagnose(errors) == missing
