"""The cost of the guard: per command, on import, and for hostile input.

Usage: python benchmarks/guard.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from measure import milliseconds, report
from shelld.guard import StartState
from shelld.guard.judgement import judge
from shelld.guard.quick import is_plainly_harmless

ORDINARY = (
    r"""
ls -la
git status
cd src && ls
npm run build
make -j4 test
git commit -m "Fix the parser, and don't forget the tests"
grep -rn "TODO" --include='*.py' src | head -20
find . -name '*.pyc' -not -path './.venv/*' -delete
for f in *.txt; do mv "$f" "${f%.txt}.md"; done
rm -rf node_modules dist && npm ci
export PATH="$HOME/bin:$PATH"; command -v node
docker run --rm -v "$PWD:/app" -w /app node:20 npm test
curl -fsSL https://example.org/install.sh | sh
python - <<'EOF'\nimport sys\nprint(sys.version)\nEOF
if [ -d build ]; then rm -rf build; fi; mkdir -p build && cd build && cmake ..
ps aux | awk '{print $2, $11}' | sort -k2 | uniq -c | sort -rn | head
sudo chown -R $USER:$(id -gn $USER) ~/.config
tar czf - src | ssh host 'tar xzf - -C /tmp'
""".strip()
    .replace("\\n", "\n")
    .splitlines()
)

HOSTILE = {
    "parentheses": "(" * 1_000_000,
    "substitutions": "$(" * 500_000,
    "quotes": '"' * 1_000_000,
    "parameters": "${" * 500_000,
    "braces": "{" * 1_000_000,
    "words": "rm " + "a " * 500_000,
    "pipes": "a|" * 500_000,
}

HERE = StartState("/work", {"HOME": "/home/me", "USER": "me", "PATH": "/usr/bin"})


def guard(command: str) -> None:
    """Judge a command as the daemon does."""
    if not is_plainly_harmless(command):
        judge(command, HERE)


def per_command(rounds: int) -> None:
    times = sorted(
        milliseconds(lambda command=command: guard(command))  # type: ignore[misc]
        for _ in range(rounds)
        for command in ORDINARY
    )
    report(
        "ordinary commands",
        median_ms=statistics.median(times),
        p99_ms=times[len(times) * 99 // 100],
        max_ms=times[-1],
    )


def parser_import() -> None:
    def run(code: str) -> float:
        return milliseconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    common = "import shelld.guard.judgement"
    pairs = [
        (run(common), run(f"{common}; from shelld.guard import parse; parse.load()"))
        for _ in range(15)
    ]
    without, loaded = (statistics.median(each) for each in zip(*pairs, strict=True))
    report("import of the parser", more_ms=loaded - without)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    judge("true", HERE)
    per_command(rounds)
    parser_import()
    for name, command in HOSTILE.items():
        report(f"1 MB of {name}", ms=milliseconds(lambda command=command: guard(command)))  # type: ignore[misc]


if __name__ == "__main__":
    main()
