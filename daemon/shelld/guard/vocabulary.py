"""The programs that the guard knows, as plain data: one entry per program and table.

`quick` allows a command that names none of these programs, so the guard judges only programs in
these tables. This module imports only `typing`, because the first command waits for the import.

Most tables are dictionaries from the name of a program to the way to judge it. For wrappers,
writers and speakers, this is a list of words. The first word holds the letters of the options that
take a value ("-": none). The other words are:

    name=           a long option that takes a value
    cd:NAME         an option whose value is the directory to run in
    script:NAME     an option whose value is a shell script
    first:NAME      an option whose value is the program
    argv:NAME       an option whose value is the program, followed by the program's arguments
    idle:NAME       an option with which the program runs nothing and writes nothing
    sub:WORD        a subcommand that must come first
    +N              the number of operands before the program; +all: all operands
    leads           these operands are missing if an option comes first
    assigns         NAME=VALUE may come before the program
    joins           the remaining arguments, joined, are a shell script
    bash            the remaining arguments are arguments of bash
    shell           without a program, it starts a shell, which reads the input
    shell:NAME      an option with which it starts such a shell
    away            the program runs on another machine or in a container

    to:NAME         an option whose value is a file to write
    into:NAME       an option whose value is a directory to write the operands to
    all, last, rest the operands that are files to write; "rest" is all but the first
    key=NAME        an operand NAME=FILE, as with dd
    if:NAME         the program writes only with this option, or with this word as an operand
    order:WORD      the program writes if a line of its input begins with WORD ("order:": on any
                    input)

    says:NAME       an option whose value is in the program's language
    says:+          operands that begin with "+" are in the program's language
    says:operands   all operands are in the program's language
    says:input      the input is in the program's language
    file:NAME       an option whose value is a file in the program's language
    default:NAME    a file in the program's language that it reads if it gets no file:NAME option
    appends         the words after the subcommand are added to the command, as with an alias
    env:NAME        an environment variable whose value is a shell script
"""

from __future__ import annotations

from typing import Final

SHELLS: Final = frozenset(
    [
        "ash",
        "bash",
        "bash-static",
        "csh",
        "dash",
        "fish",
        "ksh",
        "ksh93",
        "lksh",
        "mksh",
        "mksh-static",
        "oksh",
        "osh",
        "posh",
        "rbash",
        "sh",
        "tcsh",
        "yash",
        "zsh",
        "zsh-static",
        "zsh5",
    ]
)

# The programs that make file systems and are not named after mkfs, and the suffix of each.
MAKERS: Final = {
    "mke2fs": "ext2",
    "mkdosfs": "dos",
    "mkfatfs": "fat",
    "mkntfs": "ntfs",
    "mkexfatfs": "exfat",
    "mkreiserfs": "reiserfs",
    "mkudffs": "udf",
}

# The programs that `rules` judges, and the program whose rules apply to each.
JUDGED: Final = {
    "rm": "rm",
    "chmod": "chmod",
    "chown": "chown",
    "chgrp": "chown",
    "mv": "mv",
    "rsync": "rsync",
    "mkfs": "mkfs",
    **dict.fromkeys(MAKERS, "mkfs"),
}

# The options that take a value, for some programs in `JUDGED` and for programs in several tables.
OPTIONS: Final = {
    "chown": "- from= reference=",
    "mv": "tS target-directory= suffix=",
    "cp": "tS target-directory= suffix=",
    "install": "gmotS target-directory= suffix= mode= owner= group=",
    "rsync": "efMBT rsh= filter= exclude= exclude-from= include= include-from= files-from= chmod= "
    "chown= bwlimit= timeout= port= log-file= temp-dir= compare-dest= copy-dest= link-dest= "
    "backup-dir= suffix= max-size= min-size= partial-dir= password-file= out-format= rsync-path= "
    "block-size= max-delete= info= debug= usermap= groupmap= compress-level= remote-option=",
}

_EXT: Final = "bCdeEgGiIJLlmMNoOrRstTUz idle:n idle:h idle:V"
# The programs for FAT take a number after ``-h``.
_FAT: Final = "bDfFghilmMnrRsS codepage= variant= offset="

