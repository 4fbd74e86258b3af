# A short form of the program in `dump.bash`, after a command that can have changed only the
# variables NAMES, and with `DIRECTORY` the directory. Posix mode is off, and no trap is set.
#
# shellcheck shell=bash

\builtin set +x; \builtin trap "" XFSZ; \builtin ulimit -S -f hard;
\builtin printf "\0";

\builtin declare -p NAMES;
\builtin printf "\0";

DIRECTORY
\builtin printf "\0"
