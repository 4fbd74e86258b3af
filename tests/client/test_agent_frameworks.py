"""Agents of the OpenAI Agents SDK and of Pydantic AI use the tools of a daemon.

The frameworks are real, and a script takes the place of the model. Each framework runs in a process
of its own, because its import takes seconds and its threads outlive the test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[1] / "helpers" / "agents_of"
FRAMEWORKS = {"openai_agents": "agents", "pydantic_ai": "pydantic_ai"}
# What the model is told if the arguments in its tool call are not valid JSON.
REFUSED = {
    "openai_agents": [
        "Error: Invalid value for arguments.timeout: nan is not a number in JSON",
        "Invalid arguments: expected a JSON object",
        "Invalid arguments: expected a JSON object",
    ],
    "pydantic_ai": ["Error: Invalid value for arguments.timeout: nan is not a number in JSON"],
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_agent_calls_the_tools(name: str) -> None:
    command = [sys.executable, str(SCRIPTS / f"{name}_script.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    answers = ended.stdout.split("---\n")
    assert answers[0] == "Bash BashOutput KillShell\n"
    for answer in answers[1:3]:
        # The command ran in the working directory that the context names, and the failure reached
        # the model as text.
        assert answer.splitlines()[0] == "/usr"
        assert "Error: Command failed with exit code 3" in answer
        assert "Error: Missing required parameter: command" in answer
        assert answer.splitlines()[-len(REFUSED[name]) :] == REFUSED[name]
    assert len(answers) == 3


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_error_names_the_missing_extra(name: str) -> None:
    # None in `sys.modules` marks a module that cannot be imported.
    script = (
        f"import sys\nsys.modules[{FRAMEWORKS[name]!r}] = None\nfrom shelld_client import Client\n"
        f"with Client.spawn() as shell: shell.{name}_tools()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=500, check=False
    )
    extra = name.replace("_", "-")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: tools for ")
    assert last.endswith(f"need the extra '{extra}': pip install 'shelld[{extra}]'")
