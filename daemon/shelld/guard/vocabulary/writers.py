"""Lists programs that write files, or that make links to files."""

from __future__ import annotations

from typing import Final

from shelld.guard.vocabulary.judged import OPTIONS

# Programs that make or remove links, mounts or device nodes, see `links`.
LINKERS: Final = frozenset(
    {"ln", "cp", "mount", "mknod", "mkfifo", "umount", "rm", "unlink", "losetup"}
)

# Programs that destroy a tree if they run on each of its files.
DESTROYERS: Final = frozenset(
    {
        *("shred", "truncate", "unlink", "cp", "mv", "install", "dd", "tee", "sponge"),
        *("gzip", "pigz", "bzip2", "xz", "trash", "trash-put", "rimraf", "ln"),
    }
)

# If one of these words is an operand or a long option, the program writes to the disk that its
# arguments name.
ORDERS: Final = frozenset(
    {
        *("block-erase", "burn", "clear", "create", "crypto-erase", "destroy", "discard"),
        *("diskwipe", "erase", "erase-all", "eraseall", "flash", "format", "format-disk", "init"),
        *("initialise", "initialize", "labelclear", "mklabel", "nuke", "overwrite", "purge"),
        *("randwrite", "repartition", "restfs", "restore", "restoredisk", "revert", "sanitize"),
        *("sanitize-overwrite", "secure-erase", "security-erase", "wipe", "wipe-all", "wipeall"),
        *("wipefs", "write", "write-image", "writeimage", "write-zeroes", "write-zeros", "zap"),
        *("zap-all", "zero", "zero-fill"),
    }
)

# For these programs, an argument such as ``wipe`` is not an order to write. Most of these programs
# only print their arguments, or read the files that the arguments name. Others pass the arguments
# on to a program of the user's project.
TELLERS: Final = frozenset(
    {
        *("cargo", "dotnet", "gradle", "mix", "mvn", "nox", "pytest", "tox"),
        *("ack", "ag", "apropos", "b2sum", "binwalk", "cheat", "cksum", "cmp", "colordiff"),
        *(
            "cowsay",
            "crc32",
            "df",
            "dialog",
            "diff",
            "du",
            "efibootmgr",
            "espeak",
            "expr",
            "figlet",
            "file",
        ),
        *("gh", "git", "hexdump", "history", "info", "less", "logger", "lsblk", "mail", "man"),
        *("md5sum", "mesg", "more", "mount", "mutt", "notify-send", "od", "rg", "rhash", "say"),
        *("sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shellcheck", "slack"),
        *("stat", "strings", "sum", "telegram-send", "tldr", "toilet", "touch", "udevadm"),
        *("ugrep", "wall", "whatis", "whereis", "whiptail", "write", "zenity", "zgrep"),
    }
)

_FORCED: Final = "if:f if:force if:y if:yes idle:t idle:test"

# Programs that can write to a disk. The path of the disk is an argument. So these programs matter
# only if the command contains "/dev/", or if its working directory is below "/dev".
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
    "cfdisk": "- all if:z if:zero order:write",
    "parted": "a all align= if:mklabel if:mktable if:mkpart if:mkpartfs if:rm if:resizepart "
    "if:resize if:move if:cp order:mklabel order:mktable order:mkpart order:rm "
    "order:resizepart",
    "sgdisk": "aAbcCdeiFklmnNrRStTuU all to:R if:Z if:zap-all if:z if:zap if:o if:clear if:d "
    "if:delete if:n if:new if:N if:largest-new if:l if:load-backup idle:P idle:pretend",
    "hdparm": "- all if:security-erase if:security-erase-enhanced if:write-sector "
    "if:make-bad-sector if:trim-sector-ranges security-erase= security-erase-enhanced= "
    "write-sector= user-master=",
    "sg_format": "bcCefFilmpPQrRstTvw all if:format if:F",
    "nvme": "alnst rest if:format if:sanitize if:write-zeroes if:write-uncor if:dsm",
    "mdadm": "- all if:zero-superblock if:create if:C if:build if:B",
    # If a disk has data, these programs refuse to run or ask the user, unless they get an option
    # such as ``--force``.
    "pvcreate": f"uMS all uuid= restorefile= {_FORCED}",
    "pvremove": f"- all {_FORCED}",
    "lvremove": f"S all {_FORCED}",
    "vgcreate": f"cls rest {_FORCED}",
    "mkswap": f"pLUveo all label= uuid= pagesize= {_FORCED}",
    "make-bcache": "- all if:B if:bdev if:C if:cache to:B to:C to:bdev to:cache",
    "bcachefs": "L all if:format",
    "btrfs": "- all if:f if:replace",
    "sed": "efl all if:i if:in-place",
    "gsed": "efl all if:i if:in-place",
    "ed": "p all order:w order:wq",
    "e2image": "boO last",
    "xfs_copy": "bL rest",
    "flashcp": "- last",
    "flash_erase": "- all",
    "flash_eraseall": "- all",
    "nandwrite": "sb all",
    "ubiformat": "fsOQ all",
    "ventoy": "rL all if:i if:I",
    "woeusb": "- all to:device to:d to:partition to:p",
    "dump": "abdfhTI to:f",
    "sg_dd": "- key=of",
    "sg_write_same": "ilnxg all",
    "wipe": "bCDeFlMnopPQRSTX all",
    "mbuffer": "bdhiIlLmpPrRsStTvW to:o",
    "gpg": "Nru to:o to:output recipient= passphrase= passphrase-file=",
    "xxd": "cglnoRs last if:r",
    "uniq": "fsw last",
    "cryptsetup": "bcdhilMopsStT rest if:luksFormat if:luksErase if:erase if:reencrypt type= "
    "cipher= label=",
    "zpool": "oORmt rest if:labelclear if:create if:add if:replace if:attach idle:n",
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
    "xorriso": "- to:outdev to:dev",
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

# Users mostly run these programs to write to disks. If the guard does not know the target of such a
# program, the target may be a disk.
DISK_TOOLS: Final = frozenset(
    {
        *("dd", "dcfldd", "dc3dd", "ddpt", "dd_rescue", "ddrescue", "nwipe", "blkdiscard"),
        *("wipefs", "badblocks", "sfdisk", "fdisk", "gdisk", "cfdisk", "parted", "sgdisk"),
        *("mdadm", "cryptsetup", "bcachefs"),
    }
)
