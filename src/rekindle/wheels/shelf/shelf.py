"""`rekindle shelf`: a folder of checked wheels that is at the same time a static package index.

Every wheel lies under `wheels/` with its metadata, its report, its signed statement and what the shelf knows of it;
the index under `simple/` is written anew from these after every change, under a lock, so that two who add at once both
succeed. Nothing is lost: builds that would have the same name get a label, and what is replaced or removed is moved to
`replaced/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from rekindle.compat.gpu_code import Served, overall, served
from rekindle.compat.judgement import Clash
from rekindle.compat.package import runs_on as package_card
from rekindle.core import codec, console, files, paths
from rekindle.core.errors import BadInput, NotFound, RekindleError, UsageError
from rekindle.core.signing import PublicKey
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.tables import Evidence
from rekindle.model.card import Capability, Target
from rekindle.model.wheel import WheelIdentity, identity_fields, python_of, read_name
from rekindle.stack.offers import Offer, of_wheel
from rekindle.wheels.inspect.identity import cuda_of, read_torch
from rekindle.wheels.inspect.inspection import Inspection, inspect_with_code
from rekindle.wheels.repair import rewrite
from rekindle.wheels.repair.rewrite import info_folder
from rekindle.wheels.shelf import index, provenance, store
from rekindle.wheels.shelf.provenance import BuildFacts, believed, checked
from rekindle.wheels.shelf.store import Shelf, ShelvedWheel
from rekindle.wheels.tags import wheel_tags, wheels_in
from rekindle.wheels.verify.signed_report import key_to_sign
from rekindle.wheels.verify.verify import Verification

__all__ = ["Addition", "Shelf", "ShelvedWheel", "add", "entries", "export", "find", "offers", "prune", "remove"]


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """How wheels are added. `trusted` keys are believed besides the user's own; `run` runs what a report would say.

    `against` is the torch that extensions are meant for; `replace` allows another build under a name that is taken.
    """

    report: Path | None = None
    trusted: tuple[PublicKey, ...] = ()
    against: Path | None = None
    replace: bool = False
    kept: frozenset[str] = frozenset()
    """Files that are not replaced even so: they are somebody else's."""
    cuda: Version | None = None
    """The CUDA it was built with, where its builder says so: a wheel that links CUDA statically does not."""
    run: bool = False
    labels: bool = True
    build: BuildFacts | None = None
    fits: Callable[[WheelIdentity], None] | None = None
    """Refuses a wheel that is not what was asked for."""


def entries(folder: Path) -> tuple[ShelvedWheel, ...]:
    """What is on the shelf, by project and newest version first. An empty or absent folder is an empty shelf."""
    store.guard(folder)
    found = [store.read_entry(path) for path in store.entry_files(folder)]
    by_version = sorted(found, key=lambda one: (Version.find(one.version) or Version("0"), one.file), reverse=True)
    return tuple(sorted(by_version, key=lambda entry: canonicalize_name(entry.project)))


def add(folder: Path, wheels: Sequence[Path], how: Addition | None = None) -> tuple[ShelvedWheel, ...]:
    """Check wheels and put them on the shelf. A folder stands for the wheels in it."""
    how = how or Addition()
    every = [found for given in wheels for found in wheels_in(given)]
    if how.report is not None and len(every) != 1:
        raise UsageError("`--report` goes with one wheel", hint="add the others by themselves")
    with store.unmade(folder):
        added = []
        for wheel in every:
            if not wheel.is_file():
                raise NotFound.path(wheel)
            wheel_tags(wheel)
            added.append(_add(folder, wheel, how))
        with store.locked(folder):
            index.write(folder, entries(folder))
    return tuple(added)


