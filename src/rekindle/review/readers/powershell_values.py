"""Values of PowerShell expressions, as far as they can be known without running them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rekindle.review.readers.grammar import TreeReader, text_of
from rekindle.review.trace import LIST, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_REFERENCE = re.compile(
    r"`(.)|\$\{(?:env:)?([\w ().]+)\}|\$(?:env|global|script|private):(\w+)|\$(\w+)(?!\w*:)|(\$\()", re.IGNORECASE
)
_ESCAPES = {"n": "\n", "t": "\t", "0": "", "r": ""}


def environment_name(text: str) -> str | None:
    match = re.fullmatch(r"(?i)\$\{?env:([\w()]+)\}?", text.strip())
    return match[1] if match else None


class PowerShellValues(TreeReader):
    def word(self, node: Node) -> Word:
        raw = text_of(node)
        text, known = self.value(node)
        if raw.startswith(("-", "!")) and not text.startswith(raw[0]):
            text = raw[0] + text  # `py -3.11`: the grammar takes it for a number below zero
        return Word(text, raw, self.line(node), raw[:1] in "\"'", known)

    def value(self, node: Node, depth: int = 0) -> tuple[str, bool]:
        if depth > 60:
            return text_of(node), False
        kind = node.type
        if kind in ("expandable_string_literal", "expandable_here_string_literal"):
            return self.filled(text_of(node)[1:-1] if kind.startswith("expandable_s") else text_of(node)[2:-2], node)
        if kind in ("verbatim_string_characters", "verbatim_here_string_characters"):
            cut = 1 if kind == "verbatim_string_characters" else 2
            return text_of(node)[cut:-cut].replace("''", "'"), True
        if kind == "variable":
            return self.variable(text_of(node), node)
        if kind in ("decimal_integer_literal", "real_literal", "integer_literal", "command_parameter"):
            return text_of(node), True
        if kind in ("generic_token", "command_name"):
            return self.filled(text_of(node), node)
        if kind == "command":
            return self._output(node, depth)
        if kind == "array_expression":
            return self._array(node, depth)
        named = [child for child in node.named_children if child.type not in ("comment", "command_argument_sep")]
        if kind == "additive_expression" and len(named) == 2 and "+" in {text_of(c) for c in node.children}:
            left, right = (self.value(child, depth + 1) for child in named)
            between = LIST if LIST in left[0] or LIST in right[0] else ""
            return left[0] + between + right[0], left[1] and right[1]
        if kind == "array_literal_expression" and len(named) > 1:
            parts = [self.value(child, depth + 1) for child in named]
            return LIST.join(text for text, _ in parts), all(known for _, known in parts)
        if changed := re.fullmatch(r"(?i)(\$\w+)\.replace\((['\"])([^'\"]+)\2,\s*(['\"])([^'\"]*)\4\)", text_of(node)):
            text, known = self.variable(changed[1], node)
            return text.replace(changed[3], changed[5]), known
        apart = ("sub_expression", "invokation_expression", "member_access", "cast_expression")
        if len(named) == 1 and kind not in apart:
            return self.value(named[0], depth + 1)
        if kind == "cast_expression" and named:
            return self.value(named[-1], depth + 1)
        return text_of(node), False

    def _array(self, node: Node, depth: int) -> tuple[str, bool]:
        """@( "a", "b" ) or one value per line."""
        parts: list[tuple[str, bool]] = []
        waiting = list(node.named_children)
        while waiting:
            child = waiting.pop(0)
            if child.type == "statement_list":
                waiting = [*child.named_children, *waiting]
            elif child.type != "comment":
                parts.append(self.value(child, depth + 1))
        text = LIST.join(text for text, _ in parts)
        return (text if LIST in text or not text else text + LIST), all(known for _, known in parts)

    def _output(self, node: Node, depth: int) -> tuple[str, bool]:
        """Join-Path is a path; the output of anything else is not known."""
        name = text_of(node.child_by_field_name("command_name")).lower()
        elements = node.child_by_field_name("command_elements")
        if name != "join-path" or elements is None:
            return text_of(node), False
        parts = [
            self.value(child, depth + 1)
            for child in elements.named_children
            if child.type not in ("command_argument_sep", "command_parameter")
        ]
        return "\\".join(text.rstrip("\\") for text, _ in parts), all(known for _, known in parts)

    def variable(self, text: str, node: Node) -> tuple[str, bool]:
        name = re.sub(r"(?i)^[$@]\{?(?:env:|global:|script:|private:|using:)?", "", text).rstrip("}")
        if name.lower() in ("true", "false", "null"):
            return text, True
        found = self.recorder.lookup(name)
        if found is None:
            self.recorder.missed(name, self.line(node))
            return text, False
        return found.text, found.known

    def filled(self, text: str, node: Node | None) -> tuple[str, bool]:
        known = True

        def put(match: re.Match[str]) -> str:
            nonlocal known
            if match[1]:
                return _ESCAPES.get(match[1], match[1])
            if match[5]:
                known = False
                return match[0]
            name = match[2] or match[3] or match[4]
            found = self.recorder.lookup(name)
            if found is None:
                if node is not None:
                    self.recorder.missed(name, self.line(node))
                known = False
                return match[0]
            known = known and found.known
            return found.text.replace(LIST, " ")

        return _REFERENCE.sub(put, text), known
