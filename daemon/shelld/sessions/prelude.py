"""What bash runs before its command: it makes the state, and has the new one reported at the end.

Pure. Owns the text of the *prelude*, which bash runs as its startup file (BASH_ENV), so that the
command remains the argument of `-c`, with all that shows of it.

A prelude names builtins as such, because functions of these names may be there by then, and traces
nothing. The options of `set` come last.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.sessions.dump import DUMP, GLOBALS, TRAPS_VARIABLE
from shelld.sessions.quoting import quote
from shelld.sessions.state import ShellState

# Matches every command that may set a trap. No word of another command can stand for `trap`.
_MAY_TRAP: Final = re.compile(rb"trap|eval|source|(?:^|[\s;&|(){}!])\.[ \t]")
_WORD: Final = re.compile(rb"[^\s;&|<>(){}$`'\"\\]+")
# To look at the words of a longer command takes time from others.
_MAX_WORDS_BYTES: Final = 64 * 1024
# In posix mode, bash exits if `eval` defines a function whose name is not an identifier. So the
# commands that define functions again come after this part of the dump.
_LEAVES_POSIX: Final = rb"\builtin set +o posix; "

# For a command that may set traps: bash has one trap on EXIT, and it is ours, so this makes one of
# the command's and ours. A table has the command's traps that bash does not show in a function:
# those on EXIT, DEBUG, ERR and RETURN.
#
# A function has traps on DEBUG, ERR and RETURN of its own, which outlive it only if they are set;
# so one that is removed is replaced by an empty one. Those on DEBUG and RETURN would run in here.
# So the last thing that is set is a trap on RETURN that sets them: it runs when the function has
# returned, and is not interrupted by itself.
#
# A subshell has no trap of ours, and shows those of its parent until it sets one. Then it no longer
# needs this function, so the function removes itself there. A trap on EXIT or ERR is then set as
# any other; __shelld_u is 1.
#
# With a DEBUG trap, our part of the trap on EXIT runs in a subshell, which does not inherit it. The
# parent opens the file, within `{ }`, because a child may not.
#
# The command's part of the trap on EXIT must not read ours as its own. A here-document need not
# have an end, so `eval` runs a part with one. A backslash at the end stands for itself, so it is
# doubled. If a quote is left open, bash must find a syntax error, and run nothing: so our part is
# one line with no single quote and an even number of others, and a table has the text of several
# lines.
_WRAPPER: Final = b" ".join(
    line.strip()
    for line in rb"""
