"""``shelld mcp-config [--write] [HOST] [-- OPTION ...]``: the configuration of an MCP host.

The configuration goes to stdout, so that the user can merge it into the host's file. The name of
this file goes to stderr. With --write, the configuration goes into the file (see `host_files`). The
configuration is ASCII, so that no locale can spoil it.

Exit codes: 0 if the configuration was printed or written, 2 if the arguments cannot be used, or
stdout or the file cannot be written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from shelld.cli.arguments import ArgumentParser
from shelld.cli.attach import add_name
from shelld.cli.commands import split_options
from shelld.cli.host_files import FileProblem, write_into
from shelld.cli.parser import option_parser, parse_options
from shelld.cli.program import is_bundled, own_command
from shelld.cli.settings import is_path
from shelld.cli.show import note, refuse, show

NAME: Final = "shelld"
# The characters that need no escape in a basic string of TOML.
_PLAIN: Final = frozenset(map(chr, range(0x20, 0x7F))) - {'"', "\\"}


_CLAUDE_FOLDER: Final = (
    "~/Library/Application Support/Claude" if sys.platform == "darwin" else "~/.config/Claude"
)


class _Host(NamedTuple):
    """Describes a host.

    `snippet` makes the configuration from the command line that starts the daemon. If `file` is
    only a file name, `path` is the whole path.
    """

    file: str
    snippet: Callable[[list[str]], str]
    path: str | None = None


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _servers(key: str, **more: Any) -> Callable[[list[str]], str]:
    """Return a function that makes the usual JSON: the object `key` has an entry for shelld. The
    members in `more` are added to this entry.
    """

    def snippet(command: list[str]) -> str:
        return _json({key: {NAME: {**more, "command": command[0], "args": command[1:]}}})

    return snippet


def _codex(command: list[str]) -> str:
    program, *arguments = map(_toml, command)
    return f"[mcp_servers.{NAME}]\ncommand = {program}\nargs = [{', '.join(arguments)}]"


def _toml(text: str) -> str:
    """Return the text as a basic string of TOML."""
    return '"' + "".join(each if each in _PLAIN else f"\\U{ord(each):08X}" for each in text) + '"'


def _opencode(command: list[str]) -> str:
    return _json({"mcp": {NAME: {"type": "local", "command": command, "enabled": True}}})


HOSTS: Final = {
    "claude-code": _Host(".mcp.json", _servers("mcpServers", type="stdio")),
    "claude-desktop": _Host(
        "claude_desktop_config.json",
        _servers("mcpServers"),
        f"{_CLAUDE_FOLDER}/claude_desktop_config.json",
    ),
    "codex": _Host("~/.codex/config.toml", _codex),
    "cursor": _Host(".cursor/mcp.json", _servers("mcpServers")),
    "gemini-cli": _Host(".gemini/settings.json", _servers("mcpServers")),
    "opencode": _Host("opencode.json", _opencode),
    "vscode": _Host(".vscode/mcp.json", _servers("servers", type="stdio")),
    "windsurf": _Host("~/.codeium/windsurf/mcp_config.json", _servers("mcpServers")),
    "zed": _Host("~/.config/zed/settings.json", _servers("context_servers", source="custom")),
}
# Shorter names of hosts.
ALIASES: Final = {"claude": "claude-code", "code": "vscode", "gemini": "gemini-cli"}
# The form of the configuration that most other hosts read.
_ANY: Final = _Host("your host's configuration", _servers("mcpServers"))


def mcp_config(arguments: Sequence[str]) -> int:
    """Write the configuration of one host; return the exit code."""
    arguments, options = split_options(arguments)
    parser = ArgumentParser(
        prog="shelld mcp-config",
        usage="%(prog)s [-h] [--write] [--attach NAME] [HOST] [-- OPTION ...]",
        description="Print the configuration with which an MCP host starts shelld. "
        "Options after -- become options of shelld.",
        epilog=f"hosts: {', '.join(HOSTS)}. Without HOST, the configuration fits every host "
        f"that reads mcpServers. Shorter names: {', '.join(ALIASES)}.",
    )
    parser.add_argument(
        "--write", action="store_true", help="put the configuration into the host's file"
    )
    add_name(
        parser,
        "--attach",
        help="join the lasting daemon of that name: its shells outlive the host",
    )
    parser.add_argument(
        "host", nargs="?", metavar="HOST", choices=[*HOSTS, *ALIASES], help="the MCP host"
    )
    given = parser.parse_args(arguments)
    named = ALIASES.get(given.host, given.host)
    if given.write and named is None:
        parser.error("--write needs a HOST")
    if is_bundled():
        return refuse("a bundle does not know its path: write the configuration by hand")
    # Report mistakes now, because the host might not show them.
    parent_pid = parse_options(options).parent_pid
    if given.attach is not None and parent_pid is not None:
        # `shelld attach` refuses this option, too.
        parser.error("a lasting daemon outlives its client: leave out --parent-pid")
    try:
        options = _absolute(options)
    except FileNotFoundError:
        return refuse("cannot find the working directory: it was deleted")
    host = _ANY if named is None else HOSTS[named]
    command = [*_this_program(), *options]
    if given.attach is not None:
        joining = ["attach", f"--name={given.attach}"]
        command = [*_this_program(), *joining, *(["--", *options] if options else [])]
    try:
        "".join(command).encode()
    except UnicodeEncodeError:
        return refuse("cannot write a path that is not UTF-8 into a configuration")
    if given.write:
        path = host.path or host.file
        try:
            write_into(_expanded(path), host.snippet(command))
        except FileProblem as problem:
            return refuse(str(problem))
        return show(f"wrote {path}", 0)
    note(f"# for {host.file}")
    return show(host.snippet(command), 0)


def _expanded(path: str) -> Path:
    """Return a path in which the user's home directory replaces ~. Raises `FileProblem`."""
    # Python would treat an empty HOME as /, and a relative HOME as a path in this directory.
    is_usable = os.path.isabs(os.environ.get("HOME", "/"))
    expanded = os.path.expanduser(path) if is_usable else path
    if expanded.startswith("~"):
        why = "the user has none" if is_usable else "HOME is not an absolute path"
        raise FileProblem(f"cannot find the home directory for {path}: {why}")
    return Path(expanded)


def _absolute(options: Sequence[str]) -> list[str]:
    """Return the options with absolute paths. Raises FileNotFoundError if a path is relative and
    the working directory was deleted.
    """
    actions = {
        flag: action
        for action in option_parser()._actions  # pyright: ignore[reportPrivateUsage]
        for flag in action.option_strings
    }
    absolute: list[str] = []
    for word in options:
        option, equals, value = word.partition("=")
        if not (equals and option in actions):
            option, equals, value = absolute[-1] if absolute else "", "", word
        action = actions.get(option)
        if action is not None and is_path(action, value):
            value = os.path.abspath(value)
        absolute.append(f"{option}={value}" if equals else value)
    return absolute


def _this_program() -> list[str]:
    """Return the first words of a command line that starts shelld from any directory."""
    program = Path(sys.argv[0])
    if program.name == NAME and program.is_file():
        return [str(program.absolute())]
    return own_command()
