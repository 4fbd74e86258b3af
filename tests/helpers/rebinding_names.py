"""Run a program on a network of its own. On this network, the address of a name changes.

``python3 rebinding_names.py LOG PROGRAM ...``. The name server answers the first question for a
name `ADDRESS.ADDRESS.rebinding.test` with the first address, and all later questions with the
second address. Addresses have dashes in place of dots. A server listens on loopback at `PORT`. The
sandbox's policy must keep commands away from this server. LOG gets a line for each question, and
for each connection to this server. The program needs root, because the network and the file with
the name server's address belong to new namespaces.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

PORT = 8053
_NEW_MOUNTS = 0x00020000
_NEW_NETWORK = 0x40000000
_PRIVATE = 1 << 18
_RECURSIVE = 1 << 14
_BIND = 1 << 12
_ADDRESS_TYPE = 1
_SIGNAL_AT_PARENTS_END = 1


def isolate() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS | _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no namespaces")
    libc.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    for target, content in (
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/nsswitch.conf", "hosts: files dns\n"),
    ):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(content)
            file.flush()
            os.chmod(file.name, 0o644)
            if libc.mount(file.name.encode(), os.path.realpath(target).encode(), None, _BIND, None):
                raise OSError(ctypes.get_errno(), target)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def answer(question: bytes, asked: dict[str, int], log: int) -> bytes:
    labels: list[str] = []
    at = 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    name, kind = ".".join(labels), int.from_bytes(question[at + 1 : at + 3], "big")
    body = question[12 : at + 5]
    if kind != _ADDRESS_TYPE:
        return question[:2] + b"\x81\x80\0\1\0\0\0\0\0\0" + body
    count = asked[name] = asked.get(name, 0) + 1
    os.write(log, f"asked {name}\n".encode())
    chosen = labels[0 if count == 1 else 1]
    # The answer has a lifetime of 0 seconds, and an address of four bytes.
    found = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(chosen.replace("-", "."))
    return question[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + body + found


def serve_names(server: socket.socket, log: int) -> None:
    asked: dict[str, int] = {}
    while True:
        question, client = server.recvfrom(512)
        server.sendto(answer(question, asked, log), client)


def serve_loopback(server: socket.socket, log: int) -> None:
    while True:
        client, _ = server.accept()
        with client:
            os.write(log, b"connected\n")
            client.recv(1000)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nreached\n")


def main(path: str, *command: str) -> None:
    isolate()
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    loopback = socket.create_server(("127.0.0.1", PORT))
    program = os.getpid()
    if os.fork():
        os.execvp(command[0], command)
    # When the program ends, the kernel kills these servers. The program may already have ended
    # before this call.
    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != program:
        return
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    threading.Thread(target=serve_names, args=(names, log)).start()
    serve_loopback(loopback, log)


if __name__ == "__main__":
    main(*sys.argv[1:])
