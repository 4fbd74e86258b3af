"""Programs that seem to wait for input, but do not. This file holds data only.

Most of these programs do not read at all. The other programs read something, but not the typed
text.
"""

from __future__ import annotations

from prompt_corpus import NOBODY, REMOTE, SILENT, Entry


def _quick(name: str, command: str, ready: str = "ready") -> Entry:
    return Entry(name, command, waits=None, ready=ready, is_quick=True)


def _piped(name: str, command: str, ready: str = "ready") -> Entry:
    return Entry(name, command, waits=None, ready=ready, is_quick=True, input="open_stdin")


def _python(name: str, code: str, ready: str = "ready") -> Entry:
    return _quick(name, f"python3 -c '{code}'", ready)


def _other(name: str, command: str, *needs: str, ready: str = "ready") -> Entry:
    return Entry(name, command, needs=needs, waits=None, ready=ready)


_LOOK_LIKE_PROMPTS = (
    _quick("password", "printf 'Password: '; sleep 300", "Password:"),
    _quick("password-no-echo", "stty -echo; printf 'Password: '; sleep 300", "Password:"),
    _quick("question", "printf 'Continue? [y/N] '; exec sleep 300", "Continue"),
    _quick("bash-prompt", "printf 'user@host:~$ '; sleep 300", "host"),
    _quick("any-key", "echo 'Press any key to continue'; sleep 300", "Press"),
    _quick("keys", "stty raw -echo; echo ready; sleep 300"),
    _python(
        "python-prompt", 'import time; print(">>> ", end="", flush=True); time.sleep(300)', ">"
    ),
    _python(
        "debugger-prompt",
        'import time; print("(Pdb) ", end="", flush=True); time.sleep(300)',
        "Pdb",
    ),
    _python(
        "log-line",
        'import signal; print("Last command: ", end="", flush=True); signal.pause()',
        "Last",
    ),
    _quick("answered", "echo yes | (read -p 'Sure? ' x; printf 'Sure? '; exec sleep 300)", "Sure"),
    _quick("no-input", "read -p 'Name: ' x < /dev/null; printf 'Name: '; sleep 300", "Name"),
    _quick("menu", "printf '1) tea\\n2) coffee\\n#? '; sleep infinity", "#"),
)

_WORK = (
    _quick("spinner", "while printf '\\r|'; do sleep 0.1; printf '\\r-'; sleep 0.1; done", "-"),
    _quick(
        "progress", "for ((n = 0;; n++)); do printf '\\r[%5d files]' $n; sleep 0.2; done", "files"
    ),
    _quick("build", "echo '[ 50%] Building'; sleep 300; echo '[100%] Built'", "Building"),
    _quick("busy", "echo ready; while :; do :; done"),
    _quick("busy-copy", "echo ready; exec cat /dev/zero > /dev/null"),
    _quick("watcher", "echo ready; while sleep 0.2; do [ -e missing ]; done"),
    _quick("wait", "sleep 300 & echo ready; wait"),
    _quick("wait-any", "sleep 300 & sleep 301 & echo ready; wait -n"),
    _quick("interactive-bash-waits", "echo ready; bash --norc -ic 'sleep 300; true'"),
    _quick("flock", "flock lock sleep 300 & sleep 0.2; echo ready; flock lock true"),
    _quick("timeout", "echo ready; timeout 300 sleep 300; echo"),
    _quick("tail-null", "echo ready; exec tail -f /dev/null"),
    _quick("tail-file", "echo ready > f; exec tail -f f"),
    _quick("tail-pipe", "echo ready > f; tail -f f | cat"),
    _quick("tail-pid", "sleep 300 & echo ready; tail -f /dev/null --pid $!"),
    _quick("xargs", "echo ready; echo 300 | xargs sleep"),
    _quick("script", "script -qc 'echo ready; sleep 300' /dev/null"),
    _quick("script-raw", "script -qc 'stty raw -echo; echo ready; sleep 300' /dev/null"),
    _quick("nohup", "echo ready; nohup sleep 300"),
    _quick("script-behind-a-pipe", "echo ready; cat | script -qc 'sleep 300' /dev/null"),
    # This ssh waits for input all the time, even while the other machine works.
    _quick("ssh-command", REMOTE.format("sane"), "$"),
    _quick("setsid", "echo ready; setsid -w sleep 300"),
)

