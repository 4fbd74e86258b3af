"""The guard: dangerous in every disguise, and never in the way of what only looks like it.

Nothing here is run. Tables are by family; every blocked line is also put behind every wrapper and
into every quotation, where it has to stay blocked, and where it is data, where it must not be.
"""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shelld.guard import Circumstances, parse
from shelld.guard.budget import MAX_SECONDS, Budget
from shelld.guard.fallback import simple_commands
from shelld.guard.judgement import judge
from shelld.guard.launchers import SHELLS, STARTERS
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.policy import DEFAULT_POLICY, BlockRule, Policy
from shelld.guard.policy_file import PolicyError, load
from shelld.guard.quick import TELLING, is_plainly_harmless
from shelld.guard.rules import CHECKS, RULES
from shelld.guard.words import expand_word
from shelld.guard.wrappers import WRAPPERS
from support import in_threads

ENV = {"HOME": "/home/me", "USER": "me", "PATH": "/usr/bin", "TMPDIR": "/tmp"}
HERE = Circumstances("/work/project", ENV)

BLOCKED = {
    "rm-root": r"""
rm -rf /
rm -rf /*
rm -r -f /
rm --recursive --force /
rm / -rf
rm -rf -- /
rm -rf //
rm -rf /tmp/..
rm -rf /{*,.*}
rm -rf {/,/tmp}
rm -rf ""/*
rm -rf /?*
rm -rf /[a-z]*
r"m" -rf /
'r'm -rf /
\rm -rf /
/bin/rm -rf /
{rm,-rf,/}
{r,R}{m,M} -rf /
$'\162\155' -rf /
$(command -v rm) -rf /
$(echo r)m -rf /
c=rm; $c -rf /
c=RM; ${c,,} -rf /
c=rn; ${c/n/m} -rf /
a="rm -rf /"; $a
a=(rm -rf /); "${a[@]}"
set -- rm -rf /; "$@"
IFS=,; a=rm,-rf,/; $a
rm${IFS}-rf${IFS}/
x=""; rm -rf "$x/"
rm -rf "$UNSET_VARIABLE"/*
rm -rf ${x:-/}
rm -rf ${x:=/}
p=/tmp; rm -rf ${p%tmp}
d=xx/; rm -rf ${d:2}
d=/; e=d; rm -rf ${!e}
readonly d=/; rm -rf $d
printf -v d /; rm -rf $d
rm -rf $(realpath /tmp/..)
rm -rf $(dirname /tmp)
rm -rf $(ls -d /*)
x="`rm -rf /`"
cat <(rm -rf /)
echo ${a[$(rm -rf /)]}
[ -z "$(rm -rf /)" ]
[ -d / ] && rm -rf /
if true; then rm -rf /; fi
for d in /*; do rm -rf "$d"; done
while read d; do rm -rf "$d"; done <<< /
f() { rm -rf "$1"; }; f /
f(){ rm "$@"; }; f -rf /
alias x="rm -rf /"; x
trap "rm -rf /" EXIT
cd / && rm -rf *
cd / && rm -rf .
(cd /tmp/..; rm -rf ./*)
env -C / rm -rf .
find / -delete
find / -type f -delete
find / -name "*" -exec rm -rf {} \;
find . -exec rm -rf / ;
find / -print0 | xargs -0 rm -rf
echo / | xargs -I{} rm -rf {}
parallel rm -rf ::: /
yes "rm -rf /*" | head -1 | sh
echo "/ fr- mr" | rev | sh
bash -c '"$@"' _ rm -rf /
sh -c 'rm -rf $1' -- /
C='rm -rf /' bash -c '$C'
echo 'rm -rf /' > x.sh; bash x.sh
python3 -c "import os; os.system('rm -rf /')"
python3 -c 'import shutil; shutil.rmtree("/")'
docker run -v /:/host alpine rm -rf /host
rsync -a --delete empty/ /
rm -rf / ; if
rm -rf / )
""",
    "rm-system": "rm -rf /etc\nrm -rf /usr/\nrm -rf /home/*\nrm -rf ~\nrm -rf $HOME/*\nrm -r ~/.",
    "mkfs": r"""
mkfs.ext4 /dev/sda1
mkfs -t ext4 /dev/sda1
mkfs.ext4 disk.img
mkfs.${FS:-ext4} /dev/sda1
mkfs.$FSTYPE "$DEV"
/sbin/mkfs.xfs /dev/sdc
find /dev -name 'sd*' -exec mkfs.ext4 {} \;
mke2fs /dev/sda1
""",
    "dd-disk": r"""
dd if=/dev/zero of=/dev/sda
dd of=/dev/sdb bs=4M
dd if=a.img of=/dev//sda
dd if=x "of=/dev/sda"
d=/dev/sda; dd if=/dev/zero of=$d
for d in /dev/sd?; do dd if=/dev/zero of=$d; done
dd if=a.img of=/dev/nvme0n1
""",
    "redirect-disk": r"""
echo x > /dev/sda
cat x >> /dev/sda
cat x >| /dev/sda
: &> /dev/sda
> /dev/sda
exec 3> /dev/sda
[[ 1 ]] > /dev/sda
{ echo x; } > /dev/sda
for i in 1; do echo x; done > /dev/sda
echo x | sudo tee /dev/sda
cp a.img /dev/sda
coproc cat a > /dev/sda
""",
    "chmod-root": r"""
chmod -R 777 /
chmod 777 -R /
chmod --recursive a+rwx /
chmod -R 777 /*
chmod -R -x /
cd / && chmod -R 777 .
echo / | xargs chmod -R 777
find / -exec chmod 777 {} \;
""",
    "chown-root": r"""
chown -R * /
chown -R nobody /
chown -R 1000:1000 /
chown -R user /usr/..
chgrp -R me /
for d in / ; do chown -R me $d; done
""",
    "mv-root": "mv / *\nmv / /dev/null\nmv /* /x\nmv -t /tmp /\nmv // /x\ncd / && mv * /tmp",
    "chmod-system": r"""
chmod -R 777 /etc
sudo chmod -R o+w /usr/*
""",
    "chown-system": r"""
chown -R me /etc
sudo chown -R "$USER" /usr
""",
    "mv-system": r"""
mv /etc /tmp
mv -t /tmp ~
""",
    "fork-bomb": r"""
:(){ :|:& };:
bomb() { bomb | bomb & }; bomb
function f() { f | f & }; f
f(){ f & f & }; f
f(){ for i in 1 2; do f & done; };f
f(){ (f|f)& };f
a(){ b|b& }; b(){ a|a& }; a
perl -e 'fork while fork'
""",
}
BLOCKED_LINES = [
    (rule, line) for rule, lines in BLOCKED.items() for line in lines.splitlines() if line
]