def find(
    folder: Path,
    cards: Sequence[Capability] = (),
    *,
    project: str | None = None,
    python: str | None = None,
    cuda: Version | None = None,
) -> tuple[ShelvedWheel, ...]:
    """The wheels that serve every one of these cards whole and fit the rest, the one to install first.

    One that nothing is compiled in, and that is asked for by name, serves the cards that its project has code for.
    """
    found = [
        entry
        for entry in entries(folder)
        if all(serves(entry, card) or (project is not None and _pure(entry, card)) for card in cards)
        and (project is None or canonicalize_name(entry.project) == canonicalize_name(project))
        and (python is None or runs_on(entry.tags, python))
        and (cuda is None or (entry.cuda is not None and entry.cuda.parts[: len(cuda.parts)] == cuda.parts))
        and entry.yanked is None
    ]
    return tuple(sorted(found, key=lambda entry: any(each.by_jit for card in cards for each in _served(entry, card))))


def serves(entry: ShelvedWheel, card: Capability) -> bool:
    return bool(entry.code) and overall(each.coverage for each in _served(entry, card)) is Coverage.SERVES


def _pure(entry: ShelvedWheel, card: Capability) -> bool:
    anywhere = bool(entry.tags) and all(tag.endswith("-any") for tag in entry.tags)
    return anywhere and not isinstance(package_card(entry.project, None, card), Clash)


def _served(entry: ShelvedWheel, card: Capability) -> list[Served]:
    torch = Version.find(entry.version or "") if entry.project == "torch" else None
    return [served(code, card, torch=torch) for code in entry.code]


def runs_on(tags: Sequence[str], python: str) -> bool:
    """Does a Python `3.11`, or `3.13t`, take a wheel with these tags?"""
    wanted, free = Version(python.rstrip("t")), python.endswith("t")
    for tag in tags:
        interpreter, abi, _ = tag.split("-")
        version = python_of(interpreter)
        if version is None or (abi == "abi3" and not free and Version(version) <= wanted):
            return True
        if Version(version) == wanted and abi.endswith("t") is free:
            return True
    return False


