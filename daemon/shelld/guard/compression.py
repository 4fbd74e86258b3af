"""Computes the output of gzip(1), bzip2(1) and xz(1) for a known input.

Pure. Compressed data is represented as text. In this text, lone surrogates stand for the bytes that
are not UTF-8, as with ``surrogateescape``. None means that an output is unknown. The output of
decompression is limited, because very long text can come from few bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from shelld.guard.inputs import Inputs, Output
from shelld.guard.markers import UNKNOWN, cleaned
from shelld.guard.options import all_options

# The maximum length of the input in characters, and of the output in bytes.
_MAX_INPUT: Final = 64 * 1024
_MAX_OUTPUT: Final = 64 * 1024
# The maximum memory, in bytes, for decompressing the format of xz(1).
_MAX_MEMORY: Final = 32 * 1024 * 1024
# Values of zlib's ``wbits``. With `_GZIP`, zlib writes the header of gzip(1). With `_ANY_HEADER`,
# zlib finds out by itself which header the data has.
_GZIP, _ANY_HEADER = 31, 47
# The first bytes of data from gzip(1), bzip2(1) and xz(1).
_MAGIC: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")


def text_of_bytes(data: bytes) -> str:
    """Return bytes as text.

    If the bytes are compressed data, `bytes_of_text` can restore them from the text.
    """
    if data.startswith(_MAGIC):
        text = data.decode("utf-8", "surrogateescape")
        # Return no text if the data contains a marker, because the marker would change the meaning
        # of the text.
        return text if cleaned(text) == text else ""
    return cleaned(data.decode("utf-8", "replace"))


def bytes_of_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decompressed(data: bytes) -> bytes:
    if data.startswith(b"BZh"):
        # The imports are in this function, because few commands need these modules.
        import bz2  # noqa: PLC0415

        return bz2.BZ2Decompressor().decompress(data, _MAX_OUTPUT)
    if data.startswith(b"\xfd7zXZ"):
        import lzma  # noqa: PLC0415

        try:
            return lzma.LZMADecompressor(memlimit=_MAX_MEMORY).decompress(data, _MAX_OUTPUT)
        except lzma.LZMAError as error:
            raise ValueError from error
    return zlib.decompressobj(wbits=_ANY_HEADER).decompress(data, _MAX_OUTPUT)


def _compressed(data: bytes) -> bytes:
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    return compressor.compress(data) + compressor.flush()


def _packer(*, decompresses: bool = False) -> Output:
    """Return a function that computes the output of a compression program.

    If `decompresses` is true, the program decompresses its input. Compressed data always has the
    format of gzip(1), even if the program is bzip2(1) or xz(1). One format is enough, because only
    the decompressing functions of this module read the data.
    """

    def output(arguments: Sequence[str], inputs: Inputs) -> str | None:
        options, operands = all_options(arguments, "bST", ("suffix", "threads"))
        names = {name for name, _ in options}
        text = inputs.read(operands)
        writes_file = bool(operands) and names.isdisjoint({"c", "stdout", "to-stdout"})
        if text is None or UNKNOWN in text or len(text) > _MAX_INPUT:
            return None
        data = bytes_of_text(text)
        try:
            if decompresses or not names.isdisjoint({"d", "decompress", "uncompress"}):
                text = cleaned(_decompressed(data).decode("utf-8", "replace"))
            else:
                text = text_of_bytes(_compressed(data))
        except (zlib.error, OSError, EOFError, ValueError):
            return None
        return None if writes_file else text or None

    return output


PACKERS: Final[dict[str, Output]] = {
    **dict.fromkeys(("gzip", "pigz", "bzip2", "pbzip2", "xz"), _packer()),
    **dict.fromkeys(
        ("gunzip", "zcat", "gzcat", "unpigz", "bunzip2", "bzcat", "unxz", "xzcat"),
        _packer(decompresses=True),
    ),
}
