"""Valid and broken terminal output, and the text that it becomes when read in one piece."""

from __future__ import annotations

from hypothesis import strategies as st

from shelld.output.store import StreamStore
from shelld.output.text import read_text

units = st.one_of(
    st.text(max_size=3).map(lambda text: text.encode("utf-8", "ignore")),
    st.sampled_from(
        [
            *("\x1b[31m", "\x1b[0m", "\x1b]8;;http://x\x1b\\", "\x1b]0;t\x07", "\x1b(B", "\x1bc"),
            *("\n", "\r", "\r\n", "\x1b_a\x1b\\", "\u009b1m", "\x1b", "\x1b[", "\x1b]"),
        ]
    ).map(str.encode),
    st.binary(max_size=2),
)
outputs = st.lists(units, max_size=20).map(b"".join)


def stored(data: bytes, head_limit: int = 1 << 24) -> StreamStore:
    store = StreamStore(head_limit)
    store.append(data)
    return store


def text_of(data: bytes, *, strip: bool = True) -> str:
    return read_text(stored(data), 0, len(data), 1 << 24, strip=strip, final=True).text
