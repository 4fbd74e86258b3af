"""What happens to output when the disk is full, has a limit or is missing.

Other users cannot read the output.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from records import check_all, expected, read, records, wait_for_end
from support import RawDaemon, raw_daemon, wait_for


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mount)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs to mount a tmpfs, as root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def used_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


@pytest.mark.slow
def test_full_disk_loses_output_only(small_disk: Path) -> None:
    total = 8_000_000
    with raw_daemon("--spool-dir", str(small_disk)) as daemon:
        bash_id = daemon.background(f"{records(total)}; echo still here >&2")
        wait_for_end(daemon, bash_id)
        result = read(daemon, bash_id, max_bytes=1)
        assert (result["spoolError"], result["stderr"]) == ("ENOSPC", "s")
        assert (result["status"], result["stdoutRange"]["end"]) == ("completed", 1)
        ended = daemon.bash("echo x")
        assert "spoolError" not in ended
    with raw_daemon("--spool-dir", str(small_disk)) as daemon:
        bash_id = daemon.background(records(total))
        wait_for_end(daemon, bash_id)
        kept, dropped = check_all(daemon, bash_id, total)
        # The daemon keeps some output in memory, and as much output on the disk as fits there. Up
        # to one block of the disk may stay unused.
        assert kept + dropped == total
        assert 900_000 < kept < 1_200_000


def test_full_disk_leaves_the_window_in_memory(small_disk: Path) -> None:
    (small_disk / "hog").write_bytes(bytes((1 << 20) - used_bytes(small_disk) - 4096))
    total = 8_000_000
    with raw_daemon("--spool-dir", str(small_disk)) as daemon:
        bash_id = daemon.background(records(total))
        wait_for_end(daemon, bash_id)
        kept, dropped = check_all(daemon, bash_id, total)
        assert kept + dropped == total
        assert 200_000 < kept < 400_000
        assert read(daemon, bash_id)["spoolError"] == "ENOSPC"
        # Once the disk has room again, the daemon uses the disk.
        (small_disk / "hog").unlink()
        again = daemon.bash(records(500_000))
        assert (again["truncated"], "spoolError" in again) == (False, False)
    (small_disk / "hog").unlink(missing_ok=True)


def test_file_size_limit_acts_like_full_disk(tmp_path: Path) -> None:
    total = 8_000_000
    with raw_daemon("--spool-dir", str(tmp_path)) as daemon:
        daemon.call("ping")
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
        bash_id = daemon.background(records(total))
        wait_for_end(daemon, bash_id)
        kept, dropped = check_all(daemon, bash_id, total)
        assert kept + dropped == total
        assert 900_000 < kept < 1_200_000
        assert read(daemon, bash_id)["spoolError"] == "EFBIG"


def test_commands_run_without_spool_directory(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.mkdir()
    with raw_daemon("--spool-dir", str(directory)) as daemon:
        daemon.call("ping")
        directory.rmdir()
        result = daemon.bash(records(3_000_000))
        assert (result["exitCode"], result["stdoutBytes"]) == (0, 3_000_000)
        assert result["spoolError"] == "ENOENT"
        assert result["stdout"].startswith(expected(0, 65_536))


def test_missing_spool_directory_is_refused_at_start(tmp_path: Path) -> None:
    daemon = RawDaemon("--spool-dir", str(tmp_path / "missing"))
    assert daemon.wait() == 2
    assert daemon.rest() == b""
    assert daemon.read_stderr() == b"shelld: cannot write to the spool directory\n"
    daemon.close()


def test_spool_file_has_no_name(tmp_path: Path) -> None:
    with raw_daemon("--spool-dir", str(tmp_path)) as daemon:
        result = daemon.bash(f"{records(500_000)}; ls -A {tmp_path} >&2; ls /proc/self/fd >&2")
        assert result["stderr"].split() == ["0", "1", "2", "3"]
        assert result["stdout"] == expected(0, 500_000)


def spool_of(daemon: RawDaemon) -> Path:
    """Return the path of the daemon's unnamed spool file."""
    for entry in Path(f"/proc/{daemon.pid}/fd").iterdir():
        # The daemon may close another descriptor at any time.
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(entry).endswith("(deleted)"):
                return entry
    raise AssertionError("no spool")


def test_vanished_spool_is_reported_and_counted(tmp_path: Path) -> None:
    total = 5_000_000
    with raw_daemon("--spool-dir", str(tmp_path)) as daemon:
        bash_id = daemon.background(f"{records(total)}; sleep 300")
        wait_for(
            lambda: daemon.call("list_shells")["shells"][0]["unreadBytes"] == total, "the output"
        )
        os.truncate(spool_of(daemon), 0)
        kept, dropped = check_all(daemon, bash_id, total)
        # Only the output that the daemon keeps in memory is left.
        assert (kept, dropped) == (total % 65_536, total - total % 65_536)
        assert read(daemon, bash_id)["spoolError"] == "EIO"


def test_a_killed_daemon_leaves_nothing_on_the_disk(small_disk: Path) -> None:
    before = used_bytes(small_disk)
    with raw_daemon("--spool-dir", str(small_disk)) as daemon:
        daemon.bash(records(800_000))
        assert used_bytes(small_disk) > before + 500_000
        daemon.process.send_signal(signal.SIGKILL)
        daemon.wait()
        wait_for(lambda: used_bytes(small_disk) == before, "the space to be free")


def test_expired_shells_free_their_disk_space(small_disk: Path) -> None:
    before = used_bytes(small_disk)
    with raw_daemon("--spool-dir", str(small_disk), "--max-retained", "1") as daemon:
        for _ in range(5):
            daemon.bash(records(800_000))
        spooled = daemon.call("server_info")["counters"]["spoolBytes"]
        assert 700_000 < used_bytes(small_disk) - before <= spooled < 900_000
        daemon.bash("true")
        daemon.bash("true")
        wait_for(lambda: used_bytes(small_disk) == before, "the space to be free")
        assert daemon.call("server_info")["counters"]["spoolBytes"] == 0


def test_command_over_file_size_limit_is_refused(tmp_path: Path) -> None:
    with raw_daemon("--spool-dir", str(tmp_path)) as daemon:
        daemon.call("ping")
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, hard))
        error = daemon.answer(daemon.request("bash", {"command": "cat", "stdin": "x"}))["error"]
        assert (error["code"], error["data"]["limit"]) == (1005, "disk")
        assert daemon.bash("echo well", session=None)["stdout"] == "well\n"
