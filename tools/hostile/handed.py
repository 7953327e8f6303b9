"""Files that people hand each other: good ones in which a path, a hash, an option, a date or a size is a lie."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from rekindle.build.configure import compiler_cache
from rekindle.core import codec, signing
from rekindle.core.errors import BadInput
from rekindle.core.untrusted import PipRequirement, PlainFileName
from rekindle.core.version import Version
from rekindle.diagnose.diagnosis import diagnose_file
from rekindle.fleet import matrix_file
from rekindle.fleet import state as fleet_journal
from rekindle.fleet.job import JobOrder, JobResult
from rekindle.fleet.state import FleetState, status_of
from rekindle.install import apply, record
from rekindle.knowledge import tables, updates
from rekindle.model.environment import Environment
from rekindle.source import git, tree
from rekindle.stack import lab
from rekindle.stack import plan as plans
from rekindle.stack.route import Route
from rekindle.toolchain import command as toolchain
from rekindle.toolchain.model import kit_id
from rekindle.toolchain.providers import conda, redistrib
from rekindle.toolchain.store import Store
from rekindle.wheels.shelf import health, index, remote, shelf
from rekindle.wheels.verify import signed_report

NULLS = "0" * 64
LIES: tuple[Any, ...] = (
    "../../x", "../../../new", "..", "/etc/passwd", "..\\..\\x", "C:x", "C:\\x", "a:stream", "con", "x\0y", "x\ny",
    "", ".", "~/x",
    "--index-url=http://127.0.0.1:9", "-r", "x y", "$(touch x)", "`id`", "${{ x }}", "x;id", "%PATH%", "\x1b[31m",
    "\u202e", "x @ http://127.0.0.1:9/x", "file:///etc/passwd", "\\\\host\\share", "9999-12-31", "1e999", NULLS,
    "g" * 64, "9" * 400, "9" * 5000, "1." * 3000 + "1", "2.7.1",
    "sm_99999999", -1, 0, 1 << 70, 1e308, True, None, [], {}, ["x"], {"x": "../x"},
)  # fmt: skip


class Leak(Exception):
    """Something was read, written or asked for outside of what was handed over."""


def spoiled(dice: random.Random, good: Any) -> Any:
    """The same with a few leaves or branches replaced by lies."""
    changed = json.loads(json.dumps(good))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 4))):
        places = list(_places(changed))
        if not places:
            return dice.choice(LIES)
        holder, key = dice.choice(places)
        if isinstance(holder, dict) and dice.random() < 0.15:
            holder[str(dice.choice(LIES))] = holder.pop(key)
        elif dice.random() < 0.05:
            del holder[key]
        else:
            holder[key] = json.loads(json.dumps(dice.choice(LIES)))
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def as_json(good: Any) -> Callable[[random.Random], bytes]:
    def make(dice: random.Random) -> bytes:
        text = json.dumps(spoiled(dice, good))
        return text[: dice.randrange(1, len(text) + 1) if dice.random() < 0.05 else None].encode()

    return make


def as_toml(good: Callable[[], Any]) -> Callable[[random.Random], bytes]:
    def make(dice: random.Random) -> bytes:
        import tomli_w

        try:
            return tomli_w.dumps(_without_none(_sealed(spoiled(dice, good())))).encode()
        except (TypeError, AttributeError, ValueError):
            return b"x = [" * dice.choice([1, 500])

    return make


def _sealed(value: Any) -> Any:
    """Who edits a plan can seal it as well."""
    with contextlib.suppress(BadInput, AttributeError):
        plan = codec.from_builtins(value, plans.Plan)
        value["seal"] = {name: plans._sealed(plan, name) for name in plans.LOCKED}
    return value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value if each is not None] if isinstance(value, list) else value


@contextlib.contextmanager
def guarded() -> Iterator[Path]:
    """A folder to work in, with things beside it that must stay as they are."""
    with tempfile.TemporaryDirectory() as name:
        around = Path(name).resolve()
        inside = around / "a" / "b" / "in"
        inside.mkdir(parents=True)
        for folder in (around, around / "a", around / "a" / "b"):
            (folder / "x").write_text("precious", encoding="ascii")
        moved = {"REKINDLE_UPDATES": inside / "updates", "XDG_DATA_HOME": inside / "data"}
        before = {key: os.environ.get(key) for key in moved}
        os.environ.update({key: str(value) for key, value in moved.items()})
        try:
            yield inside
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.update({key: value})
            for folder, names in ((around, {"x", "a"}), (around / "a", {"x", "b"}), (around / "a" / "b", {"x", "in"})):
                there = {path.name for path in folder.iterdir()}
                if there != names or (folder / "x").read_text(encoding="ascii") != "precious":
                    raise Leak(f"changed outside: {sorted(there)}")


def in_folder(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def reading(data: bytes) -> None:
        with guarded() as folder:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            read(path)

    return reading


# --- what a good one looks like --------------------------------------------------------------------------------------

RECORD = {
    "when": "20270101T000000", "route": "official-wheel", "freeze": ["numpy==1"], "entries": ["x"],
    "kept": [], "conda_revision": None,
    "changes": [{"name": "torch", "before": None, "after": "2.1"}], "files": {"pip.conf": "x", "lib/y": None},
}  # fmt: skip
_PART = {
    "name": "x",
    "version": "1",
    "file": "x.tar.xz",
    "size": 1,
    "sha256": NULLS,
    "origin": "redistrib:cuda/x.tar.xz",
}
MANIFEST = {
    "schema": toolchain.MANIFEST_SCHEMA,
    "kits": [{"digest": NULLS, "offering": {
        "provider": "redistrib", "name": "cuda", "version": "11.8", "variant": "cu11", "layout": "redistrib",
        "place": {"system": "linux", "arch": "x86_64"}, "parts": [_PART, _PART], "full": True, "gone": ["x"],
    }}],
}  # fmt: skip
MATRIX = {
    "project": ["torch", "mine"], "torch": ["2.7", "2.8"], "cuda": ["11.8"], "gpu": ["GTX 1080", "Tesla K40c"],
    "python": ["3.11"], "machines": ["m.json"], "exclude": [{"torch": "2.7"}],
    "include": [{"torch": "2.3", "gpu": "Tesla K80"}], "override": [{"when": {"torch": "2.8"}, "options": {"A": "1"}}],
    "projects": {"mine": {"source": "src", "minutes": 5}},
}  # fmt: skip
REDISTRIB = {
    "release_date": "2022-09-30", "release_label": "11.8.0",
    "cuda_nvcc": {"name": "CUDA NVCC", "license": "CUDA Toolkit", "version": "11.8.89", "linux-x86_64": {
        "relative_path": "cuda_nvcc/linux-x86_64/x.tar.xz", "sha256": NULLS, "md5": "0", "size": "5",
    }, "windows-x86_64": {"cuda11": {"relative_path": "a/y.zip", "sha256": NULLS, "size": "5"}}},
}  # fmt: skip
CHANNEL = {
    "info": {"subdir": "linux-64"},
    "packages": {"x-1.0-0.tar.bz2": {"name": "x", "version": "1.0", "build_number": 0, "sha256": NULLS, "size": 5}},
    "packages.conda": {"x-1.1-0.conda": {"name": "x", "version": "1.1", "build_number": 0, "sha256": NULLS, "size": 5}},
}  # fmt: skip
WHEEL = "torch-2.7.1-cp311-cp311-linux_x86_64.whl"
ENTRY = {
    "project": "torch", "version": "2.7.1", "file": WHEEL, "sha256": NULLS, "size": 5, "metadata_sha256": NULLS,
    "state": "PASS", "torch": "2.7.1", "cuda": "11.8", "cudnn": "8.7", "python": "3.11", "platform": "linux_x86_64",
    "tags": ["cp311-cp311-linux_x86_64"], "targets": {"sm_61": 3}, "checked_on": ["GTX 1080 (6.1)"], "is_torch": True,
    "requires_python": ">=3.8", "added_at": "2026-11-16T00:00:00Z", "yanked": None, "code": [],
}  # fmt: skip
_LOCK = {"project": "torch", "kind": "torch", "torch": "2.7.1", "cuda": "11.8", "arch_list": "6.1", "python": "3.11"}
_JOB = {
    "name": "x", "state": "build", "key": NULLS, "cells": [{"project": "torch"}], "needs": [NULLS], "cards": ["x"],
    "lock": {**_LOCK, "system": "linux", "machine": "x86_64"}, "wheel": None, "estimate": {"minutes": 5},
}  # fmt: skip
_TOTALS = "build done not_needed impossible minutes wall_minutes workers unknown disk_gb download_gb"
FLEET = {
    "plan": {"knowledge": "x", "jobs": [_JOB], "questions": 1, "totals": dict.fromkeys(_TOTALS.split(), 1)},
    "sources": {NULLS: "src"},
}
_MADE = {"name": "w/dist/x.whl", "sha256": NULLS, "size": 1}
MESSAGE = {
    "order": {"key": NULLS, "name": "x", "lock": _JOB["lock"], "source": NULLS, "torch_wheel_name": WHEEL},
    "result": {"key": NULLS, "done": True, "seconds": 1.0, "wheel": _MADE, "report": _MADE, "log": "x"},
    "event": {"at": "2026-11-16T00:00:00Z", "event": "done", "key": NULLS, "wheel": WHEEL, "sha256": NULLS, "log": "x"},
}  # fmt: skip
FIELD_REPORT = {
    "schema": signed_report.SCHEMA, "made_at": "2026-11-16", "wheel": WHEEL, "wheel_sha256": NULLS,
    "report_sha256": NULLS,
    "torch": "2.7.1", "cuda": "11.8", "targets": {"sm_61": 1}, "system": "linux", "machine": "x86_64", "state": "PASS",
    "cards": [{"name": "GTX 1080", "capability": "6.1"}], "checks": [{"id": "V1", "state": "PASS", "card": "GTX 1080"}],
}  # fmt: skip
LAB = {"schema": lab.SCHEMA, "hosts": {"here": "plan.toml", "there": "plan.toml"}, "without": {"third": "no card"}}


@lru_cache
def a_plan() -> Any:
    """A real one, as `plan -o` writes it."""
    from rekindle.cli.main import run

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder, "plan.toml")
        run(["plan", "--gpu", "GTX 1080", "--os", "linux", "-o", str(path)])
        found = msgspec.toml.decode(path.read_bytes())
    return {**found, "numpy": "numpy<2", "conda": ["pytorch=2.4.1=cuda*"], "requires": ["cmake<4"], "seal": {}}


# --- what is done with them ------------------------------------------------------------------------------------------


def undo(path: Path) -> None:
    """`path` is the record of an environment."""
    root = path.parents[2]
    site, programs = root / "site", root / "bin"
    info = site / "torch-2.1.dist-info"
    for folder in (info, programs, path.parent / "files"):
        folder.mkdir(parents=True)
    (info / "RECORD").write_text("../../x,,\ntorch/x.py,,\n", encoding="ascii")
    place = Environment(
        root=str(root), os="linux" if os.name != "nt" else "windows", kind="venv", python=Version("3.11"),
        site_packages=(str(site),), interpreter=str(programs / "python"), has_headers=False,
    )  # fmt: skip
    record.restore(place, path.parent)


def kits(path: Path) -> None:
    store = Store(path.parent / "store")
    for entry in toolchain.read_manifest(path).kits:
        places = [store.kits_folder / kit_id(entry.offering), *(store.archive(part) for part in entry.offering.parts)]
        if not all(place.resolve().is_relative_to(store.root.resolve()) for place in places):
            raise Leak("a kit would lie outside")


def matrix(path: Path) -> None:
    (path.parent / "m.json").write_text("{}", encoding="ascii")
    found = matrix_file.read(path)
    list(itertools.islice(matrix_file.cells(found), 300))
    matrix_file.snapshots_of(found, path.parent)


def channel(data: bytes) -> None:
    found = conda.read(data, "repodata.json")
    for version in (None, Version("1.0")):
        name = conda.choose(found, "x", version)
        if name is not None:
            PlainFileName(name)


def shelved(path: Path) -> None:
    """`path` is the entry of a wheel."""
    path.with_name(WHEEL).write_bytes(b"hello")
    root = path.parent.parent
    health.check(root)
    shelf.offers(root)
    index.pages(shelf.entries(root))


@lru_cache
def _key() -> signing.SigningKey:
    with tempfile.TemporaryDirectory() as folder:
        return signing.make_key(Path(folder, "key.pem"))


def others_shelf(data: bytes) -> None:
    """A list that a trusted key has signed, and its statements that are none."""
    state = {"sha256": hashlib.sha256(data).hexdigest(), "number": 5, "expires": "2099-01-01T00:00:00Z"}
    signed = codec.to_json(_key().sign(json.dumps(state).encode(), index._KIND)).encode()
    asked: list[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        return {index.LISTING: data, index.SIGNED_LISTING: signed}.get(url.rpartition("/")[2], b"{}")

    with guarded():
        remote.offers("https://wheels.example.org", [_key().public], get)
    if any(not re.fullmatch(r"https://wheels\.example\.org/[\w/.%+-]+", url) or "/.." in url for url in asked):
        raise Leak(f"asked for {asked}")


def bundle(dice: random.Random) -> bytes:
    import tomli_w

    wheels = msgspec.toml.decode(tables.raw("torch/community_wheels.toml"))
    table = _without_none(spoiled(dice, wheels) if dice.random() < 0.5 else wheels)
    rows = (tomli_w.dumps(table) if isinstance(table, dict) else str(table)).encode("utf-8", "replace")
    content = {
        "torch/community_wheels.toml": rows,
        "torch/wheel_platforms.json": tables.raw("torch/wheel_platforms.json"),
    }
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    good = {"schema": updates.SCHEMA, "made_at": date.today().isoformat(), "tables": hashes}
    methods = (*(zipfile.ZIP_DEFLATED,) * 8, zipfile.ZIP_STORED, zipfile.ZIP_LZMA)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", dice.choice(methods)) as made:
        made.writestr("bundle.json", json.dumps(spoiled(dice, good)))
        for name, data in content.items():
            made.writestr(str(dice.choice(LIES)).replace("\0", "") or "x" if dice.random() < 0.1 else name, data)
    return _damaged(dice, stream.getvalue()) if dice.random() < 0.5 else stream.getvalue()


def taken(path: Path) -> None:
    updates.take(path, hashlib.sha256(path.read_bytes()).hexdigest())


def _damaged(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((0, 0, 1, 3)) if changed else 0):
        changed[dice.randrange(len(changed))] = dice.getrandbits(8)
    return bytes(changed[: dice.randrange(len(changed) + 1)] if dice.random() < 0.1 else changed)


def tarball(dice: random.Random, names: list[str] | None = None) -> bytes:
    """A plain tar with files and links, some of which lie."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names or ["./usr/bin/x", "./usr/lib/y", "./usr/include/z.h"]:
            info = tarfile.TarInfo(str(dice.choice(LIES)) if dice.random() < 0.1 else name)
            info.type = dice.choice((tarfile.REGTYPE,) * 12 + (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE))
            info.linkname = str(dice.choice(("../bin/x", "x", *LIES)))
            data = b"x" * dice.choice((0, 5, 600)) if info.type == tarfile.REGTYPE else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def deb(dice: random.Random) -> bytes:
    kind, pack = dice.choice((("xz", lzma.compress), ("gz", gzip.compress), ("bz2", lambda data: data)))
    members = [("debian-binary", b"2.0\n"), ("control.tar.gz", b"x"), (f"data.tar.{kind}", pack(tarball(dice)))]
    out = b"!<arch>\n"
    for name, data in members:
        size = str(dice.choice(LIES))[:10] if dice.random() < 0.05 else str(len(data))
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode("utf-8", "replace") + data
        out += b"\n" * (len(data) % 2)
    return _damaged(dice, out)


