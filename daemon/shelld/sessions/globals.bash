# A dump runs this program inside a function, where `declare -p` shows local variables. The program
# prints what `declare -p` would print outside the function. A dump runs inside a function if the
# function calls `exit`, because the trap on EXIT then runs there. This program runs in a subshell.
#
# A nameref to its own name is circular, and bash then takes the global variable. A readonly global
# variable cannot have such a nameref, but it cannot have a local namesake either. Each value is set
# before the attributes that would change it. Bash parses each line after it has run the ones
# before, so aliases have no effect. If IFS is readonly it cannot be made local; `mapfile` then
# splits the names, which may need a temporary file.
#
# shellcheck shell=bash disable=SC2206

\builtin shopt -u expand_aliases localvar_inherit nocasematch
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
__shelld_print_all
