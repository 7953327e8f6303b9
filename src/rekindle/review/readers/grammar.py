"""The tree-sitter grammars, imported when a script needs one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rekindle.core.errors import BadInput, MissingTool

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_TEXTS = 100


@lru_cache(maxsize=4)
def _parser(language: str) -> Any:
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
    except ImportError as error:
        message = f"cannot read this script: the {language} grammar is not installed for this Python"
        raise MissingTool(
            message, hint=f"run `pip install tree-sitter tree-sitter-{language}`, or use Python 3.10 to 3.14"
        ) from error
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


# `$Root\\src` without quotes: the grammar of PowerShell takes what follows, the next lines too, for a part of it. It is
# read as a plain word.
_PATH_FROM_VARIABLE = re.compile(
    r"(?<=[ \t])\$(?=(?:\w+:)?\w+\\[\w.$%*{-])|(?<=[\w\"'.] )\$(?=(?:\w+:)?\w+/[A-Za-z_.$%*{-])"
)
# `-DX=1`, `--format=csv,noheader`: there too.
_OPTION = re.compile(r"(?<=[ \t])--?[A-Za-z][\w:.-]*=[^\s\"'(){}$;|&<>`]*")
_STANDS_FOR = {ord(sign): chr(number) for number, sign in enumerate("$-,", start=1)}
_SIGNS = {ord(value): chr(key) for key, value in _STANDS_FOR.items()}


def _plain_word(found: re.Match[str]) -> str:
    return found[0].translate(_STANDS_FOR)


def parsed(language: str, text: str) -> Node:
    # The grammar of the shell takes time by the square of the texts (`<<END`) that one line begins.
    if language == "bash" and any(line.count("<<") > _MOST_TEXTS for line in text.split("\n")):
        message = f"a line of this script begins more than {_MOST_TEXTS} texts with `<<`"
        raise BadInput(message, hint="give each its own command, or check that this is a script")
    if language == "powershell":
        text = _PATH_FROM_VARIABLE.sub(_plain_word, _OPTION.sub(_plain_word, text))
    node: Node = _parser(language).parse(text.encode("utf-8")).root_node
    return node


def broken(root: Node) -> Iterator[Node]:
    """What the grammar could not take, in the order of the script."""
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error:
            waiting += reversed(node.children)


def text_of(node: Node | None) -> str:
    text = (node.text or b"").decode("utf-8", "replace") if node is not None else ""
    return text.translate(_SIGNS)


def first_line(node: Node) -> int:
    return int(node.start_point[0])


def last_line(node: Node) -> int:
    """The last line with something of the node on it: the end of a line counts to that line."""
    row, column = node.end_point
    return int(row - 1 if column == 0 and row > node.start_point[0] else row)


def touches(node: Node, lines: list[str]) -> bool:
    """No blank stands before it, as in `numpy>=2`."""
    row, column = node.start_point
    line = lines[row].encode("utf-8") if row < len(lines) else b""
    return column > 0 and line[column - 1 : column] not in (b" ", b"\t", b"")
