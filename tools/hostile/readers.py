"""Which generator feeds which reader, and what the answer is held against."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import posixpath
import random
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from rekindle.build.configure import cmake_result, request
from rekindle.build.run import journal as build_journal
from rekindle.core import signing
from rekindle.core.errors import RekindleError
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.fleet import job
from rekindle.formats import binary, elf, ninja_log, package, sections, static, unpacking
from rekindle.formats.access import Buffer
from rekindle.formats.archive import Archive
from rekindle.machine import snapshot
from rekindle.source import patches
from rekindle.source import request as tarball
from rekindle.stack import plan
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.inspect import identity, integrity
from rekindle.wheels.inspect.identity import read_binaries
from tools.hostile import code, handed, judged, tars, texts, zips
from tools.hostile import elf as elves
from tools.hostile import pe as pes
from tools.observe import field_reports

ROOT = Path(__file__).parents[2]
# What docs/concepts/untrusted-input.md promises about archives.
MOST_RATIO, MOST_SPARE = 50, 64 << 20


class Fault(Exception):
    """The reader answered, and the answer is wrong."""


class Reader(NamedTuple):
    """`share` is how many of a hundred files are for it: more for those that are quick to make and to read."""

    make: Callable[[random.Random], bytes]
    read: Callable[[bytes], object]
    share: int = 4


def library(data: bytes) -> None:
    source = Buffer(data, "lib.so")
    found = binary.read(source, symbols=True, units=True, texts=("numpy",))
    for more in (sections.gpu_code, sections.numpy_abi, elf.units, static_parts):
        try:
            more(source)
        except RekindleError:
            continue
    closure([found])
    identity.of_binaries([found])


def static_parts(source: Buffer) -> None:
    for _ in static.parts(source):
        pass


def wheel(data: bytes) -> None:
    """Read as `inspect` reads it; what is not refused must be to `zipfile`, which pip uses, the same files."""
    archive = Archive(Buffer(data, "demo-1.0-py3-none-any.whl"))
    found = package.Wheel(archive)
    read_binaries(found)
    integrity.record_findings(found)
    integrity.name_findings(found)
    identity.identify(found, [])
    ours = {name: _contents(archive, name) for name in archive.members}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as theirs:
            listed = [info for info in theirs.infolist() if not info.is_dir()]
            other = {info.filename: _theirs(theirs, info) for info in listed}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise Fault(f"we read it, zipfile does not: {error}") from error
    if len(listed) != len(other):
        raise Fault("a name is listed twice: which of the two is installed depends on the installer")
    if ours != other:
        raise Fault("we read other files than zipfile does")


def _contents(archive: Archive, name: str) -> bytes | None:
    try:
        return archive.read(name, limit=1 << 20)
    except RekindleError:
        return None


def _theirs(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | None:
    if info.file_size > 1 << 20:
        return None
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError):
        return None


def packed_library(data: bytes) -> None:
    """Every library of a wheel; what was not refused may not unpack to much more than it is."""
    archive = Archive(Buffer(data, "demo-1.0-py3-none-any.whl"))
    found = package.Wheel(archive)
    for name in found.files:
        found.binary(name, symbols=True)
    unpacked = sum(member.size for member in archive.members.values())
    if unpacked > MOST_SPARE + MOST_RATIO * len(data):
        raise Fault(f"it unpacks to {unpacked:,} bytes and was not refused")


def tar(data: bytes) -> None:
    """Unpacked into a folder; nothing may be written or lead outside of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "in", "tree")
        root.parent.mkdir()
        (root.parent / "t.tar.gz").write_bytes(data)
        try:
            tarball.unpack(str(root.parent / "t.tar.gz"), root, sha256=None, say=lambda _: None)
        finally:
            if {path.name for path in Path(folder).iterdir()} != {"in"}:
                raise Fault("something was written outside")
        for path in root.rglob("*"):
            if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
                raise Fault(f"`{path.name}` leads outside")


