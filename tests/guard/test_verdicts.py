"""The guard blocks dangerous commands in every disguise, and allows similar harmless ones.

Nothing here is run. The tests put every blocked line behind every wrapper and into every quotation,
where the guard must still block it. They also put every blocked line into text that is only data,
where the guard must not block it.
"""

from __future__ import annotations

import base64
import shlex

import pytest

from guard_lines import ALLOWED_LINES, BLOCKED, BLOCKED_LINES, ENV, HERE, PLAIN_LINES
from shelld.guard import StartState, parse
from shelld.guard.judgement import judge
from shelld.guard.markers import UNKNOWN
from shelld.guard.rules import RULES

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
QUOTED_LINES = [*PLAIN_LINES, "echo x > /dev/sda", ":(){ :|:& };:"]


def lines_of(text: str) -> list[str]:
    text = text.replace("<<EOF\n", "<<EOF\0").replace(")\nEOF", ")\0EOF")
    return [line.replace("\0", "\n") for line in text.splitlines() if line]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    parse.load()


@pytest.mark.parametrize("rule", BLOCKED)
def test_destructive_commands_are_blocked(rule: str) -> None:
    for line in [line for each, line in BLOCKED_LINES if each == rule]:
        verdict = judge(line, HERE)
        assert (verdict.verdict, verdict.rule) == ("block", rule), line
        assert verdict.reason
        assert verdict.segment


@pytest.mark.parametrize("line", ALLOWED_LINES)
def test_lookalikes_are_allowed(line: str) -> None:
    assert judge(line, HERE).verdict != "block"


@pytest.mark.parametrize("wrapper", lines_of(WRAPPED))
def test_blocked_lines_stay_blocked_behind_a_wrapper(wrapper: str) -> None:
    lines = [wrapper.format(line) for line in PLAIN_LINES]
    assert [line for line in lines if judge(line, HERE).verdict != "block"] == []


@pytest.mark.parametrize("shell", lines_of(AS_SCRIPT))
def test_blocked_lines_stay_blocked_inside_a_shell(shell: str) -> None:
    lines = [shell.replace("Q", shlex.quote(line)) for line in QUOTED_LINES]
    assert [line for line in lines if judge(line, HERE).verdict != "block"] == []


@pytest.mark.parametrize("data", lines_of(DATA))
def test_blocked_lines_are_allowed_as_data(data: str) -> None:
    lines = [data.replace("Q", shlex.quote(line)) for line in QUOTED_LINES]
    assert [line for line in lines if judge(line, HERE).verdict == "block"] == []


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_blocked_line_stays_blocked_in_every_encoding(line: str) -> None:
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
        ("xargs -a list rm -rf", "unresolved"),
        ("parallel -a list rm -rf", "unresolved"),
        ("parallel rm -rf :::: list", "unresolved"),
        ("bash script.sh", "unresolved"),
        ("bash < /dev/null", "allow"),
        ("ssh host < script.sh", "unresolved"),
        ("curl -s x | sudo -i", "unresolved"),
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
def test_unknown_commands_are_unresolved(command: str, verdict: str) -> None:
    assert judge(command, HERE).verdict == verdict


def test_verdict_depends_on_start_state() -> None:
    env = {**ENV, "DIR": "/tmp/x", "ROOT": "/"}
    assert judge("rm -rf $DIR/*", HERE).verdict == "block"
    assert judge("rm -rf $DIR/*", StartState("/", env)).verdict == "allow"
    assert judge("rm -rf $ROOT", StartState("/tmp", env)).verdict == "block"
    assert judge("rm -rf *", StartState("/", ENV)).verdict == "block"
    script = "declare -- d=/\ndeclare -x e=/\nf () { rm -rf /; }\nalias g='rm -rf /'"
    here = StartState("/tmp", ENV, script)
    for command in ("rm -rf $d", "rm -rf $e", "f", "g", "g x"):
        assert judge(command, here).verdict == "block", command
    assert judge("f() { :; }; f", here).verdict == "allow"
    assert judge("d=/tmp/y; rm -rf $d", here).verdict == "allow"


def test_the_answer_names_rule_segment_and_trace() -> None:
    verdict = judge('cd /tmp; x=/; sudo sh -c "rm -rf $x"', HERE, traces=True)
    assert (verdict.rule, verdict.segment) == ("rm-root", "rm -rf /")
    assert verdict.reason == "it removes the whole file system"
    assert verdict.trace == ["cd /tmp", "sudo sh -c rm -rf /", "sh -c rm -rf /", "rm -rf /"]


def test_definitions_end_with_their_command() -> None:
    assert judge("a(){ b|b& }", HERE).verdict == "allow"
    assert judge("b(){ a|a& }", HERE).verdict == "allow"
    assert judge("f() { rm -rf /; }; alias g=f", HERE).verdict == "allow"
    assert judge("f; g", HERE).verdict == "allow"


def test_internal_marker_characters_are_ordinary_in_commands() -> None:
    assert judge(f"rm -rf {UNKNOWN}", HERE).verdict == "allow"
    encoded = base64.b64encode(f"rm -rf {UNKNOWN}".encode()).decode()
    assert judge(f"base64 -d <<< {encoded} | bash", HERE).verdict == "allow"


def test_every_rule_has_blocked_lines() -> None:
    assert set(BLOCKED) == RULES
