"""Cards and their chips: name, PCI id, chip and capability, found from whatever a person or a driver calls them."""

import re
from collections.abc import Hashable, Iterable
from enum import Enum
from functools import partial
from typing import TypeVar

import msgspec

from rekindle.core.errors import RekindleError, UnknownName, UsageError
from rekindle.knowledge.gpu import names
from rekindle.knowledge.tables import Row, cached, rows
from rekindle.model.card import Capability

# Patterns stay text: `re` compiles one when it is first needed, and an exact name needs none.
_NVIDIA = "10de"
_LONGEST = 200
_ALONE = 4
PCI_PATH = r"(?i)ven_([0-9a-f]{4})&dev_([0-9a-f]{4})(?:&subsys_([0-9a-f]{4})([0-9a-f]{4}))?"
PCI_PAIR = r"(?i)(?:0x)?(10de)[:\s.-](?:0x)?([0-9a-f]{4})(?:[:\s]([0-9a-f]{4}):([0-9a-f]{4}))?\Z"
PCI_BARE = r"(?i)0x([0-9a-f]{4})(10de)?\Z"

_Key = TypeVar("_Key", bound=Hashable)
_SLICE = "a slice of a card (MIG): a process uses one, by its `MIG-…` in CUDA_VISIBLE_DEVICES"
_GUEST = (
    "a part of a card in a virtual machine takes the guest driver of the host's vGPU software, not the usual one: "
    "`nvidia-smi` in it shows which, and `--driver` plans for it"
)


class Gpu(Row, frozen=True, kw_only=True):
    """One card: a name and the chip behind it. A name sold with several chips has a row for each."""

    name: str
    capability: Capability
    architecture: str
    chip: str
    pci_ids: tuple[str, ...]
    official: bool
    integrated: bool = False
    last_driver_branch: str | None = None


