# The function `trap`, for a command that may set traps. Bash has only one trap on EXIT, and shelld
# uses it, so this function combines the command's trap with ours. A table has those traps of the
# command that bash does not show in a function: on EXIT, DEBUG, ERR and RETURN. The function
# becomes one line, so it has no comments inside.
#
# A function has its own traps on DEBUG, ERR and RETURN. A trap that it sets outlives the function,
# but the removal of a trap does not. So this function sets an empty trap instead of removing one.
# Traps on DEBUG and RETURN would run inside this function. So its last step sets a temporary trap
# on RETURN, which runs when the function has returned, sets the command's traps on DEBUG and
# RETURN, and does not interrupt itself.
#
# A subshell has no trap of ours, and shows its parent's traps until it sets one itself. From then
# on it does not need this function, so the function removes itself there and sets a trap on EXIT or
# ERR like any other. In this case, __shelld_u is 1.
#
# If there is a DEBUG trap, our part of the trap on EXIT runs in a subshell, which does not inherit
# the DEBUG trap. The parent opens the file, within `{ }`, because a child cannot.
#
# Bash must not read our part of the trap on EXIT as a continuation of the command's part. A
# here-document in that part may lack its end, so `eval` runs a part with a here-document. A
# backslash at the end of that part is literal, but would continue the line, so it is doubled. If
# that part leaves a quote open, bash must find a syntax error and run nothing. So our part is one
# line, which has no single quotes and an even number of other quotes. Anything that has several
# lines is in the table.
#
# `prelude.py` replaces the words TABLE, DUMP, TEXTS and REDIRECTIONS.
#
# shellcheck shell=bash disable=SC1007,SC2053,SC2064,SC2190

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