def packed_log(dice: random.Random) -> bytes:
    text = b"nvcc fatal   : Unsupported gpu architecture 'compute_35'\n" * dice.choice((1, 50))
    parts = [gzip.compress(text)] * dice.choice((1, 2, 10))
    return _damaged(dice, b"".join(parts) + dice.choice((b"", b"rubbish", b"\0" * 600)))


_ENTRY_NAME = "b/7/4b19v5lm5ill9tq7dehmqa10di3c6doR"
_OWN = compiler_cache.CacheIdentity(
    launcher="ccache version 4", system="linux", arch="x86_64", build="/w", source="/s", compilers={}, arch_list="",
    options={},
)  # fmt: skip


def cache(dice: random.Random) -> bytes:
    body = tarball(dice, [_ENTRY_NAME, _ENTRY_NAME.replace("7", "8")])
    with tarfile.open(fileobj=io.BytesIO(body)) as read:
        size = sum(member.size for member in read)
    whole = {"schema": compiler_cache.SCHEMA, "identity": codec.to_builtins(_OWN), "entries": 2, "size": size}
    text = json.dumps(spoiled(dice, whole)).encode()
    info = tarfile.TarInfo("manifest.json")
    info.size = len(text)
    return _damaged(dice, info.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512) + body)


def brought(path: Path) -> None:
    compiler_cache.bring(path, path.parent / "build", _OWN)


