"""The shapes of the parser's nodes that the guard relies on."""

from __future__ import annotations

import pytest

from shelld.guard import parse


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
