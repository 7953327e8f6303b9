"""Is a shelf what it says it is? Everything is hashed again, and every statement's signature is checked.

Mending makes anew what can be made from the wheels themselves (entries, metadata, the index) and sets aside what cannot
be trusted any more. It never makes a wheel good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.core import codec, console, files, paths
from rekindle.core.command import rekindle
from rekindle.core.errors import RekindleError
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned, worst
from rekindle.core.signing import PublicKey
from rekindle.formats import package
from rekindle.wheels.repair.rewrite import info_folder
from rekindle.wheels.shelf import index, provenance, store
from rekindle.wheels.shelf.provenance import believed
from rekindle.wheels.shelf.shelf import Addition, add, entries, yank
from rekindle.wheels.shelf.store import ShelfHealth, ShelvedWheel

_MEND = Fix(text="`rekindle shelf mend` makes it anew", commands=(rekindle("shelf", "mend"),))
_SWEEP = Fix(text="`rekindle shelf mend` removes it", commands=(rekindle("shelf", "mend"),))
_AGAIN = Fix(text="remove it and add the wheel again, from where you had it")


def check(folder: Path, trusted: Sequence[PublicKey] = (), *, signed: bool = False) -> ShelfHealth:
    """Every wheel, entry, report, statement and page. With `signed`, what no trusted key has signed is a failure."""
    store.guard(folder)
    keys = believed(trusted)
    found: list[Finding] = []
    good: list[ShelvedWheel] = []
    for path in store.entry_files(folder):
        try:
            entry = store.read_entry(path)
        except RekindleError as error:
            found.append(failed("entry", str(error), fix=_MEND))
            continue
        good.append(entry)
        problems = _wheel(folder, entry, keys, signed=signed)
        state = f", signed by {entry.signed_by}" if entry.signed_by else ""
        found += problems or [passed("wheel", f"`{entry.file}` is as it was added{state}")]
    known = {entry.file for entry in good}
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        if wheel.name not in known:
            text = f"`{wheel.name}` has no readable entry"
            found.append(failed("stray", text, fix=_MEND))
    for part in _left_behind(folder):
        text = f"`{part.name}` was left by a run that was killed"
        found.append(warned("left-behind", text, fix=_SWEEP))
    found += _pages(folder, keys, signed=signed)
    if not found:
        text = f"there is no wheel in `{folder}`, so nothing was checked"
        found.append(unverified("empty", text))
    return ShelfHealth(folder=folder, state=worst(found), findings=tuple(found))


def mend(folder: Path) -> ShelfHealth:
    """Make anew what follows from the wheels; set aside what does not."""
    done: list[Finding] = []
    with store.locked(folder):
        withdrawn = index.last_listing(folder).withdrawn
        for path in _left_behind(folder):
            size = console.size(files.discard(path))
            done.append(_done(f"removed `{path.name}` ({size}), left by a run that was killed"))
        for path in sorted((folder / "wheels").glob("*")) if (folder / "wheels").is_dir() else []:
            if files.is_link(path):
                path.unlink()
                done.append(_done(f"removed the link `{path.name}`"))
        strays = []
        for path in store.entry_files(folder):
            file = path.name.removesuffix(store.ENTRY)
            wheel = folder / "wheels" / file
            try:
                entry: ShelvedWheel | None = store.read_entry(path)
            except RekindleError:
                entry = None
            if not wheel.is_file():
                store.set_aside(folder, file)
                done.append(_done(f"set aside what was left of `{file}`: the wheel is gone"))
            elif entry is not None and (wheel.stat().st_size != entry.size or paths.sha256_of(wheel) != entry.sha256):
                place = store.set_aside(folder, file)
                text = f"set aside `{file}`: it is not the file that was added; it lies in `{place}`"
                done.append(failed("mend", text, fix=_AGAIN))
            elif entry is None:
                strays.append(wheel)
            else:
                done += _companions(folder, entry)
                reason = withdrawn.get((file, entry.sha256))
                if entry.yanked is None and reason is not None:
                    files.write_text(path, codec.to_json(msgspec.structs.replace(entry, yanked=reason)) + "\n")
                    done.append(_done(f"marked `{file}` as withdrawn again, as the list has it"))
                signed = entry.signed_by or (wheel.parent / f"{file}{store.STATEMENT}").exists()
                why = provenance.contradiction(wheel.parent, entry) if signed else None
                done += [failed("mend", why, fix=_AGAIN)] if why else []
        named = {path.name.removesuffix(store.ENTRY) for path in store.entry_files(folder)}
        strays += [wheel for wheel in sorted((folder / "wheels").glob("*.whl")) if wheel.name not in named]
    for wheel in dict.fromkeys(strays):
        done.append(_taken_in(folder, wheel, withdrawn))
    with store.locked(folder):
        index.write(folder, entries(folder))
    if not done:
        done = [_done("nothing had to be mended; the index was written anew")]
    return ShelfHealth(folder=folder, state=worst(done), findings=tuple(done))


def _left_behind(folder: Path) -> list[Path]:
    return [*files.left_behind(folder), *files.left_behind(folder / "wheels")]


def _taken_in(folder: Path, wheel: Path, withdrawn: Mapping[tuple[str, str], str | None]) -> Finding:
    """A wheel without an entry is checked and added like any other; one that was withdrawn stays it."""
    place = store.set_aside(folder, wheel.name)
    try:
        (entry,) = add(folder, [place / wheel.name], Addition(labels=False))
        if (reason := withdrawn.get((entry.file, entry.sha256))) is not None:
            yank(folder, entry.file, reason)
    except RekindleError as error:
        return failed("mend", f"`{wheel.name}` cannot be on a shelf: {error}; it lies in `{place}`")
    return _done(f"checked `{wheel.name}` and wrote its entry")


def _companions(folder: Path, entry: ShelvedWheel) -> list[Finding]:
    """The metadata file beside a wheel, made anew from the wheel where it differs."""
    place = folder / "wheels" / f"{entry.file}{store.METADATA}"
    if place.is_file() and hashlib.sha256(files.read_bytes(place)).hexdigest() == entry.metadata_sha256:
        return []
    files.write_bytes(place, _metadata(folder / "wheels" / entry.file))
    return [_done(f"wrote the metadata of `{entry.file}` anew")]


def _wheel(folder: Path, entry: ShelvedWheel, keys: Sequence[PublicKey], *, signed: bool) -> list[Finding]:
    place = folder / "wheels"
    wheel = place / entry.file
    if files.is_link(wheel) or not wheel.is_file():
        return [failed("wheel", f"`{entry.file}` is not there", fix=_MEND)]
    if wheel.stat().st_size != entry.size or paths.sha256_of(wheel) != entry.sha256:
        return [failed("wheel", f"`{entry.file}` is not the file that was added: its size or hash differs", fix=_AGAIN)]
    found = []
    metadata = place / f"{entry.file}{store.METADATA}"
    if not metadata.is_file() or hashlib.sha256(files.read_bytes(metadata)).hexdigest() != entry.metadata_sha256:
        found.append(failed("metadata", f"the metadata beside `{entry.file}` is not the wheel's", fix=_MEND))
    return [*found, *_statement(place, entry, keys, signed=signed)]


def _statement(place: Path, entry: ShelvedWheel, keys: Sequence[PublicKey], *, signed: bool) -> list[Finding]:
    doubt = provenance.doubt(place, entry, keys)
    if doubt is None:
        return []
    there = signed or entry.signed_by or (place / f"{entry.file}{store.STATEMENT}").exists()
    state = State.FAIL if there else State.UNVERIFIED
    return [Finding(id="statement", state=state, found=doubt, fix=_AGAIN)]


def _pages(folder: Path, keys: Sequence[PublicKey], *, signed: bool) -> list[Finding]:
    try:
        wanted = index.pages(entries(folder))
    except RekindleError:
        return [failed("index", "the index cannot be compared: an entry is damaged", fix=_MEND)]
    if not (folder / "wheels").is_dir():
        return []
    for name, text in wanted.items():
        path = folder / name
        if files.is_link(path) or not path.is_file() or files.read_bytes(path) != text.encode("utf-8"):
            return [failed("index", f"`{name}` is not the index of these wheels", fix=_MEND)]
    place = folder / index.SIGNED_LISTING
    if not place.is_file() and not signed:
        return [warned("index", "its list is not signed: other people cannot use this shelf", fix=_MEND)]
    try:
        index.signed_state(wanted[index.LISTING].encode("utf-8"), files.read_bytes(place), keys, name="the list")
    except RekindleError as error:
        return [failed("index", f"other people cannot use this shelf: {error}", fix=_MEND)]
    return [passed("index", f"the index names exactly these {len(entries(folder))} wheels")]


def _metadata(wheel: Path) -> bytes:
    with package.open_package(wheel) as found:
        assert isinstance(found, package.Wheel)
        return found.read(f"{info_folder(found.archive)}/METADATA")


def _done(text: str) -> Finding:
    return passed("mend", text)
