# A part of the dump, for a command that may have defined a function with a here-document. It runs
# after `declare -f`, and prints a "!" if bash cannot parse what `declare -f` has printed. Bash
# prints some here-documents in the wrong place, such as that of `a && b <<X && c`.
#
# To find out, bash reads its dump again, and defines a function around all functions. The last text
# in the dump is that of the functions. Bash does not parse it if it has no here-document. Aliases
# must be off, because bash has already expanded them. Extglob must be on, as in the prelude. With
# `set -e`, bash would exit at a syntax error, whatever follows `eval`. The text in quotes must be
# words outside of quotes, too (see `trap.bash`).
#
# shellcheck shell=bash

\builtin set +e; \builtin shopt -u expand_aliases; \builtin shopt -s extglob;
# This element is used if bash cannot open the file.
__shelld_texts=("");
\builtin mapfile -d "" -t __shelld_texts </proc/self/fd/1;
\builtin test "${__shelld_texts[-1]/<<}" = "${__shelld_texts[-1]}" ||
\builtin eval "function __shelld_functions { ${__shelld_texts[-1]} }" ||
\builtin printf "!";
