"""Whether a condition holds, in whichever language: answered only where all that it asks is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

LONGEST = 600
_DEEPEST = 40
_TOKEN = re.compile(
    r"&&|\|\||[()\[\],]|==|!=|=~|!(?=[\s(\[])|(?:\"[^\"]*\"|'[^']*'|[^\s\"'()\[\],&|=!]|=(?!=)|!(?![=\s(\[]))+"
)
_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)\}|\$(?:env:)?(\w+)|[%!](\w+)[%!]", re.IGNORECASE)
_JOINS = {"&&": False, "-a": False, "-and": False, "||": True, "-o": True, "-or": True}
"""The answer of one side that decides for both."""
_NOTS = ("!", "not", "-not")
_SAME = {"=": True, "==": True, "-eq": True, "equ": True, "-like": True, "!=": False, "-ne": False, "neq": False}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    **dict.fromkeys(("-lt", "lss"), lambda left, right: left < right),
    **dict.fromkeys(("-le", "leq"), lambda left, right: left <= right),
    **dict.fromkeys(("-gt", "gtr"), lambda left, right: left > right),
    **dict.fromkeys(("-ge", "geq"), lambda left, right: left >= right),
}
Look = Callable[[str], "str | None"]
"""What a variable is, or None where nobody knows for sure."""


def holds(text: str, look: Look) -> bool | None:
    """None: it asks for something that is not known, or in a way that is not read here."""
    if len(text) > LONGEST or text.count("(") > _DEEPEST:
        return None
    tokens = [each for each in _TOKEN.findall(text) if each not in ("[", "]", "test") and each.lower() != "/i"]
    answer = _joined(tokens, look)
    return answer if not tokens else None


def _joined(tokens: list[str], look: Look) -> bool | None:
    answer, deciding = _one(tokens, look), set[bool]()
    while tokens and tokens[0].lower() in _JOINS:
        decides = _JOINS[tokens.pop(0).lower()]
        both = (answer, _one(tokens, look))
        answer = decides if decides in both else None if None in both else not decides
        deciding.add(decides)
    return answer if len(deciding) < 2 else None  # which of two signs binds is each language's own


def _one(tokens: list[str], look: Look) -> bool | None:
    first = tokens.pop(0) if tokens else ")"
    name, ahead = first.lower(), [each.lower() for each in tokens[:5]]
    if name in _NOTS:
        inner = _one(tokens, look)
        return None if inner is None else not inner
    if name == "(":
        inner = _joined(tokens, look)
        if tokens[:1] != [")"]:
            return None
        del tokens[:1]
        return inner
    if name in ("contains", "startswith") and ahead[::2] == ["(", ",", ")"]:
        left, right = _filled(tokens[1], look), _filled(tokens[3], look)
        del tokens[:5]
        if left is None or right is None:
            return None
        return left.startswith(right) if name == "startswith" else right in left
    if name in ("-z", "-n", "defined") and tokens:
        value = look(tokens.pop(0)) if name == "defined" else _filled(tokens.pop(0), look)
        return None if value is None else bool(value) is not (name == "-z")
    left = _filled(first, look)
    if len(ahead) > 1 and (ahead[0] in _SAME or ahead[0] in _ORDER):
        sign, raw = tokens.pop(0).lower(), tokens.pop(0)
        right = _filled(raw, look)
        return (
            None
            if left is None or right is None
            else _compared(left, sign, right, glob=sign == "-like" or raw[:1] not in "\"'")
        )
    if left is None or left.lower() in ("", "false"):
        return None if left is None else False
    return True if left.lower() == "true" or first[:1] in "\"'" else None


def _filled(word: str, look: Look) -> str | None:
    """A word with its variables filled in."""
    if re.fullmatch(r"'[^']*'", word):
        return word[1:-1]
    if word.lower() in ("$true", "$false"):
        return word[1:].lower()
    values = [look(match[1] or match[2] or match[3]) for match in _VARIABLE.finditer(word)]
    if None in values or re.search(r"[$%!`\\]", _VARIABLE.sub("", word)):
        return None
    found = iter(values)
    return _VARIABLE.sub(lambda _: next(found) or "", word).replace('"', "").replace("'", "")


def _compared(left: str, sign: str, right: str, *, glob: bool) -> bool | None:
    numbers = [float(each) for each in (left, right) if re.fullmatch(r"-?\d{1,9}(?:\.\d{1,9})?", each)]
    if sign in _ORDER:
        return _ORDER[sign](*numbers) if len(numbers) == 2 else None
    same = left == right or (glob and fnmatchcase(left, right))
    same = same or (sign == "-eq" and len(numbers) == 2 and numbers[0] == numbers[1])
    if not same and left.lower() == right.lower():
        return None  # some take them for the same
    return same is _SAME[sign]
