"""Names of cards as text: split, cleaned, compared. Which card a name means is decided in `gpus`.

People write `1080ti`, `rtx-3060-12gb`, `8x A100`, `3.5;5.0;6.1` or `ASUS ROG Strix GTX 1080 Ti`; programs write
`NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] (rev a1)` and `A100-SXM4-40GB MIG 1g.5gb`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import dropwhile

import msgspec

from rekindle.knowledge.tables import NamedRow, Row, cached, observed, rows
from rekindle.model.card import Capability

# Patterns stay text: `re` compiles one when it is first needed, and an exact name needs none.
CAPABILITY = (
    r"(?i)(?:(?:sm|compute|cc|compute capability)[ _]?([0-9]{2,3})[af]?"
    r"|(?:sm_|cc |compute capability )?([0-9]{1,2}\.[0-9])[af]?(?:\+ptx)?)\Z"
)
WIDE = {0x3000: " ", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}}
"""The wide letters of an East Asian keyboard, and what they are."""
_BEFORE = r"\b((?:gtx|rtx|gts|gt|mx)(?=\d)|(?:geforce|quadro|tesla|nvidia)(?=[a-z]{0,3}\d))"
_AFTER = r"(?<=\d)(ti|super|laptop|mobile|(?<=\d{4})d)(?=\b|super)"
_SHORT_SUPER = r"(?<!\d)(\d{4}(?: ?ti)?)s\b"
_BREAK = r"[^a-z0-9.+]+"
_MEMORY = r"(?:\d{1,3}(?:gb|g|gib)|gb)\Z"
_SLICE = r"(?i)\s*\bmig\s+\d+g\.\d+gb\b.*|\s*\b\d+g\.\d+gb\b.*|-\d+[qcabv]\b.*"
_COUNT = (
    r"(?i)(?:(\d{1,3})\s*[x×*]\s+|(\d{1,3})[x×*](?=[a-z]|\d{3,4}(?!\d)))(.+)\Z"
    r"|(.+?)(?:\s+[x×*]\s*|(?<=\d)[x×*](?=1?\d\Z))(\d{1,3})\Z"
)
_LSPCI = r"\[((?:geforce|quadro|tesla|titan|nvidia|rtx|gtx|grid|nvs)[^\]]+)\]"
_LIST = r"[,;]|\s\+\s|\s&\s|\band\b"
_REVISION = r"\((?:rev|0x)[^)]*\)"
_OURS = r"\b(nvidia|geforce|gtx|rtx|quadro|tesla)\b"
NOISE = frozenset(
    {"nvidia", "graphics", "card", "gpu", "gpus", "the", "corporation", "inc", "r", "tm", "with", "design"}
)
FAMILY = frozenset({"geforce", "tesla", "quadro", "titan", "grid"})
_SUFFIXES = ("ti", "super", "laptop", "mobile", "notebook", "max")
SERIES = frozenset({"geforce", "tesla", "quadro", "grid", "gtx", "rtx", "gt", "gts"})
SHOWN_BY = "`lspci -nn` (Windows: the Device Manager under Hardware Ids)"
"""Who shows a card's PCI id."""


class _Alias(Row, frozen=True, kw_only=True):
    said: str
    names: tuple[str, ...]


class _System(NamedRow, frozen=True, kw_only=True):
    """A machine that is sold or rented by a name of its own, and the cards in it."""

    pattern: str
    names: tuple[str, ...]
    guest: bool = False
    """It has a part of the card, with the guest driver of the host's vGPU software."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """How many there are, by what the group of the pattern is, all others one; a row without: it is the number."""


class _Words(NamedRow, frozen=True, kw_only=True):
    words: tuple[str, ...]


class Vendor(NamedRow, frozen=True, kw_only=True):
    """Somebody else's cards, and where their owners go."""

    pattern: str
    sentence: str
    hint: str
    own: bool = False
    """NVIDIA's own cards that are out of reach."""


class Slowed(NamedRow, frozen=True, kw_only=True):
    """Cards that compute less than their chip."""

    names: tuple[str, ...]
    sentence: str


_slowed = rows("names.toml", "slowed", Slowed)
_alias = rows("names.toml", "alias", _Alias)
_system = rows("names.toml", "system", _System)
_words = rows("names.toml", "words", _Words)
vendors = rows("names.toml", "vendor", Vendor)


class NamedPart(msgspec.Struct, frozen=True):
    """One card of a list, and how many of it."""

    text: str
    count: int = 1


@cached
def words(kind: str) -> frozenset[str]:
    return frozenset(word for row in _words() if row.id == kind for word in row.words)


def nobody(text: str) -> bool:
    """Is this what a system shows for a card that it cannot name?"""
    return " ".join(text.lower().split()) in words("nobody")