ALLOWED = r"""
rm -rf node_modules
rm -rf ./*
rm -rf /tmp/*
rm -rf "/tmp/$USER"
rm -rf /var/lib/apt/lists/*
rm -rf ~/.cache/pip
rm -rf "${BUILD_DIR:?must be set}/"
rm -r "/*"
rm -f /
d=/; d=/tmp/x; rm -rf "$d"
cd /tmp && rm -rf *
find . -delete
find / -name core -print
find / -name foo -exec rm {} \;
find / -type f -perm -4000 2>/dev/null
git rm -rf docs/
git commit -m "docs: never run chmod -R 777 /"
grep -rn 'rm -rf /*' .
rg -n ':(){ :|:& };:' src
echo rm -rf /
echo "rm -rf /" | sed s/rm/ls/
echo "a > /dev/sda"
ls # rm -rf /*
printf "rm -rf /\n"
[[ "$cmd" == 'mkfs.ext4 /dev/sda1' ]] && echo bad
bash -c "echo rm -rf /"
bash -n <<< "rm -rf /"
bash -nc 'rm -rf /'
docker run --rm alpine rm -rf /
python3 -c 'print("rm -rf /")'
sed -i 's#rm -rf /#X#' script.txt
cat <<< "rm -rf /"
mkfs.ext4 --help
mkfs.ext4 -n /dev/sda1
man mkfs
git add mkfs.go
ls -l /sbin/mkfs*
dd if=/dev/sda of=backup.img
dd if=a of=/dev/tty
cat file > /dev/null
cat a > dev/sda
sudo wipefs /dev/sdX
chmod 755 /
chmod -R 777 //tmp/x
chown user /
chown -R $USER:$(id -gn $USER) ~/.config
mv /tmp/a /
mv * ../
cp -a dist/. /
tar -C / -xzf x.tgz
rsync -a / /backup
f(){ f2; }; f2(){ ls; }; f
fact() { [ $1 -le 1 ] && echo 1 || echo $(($1 * $(fact $(($1-1))))); }; fact 5
worker() { ./job "$1" & }; worker 1; worker 2
for i in 1 2 3; do ./job $i & done; wait
curl -fsSL https://example.org/x | sh
"""
ALLOWED_LINES = [line for line in ALLOWED.splitlines() if line]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    parse.load()