def in_file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes], None]:
    def reading(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            read(path)

    return reading


def parts_of_a_toolkit(path: Path) -> None:
    """Every member of a package as `toolchain` takes it: names and links stay inside, the bytes are counted."""
    for entry in unpacking.entries(path):
        size = sum(len(piece) for piece in entry.data)
        if entry.link is None and size != entry.size:
            raise Fault(f"`{entry.name[:60]}` has {size} bytes, not {entry.size}")
        lead = posixpath.normpath(posixpath.join(posixpath.dirname(entry.name), entry.link or ""))
        if entry.name.startswith("/") or lead.startswith(("..", "/")):
            raise Fault(f"`{entry.name[:60]}` leads outside")


def a_sent_source(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job.unpack_source(data, Path(folder, "in"))
        if {path.name for path in Path(folder).iterdir()} != {"in"}:
            raise Fault("something was written outside")


def cmake_texts(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    cmake_result.parse_cache(text)
    cmake_result.parse_summary(text)
    cmake_result.parse_ninja(text)
    patches.requirements(data)


def wheel_texts(data: bytes) -> None:
    archive = Archive(Buffer(data, "demo-1.0-py3-none-any.whl"))
    found = package.Wheel(archive)
    identity.identify(found, [])
    integrity.record_findings(found)
    integrity.info_findings(found)
    integrity.name_findings(found)


def texts_in_wheel(dice: random.Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, make in (("METADATA", texts.metadata), ("WHEEL", texts.metadata), ("RECORD", texts.record)):
            archive.writestr(f"demo-1.0.dist-info/{name}", make(dice))
        archive.writestr("torch/version.py", texts.line(dice, 30))
    return stream.getvalue()


def _snapshots() -> list[object]:
    return [json.loads(path.read_bytes()) for path in sorted((ROOT / "tests" / "machines").glob("*.json"))]


def snapshots(dice: random.Random) -> bytes:
    global _good
    _good = _good or _snapshots()
    return texts.as_json(dice, dice.choice(_good))


_good: list[object] = []


@lru_cache
def _a_plan() -> object:
    """A real one, as `plan -o` writes it."""
    from rekindle.cli.main import run

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder, "plan.toml")
        run(["plan", "--gpu", "Tesla K40c", "--os", "linux", "-o", str(path)])
        return msgspec.toml.decode(path.read_bytes())


def plans(dice: random.Random) -> bytes:
    import tomli_w

    good = _a_plan()
    try:
        data = tomli_w.dumps(texts.twisted(dice, good)).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]
    except (TypeError, AttributeError, ValueError):
        data = texts.as_json(dice, good)
    return data + (b"x = " + b"[" * dice.choice([10, 2000]) if dice.random() < 0.1 else b"")


READERS: dict[str, Reader] = {
    "elf": Reader(lambda dice: elves.build(elves.random_recipe(dice)), library, 8),
    "elf in a wheel": Reader(lambda dice: zips.packed(dice, elves.build(elves.packed_recipe(dice))), packed_library, 8),
    "pe": Reader(lambda dice: pes.build(pes.random_recipe(dice)), library),
    "pe in a wheel": Reader(lambda dice: zips.packed(dice, pes.build(pes.random_recipe(dice)), "dll"), packed_library),
    "fatbin": Reader(code.fatbin, library),
    "static archive": Reader(code.static, library),
    "zip": Reader(zips.made, wheel, 30),
    "zip bomb": Reader(zips.bomb, packed_library, 1),
    "texts in a wheel": Reader(texts_in_wheel, wheel_texts),
    "tar": Reader(tars.made, tar),
    "part of a toolkit": Reader(tars.made, in_file(parts_of_a_toolkit, "part.tar.gz")),
    "source for a worker": Reader(lambda dice: gzip.decompress(tars.made(dice)), a_sent_source, 2),
    "ninja log": Reader(texts.ninja_log, ninja_log.parse),
    "cmake cache": Reader(texts.cmake_cache, cmake_texts),
    "build.ninja": Reader(texts.build_ninja, cmake_texts),
    "log": Reader(texts.log, diagnose_text),
    "snapshot": Reader(snapshots, snapshot.read),
    "plan": Reader(plans, in_file(plan.read, "plan.toml")),
    "journal": Reader(texts.journal, in_file(build_journal.read, "journal.jsonl")),
    "install record": Reader(
        handed.as_json(handed.RECORD), handed.in_folder("env/.rekindle/undo-2027/record.json", handed.undo)
    ),
    "toolchain manifest": Reader(handed.as_json(handed.MANIFEST), handed.in_folder("m.json", handed.kits)),
    "factory matrix": Reader(handed.as_toml(lambda: handed.MATRIX), handed.in_folder("matrix.toml", handed.matrix)),
    "list of NVIDIA's archives": Reader(handed.as_json(handed.REDISTRIB), handed.redistributed),
    "list of a conda channel": Reader(handed.as_json(handed.CHANNEL), handed.channel),
    "entry of a shelf": Reader(
        handed.as_json(handed.ENTRY), handed.in_folder(f"shelf/wheels/{handed.WHEEL}.shelf.json", handed.shelved)
    ),
    "list of a shelf": Reader(
        handed.as_json({"schema": "rekindle.shelf/1", "wheels": [handed.ENTRY], "base": "x"}), handed.others_shelf
    ),
    "bundle of tables": Reader(handed.bundle, handed.in_folder("b.zip", handed.taken), 2),
    "git configuration": Reader(handed.git_settings, handed.tree_settings, 2),
    "Debian package": Reader(handed.deb, in_file(parts_of_a_toolkit, "part.deb")),
    "packed log": Reader(handed.packed_log, in_file(handed.logged, "build.log.gz"), 2),
    "cache of objects": Reader(handed.cache, handed.in_folder("c.tar", handed.brought)),
    "plan with lies": Reader(handed.as_toml(handed.a_plan), handed.in_folder("plan.toml", handed.planned)),
    "index of plans": Reader(handed.as_toml(lambda: handed.LAB), handed.in_folder("nodes.toml", handed.nodes)),
    "plan of a fleet": Reader(handed.as_json(handed.FLEET), handed.in_folder("fleet/plan.json", handed.fleet)),
    "message of a worker": Reader(handed.as_json(handed.MESSAGE), handed.message),
    "script": Reader(judged.script, handed.in_folder("given", judged.reviewed)),
    "environment": Reader(judged.environment, handed.in_folder("given.json", judged.audited)),
    "statement of a wheel": Reader(judged.signed(signing.IN_TOTO, judged._statement), judged.stated),
    "list of a factory": Reader(handed.as_json(judged.RECORDS), handed.in_folder("site/shelf.json", judged.brought)),
    "build file": Reader(handed.as_toml(lambda: judged.BUILD_FILE), handed.in_folder("b.toml", request.read)),
    "field report": Reader(handed.as_json(handed.FIELD_REPORT), in_file(field_reports.read_share, "report.json")),
}
