"""The tree-sitter grammars, imported when a script needs one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rekindle.core.errors import BadInput, MissingTool
from rekindle.review.readers.recorder import Recorder
from rekindle.review.trace import Invocation, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_TEXTS = 100
_DEEPEST = 40


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


def text_of(node: Node | None) -> str:
    text = (node.text or b"").decode("utf-8", "replace") if node is not None else ""
    return text.translate(_SIGNS)


def first_line(node: Node) -> int:
    return int(node.start_point[0])


class TreeReader:
    """What is the same in every language that is walked on its tree. `calls` of functions are limited, and `depth`."""

    language = ""

    def __init__(self, recorder: Recorder, text: str, first: int) -> None:
        self.recorder = recorder
        self.trace = recorder.trace
        self.first = first
        self.lines = text.split("\n")
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.calls = self.depth = 0

    def line(self, node: Node) -> int:
        return first_line(node) + self.first

    def ran(self, node: Node, words: Sequence[Word], **said: Any) -> Invocation | None:
        """Note the program that a node starts."""
        row, column = node.end_point  # the end of a line counts to that line
        last = int(row - 1 if column == 0 and row > node.start_point[0] else row) + self.first
        return self.recorder.run(words, self.line(node), last, text_of(node), **said)

    def too_deep(self, node: Node) -> bool:
        if self.depth > _DEEPEST:
            self.trace.unread(self.line(node), text_of(node).split("\n")[0], "nested too deeply")
        return self.depth > _DEEPEST

    def errors(self, root: Node) -> None:
        """What the grammar could not take, line by line."""
        waiting = [root] if root.has_error else []
        while waiting:
            node = waiting.pop()
            if node.is_error or node.is_missing:
                row = first_line(node)
                text = self.lines[row] if row < len(self.lines) else ""
                if not self.read_plainly(row, text):
                    self.trace.unread(row + self.first, text, f"not valid {self.language}")
            elif node.has_error:
                waiting += reversed(node.children)

    def never_called(self) -> None:
        self.recorder.reached = False
        for name, node in list(self.functions.items()):
            if name not in self.called and not self.trace.full:
                self.enter(node)
        self.recorder.reached = True

    def read_plainly(self, row: int, text: str) -> bool:
        """Whether a line that the grammar stumbles over was read all the same."""
        return False

    def enter(self, function: Node) -> None:
        """The body of a function."""

    def touches(self, node: Node) -> bool:
        """No blank stands before it, as in `numpy>=2`."""
        row, column = node.start_point
        line = self.lines[row].encode("utf-8") if row < len(self.lines) else b""
        return column > 0 and line[column - 1 : column] not in (b" ", b"\t", b"")
