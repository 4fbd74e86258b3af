"""`encode` and `decode` return what msgspec returns, but raise MemoryError if memory is short."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from shelld_protocol.encoding import encode

SHORT_OF_MEMORY = """
import resource
import msgspec
from shelld_protocol.encoding import PLAIN, decode, encode

text = b'"' + b"x" * 30_000_000 + b'"'
escapes = b'"' + b"\\\\n" * 15_000_000 + b'"'
paths = b"[" + b",".join([b'["ab\\\\\\\\","ab\\\\\\\\","ab\\\\\\\\"]'] * 250_000) + b"]"
texts = b"[" + b",".join(b'"%020d"' % number for number in range(1_000_000)) + b"]"
value = {"text": chr(1) * 16_000_000}
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)
for megabytes in range(10, 100, 15):
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 1024 * 1024, most))
    for work in (
        lambda: encode(value),
        lambda: decode(text, PLAIN),
        lambda: decode(escapes, PLAIN),
        lambda: decode(texts, PLAIN),
        lambda: decode(paths, PLAIN),
        lambda: decode(msgspec.Raw(text), PLAIN),
    ):
        try:
            work()
        except MemoryError:
            print("MemoryError")
"""


VALUES: list[object] = [None, "", "é" * 5_000, {"a": [1, 2.5, "\x01"]}, [1] * 2_000]


@pytest.mark.parametrize("value", VALUES)
def test_encoded_json_equals_that_of_msgspec(value: object) -> None:
    assert encode(value) == msgspec.json.encode(value)


def test_custom_encoder_converts_its_types() -> None:
    assert encode({1j}, msgspec.json.Encoder(enc_hook=str)) == b'["1j"]'


@pytest.mark.slow
def test_shortage_of_memory_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MemoryError\n" * 6)
