"""Which patches of the catalogue a text asks for: those whose symptom stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rekindle.core.regex import re2
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch.patches import Patch, patches

# A heading or a mere report of a failure says nothing by itself.
_HEADINGS = re.compile(r"^(?:CMake Error at |File |subprocess\.CalledProcessError)")
_SHORTEST = 18
_ERROR = re.compile(r"\berror\b")
_PLACE = re.compile(r"([\w-]+\.(?:h|hpp|cpp|cc|cu|cuh))(?::\d+)*: error:")
# Names that only source has: of capitals in the middle, or with underscores at an end.
_SOURCE_NAME = re.compile(r"\b(?:[A-Z][a-z]+(?:[A-Z]+[a-z]*){2,}|__\w+|\w+_\b)")


def patches_shown(texts: Iterable[str]) -> tuple[Patch, ...]:
    """The patches of which every telling part of the symptom is in the log, or an error in that file on that name."""
    lines = [_flat(text) for text in texts]
    whole = " ".join(lines)
    found = [patch for patch, pattern in _symptoms() if pattern.search(whole)]
    errors = [line for line in lines if _ERROR.search(line)]
    alike = [patch for patch, file, name in _places() if any(file in line and name in line for line in errors)]
    return tuple({patch.id: patch for patch in (*found, *alike)}.values())


@cached
def _places() -> tuple[tuple[Patch, str, str], ...]:
    """Of symptoms of a compiler: the file, and the one name of the source. Compilers word the rest differently."""
    found = []
    for patch in patches():
        place = _PLACE.search(_flat(patch.symptom))
        names = set(_SOURCE_NAME.findall(_flat(patch.symptom))) - {"operator="} if place else set()
        if place and len(names) == 1:
            found.append((patch, place[1], names.pop()))
    return tuple(found)


@cached
def _symptoms() -> tuple[tuple[Patch, re2._Regexp], ...]:
    return tuple((patch, re2.compile(_pattern(patch.symptom))) for patch in patches() if _told(patch.symptom))


def _told(symptom: str) -> list[str]:
    lines = [line.strip() for line in symptom.strip().splitlines()]
    return [line for line in lines if line and not _HEADINGS.match(line)]


def _pattern(symptom: str) -> str:
    """The lines that tell, in order, as one pattern over a log without line ends."""
    parts = [_escaped(_flat(line)) for line in _told(symptom)]
    telling = [part for part in parts if len(part) >= _SHORTEST] or parts
    return r"\s.{0,400}?".join(telling) if len(telling) > 1 else telling[0]


def _escaped(line: str) -> str:
    escaped = re.sub(r"\d+", r"\\d+", re2.escape(line))
    return escaped.replace(r"\.\.\.", ".{0,200}?").replace(r"\ ", " ").replace(r"\\\\", r"[\\\\/]+")


def _flat(text: str) -> str:
    """One space for any run of them, one kind of quote, one kind of slash."""
    plain = text.replace("\N{LEFT SINGLE QUOTATION MARK}", "'").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return re.sub(r"\s+", " ", plain.replace("\\", "/").replace("//", "/")).strip()
