"""What a wheel lacks, and what is brought for it: followed until nothing new is missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatch

import msgspec

from rekindle.compat.gpu_code import own, served
from rekindle.core.command import rekindle
from rekindle.core.findings import Finding, Fix, State, failed, passed
from rekindle.formats.binary import Binary, codes
from rekindle.knowledge.cuda.libraries import owner_of
from rekindle.knowledge.gpu.capability import Capability, Coverage, Target
from rekindle.knowledge.gpu.gpu_code import sums
from rekindle.wheels.closure import linkage
from rekindle.wheels.closure.linkage import LoadTime, MissingLibrary
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.inspect.identity import Identity, cuda_linked
from rekindle.wheels.repair import providers
from rekindle.wheels.repair.providers import Providers, Supply, WantedLibrary

_ROUNDS = 12
# Said here in other words, or not worth saying.
_SAID = ("closure", "closure.missing")


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """`supplies` by member; `wanted_by` are, per brought library, the files that link it."""

    supplies: dict[str, Supply]
    wanted_by: dict[str, tuple[str, ...]]
    findings: tuple[Finding, ...]


class LibraryPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a wheel keeps its libraries, and the platform that they must be for."""

    folder: str
    system: str
    machine: str = "x86_64"


def complete(
    binaries: Sequence[Binary],
    known: Identity,
    place: LibraryPlace,
    sources: Providers,
    *,
    exclude: Collection[str] = (),
    cards: Sequence[Capability] = (),
) -> Completion:
    """Bring what is missing into the place's folder, then what that needs in turn, until the closure is closed.

    `cards` must be served by what is brought; without any, those count for which the wheel itself has code.
    """
    folder, system = place.folder, place.system
    files = list(binaries)
    served_cards = tuple(cards) or own_cards(binaries)
    cuda = known.cuda or cuda_linked(binaries)
    supplies: dict[str, Supply] = {}
    wanted_by: dict[str, tuple[str, ...]] = {}
    absent: dict[str, Finding] = {}
    versions: dict[str, str] = {}
    for _ in range(_ROUNDS):
        links = closure(files, requires=known.requires, torch=known.is_torch_package)
        if links is None:
            break
        news = [item for item in links.missing if item.library.lower() not in absent and _is_ours(item)]
        if not news:
            break
        for item in news:
            wanted = WantedLibrary(
                system=system,
                machine=place.machine,
                python=known.python,
                cuda=cuda,
                cards=served_cards,
                versions=dict(versions),
            )
            excluded = any(fnmatch(item.library.lower(), word.lower()) for word in exclude)
            supply = None if excluded else sources.find(item.library, wanted)
            absent[item.library.lower()] = _absence(item, system, excluded)
            member = f"{folder}/{supply.library}" if folder and supply else supply.library if supply else ""
            if supply is None or member in supplies:
                continue
            del absent[item.library.lower()]
            supplies[member] = supply
            wanted_by[member] = item.wanted_by
            if supply.package and supply.package_version:
                versions.setdefault(supply.package, supply.package_version)
            if supply.binary is None:
                text = f"`{supply.library}` would be fetched from {supply.origin}; what it needs itself is known then"
                absent[item.library.lower()] = passed("repair.dry-run", text)
                continue
            files.append(msgspec.structs.replace(supply.binary, name=member))
    links = closure(files, requires=known.requires, torch=known.is_torch_package)
    rest = [] if links is None else [item for item in linkage.findings(links) if item.id not in _SAID]
    return Completion(
        supplies=supplies,
        wanted_by=wanted_by,
        findings=(
            *absent.values(),
            *_checked(supplies, files, served_cards, sure=bool(cards)),
            *(item for item in rest if item.state != "PASS"),
        ),
    )


def own_cards(binaries: Sequence[Binary]) -> tuple[Capability, ...]:
    """The cards for which the wheel's own libraries hold native code: a cuDNN without code for them is of no use."""
    targets = (Target.parse(text) for text in sums(own(codes(binaries))))
    return tuple(sorted({target.capability for target in targets if not target.ptx}))


def _is_ours(item: MissingLibrary) -> bool:
    """Is this ours to bring? Not what every Python has; not, on Linux, what torch's own packages bring."""
    return item.owner not in ("python", "torch", "optional")


def _absence(item: MissingLibrary, system: str, excluded: bool) -> Finding:
    owner = owner_of(item.library, system)
    needed = item.how is LoadTime.IMPORT
    state = State.WARN if excluded or not needed else State.FAIL
    where = (owner.where if owner else None) or "nobody's package is known to have it; look where it was built"
    lies = None if excluded else providers.on_path(item.library)
    hint = f"; there is one on PATH at `{lies}`: if it is the right one, pass its folder with `--from`" if lies else ""
    verb = item.how.verb
    left = "left out, as asked" if excluded else "could not be had"
    return Finding(
        id="repair.missing",
        state=state,
        found=f"`{item.library}` {left}; `{item.wanted_by[0]}` {verb}{hint}",
        why=f"needed through: {' -> '.join(item.chain)}",
        fix=Fix(text=f"get it from: {where}", commands=(rekindle("repair", "WHEEL", "--from", "FOLDER"),)),
        source=owner.source if owner else None,
    )


def _checked(
    supplies: dict[str, Supply], files: Sequence[Binary], cards: Sequence[Capability], *, sure: bool
) -> list[Finding]:
    """Machine and GPU code of what was brought. Not `sure`: nobody named the cards, the wheel has code for them."""
    machine = next((found.machine for found in files if found.machine and found.name not in supplies), None)
    findings = []
    for member, supply in supplies.items():
        found = supply.binary
        if found is None:
            continue
        if machine and found.machine != machine:
            text = f"`{member}` from {supply.origin} is for {found.machine}, the wheel is for {machine}"
            findings.append(failed("repair.machine", text))
        for card in cards:
            if any(served(code, card).coverage is Coverage.NO for code in codes([found])):
                text = f"`{member}` from {supply.origin} has no code for {card.sm}"
                why = "calls into it fail on that GPU, even where the rest of the wheel supports it"
                state = State.FAIL if sure else State.WARN
                findings.append(Finding(id="repair.gpu-code", state=state, found=text, why=why))
    return findings