# The options of programs that make file systems, by suffix of the name. "" is for all other
# programs: their short options are unknown.
MKFS: Final = {
    "ext2": _EXT,
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": "bcdilLmnprs idle:N idle:h idle:V",
    "btrfs": "AbdlLmnOrRsU label= uuid= rootdir= csum= checksum= nodesize= sectorsize= metadata= "
    "data= features= byte-count= idle:h idle:V",
    "fat": _FAT,
    "vfat": _FAT,
    "msdos": _FAT,
    "dos": _FAT,
    "ntfs": "cHLpsSz cluster-size= heads= label= partition-start= sector-size= sectors-per-track= "
    "mft-zone-multiplier= idle:n idle:no-action idle:h idle:V",
    "f2fs": "aceCEdgloORstTUwzZ idle:h idle:V",
    "minix": "iln idle:h idle:V",
    "exfat": "bcLnUs volume-label= cluster-size= boundary-align= volume-guid= sector-size= idle:h "
    "idle:help idle:V",
    "cramfs": "bBeinN idle:h idle:V",
    "bfs": "FNV idle:h",
    "reiserfs": "bBhjlostu label= idle:V",
    "": "- idle:V",
}

# Programs that make or remove other names of files, see `links`.
LINKERS: Final = frozenset({"ln", "cp", "mount", "mknod", "mkfifo", "umount", "rm", "unlink"})

# Programs that destroy a tree if they run on each of its files.
DESTROYERS: Final = frozenset({"shred", "truncate", "unlink", "cp", "mv", "install", "dd", "tee"})

