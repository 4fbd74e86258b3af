"""The view of private directories in a sandbox, such as the directories for temporary files."""

from __future__ import annotations

import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.sandbox import view as module
from shelld.sandbox.policy import resolved
from shelld.sandbox.view import View, view_of
from shelld_protocol.sandboxes import SandboxPolicy


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A directory that a sandbox hides."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def view(policy: SandboxPolicy, directory: Path, *needed: Path, sockets: tuple[Path, ...]) -> View:
    found = resolved(policy, str(directory), "auto")
    assert found is not None
    return view_of(found, frozenset(map(str, sockets)), map(str, needed))


def test_a_socket_beside_files_that_shelld_needs_is_hidden(hidden: Path) -> None:
    names = [hidden / "needed/socket", hidden / "workspace/socket", hidden / "socket"]
    for path in names:
        path.parent.mkdir(exist_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    policy = SandboxPolicy(mode="read-only")
    found = view(policy, hidden / "workspace", hidden / "needed", sockets=tuple(names))
    # The sandbox does not show the directory of the third socket at all.
    assert found.sockets == set(map(str, names[:2]))


def test_a_socket_under_another_name_than_the_listed_one_is_hidden(hidden: Path) -> None:
    for name in ("workspace", "beside"):
        (hidden / name).mkdir()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(hidden / name / "first"))
        (hidden / name / "first").rename(hidden / name / "second")
    listed = (hidden / "workspace/first", hidden / "beside/first")
    found = view(SandboxPolicy(), hidden / "workspace", sockets=listed)
    assert found.sockets == {str(hidden / "workspace/second")}
    # No socket is left to hide if the directory is gone.
    found = view(SandboxPolicy(), hidden / "workspace", sockets=(hidden / "absent/first",))
    assert found.sockets == set()


def test_a_socket_that_is_listed_through_a_link_is_hidden(hidden: Path) -> None:
    (hidden / "workspace").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(hidden / "workspace/socket"))
    # The link is in a private directory, but leads to a directory that the sandbox shows.
    (hidden / "link").symlink_to(hidden / "workspace")
    listed = hidden / "link/socket"
    assert view(SandboxPolicy(), hidden / "workspace", sockets=(listed,)).sockets == {str(listed)}


def test_sockets_are_not_taken_for_absent_if_descriptors_are_short(hidden: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(hidden / "socket"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            view(SandboxPolicy(), hidden, sockets=(hidden / "socket",))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_directories_between_a_denied_path_and_its_root_are_mounted(hidden: Path) -> None:
    (hidden / "b/c/d/e").mkdir(parents=True)
    policy = SandboxPolicy(write=[".", "b/c"], deny_write=["b/c/d/e"])
    arguments = " ".join(view(policy, hidden, sockets=()).arguments)
    for name in ("b", "b/c", "b/c/d"):
        assert f"--bind {hidden}/{name} {hidden}/{name} " in arguments


def test_directories_in_a_denied_directory_stay_read_only(hidden: Path) -> None:
    (hidden / "a/b/c/d").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(hidden / "a/b/c/socket"))
    policy = SandboxPolicy(deny_write=["a/b"], deny_read=["a/b/c/d"])
    found = view(policy, hidden, sockets=(hidden / "a/b/c/socket",))
    arguments = " ".join(found.arguments)
    assert f"--bind {hidden}/a {hidden}/a --ro-bind {hidden}/a/b {hidden}/a/b " in arguments
    assert f"--bind {hidden}/a/b/c " not in arguments


def test_denied_private_directory_stays_private_and_is_read_only(hidden: Path) -> None:
    found = view(SandboxPolicy(deny_write=["/tmp"]), hidden, sockets=())
    arguments = " ".join(found.arguments)
    assert "--ro-bind /tmp /tmp" not in arguments
    assert arguments.endswith("--remount-ro /tmp --chdir /")


def test_the_configuration_of_the_resolver_can_be_replaced_in_its_directory(
    hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, file = hidden / "resolve", hidden / "resolve/stub"
    for path in (directory, hidden / "workspace"):
        path.mkdir()
    file.touch()
    monkeypatch.setattr(module, "_RESOLVER", str(file))

    def mounted() -> set[str]:
        found = view(SandboxPolicy(network="full"), hidden / "workspace", sockets=())
        return {mount.path for mount in found.mounts} & {str(directory), str(file)}

    assert mounted() == {str(file)}
    monkeypatch.setattr(module, "_NEEDED_IN_RUN", (str(directory),))
    assert mounted() == {str(directory)}
