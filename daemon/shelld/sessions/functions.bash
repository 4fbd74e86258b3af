# A part of the dump, for a command that may have defined a function that bash prints wrongly: as
# another function, or as no function at all. It runs after `declare -f`, and prints the names of
# such functions.
#
# Bash prints some here-documents in the wrong place, for example in `a && b <<X && c`. It prints
# the pattern `(esac)` without its first parenthesis, and adds a word after `coproc`. If `time` or
# `!` stands alone at the end of a subshell, it leaves out the newline that must follow. To find such
# functions, bash parses what it has printed, prints it again, and compares the two texts. It first
# checks all functions at once, in one child. If the texts differ, or if a function is readonly, it
# checks each function that may be printed wrongly. For this, it defines a copy under another name,
# because a readonly function cannot be defined again.
#
# Bash parses each line after it has run the lines before, so these options hold for the rest of the
# program. Aliases must be off, because the printed functions have them expanded already. Extglob
# must be on, as in the prelude. If IFS is readonly, the dump goes on after `declare`, but a plain
# assignment would end the dump.
#
# shellcheck shell=bash disable=SC2206

\builtin shopt -u expand_aliases nocasematch
\builtin shopt -s extglob
\builtin set +eku -fT
# These are several patterns, because one such as *@(a|b)* would take bash quadratic time.
__shelld_is_suspect() {
  [[ $1 == *"<<"* || $1 == *"esac)"* || $1 == *"esac |"* || $1 == *"coproc "* ||
    $1 == *"! )"* || $1 == *"!  )"* || $1 == *"time )"* || $1 == *"time  )"* ||
    $1 == *"time -p )"* || $1 == *"time -p  )"* ]]
}
# Prints the functions "${@:2}" as the text $1 defines them. If bash misreads the text, there may be
# commands outside of functions. The trap on DEBUG prints and exits before bash runs any of them.
__shelld_print_again() {
  \builtin eval "\builtin trap '\builtin declare -f -- \"\${@:2}\"; \builtin exit' DEBUG
$1
\builtin :"
}
# The parts of the dump up to here; one empty part if bash cannot open the file.
__shelld_parts=("")
\builtin mapfile -d "" -t __shelld_parts </proc/self/fd/1
if __shelld_is_suspect "${__shelld_parts[-1]}"; then
  \builtin declare IFS=$'\n'
  __shelld_names=(${__shelld_parts[-2]})
  __shelld_names=("${__shelld_names[@]#declare -* }")
  __shelld_text=$(\builtin declare -f -- "${__shelld_names[@]}")
  __shelld_again=$(__shelld_print_again "$__shelld_text" "${__shelld_names[@]}")
  if ! \builtin test "$__shelld_again" = "$__shelld_text" ||
    [[ ${__shelld_parts[-2]} == *"declare -fr"* ]]; then
    for __shelld_name in "${__shelld_names[@]}"; do
      __shelld_text=$(\builtin declare -f -- "$__shelld_name")
      __shelld_is_suspect "$__shelld_text" || continue
      __shelld_text=" ()${__shelld_text#*"()"}"
      __shelld_again=$(__shelld_print_again "function __shelld_copy$__shelld_text" __shelld_copy)
      \builtin test "$__shelld_again" = "__shelld_copy$__shelld_text" ||
        \builtin printf "%s\n" "$__shelld_name"
    done
  fi
fi
