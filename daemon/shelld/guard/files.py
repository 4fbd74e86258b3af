"""Records the effects of programs on files: content that programs write, and links and named pipes
that programs make.

Also follows the files that a command makes and then runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shelld.guard import callees, parse
from shelld.guard.fork_bomb import FORK_BOMB, is_fork_bomb_as_file
from shelld.guard.inputs import Inputs
from shelld.guard.late_files import is_late_program, late_scripts
from shelld.guard.links import links_by, pipes_by
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.outputs import output_of
from shelld.guard.paths import normalized
from shelld.guard.rules import parse_arguments
from shelld.guard.shell import Shell
from shelld.guard.vocabulary import LINKERS

# The directories in which the guard looks for programs.
BIN_DIRECTORIES: Final = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin")
# Programs that give a file the content of another file.
_COPIERS: Final = frozenset({"cp", "mv", "ln", "install", "dd"})


class Files(Shell):
    def content_of(self, name: str, stdin: str) -> str:
        """Return the content of a file, or `UNKNOWN` if it is unknown."""
        path = normalized(name, self.cwd)
        is_input = name == "-" or path in ("/dev/stdin", "/dev/fd/0")
        return stdin if is_input else self.content(path)

    def written_by(self, argv: Sequence[str], stdin: str) -> str:
        """Return the output of a program that changes nothing, or `UNKNOWN` if it is unknown."""
        self.spend(len(stdin) + sum(map(len, argv)))
        inputs = Inputs(None if stdin == UNKNOWN else stdin, self.content, self.cwd)
        output = output_of(argv, inputs)
        return UNKNOWN if output is None else output

    def record(self, program: str, arguments: Sequence[str], stdin: str) -> None:
        """Record how a program changes the names and the content of files."""
        if program in LINKERS:
            self._link(program, arguments)
        if program in _COPIERS:
            self._copy_files(program, arguments, stdin)

    def _copy_files(self, program: str, arguments: Sequence[str], stdin: str) -> None:
        """Record the files to which the program copies known content."""
        operands = parse_arguments(arguments).operands
        if program == "dd":
            for each in operands:
                if each.startswith("of=") and not any(other[:3] == "if=" for other in operands):
                    self.files[normalized(each[3:], self.cwd)] = stdin
        elif len(operands) > 1:
            source, target = operands[-2], operands[-1]
            if (content := self.content_of(source, stdin)) != UNKNOWN:
                name = source.rpartition("/")[2]
                for path in (target, f"{target}/{source}", f"{target}/{name}"):
                    self.files[normalized(path, self.cwd)] = content
                    self.written_late(normalized(path, self.cwd), content)

    def _link(self, program: str, arguments: Sequence[str]) -> None:
        """Record the links and named pipes that a program makes or removes."""
        for name, target in links_by(program, arguments, self.cwd).items():
            self.link(name, target)
        self.pipes.update(pipes_by(program, arguments, self.cwd))
        if program in ("rm", "unlink", "umount"):
            for each in parse_arguments(arguments).operands:
                self.links.pop(normalized(each, self.cwd), None)

    def written_program(self, name: str) -> str:
        """Return the path of a program that the command has written, or "" if there is none."""
        if "/" in name:
            paths = [normalized(name, self.cwd)]
        else:
            paths = [f"{directory}/{name}" for directory in BIN_DIRECTORIES]
        return next((path for path in paths if self.files.get(path)), "")

    def run_file(self, path: str, arguments: Sequence[str], stdin: str) -> str:
        """Follow an executable file of known content."""
        first, _, _ = self.files[path].partition("\n")
        interpreter = first[2:].split() if first.startswith("#!") else []
        return self.execute([*(interpreter or ["sh"]), path, *arguments], stdin)

    def written_late(self, path: str, text: str) -> None:
        if text == UNKNOWN:
            return
        # The guard does not know the state of the shell that will run the scripts in this file. So
        # the guard reports only dangerous scripts, and ignores scripts that are unresolved.
        before = self.budget.unresolved
        for script in late_scripts(path, text):
            self.copy().run_script(script, "")
        if is_late_program(path):
            self.copy().run_file(path, (), "")
        self.budget.unresolved = before

    def check_file(self, path: str, text: str) -> None:
        """Report a script that starts its own file again and again."""
        if "&" not in text and "|" not in text:
            return
        try:
            calls = callees.calls_of(parse.parse(plain(text), self.budget.parse_seconds))
        except parse.TooSlow:
            # Report nothing here. When the guard later follows the script, it runs out of time
            # again, and reports this.
            return
        calls = [
            each._replace(name=normalized(each.name, self.cwd)) if "/" in each.name else each
            for each in calls
        ]
        if is_fork_bomb_as_file(path, calls):
            self.report(FORK_BOMB, text)
