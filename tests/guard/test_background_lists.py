"""A list before `&` runs in a child of the shell. No dangerous command runs."""

from __future__ import annotations

import pytest

from guard_lines import ENV
from shelld.guard import StartState
from shelld.guard.judgement import judge


@pytest.mark.parametrize(
    ("verdict", "command"),
    [
        ("block", "cd /; cd /tmp/b && make & rm -rf *"),
        ("block", 'cd /; { cd /tmp/b; make; } & rm -rf "$PWD"/*'),
        ("block", "x=/; { x=/tmp/b; make; } & rm -rf $x"),
        ("block", "ls /; sleep 9 & rm -rf $_"),
        ("block", "cd / && rm -rf * & ls"),
        ("block", "if true; then cd /; cd /tmp/b & rm -rf *; fi"),
        ("block", "f() { cd /; cd /tmp/b & rm -rf *; }; f"),
        ("block", "(cd /; cd /tmp/b & rm -rf *)"),
        ("block", "sleep 9 & cd /; rm -rf *"),
        ("block", "for x in 1; do cd /; cd /tmp/b & rm -rf *; done"),
        ("block", "((x = 5 & 7)); rm -rf /${x#5}"),
        ("block", "echo $(cd /; cd /tmp/b & rm -rf *)"),
        ("block", "case a in a) cd /; cd /tmp/b & rm -rf *;; esac"),
        ("allow", "cd / && python3 -m http.server & rm -rf ./*"),
        ("allow", "cd / & rm -rf *"),
        ("allow", "x=/ & rm -rf /tmp/b/$x"),
        ("allow", "cd / & cd /tmp/b; wait; rm -rf *"),
    ],
)
def test_list_in_background_changes_nothing(verdict: str, command: str) -> None:
    assert judge(command, StartState("/work", ENV)).verdict == verdict
