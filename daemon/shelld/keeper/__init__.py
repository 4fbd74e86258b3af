"""Start commands in small processes under the daemon, and leave no process behind.

::

    daemon ---- keeper            forks runners, and finishes the work of dead runners
      \\           |
       `------- runner            starts bash, and reaps all processes of the command
                   |
                  bash -c ...     in its own session and process group

A daemon has one keeper, and one runner for each running command. A runner is reused for later
commands.

The daemon, the keeper and the runners are child subreapers (prctl(2), Linux). When a process of a
command loses its parent, the kernel makes the runner its new parent, even if the process has
detached itself. The new parent is the keeper if the runner was killed, and the daemon if both were
killed. If ``waitpid`` fails with ECHILD in a runner, this *proves* that no process of the command
is left. A scan of /proc could never prove this. The keeper and the daemon have other children, so
they scan until two scans in a row find no process (`orphan_reaper`). If a command has stopped the
keeper or a runner, the parent of the stopped process continues it. The kernel continues the keeper
and the runners when their parent ends. If a runner can have its own cgroup (`cgroup`), the kernel
kills all processes of a command at once. Without subreapers (`tree.SessionMembers`), the runner,
the keeper and the daemon kill the processes that they can still find.

This package imports only the standard library. It imports no anyio and no other part of the daemon.
The keeper must stay small, because every runner is a fork of the keeper. The keeper does not import
`pool`, which only the daemon uses.

The protocol
------------
Messages are marshalled tuples on a `Channel`. A message can carry descriptors.

daemon -> keeper
    ``(SPAWN_RUNNER,)`` + [socket]   fork a runner that serves this socket. There is no answer.
                                     The daemon need not wait for the runner, because messages to
                                     the runner stay in the socket until the runner reads them.
    ``(STOP_RUNNER, pid)``           SIGKILL an unresponsive runner and, if the keeper is a
                                     subreaper, all descendants of the runner. One of these
                                     processes may trace the runner. Then the runner cannot be
                                     reaped before its tracer has ended.

daemon -> runner
    ``(RUN, program, argv, env, cwd, count, has_terminal, restrictions)``
    + [stdin, stdout, stderr, *extra]
                                     start a command. In the command, the extra descriptors are 3,
                                     4, and so on. All strings are bytes. With an empty `cwd`, the
                                     command starts in the daemon's own directory. `count` is the
                                     number of descriptors sent. With `has_terminal`, the first
                                     three descriptors are one terminal, which becomes the
                                     controlling terminal of the command. `restrictions` is None, or
                                     the members of `start.Restrictions`, with the number of handles
                                     in place of `handles`. The handles are the last descriptors of
                                     the message.
    ``(KILL, signal, grace_ms)``     send the signal to the tree, and SIGKILL after the grace. If
                                     `signal` is None, send SIGTERM, unless the command has already
                                     got SIGTERM.

runner -> daemon
    ``(READY, runner_pid, subreaper, cgroup)``
                                     the first message, sent once. It says whether the runner became
                                     a subreaper and whether it has its own cgroup.
    ``(STARTED, pid, refused)``      bash runs, but could not enter some of the cgroups in
                                     `restrictions`. `refused` has their indexes, and is usually
                                     empty.
    ``(FAILED, errno, what)``        nothing was started; `what` is "cwd", "bash" or "exec".
    ``(EXITED, status, user_us, system_us, max_rss_bytes, signalled, leftover, empty)``
                                     bash was reaped. `signalled` says whether the runner had
                                     carried out a KILL before that. `leftover` has the pids of the
                                     leftover processes, or is None if they cannot be listed. If
                                     `empty` is true, this message implies EMPTY.
    ``(STOPPED,)``                   a signal has stopped bash.
    ``(LEFTOVER, pids)``             the list of leftover processes has changed.
    ``(SURVIVORS, pids)``            these processes are still alive `KILL_DEADLINE_MS` after the
                                     end of the grace. The runner still tries to kill them.
    ``(RETIRES,)``                   the runner takes no other command after this one. The runner
                                     sends this before its last message about the command.
    ``(EMPTY,)``                     no process is left. The runner can take the next command.

keeper -> daemon, on the socket of a runner that has died
    ``(LOST,)``                      the runner is lost. The keeper is killing the remaining
                                     processes of the command.
    ``(SURVIVORS, pids)``, ``(EMPTY,)``
                                     the same messages as above. End of file follows.

A runner reads end of file on its socket if the daemon is gone or has given up the command. Then the
runner kills the tree and ends. If the runner has not started the command before it reads this end
of file, the command never starts. After end of file on its own socket, the keeper ends once its
last runner has ended. Until then, if the keeper is a subreaper, it kills each runner that cannot
end, and all processes that this runner has started. The daemon may read end of file on the socket
of a runner without having received EMPTY. There are three possible reasons: the keeper is gone as
well, the keeper did not fork the runner, or the keeper cannot know which processes are left.

Failures
--------
Any system call may fail, and any line may raise MemoryError. Each part catches its errors at one
place:

`tree`      Raises no OSError. A process that cannot be inspected counts as alive. If the children
            of this process cannot be listed, the functions return None. No caller concludes from
            None that no process is left.
`Channel`   If only part of a message could be sent, the sender shuts the channel down. Then both
            ends read end of file. A message whose file did not arrive becomes FILE_LOST. A runner
            answers FILE_LOST with FAILED, and the daemon gives up the channel.
runner      Catches only errors that it expects. Any other error ends the runner, wherever the error
            was raised (`Keeper._become_runner`). The keeper treats such a runner like a killed one:
            the command is LOST, the keeper kills the tree, and another runner takes the next
            command. A runner also ends itself if it cannot list the processes that it must kill. If
            it has just reaped bash, it first reports that bash has ended.
keeper      Catches every error within one turn of its loop, and checks all its children again. It
            records a dead runner as lost before it does anything else, so it never forgets a dead
            runner. The keeper ends with an error in three cases only:

            * It fails `_MAX_FAILURES` times in a row.
            * It cannot list the processes that it must kill, but the daemon can.
            * A command has changed the keeper's limits or priority, and the daemon can adopt the
              runners.

            Then the daemon adopts the runners, kills the other processes, and starts another
            keeper. No command is lost. If the daemon cannot adopt the runners, a keeper with
            changed limits or priority closes its channel, and ends after its last runner. The
            daemon starts another keeper for the next commands.
`pool`      Only `prepare` and `acquire` raise OSError. The error concerns only the command
            that needs the runner.
"""
