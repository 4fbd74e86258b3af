"""Try to reach out of the sandbox in which this program runs; print the successful attempts.

``python3 escapes.py DIRECTORY PID PORT``: DIRECTORY is outside the paths that the policy allows,
and has the unix sockets `host` and `renamed` and the FIFO `pipe`; PID is a process outside, which
listens on PORT. No attempt does harm if it succeeds, because attempts only open files, and send
only signal 0.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

OUTSIDE: Final = sys.argv[1]
HOST_PID: Final = int(sys.argv[2])
PORT: Final = int(sys.argv[3])
LIBC: Final = ctypes.CDLL(None, use_errno=True)
NEW_USER: Final = 0x10000000
NEW_NAMESPACE: Final = 0x00020000


def call(result: int) -> None:
    """Raise OSError if a function of libc has failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def opens(path: str, flags: int = os.O_WRONLY) -> Callable[[], object]:
    return lambda: os.close(os.open(path, flags))


def connects(family: int, address: object) -> Callable[[], object]:
    def attempt() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(1)
            sock.connect(address)  # type: ignore[arg-type]

    return attempt


def passes_proxy(request: bytes) -> Callable[[], object]:
    """Return an attempt to get through the proxy to a host that the policy does not list.

    `request` asks the proxy for this host. If there is no proxy, the attempt fails.
    """

    def attempt() -> None:
        with socket.create_connection(("127.0.0.1", 3128), 1) as sock:
            sock.settimeout(15)
            sock.sendall(request)
            answer = b""
            # The proxy always answers. If no answer comes, the request has reached another program,
            # so the attempt has succeeded.
            with suppress(TimeoutError):
                while more := sock.recv(100):
                    answer += more
                if not answer.startswith((b"HTTP/1.1 2", b"\5\0\5\0")):
                    raise PermissionError

    return attempt


def tunnels(host: str) -> Callable[[], object]:
    return passes_proxy(f"CONNECT {host}:{PORT} HTTP/1.1\r\n\r\n".encode())