_READ_SOMETHING_ELSE = (
    _quick("fifo", "mkfifo f; sleep 300 > f & printf 'Name? '; read x < f", "Name"),
    _quick("fifo-open", "mkfifo f; printf 'Name? '; read x < f", "Name"),
    _quick("pipe", "echo ready; sleep 300 | cat"),
    _quick("pipe-filters", "echo ready; sleep 300 | sort | uniq"),
    _quick("pipe-bash", "sleep 300 | (echo ready; read x)"),
    _quick("coprocess", "coproc sleep 300; echo ready; read -u ${COPROC[0]} x"),
    _quick("substitution", "echo ready; x=$(sleep 300)"),
    _quick("process-substitution", "echo ready; cat <(sleep 300)"),
    _quick("background-cat", "cat & echo ready; exec sleep 300"),
    _quick("closed-input", "exec < /dev/null; echo ready; sleep 300"),
    _python(
        "pipe-of-own", 'import os; r, _ = os.pipe(); print("ready", flush=True); os.read(r, 1)'
    ),
    _python(
        "child",
        'import subprocess; print("ready", flush=True); subprocess.check_output(["sleep", "300"])',
    ),
    _python(
        "server",
        'import socket; s = socket.create_server(("127.0.0.1", 0));'
        ' print("ready", flush=True); s.accept()',
    ),
    _python(
        "server-of-files",
        "from http import server;"
        ' s = server.HTTPServer(("127.0.0.1", 0), server.SimpleHTTPRequestHandler);'
        ' print("ready", flush=True); s.serve_forever()',
    ),
    _python(
        "client",
        'import socket; s = socket.create_server(("127.0.0.1", 0));'
        ' c = socket.create_connection(s.getsockname()); print("Password: ", flush=True);'
        " c.recv(1)",
        "Password",
    ),
    _python(
        "event-loop",
        "import asyncio; loop = asyncio.new_event_loop();"
        ' loop.call_soon(lambda: print("ready", flush=True)); loop.run_forever()',
    ),
    _python(
        "event-loop-timers",
        'import asyncio\nasync def tick():\n  print("ready", flush=True)\n'
        "  while True: await asyncio.sleep(0.1)\nasyncio.run(tick())",
    ),
    _python(
        "select-write",
        'import os, select; r, w = os.pipe(); print("ready", flush=True);'
        " select.select([r], [], [0])",
    ),
    _python(
        "poll-hang-up",
        'import select; p = select.poll(); p.register(0, 0); print("ready", flush=True); p.poll()',
    ),
    _python(
        "epoll-priority",
        "import select; p = select.epoll(); p.register(0, select.EPOLLPRI);"
        ' print("ready", flush=True); p.poll()',
    ),
    _python(
        "own-terminal", 'import os; _, s = os.openpty(); print("ready", flush=True); os.read(s, 1)'
    ),
    _python(
        "lock",
        "import threading; l = threading.Lock(); l.acquire();"
        ' print("ready", flush=True); l.acquire()',
    ),
    _python("queue", 'import queue; print("ready", flush=True); queue.Queue().get()'),
    _python(
        "threads",
        "import threading, time; threading.Thread(target=time.sleep, args=(300,))"
        '.start(); print("ready", flush=True)',
    ),
    _python(
        "signal",
        "import signal; signal.pthread_sigmask(0, [10]);"
        ' print("ready", flush=True); signal.sigwait([10])',
    ),
    _python(
        "inotify",
        "import ctypes, os; fd = ctypes.CDLL(None).inotify_init1(0);"
        ' print("ready", flush=True); os.read(fd, 99)',
    ),
    _python("relay", 'import pty; pty.spawn(["sh", "-c", "echo ready; sleep 300"])'),
)

_STOPPED = (
    _quick("stopped", "echo ready; kill -STOP $$; cat"),
    _quick("stopped-reader", "cat <&0 & echo ready; kill -STOP $!; wait"),
    # Each of these commands reads the terminal from the background, and the terminal therefore
    # stops it.
    _quick("timeout-cat", "echo ready; timeout 300 cat; echo"),
    _quick("background-job", "bash --norc -ic 'cat & sleep 0.2; echo ready; sleep 300'"),
)