def alias(text: str) -> tuple[str, ...]:
    """The names that a nickname may stand for, or the cards of a machine that is called so."""
    said = _said(text)
    known = next((row.names for row in _alias() if row.said == said), ())
    machine = None if known else _machine(text)
    return machine[0].names if machine else known


@partial(cached, most=1024)
def _machine(text: str) -> tuple[_System, re.Match[str]] | None:
    """The machine that is sold or rented by this name, and what its pattern found in it."""
    said = _said(text)
    texts = dict.fromkeys((said, " ".join(dropwhile(words("clouds").__contains__, said.split()))))
    return next(
        ((row, found) for row in _system() for each in texts if (found := re.fullmatch(row.pattern, each))), None
    )


def _said(text: str) -> str:
    """As it is compared; SageMaker writes `ml.` before the names of its machines."""
    return " ".join(re.split(_BREAK, text.lower())).strip().removeprefix("nvidia ").removeprefix("ml.")


def cards_in(text: str) -> int:
    """How many cards a machine that is called so has."""
    machine = _machine(text)
    if machine is None:
        return 1
    row, found = machine
    size = (found[1] or "").strip() if found.re.groups else ""
    itself = None if row.counts else re.fullmatch(r"(\d{1,9})g?", size)
    return int(itself[1]) if itself else row.counts.get(size, 1)


def slowed(name: str) -> str | None:
    """What the owner of a card that computes less than its chip has to know, in a sentence; None of every other."""
    plain = name.removeprefix("NVIDIA ")
    return next((f"{plain} {row.sentence}" for row in _slowed() if plain in row.names), None)


def aliases() -> tuple[str, ...]:
    """Every nickname."""
    return tuple(row.said for row in _alias())


def is_virtual(text: str) -> bool:
    """`GRID T4-8Q`, `A100-10C`: a part of a card that a hypervisor hands to a guest."""
    if re.search(r"(?i)-\d+[qcabv]\b", text):
        return True
    machine = _machine(text)
    return machine is not None and machine[0].guest


def is_slice(text: str) -> bool:
    """`A100-SXM4-40GB MIG 1g.5gb`: one of the parts that MIG divides a card into."""
    return bool(re.search(r"(?i)\b\d+g\.\d+gb\b", text))


def vendor(text: str) -> Vendor | None:
    lowered = " ".join(re.split(_BREAK, text.lower()))
    own = re.search(_OURS, lowered) is not None
    rows = [row for row in vendors() if row.own or not own]
    return next((row for row in rows if re.search(row.pattern, lowered)), None)


def pieces(text: str) -> list[str]:
    """The cards of a list: `V100,P100`, `3.5;5.0;6.1`, `K80 + RTX 3060`, `n1-standard-8 with T4`."""
    host, _, attached = text.partition(" with ")
    if attached and vendor(host):
        return [host, *pieces(attached)]
    spelled = [piece.strip() for piece in re.split(_LIST, text) if piece.strip()]
    spaced = text.split()
    if len(spelled) == 1 and len(spaced) > 1 and all(re.match(CAPABILITY, word) for word in spaced):
        return spaced
    return spelled


def counted(text: str) -> NamedPart:
    """`8x A100`, `A100 x8`, `2 * K80`."""
    match = re.match(_COUNT, text)
    if not match:
        return NamedPart(text)
    number, name = match[1] or match[2] or match[5], match[3] or match[4]
    return NamedPart(name.strip(), max(1, int(number)))


def shared_beginning(every: list[str]) -> str:
    """`Tesla P100` of `Tesla P100-PCIE-12GB` and `Tesla P100-SXM2-16GB`, whole words only."""
    if len({tuple(tokens(name)) for name in every}) == 1:
        return every[0]
    first, last = min(every), max(every)
    same = next((i for i, letter in enumerate(first) if i >= len(last) or letter != last[i]), len(first))
    common = first[:same]
    if same < len(first) and first[same].isalnum():
        common = re.sub(r"[A-Za-z0-9]+\Z", "", common)
    return common.rstrip(" -(")


def tokens(name: str) -> list[str]:
    """A name as comparable words: `NVIDIA GeForce RTX 5070 Laptop GPU` and `rtx5070 laptop` meet in the middle."""
    return list(_split(name))


@lru_cache(maxsize=8192)
def _split(name: str) -> tuple[str, ...]:
    """Kept, because a search for one name takes all the others apart."""
    lowered = name.lower().replace("(tm)", " ").replace("(r)", " ").replace("®", " ").replace("™", " ")
    split = re.sub(_AFTER, r" \1 ", re.sub(_BEFORE, r"\1 ", lowered))
    return tuple(word for word in re.split(_BREAK, split) if word and word not in NOISE)


