"""Makes the bundle: one file that Python can run, with shelld and the packages that shelld needs.

The bundle contains compiled modules, so it runs only with the same version of Python, on the same
kind of machine (`PLATFORM`). Its first member is `bundle_main.py`, which unpacks the other members
into a cache.

The same packages always make the same bytes. So a hash of the content names the directory in the
cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

import shelld
import shelld_protocol
from shelld.targets.bundle_main import DAMAGED, home_directory, make_directories

PYTHON: Final = sys.version_info[:2]
PLATFORM: Final = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"

# Only modules that shelld does not import require these packages: see `dispatch`.
_NOT_NEEDED: Final = frozenset({"jsonschema"})

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
# The earliest time that a ZIP file can hold.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


class BundleError(Exception):
    """The bundle cannot be made.

    The caller writes the beginning of a sentence, and the error's text completes the sentence.
    """


class Bundle(NamedTuple):
    """Holds a bundle. `hash` identifies the content of `data`."""

    data: bytes
    hash: str


def make_bundle() -> Bundle:
    """Make the bundle of this installation, which takes a second or two. Raises BundleError."""
    try:
        files = dict(sorted(_files()))
        digest = hashlib.sha256(PLATFORM.encode())
        content: dict[str, bytes] = {}
        for name, path in files.items():
            content[name] = path.read_bytes()
            digest.update(b"%b\0%d\0%b" % (name.encode(), len(content[name]), content[name]))
        main = Path(__file__).with_name("bundle_main.py").read_bytes()
    except OSError as error:
        raise BundleError(f"a file cannot be read: {error.strerror}") from error
    digest.update(main)
    named = digest.hexdigest()[:32]
    # The number of files includes the file ABOUT and the program. The size is that of all files but
    # ABOUT.
    size = len(main) + sum(map(len, content.values()))
    about = f"{named}\n{PLATFORM}\n{len(content) + 2}\n{size}\n".encode()
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"__main__.py": main, "ABOUT": about, **content}.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return Bundle(buffer.getvalue(), named)


def cached_bundle() -> Bundle:
    """Return the bundle from a cache.

    Make the bundle if the cache does not have it. Raises BundleError.
    """
    try:
        files = sorted(_files())
        stats = [(name, path.stat()) for name, path in files]
    except OSError as error:
        raise BundleError(f"a file cannot be read: {error.strerror}") from error
    parts = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats]
    key = hashlib.sha256("\n".join((PLATFORM, *parts)).encode()).hexdigest()[:32]
    if (cache := _cache()) is None:
        return make_bundle()
    path = cache / f"made-{key}.pyz"
    with suppress(OSError, *DAMAGED):
        data = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if archive.testzip() is None:
                return Bundle(data, archive.read("ABOUT").split(b"\n")[0].decode())
    made = make_bundle()
    # If the cache cannot be written, the next daemon makes the bundle again.
    with suppress(OSError):
        make_directories(str(cache))
        write_file(path, made.data)
    return made


def write_file(path: Path, data: bytes, mode: int = 0o700) -> None:
    """Write a file so that no other process sees an incomplete file. Raises OSError.

    If `path` is a pipe or a device, the data goes into it. If `path` is a symbolic link, such as
    /dev/stdout, write the file that it leads to, and keep the link.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = Path(os.path.realpath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _cache() -> Path | None:
    """Return the directory of the cache.

    Return None if neither a variable nor the database of users names a home directory.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(chosen):
        chosen = os.path.join(home_directory(), ".cache")
    # A relative path would name a directory that depends on the working directory.
    return Path(chosen, "shelld") if os.path.isabs(chosen) else None


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the name of each file within the bundle, and its path on this machine."""
    for package in (shelld, shelld_protocol):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(root.parent)), path
    own = _distribution("shelld")
    # In a bundle, `own.files` is empty, because a bundle has no RECORD. So list the directory.
    place = Path(str(own.locate_file("")))
    about = place / f"shelld-{own.version}.dist-info"
    for path in (about / "METADATA", *about.glob("licenses/*")):
        yield str(path.relative_to(place)), path
    for needed in _requirements(own):
        if needed.files is None:
            raise BundleError(f"the package {needed.name} has no list of its files")
        for file in needed.files:
            # Scripts are outside of the directory of packages.
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield str(file), Path(str(file.locate()))


def _requirements(own: Distribution) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    todo = [own]
    while todo:
        each = todo.pop()
        for text in each.requires or ():
            requirement, _, marker = text.partition(";")
            match = _NAME.match(requirement)
            if match is None or "extra" in marker or match[0] in _NOT_NEEDED:
                continue
            name = match[0].lower().replace("_", "-")
            if name in found:
                continue
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                # A requirement with a marker may not apply to this Python, so its package may be
                # missing. If another package is missing, the installation is broken, and cannot be
                # bundled.
                if marker:
                    continue
                raise BundleError(f"the package {name} is not installed") from None
            todo.append(found[name])
    return list(found.values())


def _distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise BundleError(f"the package {name} is not installed") from None
