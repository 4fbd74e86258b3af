"""Lists the programs that a rule judges. Also lists options that several tables share."""

from __future__ import annotations

from typing import Final

# The programs that make file systems, and whose names do not begin with mkfs. The value is the kind
# of file system, such as ``ext2`` in ``mkfs.ext2``.
MAKERS: Final = {
    "mke2fs": "ext2",
    "mkdosfs": "dos",
    "mkfatfs": "fat",
    "mkntfs": "ntfs",
    "mkexfatfs": "exfat",
    "mkreiserfs": "reiserfs",
    "mkudffs": "udf",
}

# The programs that `rules` judges. The value is the program whose rules apply.
JUDGED: Final = {
    "rm": "rm",
    "chmod": "chmod",
    "chown": "chown",
    "chgrp": "chown",
    "mv": "mv",
    "rsync": "rsync",
    "mkfs": "mkfs",
    # These are variants of a program, or names of GNU programs on systems where the plain name
    # stands for another program.
    "grm": "rm",
    "gchmod": "chmod",
    "gchown": "chown",
    "gmv": "mv",
    "srm": "rm",
    "safe-rm": "rm",
    "wipe": "rm",
    "Remove-Item": "rm",
    **dict.fromkeys(MAKERS, "mkfs"),
}

# Programs that `recursive` knows and that `quick` looks for. Programs such as tar(1) are missing,
# because they are mostly used for other purposes. They remove or change trees only with certain
# options, for which `quick` looks separately.
TREE_PROGRAMS: Final = frozenset(
    {
        *("zip", "7z", "7za", "7zr", "7zz", "gzip", "pigz", "rimraf", "trash", "trash-put", "rip"),
        *("gio", "rclone", "remove_directory", "setfacl", "chattr", "chcon"),
    }
)

# The options that take a value. This table is for some programs in `JUDGED`, and for programs that
# are in several tables.
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

# The options of programs that make file systems. The key is the suffix of the program's name. The
# key "" is for all other programs, whose short options are unknown.
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
