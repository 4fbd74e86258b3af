"""The small processes under the daemon that start commands and leave none of them behind.

::

    daemon ---- keeper            one; forks runners, adopts and kills what a dead runner leaves
      \\           |
       `------- runner            one per running command, reused; starts bash, reaps its tree
                   |
                  bash -c ...     in a session and a process group of its own

Keeper and runners are child subreapers (prctl(2), Linux): whatever a command forks, however it
detaches, is reparented to its runner when its own parent dies. A runner that sees ``waitpid``
fail with ECHILD has therefore *proved* that nothing is left; a scan of /proc never could.

This package never imports anyio or anything of the rest of the daemon, and nothing outside the
standard library: the keeper must stay small, since every runner is a fork of it. `pool` is the
one exception, as it is the daemon's end.

The protocol
------------
Messages are marshalled tuples on `Channel`; descriptors travel with them.

daemon -> keeper
    ``(SPAWN_RUNNER,)`` + [socket]   fork a runner that serves this socket. Not answered: what is
                                     sent into the other end waits there for the runner.

daemon -> runner
    ``(RUN, argv, env, cwd, count)`` + [stdin, stdout, stderr, *extra]
                                     start a command; extra descriptors become 3, 4, ... `cwd` and
                                     the others are bytes; an empty `cwd` is the daemon's own;
                                     `count` is the number of descriptors sent.
    ``(KILL, signal, grace_ms)``     signal the tree, SIGKILL it after the grace.

runner -> daemon
    ``(READY, runner_pid)``          once, before anything else.
    ``(STARTED, pid)``
    ``(FAILED, errno, what)``        nothing was started; `what` is "cwd", "bash" or "exec".
    ``(EXITED, status, user_us, system_us, max_rss_bytes, signalled, leftover)``
                                     bash was reaped; `signalled`: a KILL had been carried out
                                     before; `leftover`: pids of what it left behind.
    ``(LEFTOVER, pids)``             the list has changed.
    ``(SURVIVORS, pids)``            not empty `KILL_DEADLINE_MS` after the grace; still trying.
    ``(EMPTY,)``                     ECHILD: nothing is left, the runner takes the next command.

End of file on a runner's socket means that the daemon is gone: the tree is killed, then the
runner ends. End of file on the keeper's socket: it ends once its last runner has. A dead runner
is end of file on the daemon's side.
"""
