"""The filter of system calls, run by an interpreter of classic BPF."""

from __future__ import annotations

import errno
import struct

import pytest

from shelld.sandbox.seccomp import program

X86 = 0xC000003E
ALLOW = 0x7FFF0000


def verdict(code: bytes, number: int, *arguments: int, architecture: int = X86) -> int:
    """Return the errno with which a filter refuses a call; 0 if it allows the call."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at = value = 0
    while True:
        operation, if_true, if_false, operand = steps[at]
        at += 1
        if operation == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif operation == 0x06:
            return 0 if operand == ALLOW else operand & 0xFFFF
        else:
            holds = {
                0x15: value == operand,
                0x35: value >= operand,
                0x45: bool(value & operand),
            }[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ((41, 1, 1), 0),
        ((41, 16, 3), 0),
        ((41, 2, 1), errno.EAFNOSUPPORT),
        ((41, 10, 1), errno.EAFNOSUPPORT),
        ((41, 40, 1), errno.EAFNOSUPPORT),
        ((53, 1, 1), 0),
        ((53, 40, 1), errno.EAFNOSUPPORT),
        ((16, 0, 0x5412), errno.EPERM),
        ((16, 0, 0x1_0000_5412), errno.EPERM),
        ((16, 0, 0x541C), errno.EPERM),
        ((16, 0, 0x5401), 0),
        ((56, 0x10000000), errno.EPERM),
        ((56, 0x01200011), 0),
        ((272, 0x10000000), errno.EPERM),
        ((272, 0x00020000), 0),
        ((308, 3, 0), errno.EPERM),
        ((248,), errno.EPERM),
        ((250, 11), errno.EPERM),
        ((435,), errno.ENOSYS),
        ((425, 8), errno.ENOSYS),
        ((0x40000000 | 41, 1), errno.ENOSYS),
        ((0, 0, 0, 0), 0),
        ((434, 1), 0),
    ],
)
def test_filter_refuses_forbidden_calls_only(call: tuple[int, ...], expected: int) -> None:
    code = program(has_network=False, machine="x86_64")
    assert code is not None
    assert verdict(code, *call) == expected


@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets_need_a_network(family: int) -> None:
    code = program(has_network=True, machine="x86_64")
    assert code is not None
    assert verdict(code, 41, family) == 0
    assert verdict(code, 41, 40) == errno.EAFNOSUPPORT


def test_filter_refuses_calls_of_other_architectures() -> None:
    code = program(has_network=True, machine="x86_64")
    assert code is not None
    assert verdict(code, 0, architecture=0x40000003) == errno.ENOSYS


def test_an_unknown_machine_has_no_filter() -> None:
    assert program(has_network=True, machine="riscv64") is None
    assert program(has_network=True, machine="aarch64") is not None
