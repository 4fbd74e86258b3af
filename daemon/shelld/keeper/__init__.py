"""Start commands in small processes under the daemon, and leave no process behind.

::

    daemon ---- keeper            one; forks runners, finishes the work of dead runners
      \\           |
       `------- runner            one per running command, reused; starts bash, reaps its tree
                   |
                  bash -c ...     in its own session and process group

The daemon, the keeper and the runners are child subreapers (prctl(2), Linux). When a process of a
command loses its parent, however it detached, the kernel reparents it to the runner, or to the
keeper if the runner was killed, or to the daemon if both were killed. If ``waitpid`` fails with
ECHILD in a runner, that *proves* that nothing is left. A scan of /proc could never prove it. Keeper
and daemon have other children, so they scan until two scans in a row find nothing
(`orphan_reaper`). If a command has stopped the keeper or a runner, the parent of the stopped
process continues it. The kernel continues the keeper and the runners when their parent ends. Where
a runner can have its own cgroup (`cgroup`), the kernel kills a command's processes all at once.
Without subreapers (`tree.SessionMembers`), the runner, the keeper and the daemon kill the processes
that they can still find.

This package imports only the standard library, neither anyio nor the rest of the daemon: the keeper
must stay small, because every runner is a fork of it. The keeper does not import `pool`, which is
the daemon's end.

The protocol
------------
Messages are marshalled tuples on `Channel`; descriptors travel with them.

daemon -> keeper
    ``(SPAWN_RUNNER,)`` + [socket]   fork a runner that serves this socket. There is no answer:
                                     messages sent into the other end wait there for the runner.
    ``(STOP_RUNNER, pid)``           SIGKILL an unresponsive runner and, if the keeper is a
                                     subreaper, everything below the runner: a process there may
                                     trace the runner and so keep it from being reaped.

daemon -> runner
    ``(RUN, program, argv, env, cwd, count, has_terminal, restrictions)``
    + [stdin, stdout, stderr, *extra]
                                     start a command; extra descriptors become 3, 4, ... All strings
                                     are bytes; an empty `cwd` is the daemon's own; `count` is the
                                     number of descriptors sent. `has_terminal`: the first three
                                     are one terminal, which becomes the command's controlling
                                     terminal. `restrictions`: None, or the members of
                                     `start.Restrictions`, with the number of `handles`, which are
                                     the last descriptors.
    ``(KILL, signal, grace_ms)``     signal the tree, SIGKILL it after the grace. `signal` None:
                                     SIGTERM, unless the command has had it

runner -> daemon
    ``(READY, runner_pid, subreaper, cgroup)``
                                     once, before anything else: whether the runner became a
                                     subreaper and has its own cgroup.
    ``(STARTED, pid, refused)``      `refused`: the indexes of the cgroups of `restrictions` that
                                     bash could not enter.
    ``(FAILED, errno, what)``        nothing was started; `what` is "cwd", "bash" or "exec".
    ``(EXITED, status, user_us, system_us, max_rss_bytes, signalled, leftover, empty)``
                                     bash was reaped; `signalled`: a KILL was carried out before;
                                     `leftover`: pids of the leftover processes, None if they
                                     cannot be listed; `empty`: this message implies EMPTY.
    ``(STOPPED,)``                   a signal has stopped bash.
    ``(LEFTOVER, pids)``             the list of leftover processes has changed.
    ``(SURVIVORS, pids)``            these processes are left `KILL_DEADLINE_MS` after the grace.
                                     The runner still tries to kill them.
    ``(RETIRES,)``                   this command is the runner's last. Sent before the last message
                                     about the command.
    ``(EMPTY,)``                     nothing is left; the runner takes the next command.

keeper -> daemon, on the socket of a runner that has died
    ``(LOST,)``                      the keeper is killing the processes that the runner left.
    ``(SURVIVORS, pids)``, ``(EMPTY,)``
                                     as above; then end of file.

End of file on a runner's socket means that the daemon is gone or has given up the command: the
runner kills the tree, then ends. A runner that has not started its command by then never starts it.
After end of file on its own socket, the keeper ends once its last runner has ended. If the keeper
is a subreaper, it meanwhile kills runners that cannot end, with everything they started. End of
file on the daemon's side, without EMPTY, means that the keeper is gone too, could not fork, or
cannot know which processes a runner left.

Failures
--------
Any system call may fail, and any line may raise MemoryError. Each owner has one boundary:

`tree`      Raises no OSError. A process that cannot be inspected counts as alive. If not even this
            process's children can be listed, it returns None; no caller takes that for "none are
            left".
`Channel`   If only part of a message could be sent, the sender shuts the channel down, so both ends
            read end of file. A message whose file did not arrive becomes FILE_LOST. A runner
            answers it with FAILED; the daemon gives up the channel.
runner      Catches only errors that it expects. Any other error ends it, wherever it was raised
            (`Keeper._become_runner`). The keeper treats it like a killed runner: the command is
            LOST, the keeper kills its tree, and another runner takes its place. A runner also ends
            itself if it cannot list the processes that it must kill. If it has just reaped bash, it
            reports that first.
keeper      Catches every error within one turn of its loop, and checks all its children again. It
            records a dead runner as lost before it tries anything else, so it never forgets one.
            It ends with an error in three cases only: it fails `_MAX_FAILURES` times in a row; it
            cannot list the processes that it must kill, and the daemon can; or a command has
            changed its limits or priority, and the daemon can adopt the runners. Then the daemon
            adopts the runners, kills the rest, and starts another keeper; no command is lost.
`pool`      Only `prepare` and `acquire` raise OSError. The error concerns only the command
            that needs the runner.
"""