def planned(path: Path) -> None:
    """What pip and conda would be asked for by a plan is nothing but packages."""
    plan = plans.read(path)
    plans.check_seal(plan)
    request = apply.request_of(Route(**plan.facts(), on_configured_index=plan.index_url is None))
    for word in (*request.first, *request.requirements, *plan.requires):
        PipRequirement(word)
    if any(word.startswith("-") or ":" in word for word in plan.conda):
        raise Leak(f"conda is asked for {plan.conda}")
    if request.index_url and not request.index_url.startswith("https://download.pytorch.org/whl/"):
        raise Leak(f"pip asks {request.index_url}")


def fleet(path: Path) -> None:
    state = FleetState(path.parent)
    status_of(state, running=False)
    keys = tuple(job.key for job in state.planned().plan.jobs if job.key)
    state.ask_cancel(keys)


def message(data: bytes) -> None:
    kinds: dict[str, Any] = {"order": JobOrder, "result": JobResult, "event": fleet_journal.FleetEvent}
    for name, value in codec.from_json(data, dict[str, Any]).items():
        codec.from_builtins(value, kinds.get(name, dict), name="the message")


def nodes(path: Path) -> None:
    found = lab.own_plan(path.parent, "here")
    if found.parent.resolve() != path.parent.resolve():
        raise Leak(f"{found} is another folder's")


