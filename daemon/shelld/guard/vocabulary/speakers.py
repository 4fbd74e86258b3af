"""Lists programs that run commands from text in their own language, or from other text."""

from __future__ import annotations

from typing import Final

from shelld.guard.vocabulary.judged import OPTIONS

_MAKE: Final = (
    "IoOW cd:C cd:directory says:E says:eval file:f file:file file:makefile idle:n idle:just-print "
    "idle:dry-run idle:recon default:GNUmakefile default:makefile default:Makefile assigns"
)

_VI: Final = "TuUwW says:c says:cmd says:+ tells:VIMINIT tells:EXINIT"

_GDB: Final = "pdsc file:x file:command says:ex says:eval-command says:iex says:input"

_TAR: Final = (
    "bCfgHKLNTVX script:I script:use-compress-program script:to-command script:F "
    "script:info-script script:new-volume-script script:rsh-command says:checkpoint-action "
    "options:TAR_OPTIONS"
)

# Programs that read text in their own language from an argument, a variable, a file or stdin, and
# run the commands in this text.
SPEAKERS: Final[dict[str, str]] = {
    "vim": f"{_VI} file:S",
    **dict.fromkeys(("vi", "nvim", "view", "vimdiff", "gvim", "rvim", "rview", "evim"), _VI),
    "ex": f"{_VI} says:input",
    "ed": "p says:input",
    "emacs": "fL says:eval says:execute file:l file:load",
    "emacsclient": "asdfFu says:e says:eval",
    "less": "bhjkopPtTxyz says:+ env:LESSOPEN env:LESSCLOSE tells:LESS",
    "split": "abClnt script:filter",
    "nc": "ghipqsTwxX script:e script:c",
    "ncat": "ghipqsTwxX script:e script:exec script:c script:sh-exec",
    "man": "CLmMSsEeRr script:P script:pager env:MANPAGER env:PAGER",
    "journalctl": "un env:SYSTEMD_PAGER env:PAGER",
    "systemctl": "pt env:SYSTEMD_EDITOR env:EDITOR env:VISUAL env:SYSTEMD_PAGER env:PAGER",
    "crontab": "u env:VISUAL env:EDITOR",
    "visudo": "f env:SUDO_EDITOR env:VISUAL env:EDITOR",
    "sudoedit": "uCgp env:SUDO_EDITOR env:VISUAL env:EDITOR",
    "git": "- cd:C says:c config-env= appends script:x script:exec script:extcmd "
    "script:sendmail-cmd script:smtp-server script:tree-filter script:index-filter "
    "script:msg-filter "
    "script:commit-filter script:env-filter "
    "script:upload-pack script:receive-pack env:GIT_PAGER env:PAGER env:GIT_EDITOR env:VISUAL "
    "env:EDITOR env:GIT_SEQUENCE_EDITOR env:GIT_SSH_COMMAND env:GIT_SSH env:GIT_EXTERNAL_DIFF "
    "env:GIT_ASKPASS env:GIT_PROXY_COMMAND env:GIT_CONFIG_VALUE_0 env:GIT_CONFIG_VALUE_1",
    "tar": _TAR,
    "bsdtar": _TAR,
    "zip": "bntx script:TT script:unzip-command",
    "rsync": OPTIONS["rsync"] + " script:e script:rsh script:rsync-path",
    "ssh": "bcDEeFIiJLlmOpQRSWw says:o",
    "scp": "cDFiJlPX says:o script:S",
    "sftp": "BbcDFiJlPRs says:o script:S",
    "psql": "dhpUvoFRT file:f file:file says:c says:command says:input env:PSQL_PAGER env:PAGER "
    "env:PSQL_EDITOR",
    "mycli": "DhPSupR says:e says:execute says:input",
    "litecli": "D says:e says:execute says:input",
    "pgcli": "dhpU says:e says:input",
    "usql": "f says:c says:command file:f says:input",
    "bpftrace": "cep script:c says:e",
    "entr": "- script:s",
    "kak": "cdsE says:e says:E",
    "mysql": "DhPSupR says:e says:execute says:input",
    "mariadb": "DhPSupR says:e says:execute says:input",
    "sqlite3": "- says:cmd says:operands says:input",
    "duckdb": "- says:c says:cmd says:s says:operands says:input",
    "sqlplus": "- says:input",
    "clickhouse-local": "- says:q says:query says:input",
    "clickhouse-client": "- says:q says:query says:input",
    "hg": "R says:config",
    "svn": "- script:diff-cmd script:diff3-cmd script:editor-cmd says:config-option env:SVN_EDITOR",
    "cmake": "- file:P",
    "ninja": "CjkldtwN file:f default:build.ninja",
    "pwsh": "- says:c says:C says:Command says:command says:input",
    "gdb": _GDB,
    "rust-gdb": _GDB,
    "cgdb": _GDB,
    "lldb": "fncpwS file:s file:source says:o says:O says:one-line says:one-line-before-file "
    "says:input",
    "expect": "- file:f says:c says:input",
    "tclsh": "- says:input",
    "make": _MAKE,
    "gmake": _MAKE,
    "just": "fd cd:working-directory file:f file:justfile default:justfile default:Justfile "
    "default:.justfile idle:l idle:list idle:n idle:dry-run",
    "rake": "f file:f file:rakefile default:Rakefile default:rakefile idle:n idle:dry-run",
    "task": "t cd:d cd:dir file:t file:taskfile default:Taskfile.yml default:Taskfile.yaml idle:n",
    # The scripts of these package managers are in files such as package.json, see `packages`.
    "npm": "w cd:C cd:prefix script:script-shell assigns",
    "pnpm": "F cd:C cd:dir",
    "yarn": "- cd:cwd",
    "bun": "- cd:cwd",
    "deno": "- cd:cwd",
    "composer": "d cd:d cd:working-dir",
    "dpkg": "D script:pre-invoke script:post-invoke",
    "apt-get": "tc says:o",
    "ansible": "imMuefBPtl script:a script:args",
}

# The speakers that run commands from their input. The input may contain names of programs that the
# text of the command does not contain.
LISTENERS: Final = frozenset(
    {"ex", "ed", "psql", "mysql", "mariadb", "sqlite3", "gdb", "lldb", "expect", "tclsh"}
)
