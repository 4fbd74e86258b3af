"""The files to which a bundle is written, and the directories in which it is unpacked."""

from __future__ import annotations

import io
import os
import stat
import threading
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from shelld.targets import bundle
from shelld.targets.bundle import Bundle, BundleError, cached_bundle, write_file
from shelld.targets.bundle_main import UnpackError, cache_directory, is_complete, unpack


def test_written_bundle_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.write_text("earlier")
    write_file(path, b"data", 0o755)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"data", 0o755)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("is_linked", [False, True])
def test_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path, is_linked: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    if is_linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(path, b"data", 0o755)
    reader.join(20)
    assert found == [b"data"]
    assert pipe.is_fifo()
    assert path.is_symlink() == is_linked
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o600


def test_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "bundle", tmp_path / "latest"
    path.write_text("earlier")
    link.symlink_to(path)
    write_file(link, b"data", 0o755)
    assert link.is_symlink()
    assert path.read_bytes() == b"data"
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_link_to_itself_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    write_file(link, b"data", 0o755)
    assert link.read_bytes() == b"data"


RELATIVE = [
    {"HOME": "home", "XDG_CACHE_HOME": "cache"},
    # Without HOME, `expanduser` returns `~` if the system does not know the user.
    {"HOME": "~", "XDG_CACHE_HOME": ""},
    # If HOME is empty, Python would use / as the home directory.
    {"HOME": "", "XDG_CACHE_HOME": ""},
]


@pytest.mark.parametrize("env", RELATIVE)
def test_cache_is_never_in_the_working_directory_or_in_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {**env, "TMPDIR": "temporary"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bundle, "make_bundle", lambda: Bundle(b"data", "hash"))
    assert cached_bundle() == Bundle(b"data", "hash")
    with pytest.raises(UnpackError):
        cache_directory()
    assert [*tmp_path.iterdir()] == []


def test_cache_is_never_in_a_directory_mounted_with_noexec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python cannot load the compiled modules of a bundle from such a directory.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    noexec = [str(tmp_path / "home" / "shelld")]
    real = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        found = [*real(path)]
        found[8] = os.ST_NOEXEC if path in noexec else 0
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", statvfs)
    temporary = str(tmp_path / f"shelld-{os.getuid()}")
    assert cache_directory() == temporary
    noexec.append(temporary)
    with pytest.raises(UnpackError, match="noexec"):
        cache_directory()


@pytest.mark.parametrize("kind", ["file", "link", "lost link"])
def test_bundle_replaces_what_is_no_directory(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    target = cache / "target"
    if kind == "file":
        target.touch()
    else:
        target.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "missing"))
    unpack(io.BytesIO(small_bundle()), str(target))
    assert (target / "module.py").is_file()
    assert not target.is_symlink()
    assert [*cache.iterdir()] == [target]
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_bundle_can_be_unpacked_under_any_umask(tmp_path: Path) -> None:
    source, target = tmp_path / "bundle", tmp_path / "target"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("package/module.py", "")
    before = os.umask(0o777)
    try:
        unpack(str(source), str(target))
        assert os.umask(0o777) == 0o777
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (target, target / "package")]
    assert modes == [0o700, 0o700]


def test_cache_can_be_used_under_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    before = os.umask(0o777)
    try:
        cache = Path(cache_directory())
    finally:
        os.umask(before)
    assert cache == tmp_path / ".cache" / "shelld"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (cache, cache.parent)]
    assert modes == [0o700, 0o700]


def test_made_bundle_can_be_kept_under_any_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle, "make_bundle", lambda: Bundle(b"data", "hash"))
    before = os.umask(0o777)
    try:
        cached_bundle()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "cache").rglob("*")]
    assert modes == [0o700, 0o700]


def damaged(data: bytes, name: str) -> bytes:
    """Return a ZIP file whose member `name` cannot be decompressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.getinfo(name).header_offset + 30 + len(name)
    # No block of deflated data begins with these bits.
    return data[:start] + b"\xff" + data[start + 1 :]


def small_bundle() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"ABOUT": "hash\n", "module.py": "x = 1\n"}.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_package_without_a_list_of_files_cannot_be_bundled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The packages of some distributions of Linux have no RECORD.
    monkeypatch.setattr(Distribution, "files", None)
    with pytest.raises(BundleError, match="has no list of its files"):
        cached_bundle()


@pytest.mark.parametrize("name", ["ABOUT", "module.py"])
def test_damaged_bundle_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = Bundle(small_bundle(), "hash")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bundle, "make_bundle", lambda: made)
    assert cached_bundle() == made
    (kept,) = (tmp_path / "shelld").iterdir()
    kept.write_bytes(damaged(made.data, name))
    assert cached_bundle() == made
    assert kept.read_bytes() == made.data


def test_damaged_bundle_is_not_unpacked(tmp_path: Path) -> None:
    source = io.BytesIO(damaged(small_bundle(), "module.py"))
    with pytest.raises(UnpackError, match="the bundle cannot be unpacked: it is damaged"):
        unpack(source, str(tmp_path / "target"))
    assert [*tmp_path.iterdir()] == []


def test_unpacked_bundle_with_an_empty_file_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "ABOUT").write_text("hash\nplatform\n2\n6\n")
    (tmp_path / "module.py").write_text("x = 1\n")
    assert is_complete(str(tmp_path))
    (tmp_path / "module.py").write_text("")
    assert not is_complete(str(tmp_path))