@pytest.mark.parametrize(("rule", "line"), BLOCKED_LINES)
def test_what_destroys_a_machine_is_blocked(rule: str, line: str) -> None:
    verdict = judge(line, HERE)
    assert (verdict.verdict, verdict.rule) == ("block", rule)
    assert verdict.reason
    assert verdict.segment


@pytest.mark.parametrize("line", ALLOWED_LINES)
def test_what_only_looks_like_it_is_not(line: str) -> None:
    assert judge(line, HERE).verdict != "block"


PLAIN_LINES = [
    *("rm -rf /", "rm -rf /*", "mkfs.ext4 /dev/sda1", "dd if=/dev/zero of=/dev/sda"),
    *("chmod -R 777 /", "chown -R nobody /", "mv / /dev/null"),
]
WRAPPED = r"""
sudo {}
sudo -u root -E A=1 {}
doas {}
env A=1 {}
env -i {}
/usr/bin/env sudo timeout 5 {}
nohup {} &
nice -n 10 {}
ionice -c3 {}
timeout -k 5 10 {}
setsid {}
taskset -c 0 {}
stdbuf -o0 {}
strace -o /tmp/t {}
flock /tmp/l {}
unshare {}
busybox {}
command {}
builtin command {}
exec {}
time {}
! {}
coproc {}
({})
{{ {}; }}
A=1 {}
true && {}
false || {}
true; {}
echo a | {}
{} | cat
{} > /dev/null 2>&1
2>/dev/null {}
eval {}
xargs -I@ {} <<< x
find . -exec {} ;
if {}; then :; fi
while {}; do :; done
case a in a) {};; esac
f() {{ {}; }}; f
trap '{}' EXIT
echo $({})
echo "`{}`"
cat <({})
cat <<EOF
$({})
EOF
"""
AS_SCRIPT = r"""
bash -c Q
sh -ec Q
bash -lc Q
sudo bash -c Q
bash -O extglob -c Q
su -c Q
script -qc Q /dev/null
watch Q
ssh host Q
echo Q | bash
echo Q | sudo sh -s
echo Q | tee log | sh
printf '%s\n' Q | bash -
bash <<< Q
bash <(echo Q)
. <(echo Q)
eval Q
eval "$(echo Q)"
bash -c "$(echo Q)"
x=Q; eval "$x"
x=Q; bash -c "$x"
X=Q bash -c 'eval "$X"'
echo Q | xargs -I% sh -c %
echo Q > f; sh f
"""
DATA = r"""
echo Q
printf '%s\n' Q
grep -rn Q .
rg Q src
git commit -m Q
git log --grep=Q
git tag -a v1 -m Q
logger Q
[[ "$c" == Q ]] && echo bad
npm run check -- --command Q
docker run -e C=Q alpine env
cat <<< Q
x=Q; echo "$x"
echo Q > notes.txt
"""


def lines_of(text: str) -> list[str]:
    text = text.replace("<<EOF\n", "<<EOF\0").replace(")\nEOF", ")\0EOF")
    return [line.replace("\0", "\n") for line in text.splitlines() if line]


@pytest.mark.parametrize("line", PLAIN_LINES)
@pytest.mark.parametrize("wrapper", lines_of(WRAPPED))
def test_a_blocked_line_stays_blocked_behind_every_wrapper(wrapper: str, line: str) -> None:
    assert judge(wrapper.format(line), HERE).verdict == "block"


@pytest.mark.parametrize("line", [*PLAIN_LINES, "echo x > /dev/sda", ":(){ :|:& };:"])
@pytest.mark.parametrize("shell", lines_of(AS_SCRIPT))
def test_a_blocked_line_stays_blocked_as_what_a_shell_runs(shell: str, line: str) -> None:
    assert judge(shell.replace("Q", shlex.quote(line)), HERE).verdict == "block"


