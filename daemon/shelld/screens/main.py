"""The program of the helper process. It shows the screen of one terminal.

This is a separate program, which `screen` starts by its path. The program exchanges frames, as
`helpers.program` describes. Each frame that the program reads begins with a letter. A JSON value
follows. The answer is a JSON value.

* "N" and ``[rows, cols, scrollback, version]`` makes an empty screen. This frame comes first.
* "F", with a list of offsets, a newline and output, shows more output. The answer is the position
  of the cursor at each offset in this output.
* "S" and ``[rows, cols]`` sets a new size.
* "V" and ``[since, scrollback]`` asks for the screen. The answer is the screen.

The answer to "N" and "S" is ``[]``.
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
            answer: object = []
            if kind == b"F":
                stops, _, output = content.partition(b"\n")
                answer = emulator.feed(output, json.loads(stops))
            elif kind == b"S":
                emulator.resize(*json.loads(content))
            elif kind == b"N":
                emulator = Emulator(*json.loads(content))
            else:
                answer = emulator.view(*json.loads(content))
            frames.write(json.dumps(answer, ensure_ascii=False).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
