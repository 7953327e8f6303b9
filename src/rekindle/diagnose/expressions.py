"""The conditions of the data: `card < 7.0 and not docker and said ~ "CUBLAS_STATUS"`.

A name alone holds where the log, the tables or the caller tell it. `~` searches a text, the other signs compare; what
is not known compares with nothing. A name of `terms` stands for its expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from rekindle.core.errors import BadInput
from rekindle.core.regex import re2
from rekindle.core.version import Version
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.logs.signatures import log_facts, terms
from rekindle.knowledge.tables import cached
from rekindle.model.card import Capability

_TOKEN = re.compile(r"""\s*(?:(\(|\)|==|!=|<=|>=|<|>|~)|"([^"]*)"|([\d.]+)|([A-Za-z_]\w*))""")
_COMPARED: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
# A log is foreign text: what is searched is cut to what a screen shows of it.
LONGEST = 12_000

Value = str | int | bool | Version | Capability | None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression is asked about: the groups that matched, what the tables made of them, and the facts."""

    fields: Mapping[str, str]
    values: Mapping[str, str]
    facts: Mapping[str, Value]

    def known(self, name: str) -> bool:
        return name in self.values or name in self.fields or bool(self.facts.get(name))

    def text(self, name: str) -> str:
        found = self.fields.get(name, self.values.get(name, self.facts.get(name)))
        return "" if found is None or found is False else str(found)


Test = Callable[[World], bool]


def holds(expression: str, world: World) -> bool:
    return _parsed()(expression)(world)


def names(expression: str) -> set[str]:
    """The values and facts that an expression asks for, those of its terms included."""
    found = {word for _, _, _, word in _TOKEN.findall(expression)} - {"", "and", "or", "not"}
    inside = {name for name in found if name in terms()}
    return (found - inside).union(*(names(terms()[name]) for name in inside))


def facts_of(facts: Facts, **more: Value) -> dict[str, Value]:
    """The facts by the names that expressions use: `card` is the newest one."""
    found: dict[str, Value] = {name: getattr(facts, name) for name in Facts.__struct_fields__ if name != "situation"}
    card = max(facts.gpus) if facts.gpus else None
    sure_not = {"torch_serves_card": facts.torch_lacks_card is False, "outside_prompt": facts.developer_prompt is False}
    return {row.name: row.name in facts.signs for row in log_facts()} | found | {"card": card} | sure_not | more


@cached
def _parsed() -> Callable[[str], Test]:
    known: dict[str, Test] = {}

    def parse(expression: str) -> Test:
        if expression not in known:
            known[expression] = _Parser(expression).whole()
        return known[expression]

    return parse


class _Parser:
    """`or` binds weakest, then `and`, then `not`."""

    def __init__(self, expression: str) -> None:
        self._expression, self._tokens, end = expression, [], 0
        while expression[end:].strip():
            match = _TOKEN.match(expression, end)
            if match is None:
                raise self._bad()
            self._tokens.append(match)
            end = match.end()
        self._tokens.reverse()

    def whole(self) -> Test:
        found = self._either()
        if self._tokens:
            raise self._bad()
        return found

    def _either(self) -> Test:
        parts = [self._all()]
        while self._drop("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda world: any(part(world) for part in parts)

    def _all(self) -> Test:
        parts = [self._one()]
        while self._drop("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda world: all(part(world) for part in parts)

    def _one(self) -> Test:
        if self._drop("not"):
            inner = self._one()
            return lambda world: not inner(world)
        if self._drop("("):
            inner = self._either()
            if not self._drop(")"):
                raise self._bad()
            return inner
        return self._compared()

    def _compared(self) -> Test:
        name = self._tokens.pop()[4] if self._tokens else None
        if not name:
            raise self._bad()
        sign = self._tokens[-1][1] if self._tokens else None
        if sign in (None, "(", ")"):
            inner = terms().get(name)
            return _Parser(inner).whole() if inner else lambda world: world.known(name)
        self._tokens.pop()
        if not self._tokens:
            raise self._bad()
        right = self._tokens.pop()
        if sign == "~":
            pattern = re2.compile(right[2])
            return lambda world: pattern.search(world.text(name)[:LONGEST]) is not None
        other, literal = right[4], right[2] if right[2] is not None else right[3]

        def test(world: World) -> bool:
            have, want = world.text(name), world.text(other) if other else literal
            if sign in ("==", "!="):
                return bool(have) and (have == want) is (sign == "==")
            left, limit = _number(have), _number(want)
            return left is not None and limit is not None and _COMPARED[sign](left, limit)

        return test

    def _drop(self, text: str) -> bool:
        if not self._tokens or self._tokens[-1][0].strip() != text:
            return False
        self._tokens.pop()
        return True

    def _bad(self) -> BadInput:
        return BadInput(f"`{self._expression}` is not a condition")


def _number(text: str) -> tuple[int, ...] | None:
    """`8.6`, `sm_86`, `12.4.1` and `32` as numbers that compare."""
    parts = (str(Capability.parse(text)) if re.match(r"(?:sm|compute)_\d{2,3}\Z", text) else text).split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None
