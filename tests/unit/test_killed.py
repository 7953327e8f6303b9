"""Verbs that write, ended without any clean-up at a chosen change of the file system: what the next run makes of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.knowledge import tables
from support import packages
from support.crashes import ends_the_same, fresh
from support.shelves import pure_wheel
from support.small_wheels import make
from tools.observe import bundle

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a copy of this process is made to die")


def made(root: Path, make: Callable[[Path], Path]) -> Path:
    """One wheel for all moments: a zip tells when it was made."""
    place = root.parent / "made"
    return next(place.glob("*.whl")) if place.is_dir() else make(place)


def repair(root: Path) -> list[str]:
    wheel = made(root, make)
    (root / "extra.txt").write_bytes(b"more" * 1000)
    return ["repair", str(wheel), "--add", str(root / "extra.txt"), "-o", str(root / "out")]


def shelf_add(root: Path) -> list[str]:
    wheel = made(root, pure_wheel)
    return ["shelf", "add", str(wheel), "--shelf", str(root / "shelf"), "--replace"]


def shelf_mend(root: Path) -> list[str]:
    assert run(shelf_add(root)) == 0
    wheels = root / "shelf" / "wheels"
    next(wheels.glob("*.metadata")).unlink()
    (root / "shelf" / "shelf.json").write_text("damaged", encoding="ascii")
    return ["shelf", "mend", "--shelf", str(root / "shelf")]


def undo(root: Path) -> list[str]:
    site = root / "env" / "lib" / "python3.11" / "site-packages"
    kept = root / "env" / ".rekindle" / "undo-20270101T000000000000" / "files" / site.relative_to(root / "env")
    for place, version in ((site, "2.1"), (kept, "2.0")):
        info = place / f"torch-{version}.dist-info"
        info.mkdir(parents=True)
        (place / "torch").mkdir()
        names = [f"torch/m{number}.py" for number in range(4)] + [f"torch-{version}.dist-info/RECORD"]
        for name in names[:-1]:
            (place / name).write_text(version, encoding="ascii")
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in names), encoding="ascii")
    (root / "env" / "bin").mkdir()
    (root / "env" / "bin" / "python").write_text("#!/bin/sh\n", encoding="ascii")
    (root / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="ascii")
    (root / "env" / "pip.conf").write_text("[install]\n", encoding="ascii")
    record = {
        "when": "x", "route": "official-wheel", "freeze": ["torch==2.0"], "entries": [], "files": {"pip.conf": None},
        "kept": [{"name": "torch", "version": "2.0", "info": "torch-2.0.dist-info"}],
        "changes": [{"name": "torch", "before": "2.0", "after": "2.1"}],
    }  # fmt: skip
    (root / "env" / ".rekindle" / "undo-20270101T000000000000" / "record.json").write_text(json.dumps(record), "utf-8")
    return ["install", str(root / "env"), "--undo"]


def update(root: Path) -> list[str]:
    source = Path(tables.__file__).parent
    data = bundle.make(source, ["torch/wheel_platforms.json", "cuda/toolkits.json"], date.today().isoformat())
    (root / "b.zip").write_bytes(data)
    return ["knowledge", "update", str(root / "b.zip"), "--sha256", hashlib.sha256(data).hexdigest()]


def toolchain(root: Path) -> list[str]:
    archive = root.parent / "in" / "cuda_nvcc-linux-x86_64-11.8.89-archive.tar.gz"
    if not archive.exists():
        archive.parent.mkdir()
        packages.tarball(archive, {"top/bin/nvcc": b"#!/bin/sh\n", "top/bin/ptxas": b"#!/bin/sh\n", "top/a.h": b"//"})
    return ["toolchain", "install", "cuda==11.8", "--from", str(archive.parent), "--accept-licence"]


VERBS: tuple[Callable[[Path], list[str]], ...] = (repair, shelf_add, shelf_mend, undo, update, toolchain)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same path for every moment: some files name it."""
    monkeypatch.setenv("REKINDLE_UPDATES", str(tmp_path / "root" / "updates"))
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "root" / "toolchain"))
    return tmp_path / "root"


def test_what_lies_about_for_a_while_says_who_made_it() -> None:
    """Nobody sweeps a temporary folder that does not tell whether its maker lives."""
    package = Path(tables.__file__).parents[1]
    made = re.compile(r"TemporaryDirectory|mkdtemp|mkstemp|NamedTemporaryFile")
    found = {path for path in package.rglob("*.py") if made.search(path.read_text(encoding="utf-8"))}
    assert found == set(), "ask `core.files.scratch`"


@pytest.mark.parametrize("prepare", VERBS, ids=lambda prepare: prepare.__name__)
def test_killed_at_any_moment_it_ends_the_same(root: Path, prepare: Callable[[Path], list[str]]) -> None:
    ends_the_same(root, prepare, again=(0, 14) if prepare is undo else (0,))


def test_a_toolchain_that_was_never_tried_is_tried(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended between its last file and its first start: the next run took it as it was."""
    words = fresh(root, toolchain)
    assert run(words) == 0
    (memory,) = (root / "toolchain" / "state" / "offerings").glob("cuda-*.json")
    memory.unlink()
    monkeypatch.setattr("rekindle.toolchain.install.does_not_start", lambda *_: "it needs GLIBC_9.9")
    assert run(words) != 0
    assert not (root / "toolchain" / "kits" / "cuda-11.8").exists()
