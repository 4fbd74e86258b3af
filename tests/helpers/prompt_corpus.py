"""Programs that wait for input. The benchmark measures the search for prompts with these programs.

prompt_decoys.py has programs that do not wait. Both files hold data only. Each command runs in an
empty directory of its own, which is also its home, and makes the files that it needs in this
directory. Nobody ever types anything, so every question stays without an answer.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Entry(NamedTuple):
    """A command, and facts about it that are true once it has started.

    `waits` tells how certain an ordinary user can be that a program waits for input. It is None for
    a decoy. `program` is the name of the waiting program in ps(1), if that name is always the same.
    `ready` is the text that a decoy writes when it begins to look like a waiting program. `needs`
    lists the programs that some Debian systems lack. If `is_quick`, the command needs none of these
    programs and starts fast, so every run of the tests includes it. If `needs_root`, only root can
    run the command, because it switches to another user. If `is_missed`, no sign distinguishes the
    waiting program from a busy program.
    """

    name: str
    command: str
    program: str = ""
    needs: tuple[str, ...] = ()
    waits: Literal["proved", "likely"] | None = "proved"
    input: Literal["tty", "open_stdin"] = "tty"
    ready: str = "ready"
    is_quick: bool = False
    needs_root: bool = False
    is_missed: bool = False


def _quick(name: str, command: str, program: str) -> Entry:
    return Entry(name, command, program, is_quick=True)


def _piped(name: str, command: str, program: str) -> Entry:
    return Entry(name, command, program, input="open_stdin", is_quick=True)


# This server accepts connections at `$port`, and never answers.
SILENT = (
    'coproc python3 -uc \'import socket; s = socket.create_server(("127.0.0.1", 0));'
    " print(s.getsockname()[1]); c = []\nwhile True: c += [s.accept()]';"
    " read -u ${COPROC[0]} port; echo ready; "
)
# This prefix runs a command as an ordinary user. A daemon of another ordinary user cannot see what
# such a program does.
NOBODY = "setpriv --reuid=nobody --regid=nogroup --clear-groups"

_SHELLS = (
    _quick("read", "read x", "bash"),
    _quick("read-prompt", "read -rp 'Name? ' x", "bash"),
    _quick("read-secret", "read -s x", "bash"),
    _quick("read-limit", "read -t 100 x", "bash"),
    _quick("read-key", "read -n 1 x", "bash"),
    _quick("read-tty", "read x < /dev/tty", "bash"),
    _quick("read-descriptor", "exec 3< /dev/tty; read -u 3 x", "bash"),
    _quick("read-loop", "while read -r line; do echo; done", "bash"),
    _quick("read-subshell", "(read x); echo $x", "bash"),
    _quick("mapfile", "mapfile lines", "bash"),
    _quick("select", "select x in tea coffee; do break; done", "bash"),
    _quick("bash", "bash --norc -i", "bash"),
    _quick("bash-nested", "bash --norc -ic 'bash --norc -i'", "bash"),
    _quick("bash-login", "bash --noprofile --login", "bash"),
    _quick("bash-waits", "cat <&0 & wait", "cat"),
    _quick("bash-job", "bash --norc -ic 'sleep 300 & cat'", "cat"),
    _quick("sh", "sh -i", "sh"),
    _quick("substitution", 'x=$(cat); echo "$x"', "cat"),
)

_TOOLS = (
    _quick("cat", "cat", "cat"),
    _quick("cat-tty", "cat /dev/tty", "cat"),
    _quick("head", "head -n 1", "head"),
    _quick("tac", "tac", "tac"),
    _quick("tail", "tail -n 1", "tail"),
    _quick("dd", "dd bs=1 count=1", "dd"),
    _quick("tee", "tee copy", "tee"),
    _quick("awk", "awk '{ print $1 }'", "awk"),
    _quick("sed", "sed s/a/b/", "sed"),
    _quick("pipeline-cat", "cat | grep x", "cat"),
    _quick("pipeline-sort", "sort | tee copy", "sort"),
    _quick("background", "sleep 300 & cat", "cat"),
    _quick("rm", "touch f; rm -i f", "rm"),
    _quick("rm-many", "touch a b c d; rm -I a b c d", "rm"),
    _quick("cp", "touch a b; cp -i a b", "cp"),
    _quick("mv", "touch a b; mv -i a b", "mv"),
    _quick("ln", "touch a b; ln -i a b", "ln"),
    _quick("gzip", "touch f f.gz; gzip f", "gzip"),
    _quick("env", "env -i PATH=$PATH cat", "cat"),
    _quick("timeout", "timeout 300 cat", "cat"),
    _quick("timeout-foreground", "timeout --foreground 300 cat; echo", "cat"),
    _quick("nohup", "nohup bash -c 'read x < /dev/tty'", "bash"),
    _quick("stdbuf", "stdbuf -o0 cat", "cat"),
    _quick("nice", "nice cat", "cat"),
    _quick("setsid", "setsid -w cat", "cat"),
    _quick("xargs", "xargs -o cat < /dev/null", "cat"),
    _quick("xargs-question", "echo f | xargs -p touch", "xargs"),
    _quick("find-ok", "touch f; find f -ok touch {} \\;", "find"),
    _quick("script", "script -qc cat /dev/null", "cat"),
    _quick("script-bash", "script -qc 'bash --norc -i' /dev/null", "bash"),
    _quick("flock", "flock lock cat", "cat"),
)

_PYTHON = (
    Entry("python-asyncio", "python3 -m asyncio", "python3"),
    _quick("python", "python3 -q", "python3"),
    _quick("python-input", "python3 -c 'input(\"Name: \")'", "python3"),
    _quick("python-lines", "python3 -c 'import sys; [0 for line in sys.stdin]'", "python3"),
    _quick("python-getpass", "python3 -c 'import getpass; getpass.getpass()'", "python3"),
    _quick("python-pdb", "echo x=1 > s.py; python3 -m pdb s.py", "python3"),
    _quick("python-breakpoint", "python3 -c 'breakpoint()'", "python3"),
    _quick("python-console", "python3 -c 'import code; code.interact()'", "python3"),
    _quick("python-select", "python3 -c 'import select; select.select([0], [], [])'", "python3"),
    _quick(
        "python-select-limit",
        "python3 -c 'import select\nwhile not select.select([0], [], [], 0.3)[0]: pass'",
        "python3",
    ),
    _quick(
        "python-poll",
        "python3 -c 'import select; p = select.poll(); p.register(0, 1); p.poll()'",
        "python3",
    ),
    _quick(
        "python-epoll",
        "python3 -c 'import select; p = select.epoll(); p.register(0, 1); p.poll()'",
        "python3",
    ),
    _quick(
        "python-keys",
        "python3 -c 'import os, tty; tty.setcbreak(0); print(\"Press a key\"); os.read(0, 1)'",
        "python3",
    ),
    _quick("python-curses", "python3 -c 'import curses; curses.initscr().getch()'", "python3"),
    _quick(
        "python-thread",
        "python3 -c 'import threading; t = threading.Thread(target=input); t.start(); t.join()'",
        "python3",
    ),
    _quick(
        "python-event-loop",
        "python3 -c 'import asyncio, sys; loop = asyncio.new_event_loop();"
        " loop.add_reader(0, sys.stdin.readline); loop.run_forever()'",
        "python3",
    ),
    _quick("python-fork", "python3 -c 'import os; os.fork() and os.wait(); input()'", "python3"),
    _quick("python-system", "python3 -c 'import os; os.system(\"cat; true\")'", "cat"),
    _quick("python-run", "python3 -c 'import subprocess; subprocess.run([\"cat\"])'", "cat"),
    _quick("python-pty", "python3 -c 'import pty; pty.spawn(\"cat\")'", "cat"),
)

_OPEN_STDIN = (
    _piped("pipe-cat", "cat", "cat"),
    _piped("pipe-read", "read x", "bash"),
    _piped("pipe-bash", "bash", "bash"),
    _piped("pipe-sh", "sh -s", "sh"),
    _piped("pipe-filters", "grep a | sort | uniq -c", "grep"),
    _piped("pipe-sort", "sort -u", "sort"),
    _piped("pipe-wc", "wc -l", "wc"),
    _piped("pipe-xargs", "xargs echo", "xargs"),
    _piped("pipe-tar", "tar -t", "tar"),
    _piped("pipe-gzip", "gzip -dc", "gzip"),
    _piped("pipe-nohup", "nohup cat", "cat"),
    _piped("pipe-timeout", "timeout 300 sha256sum; echo", "sha256sum"),
    _piped("pipe-setsid", "setsid -w cat", "cat"),
    _piped("pipe-python", "python3 -", "python3"),
    _piped("pipe-python-read", "python3 -c 'import sys; sys.stdin.read()'", "python3"),
    _piped(
        "pipe-server",
        "python3 -c 'import select; p = select.epoll(); p.register(0, 1); p.poll(300)'",
        "python3",
    ),
)


# -- programs that not every Debian has ---------------------------------------------------------

_PERL_LINES = "printf '$x = 1;\\n$y = 2;\\n' > s.pl"

_LANGUAGES = (
    Entry("node", "node", "", ("node",)),
    Entry("node-lines", "node -e 'process.stdin.on(\"data\", () => {})'", "", ("node",)),
    Entry(
        "node-question",
        'node -e \'require("readline/promises").createInterface(process.stdin, process.stdout)'
        '.question("Name? ")\'',
        "",
        ("node",),
    ),
    Entry("node-inspect", "echo 'x = 1' > s.js; node inspect s.js", "", ("node",)),
    Entry("pipe-node", "node -", "", ("node",), input="open_stdin"),
    Entry(
        "npm-run", 'echo \'{"scripts": {"x": "cat"}}\' > package.json; npm run x', "cat", ("npm",)
    ),
    Entry("npm-init", "npm init", "npm init", ("npm",)),
    Entry("perl", "perl -e '<STDIN>'", "perl", ("perl",)),
    Entry("perl-console", "perl -de0", "perl", ("perl",)),
    Entry("perl-debugger", f"{_PERL_LINES}; perl -d s.pl", "perl", ("perl",)),
    Entry("php", "php -a", "php", ("php",)),
    Entry("php-lines", "php -r 'fgets(STDIN);'", "php", ("php",)),
    Entry("lua", "lua", "lua", ("lua",)),
    Entry("ruby", "ruby -e gets", "ruby", ("ruby",)),
    Entry("irb", "irb", "irb", ("irb",)),
    Entry("tclsh", "tclsh", "tclsh", ("tclsh",)),
    Entry("guile", "guile -q", "guile", ("guile",)),
    Entry("jshell", "jshell --execution local", "jshell", ("jshell",)),
    Entry("gnuplot", "gnuplot", "gnuplot", ("gnuplot",)),
    Entry("bc", "bc -q", "bc", ("bc",)),
    Entry("dc", "dc", "dc", ("dc",)),
    Entry("gdb", "gdb -q -nx", "gdb", ("gdb",)),
    Entry(
        "gdb-breakpoint",
        "gdb -q -nx -ex 'set startup-with-shell off' -ex starti $(command -v sleep)",
        "gdb",
        ("gdb",),
    ),
    Entry("gdb-inferior", "gdb -q -nx -ex run --args cat", "cat", ("gdb",)),
    Entry("strace", "strace -o trace cat", "cat", ("strace",)),
    Entry("make", "printf 'all:\\n\\tread x\\n' > Makefile; make", "sh", ("make",)),
    Entry("rlwrap", "rlwrap cat", "cat", ("rlwrap",)),
    Entry("zsh", "zsh -f", "zsh", ("zsh",)),
    Entry("fish", "fish --no-config", "fish", ("fish",)),
    Entry("dash", "dash", "dash", ("dash",)),
    Entry("busybox", "busybox sh", "busybox", ("busybox",)),
    Entry("busybox-vi", "busybox vi letter", "busybox", ("busybox",)),
    Entry("expect", "expect", "expect", ("expect",)),
    Entry("expect-interact", "expect -c 'spawn cat; interact'", "cat", ("expect",)),
)

_FULL_SCREEN = (
    Entry("vim", "vim --clean letter", "vim", ("vim",)),
    Entry("vim-swap", "touch .letter.swp; vim --clean letter", "vim", ("vim",)),
    Entry("vim-pipe", "echo text | vim --clean -", "vim", ("vim",)),
    Entry("vim-xargs", "echo letter | xargs -o vim --clean", "vim", ("vim",)),
    Entry("ex", "ex -u NONE letter", "ex", ("ex",)),
    Entry("nvim", "nvim --clean letter", "nvim", ("nvim",)),
    Entry("nano", "nano letter", "nano", ("nano",)),
    Entry("emacs", "emacs -nw -Q letter", "emacs", ("emacs",)),
    Entry("ed", "ed", "ed", ("ed",)),
    Entry("less", "seq 100 | less", "less", ("less",)),
    Entry("less-file", "seq 100 > f; less f", "less", ("less",)),
    Entry("more", "seq 100 > f; more f", "more", ("more",)),
    Entry(
        "man",
        "echo .TH X 1 > x.1; seq -f '%g.\n.br' 100 >> x.1; MANPAGER=less man ./x.1",
        "less",
        ("man", "less"),
    ),
    Entry("top", "top", "top", ("top",)),
    Entry("htop", "htop", "htop", ("htop",)),
    Entry("mc", "mc -u", "mc", ("mc",)),
    Entry("fzf", "seq 100 | fzf", "fzf", ("fzf",)),
    Entry("fzf-slow", "(echo 1; sleep 300) | fzf", "fzf", ("fzf",)),
    Entry("w3m", "echo text > f; w3m f", "w3m", ("w3m",)),
    Entry("dialog", "dialog --yesno Really? 8 40", "dialog", ("dialog",)),
    Entry("dialog-menu", "dialog --menu Drink 12 40 2 a tea b coffee", "dialog", ("dialog",)),
    Entry("whiptail", "whiptail --inputbox Name 8 40", "whiptail", ("whiptail",)),
    Entry("tmux", "tmux -L $$ -f /dev/null new cat", "cat", ("tmux",)),
)

_REPOSITORY = "git init -q . && echo a > f && git add f && git commit -qm one"
_CHANGED = f"{_REPOSITORY} && seq 100 > f"
_SECOND = f"{_CHANGED} && git commit -qam two"

_GIT = (
    Entry("git-add", f"{_CHANGED}; git add -p", "git", ("git",)),
    Entry("git-checkout", f"{_CHANGED}; git checkout -p", "git", ("git",)),
    Entry("git-stash", f"{_CHANGED}; git stash -p", "git", ("git",)),
    Entry("git-clean", f"{_REPOSITORY}; touch g; git clean -i", "git", ("git",)),
    Entry("git-commit", f"{_CHANGED}; EDITOR='vim --clean' git commit -a", "vim", ("git", "vim")),
    Entry("git-rebase", f"{_SECOND}; EDITOR=nano git rebase -i HEAD~1", "nano", ("git", "nano")),
    Entry("git-log", f"{_SECOND}; PAGER=less LESS=R git log -p", "less", ("git", "less")),
    Entry(
        "git-credential",
        "printf 'protocol=https\\nhost=localhost\\n\\n' | git credential fill",
        "git",
        ("git",),
    ),
    Entry("tig", f"{_SECOND}; tig", "tig", ("git", "tig")),
)

# This program stands in for a database server. It answers each connection with given messages.
_POSTGRES = (
    "python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX);"
    ' s.bind(".s.PGSQL.5432"); s.listen(); c = []\nwhile True:\n'
    "  c += [s.accept()[0]]; c[-1].recv(999); c[-1].sendall(bytes.fromhex(sys.argv[1]))' {} &"
    ' until [ -S .s.PGSQL.5432 ]; do sleep 0.1; done; psql -X "host=$PWD user=x"'
)
_ASKS_PASSWORD = "520000000800000003"
_IS_OPEN = "520000000800000000 5300000018" + b"server_version\x0015.0\0".hex() + "5a0000000549"
# This command stands in for a machine with an ssh server. It runs sshd behind a pipe, and sshd
# never lets anybody in. If root ran sshd, sshd would need a system directory. So root runs sshd as
# another user, who may still read the key.
_MACHINE = (
    "ssh-keygen -qt ed25519 -N '' -f key; [ $UID = 0 ] && as='setpriv --reuid=nobody"
    " --inh-caps=+dac_read_search --ambient-caps=+dac_read_search';"
    " ssh -F none -o UserKnownHostsFile=hosts -o PreferredAuthentications=password {}"
    ' -o ProxyCommand="$as $(command -v sshd) -i -f /dev/null -h $PWD/key" x@stand-in'
)
# This program waits for input from its terminal and for data from the network.
CONNECTED = (
    "stty {}; exec python3 -c 'import select, socket;"
    ' s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname());'
    ' print("$ ", end="", flush=True); select.select([0, c], [], [])\''
)
# This program waits for input from its terminal in one thread, and for data from the network in
# another thread.
CONNECTED_THREAD = (
    "stty {}; exec python3 -c 'import os, socket, threading;"
    ' s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname());'
    " threading.Thread(target=c.recv, args=(1,), daemon=True).start();"
    ' print("$ ", end="", flush=True); os.read(0, 1)\''
)
# This program is named like a program that sends keys to another machine, but it sends no keys.
REMOTE = (
    "ln -s $(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))') ssh;"
    ' stty {}; ./ssh -ISc \'import select; print("$ ", end="", flush=True);'
    " select.select([0], [], [])'"
)

_CLIENTS = (
    Entry("sqlite3", "sqlite3", "sqlite3", ("sqlite3",)),
    Entry("psql", _POSTGRES.format(f"'{_IS_OPEN}'"), "psql", ("psql",)),
    Entry("psql-password", _POSTGRES.format(_ASKS_PASSWORD), "psql", ("psql",)),
    Entry("mariadb-password", "mariadb --no-defaults -p", "mariadb", ("mariadb",)),
    Entry("redis-cli", "redis-cli -s missing", "redis-cli", ("redis-cli",)),
    Entry("ftp", "ftp", "ftp", ("ftp",)),
    Entry("lftp", "lftp", "lftp", ("lftp",)),
    Entry("telnet", "telnet", "telnet", ("telnet",)),
    Entry("socat", "socat - EXEC:'sleep 300'", "socat", ("socat",)),
    Entry("socat-pty", "socat - EXEC:cat,pty,setsid,ctty", "cat", ("socat",)),
    Entry("ssh-keygen", "ssh-keygen", "ssh-keygen", ("ssh-keygen",)),
    Entry(
        "ssh-passphrase",
        "ssh-keygen -qt ed25519 -N secret -f key; ssh-keygen -yf key",
        "ssh-keygen",
        ("ssh-keygen",),
    ),
    Entry("ssh-host-key", _MACHINE.format(""), "ssh", ("ssh", "sshd")),
    Entry("ssh-password", _MACHINE.format("-o StrictHostKeyChecking=no"), "ssh", ("ssh", "sshd")),
    Entry("ssh-session", REMOTE.format("raw -echo"), "ssh", waits="likely", is_quick=True),
    # These programs keep a connection, as installers and language servers do.
    Entry("network-keys", CONNECTED.format("raw -echo"), "python3", is_quick=True),
    Entry("network-lines", CONNECTED.format("sane"), "python3", is_quick=True),
    Entry("network-thread", CONNECTED_THREAD.format("sane"), "python3", is_quick=True),
    Entry("openssl", "openssl genrsa -aes256", "openssl", ("openssl",)),
    Entry(
        "openssl-request",
        "openssl req -x509 -newkey rsa:1024 -noenc -keyout key",
        "openssl",
        ("openssl",),
    ),
    Entry("gpg", "gpg --no-autostart --homedir . --full-generate-key", "gpg", ("gpg",)),
    # apt-get removes nothing, whatever the answer is.
    Entry(
        "apt-get",
        "apt-get -o Debug::NoLocking=1 -o Dir::Bin::dpkg=/bin/false remove less",
        "apt-get",
        ("apt-get", "less"),
    ),
    Entry("patch", "echo '@@ -1 +1 @@' | cat - /dev/tty | patch", "cat", ("patch",)),
)


def _hidden(name: str, command: str, program: str, *, is_missed: bool = False) -> Entry:
    needs = ("setpriv", program)
    return Entry(
        name, f"{NOBODY} {command}", program, needs, "likely", needs_root=True, is_missed=is_missed
    )


# These programs run with rights of another user. Only root can see the input that they wait for.
_ANOTHER_USER = (
    _hidden("su", "su", "su"),
    _hidden("passwd", "passwd", "passwd"),
    _hidden("sudo", "sudo true", "sudo"),
    _hidden("hidden-keys", "sh -c 'stty raw -echo; cat'", "sh"),
    # The terminal is in line mode with echo, like every new terminal.
    _hidden("hidden-question", "sh -c 'echo Sure?; read x'", "sh", is_missed=True),
    # The relay sets the terminal's modes, so these modes tell nothing about the question.
    _hidden("hidden-relay-question", "script -qc 'read x' /dev/null", "script", is_missed=True),
)

WAITING = (
    *_SHELLS,
    *_TOOLS,
    *_PYTHON,
    *_OPEN_STDIN,
    *_LANGUAGES,
    *_FULL_SCREEN,
    *_GIT,
    *_CLIENTS,
    *_ANOTHER_USER,
)
