"""``shelld list [--json]`` and ``shelld stop NAME``: the user's lasting daemons.

``list`` shows the daemons that run. ``stop`` ends one daemon with all its shells, and returns once
the daemon has ended.

Exit codes: 0 for success; 1 if there is no daemon with that name, or if the daemon does not end or
has another version; 2 for arguments that cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shelld import __version__
from shelld.cli.arguments import ArgumentParser
from shelld.cli.attach import add_name
from shelld.cli.formats import duration
from shelld.cli.join import JoinError, read_reply
from shelld.cli.show import note, refuse, show
from shelld.lasting.directory import DirectoryError, SocketDirectory
from shelld.lasting.handshake import (
    HANDSHAKE,
    PROTOCOL,
    HandshakeError,
    Hello,
    Reply,
    receive,
    send,
)
from shelld.lasting.views import Info, info_of

# How long to wait for a daemon to answer, and to exit. A daemon with a thousand shells takes a
# while to exit.
ANSWER_S: Final = 5.0
STOP_S: Final = 15.0


def list_daemons(arguments: Sequence[str]) -> int:
    """Write a table of the daemons, or JSON; return the exit code."""
    parser = ArgumentParser(prog="shelld list", description="Show the lasting daemons.")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    as_json = parser.parse_args(arguments).json
    try:
        directory = SocketDirectory.open(create=False)
    except DirectoryError as error:
        return refuse(str(error))
    found: list[Info] = []
    for name in [] if directory is None else directory.names():
        assert directory is not None
        try:
            reply = _ask(directory, name, "info")
        except DirectoryError as error:
            note(f"shelld: {error}")
            continue
        if reply is None or reply.info is None:
            continue
        try:
            found.append(info_of(reply.info))
        except HandshakeError:
            note(f"shelld: the program that listens as {name} is not shelld")
    if directory is not None:
        directory.close()
    if as_json:
        # The default of `json.dumps` is ASCII. If stdout had to encode other characters, `show`
        # might escape them in a way that JSON does not allow.
        return show(json.dumps(msgspec.to_builtins(found)), 0)
    return show(_table(found) if found else "No daemon is running.", 0)


def stop(arguments: Sequence[str]) -> int:
    """End one daemon; return the exit code."""
    parser = ArgumentParser(
        prog="shelld stop", description="End a lasting daemon with all its shells."
    )
    add_name(parser, "name", help="the name of the daemon")
    name = parser.parse_args(arguments).name
    try:
        directory = SocketDirectory.open(create=False)
        connection = None if directory is None else directory.connect(name, ANSWER_S)
    except DirectoryError as error:
        return refuse(str(error))
    if directory is not None:
        directory.close()
    if connection is None:
        note(f"shelld: there is no daemon {name}")
        return 1
    with connection:
        try:
            connection.settimeout(STOP_S)
            send(connection, _hello("stop"))
            # Read the answer. Then wait until the connection closes, because this means that the
            # daemon's process has ended.
            while data := receive(connection)[0]:
                read_reply(data, name)
        except JoinError as error:
            note(f"shelld: {error}")
            return 1
        except TimeoutError:
            note(f"shelld: the daemon {name} has not ended in time")
            return 1
        except OSError:
            # The daemon has ended.
            pass
    return 0


def _hello(wants: Literal["info", "stop"]) -> Hello:
    return Hello(handshake=HANDSHAKE, protocol=PROTOCOL, version=__version__, wants=wants)


def _ask(directory: SocketDirectory, name: str, wants: Literal["info", "stop"]) -> Reply | None:
    """Return a daemon's answer, or None if the daemon does not run or has another version."""
    connection = directory.connect(name, ANSWER_S)
    if connection is None:
        return None
    with connection:
        try:
            send(connection, _hello(wants))
            data = receive(connection)[0]
        except OSError:
            data = b""
    if not data:
        note(f"shelld: the daemon {name} does not answer")
        return None
    try:
        return read_reply(data, name)
    except JoinError as error:
        note(f"shelld: {error}")
        return None


def _table(found: Sequence[Info]) -> str:
    rows = [("NAME", "PID", "CLIENT", "RUNNING", "ENDED", "AGE", "ENDS IN")]
    for info in found:
        left_s = None
        if info.detached_ms is not None:
            left_s = max(0, info.linger_s - info.detached_ms // 1000)
        rows.append(
            (
                info.name,
                str(info.pid),
                "-" if info.client is None else str(info.client),
                str(info.shells_running),
                str(info.shells_retained),
                duration(info.uptime_ms // 1000),
                "-" if left_s is None else duration(left_s),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