def without_family(words: list[str]) -> list[str]:
    """`k40c` and `rtx 5070` are said without the family's name, and some are listed without it."""
    return [word for word in words if word not in FAMILY]


def is_series(text: str) -> bool:
    """`RTX`, `GeForce GTX`: a name without its number, as a shell passes it on when the quotes are forgotten."""
    words = tokens(text)
    return bool(words) and all(word in SERIES for word in words)


def unnamed(text: str) -> bool:
    lowered = text.lower()
    return ("device" in lowered or "controller" in lowered or "adapter" in lowered) and nobody(text)


def in_one_piece(name: str) -> set[str]:
    """`rtxa6000`, `orinnano`, with and without the family's name."""
    spelled = [word for word in tokens(name) if word != "generation"]
    short = without_family(spelled)
    pieces = (spelled, spelled[1:], short, [word for word in short if word != "jetson"])
    return {letters for words in pieces if (letters := "".join(words)) and not letters.isdigit()}


def nearly_suffix(word: str) -> bool:
    """`tii`, `tx` and `supr` are misspelled: they are no suffix, and nothing that a shop writes."""
    import difflib

    if word in _SUFFIXES or word in words("boards") or not word.isalpha():
        return False
    if len(word) == 2:
        return word[0] == "t"
    return any(difflib.SequenceMatcher(None, word, suffix).ratio() >= 0.8 for suffix in _SUFFIXES)


def of_generation(architecture: str, beside: Iterable[str]) -> bool:
    """May a card of this architecture be meant by these words? An `RTX 6000 Blackwell` is no card of Turing."""
    said = generations() & {*beside}
    return not said or bool(said & {*architecture.lower().split()})


@cached
def generations() -> frozenset[str]:
    return frozenset(word for chip in chips().values() for word in chip.architecture.lower().split())


def same_number(typed: str, name: str) -> bool:
    """Do both have a number in common, or numbers of one length with one digit between them or the same digits?"""
    mine, theirs = (re.findall(r"\d+", text.replace("o", "0")) for text in (typed.lower(), name.lower()))
    short, known = (set(re.findall(r"\b[a-z]+\d(?=\d[a-z]?\b)", text.lower())) for text in (typed, name))
    if short & known:
        return True  # K41 and K40c
    if not mine or not theirs:
        return not mine
    for one in mine:
        for other in theirs:
            swapped = sorted(one) == sorted(other)
            near = len(one) == len(other) > 2 and (swapped or sum(a != b for a, b in zip(one, other, strict=True)) == 1)
            if one == other or near:
                return True
    return False


def without_series(words: list[str]) -> list[str]:
    return [word for word in words if word not in SERIES]


def plainer(text: str) -> Iterator[list[str]]:
    """Ever plainer readings of what was typed, each without more of what shops and systems put around a name."""
    inside = re.search(_LSPCI, text, re.IGNORECASE)
    bare = inside[1] if inside else text
    bare = re.sub(_REVISION, " ", bare, flags=re.IGNORECASE)
    sliced = re.sub(_SLICE, "", bare)
    seen: list[list[str]] = []
    for reading in (bare, sliced):
        every = tokens(re.sub(_SHORT_SUPER, r"\1 super", reading.lower()))
        boards = [word for word in every if word not in words("boards")]
        small = [word for word in boards if (not re.match(_MEMORY, word) and not word.isdigit()) or len(word) > 2]
        small = [word for word in small if not re.match(_MEMORY, word)]
        unmade = [word for word in every if not re.match(_MEMORY, word)]
        laptop = ["laptop" if word in ("mobile", "notebook") else word for word in small]
        desk = [word for word in small if word not in words("mobile")]
        for one in (every, unmade, boards, small, laptop, desk):
            if one and one not in seen:
                seen.append(one)
                yield one


def patterns() -> dict[str, str]:
    """The expressions above by name, for a page that splits a name exactly as this module does."""
    return {
        "capability": CAPABILITY,
        "before": _BEFORE,
        "after": _AFTER,
        "super": _SHORT_SUPER,
        "break": _BREAK,
        "memory": _MEMORY,
        "slice": _SLICE,
        "count": _COUNT,
        "lspci": _LSPCI,
        "list": _LIST,
        "revision": _REVISION,
        "ours": _OURS,
    }


class Chip(Row, frozen=True, kw_only=True):
    name: str
    architecture: str
    capability: Capability | None
    last_driver_branch: str | None
    uncertain: bool = False


@cached
def chips() -> dict[str, Chip]:
    return {chip.name: chip for chip in observed("chips", dict[str, tuple[Chip, ...]])["chips"]}
