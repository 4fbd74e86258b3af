"""Unpacks a bundle into a cache, and then runs shelld. This program is the first member of the
bundle.

Before a bootstrap sends the bundle, it runs the source of this file with ``python -c`` (see
`bootstrap`). When the program runs in this way, its arguments are a marker, and the platform, the
hash and the size of the bundle.

This program checks whether the bundle fits the Python, so it must run in any Python since 3.7. It
uses only the standard library, and no recent syntax.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
import zlib
from typing import IO, NoReturn

HERE = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from shelld.__main__ import main; sys.exit(main())"
)
# `zipfile` raises one of these errors for a damaged file.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError)


class UnpackError(Exception):
    """The bundle cannot be unpacked.

    The caller writes the beginning of a sentence, and the error's text completes the sentence.
    """


def is_safe(directory: str) -> bool:
    """Return whether only this user can change a directory."""
    found = os.lstat(directory)
    is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_mine and not found.st_mode & 0o022 and os.access(directory, os.W_OK)


def is_noexec(directory: str) -> bool:
    """Return whether a directory is mounted with noexec.

    Python cannot load compiled modules from such a directory.
    """
    return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)


def make_directories(directory: str) -> None:
    """Make a directory that only this user can use, and its missing parents. Raises OSError.

    With a strict umask, `os.makedirs` would make directories that even this user cannot use, such
    as ~/.cache.
    """
    if os.path.isdir(directory):
        return
    make_directories(os.path.dirname(directory))
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        # Another process may have made the directory after the check.
        return
    os.chmod(directory, 0o700)


def home_directory() -> str:
    """Return the user's home directory.

    If the user has no home directory, the result is not an absolute path.
    """
    # Python would treat an empty HOME as /.
    return "" if os.environ.get("HOME") == "" else os.path.expanduser("~")


def cache_directory() -> str:
    """Return a directory to unpack into. Raises UnpackError."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(home_directory(), ".cache")
    # Another user may have made the directory in /tmp, so `is_safe` checks it.
    temporary = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"shelld-{os.getuid()}")
    problem = "no directory for the bundle can be written"
    for directory in (os.path.join(home, "shelld"), temporary):
        # With a relative path, the daemon would run files from the working directory.
        if not os.path.isabs(directory):
            continue
        try:
            make_directories(directory)
            if not is_safe(directory):
                continue
            if not is_noexec(directory):
                return directory
            problem = "the directory for the bundle is mounted with noexec"
        except OSError:
            pass
    raise UnpackError(problem)


def is_complete(directory: str) -> bool:
    """Return whether a directory has all files of a bundle, and all their bytes.

    Programs that clean /tmp may have removed some files. Files may be empty if the machine lost
    power.
    """
    own = os.path.join(directory, "ABOUT")
    try:
        with open(own, encoding="utf-8") as about:
            count, size = map(int, about.read().splitlines()[2:4])
        walk = os.walk(directory)
        found = [(path, files) for path, _, files in walk if not path.endswith("__pycache__")]
        files = [os.path.join(path, name) for path, names in found for name in names]
        return len(files) == count and sum(map(os.path.getsize, files)) == size + os.path.getsize(
            own
        )
    except (OSError, ValueError):
        return False


def unpack(source: str | IO[bytes], target: str) -> None:
    """Unpack a bundle so that no other process sees an incomplete directory. Raises UnpackError."""
    # With a strict umask, this process could not enter the directories that it makes.
    mask = os.umask(0o077)
    try:
        temporary = tempfile.mkdtemp(prefix=".unpacking-", dir=os.path.dirname(target))
        try:
            with zipfile.ZipFile(source) as archive:
                archive.extractall(temporary)
            if os.path.lexists(target) and not is_complete(target):
                old = tempfile.mkdtemp(prefix=".removing-", dir=os.path.dirname(target))
                try:
                    # The target may be a file or a link.
                    os.rename(target, os.path.join(old, "bundle"))
                finally:
                    shutil.rmtree(old, ignore_errors=True)
            os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except (OSError, *DAMAGED) as error:
        # In the meantime, another process may have unpacked the bundle.
        if not is_complete(target):
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise UnpackError(f"the bundle cannot be unpacked: {reason}") from error
    finally:
        os.umask(mask)


def original_environment() -> dict[bytes, bytes]:
    """Return the environment that this process was started with.

    In the C locale, Python sets LC_CTYPE for itself and its children.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            variables = [each.partition(b"=") for each in file.read().split(b"\0")]
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for name, is_variable, value in variables:
        if name and is_variable:
            found.setdefault(name, value)
    return found


def run(target: str, options: list[str]) -> NoReturn:
    """Replace this process with the shelld that was unpacked into a directory. Raises OSError.

    The new process does not see the other packages of its Python, whose versions might not fit.
    """
    words = [sys.executable, "-I", "-S", "-c", START, target, *options]
    os.execve(sys.executable, words, original_environment())


def run_bundle() -> int:
    """Run shelld from the bundle that contains this program. Return 2 if that is not possible."""
    try:
        try:
            with zipfile.ZipFile(sys.path[0]) as archive:
                name, fits = archive.read("ABOUT").decode().splitlines()[:2]
        except DAMAGED:
            raise UnpackError("this bundle is damaged") from None
        if fits != HERE:
            raise UnpackError(f"this bundle is for {fits}, and this is {HERE}")
        target = os.path.join(cache_directory(), name)
        if not is_complete(target):
            unpack(sys.path[0], target)
    except UnpackError as error:
        sys.stderr.write(f"shelld: {error}\n")
        return 2
    run(target, sys.argv[1:])


def say(marker: str, text: str) -> None:
    # Earlier text on the same line must not hide the marker, so begin a new line.
    os.write(1, f"\n{marker} {text}\n".encode())


def receive(size: int) -> IO[bytes]:
    """Return the bundle, once it has arrived. Ends the process if the input ends before the whole
    bundle has arrived.
    """
    data = bytearray()
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(3)
        data += more
    return io.BytesIO(bytes(data))


def bootstrap(marker: str, fits: str, name: str, size: int) -> NoReturn:
    """Replace this process with the shelld from a bundle.

    Ask for the bundle if the cache does not have it.
    """
    try:
        if fits != HERE:
            say(marker, f"none Python {sys.version_info[0]}.{sys.version_info[1]} ({HERE})")
            os._exit(3)
        target = os.path.join(cache_directory(), name)
        if not is_complete(target):
            say(marker, "send")
            unpack(receive(size), target)
        say(marker, "ready")
        run(target, [])
    except (UnpackError, OSError) as error:
        say(marker, f"failed {error if isinstance(error, UnpackError) else error.strerror}")
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[0] == "-c":
        bootstrap(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    sys.exit(run_bundle())