_OPEN_STDIN = (
    _piped("piped-sleep", "printf 'Password: '; sleep 300", "Password"),
    _piped("piped-pipe", "echo ready; sleep 300 | cat"),
    _piped("piped-file", "mkfifo f; echo ready; cat f"),
    _piped("piped-background", "cat & echo ready; wait; exec sleep 300"),
    _piped(
        "piped-server",
        "python3 -c 'import socket; s = socket.socket(); s.listen();"
        ' print("ready", flush=True); s.accept()\'',
    ),
    _piped(
        "piped-poll",
        "python3 -c 'import select; p = select.poll(); p.register(0, 0);"
        ' print("ready", flush=True); p.poll()\'',
    ),
)

_OTHERS = (
    _other("curl", SILENT + "curl -s http://127.0.0.1:$port/", "curl"),
    _other("wget", SILENT + "wget -qO- http://127.0.0.1:$port/", "wget"),
    _other("git-clone", SILENT + "git ls-remote git://127.0.0.1:$port/x", "git"),
    _other("psql", SILENT + 'psql -X "host=127.0.0.1 port=$port user=x"', "psql"),
    _other("ssh", "echo ready; ssh -F none -o ProxyCommand='sleep 300' stand-in", "ssh"),
    _other("npm", SILENT + "npm view --registry http://127.0.0.1:$port/ x", "npm"),
    _other(
        "node-server",
        'node -e \'require("http").createServer()'
        '.listen(0, "127.0.0.1", () => console.log("ready"))\'',
        "node",
    ),
    _other("node-timer", "node -e 'console.log(\"ready\"); setInterval(() => {}, 100)'", "node"),
    _other("php-server", "php -S 127.0.0.1:0", "php", ready="started"),
    _other("perl", "perl -e '$| = 1; print \"Password: \"; sleep 300'", "perl", ready="Password"),
    _other("ruby", "ruby -e 'STDOUT.sync = true; print \"irb> \"; sleep'", "ruby", ready="irb"),
    _other("make", "printf 'all:\\n\\techo ready; sleep 300\\n' > Makefile; make -s", "make"),
    _other("gdb", "gdb -q -nx -ex run --args sh -c 'echo rea\"\"dy; exec sleep 300'", "gdb"),
    _other("strace", "strace -qqfe trace=none sh -c 'echo ready; sleep 300; true'", "strace"),
    _other("watch", "watch -n 1 echo ready", "watch"),
    _other("top", "top -b", "top", ready="PID"),
    _other("vim-sleep", "vim --clean -es -c 'silent !echo ready' -c 'sleep 300'", "vim"),
    _other("vim-redraw", "vim --clean -c 'echo \"ready\"' -c redraw -c 'sleep 300'", "vim"),
    _other(
        "emacs", "emacs -Q --batch --eval '(progn (princ \"ready\\n\") (sleep-for 300))'", "emacs"
    ),
    _other("inotifywait", "echo ready; inotifywait -qm .", "inotifywait"),
    _other("telnet", SILENT + "telnet 127.0.0.1 $port", "telnet"),
    _other("socat-connected", SILENT + "socat - TCP:127.0.0.1:$port", "socat"),
    _other("nc-connected", SILENT + "nc 127.0.0.1 $port", "nc"),
    _other("nc", "echo ready; exec nc -lU socket", "nc"),
    _other("socat", "echo ready; exec socat -u UNIX-LISTEN:socket STDOUT", "socat"),
    _other(
        "expect",
        "expect -c 'spawn sh -c \"echo ready; sleep 300\"; set timeout -1; expect never'",
        "expect",
    ),
    _other("gauge", "(echo 50; sleep 300) | dialog --gauge ready 8 40", "dialog"),
    _other("infobox", "dialog --infobox ready 8 40; sleep 300", "dialog"),
    _other("tmux", "tmux -L $$ -f /dev/null new 'echo ready; sleep 300'", "tmux"),
    _other("busybox", "echo ready; busybox tail -f /dev/null", "busybox"),
)

_ANOTHER_USER = (
    Entry(
        "hidden",
        f"{NOBODY} sh -c 'echo ready; sleep 300; true'",
        waits=None,
        needs_root=True,
        needs=("setpriv",),
    ),
    Entry(
        "hidden-relay",
        f"{NOBODY} script -qc 'echo ready; sleep 300; true' /dev/null",
        waits=None,
        needs_root=True,
        needs=("setpriv",),
    ),
)

DECOYS = (
    *_LOOK_LIKE_PROMPTS,
    *_WORK,
    *_READ_SOMETHING_ELSE,
    *_STOPPED,
    *_OPEN_STDIN,
    *_OTHERS,
    *_ANOTHER_USER,
)
