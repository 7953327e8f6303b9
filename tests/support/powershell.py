"""What PowerShell would make of a line, by its grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

_QUOTES = "'\u2018\u2019\u201a\u201b"
_NAMED = re.compile(r"\$(?:\{env:(\w+)\}|env:(\w+))")


def words_of(line: str) -> list[str]:
    """The words of the one command in it."""
    commands, settings = read(line)
    assert len(commands) == 1 and not settings, line
    return commands[0]


def read(line: str) -> tuple[list[list[str]], dict[str, str]]:
    """The commands in it, and what it sets: a variable that is filled in is `<NAME>`, one that is cleared is empty."""
    data = line.encode("utf-8")
    tree = Parser(Language(tree_sitter_powershell.language())).parse(data)
    assert not tree.root_node.has_error, line
    nodes = list(_below(tree.root_node))
    commands = [[_value(part, data) for part in _elements(node)] for node in nodes if node.type == "command"]
    pairs = [_text(node, data).split(" = ", 1) for node in nodes if node.type == "assignment_expression"]
    values = [node.child_by_field_name("value") for node in nodes if node.type == "assignment_expression"]
    return commands, {
        _NAMED.sub(r"\1\2", name): "" if text == "$null" else _value(value, data)
        for (name, text), value in zip(pairs, values, strict=True)
        if value is not None
    }


def _elements(command: Node) -> list[Node]:
    found = [child for child in command.children if child.type in ("command_name", "command_name_expr")]
    rest = next((child for child in command.children if child.type == "command_elements"), None)
    return [*found, *(child for child in (rest.children if rest else []) if child.type != "command_argument_sep")]


def _value(node: Node, data: bytes) -> str:
    text = _text(node, data)
    if text[:1] in _QUOTES:
        return re.sub(f"([{_QUOTES}])[{_QUOTES}]", r"\1", text[1:-1])
    if text.startswith('"'):
        inside = _NAMED.sub(lambda name: f"<{name[1]}>" if name[1] else name[0], text[1:-1])
        assert not re.search(r'(?<!`)["$]', inside), text
        return re.sub(r"`(.)", r"\1", inside)
    assert not set(text) & set(" \t\n\"'$`;,|&(){}<>@#%"), text
    return text


def _text(node: Node, data: bytes) -> str:
    return data[node.start_byte : node.end_byte].decode("utf-8")


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _below(child)