# Programs that can write to a disk. Their arguments name the disk, so these programs matter only if
# the command contains "/dev/" or its working directory is below "/dev".
WRITERS: Final = {
    "dd": "- key=of",
    "dcfldd": "- key=of",
    "dc3dd": "- key=of key=wipe",
    "ddpt": "- key=of",
    "dd_rescue": "bBeEmMsSlLo rest",
    "ddrescue": "abceEFHiKmorsTxZ rest",
    "pv": "NrLEBBsdRDQFXiHTUPwl to:o to:output",
    "tee": "- all",
    "sponge": "- all",
    "cp": OPTIONS["cp"] + " last into:t into:target-directory",
    "install": OPTIONS["install"] + " last into:t into:target-directory",
    "rsync": OPTIONS["rsync"] + " last",
    "shred": "ns all iterations= size=",
    "scrub": "pbDsX all",
    "nwipe": "lPmpqr all if:autonuke",
    "blkdiscard": "olp all",
    "badblocks": "bcdeiopt all if:w",
    "truncate": "rs all size= reference=",
    "wipefs": "otO all if:a if:all if:o if:offset idle:n idle:no-act offset= types= output=",
    "sfdisk": "NoXYwW all if:delete order: idle:n idle:no-act idle:l idle:list idle:d idle:dump "
    "idle:J idle:json idle:F idle:s idle:V idle:verify",
    "fdisk": "bBcCHLostuwW all order:w idle:l idle:list",
    "gdisk": "- all order:w idle:l",
    "cfdisk": "- all order:write",
    "parted": "a all align= if:mklabel if:mktable if:mkpart if:mkpartfs if:rm if:resizepart "
    "if:resize if:move if:cp order:mklabel order:mktable order:mkpart order:rm "
    "order:resizepart",
    "sgdisk": "aAbcCdeiFklmnNrRStTuU all to:R if:Z if:zap-all if:z if:zap if:o if:clear if:d "
    "if:delete if:n if:new if:N if:largest-new if:l if:load-backup idle:P idle:pretend",
    "hdparm": "- all if:security-erase if:security-erase-enhanced if:write-sector "
    "if:make-bad-sector if:trim-sector-ranges security-erase= security-erase-enhanced= "
    "write-sector= user-master=",
    "nvme": "alnst rest if:format if:sanitize",
    "mdadm": "- all if:zero-superblock",
    "bcachefs": "L all if:format",
    "e2image": "boO last",
    "xfs_copy": "bL rest",
    "flashcp": "- last",
    "wipe": "bCDeFlMnopPQRSTX all",
    "mbuffer": "bdhiIlLmpPrRsStTvW to:o",
    "gpg": "Nru to:o to:output recipient= passphrase= passphrase-file=",
    "xxd": "cglnoRs last if:r",
    "uniq": "fsw last",
    "cryptsetup": "bcdhilMopsStT rest if:luksFormat if:luksErase if:erase type= cipher= label=",
    "zpool": "- rest if:labelclear",
    "curl": "AbcCdDeEFhHKmoPQrtTuUwxXyYz to:o to:output to:D to:dump-header to:c to:cookie-jar "
    "to:trace to:trace-ascii to:stderr",
    "wget": "aBDeEiIlnoOPQRStTUwX to:O to:output-document to:o to:output-file to:a "
    "to:append-output",
    "fallocate": "lo all length= offset= if:z if:zero-range if:p if:punch-hole if:c "
    "if:collapse-range if:i if:insert-range",
    "cpio": "CEHIMR to:O to:F to:file if:o if:create",
    "scp": "cDFiJlPXoS last",
    "tcpdump": "BcCFGijJMQrsTVWyzZ to:w",
    "strace": "aeOpPsSuEIXb to:o to:output",
    "ltrace": "aenpsuDFAlx to:o to:output",
    "time": "f to:o to:output",
    "script": "EIBTmo all to:O to:log-out",
    "qemu-img": "fOotTlSmrB last key=of if:convert if:dd",
    "bmaptool": "- last if:copy bmap=",
    "tar": "bCfFgHIKLNTVX to:f to:file if:c if:create if:r if:append if:u if:update",
    "sort": "kSTt to:o to:output",
    "openssl": "- to:out",
    "ntfsclone": "oO to:overwrite to:O to:o to:output",
    **dict.fromkeys(
        ("cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "as", "nasm", "rustc", "go"), "- to:o"
    ),
    **dict.fromkeys(("genisoimage", "mkisofs", "xorrisofs"), "- to:o to:output"),
    "ffmpeg": "if all",
    "valgrind": "- to:log-file to:xml-file",
    "patch": "BdDFgiprVxYz to:o to:output to:r to:reject-file",
    "zstd": "DMT to:o",
    "lz4": "BT last",
    "aria2c": "dijkmsxZ to:o to:out",
    "objcopy": "BIjNORGKLW last",
    "mksquashfs": "- last",
    "rclone": "- last",
    "pg_dump": "dFhpUnNtTZ to:f to:file",
    "mysqldump": "hpPu to:r to:result-file",
    "perf": "eFcCgp to:o to:output",
    "partclone.restore": "sOoLCN to:o to:O to:output",
    "partclone.dd": "sOoLCN to:o to:O to:output",
    "partclone": "sOoLCN to:o to:O to:output if:r if:restore if:b if:dev-to-dev",
}

# Writers that are mostly run on disks: if their target is unknown, it may be a disk.
DISK_TOOLS: Final = frozenset(
    {
        *("dd", "dcfldd", "dc3dd", "ddpt", "dd_rescue", "ddrescue", "nwipe", "blkdiscard"),
        *("wipefs", "badblocks", "sfdisk", "fdisk", "gdisk", "cfdisk", "parted", "sgdisk"),
        *("mdadm", "cryptsetup", "bcachefs"),
    }
)

_CONTAINER: Final = "cd:w cd:workdir user= env= namespace= container= index= +1 away"
_RUNS: Final = "with= package= python= extra= env-file= from="

WRAPPERS: Final[dict[str, str]] = {
    "sudo": "CghpRrTtUu user= group= host= prompt= chroot= role= type= close-from= cd:D cd:chdir "
    "idle:l idle:list idle:v idle:V shell:i shell:login shell:s shell:shell assigns",
    "doas": "Cu shell:s assigns",
    "env": "u unset= cd:C cd:chdir script:S script:split-string assigns",
    "command": "- idle:v idle:V",
    "busybox": "-",
    "toybox": "-",
    "nohup": "-",
    "setsid": "-",
    "nice": "n adjustment=",
    "ionice": "cnpPu class= classdata=",
    "chrt": "TPD +1",
    "taskset": "- +1",
    "timeout": "ks kill-after= signal= +1",
    "time": "fo format= output=",
    "stdbuf": "ioe input= output= error=",
    "strace": "aeoOpPsSuEIXb output= trace= env= user=",
    "ltrace": "aeonpsuDFAlx",
    "valgrind": "-",
    "gdb": "pdscxD argv:args command= directory= ex= eval-command= iex= symbols= core=",
    "rr": "- sub:record",
    "unshare": "SGR map-user= map-group= root= setuid= setgid= cd:w cd:wd shell",
    "nsenter": "tSG target= setuid= setgid= root= cd:wd shell",
    "chroot": "- userspec= groups= +1 shell",
    "proot": "rbmqwkpRS rootfs= bind= mount= qemu= cd:cwd cd:pwd kernel-release=",
    "prlimit": "p pid=",
    "setarch": "- +1 leads shell",
    "linux64": "- shell",
    "linux32": "- shell",
    "uname26": "- shell",
    "i386": "- shell",
    "x86_64": "- shell",
    "systemd-run": "pEHMu unit= property= slice= uid= gid= setenv= cd:working-directory "
    "shell:S shell:shell",
    "systemd-inhibit": "- what= who= why= mode=",
    "dbus-run-session": "- config-file=",
    "dbus-launch": "-",
    "eatmydata": "-",
    "fakeroot": "lis shell",
    "firejail": "- shell",
    "unbuffer": "-",
    "catchsegv": "-",
    "numactl": "iNmCp",
    "cgexec": "g",
    "setpriv": "- reuid= regid= groups= inh-caps=",
    "capsh": "- bash shell",
    "setuidgid": "- +1",
    "chpst": "uUbenmodlL",
    "gosu": "- +1",
    "su-exec": "- +1",
    "softlimit": "adfloprst",
    "ccache": "-",
    "rlwrap": "-",
    "xvfb-run": "enspf",
    "torsocks": "-",
    "proxychains": "f",
    "proxychains4": "f",
    "caffeinate": "tw",
    "daemonize": "aepluoE cd:c",
    "start-stop-daemon": "npug cd:d cd:chdir pidfile= user= chuid= "
    "first:x first:exec first:a first:startas",
    "dumb-init": "-",
    "tini": "p",
    "ts": "-",
    "chronic": "-",
    "pkexec": "- user= shell",
    "run0": "u cd:D cd:chdir shell",
    "coproc": "-",
    "exec": "a",
    "builtin": "-",
    "then": "-",
    "do": "-",
    "else": "-",
    "!": "-",
    "{": "-",
    "perf": "eopFcCg +1",
    "screen": "cSetTph sub:stuff joins; cSetTph",
    "ssh": "bcDEeFIiJLlmOopQRSWw idle:G idle:N idle:O idle:Q idle:V idle:W +1 joins away shell",
    "sshpass": "dfpP",
    "watch": "nq interval= joins",
    "hyperfine": "wrmMNpcsu warmup= runs= shell= prepare= setup= joins",
    "entr": "-",
    "flock": "wE timeout= conflict-exit-code= +1 script:c script:command",
    "script": "EIOBTmo +all script:c script:command shell",
    "su": "gGsw group= shell= +all script:c script:command script:session-command bash shell",
    "runuser": "gGsw idle:u idle:user group= shell= +all script:c script:command "
    "script:session-command bash shell; "
    "gGsuw user= +all script:c script:command",
    "newgrp": "- +1 shell",
    # The options are those of ast-grep, which has this name, too.
    "sg": "- idle:p idle:pattern +1 script:c joins shell",
    "ld.so": "- library-path= preload= inhibit-rpath= audit= argv0= idle:list idle:verify",
    "cross-env": "- assigns",
    "dotenv": "evpf",
    "nodemon": "w ext= watch= script:exec script:x",
    "watchexec": "ewif",
    "nix-shell": "pAIE script:run script:command idle:no shell",
    "tmux": "fLStnFcexys sub:new-session joins; fLStnFcexys sub:new joins; "
    "fLStnFce sub:new-window joins; fLStnFce sub:neww joins; fLStFlce sub:split-window joins; "
    "fLStN sub:send-keys joins; fLStN sub:send joins; fLSt sub:run-shell joins",
    "docker": f"Hcleu sub:exec {_CONTAINER}; Hcl sub:container sub:exec {_CONTAINER}; "
    f"Hfpeu file= project-name= profile= sub:compose sub:exec {_CONTAINER}",
    "docker-compose": f"Hfpeu file= project-name= sub:exec {_CONTAINER}",
    "podman": f"ceu sub:exec {_CONTAINER}; ceu sub:container sub:exec {_CONTAINER}; "
    "- sub:unshare shell",
    "nerdctl": f"neu sub:exec {_CONTAINER}",
    "kubectl": f"ncs context= kubeconfig= cluster= sub:exec {_CONTAINER}",
    "oc": f"ncs context= kubeconfig= sub:exec {_CONTAINER}; n sub:rsh {_CONTAINER} shell",
    "crictl": f"r sub:exec {_CONTAINER}",
    "ctr": "an namespace= address= exec-id= user= sub:task sub:exec +1 away; "
    "an namespace= address= exec-id= user= sub:tasks sub:exec +1 away",
    "machinectl": "- sub:shell +1 away shell",
    "lxc-attach": "nPf name= away shell",
    "systemd-nspawn": "DiMu directory= image= machine= user= idle:b idle:boot away shell",
    "toolbox": "c container= sub:run away; c container= sub:enter +1 away shell",
    "distrobox": "n name= sub:enter +1 away shell",
    "flatpak-spawn": "- env= directory=",
    "xterm": "T argv:e joins",
    "gnome-terminal": "- title= working-directory=",
    "konsole": "- argv:e",
    "lxc": f"- cwd= sub:exec {_CONTAINER}",
    "incus": f"- cwd= sub:exec {_CONTAINER}",
    "vagrant": "- sub:ssh script:c script:command +all away shell",
    "gcloud": "- zone= project= script:command sub:compute sub:ssh +all away shell",
    "pssh": "hHlpoetOx joins away",
    "adb": "sHP sub:shell joins away shell",
    "wsl": "du shell",
}

# Wrappers that mostly serve other purposes. `quick` does not look for them, because it sees the
# program that they start. The name of that program is a word of the command, too.
EVERYDAY_WRAPPERS: Final[dict[str, str]] = {
    "aa-exec": "pn profile= namespace=",
    "abduco": "Aacen",
    "authbind": "-",
    "catatonit": "-",
    "choom": "np adjust= pid=",
    "cpulimit": "elpP exe= limit= pid= path=",
    "dtach": "AacnNepr",
    "envdir": "- +1",
    "execlineb": "c script:c",
    "fakechroot": "bcel",
    "faketime": "f +1",
    "gpg-agent": "- homedir= options= log-file=",
    "heaptrack": "o output=",
    "keep-one-running": "-",
    "logsave": "- +1",
    "memusage": "dnopt",
    "pipesz": "fns file= fd= size=",
    "run-one": "-",
    "run-this-one": "-",
    "runcon": "lrtu range= role= type= user=",
    "s6-setuidgid": "- +1",
    "scriptlive": "BIOTlmt script:c script:command",
    "sem": "j id= jobs= joins",
    "setcpulatency": "- +1",
    "ssh-agent": "aEOPt idle:k",
    "systemd-cat": "pt identifier= priority= stderr-priority= level-prefix=",
    "torify": "-",
    "trickle": "dlLnNPtuw",
    "tsp": "DELNW",
    "uclampset": "mMp util-min= util-max= pid=",
    "with-contenv": "-",
    "xdg-terminal-exec": "-",
    "npm": "wC sub:exec package= prefix= script:c script:call; wC sub:x script:c script:call",
    "npx": "p package= script:c script:call +all",
    "pnpm": "F cd:C cd:dir sub:exec script:c; F cd:C cd:dir sub:dlx script:c",
    "yarn": "- cwd= sub:exec joins",
    "bundle": "- gemfile= sub:exec",
    "poetry": "C directory= project= sub:run",
    "uv": f"p sub:run {_RUNS} cd:directory",
    "pipenv": "- sub:run",
    "pdm": "p sub:run",
    "hatch": "e sub:run",
    "rye": "- sub:run",
    "conda": "np name= prefix= sub:run cd:cwd",
    "mamba": "np name= prefix= sub:run",
    "micromamba": "np name= prefix= sub:run",
    "direnv": "- sub:exec +1",
    "mise": "C sub:exec script:c script:command +all shell; "
    "C sub:x script:c script:command +all shell",
    "asdf": "- sub:exec",
    "nix": "- extra-experimental-features= sub:develop argv:c argv:command +all shell; "
    "- extra-experimental-features= sub:shell argv:c argv:command +all shell",
    "aws-vault": "- sub:exec duration= +1",
    "doppler": "pc sub:run project= config=",
    "op": "- sub:run env-file=",
    "git": "Cc git-dir= work-tree= sub:bisect sub:run; Cc sub:submodule sub:foreach joins",
}

_MAKE: Final = (
    "IoOW cd:C cd:directory says:E says:eval file:f file:file file:makefile idle:n idle:just-print "
    "idle:dry-run idle:recon default:GNUmakefile default:makefile default:Makefile"
)

# Programs that run commands in their own language, from an argument, a variable or stdin.
SPEAKERS: Final[dict[str, str]] = {
    "vim": "TuUwW says:c says:cmd says:+ file:S",
    "vi": "TuUwW says:c says:cmd says:+",
    "nvim": "TuUwW says:c says:cmd says:+",
    "view": "TuUwW says:c says:cmd says:+",
    "vimdiff": "TuUwW says:c says:cmd says:+",
    "gvim": "TuUwW says:c says:cmd says:+",
    "ex": "TuUwW says:c says:cmd says:+ says:input",
    "ed": "p says:input",
    "emacs": "lfL says:eval says:execute",
    "emacsclient": "asdfFu says:e says:eval",
    "less": "bhjkopPtTxyz says:+ env:LESSOPEN env:LESSCLOSE",
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
    "script:sendmail-cmd script:tree-filter script:index-filter script:msg-filter "
    "script:commit-filter script:env-filter "
    "script:upload-pack script:receive-pack env:GIT_PAGER env:PAGER env:GIT_EDITOR env:VISUAL "
    "env:EDITOR env:GIT_SEQUENCE_EDITOR env:GIT_SSH_COMMAND env:GIT_SSH env:GIT_EXTERNAL_DIFF "
    "env:GIT_ASKPASS env:GIT_PROXY_COMMAND env:GIT_CONFIG_VALUE_0 env:GIT_CONFIG_VALUE_1",
    "tar": "bCfgHKLNTVX script:I script:use-compress-program script:to-command script:F "
    "script:info-script script:new-volume-script script:rsh-command says:checkpoint-action",
    "zip": "bntx script:TT script:unzip-command",
    "rsync": OPTIONS["rsync"] + " script:e script:rsh script:rsync-path",
    "ssh": "bcDEeFIiJLlmOpQRSWw says:o",
    "scp": "cDFiJlPX says:o script:S",
    "sftp": "BbcDFiJlPRs says:o script:S",
    "psql": "dhpUvoFRT file:f file:file says:c says:command says:input env:PSQL_PAGER env:PAGER "
    "env:PSQL_EDITOR",
    "mysql": "DhPSupR says:e says:execute says:input",
    "mariadb": "DhPSupR says:e says:execute says:input",
    "sqlite3": "- says:cmd says:operands says:input",
    "gdb": "pdsc file:x file:command says:ex says:eval-command says:iex says:input",
    "lldb": "fncpwS says:o says:O says:one-line says:one-line-before-file says:input",
    "expect": "- file:f says:c says:input",
    "tclsh": "- says:input",
    "make": _MAKE,
    "gmake": _MAKE,
    "just": "fd cd:working-directory file:f file:justfile default:justfile default:Justfile "
    "default:.justfile idle:l idle:list idle:n idle:dry-run",
    "rake": "f file:f file:rakefile default:Rakefile default:rakefile idle:n idle:dry-run",
    "task": "t cd:d cd:dir file:t file:taskfile default:Taskfile.yml default:Taskfile.yaml idle:n",
    # Their scripts are in files of their own, see `packages`.
    "npm": "w cd:C cd:prefix",
    "pnpm": "F cd:C cd:dir",
    "yarn": "- cd:cwd",
    "bun": "- cd:cwd",
    "deno": "- cd:cwd",
    "composer": "d cd:d cd:working-dir",
    "dpkg": "D script:pre-invoke script:post-invoke",
    "apt-get": "tc says:o",
    "ansible": "imMuefBPtl script:a script:args",
}

# The speakers that run their input. The input may name programs that the command does not name.
LISTENERS: Final = frozenset(
    {"ex", "ed", "psql", "mysql", "mariadb", "sqlite3", "gdb", "lldb", "expect", "tclsh"}
)

# Programs that start other programs in their own way, and the handler of each in `launchers`.
STARTERS: Final = {
    "xargs": "xargs",
    "parallel": "parallel",
    "find": "find",
    "fd": "fd",
    "fdfind": "fd",
    "crontab": "crontab",
    "socat": "socat",
    "at": "at",
    "batch": "at",
    "sed": "sed",
    "gsed": "sed",
    "awk": "awk",
    "gawk": "awk",
    "mawk": "awk",
    "nawk": "awk",
    "docker": "docker",
    "podman": "docker",
    "nerdctl": "docker",
    "bwrap": "bwrap",
}

# The characters of a version number.
VERSION: Final = "0123456789."

# Interpreters without their versions, and the letters of the options whose values are code.
LANGUAGES: Final = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "nodejs": "ep",
    "bun": "ep",
    "deno": "",
    "php": "rBR",
    "lua": "e",
    "luajit": "e",
    "Rscript": "e",
    "tclsh": "",
}

# Builtins that change the meaning of words or paths, or run text.
TELLING_BUILTINS: Final = frozenset({"alias", "cd", "eval", "popd", "pushd", "source", "trap"})