def gets(line: str) -> Callable[[], object]:
    return passes_proxy(f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\n".encode())


def by_socks(address: bytes) -> Callable[[], object]:
    return passes_proxy(b"\5\1\0\5\1\0" + address + PORT.to_bytes(2, "big"))


def makes(family: int, kind: int, protocol: int = 0) -> Callable[[], object]:
    return lambda: socket.socket(family, kind, protocol).close()


def system_call(number: int, *args: object) -> Callable[[], object]:
    return lambda: call(LIBC.syscall(number, *args))


def mounts(source: bytes, target: bytes, kind: bytes | None, flags: int) -> Callable[[], object]:
    return lambda: call(LIBC.mount(source, target, kind, flags, None))


def keeps_mode(path: str) -> Callable[[], object]:
    """Set the mode of a file to the mode that it already has."""
    return lambda: os.chmod(path, os.stat(path).st_mode & 0o7777)


def helpers(name: str) -> Callable[[], object]:
    """Open the file `name` in /proc of a process of shelld, such as the runner."""

    def attempt() -> None:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with open(f"/proc/{pid}/comm") as file:
                if not file.read().startswith("shelld-"):
                    continue
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
            return
        raise ProcessLookupError

    return attempt


def traces_its_runner() -> None:
    call(LIBC.ptrace(16, _runner(), None, None))


def _runner() -> int:
    pid = os.getpid()
    while True:
        with open(f"/proc/{pid}/stat") as file:
            name, _, rest = file.read().partition(") ")
        if "shelld-runner" in name:
            return pid
        pid = int(rest.split()[1])


def takes_a_descriptor() -> None:
    handle = os.pidfd_open(_runner())
    call(LIBC.syscall(438, handle, 3, 0))


def sees_a_process_outside() -> None:
    """Find the process "a witness outside", which runs outside the sandbox."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"a witness outside" in file.read():
                return
    raise ProcessLookupError


def renames_out() -> None:
    with open("moved", "w"):
        pass
    os.rename("moved", f"{OUTSIDE}/moved")


def links_out() -> None:
    os.link("/etc/passwd", "linked")


def writes_by_a_link() -> None:
    os.symlink(f"{OUTSIDE}/by-link", "by-link")
    try:
        os.close(os.open("by-link", os.O_WRONLY | os.O_CREAT))
    finally:
        os.unlink("by-link")


def makes_a_device() -> None:
    os.mknod("device", 0o60600, os.makedev(8, 0))


def gains_a_user() -> None:
    os.setuid(12345)


def opens_a_terminal() -> None:
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, 0x5412, b"x")
    finally:
        os.close(master)
        os.close(slave)


ATTEMPTS: Final[dict[str, Callable[[], object]]] = {
    # Files.
    "write outside": opens(f"{OUTSIDE}/new", os.O_WRONLY | os.O_CREAT),
    "change outside": opens(f"{OUTSIDE}/file"),
    "change outside by its root": opens(f"/proc/self/root{OUTSIDE}/file"),
    "change outside by the root of the first process": opens(f"/proc/1/root{OUTSIDE}/file"),
    "change outside by the directory of the first process": opens(f"/proc/1/cwd{OUTSIDE}/file"),
    "remove outside": lambda: os.unlink(f"{OUTSIDE}/file"),
    "remove a directory outside": lambda: os.rmdir(f"{OUTSIDE}/empty"),
    "rename outside": lambda: os.rename(f"{OUTSIDE}/file", f"{OUTSIDE}/other"),
    "rename to outside": renames_out,
    "link a file of the system": links_out,
    "write by a symbolic link": writes_by_a_link,
    "change modes outside": lambda: os.chmod(f"{OUTSIDE}/file", 0o666),
    "change times outside": lambda: os.utime(f"{OUTSIDE}/file"),
    "change the owner outside": lambda: os.chown(f"{OUTSIDE}/file", os.getuid(), os.getgid()),
    "truncate outside": lambda: os.truncate(f"{OUTSIDE}/file", 0),
    "set an attribute outside": lambda: os.setxattr(f"{OUTSIDE}/file", "user.x", b"x"),
    # With O_RDWR, a FIFO can be opened for writing even if nobody reads it.
    "write to a FIFO outside": opens(f"{OUTSIDE}/pipe", os.O_RDWR | os.O_NONBLOCK),
    "write to a FIFO outside by the root of the first process": opens(
        f"/proc/1/root{OUTSIDE}/pipe", os.O_RDWR | os.O_NONBLOCK
    ),
    "make a FIFO outside": lambda: os.mkfifo(f"{OUTSIDE}/fifo"),
    "change the system": opens("/etc/passwd"),
    "write to the root": opens("/new", os.O_WRONLY | os.O_CREAT),
    # Devices and mounts.
    "make a device": makes_a_device,
    "open a disk": opens("/dev/sda", os.O_RDONLY),
    "open a virtual disk": opens("/dev/vda", os.O_RDONLY),
    "open memory": opens("/dev/mem", os.O_RDONLY),
    "open the kernel's log": opens("/dev/kmsg", os.O_RDONLY),
    "open FUSE": opens("/dev/fuse", os.O_RDWR),
    "mount": mounts(b"none", b"/mnt", b"tmpfs", 0),
    "bind": mounts(b"/", b"/mnt", None, 4096),
    "remount the root": mounts(b"none", b"/", None, 32 | 4096),
    "unmount a denied path": lambda: call(LIBC.umount2(b"denied", 2)),
    "unmount the private /tmp": lambda: call(LIBC.umount2(b"/tmp", 2)),
    "pivot the root": lambda: call(LIBC.syscall(155, b".", b".")),
    "change the root": lambda: os.chroot("."),
    "open a tree of mounts": system_call(428, -100, b"/", 1),
    # Kernel settings.
    "set the pattern of core files": opens("/proc/sys/kernel/core_pattern"),
    "set the program of modules": opens("/proc/sys/kernel/modprobe"),
    "set the host's name": opens("/proc/sys/kernel/hostname"),
    "use the system request key": opens("/proc/sysrq-trigger"),
    "write to /sys": opens("/sys/kernel/mm/transparent_hugepage/enabled"),
    "make a cgroup": lambda: os.mkdir("/sys/fs/cgroup/escaped"),
    "use another cgroup": opens("/sys/fs/cgroup/cgroup.procs"),
    "change the mode of a device": keeps_mode("/dev/null"),
    "change the mode of its input": keeps_mode("/proc/self/fd/0"),
    "change the mode of the first program": keeps_mode("/proc/1/exe"),
    "change the mode of the first process's input": keeps_mode("/proc/1/fd/0"),
    "change the mode of bash": keeps_mode(f"/proc/{os.getppid()}/exe"),
    # Namespaces and privileges.
    "a user namespace": lambda: call(LIBC.unshare(NEW_USER)),
    "a mount namespace": lambda: call(LIBC.unshare(NEW_NAMESPACE)),
    "a user namespace by clone": system_call(56, NEW_USER | signal.SIGCHLD, None, None, None, None),
    "a user namespace by clone3": system_call(435, None, 0),
    "enter the namespaces of the first process": lambda: call(
        LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)
    ),
    "another user": gains_a_user,
    "load a program into the kernel": system_call(321, 0, None, 0),
    "watch performance": system_call(298, None, 0, -1, -1, 0),
    "load a module": system_call(313, -1, b"", 0),
    "open a file by its handle": system_call(304, -100, None, 0),
    # Processes.
    "see a process outside": sees_a_process_outside,
    "signal a process outside": lambda: os.kill(HOST_PID, 0),
    "trace a process outside": lambda: call(LIBC.ptrace(16, HOST_PID, None, None)),
    "trace its runner": traces_its_runner,
    "take a descriptor of its runner": takes_a_descriptor,
    "read the memory of shelld": helpers("mem"),
    "read the environment of shelld": helpers("environ"),
    "open a descriptor of shelld": helpers("fd/3"),
    # Sockets.
    "a unix socket of the host": connects(socket.AF_UNIX, f"{OUTSIDE}/host"),
    "a unix socket of the host by its root": connects(
        socket.AF_UNIX, f"/proc/self/root{OUTSIDE}/host"
    ),
    "a unix socket of the host that was renamed": connects(socket.AF_UNIX, f"{OUTSIDE}/renamed"),
    "an abstract socket of the host": connects(socket.AF_UNIX, "\0shelld-escape-" + str(HOST_PID)),
    "the loopback of the host": connects(socket.AF_INET, ("127.0.0.1", PORT)),
    "the internet": connects(socket.AF_INET, ("192.0.2.1", 80)),
    "AF_VSOCK": makes(40, socket.SOCK_STREAM),
    "AF_PACKET": makes(17, socket.SOCK_RAW),
    "AF_ALG": makes(38, socket.SOCK_SEQPACKET),
    "a raw socket": makes(socket.AF_INET, socket.SOCK_RAW, 1),
    "io_uring": system_call(425, 1, ctypes.create_string_buffer(256)),
    "the loopback by the proxy": tunnels("127.0.0.1"),
    "the loopback by another address": tunnels("127.0.0.2"),
    "the loopback by a listed name": tunnels("localhost"),
    "the loopback by a mapped address": tunnels("[::ffff:127.0.0.1]"),
    "the loopback by IPv6": tunnels("[::1]"),
    "the loopback by a number": tunnels("2130706433"),
    "the loopback by a short address": tunnels("127.1"),
    "the loopback by the address of nobody": tunnels("0.0.0.0"),
    "the loopback by a name with a zero": tunnels("127.0.0.1\0.invalid"),
    "the loopback by a name with a user": tunnels("x.invalid@127.0.0.1"),
    "the loopback by a URL": gets(f"GET http://127.0.0.1:{PORT}/"),
    "the loopback by Host": gets("GET http://x.invalid/"),
    "the loopback by a path": gets("GET /"),
    "the loopback by SOCKS": by_socks(b"\1\x7f\0\0\1"),
    "the loopback by a name in SOCKS": by_socks(b"\3\x09localhost"),
    "the metadata of a cloud": tunnels("169.254.169.254"),
    # Terminals, the kernel's keys, and the kernel's memory.
    "add a key": system_call(248, b"user", b"shelld", b"x", 1, -3),
    "read keys": system_call(250, 0, -3, 0),
    "type into a terminal": opens_a_terminal,
    "read the kernel's memory": opens("/proc/kcore", os.O_RDONLY),
    # Denied paths.
    "read a denied file": opens("denied-file", os.O_RDONLY),
    "read a denied directory": lambda: os.listdir("denied"),
    "write to a protected file": opens("kept/file"),
    "replace a protected file": lambda: os.rename("kept/own", "kept/file"),
    "remove a protected file": lambda: os.unlink("kept/file"),
    "rename the directory of a protected file": lambda: os.rename("kept", "renamed"),
    "link to a protected file": lambda: os.link("kept/file", "copy"),
    "rename a directory above a protected file": lambda: os.rename("upper", "other"),
    "make a denied path": opens("missing/below", os.O_WRONLY | os.O_CREAT),
    "make the directory of a denied path": lambda: os.mkdir("missing"),
    "rename to a denied path": lambda: os.rename("kept/own", "missing"),
}


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    for name, attempt in ATTEMPTS.items():
        if succeeds(attempt):
            sys.stdout.write(f"{name}\n")
    sys.stdout.write(f"{len(ATTEMPTS)} attempts\n")
