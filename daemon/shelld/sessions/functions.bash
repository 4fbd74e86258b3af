# A part of the dump, for a command that may have defined a function that bash prints as another one
# or as no function at all. It runs after `declare -f`, and prints the names of these functions.
#
# Bash prints some here-documents in the wrong place, as that of `a && b <<X && c`. It prints the
# pattern `(esac)` without its first parenthesis, and adds a word after `coproc`. To find out, bash
# parses what it has printed, prints the result, and compares. It starts with all functions at once,
# in one child. If a text differs, it takes each of the functions that may be the cause. A copy under
# another name takes the place of each, because a readonly function cannot be defined again.
#
# Bash parses each line after it has run the ones before. Aliases must be off, because bash has
# already expanded them. Extglob must be on, as in the prelude. `declare` ignores a readonly IFS; a
# plain assignment would end the dump.
#
# shellcheck shell=bash disable=SC2206

\builtin shopt -u expand_aliases nocasematch
\builtin shopt -s extglob
\builtin set +eku -fT
# One pattern such as *@(a|b)* would take bash quadratic time.
__shelld_is_suspect() {
  [[ $1 == *"<<"* || $1 == *"esac)"* || $1 == *"esac |"* || $1 == *"coproc "* ]]
}
# Prints the functions "${@:2}" as the text $1 defines them. A misread text may hold commands outside
# of functions. The trap on DEBUG makes bash exit before it runs any.
__shelld_print_again() {
  \builtin eval "\builtin trap '\builtin declare -f -- \"\${@:2}\"; \builtin exit' DEBUG
$1
\builtin :"
}
# The dump up to here. This element is used if bash cannot open the file.
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
