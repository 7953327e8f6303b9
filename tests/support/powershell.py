"""What PowerShell would make of a line, by its grammar: the words of the one command in it."""

import re

import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

_QUOTES = "'\u2018\u2019\u201a\u201b"


def words_of(line: str) -> list[str]:
    data = line.encode("utf-8")
    tree = Parser(Language(tree_sitter_powershell.language())).parse(data)
    assert not tree.root_node.has_error, line
    commands = [node for node in _below(tree.root_node) if node.type == "command"]
    assert len(commands) == 1, line
    return [_value(node, data) for node in _elements(commands[0])]


def _elements(command: Node) -> list[Node]:
    found = [child for child in command.children if child.type in ("command_name", "command_name_expr")]
    rest = next((child for child in command.children if child.type == "command_elements"), None)
    return [*found, *(child for child in (rest.children if rest else []) if child.type != "command_argument_sep")]


def _value(node: Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8")
    if text[:1] in _QUOTES:
        return re.sub(f"([{_QUOTES}])[{_QUOTES}]", r"\1", text[1:-1])
    if text.startswith('"'):
        assert not set(text[1:-1]) & set('"$`'), text
        return text[1:-1]
    assert not set(text) & set(" \t\n\"'$`;,|&(){}<>@#%"), text
    return text


def _below(node: Node):
    yield node
    for child in node.children:
        yield from _below(child)