@pytest.mark.parametrize("line", [*PLAIN_LINES, "echo x > /dev/sda", ":(){ :|:& };:"])
@pytest.mark.parametrize("data", lines_of(DATA))
def test_a_blocked_line_is_allowed_as_data(data: str, line: str) -> None:
    assert judge(data.replace("Q", shlex.quote(line)), HERE).verdict != "block"


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_a_blocked_line_stays_blocked_in_every_code(line: str) -> None:
    encoded = base64.b64encode(line.encode()).decode()
    octal = "".join(f"\\{ord(each):03o}" for each in line)
    for disguised in (
        f"echo {encoded} | base64 -d | sh",
        f'bash -c "$(base64 -d <<< {encoded})"',
        f"eval $'{octal}'",
        f"printf '{octal}' | bash",
        f"echo -e '{octal.replace(chr(92), chr(92) + '0')}' | sh",
        f"bash <<EOF\n{line}\nEOF",
        f"bash <<'EOF'\n{line}\nEOF",
        f"cat <<EOF | sudo sh\nset -e\n{line}\nEOF",
        f"xxd -r -p <<< {line.encode().hex()} | sh",
    ):
        assert judge(disguised, HERE).verdict == "block", disguised
    for data in (f"cat <<'EOF'\n{line}\nEOF", f"cat > f.md <<EOF\n{line}\nEOF", f"ls # {line}"):
        assert judge(data, HERE).verdict != "block", data


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("$(curl x) -rf /", "unresolved"),
        ("rm -rf $(cat list)", "unresolved"),
        ("curl -s x | bash", "unresolved"),
        ("bash script.sh", "unresolved"),
        ("rm -rf $NOT_SET/usr", "unresolved"),
        ("chown -R me $NOT_SET/", "unresolved"),
        ("mv $NOT_SET/lib /tmp", "unresolved"),
        ("x=; chown -R me $x/", "block"),
        ("rm -rf $NOT_SET/*", "block"),
        ('eval "$(ssh-agent -s)"', "unresolved"),
        ('trap "rm -rf $(cat list)" EXIT', "unresolved"),
        ('parallel "rm -rf $(cat list)" ::: x', "unresolved"),
        ("ls -la", "allow"),
        ("make && ./run", "allow"),
    ],
)
def test_what_cannot_be_known_is_told_from_what_can(command: str, verdict: str) -> None:
    assert judge(command, HERE).verdict == verdict


def test_the_circumstances_count() -> None:
    env = {**ENV, "DIR": "/tmp/x", "ROOT": "/"}
    assert judge("rm -rf $DIR/*", HERE).verdict == "block"
    assert judge("rm -rf $DIR/*", Circumstances("/", env)).verdict == "allow"
    assert judge("rm -rf $ROOT", Circumstances("/tmp", env)).verdict == "block"
    assert judge("rm -rf *", Circumstances("/", ENV)).verdict == "block"
    script = "declare -- d=/\ndeclare -x e=/\nf () { rm -rf /; }\nalias g='rm -rf /'"
    here = Circumstances("/tmp", ENV, script)
    for command in ("rm -rf $d", "rm -rf $e", "f", "g", "g x"):
        assert judge(command, here).verdict == "block", command
    assert judge("f() { :; }; f", here).verdict == "allow"
    assert judge("d=/tmp/y; rm -rf $d", here).verdict == "allow"


def test_the_answer_names_rule_segment_and_trace() -> None:
    verdict = judge('cd /tmp; x=/; sudo sh -c "rm -rf $x"', HERE, traces=True)
    assert (verdict.rule, verdict.segment) == ("rm-root", "rm -rf /")
    assert verdict.reason == "it removes the whole file system"
    assert verdict.trace == ["cd /tmp", "sudo sh -c rm -rf /", "sh -c rm -rf /", "rm -rf /"]


@pytest.mark.parametrize("line", [line for _, line in BLOCKED_LINES])
def test_the_short_way_lets_nothing_through(line: str) -> None:
    assert not is_plainly_harmless(line)


def test_the_short_way_knows_every_name_that_means_something() -> None:
    named = {*CHECKS, *WRAPPERS, *STARTERS, *SHELLS, "env", "command", "busybox", "toybox"}
    named |= {"eval", "source", "trap", "alias", "cd", "pushd", "python3", "perl", "ruby", "node"}
    assert named <= TELLING
    assert is_plainly_harmless("git status && npm test; make -j4 | head -5")


# -- words, against bash itself ---------------------------------------------------------------


class Names:
    """What words may refer to here, and in the bash that they are compared with."""

    VALUES: ClassVar[dict[str, str]] = {
        "a": "one",
        "b": "two words",
        "e": "",
        "p": "/usr/local/lib",
        "s": "a,b",
        "HOME": "/h",
        "#": "2",
    }

    def value_of(self, name: str) -> str | None:
        return self.VALUES.get(name)

    def list_of(self, name: str) -> list[str]:
        return ["x y", "z"] if name == "@" else []

    def assign(self, name: str, value: str) -> None:
        raise AssertionError

    def output_of(self, script: str) -> str:
        return script.removeprefix("echo ")

    def file_of(self, script: str) -> str:
        raise AssertionError


