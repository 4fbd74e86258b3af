"""The small processes under the daemon that start commands and leave none of them behind.

::

    daemon ---- keeper            one; forks runners, finishes the work of those that die
      \\           |
       `------- runner            one per running command, reused; starts bash, reaps its tree
                   |
                  bash -c ...     in a session and a process group of its own

All three are child subreapers (prctl(2), Linux): whatever a command forks, however it detaches, is
reparented to its runner when its own parent dies; to the keeper, if the runner was killed; to the
daemon, if both were. A runner that sees ``waitpid`` fail with ECHILD has *proved* that nothing is
left; a scan of /proc never could. Keeper and daemon, which have other children, look until nothing
is found twice in a row (`orphan_reaper`). Each continues a child that a command has stopped, and
the kernel continues keeper and runners when their parent ends. Where a cgroup of its own is to be
had (`cgroup`), the kernel kills a command's processes all at once. Without subreapers
(`tree.SessionMembers`) the same processes do the same with what can still be found.

This package never imports anyio or anything of the rest of the daemon, and nothing outside the
standard library: the keeper must stay small, since every runner is a fork of it. `pool` is the
one exception, as it is the daemon's end.

The protocol
------------
Messages are marshalled tuples on `Channel`; descriptors travel with them.

daemon -> keeper
    ``(SPAWN_RUNNER,)`` + [socket]   fork a runner that serves this socket. Not answered: what is
                                     sent into the other end waits there for the runner.
    ``(STOP_RUNNER, pid)``           SIGKILL a runner that does not do what it is asked for, and, as
                                     a subreaper, all below it: one of those may trace it.

daemon -> runner
    ``(RUN, program, argv, env, cwd, count)`` + [stdin, stdout, stderr, *extra]
                                     start a command; extra descriptors become 3, 4, ... `cwd` and
                                     the others are bytes; an empty `cwd` is the daemon's own;
                                     `count` is the number of descriptors sent.
    ``(KILL, signal, grace_ms)``     signal the tree, SIGKILL it after the grace.

runner -> daemon
    ``(READY, runner_pid, subreaper, cgroup)``
                                     once, before anything else: what it has become.
    ``(STARTED, pid)``
    ``(FAILED, errno, what)``        nothing was started; `what` is "cwd", "bash" or "exec".
    ``(EXITED, status, user_us, system_us, max_rss_bytes, signalled, leftover, empty)``
                                     bash was reaped; `signalled`: a KILL had been carried out
                                     before; `leftover`: pids of what it left behind, None if nobody
                                     can tell; `empty`: this says what EMPTY says, too.
    ``(STOPPED,)``                   a signal has stopped bash.
    ``(LEFTOVER, pids)``             the list has changed.
    ``(SURVIVORS, pids)``            not empty `KILL_DEADLINE_MS` after the grace; still trying.
    ``(EMPTY,)``                     nothing is left; the runner takes the next command.

keeper -> daemon, on the socket of a runner that has died
    ``(LOST,)``                      the keeper is killing what the runner left. From a runner that
                                     lives: this command is its last.
    ``(SURVIVORS, pids)``, ``(EMPTY,)``
                                     as above; then end of file.

End of file on a runner's socket means that the daemon is gone, or has given the command up: the
tree is killed, then the runner ends. A command that was not started by then is never started. End
of file on the keeper's socket: it ends once its last runner has; those that cannot end, it kills,
as a subreaper with what they have started. End of file on the daemon's side, without EMPTY, means
that the keeper is gone too, could not fork, or has no means to know what a runner has left.

What fails
----------
Any system call may fail, and any line may raise MemoryError. There is one boundary for each owner:

`tree`      Raises no OSError. A process that cannot be looked at is alive. If not even the own
            children can be listed, the answer is None, which nobody takes for "none are left".
`Channel`   After a message that was sent in part, both ends see the end of the channel. A message
            whose file did not arrive is FILE_LOST: a runner answers FAILED, the daemon gives the
            channel up.
runner      Catches nothing that it does not expect. It ends with an error, wherever that was raised
            (`Keeper._become_runner`), and to its keeper this is the same as a runner that was
            killed: the command is LOST, its tree is killed, and another runner takes its place. It
            does so by itself, too, if it cannot list what it is to kill. What it knows of the
            command's end, it tells first.
keeper      Catches everything in one turn of its loop, and looks at all its children again. A
            runner that has died is entered as lost before anything else is tried, so it is not
            forgotten. Only a keeper that fails `_MAX_FAILURES` times in a row, or that cannot list
            what it is to kill while the daemon could, ends with an error. Then the daemon adopts
            its runners, kills the rest, and starts another keeper; no command is lost by that.
`pool`      Only `prepare` and `acquire` raise OSError: for the one command that needs a runner.
"""
