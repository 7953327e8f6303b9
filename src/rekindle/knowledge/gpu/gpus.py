"""Cards: name, PCI id, chip and capability, found from whatever a person or a driver calls them."""

import re
from enum import Enum

import msgspec

from rekindle.core.errors import UnknownName, UsageError
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, observed

# Patterns stay text: `re` compiles one when it is first needed, and an exact name needs none.
_NVIDIA = "10de"
_LONGEST = 200
_PCI_PATH = r"(?i)ven_([0-9a-f]{4})&dev_([0-9a-f]{4})(?:&subsys_([0-9a-f]{4})([0-9a-f]{4}))?"
_PCI_PAIR = r"(?i)(?:0x)?(10de)[:\s.-](?:0x)?([0-9a-f]{4})(?:[:\s]([0-9a-f]{4}):([0-9a-f]{4}))?\Z"
_PCI_BARE = r"(?i)0x([0-9a-f]{4})(10de)?\Z"
_SM = r"(?i)(?:sm|compute)_?(\d{2,3})[af]?\Z|(\d{1,2}\.\d)\Z"
_BEFORE = r"\b(gtx|rtx|gt|gts|mx)(?=\d)"
_AFTER = r"(?<=\d)(ti|super)\b"
_BREAK = r"[^a-z0-9.+]+"
_NOISE = {"nvidia", "graphics", "card", "gpu", "the", "corporation", "inc", "r", "tm", "geforce®"}
_FAMILY = {"geforce", "tesla", "quadro", "titan", "grid"}


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
    """What was found for a query. More than one capability among `gpus` means: the name alone cannot tell."""

    query: str
    by: MatchedBy
    gpus: tuple[Gpu, ...]

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return tuple(sorted({gpu.capability for gpu in self.gpus}))

    @property
    def ambiguous(self) -> bool:
        return len(self.capabilities) > 1


@cached
def gpus() -> tuple[Gpu, ...]:
    return observed("gpus", dict[str, tuple[Gpu, ...]])["gpus"]


def find(query: str) -> Match:
    """The card meant by a name, a PCI id in any common spelling, or a capability; an error with near names if none."""
    text = _checked(query)
    exact = tuple(gpu for gpu in gpus() if gpu.name == text)
    if exact:
        return Match(query=text, by=MatchedBy.NAME, gpus=exact)
    device = pci_device(text)
    if device:
        found = by_pci(*device)
        if not found:
            message = f"no card with PCI id {_NVIDIA}:{device[0]} is in the tables"
            raise UnknownName(
                message, hint="it may be newer than the tables: name it by its compute capability, e.g. `sm_120`"
            )
        return Match(query=text, by=MatchedBy.PCI_ID, gpus=found)
    number = re.match(_SM, text)
    if number:
        return Match(query=text, by=MatchedBy.CAPABILITY, gpus=_of_capability(Capability.parse(number[1] or number[2])))
    named = by_name(text)
    if named:
        return Match(query=text, by=MatchedBy.NAME, gpus=named)
    near = nearest(text)
    message = f"no GPU called `{text[:80]}` is in the tables"
    hint = (
        f"did you mean {_listed(near)}?"
        if near
        else "`rekindle gpu --list` shows all names; a PCI id or `sm_XX` works too"
    )
    raise UnknownName(message, hint=hint)


def by_pci(device: str, subsystem: str | None = None) -> tuple[Gpu, ...]:
    """The rows with this device id; a row for exactly this subsystem (`1b0a:01c6`) wins over the plain one."""
    exact = f"{device}:{subsystem}" if subsystem else None
    if exact:
        special = tuple(gpu for gpu in gpus() if exact in gpu.pci_ids)
        if special:
            return special
    plain = tuple(gpu for gpu in gpus() if device in gpu.pci_ids)
    return plain or tuple(gpu for gpu in gpus() if any(pci.split(":")[0] == device for pci in gpu.pci_ids))