def remove(folder: Path, files_or_versions: Sequence[str]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Take wheels off the shelf, by file name or `project==version`. They are kept in `replaced`."""
    with store.locked(folder):
        gone: list[str] = []
        for word in files_or_versions:
            project, _, version = word.partition("==")
            found = [
                entry.file
                for entry in entries(folder)
                if entry.file == word
                or (
                    version
                    and (canonicalize_name(entry.project), entry.version) == (canonicalize_name(project), version)
                )
            ]
            if not found:
                hint = "`rekindle shelf list` names what there is"
                raise NotFound(f"there is no `{word}` on the shelf", hint=hint)
            gone += found
        index.write(folder, [entry for entry in entries(folder) if entry.file not in gone])
        kept = tuple(store.set_aside(folder, file) for file in dict.fromkeys(gone))
    return tuple(dict.fromkeys(gone)), kept


def complete(folder: Path, file: str, report: Path, trusted: tuple[PublicKey, ...] = ()) -> ShelvedWheel:
    """A wheel of the shelf with a later report, of another machine: what was UNVERIFIED may have been run there.

    How it was built stays as its statement says. A report that failed is an error, and changes nothing.
    """
    store.file_name(file)
    place = folder / "wheels"
    facts = None
    if (stated := place / f"{file}{store.STATEMENT}").is_file():
        facts = provenance.of_file(stated, believed(trusted)).build
    (entry,) = add(folder, [place / file], Addition(report=report, trusted=trusted, labels=False, build=facts))
    return entry


def yank(folder: Path, file: str, reason: str | None) -> ShelvedWheel:
    """Mark a wheel as not to be chosen any more (PEP 592); None takes the mark away."""
    with store.locked(folder):
        entry = next((each for each in entries(folder) if each.file == file), None)
        if entry is None:
            raise NotFound(f"there is no `{file}` on the shelf", hint="`rekindle shelf list` names what there is")
        marked = msgspec.structs.replace(entry, yanked=reason)
        files.write_text(folder / "wheels" / f"{file}{store.ENTRY}", codec.to_json(marked) + "\n")
        index.write(folder, entries(folder))
    return marked


def export(folder: Path, target: Path, chosen: Sequence[ShelvedWheel]) -> None:
    """A shelf of its own with these wheels: any web server, or a stick, can carry it."""
    if target.resolve() == folder.resolve():
        raise UsageError("the shelf cannot be exported onto itself", hint="name another folder with `-o`")
    with store.locked(target):
        for entry in chosen:
            for name in reversed(store.names_of(entry.file)):
                source = folder / "wheels" / name
                if source.is_file() and not files.is_link(source):
                    store.copy(source, target / "wheels" / name)
        index.write(target, entries(target))


def prune(folder: Path, *, keep: int, dry_run: bool = False) -> tuple[str, ...]:
    """Remove all but the newest `keep` versions of each kind (project, tags, torch, CUDA, targets), and the broken."""
    if keep < 1:
        raise UsageError("`--keep` must be at least 1", hint="delete the folder to be rid of the whole shelf")
    with store.locked(folder):
        gone = []
        kinds: dict[tuple[object, ...], int] = {}
        for entry in entries(folder):
            kind: tuple[object, ...] = (entry.project, entry.tags, str(entry.cuda))
            if not entry.is_torch:
                kind = (*kind, entry.torch, tuple(entry.targets), entry.cpu)
            whole = store.there(folder, entry)
            kinds[kind] = kinds.get(kind, 0) + whole
            if not whole or kinds[kind] > keep:
                gone.append(entry.file)
        if not dry_run:
            # The index first: what it no longer names may go, and nobody is sent to a file that is not there.
            index.write(folder, [entry for entry in entries(folder) if entry.file not in gone])
            for file in gone:
                for name in store.names_of(file):
                    (folder / "wheels" / name).unlink(missing_ok=True)
    return tuple(gone)


class ShelfOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The torch wheels of a shelf as the resolver takes them, and for each that it cannot judge the reason."""

    offers: tuple[Offer, ...] = ()
    set_aside: dict[str, str] = {}


def doubts(folder: Path, wheels: Sequence[ShelvedWheel]) -> dict[str, str]:
    """By file: why what an entry says is nobody's word. The unsigned ones of your own shelf are yours."""
    foreign = folder.resolve() != paths.shelf_folder().resolve()
    asked = [entry for entry in wheels if entry.signed_by or foreign]
    return {
        entry.file: why for entry in asked if (why := provenance.contradiction(folder / "wheels", entry)) is not None
    }


def offers(folder: Path, keys: Sequence[PublicKey] | None = None, *, published: Collection[str] = ()) -> ShelfOffers:
    """One damaged entry does not hide the others. What is `published`, by its hash, need not lie there.

    `keys`: it is somebody's folder, where an entry that none of these has signed is only what somebody says.
    """
    store.guard(folder)
    good: list[ShelvedWheel] = []
    aside: dict[str, str] = {}
    for path in store.entry_files(folder):
        try:
            entry = store.read_entry(path)
            if entry.sha256 not in published and not store.there(folder, entry):
                raise BadInput("its wheel is not there, or another file has its name")
            good.append(entry)
        except RekindleError as error:
            aside[path.name.removesuffix(store.ENTRY)] = str(error)
    told: set[str] = set()
    if keys is not None:
        withdrawn: dict[tuple[str, str], str | None] = {}
        with contextlib.suppress(RekindleError):  # none of these keys signed the list
            withdrawn = index.signed_listing(folder, keys).withdrawn
        good = [msgspec.structs.replace(each, yanked=withdrawn.get(_key(each), each.yanked)) for each in good]
        told = {
            each.file for each in good if _key(each) not in withdrawn or provenance.doubt(folder / "wheels", each, keys)
        }
    found = offers_of(good, lambda entry: str(folder.absolute() / "wheels" / entry.file), "on the shelf")
    offered = tuple(
        msgspec.structs.replace(each, evidence=Evidence.NOTES) if Path(str(each.location)).name in told else each
        for each in found.offers
    )
    return ShelfOffers(offers=offered, set_aside={**aside, **found.set_aside})


def _key(entry: ShelvedWheel) -> tuple[str, str]:
    return entry.file, entry.sha256


def offers_of(wheels: Sequence[ShelvedWheel], location: Callable[[ShelvedWheel], str], where: str) -> ShelfOffers:
    found: list[Offer] = []
    aside: dict[str, str] = {}
    for entry in wheels:
        if not entry.is_torch or entry.cuda is None or entry.yanked is not None:
            continue
        source = f"{entry.file} {where}, verified: {entry.state.value}"
        try:
            # Entries of version 0.1 have no tags; the file name always does.
            tags = entry.tags or tuple(map(str, wheel_tags(Path(entry.file))))
            wheel = msgspec.structs.replace(entry, tags=tags)
            offer = of_wheel(wheel, entry.code, location=location(entry), source=source)
            found.append(msgspec.structs.replace(offer, hashes={entry.file: entry.sha256}))
        except RekindleError as error:
            aside[entry.file] = str(error)
    return ShelfOffers(offers=tuple(found), set_aside=aside)


def _add(folder: Path, wheel: Path, how: Addition) -> ShelvedWheel:
    """What is inspected, verified, hashed and shelved is one copy: nobody can exchange the wheel in between."""
    with contextlib.ExitStack() as made:
        with store.locked(folder):
            work = made.enter_context(files.scratch("shelf", folder))
        store.copy(wheel, own := work / store.file_name(wheel.name))
        known, code, linked, reading = inspect_with_code(own, hashed=True)
        store.check_project(known.project or "", read_name(wheel.name).project)
        if how.fits:
            how.fits(known)
        verification = checked(
            wheel, how.report, own=own, trusted=how.trusted, against=how.against, run=how.run, reading=reading
        )
        for each in known.findings:
            if each.id in ("startup", "variant"):
                console.say(": ".join(filter(None, ("warning", each.found, each.why))))
        cuda = known.cuda or _cuda(known, linked, how.against) or (how.cuda if known.targets else None)
        # The variants of a release share its version: their labels say what they are for.
        version = labelled(known, cuda) if how.labels and known.variant is None else known.version or "0"
        source = own if version == known.version else relabel(own, version, work)
        known = msgspec.structs.replace(known, version=version, cuda=cuda)
        entry, metadata, inside = _entry(source, known, verification, original=None if source is own else own)
        entry = msgspec.structs.replace(entry, code=code)
        with store.locked(folder):
            if not how.replace:
                reason = index.last_listing(folder).withdrawn.get(_key(entry))
                entry = msgspec.structs.replace(entry, yanked=reason)
            index.variants([*(each for each in entries(folder) if each.project == entry.project), entry])
            place = folder / "wheels" / entry.file
            if place.is_file() and paths.sha256_of(place) != entry.sha256:
                if not how.replace or entry.file in how.kept:
                    message = f"there is another build of `{entry.file}` on the shelf"
                    hint = "`--replace` puts this one in its place and keeps the other in `replaced`"
                    raise UsageError(message, hint=hint)
                store.set_aside(folder, entry.file)
            return _put(folder, source, entry, metadata, verification, how.build, inside)


def _entry(
    source: Path, known: Inspection, verification: Verification, *, original: Path | None
) -> tuple[ShelvedWheel, bytes, dict[str, str]]:
    with package.open_package(source) as found:
        assert isinstance(found, package.Wheel)
        info = info_folder(found.archive)
        metadata = found.read(f"{info}/METADATA")
        fields = package.headers(found, "METADATA")
        inside = {
            name: hashlib.sha256(found.read(name)).hexdigest()
            for name in sorted(found.files)
            if name.startswith((f"{info}/sboms/", f"{info}/licenses/"))
        }
    entry = ShelvedWheel(
        file=PlainFileName(source.name),
        sha256=paths.sha256_of(source) if original else Sha256(str(verification.sha256)),
        size=source.stat().st_size,
        metadata_sha256=Sha256(hashlib.sha256(metadata).hexdigest()),
        requires_python=next(iter(fields.get("Requires-Python", [])), None),
        **{**identity_fields(known), "project": known.project or "?", "version": known.version or "0"},
        python=verification.python or known.python,
        platform=known.platform,
        state=verification.state,
        checked_on=tuple(f"{card.name} ({card.capability})" for card in verification.cards),
        added_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        original=verification.sha256 if original else None,
    )
    # An entry that cannot be read again would end every later command of the shelf.
    entry = codec.from_json(codec.to_json(entry), ShelvedWheel, name=f"what would be written of `{source.name}`")
    return entry, metadata, inside


def _put(
    folder: Path,
    source: Path,
    entry: ShelvedWheel,
    metadata: bytes,
    verification: Verification,
    build: BuildFacts | None,
    inside: dict[str, str],
) -> ShelvedWheel:
    place = folder / "wheels"
    key = key_to_sign()
    entry = msgspec.structs.replace(entry, signed_by=str(key.public) if key else None)
    verification = msgspec.structs.replace(verification, sha256=entry.sha256, subject=entry.file, size=entry.size)
    place.mkdir(exist_ok=True)
    files.rename_over(source, place / entry.file)
    files.write_bytes(place / f"{entry.file}{store.METADATA}", metadata)
    files.write_text(place / f"{entry.file}{store.REPORT}", codec.to_json(verification) + "\n")
    if key is not None:
        envelope = provenance.sign(key, entry, verification, build=build, inside=inside)
        files.write_text(place / f"{entry.file}{store.STATEMENT}", codec.to_json(envelope) + "\n")
    # Written last: what has no entry is not on the shelf.
    files.write_text(place / f"{entry.file}{store.ENTRY}", codec.to_json(entry) + "\n")
    return entry


def _cuda(known: Inspection, linked: Version | None, against: Path | None) -> Version | None:
    """The CUDA of an extension: that of the torch it is for, else what its version says, else what it links."""
    if known.machine is None:
        return None
    if against is not None:
        return read_torch(against).cuda
    return cuda_of(known) or (linked if known.targets else None)


_MOST_NAMED = 6
"""Architectures that a label names one by one: Windows has paths of 260 letters."""


def labelled(wheel: WheelIdentity, cuda: Version | None) -> str:
    """The version under which the wheel is shelved: its own, with what is missing in its label added."""
    version = wheel.version or "0"
    if wheel.machine is None or not (wheel.targets or cuda):
        return version
    public, _, local = version.partition("+")
    if wheel.is_torch and local:
        return version
    have = local.split(".") if local else []
    parts = [*have, *(part for part in _parts(wheel, cuda) if not _said(part, have))]
    return f"{public}+{'.'.join(parts)}"


def _parts(wheel: WheelIdentity, cuda: Version | None) -> list[str]:
    parts = [f"cu{cuda.major}{cuda.minor if len(cuda.parts) > 1 else ''}"] if cuda else []
    targets = sorted(Target.parse(name) for name in wheel.targets)
    native = list(dict.fromkeys(str(t).replace("_", "") for t in targets if not t.ptx))
    ptx = list(dict.fromkeys(str(t).replace("compute_", "ptx") for t in targets if t.ptx))
    parts += [f"{native[0]}to{native[-1][2:]}"] if len(native) > _MOST_NAMED else native or ptx
    if not wheel.is_torch and wheel.torch:
        numbers = wheel.torch.partition("+")[0].split(".")
        parts.append("torch" + "".join(numbers[:2]))
    if wheel.cpu:
        parts.append(f"x86{wheel.cpu}")
    return parts


def _said(part: str, have: list[str]) -> bool:
    """`cu118` says `cu11`, too; a label with any `sm…` has named its architectures."""
    kind = re.match(r"[a-z]+", part)
    return any(kind is not None and re.match(r"[a-z]+", word) and word.startswith(kind[0]) for word in have)


def relabel(wheel: Path, version: str, folder: Path) -> Path:
    """The same wheel under another version, written to `folder`: METADATA, RECORD and the names that hold it change."""
    with File(wheel) as source:
        archive = Archive(source)
        name, member, metadata, renamed = rewrite.under_version(archive, wheel.name, version)
        remove = (f"{info_folder(archive)}/METADATA",)
        rewrite.rewrite(archive, folder / name, add={member: metadata}, remove=remove, renamed=renamed)
    return folder / name
