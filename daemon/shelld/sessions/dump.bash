# The program with which bash reports its state. It becomes one line of a trap on EXIT.
#
# Nothing here depends on what the command may have changed, as far as bash allows. Assigning
# POSIXLY_CORRECT switches posix mode on, in which `unset` is the builtin even if a function has
# that name. A backslash keeps aliases away. An alias can also replace a reserved word, so there are
# no reserved words here. No trap of the command runs, and no option that would change the output
# takes effect. Until `set +x`, each line may run a command in PS4, so few lines come before it.
# Each part ends with NUL, which no value in bash can hold. Text before the first NUL comes from a
# DEBUG trap; the parser ignores it.
#
# shellcheck shell=bash disable=SC2059,SC2168

__shelld_options=$BASHOPTS:$SHELLOPTS;
# Unset POSIXLY_CORRECT again if it was not set before.
__shelld_posix=${POSIXLY_CORRECT+__shelld_posix}; _=${POSIXLY_CORRECT=};
\unset -f builtin; \builtin set +xP;
\unset -v "${__shelld_posix:-POSIXLY_CORRECT}";
\builtin enable alias builtin declare dirs eval local mapfile printf pwd set shopt test trap ulimit umask unset;
\builtin trap - CHLD DEBUG ERR RETURN; \builtin trap "" XFSZ;
\builtin ulimit -S -f hard;
# `${DIRSTACK+}` expands to nothing, but naming DIRSTACK makes `declare -p` show it. This would
# resolve the symbolic links in bash's directory if `set -P` were still on.
\builtin printf "\0${DIRSTACK+}";

# `local` fails outside functions. Inside one, `declare -p` would show local variables.
\builtin local __shelld_posix || \builtin declare -p;
\builtin local __shelld_posix && (\builtin eval GLOBALS);
\builtin printf "\0";

SET_OPTIONS
\builtin printf "\0";

\builtin shopt -p SHOPT_OPTIONS;
\builtin printf "\0";

\builtin set +o posix;
BEFORE_FUNCTIONS
\builtin declare -F;
\builtin printf "\0";

\builtin declare -f;
\builtin printf "\0";

CHECK_FUNCTIONS
\builtin printf "\0";

\builtin alias -p;
\builtin printf "\0";

\builtin umask;
\builtin printf "\0";

\builtin dirs -l -p;
\builtin printf "\0";

# A dot follows the path if that is the daemon's own directory.
\builtin pwd; \builtin test . -ef OWN_DIRECTORY && \builtin printf .;
\builtin printf "\0"; \builtin printf "\0"
