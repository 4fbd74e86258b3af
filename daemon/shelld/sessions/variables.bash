# A short form of the program in `dump.bash`, for a command that can have changed only the variables
# NAMES and the directory. Posix mode is off, and no trap is set.
#
# shellcheck shell=bash

\builtin set +x; \builtin trap "" XFSZ; \builtin ulimit -S -f hard;
\builtin printf "\0";

\builtin declare -p NAMES;
\builtin printf "\0";

# A dot follows the path if that is the daemon's own directory.
\builtin pwd -L; \builtin test . -ef OWN_DIRECTORY && \builtin printf .;
\builtin printf "\0"