def by_name(name: str) -> tuple[Gpu, ...]:
    """Rows of exactly this name, however it is capitalised, spaced, or prefixed."""
    wanted = _tokens(name)
    if not wanted:
        return ()
    # "k40c" and "rtx 5070" are said without the family's name, and some are listed without it.
    short = [token for token in wanted if token not in _FAMILY]
    possible = [gpu for gpu in gpus() if short and all(token in gpu.name.lower() for token in short)]
    found = tuple(gpu for gpu in possible if _tokens(gpu.name) == wanted)
    return found or tuple(gpu for gpu in possible if _short(gpu) == short) or _by_beginning(short, possible)


def _short(gpu: Gpu) -> list[str]:
    return [token for token in _tokens(gpu.name) if token not in _FAMILY]


def _by_beginning(short: list[str], possible: list[Gpu]) -> tuple[Gpu, ...]:
    """`P100` and `A100` are said of every board with that chip: they are one card where all have one capability."""
    found = tuple(gpu for gpu in possible if gpu.official and _short(gpu)[: len(short)] == short)
    model = any(letter.isdigit() for token in short for letter in token)
    return found if model and len({gpu.capability for gpu in found}) == 1 else ()


def nearest(name: str, count: int = 4) -> tuple[str, ...]:
    """Names that look like this one, best first."""
    import difflib

    spelled = {" ".join(_tokens(gpu.name)): gpu.name for gpu in gpus()}
    bare = {" ".join(t for t in _tokens(gpu.name) if t not in _FAMILY): gpu.name for gpu in gpus()}
    wanted = " ".join(_tokens(name))[:80]
    found = difflib.get_close_matches(wanted, [*spelled, *bare], n=count * 2, cutoff=0.72)
    if not found:
        words = set(_tokens(name))
        found = [key for key in spelled if words and words <= set(key.split())][:count]
    return tuple(dict.fromkeys(spelled.get(key) or bare[key] for key in found))[:count]


def pci_device(text: str) -> tuple[str, str | None] | None:
    """Device and subsystem of `10de:1024`, `PCI\\VEN_10DE&DEV_1024&SUBSYS_…`, `0x102410DE`; None if it is no PCI id."""
    path = re.search(_PCI_PATH, text)
    if path:
        if path[1].lower() != _NVIDIA:
            message = f"PCI vendor {path[1].lower()} is not NVIDIA ({_NVIDIA})"
            raise UnknownName(message, hint="Rekindle knows NVIDIA cards only")
        # Windows writes the subsystem as device then vendor; lspci and the tables as vendor:device.
        return path[2].lower(), f"{path[4]}:{path[3]}".lower() if path[3] else None
    pair = re.match(_PCI_PAIR, text)
    if pair:
        return pair[2].lower(), f"{pair[3]}:{pair[4]}".lower() if pair[3] else None
    bare = re.match(_PCI_BARE, text)
    return (bare[1].lower(), None) if bare else None


def _checked(query: str) -> str:
    text = query.strip()
    if not text:
        message = "no GPU was named"
        raise UsageError(
            message, hint='try `rekindle gpu "Tesla K40c"`, `rekindle gpu 10de:1024` or `rekindle gpu sm_35`'
        )
    if len(text) > _LONGEST or not text.isprintable():
        message = "that is not the name of a GPU: it is too long or has control characters"
        raise UsageError(message, hint="give the name as `nvidia-smi` or the Device Manager shows it")
    return text


def _of_capability(capability: Capability) -> tuple[Gpu, ...]:
    found = tuple(gpu for gpu in gpus() if gpu.capability == capability)
    if not found:
        known = ", ".join(str(c) for c in sorted({gpu.capability for gpu in gpus()}))
        message = f"no card of compute capability {capability} is in the tables"
        raise UnknownName(message, hint=f"known are {known}")
    return found


def _tokens(name: str) -> list[str]:
    """A name as comparable words: `NVIDIA GeForce RTX 5070 Laptop GPU` and `rtx5070 laptop` meet in the middle."""
    lowered = name.lower().replace("(tm)", " ").replace("(r)", " ").replace("®", " ").replace("™", " ")
    split = re.sub(_AFTER, r" \1", re.sub(_BEFORE, r"\1 ", lowered))
    return [word for word in re.split(_BREAK, split) if word and word not in _NOISE]


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)
