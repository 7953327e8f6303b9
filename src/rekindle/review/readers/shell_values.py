"""What the words of a shell script are, with their variables filled in."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from rekindle.review.readers.grammar import first_line, text_of
from rekindle.review.readers.recorder import Recorder
from rekindle.review.trace import LIST, Word

if TYPE_CHECKING:
    from tree_sitter import Node


class ShellValues(ABC):
    def __init__(self, recorder: Recorder, first: int) -> None:
        self.recorder = recorder
        self.trace = recorder.trace
        self.first = first

    def line(self, node: Node) -> int:
        return first_line(node) + self.first

    @abstractmethod
    def substituted(self, node: Node) -> tuple[str, bool]:
        """What `$(…)` gives, and whether it is known."""

    def words(self, node: Node) -> list[Word]:
        return self.word(node).apart(bare=node.type in ("simple_expansion", "expansion"))

    def word(self, node: Node) -> Word:
        text, known = self._value(node, 0)
        raw = text_of(node)
        return Word(text, raw, self.line(node), raw[:1] in "\"'", known)

    def _value(self, node: Node, depth: int) -> tuple[str, bool]:
        kind = node.type
        if depth > 12:
            return text_of(node), False
        if kind in ("word", "number", "special_character", "string_content", "variable_name", "extglob_pattern"):
            raw = text_of(node)
            return (
                (re.sub(r"\\(\n|.)", lambda m: "" if m[1] == "\n" else m[1], raw), True) if "\\" in raw else (raw, True)
            )
        if kind == "raw_string":
            return text_of(node)[1:-1], True
        if kind == "ansi_c_string":
            return text_of(node)[2:-1], True
        if kind in ("string", "concatenation", "command_name", "array", "translated_string"):
            return self._parts(node, depth)
        if kind == "simple_expansion":
            return self._variable(text_of(node).lstrip("$"), node)
        if kind == "expansion":
            return self._expansion(node, depth)
        if kind == "command_substitution":
            return self.substituted(node)
        return text_of(node), False

    def _parts(self, node: Node, depth: int) -> tuple[str, bool]:
        between = LIST if node.type == "array" else ""
        pieces: list[str] = []
        known = True
        for child in node.named_children:
            if child.type == "comment":
                continue
            text, sure = self._value(child, depth + 1)
            pieces.append(text)
            known = known and sure
        if node.type == "string" and not pieces:
            return text_of(node)[1:-1], True
        if node.type == "string":
            return self._spaced(node, pieces), known
        return between.join(pieces), known

    def _spaced(self, node: Node, pieces: list[str]) -> str:
        """The grammar drops blanks between two expansions in a string; here they are put back."""
        whole = node.text or b""
        text, at = "", 1
        for child, piece in zip((c for c in node.named_children if c.type != "comment"), pieces, strict=False):
            begin = child.start_byte - node.start_byte
            text += whole[at:begin].decode("utf-8", "replace") + piece
            at = child.end_byte - node.start_byte
        return text + whole[at:-1].decode("utf-8", "replace")

    def _variable(self, name: str, node: Node) -> tuple[str, bool]:
        found = self.recorder.lookup(name)
        if found is not None:
            return found.text, found.known
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            self.recorder.missed(name, self.line(node))
        return text_of(node), False

    def _expansion(self, node: Node, depth: int) -> tuple[str, bool]:
        """`${X}`, `${X:-default}`, `${X%.*}`; other forms are not followed."""
        inner = text_of(node)[2:-1]
        match = re.match(r"([A-Za-z_]\w*)(\[[@*]\])?", inner)
        if not match:
            return text_of(node), False
        rest = inner[match.end() :]
        if rest[:2] in (":-", "-", ":=", "=") or rest[:1] in ("-", "="):
            self.trace.asked.add(match[1])
            found = self.recorder.lookup(match[1])
            self.trace.offered |= {match[1].upper()} if found is None else set()
            if found is not None and (found.text or not rest.startswith(":")):
                return found.text, found.known
            default = [child for child in node.named_children if child.type not in ("variable_name",)]
            text = self._value(default[-1], depth + 1)[0] if default else ""
            if "=" in rest[:2]:
                self.recorder.set(match[1], text.strip("\"'"), self.line(node), known="$" not in text, how="shell")
            # The default holds unless somebody outside says otherwise.
            return text.strip("\"'"), "$" not in text
        if rest.startswith((":?", "?", ":+", "+")):
            self.trace.asked.add(match[1])
        text, known = self._variable(match[1], node)
        if not rest:
            return text, known
        cut = re.fullmatch(r"(%%?|##?)(.+)", rest)
        if known and cut and re.fullmatch(r"[\w.*/-]+", cut[2]):
            return _trimmed(text, cut[1], cut[2]), True
        gone = re.fullmatch(r"//([^/]+)/([^/]*)", rest)
        if known and gone and "*" not in gone[1] and "$" not in rest:
            return text.replace(gone[1].replace("\\", ""), gone[2]), True
        return text_of(node), False


def _trimmed(text: str, sign: str, pattern: str) -> str:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    if sign.startswith("#"):
        greedy = expression if sign == "##" else expression.replace(".*", ".*?")
        return re.sub(rf"\A(?:{greedy})", "", text, count=1)
    for start in range(len(text)) if sign == "%%" else range(len(text) - 1, -1, -1):
        if re.fullmatch(expression, text[start:]):
            return text[:start]
    return text
