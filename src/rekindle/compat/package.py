"""Does this package go with this torch, and with this card?"""

from __future__ import annotations

from typing import NamedTuple

from rekindle.compat import companion
from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UsageError
from rekindle.core.version import Range, Version
from rekindle.knowledge.builds import extension_files, script_rules
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.logs import extension_homes
from rekindle.knowledge.torch import companions
from rekindle.knowledge.torch.releases import full_version
from rekindle.model.card import Capability


def made_for(package: str, version: str) -> tuple[str, ...]:
    """The torch releases that a release of a package, or the newest of a range, was made for; empty: not known."""
    if package in companions.PROJECTS:
        return companion.made_for(package, version)
    if version[:1] in "<>=!~":
        asked = Range(version)
        rows = [row for row in extension_homes.wheels(package) if asked.holds(row.version)]
        return tuple(full_version(each) for row in rows[-1:] for each in row.torch)
    row = _row(package, version)
    return tuple(full_version(each) for each in row.torch) if row is not None else ()


class AskedTorch(NamedTuple):
    """`sure`: the tables know this release, or one before it."""

    torch: str
    sure: bool


def asked_by(package: str, version: str) -> AskedTorch | None:
    """The torch that a release asks for, or the newest release that a range admits; an empty one admits all."""
    every = script_rules.asks_torch(package)
    if version and version[0] not in "<>=!~":
        number = Version.find(version)
        fitting = [torch for release, torch in every if number is not None and Version(release) <= number]
    else:
        try:
            fitting = [torch for release, torch in every if Range(version).holds(release)]
        except UsageError:
            fitting = []
    return AskedTorch((fitting or [every[0][1]])[-1], bool(fitting)) if every else None


def is_bound(package: str) -> bool:
    """Whether a release of it goes with some torches only: then one that the tables lack is a question, not a yes."""
    return (
        bool(extension_homes.wheels(package))
        or script_rules.pins_torch(package)
        or bool(script_rules.asks_torch(package))
    )


def goes_with(package: str, version: str, torch: str) -> Judgement:
    """Was this release, or any of a range, made for this torch?"""
    if version[:1] in "<>=!~":
        rows = [row for row in extension_homes.wheels(package) if Range(version).holds(row.version)]
        row = next((each for each in rows if each.serves(torch)), rows[0] if rows else None)
    elif package in companions.PROJECTS:
        return companion.belongs(package, version, torch)
    else:
        row = _row(package, version)
    asked = asked_by(package, version) if row is None else None
    if row is None and asked is not None:
        if Range(asked.torch).holds(torch):
            return Fits()
        if asked.sure:
            return Clash(
                sentence=f"{package} {version or 'of today'} asks for torch{asked.torch}, not {torch}",
                source="its METADATA",
            )
    if row is None:
        return Unknown(missing=f"which torch {package} {version} was made for is not in the tables")
    if row.serves(torch):
        return Fits()
    own = " or ".join(row.torch)
    other = extension_homes.wheel_for(package, torch)
    name = other.version if other else ""
    change = Alternative(what=package, value=name, text=f"install {package} {name}")
    sentence = f"{package} {version} was made for torch {own}, not for {torch}"
    return Clash(sentence=sentence, source=row.source, changes=(change,) if other else ())


def has_library(package: str, version: str, cuda: Version) -> Judgement:
    """Does a release of a package that carries a library for each CUDA carry one for this?"""
    row, number = extension_homes.home(package), Version.find(version)
    first = next((since for own, since in row.lines_since if own == cuda), None) if row is not None else None
    if row is None or first is None or number is None or number >= first:
        return Fits()
    change = Alternative(what=package, value=str(first), text=f"install {package} {first} or newer")
    return Clash(
        sentence=f"{package} {version} has no library for CUDA {cuda}, which the torch of this environment is of",
        source=row.source,
        changes=(change,),
    )


def takes_mkl(torch: str, mkl: str) -> Judgement:
    """A torch of PyTorch's conda channel for Linux loads a symbol that MKL left out."""
    first = since("mkl-without-ijit")
    if Version(torch) >= since("conda-torch-without-ijit") or Version(mkl) < first:
        return Fits()
    sentence = f"PyTorch's conda build of torch {torch} does not load with MKL {first} or newer"
    change = Alternative(what="mkl", value=f"<{first}", text=f"install an MKL below {first}")
    return Clash(sentence=sentence, source="https://github.com/pytorch/pytorch/issues/123097", changes=(change,))


def _row(package: str, version: str) -> extension_homes.ExtensionWheel | None:
    """What the tables know of a release: the row that names it most closely."""
    number = Version.find(version)
    rows = [row for row in extension_homes.wheels(package) if _is_of(row, version, number)]
    return max(rows, key=lambda each: len(each.version), default=None)


def _is_of(row: extension_homes.ExtensionWheel, version: str, number: Version | None) -> bool:
    """`0.8` is every 0.8.x; a post release is another one where the tables tell post releases apart."""
    own = Version.find(row.version)
    if row.version == version or number is None or own is None or str(own) != row.version:
        return row.version == version
    apart = "post" in version and any(
        each.version.startswith(f"{row.version}.post") for each in extension_homes.wheels(row.package)
    )
    return number.starts_with(own) and not apart


def taken_from_page(package: str, requirement: str | None, torch: Version) -> Judgement:
    """Does pip take the wheel of a page for this torch, or the newer source of the package index?"""
    row = extension_homes.home(package)
    if requirement or row is None or row.find_newest is None or torch >= row.find_newest:
        return Fits()
    return Clash(
        sentence=f"the newest {package} of the package index is newer than the wheels for torch {torch}",
        source=row.source,
    )


def wheel_runs_on(package: str, version: Version | None, card: Capability) -> Judgement:
    """Has any ready-made file of this release code for the card?"""
    own = [each for each in extension_files.files(package) if version and Version.find(each.version) == version]
    if own and all(each.serves(card) is False for each in own):
        sentence = f"the wheel of {package} {version} has no code for a GPU of capability {card} ({card.sm})"
        return Clash(sentence=sentence, source=own[0].source)
    return Fits() if own else Unknown(missing=f"the code of {package} {version or ''} is not in the tables")


def runs_on(package: str, version: Version | None, card: Capability) -> Judgement:
    """Does any build of a package have code for this card?"""
    row = extension_homes.home_of_folder(package)
    if row is not None and row.any_card:
        return Fits()
    if row is None or row.begins is None:
        return Unknown(missing=f"which cards {package} has code for is not in the tables")
    older = row.begins_since is not None and version is not None and version < row.begins_since
    if card >= row.begins or older:
        return Fits()
    return Clash(
        sentence=f"{row.package} has no code for a GPU of capability {card} ({card.sm}): it begins with {row.begins}",
        source=row.source,
    )
