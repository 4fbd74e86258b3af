"""The unix sockets of the machine, from the kernel's list and from their directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from shelld.sandbox.unix_sockets import paths_in, socket_paths, sockets_in

HEAD = b"Num       RefCount Protocol Flags    Type St Inode Path\n"
START = b"0000000000000000: 00000002 00000000 00010000 0001 01 "


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (b"", []),
        (START + b"4711\n", []),
        (START + b"4711 @/abstract\n", []),
        (START + b"    1 /a\n" + START + b"2222 /b c\n", ["/a", "/b c"]),
        (START + b"1 /a\nb\n" + START + b"2 /c\n", ["/a\nb", "/c"]),
        (START + b"1 /a\nb/c\n", ["/a\nb/c"]),
        (START + b"1 @abstract\n/no/path\n" + START + b"2 /c\n", ["/c"]),
        (START + b"1 /a\rb \n" + START + b"2\n", ["/a\rb "]),
        (START + b"1 /\xff\n", ["/\udcff"]),
        (START.replace(b"0000000000000000", b"00000000") + b"1 /pointer\n", ["/pointer"]),
    ],
)
def test_kernels_list_gives_the_paths_of_sockets(lines: bytes, paths: list[str]) -> None:
    assert paths_in(HEAD + lines) == set(paths)


def test_list_without_its_head_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        paths_in(b"")


@pytest.mark.parametrize("name", ["plain", "two words", "two\nlines", "one\n"])
def test_a_socket_is_listed_under_its_path(tmp_path: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / name))
        # The kernel's list has one socket per line. A newline at the end of a name looks like the
        # end of that line.
        assert str(tmp_path / name).rstrip("\n") in socket_paths()


def test_search_of_a_directory_finds_only_sockets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "first"))
        (tmp_path / "first").rename(tmp_path / "renamed")
    assert list(sockets_in(str(tmp_path))) == [str(tmp_path / "renamed")]
    assert list(sockets_in(str(tmp_path / "absent"))) == []
