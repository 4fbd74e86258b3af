"""Command lines in which a command arrives by a detour, in the format of `guard_classes`.

None of them is run.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "subscripts": (
        r"""
a=(x); unset 'a[$(rm -rf /)]'
a=(x); n='a[$(rm -rf /)]'; unset "$n"
a=(x); [ -v 'a[$(rm -rf /)]' ]
a=(x); [[ -v 'a[$(rm -rf /)]' ]]
n='a[$(rm -rf /)]'; [ -v "$n" ]
n='a[$(rm -rf /)]'; [[ -v $n ]]
sleep 1 & wait -n -p 'a[$(rm -rf /)]'
""",
        r"""
a=(1 2 3); unset 'a[1]'; unset "a[$i]"
unset "$name" x y
unset -f cleanup; unset -v HOME
[ -v HOME ] && [[ -v arr[0] ]]
[ -v 'a[$(date +%s)]' ]
sleep 1 & wait -n -p pid; wait "$pid"
""",
    ),
    "writers of disks": (
        r"""
gcc -O2 -o /dev/sda x.c
go build -o /dev/sda ./cmd
ffmpeg -y -i in.mp4 /dev/sdb
ffmpeg -i in.mp4 -f rawvideo /dev/sda
valgrind --log-file=/dev/sda ./a
rsync -a image.img /dev/sda
patch -o /dev/sda x y.patch
zstd -d image.zst -o /dev/sdb
genisoimage -R -o /dev/sdb files
mksquashfs root /dev/sdb1
pg_dump -f /dev/sda db
""",
        r"""
gcc -O2 -o hello hello.c
gcc -x c -o /dev/null - < x.c
go build -o bin/app ./...
ffmpeg -y -i in.mp4 -vf scale=640:-1 out.mp4
ffmpeg -i /dev/sda
ffmpeg -vaapi_device /dev/dri/renderD128 -i in.mp4 -f null /dev/null
valgrind --leak-check=full --log-file=v.log ./test
rsync -a /dev/sda backup/
rsync -avz --delete dist/ host:/var/www/
patch -p1 -o /dev/null x y.patch
zstd -d x.zst -o x
mksquashfs root root.sqfs -comp xz
""",
    ),
    "starters": (
        r"""
screen -S build -X stuff 'rm -rf /'
podman unshare rm -rf /usr
compgen -A command -X '!rm' | xargs -I{} {} -rf /
""",
        r"""
screen -S build -X stuff 'make test'
screen -dmS srv python3 -m http.server
podman unshare ls /
compgen -A function -X '_*'
compgen -A command -X '!git*' | sort
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