PIECES = st.sampled_from(
    [
        *("a", "/", ".", "-", "=", "x,y", " ", "'q u'", '"d"', "\\ ", "\\$", "$a", "$b", '"$b"'),
        *("$e", '"$e"', "${a}", "${b%o*}", "${p##*/}", "${p%/*}", "${p/l/L}", "${p//l/}", "${#p}"),
        *("${a^^}", "${u:-d e}", '"${u:-d e}"', "${a:+s}", "${a:1:1}", "${p: -3}", "$@", '"$@"'),
        *("$#", "{1,2}", "{a..c}", "{3..1}", "{x}", "{,y}", "$'\\x41\\n'", "$(echo a)", "`echo b`"),
        *("$((1+2*3))", "$((7/2-1))", "${s//,/ }", "${b@U}", "~", '"~"', "\\\\", "'\\'"),
    ]
)


@settings(max_examples=500)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_words_are_expanded_as_bash_expands_them(word: str) -> None:
    # Who has a home here, and where, is not looked up.
    assume(not re.search(r"~[^/\s]", word))
    values = " ".join(
        f"{name}={shlex.quote(value)}" for name, value in Names.VALUES.items() if name != "#"
    )
    script = f"{values}; set -f; set -- 'x y' z; printf '%s\\0' start {word}"
    theirs = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, timeout=10, check=False
    )
    expected = theirs.stdout.decode().split("\0")[1:-1]
    ours: list[str] = []

    (command,) = simple_commands(f"echo {word}")
    for each in command.words[1:]:
        ours += [plain(field) for field in expand_word(each, Names())]
    assert ours == expected


# -- hostile input ----------------------------------------------------------------------------

