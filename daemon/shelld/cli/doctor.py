"""``shelld doctor [--json] [-- OPTION ...]``: check what works on this machine.

Runs a few harmless commands as the daemon would, with the daemon's options, and checks limits and
files. Leaves nothing running. Exit codes: 0 if everything works, 1 if something does not work, 2
for bad arguments, or if stdout cannot be written. The state "note" marks a fact that a user should
know, although everything works.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import anyio

from shelld.cli.arguments import ArgumentParser
from shelld.cli.commands import split_options
from shelld.cli.logout import why_a_logout_kills
from shelld.cli.parser import parse_options
from shelld.cli.show import show
from shelld.guard import StartState
from shelld.guard.judgement import judge
from shelld.guard.policy_file import load
from shelld.inspection.sockets import can_be_listed
from shelld.keeper.pool import RunnerPool
from shelld.keeper.prctl import become_subreaper
from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
from shelld.methods.context import Daemon, RequestContext, manager_options
from shelld.methods.shells import kill_shell
from shelld.output.spool import Spool, may_hold_spool
from shelld.process.logs import open_log
from shelld.process.options import Options
from shelld.process.toml_file import TomlError
from shelld.server.startup import problem_with_bash, raise_file_limit
from shelld.shells.manager import Manager
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputParams,
    BashParams,
    BashResult,
    KillShellParams,
)
from shelld_protocol.structs import ResourceLimits

State = Literal["ok", "note", "problem"]

# The daemon opens fewer descriptors than this for a command: pipes, files, and the connection to
# its runner.
_DESCRIPTORS_PER_SHELL: Final = 12
# Each shell has a runner, a bash, and one process that bash starts.
_PROCESSES_PER_SHELL: Final = 3
# How long to wait for a spare shell to start.
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.02
# Limits that are too high for the commands of the doctor to reach.
_LIMITS: Final = ResourceLimits(memory_bytes=2**30, processes=1_000)
# How long to wait until the daemon finds that a program waits for input.
_MAX_PROMPT_MS: Final = 5_000


class Diagnosis(NamedTuple):
    """Holds the result of a check.

    `found` describes the result. `meaning` says what the result means for the user, or is "" if
    that is obvious.
    """

    check: str
    state: State
    found: str
    meaning: str = ""


class LocalDaemon(NamedTuple):
    """Runs commands as a daemon would, but without a client."""

    options: Options
    manager: Manager
    context: RequestContext

    async def run(self, command: str) -> BashResult:
        """Run a command in the foreground. Raises `RpcError`."""
        result = await bash(self.context, BashParams(command, timeout=10_000))
        assert isinstance(result, BashResult)
        return result


def doctor(arguments: Sequence[str]) -> int:
    """Write one line per check to stdout; return the exit code."""
    arguments, daemon_options = split_options(arguments)
    parser = ArgumentParser(
        prog="shelld doctor",
        usage="%(prog)s [-h] [--json] [-- OPTION ...]",
        description="Check what works on this machine, for a daemon with the given options.",
        epilog="exit codes: 0 everything works, 1 something does not",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args(arguments).json
    diagnoses = anyio.run(_examine, parse_options(daemon_options))
    problems = sum(each.state == "problem" for each in diagnoses)
    if as_json:
        text = json.dumps([each._asdict() for each in diagnoses], indent=2)
    else:
        verdict = f"{problems} checks failed" if problems else "all checks passed"
        text = "\n".join([*map(_line, diagnoses), verdict])
    return show(text, 1 if problems else 0)


def _line(diagnosis: Diagnosis) -> str:
    meaning = f": {diagnosis.meaning}" if diagnosis.meaning else ""
    return f"{diagnosis.state:8}{diagnosis.check:14}{diagnosis.found}{meaning}"


async def _examine(options: Options) -> list[Diagnosis]:
    diagnoses = [
        *(_system(), _open_files(options), _processes(options), _spool(options)),
        *(_guard(options), _ports(), *_files(options), *_environment(), *_logout()),
    ]
    checks: list[Callable[[LocalDaemon], Awaitable[Diagnosis]]] = [
        *(_bash, _sessions, _spare_shells, _prompts, _containment, _cgroup, _limits, _sandbox),
    ]
    async with _local_daemon(options) as daemon:
        for check in checks:
            try:
                diagnoses.append(await check(daemon))
            except RpcError as error:
                name = check.__name__.removeprefix("_").replace("_", " ")
                diagnoses.append(Diagnosis(name, "problem", error.message))
    return diagnoses


@contextlib.asynccontextmanager
async def _local_daemon(options: Options) -> AsyncGenerator[LocalDaemon]:
    adopts = options.containment != "process-group" and become_subreaper()
    pool = RunnerPool(file_limit=raise_file_limit(), mechanism=options.containment, adopts=adopts)
    try:
        async with Manager(manager_options(options), pool=pool) as manager:
            yield LocalDaemon(options, manager, RequestContext(Daemon(options, manager)))
    finally:
        pool.close()


# -- the machine ------------------------------------------------------------------------------


def _system() -> Diagnosis:
    found = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    if platform.system() == "Linux":
        return Diagnosis("system", "ok", found)
    return Diagnosis("system", "note", found, "some guarantees hold on Linux only")


def _open_files(options: Options) -> Diagnosis:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = options.max_shells * _DESCRIPTORS_PER_SHELL
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return Diagnosis("open files", "ok", f"up to {hard}")
    meaning = f"enough for about {hard // _DESCRIPTORS_PER_SHELL} of {options.max_shells} shells"
    return Diagnosis("open files", "problem", f"up to {hard}", meaning)


def _processes(options: Options) -> Diagnosis:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    needed = options.max_shells * _PROCESSES_PER_SHELL
    if soft == resource.RLIM_INFINITY or soft >= needed:
        shown = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft} for this user"
        return Diagnosis("processes", "ok", shown)
    meaning = f"{options.max_shells} shells at once may need {needed}"
    return Diagnosis("processes", "problem", f"up to {soft} for this user", meaning)


def _spool(options: Options) -> Diagnosis:
    spool = Spool(options.retain_total_bytes, options.spool_dir)
    try:
        free = spool.free_bytes()
        spool.put(b"x")
    except OSError as error:
        meaning = "only 64 KiB of each stream are kept"
        if not may_hold_spool(options.spool_dir):
            meaning = "the daemon does not start"
        return Diagnosis("spool", "problem", os.strerror(error.errno or 0), meaning)
    finally:
        spool.close()
    found = f"{free // 2**20} MiB free"
    if free < options.retain_total_bytes:
        kept = options.retain_total_bytes // 2**20
        return Diagnosis("spool", "note", found, f"the daemon may keep up to {kept} MiB of output")
    return Diagnosis("spool", "ok", found)


def _guard(options: Options) -> Diagnosis:
    if options.guard in {"off", "warn"}:
        return Diagnosis("guard", "note", options.guard, "dangerous commands run")
    here = StartState("/", {"HOME": "/root"})
    verdicts = [
        judge(command, here).verdict for command in ("echo / | xargs rm -r", "echo rm -r /")
    ]
    if verdicts == ["block", "allow"]:
        return Diagnosis("guard", "ok", "recognizes a disguised dangerous command")
    return Diagnosis("guard", "problem", "cannot parse commands", "dangerous commands may run")


def _files(options: Options) -> list[Diagnosis]:
    """Return a diagnosis for each file that the daemon needs when it starts, but cannot use."""
    diagnoses: list[Diagnosis] = []
    if options.guard_rules is not None:
        try:
            load(Path(options.guard_rules))
        except TomlError as error:
            diagnoses.append(Diagnosis("guard rules", "problem", str(error)))
    for name, path in (("audit log", options.audit_log), ("log file", options.log_file)):
        if path is None:
            continue
        exists = os.path.exists(path)
        try:
            os.close(open_log(path, 0o600, os.O_NOFOLLOW if name == "audit log" else 0))
        except OSError as error:
            found = os.strerror(error.errno or 0)
            diagnoses.append(Diagnosis(name, "problem", found, "the daemon does not start"))
        else:
            if not exists:
                # Delete the file, because the check has created it. If the path is a symbolic link,
                # the check has created the target of the link.
                os.unlink(os.path.realpath(path))
    return diagnoses


def _ports() -> Diagnosis:
    if can_be_listed():
        return Diagnosis("ports", "ok", "the kernel tells which program listens on a port")
    meaning = "nobody can wait until a command listens"
    return Diagnosis("ports", "note", "the kernel lists no listening sockets", meaning)


def _environment() -> list[Diagnosis]:
    if "BASH_ENV" not in os.environ:
        return []
    # Unset BASH_ENV for the other checks. Otherwise, the file in BASH_ENV could add text to the
    # output of these checks.
    path = os.environ.pop("BASH_ENV")
    meaning = "every bash reads this file first, and there are no spare shells"
    return [Diagnosis("BASH_ENV", "note", path, meaning)]


def _logout() -> list[Diagnosis]:
    if reason := why_a_logout_kills():
        return [Diagnosis("logout", "note", reason, "a daemon of shelld attach ends at logout")]
    return []


# -- what works -------------------------------------------------------------------------------


async def _bash(daemon: LocalDaemon) -> Diagnosis:
    if problem := problem_with_bash(daemon.options.bash, is_trusted=False):
        return Diagnosis("bash", "problem", f"{daemon.options.bash}: {problem}")
    result = await daemon.run("echo $BASH_VERSION")
    return Diagnosis("bash", "ok", f"{daemon.options.bash}, {result.stdout.strip()}")


async def _sessions(daemon: LocalDaemon) -> Diagnosis:
    await daemon.run("cd /; doctor=1")
    result = await daemon.run('echo "$PWD $doctor"')
    if result.stdout == "/ 1\n":
        return Diagnosis("sessions", "ok", "keep their state between commands")
    return Diagnosis("sessions", "problem", "lose their state between commands")


async def _spare_shells(daemon: LocalDaemon) -> Diagnosis:
    if not daemon.options.spare_shells:
        return Diagnosis("spare shells", "note", "off")
    with anyio.move_on_after(_PATIENCE_S):
        while not daemon.manager.spares_used:
            await anyio.sleep(_LOOK_S)
            await daemon.run("true")
        return Diagnosis("spare shells", "ok", "the next command of a session starts at once")
    meaning = "commands take about twice as long"
    return Diagnosis("spare shells", "note", "the system does not allow them", meaning)


async def _prompts(daemon: LocalDaemon) -> Diagnosis:
    reads = BashParams("read line", run_in_background=True, session=None, open_stdin=True)
    started = await bash(daemon.context, reads)
    assert isinstance(started, BackgroundResult)
    try:
        wait = BashOutputParams(started.bash_id, until="prompt", wait=_MAX_PROMPT_MS)
        prompt = (await bash_output(daemon.context, wait)).prompt
    finally:
        await kill_shell(daemon.context, KillShellParams(started.bash_id, grace=0))
    if prompt is not None and prompt.certainty == "proved":
        return Diagnosis("prompts", "ok", "the kernel tells which program waits for input")
    meaning = "prompts can only be guessed, and on_prompt has no effect"
    return Diagnosis("prompts", "note", "the kernel hides which program waits for input", meaning)


async def _containment(daemon: LocalDaemon) -> Diagnosis:
    # Start a process that has its own session and whose parent has ended. Check first that both
    # programs exist. If a program were missing, the process ``$!`` would end at once. The check
    # below might then come too early to notice that the process has ended.
    result = await daemon.run("type -P setsid sleep >/dev/null && (setsid sleep 300 & echo $!)")
    meaning = "a process that leaves its session and its parent is not killed"
    try:
        pid = int(result.stdout)
        if result.sandbox is not None:
            # `$!` is the pid inside of the sandbox, so take the pid from `leftover`.
            if not result.leftover:
                return Diagnosis("containment", "problem", "a process escapes", meaning)
            pid = result.leftover[0]
        os.kill(pid, 0)
    except (ValueError, ProcessLookupError):
        return Diagnosis("containment", "problem", "cannot start a process for the test")
    killed = await kill_shell(daemon.context, KillShellParams(result.bash_id))
    try:
        if not _is_alive(pid):
            return Diagnosis("containment", "ok", "a kill ends every process of a command")
        found = (
            f"{len(killed.survivors)} processes survive"
            if killed.survivors
            else "a process escapes"
        )
        return Diagnosis("containment", "problem", found, meaning)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def _cgroup(daemon: LocalDaemon) -> Diagnosis:
    info = await daemon.manager.runner_info()
    if info is not None and info.cgroup:
        return Diagnosis("cgroup", "ok", "the kernel kills all processes of a command at once")
    meaning = "processes that changed their user are reported, but not killed"
    return Diagnosis("cgroup", "note", "shelld may not create a cgroup", meaning)


async def _limits(daemon: LocalDaemon) -> Diagnosis:
    limiter = daemon.manager.runtime.limiter
    try:
        member = limiter.admit(None, _LIMITS)
    except RpcError:
        meaning = "a command with a limit on memory, processes or processor time does not start"
        return Diagnosis("limits", "problem", "no /proc and no cgroup", meaning)
    enforced = member.enforced
    limiter.end(member)
    if {enforced.memory, enforced.processes} == {"cgroup"}:
        return Diagnosis("limits", "ok", "the kernel limits the memory and processes of sessions")
    watched = [name for name in ("memory", "processes") if getattr(enforced, name) == "watch"]
    found = f"no cgroup for a limit on {' and '.join(watched)}"
    return Diagnosis(
        "limits", "note", found, "shelld measures the commands several times a second instead"
    )


async def _sandbox(daemon: LocalDaemon) -> Diagnosis:
    # Try the daemon's policy. If the daemon has no policy, try a policy that needs all parts of the
    # sandbox.
    is_wanted = daemon.options.sandbox is not None
    policy = daemon.options.sandbox or SandboxPolicy("read-only", network="hosts", hosts=[])
    try:
        params = BashParams(
            "true", timeout=10_000, session=None, sandbox=None if is_wanted else policy
        )
        await bash(daemon.context, params)
    except RpcError as error:
        if error.kind is not ErrorKind.UNAVAILABLE:
            raise
        found = f"{error.data['missing']} is missing"
        meaning = f"commands in a sandbox are refused. {error.data['hint']}"
        return Diagnosis("sandbox", "problem" if is_wanted else "note", found, meaning)
    found = "bubblewrap can isolate commands"
    if policy.network == "hosts":
        found += " and let them reach only the hosts that a policy lists"
    return Diagnosis("sandbox", "ok", found)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
