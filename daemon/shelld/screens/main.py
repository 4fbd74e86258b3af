"""The helper process: shows what is on one terminal.

A separate program: `screen` starts it by its path. It exchanges frames, as `helpers.program`
describes. A frame that it reads is a letter and, for all letters but "F", a JSON value:

* "N" and ``[rows, cols, scrollback, version]`` makes an empty screen. This frame comes first.
* "F" and bytes shows more output.
* "S" and ``[rows, cols]`` sets a new size.
* "V" and ``[since, scrollback]`` asks for the screen.

The answer to "V" is the screen. The answer to any other frame is the version.
"""

from __future__ import annotations

import json
import sys


def main(memory_bytes: int, cpu_seconds: int, paths: list[str]) -> None:
    sys.path += paths
    from shelld.helpers.program import Frames  # noqa: PLC0415
    from shelld.screens.emulator import Emulator  # noqa: PLC0415

    with Frames(memory_bytes, cpu_seconds) as frames:
        emulator = Emulator(1, 1, 0)
        while True:
            frame = frames.read()
            kind, content = frame[:1], frame[1:]
            if kind == b"F":
                emulator.feed(content)
            elif kind == b"S":
                emulator.resize(*json.loads(content))
            elif kind == b"N":
                emulator = Emulator(*json.loads(content))
            else:
                view = emulator.view(*json.loads(content))
                frames.write(json.dumps(view, ensure_ascii=False).encode())
                continue
            frames.write(b"%d" % emulator.version)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