_GIT_LINES = (
    '[submodule "a"]', "\tpath = third_party/a", "\turl = ../a.git", '[submodule "b"]', "\tpath = third_party/b",
    "\turl = https://example.org/b.git", "[core]", "\tsshCommand = touch x", "[include]", "\tpath = ../x", "# c", "; d",
    '[submodule "c"] path = third_party/b/c', "\tpath=\"third_party/b\"", "\tPATH = third_party/b", "path", "]", "[",
    '[submodule "x\\"]"]', "\tpath = third_party/b ; note", "\tpath = third_party/\\", "b", "\tfsmonitor = touch x",
)  # fmt: skip


def git_settings(dice: random.Random) -> bytes:
    lines = [dice.choice(_GIT_LINES) for _ in range(dice.choice((1, 4, 12)))]
    return dice.choice(("\n", "\n", "\r\n", "\n\0")).join(lines).encode() + dice.choice((b"\n", b"", b"\\"))


def tree_settings(data: bytes) -> None:
    """As `.gitmodules`, as HEAD and as a list of refs of a tree; what git says of the first is what we say."""
    with guarded() as root:
        (root / ".git").mkdir()
        (root / ".gitmodules").write_bytes(data)
        for name in ("HEAD", "packed-refs", "config", "commondir"):
            led = name == "HEAD" and len(data) % 2
            (root / ".git" / name).write_bytes(b"ref: refs/heads/../../x\n" if led else data)
        tree.head(root)
        for path in git.empty(root):
            if not (root / path).resolve().is_relative_to(root):
                raise Leak(f"`{path}` is outside")
        text = data.decode("utf-8", "surrogateescape")
        kept = git.without(text, ["third_party/b"]).encode("utf-8", "surrogateescape")
        before, after = (_git_says(each, root) for each in (data, kept))
        lost = {path for path in before if not git.outside(path, ["third_party/b"])} - after
        if before and after and lost and b"\\" not in data and b"\0" not in data:
            raise Leak(f"git still knew {lost}")


def _git_says(data: bytes, root: Path) -> set[str]:
    git = shutil.which("git")
    if git is None:
        return set()
    (root / "asked").write_bytes(data)
    words = [
        git,
        "config",
        "--file",
        str(root / "asked"),
        "--no-includes",
        "-z",
        "--get-regexp",
        r"^submodule\..*\.path$",
    ]
    said = subprocess.run(words, capture_output=True, check=False, env={"PATH": os.environ.get("PATH", "")}, timeout=60)
    rows = said.stdout.decode("utf-8", "replace").split("\0") if said.returncode == 0 else []
    return {row.partition("\n")[2] for row in rows if row}


def redistributed(data: bytes) -> None:
    for one in redistrib.read(data, "redistrib_11.8.0.json").archives:
        PlainFileName(one.file)


def logged(path: Path) -> None:
    diagnose_file(path)
