"""What bash runs to tell its state, the *dump*. Pure.

Told are exported and other variables with their attributes, functions, aliases, options of `shopt`
and `set`, the umask, the working directory and the directory stack.
"""

from __future__ import annotations

from typing import Final

from shelld.sessions.quoting import quote

# Bash leaves these variables to the dump: the options as they were before the dump changed them,
# and the traps that the command has set.
OPTIONS_VARIABLE: Final = b"__shelld_options"
TRAPS_VARIABLE: Final = b"__shelld_traps"
POSIX_VARIABLE: Final = b"__shelld_posix"

# `exit` runs the trap inside the function that calls it, where `declare -p` shows local variables.
# A subshell runs this text there, and prints what `declare -p` would print outside. A nameref to
# its own name is circular, and bash then takes the global variable. A global variable that is
# readonly cannot have such a nameref, and no local namesake either. As in `_line`, a value
# comes before the attributes that would change it. Bash parses each line when it has run the ones
# before it, so aliases have no effect. A readonly IFS cannot be a local one, so the names are then
# split in another way, which may need a temporary file.
GLOBALS: Final = rb"""\builtin shopt -u expand_aliases localvar_inherit nocasematch
\builtin set +aekuvx -f
\builtin unset -f local
__shelld_listed=$(\builtin declare -p)
\builtin declare -p - POSIXLY_CORRECT
\builtin set +o posix
__shelld_find() {
  \builtin local -n "$1=$1" && \builtin eval "__shelld_found=\${$1[@]@A}
  [[ \$__shelld_found ]] || __shelld_found=\${$1@A}"
}
__shelld_print() {
  \builtin local +x "$1"
  if [[ $__shelld_found == "declare -"*([!\ ])[cilu]*([!\ ])\ *=* ]]; then
    \builtin local __shelld_flags=${__shelld_found#declare }
    __shelld_flags=${__shelld_flags%% *}
    if [[ $__shelld_flags == *A* ]]; then \builtin local -A "$1"; fi
    \builtin eval "local ${__shelld_found#declare -* }"
    \builtin local "$__shelld_flags" "$1"
  else \builtin eval "local ${__shelld_found#declare }"; fi && \builtin declare -p "$1"
}
__shelld_print_all() {
  \builtin local __shelld_name __shelld_found
  if \builtin local IFS=$'\n'; then __shelld_lines=($__shelld_listed)
  else \builtin mapfile -t __shelld_lines <<<"$__shelld_listed"; fi
  for __shelld_name in "${__shelld_lines[@]}"; do
    [[ $__shelld_name == "declare -"* ]] || continue
    __shelld_name=${__shelld_name#declare -* }
    __shelld_name=${__shelld_name%%=*}
    [[ $__shelld_name == *[!A-Za-z0-9_]* ]] && continue
    __shelld_found=
    if ! __shelld_find "$__shelld_name"; then \builtin declare -p "$__shelld_name"
    elif [[ $__shelld_found ]]; then __shelld_print "$__shelld_name"; fi
  done
}
__shelld_print_all"""
# What `declare -p -` prints where a function has used `local -`. Bash does not tell which options
# of `set` there are outside.
LOCAL_OPTIONS: Final = b"declare -- -\n"

# What follows depends on nothing that the command may have changed, as far as bash allows. In posix
# mode, `unset` is the builtin even where a function has that name. A backslash keeps aliases away,
# so there are no reserved words, which cannot have one. No trap of the command runs, and no option
# takes effect that changes what is written. Each line that is traced may run a command in PS4, so
# there are few. A part ends with NUL, which no value in bash can hold.
# Text before the first NUL comes from a DEBUG trap, and is ignored.
END_OF_PART: Final = rb'\builtin printf "\0"; '
DUMP: Final = (
    END_OF_PART.join(
        (
            # To name DIRSTACK makes `declare -p` show it. POSIXLY_CORRECT is unset if it was not
            # set before.
            OPTIONS_VARIABLE + b"=$BASHOPTS:$SHELLOPTS${DIRSTACK+}; "
            rb"__shelld_posix=${POSIXLY_CORRECT+__shelld_posix}; _=${POSIXLY_CORRECT=}; "
            rb"\unset -f builtin; \builtin set +x; "
            rb'\unset -v "${__shelld_posix:-POSIXLY_CORRECT}"; '
            rb"\builtin enable alias builtin declare dirs eval local printf pwd set shopt test "
            rb"trap ulimit umask unset; "
            rb'\builtin trap - CHLD DEBUG ERR RETURN; \builtin trap "" XFSZ; '
            rb"\builtin ulimit -S -f hard; ",
            # `local` fails outside functions.
            rb"\builtin local __shelld_posix || \builtin declare -p; "
            rb"\builtin local __shelld_posix && (\builtin eval " + quote(GLOBALS) + b"); ",
            rb"\builtin set +o; ",
            rb"\builtin shopt -p; ",
            rb"\builtin set +o posix; \builtin declare -F; ",
            rb"\builtin declare -f; ",
            rb"\builtin alias -p; ",
            rb"\builtin umask; ",
            rb"\builtin dirs -l -p; ",
            # A dot follows if that is the runner's directory, which is the daemon's own.
            rb'\builtin pwd; \builtin test . -ef "/proc/$PPID/cwd" && \builtin printf .; '
            rb'\builtin printf "\0"',
        )
    )
    + rb'; \builtin printf "\0"'
)