class GpuList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle gpu --list`."""

    schema: str = "rekindle.gpu-list/1"
    gpus: tuple[Gpu, ...]


class MatchedBy(str, Enum):
    PCI_ID = "pci-id"
    CAPABILITY = "capability"
    NAME = "name"


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for a query. More than one capability among `gpus` means: the name alone cannot tell.

    `notes` say what was assumed; `count` is how many of the card were named (`8x A100`).
    """

    query: str
    by: MatchedBy
    gpus: tuple[Gpu, ...]
    count: int = 1
    notes: tuple[str, ...] = ()
    undecided: bool = False
    """It may be several cards that differ."""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    @property
    def guest(self) -> bool:
        """A part of a card in a virtual machine. What a card itself is called, no machine is."""
        plain = self.query.lower()
        return not any(plain in gpu.name.lower() for gpu in self.gpus) and names.is_virtual(self.query)

    @property
    def slice(self) -> bool:
        """One of the parts that MIG divides a card into."""
        return names.is_slice(self.query)

    @property
    def ambiguous(self) -> bool:
        return len(self.capabilities) > 1

    @property
    def name(self) -> str:
        """What to call it: `Tesla P100` for `Tesla P100-PCIE-12GB` and `Tesla P100-SXM2-16GB`."""
        if self.by is MatchedBy.CAPABILITY:
            return f"compute capability {self.capabilities[0]}"
        every = [self.query] if self.undecided else list(dict.fromkeys(gpu.name for gpu in self.gpus))
        shared = names.shared_beginning(every)
        return shared if any(letter.isdigit() for letter in shared) else every[0]


gpus = rows("gpus.json", "gpus", Gpu)


def find(query: str, *, undecided: bool = False) -> Match:
    """The one card meant by a name, a PCI id in any common spelling, or a capability; an error with near names if none.

    This is the only reader of a card's name, whoever typed it and whichever command it was typed to. `undecided`: a
    name of several cards is one card with all their chips, for who finds out whether that matters.
    """
    text = _checked(query)
    found = _found(text)
    if found is None:
        raise UnknownName(f"no GPU called `{text[:80]}` is in Rekindle's data", hint=partial(_instead, text))
    if found.undecided and not undecided:
        raise UsageError(found.notes[0], hint="name the one you mean")
    return found


def recognised(query: str) -> bool:
    """Does `find` know this name? It does not look for near ones, which takes longer than everything else."""
    return _found(_checked(query)) is not None


def _found(text: str) -> Match | None:
    exact = _exact().get(text, ())
    if exact and not names.unnamed(text):
        return _named(text, exact)
    if names.is_series(text):
        return None
    device = pci_device(text)
    if device:
        found = by_pci(*device)
        if not found:
            hint = "it may be newer than the data: name it by its compute capability, e.g. `sm_120`"
            raise UnknownName(f"no GPU with PCI id {_NVIDIA}:{device[0]} is in Rekindle's data", hint=hint)
        return Match(query=text, by=MatchedBy.PCI_ID, gpus=found)
    number = re.match(names.CAPABILITY, text)
    if number:
        return Match(query=text, by=MatchedBy.CAPABILITY, gpus=of_capability(Capability.parse(number[1] or number[2])))
    chip = names.chips().get(text.upper()) or names.chips().get(re.sub(r"(?:GL)?M?$", "", text.upper()))
    if chip is not None and chip.capability is not None:
        note = f"`{text}` is a chip: what runs on one card of it runs on every other"
        return Match(query=text, by=MatchedBy.CAPABILITY, gpus=of_capability(chip.capability), notes=(note,))
    found = () if names.unnamed(text) else by_name(text)
    return _named(text, found) if found and not _loose(text, found) else _as_people_say(text)


def find_all(queries: Iterable[str], *, undecided: bool = False) -> tuple[Match, ...]:
    """Every card of a command line. One word may name several: `V100,P100`, `8x A100`, `3.5;5.0;6.1`.

    Somebody else's GPU beside one of NVIDIA's is left out, with a note.
    """
    found: list[Match] = []
    foreign: list[UnknownName] = []
    for query in queries:
        text = _checked(query)
        if text in _exact():
            found.append(find(text))
            continue
        for piece in names.pieces(text):
            # `Tegra X2` is a name, `A100 x2` a number of cards.
            part = names.NamedPart(piece) if by_name(piece) else names.counted(piece)
            try:
                match = find(part.text, undecided=undecided)
                found.append(msgspec.structs.replace(match, count=part.count * match.count))
            except UnknownName as error:
                if names.vendor(part.text) is None:
                    raise
                foreign.append(error)
    if foreign and not found:
        raise foreign[0]
    if foreign:
        notes = tuple(f"{error.message}: the answer is without it" for error in foreign)
        found[0] = msgspec.structs.replace(found[0], notes=(*found[0].notes, *notes))
    return tuple(found)


def certain(queries: Iterable[str]) -> tuple[Match, ...]:
    """As `find_all`, for a command that cannot answer for several chips: a name that leaves it open is an error."""
    found = find_all(queries)
    for match in filter(lambda each: each.ambiguous, found):
        raise UsageError(several_chips(match), hint=which_chip(match))
    return found


def capabilities_of(queries: Iterable[str]) -> tuple[Capability, ...]:
    """The capabilities of the cards of a command line, each once."""
    return tuple(sorted({match.capabilities[0] for match in certain(queries)}))


@cached
def spelled(name: str, capabilities: tuple[Capability, ...]) -> str:
    """A card as another command is told of it: by its name if that finds the same card again, else by `sm_XX`.

    The name may be a stranger's: one that a snapshot or a log made up is never repeated.
    """
    try:
        found = find_all([name])
    except RekindleError:
        found = ()
    sure = len(found) == 1 and found[0].capabilities == capabilities
    spoken = sure and (found[0].by is not MatchedBy.NAME or not only_inside(name))
    return name if spoken else min(capabilities).sm


def several_chips(match: Match) -> str:
    spoken = ", ".join(map(str, match.capabilities))
    return f"{match.name} was sold with chips of compute capability {spoken}, and the answer differs"


def which_chip(match: Match) -> str:
    """How to tell one's own chip, with the ids of exactly this card."""
    chips = (f"`10de:{gpu.pci_ids[0].partition(':')[0]}` ({gpu.capability})" for gpu in match.gpus if gpu.pci_ids)
    return f"name yours by its PCI id: {', '.join(chips)}; {names.SHOWN_BY} shows it"


def by_pci(device: str, subsystem: str | None = None) -> tuple[Gpu, ...]:
    """The rows with this device id; a row for exactly this subsystem (`1b0a:01c6`) wins over the plain one."""
    exact = f"{device}:{subsystem}" if subsystem else None
    ids, devices = _pci_ids()
    if exact and exact in ids:
        return ids[exact]
    return ids.get(device) or devices.get(device, ())


def by_name(name: str) -> tuple[Gpu, ...]:
    """Rows of exactly this name, however it is capitalised, spaced, or prefixed."""
    return _by_words(names.tokens(name))


def _named(text: str, found: tuple[Gpu, ...], *notes: str) -> Match:
    """NVIDIA's own lists decide which chips a name has; one that only other lists have is mentioned."""
    official = tuple(gpu for gpu in found if gpu.official)
    odd = [gpu for gpu in found if official and not gpu.official]
    known = {gpu.capability for gpu in official}
    strange = [gpu for gpu in odd if gpu.capability not in known and gpu.pci_ids]
    said = list(notes)
    if strange:
        ids = ", ".join(f"10de:{gpu.pci_ids[0]} ({gpu.capability})" for gpu in strange)
        said.append(f"a rare {strange[0].name} has another chip: name it by its id if {names.SHOWN_BY} shows {ids}")
    return Match(query=text, by=MatchedBy.NAME, gpus=official or found, notes=tuple(said))


def _by_words(wanted: list[str]) -> tuple[Gpu, ...]:
    short = names.without_family(wanted)
    if not short:
        return ()
    return _called(wanted) or _called(short, short=True) or _by_beginning(short)


@cached
def _by_digits() -> dict[str, tuple[Gpu, ...]]:
    """The cards by the digits of their name: only names with the same ones are taken apart for a comparison."""
    return _grouped((_digits(gpu.name), gpu) for gpu in gpus())


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _called(words: list[str], *, short: bool = False) -> tuple[Gpu, ...]:
    """The cards of this name, or of this name without its family."""
    alike = _by_digits().get(_digits("".join(words)), ())
    return tuple(gpu for gpu in alike if (_short(gpu.name) if short else names.tokens(gpu.name)) == words)


@cached
def _boards() -> dict[tuple[str, ...], tuple[Gpu, ...]]:
    """The cards by their short name, and by what is left of it without a letter at its end."""
    named = [(tuple(own), gpu) for gpu in gpus() if (own := [word for word in _short(gpu.name) if word != "jetson"])]
    plain = (((*own[:-1], own[-1][:-1]), gpu) for own, gpu in named if "a" <= own[-1][-1] <= "z")
    return _grouped((*named, *plain))


@cached
def _plain() -> dict[tuple[str, ...], tuple[Gpu, ...]]:
    """Without its series."""
    return _grouped((tuple(names.without_series(names.tokens(gpu.name))), gpu) for gpu in gpus())


@cached
def _exact() -> dict[str, tuple[Gpu, ...]]:
    """Apart from the words, because a name that is typed as it stands needs none of them."""
    return _grouped((gpu.name, gpu) for gpu in gpus())


@cached
def _pci_ids() -> tuple[dict[str, tuple[Gpu, ...]], dict[str, tuple[Gpu, ...]]]:
    """The cards by PCI id with its board, if it has one, and by device id alone."""
    devices = ((device, gpu) for gpu in gpus() for device in {pci.split(":")[0] for pci in gpu.pci_ids})
    return _grouped((pci, gpu) for gpu in gpus() for pci in gpu.pci_ids), _grouped(devices)


def _grouped(pairs: Iterable[tuple[_Key, Gpu]]) -> dict[_Key, tuple[Gpu, ...]]:
    found: dict[_Key, list[Gpu]] = {}
    for key, gpu in pairs:
        found.setdefault(key, []).append(gpu)
    return {key: tuple(every) for key, every in found.items()}


def _loose(text: str, found: tuple[Gpu, ...]) -> bool:
    """Said without its family's name, may it be another card? `6000` and `RTX 6000` are cards of two generations."""
    wanted = names.tokens(text)
    if any(word in names.FAMILY for word in wanted) or any(names.tokens(gpu.name) == wanted for gpu in found):
        return False
    return bool({gpu.capability for gpu in _alike(wanted)} - {gpu.capability for gpu in found if gpu.official})


def _alike(wanted: list[str]) -> tuple[Gpu, ...]:
    """Official cards whose name is this one without its series, or this one and its generation."""
    others = tuple(gpu for gpu in _called([*wanted, "ada", "generation"]) if gpu.official)
    return (*others, *(_without_series(wanted) if all(word.isdigit() for word in wanted) else ()))


@partial(cached, most=4096)
def _short(name: str) -> list[str]:
    return names.without_family(names.tokens(name))


def _by_beginning(short: list[str]) -> tuple[Gpu, ...]:
    """`P100` and `A100` are said of every board with that chip: they are one card where all have one capability."""
    digits = _digits("".join(short))
    found = _beginnings(digits).get(tuple(short), ()) if digits else ()
    return found if len({gpu.capability for gpu in found}) == 1 else ()


@partial(cached, most=4096)
def _beginnings(digits: str) -> dict[tuple[str, ...], tuple[Gpu, ...]]:
    """Official cards whose digits begin with these, by all beginnings of their short names."""
    begun = (gpu for key, alike in _by_digits().items() if key.startswith(digits) for gpu in alike if gpu.official)
    named = ((_short(gpu.name), gpu) for gpu in begun)
    return _grouped((tuple(own[:count]), gpu) for own, gpu in named for count in range(1, len(own) + 1))


def _as_people_say(text: str) -> Match | None:
    """A nickname, somebody else's card, a name with a shop's words around it, or one without its series."""
    nicknamed = names.alias(text)
    if nicknamed:
        return _one_of(text, tuple(gpu for gpu in gpus() if gpu.name in nicknamed))
    if not names.unnamed(text) and (several := by_name(text)):
        return _one_of(text, (*several, *_alike(names.tokens(text))))
    other = names.vendor(text)
    if other:
        raise UnknownName(f"`{text[:80]}` {other.sentence}", hint=other.hint)
    if not names.unnamed(text):
        if found := _plainly(text) or _glued(text):
            return _one_of(text, found)
        return _inside(text)
    return None


def _glued(text: str) -> tuple[Gpu, ...]:
    """`RTXA6000`, `TitanXp`: in one piece."""
    return () if " " in text.strip() else _by_letters().get("".join(names.tokens(text)), ())


@cached
def _by_letters() -> dict[str, tuple[Gpu, ...]]:
    return _grouped((letters, gpu) for gpu in gpus() for letters in names.in_one_piece(gpu.name))


def only_inside(text: str) -> bool:
    """Is this no spelling of a name, but words among which one stands?"""
    return not (_exact().get(text) or by_name(text) or names.alias(text) or _plainly(text) or _glued(text))


def _plainly(text: str) -> tuple[Gpu, ...]:
    for words in names.plainer(text):
        nicknamed = names.alias(" ".join(words)) or names.alias(" ".join(names.without_family(words)))
        called = tuple(gpu for gpu in gpus() if gpu.name in nicknamed) if nicknamed else ()
        found = called or _by_words(words) or _without_series(words) or _of_board(words)
        if found:
            return found
    return ()


def _inside(text: str) -> Match | None:
    """A name somewhere among other words: `EVGA GTX 980 Ti SC+ ACX 2.0`, `gpu_1x_gh200`. The longest one wins."""
    words = names.tokens(text)
    for length in range(len(words), 0, -1):
        parts = {tuple(words[at : at + length]): at for at in range(len(words) - length + 1)}
        counts = {part: re.fullmatch(r"(\d{1,2})x", words[at - 1]) for part, at in parts.items() if at}
        named = {part: found for part in parts if (found := among_words(part, words, counted=bool(counts.get(part))))}
        ends = [end for part in named if (end := parts[part] + length) < len(words)]
        if any(names.nearly_suffix(words[end]) for end in ends):
            return None  # `GTX 1080 Tx` is no GTX 1080 with a shop's word
        if named:
            every = [gpu for found in named.values() for gpu in found]
            match = _one_of(text, tuple(every if len(named) == 1 else sorted(every, key=gpus().index)))
            count = next((int(number[1]) for part in named if (number := counts.get(part))), match.count)
            return msgspec.structs.replace(match, count=count)
    return None


def among_words(part: tuple[str, ...], beside: Iterable[str] = (), *, counted: bool = False) -> tuple[Gpu, ...]:
    """The cards that these words name wherever they stand, `beside` others. One word must look like nothing else, as
    `gh200` does, or be counted, as in `1x a10`."""
    if not any(letter.isdigit() for word in part for letter in word):
        return ()
    if len(part) == 1 and (part[0].isdigit() or (len(part[0]) < _ALONE and not counted)):
        return ()
    found = _called(list(part), short=True) or _by_beginning(list(part))
    return tuple(gpu for gpu in found if gpu.official and names.of_generation(gpu.architecture, beside))


def _without_series(words: list[str]) -> tuple[Gpu, ...]:
    """`1080 ti` for `GeForce GTX 1080 Ti`: the series is left out, or is the wrong one."""
    bare = names.without_series(words)
    if not bare or not ("titan" in bare or any(letter.isdigit() for word in bare for letter in word)):
        return ()
    return _plain().get(tuple(bare), ())


def _of_board(words: list[str]) -> tuple[Gpu, ...]:
    """`K40` for `Tesla K40c` and `K40m`; `xavier nx` for `Jetson Xavier NX`."""
    return _boards().get(tuple(names.without_family(words)), ())


def _one_of(text: str, found: tuple[Gpu, ...]) -> Match:
    """One candidate is taken, with a note; several that differ are left undecided."""
    official = [gpu for gpu in found if gpu.official] or list(found)
    if len({gpu.name for gpu in found}) > 1 and len({gpu.capability for gpu in official}) > 1:
        each = " or ".join(dict.fromkeys(f"`{gpu.name}` ({gpu.capability})" for gpu in official))
        notes = (f"`{text[:80]}` may be {each}",)
        return Match(query=text, by=MatchedBy.NAME, gpus=tuple(official), notes=notes, undecided=True)
    match = _named(text, found)
    guest = (_GUEST,) if match.guest else (_SLICE,) if match.slice else ()
    count = names.cards_in(text)
    read = f"{count} x {match.name}" if count > 1 else match.name
    return msgspec.structs.replace(match, count=count, notes=(f"`{text}` is read as {read}", *guest, *match.notes))


def _instead(text: str) -> str:
    if names.unnamed(text):
        return f"so a system calls a card without a driver: name it by its PCI id, which {names.SHOWN_BY} shows"
    if names.is_series(text):
        return f'`{text[:80]}` is a series of cards: name yours in full and in quotes, as in `--gpu "GTX 1080 Ti"`'
    family = [chip for chip in names.chips().values() if chip.architecture.casefold() == text.casefold()]
    if known := sorted({chip.capability.sm for chip in family if chip.capability}):
        return f"it is a family of chips: name your card, or {_listed(tuple(known))}"
    if near := nearest(text):
        return f"did you mean {_listed(near)}?"
    return "no known name is like it; `rekindle gpu --list` shows them all, and `10de:1b06` or `sm_61` works too"


def nearest(name: str, count: int = 4) -> tuple[str, ...]:
    """Names that look like this one, best first. Their numbers must do so too: 4090 is nothing like T400."""
    import difflib

    spelled = _grouped((" ".join(names.tokens(gpu.name)), gpu) for gpu in gpus())
    bare = _grouped((" ".join(short), gpu) for gpu in gpus() if (short := _short(gpu.name)))
    wanted = " ".join(names.tokens(name))[:80]
    if not wanted:
        return ()
    found = difflib.get_close_matches(wanted, [*spelled, *bare], n=count * 4, cutoff=0.72)
    found.sort(key=lambda key: (-difflib.SequenceMatcher(None, key, wanted).ratio(), key))
    if not found:
        words = set(names.tokens(name))
        found = [key for key in spelled if words and words <= set(key.split())]
        found = found or [word for word in names.tokens(name) if word in bare]
    known = dict.fromkeys((spelled.get(key) or bare[key])[0].name for key in found)
    return tuple(each for each in known if names.same_number(name, each))[:count]


def pci_device(text: str) -> tuple[str, str | None] | None:
    """Device and subsystem of `10de:1024`, `PCI\\VEN_10DE&DEV_1024&SUBSYS_…`, `0x102410DE`; None if it is no PCI id."""
    path = re.search(PCI_PATH, text)
    if path:
        if path[1].lower() != _NVIDIA:
            message = f"PCI vendor {path[1].lower()} is not NVIDIA ({_NVIDIA})"
            raise UnknownName(message, hint="Rekindle knows NVIDIA's cards only")
        # Windows writes the subsystem as device then vendor; lspci and the tables as vendor:device.
        return path[2].lower(), f"{path[4]}:{path[3]}".lower() if path[3] else None
    pair = re.match(PCI_PAIR, text)
    if pair:
        return pair[2].lower(), f"{pair[3]}:{pair[4]}".lower() if pair[3] else None
    bare = re.match(PCI_BARE, text)
    return (bare[1].lower(), None) if bare else None


def _checked(query: str) -> str:
    text = query.translate(names.WIDE).strip()
    if not text:
        hint = 'try `rekindle gpu "Tesla K40c"`, `rekindle gpu 10de:1024` or `rekindle gpu sm_35`'
        raise UsageError("no GPU was named", hint=hint)
    if len(text) > _LONGEST or not text.isprintable():
        hint = "give the name as `nvidia-smi` or the Device Manager shows it"
        raise UsageError("that is not the name of a GPU: it is too long or has control characters", hint=hint)
    return text


def of_capability(capability: Capability) -> tuple[Gpu, ...]:
    found = tuple(gpu for gpu in gpus() if gpu.capability == capability)
    if not found:
        known = ", ".join(str(c) for c in sorted({gpu.capability for gpu in gpus()}))
        raise UnknownName(f"no GPU of compute capability {capability} is in Rekindle's data", hint=f"it has {known}")
    return found


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)