trap() {
  { \builtin local -; \builtin set -B +eukx; } 2>&-;
  \builtin local __shelld_s=0 __shelld_a __shelld_k __shelld_t __shelld_f= __shelld_u=;
  \builtin local -a __shelld_n __shelld_r;
  \builtin local __shelld_d=DUMP;
  if [[ ${1-} == -- ]]; then \builtin shift; fi;
  if (($# == 0)) || [[ $1 == -p ]]; then
    if (($#)); then \builtin shift; fi;
    if [[ ${1-} == -- ]]; then \builtin shift; fi;
    __shelld_n=("$@");
    if (($#)); then \builtin set -- -p -- "$@";
    else __shelld_n=(EXIT {1..64} DEBUG ERR RETURN); fi;
    for __shelld_t in "${__shelld_n[@]}"; do
      __shelld_k=${__shelld_t^^};
      if [[ $__shelld_k == +(0) ]]; then __shelld_k=EXIT; fi;
      case $__shelld_k in
        EXIT|DEBUG|ERR|RETURN)
          if [[ -v TABLE[$__shelld_k] ]] && { [[ $__shelld_k == EXIT || $- == *T* ]] ||
            ((${#FUNCNAME[@]} <= ${TABLE[DEPTH]-0})); }; then
            __shelld_a=${TABLE[$__shelld_k]//\'/\'\\\'\'};
            \builtin printf "trap -- '%s' %s\n" "$__shelld_a" "$__shelld_k"; fi;;
        *) \builtin trap -p -- "$__shelld_t" 2>&- || __shelld_s=$?;;
      esac;
    done;
    if (($# == 0)); then __shelld_s=0; fi;
  elif [[ $1 == -?* ]] || { [[ ${BASHPID-$$} == $$ && $# == 1 ]] &&
    [[ ${1^^} != @(EXIT|DEBUG|ERR|RETURN|+(0)) || -o posix && $1 != +(0) ]]; }; then
    \builtin trap "$@" 2>&- || __shelld_s=$?;
  else
    \builtin declare -gA TABLE;
    if [[ ${BASHPID-$$} != $$ ]]; then
      __shelld_u=1;
      \builtin unset -f trap;
      if [[ $- != *T* ]]; then TABLE=(); fi;
    fi;
    __shelld_a=$1;
    __shelld_n=("${@:2}");
    if [[ $1 == +([0-9]) ]] || (($# == 1)); then __shelld_a=-; __shelld_n=("$@"); fi;
    for __shelld_t in "${__shelld_n[@]}"; do
      __shelld_k=${__shelld_t^^};
      if [[ $__shelld_k == +(0) ]]; then __shelld_k=EXIT; fi;
      case $__shelld_u$__shelld_k in
        EXIT|ERR|DEBUG|RETURN|1DEBUG|1RETURN)
          if [[ $__shelld_a == - ]]; then \builtin unset -v "TABLE[$__shelld_k]";
          else TABLE[$__shelld_k]=$__shelld_a; TABLE[DEPTH]=${#FUNCNAME[@]}; fi;;
        *) __shelld_r+=("$__shelld_t");;
      esac;
      case $__shelld_u$__shelld_k in
        DEBUG|RETURN|1DEBUG|1RETURN) __shelld_f+=$__shelld_k;;
        ERR) \builtin trap -- "${TABLE[ERR]-}" ERR;;
      esac;
    done;
    if ((${#__shelld_r[@]})); then
      \builtin trap -- "$__shelld_a" "${__shelld_r[@]}" 2>&- || __shelld_s=$?; fi;
  fi;
  if ((__shelld_s)); then
    __shelld_t=$(\builtin trap "$@" 2>&1 >&-; \builtin trap - EXIT DEBUG ERR RETURN);
    __shelld_k="${BASH_SOURCE[1]:-$0}: line ${BASH_LINENO[0]}: ";
    __shelld_t=${__shelld_t//"${BASH_SOURCE[0]}: line $LINENO: "/"$__shelld_k"};
    \builtin printf "%s\n" "$__shelld_t" >&2;
  fi;
  if [[ ! $__shelld_u ]]; then
    if [[ ${BASHPID-$$} != $$ ]]; then \builtin return "$__shelld_s"; fi;
    if [[ ${TABLE[DEBUG]-} ]]; then __shelld_d="( $__shelld_d )"; fi;
    __shelld_t=${TABLE[EXIT]-};
    if [[ $__shelld_t == *"<<"* ]]; then __shelld_t="\\builtin eval ${__shelld_t@Q}"; fi;
    __shelld_k=${__shelld_t##*[!\\]};
    if ((${#__shelld_k} % 2)); then __shelld_t+=\\; fi;
    \builtin declare -gA TABLE;
    TABLE+=(TEXTS);
    \builtin trap -- "$__shelld_t"$'\n'"! { $__shelld_d; } "REDIRECTIONS EXIT;
  fi;
  if [[ $- == *T* && ${TABLE[RETURN]-} ]]; then __shelld_f+=T; fi;
  if [[ $__shelld_f ]]; then
    __shelld_t='\builtin trap - RETURN; ';
    if [[ -v TABLE[RETURN] ]]; then
      __shelld_t="\\builtin trap -- ${TABLE[RETURN]@Q} RETURN; ";
    elif [[ ! $__shelld_u && $__shelld_f == *RETURN* ]]; then
      __shelld_t='\builtin trap "" RETURN; '; fi;
    if [[ $__shelld_f == *DEBUG* ]]; then
      __shelld_k=${TABLE[DEBUG]-${__shelld_u:+-}};
      __shelld_t+="\\builtin trap -- ${__shelld_k@Q} DEBUG"; fi;
    \builtin trap -- "$__shelld_t" RETURN;
  fi;
  \builtin return "$__shelld_s";
}
""".strip().splitlines()
).replace(b"TABLE", TRAPS_VARIABLE)

# With these in its environment, bash would run another startup file, or none.
_WITHHELD: Final[tuple[bytes, ...]] = (b"BASH_ENV", b"POSIXLY_CORRECT")


def startable(env: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return what of `env` a bash with a prelude is started with, and what that has to set."""
    entries = env.copy()
    withheld = {name: entries.pop(name) for name in _WITHHELD if name in env}
    return entries, withheld


def may_trap(command: bytes, state: ShellState) -> bool:
    """Whether a command may set or list traps: itself, or by what it calls."""
    if _MAY_TRAP.search(command):
        return True
    if not state.sets_traps:
        return False
    return len(command) > _MAX_WORDS_BYTES or not state.names.isdisjoint(_WORD.findall(command))


def dump_at_exit(path: str, mark: bytes, *, shares_trap: bool, before_dump: bytes = b"") -> bytes:
    """Return the lines that make bash write, after its command, what it leaves behind to `path`.

    `mark`, of letters and digits, is what it writes after that. `shares_trap`: the command may set
    a trap on EXIT, too. `before_dump`: commands that run before bash tells of its
    functions, once nothing of the command can interfere, each with "; " at its end.
    """
    # The trap's own text cannot be protected, so all of it is one command that `set -e` and a trap
    # on ERR pass by. In a restricted shell, it cannot write to a file: as stderr is closed first,
    # nothing is said about that. A trace goes to /dev/null. A command that says so would be traced
    # itself, so an expansion does; and bash accepts only a descriptor that is open by then. The
    # file may have what bash told before its command.
    dump = DUMP.replace(_LEAVES_POSIX, _LEAVES_POSIX + before_dump, 1) if before_dump else DUMP
    dump += rb"; \builtin printf " + mark
    if shares_trap:
        dump = rb"\builtin unset -f trap; " + dump
    trace = rb'2>"/dev/null${BASH_XTRACEFD:+${-:$((BASH_XTRACEFD=2)):0}}"'
    # A child that a signal ends between fork and exec runs its parent's trap on EXIT. There the
    # path names no descriptor, so that it writes nothing.
    directory, _, descriptor = path.encode().rpartition(b"/")
    file = rb'"%s/$((${BASHPID-$$}==$$?%s:-1))"' % (directory, descriptor)
    redirections = rb"2>&- 2>/dev/null >>%s %s" % (file, trace)
    line = b"\\builtin trap %s EXIT\n" % quote(b"! { %s; } %s" % (dump, redirections))
    if not shares_trap:
        return line
    texts = {b"GLOBALS": quote(GLOBALS), b"BEFORE": quote(before_dump)}
    dump = dump.replace(texts[b"GLOBALS"], _in_table(b"GLOBALS"))
    if before_dump:
        run = rb"\builtin eval %s; " % _in_table(b"BEFORE")
        dump = dump.replace(_LEAVES_POSIX + before_dump, _LEAVES_POSIX + run, 1)
    table = b" ".join(b"[%s]=%s" % item for item in texts.items())
    wrapper = _WRAPPER.replace(b"REDIRECTIONS", quote(redirections))
    wrapper = wrapper.replace(b"DUMP", quote(dump)).replace(b"TEXTS", table)
    return b"%s\n%s" % (wrapper, line)


def _in_table(name: bytes) -> bytes:
    return b'"${%s[%s]}"' % (TRAPS_VARIABLE, name)


def prelude(
    state: ShellState,
    descriptor: int,
    withheld: dict[bytes, bytes],
    startup_file: bytes = b"",
    recording: bytes = b"",
    *,
    before_options: bytes = b"",
) -> bytes:
    """Return what a bash runs before its command, from `descriptor`, as its BASH_ENV.

    `withheld` as from `startable`. `startup_file`: the BASH_ENV that it would have run instead, if
    any; it may not be there. `recording`: from `dump_at_exit`. `before_options`: more lines, which
    run when all but the options of `set` is there.
    """
    lines = b"\\exec %d<&-\n" % descriptor + _first_lines(withheld) + recording
    if startup_file:
        path = quote(startup_file if b"/" in startup_file else b"./" + startup_file)
        lines += b"if [[ -e %s ]]; then \\builtin . %s; fi\n" % (path, path)
    lines += state.script + _exported(withheld, b"POSIXLY_CORRECT")
    return lines + before_options + state.options


def waiting_prelude(
    state: ShellState, descriptor: int, withheld: dict[bytes, bytes], last_word: bytes
) -> bytes:
    """Return what a bash runs that makes a state, and then waits for `last_lines`.

    It runs this from `descriptor`. The last lines come from a pipe, the next descriptor: bash reads
    it to its end before it runs any of them. `last_word` is what its command will find in ``$_``.

    Without its last lines, bash would run its command in another state. So it closes a descriptor
    to have one free for them, and ends if it still cannot open them.
    """
    return b"".join(
        (
            b"\\exec %d<&-\n" % descriptor,
            _first_lines(withheld),
            state.script,
            # If no last lines come, because the daemon has ended, the placeholder runs this.
            b"BASH_EXECUTION_STRING=\n",
            b"\\builtin set -e\n",
            b"\\builtin . /proc/self/fd/%d %s\n" % (descriptor + 1, quote(last_word)),
        )
    )


def last_lines(
    state: ShellState,
    command: bytes,
    descriptor: int,
    withheld: dict[bytes, bytes],
    recording: bytes = b"",
) -> bytes:
    """Return what a bash that waits, with its prelude on `descriptor`, runs before `command`."""
    return b"".join(
        (
            # Only a bash that could not open these lines was to end.
            b"\\builtin set +e\n",
            b"\\exec %d<&-\n" % (descriptor + 1),
            # As if it had started now, with this command.
            b"BASH_EXECUTION_STRING=%s\n" % quote(command),
            # Unless the session has unset it. ([[ -v SECONDS ]] would make it an integer.)
            b"" if b"SECONDS" in state.declarations else b"SECONDS=0\n",
            recording,
            _exported(withheld, b"POSIXLY_CORRECT"),
            state.options,
        )
    )


def _first_lines(withheld: dict[bytes, bytes]) -> bytes:
    return b"\\builtin unset BASH_ENV\n" + _exported(withheld, b"BASH_ENV")


def _exported(withheld: dict[bytes, bytes], name: bytes) -> bytes:
    """Return the line that sets a variable that bash was not started with.

    In posix mode some functions cannot be defined, so that variable is set after them.
    """
    if name not in withheld:
        return b""
    return b"\\builtin export %s=%s\n" % (name, quote(withheld[name]))
