# If a function calls `exit`, the trap on EXIT runs inside that function, and so does the dump. In
# this case, `declare -p` shows the function's local variables. So the dump runs this program
# instead, in a subshell. It prints what `declare -p` would print outside the function.
#
# To find a global variable, the program makes a local nameref to the variable's own name. Such a
# nameref is circular, and bash then uses the global variable. There can be no such nameref for a
# readonly global variable. But then no local variable can have the name either, so `declare -p`
# shows the global one. Each value is set before the attributes that would change it. Bash parses
# each line after it has run the lines before, so aliases have no effect once they are off. A
# readonly IFS cannot be made local. Then `mapfile` splits the names, for which bash may need a
# temporary file. Without -A, `local` would misread a key that ends in a backslash.
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
    if [[ $__shelld_flags == *A* ]]; then \builtin eval "local -A ${__shelld_found#declare -* }"
    else \builtin eval "local ${__shelld_found#declare -* }"; fi
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
