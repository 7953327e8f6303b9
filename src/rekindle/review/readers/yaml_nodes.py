"""YAML as nodes with their lines, walked within limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rekindle.review.trace import Trace

Node = Any  # a node of PyYAML: a scalar, a sequence or a mapping with its marks
_NODES = 20_000


def composed(trace: Trace, text: str) -> Node | None:
    """The root of the first document; None where there is none, or where it is no YAML, which is noted."""
    import yaml  # type: ignore[import-untyped,unused-ignore]

    try:
        return next(iter(yaml.compose_all(text, Loader=yaml.SafeLoader)), None)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        trace.unread(line, "", f"not valid YAML: {getattr(error, 'problem', None) or 'nested too deeply'}")
        return None


class YamlReader:
    def __init__(self, trace: Trace, text: str) -> None:
        self.trace = trace
        self.lines = text.split("\n")
        self.visited = 0

    def script(self, node: Node) -> tuple[str, int]:
        """A script as it stands in the file, and its first line: a folded block has lost its own lines."""
        text, style = self.text(node) or "", getattr(node, "style", None)
        begin, end = node.start_mark.line + 1, node.end_mark.line
        if style == "|":
            rows = self.lines[begin : max(end, begin)]
            margin = min((len(row) - len(row.lstrip()) for row in rows if row.strip()), default=0)
            text = "\n".join(row[margin:] for row in rows)
        return text, begin + 1 if style in ("|", ">") else begin

    def mapping(self, node: Node | None) -> dict[str, Node]:
        found: dict[str, Node] = {}
        if node is not None and node.id == "mapping" and self._afford(len(node.value)):
            for key, value in node.value:
                if key.id == "scalar" and key.value == "<<" and value.id == "mapping":
                    found = {**self.mapping(value), **found}
                elif key.id == "scalar":
                    found[key.value] = value
        return found

    def sequence(self, node: Node | None) -> Iterator[Node]:
        if node is not None and node.id == "sequence" and self._afford(len(node.value)):
            for item in node.value:
                if item.id == "sequence":
                    yield from self.sequence(item)
                else:
                    yield item

    def listed(self, node: Node | None) -> list[str]:
        return [item.value for item in self.sequence(node) if item.id == "scalar"]

    def text(self, node: Node | None) -> str | None:
        value: Any = node.value if node is not None and node.id == "scalar" else None
        return str(value) if value is not None else None

    def path(self, node: Node | None, *names: str) -> Node | None:
        for name in names:
            node = self.mapping(node).get(name)
        return node

    def _afford(self, count: int) -> bool:
        """Anchors can make a small file endless."""
        self.visited += count + 1
        if self.visited <= _NODES:
            return True
        self.trace.unread(1, "", "too many entries")
        return False