HOSTILE = {
    "parentheses": "(" * 500_000,
    "substitutions": "$(" * 300_000,
    "quotes": '"' * 1_000_000,
    "parameters": "${" * 400_000,
    "braces": "{" * 300_000,
    "brace pairs": "echo " + "{a,b}" * 1_000,
    "a range": "echo {1..99999999}",
    "words": "rm " + "a " * 500_000,
    "one word": "rm " + "a" * 1_000_000,
    "lines": "\n" * 1_000_000,
    "globs": "*" * 1_000_000,
    "evals": "eval " * 100_000 + "x",
    "doubling": "x=a; " + "x=$x$x; " * 60 + "echo $x",
    "loops": "for i in {1..500}; do " * 3 + ":; " + "done; " * 3,
    "recursion": "f() { f; f; f; }; f",
    "a backtracking pattern": "echo " + "a" * 50_000 + r" | sed 's/\(a*\)*b/x/'",
    "a backtracking glob": "x=" + "a" * 3_000 + "; echo ${x//*a*a*a*b/}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_takes_little_time(name: str) -> None:
    began = time.process_time()
    assert judge(HOSTILE[name][: 1 << 20], HERE).verdict in ("allow", "unresolved")
    # Several times what it takes on a machine that does nothing else.
    assert time.process_time() - began < 5


@settings(max_examples=400)
@given(st.data())
def test_no_text_makes_it_fail(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from([line for _, line in BLOCKED_LINES] + ALLOWED_LINES))
    position = data.draw(st.integers(0, len(line)))
    garbage = data.draw(st.text("\\'\"$`(){}[]<>|&;*?~!#\n\0 aé=:/-%@,.", max_size=6))
    for text in (line[:position], line[:position] + garbage + line[position:], garbage):
        assert judge(text, HERE).verdict in ("allow", "block", "unresolved")


@pytest.mark.parametrize(
    "command",
    [
        *("shift ²", "x=a; echo ${x:²}", "echo ${a[--1]}", "head -n ² f", "echo $((²))"),
        *("printf '%²d' 1", "seq ²", "echo ${²}", "xargs -n", "find -exec", "sudo -u", "env -S"),
        *(
            "xargs -d '' rm",
            "find",
            "xargs",
            "flock",
            "timeout",
            "sed",
            "awk",
            "tr",
            "printf",
            "base64",
            "cut -c²",
        ),
        *("trap", "eval", ".", "read", "mapfile", "export", "docker run -v", "parallel :::"),
    ],
)
def test_commands_that_are_wrong_are_followed_all_the_same(command: str) -> None:
    for text in (command, f"echo 1 2 3 | {command}", f"$({command})"):
        assert judge(text, HERE).verdict in ("allow", "unresolved")


def test_commands_are_judged_in_many_threads_at_once() -> None:
    lines = [(line, judge(line, HERE)) for line in [*ALLOWED_LINES, *PLAIN_LINES]]

    def work(_number: int) -> None:
        for _ in range(5):
            for line, verdict in lines:
                assert judge(line, HERE) == verdict

    in_threads(4, work)


def test_a_busy_machine_takes_no_time_from_a_judgement() -> None:
    budget = Budget(policy=DEFAULT_POLICY, traces=False)
    # As if others had the processor meanwhile.
    time.sleep(MAX_SECONDS * 1.2)
    assert budget.has_time()


def test_what_a_command_defines_is_not_there_for_others() -> None:
    assert judge("a(){ b|b& }", HERE).verdict == "allow"
    assert judge("b(){ a|a& }", HERE).verdict == "allow"
    assert judge("f() { rm -rf /; }; alias g=f", HERE).verdict == "allow"
    assert judge("f; g", HERE).verdict == "allow"


def test_characters_of_ours_mean_nothing_in_a_command() -> None:
    assert judge(f"rm -rf {UNKNOWN}", HERE).verdict == "allow"
    encoded = base64.b64encode(f"rm -rf {UNKNOWN}".encode()).decode()
    assert judge(f"base64 -d <<< {encoded} | bash", HERE).verdict == "allow"


def test_every_rule_has_its_lines() -> None:
    assert set(BLOCKED) == RULES


# -- the parser's shapes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("a b", "program(command(command_name(word) word))"),
        ("a | b", "program(pipeline(command(command_name(word)) command(command_name(word))))"),
        ("a > f", "redirected_statement(command(command_name(word)) file_redirect(word))"),
        (
            "cat <<E | sh\nx\nE\n",
            "heredoc_redirect(heredoc_start pipeline(command(command_name(word))) heredoc_body",
        ),
        ("f() { a; }", "function_definition(word compound_statement(command"),
        ("for i in a; do b; done", "for_statement(variable_name word do_group("),
        ("x=1 a", "command(variable_assignment(variable_name number) command_name(word))"),
        ("a <<< b", "command(command_name(word) herestring_redirect(word))"),
        ("case a in b) c;; esac", "case_statement(word case_item("),
        ("export a=b", "declaration_command(variable_assignment("),
        ("a $(b) <(c)", "command_substitution(command(command_name(word)))"),
        ("a=(1 2)", "variable_assignment(variable_name array("),
    ],
)
def test_the_parser_has_the_shapes_that_are_relied_on(script: str, kinds: str) -> None:
    def shape(node: parse.Node) -> str:
        inner = " ".join(shape(child) for child in node.named_children)
        return f"{node.type}({inner})" if inner else str(node.type)

    assert kinds in shape(parse.parse(script))


# -- rules of a place -------------------------------------------------------------------------


def test_a_policy_adds_and_removes_rules_and_allows_commands() -> None:
    policy = Policy(
        disable=frozenset({"mv-system"}),
        allow=["rm -rf /etc/*"],
        block=[BlockRule("no-push", "git", ["push", "--force*"], "no")],
    )
    assert judge("mv /etc /tmp", HERE, policy).verdict == "allow"
    assert judge(" rm -rf /etc/* ", HERE, policy).verdict == "allow"
    assert judge("rm -rf /usr", HERE, policy).verdict == "block"
    verdict = judge("sudo git push origin --force-with-lease", HERE, policy)
    assert (verdict.rule, verdict.reason) == ("no-push", "no")
    assert judge("git push", HERE, policy).verdict == "allow"
    assert not is_plainly_harmless("git push origin --force", policy)


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('disable = ["mkfs"]\nallow = ["a"]\n[[block]]\nname = "n"\nprogram = "p"\n')
    policy = load(file)
    assert policy == Policy(frozenset({"mkfs"}), ["a"], [BlockRule("n", "p")])


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("disable = [", 1, "TOML"),
        ("\nallow = 3\n", 2, "array"),
        ("\n\nforbid = []\n", 3, "forbid"),
        ('allow = []\ndisable = ["nonsense"]\n', 2, "nonsense"),
        ('allow = []\n[[block]]\nprogram = "x"\n', 2, "name"),
    ],
)
def test_a_broken_policy_says_where(tmp_path: Path, text: str, line: int, word: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(PolicyError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert word in str(caught.value)
