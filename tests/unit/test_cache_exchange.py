"""`build --export-cache` and `--import-cache`: what may travel, and what is refused."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import compiler_cache as exchange
from rekindle.build.configure.compiler_cache import CacheIdentity, CompilerIdentity
from rekindle.build.configure.options import Options
from rekindle.build.configure.request import BuildRequest, Compiler
from rekindle.core import run
from rekindle.core.errors import BadInput, NotFound, UsageError

ENTRY = "b/7/4b19v5lm5ill9tq7dehmqa10di3c6doR"
OWN = CacheIdentity(
    launcher="ccache version 4.7.5",
    system="linux",
    arch="x86_64",
    build="/work",
    source="/src",
    compilers={"cxx": CompilerIdentity(path="/usr/bin/g++", sha256="a" * 64)},
    arch_list="3.5",
    options={"USE_CUDA": "ON"},
)


def filled(root: Path, data: bytes = b"object") -> Path:
    place = root / exchange.FOLDER / ENTRY
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    (root / exchange.FOLDER / "b" / "stats").write_text("1", encoding="utf-8")
    return root


def exported(folder: Path) -> Path:
    exchange.export(folder / "cache.tar", filled(folder / "there"), OWN)
    return folder / "cache.tar"


def test_what_is_exported_comes_out_the_same(tmp_path: Path) -> None:
    done = exchange.bring(exported(tmp_path), tmp_path / "here", OWN)
    assert (done.entries, done.size) == (1, 6)
    assert (tmp_path / "here" / exchange.FOLDER / ENTRY).read_bytes() == b"object"
    assert not (tmp_path / "here" / exchange.FOLDER / "b" / "stats").exists()
    assert done.sha256 in exchange.describe_exchange("imported", done)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"build": "/elsewhere"}, "build: `/work` there, `/elsewhere` here"),
        ({"arch_list": "6.1"}, "arch_list"),
        ({"options": {"USE_CUDA": "OFF"}}, "option USE_CUDA: `ON` there, `OFF` here"),
        ({"compilers": {"cxx": CompilerIdentity(path="/usr/bin/g++", sha256="b" * 64)}}, "is another file there"),
        ({"compilers": {}}, "compiler cxx: only there"),
        ({"launcher": "ccache version 4.10"}, "launcher"),
    ],
    ids=["path", "targets", "option", "compiler", "no compiler", "ccache"],
)
def test_another_compiler_path_or_option_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    other = msgspec.structs.replace(OWN, **change)
    with pytest.raises(BadInput, match="another build") as caught:
        exchange.bring(exported(tmp_path), tmp_path / "here", other)
    assert words in caught.value.message
    assert not (tmp_path / "here").exists()


def test_what_this_machine_compiled_is_not_replaced(tmp_path: Path) -> None:
    here = filled(tmp_path / "here", b"mine")
    exchange.bring(exported(tmp_path), here, OWN)
    assert (here / exchange.FOLDER / ENTRY).read_bytes() == b"mine"


def with_member(folder: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    """A cache with one more member, as somebody might send it."""
    path = exported(folder)
    with tarfile.open(path, "a") as packed:
        member.size = len(data)
        packed.addfile(member, io.BytesIO(data))
    return path


def linked(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../../evil"),
        tarfile.TarInfo("/etc/evil"),
        tarfile.TarInfo("b/7/../../../x" + "a" * 30 + "R"),
        tarfile.TarInfo("ccache.conf"),
        linked(ENTRY[:-2] + "xR"),
    ],
    ids=["above", "absolute", "dots", "configuration", "link"],
)
def test_nothing_but_entries_of_a_cache_is_unpacked(tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(BadInput, match="no entry of a cache"):
        exchange.bring(with_member(tmp_path, member), tmp_path / "here", OWN)
    # What was good in it before it was refused is not kept either.
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]


def test_an_entry_too_many_is_seen(tmp_path: Path) -> None:
    path = with_member(tmp_path, tarfile.TarInfo(ENTRY.replace("4b", "5b")), b"more")
    with pytest.raises(BadInput, match="2 of 1 entries"):
        exchange.bring(path, tmp_path / "here", OWN)
    assert not [each for each in (tmp_path / "here").rglob("*") if each.is_file()]


@pytest.mark.parametrize("data", [b"", b"not a tar at all" * 100])
def test_what_is_no_cache_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cache.tar"
    path.write_bytes(data)
    with pytest.raises(BadInput):
        exchange.bring(path, tmp_path / "here", OWN)
    with pytest.raises(NotFound):
        exchange.bring(tmp_path / "none", tmp_path / "here", OWN)


def test_an_empty_cache_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="empty"):
        exchange.export(tmp_path / "cache.tar", tmp_path, OWN)


def test_only_ccache_can_exchange(tmp_path: Path) -> None:
    request = BuildRequest(
        source="/s",
        system="linux",
        arch="x86_64",
        python="py",
        compiler=Compiler(kind="gcc", cxx="g", c="g", cuda_host="g"),
    )
    for launcher in (None, "/usr/bin/sccache"):
        with pytest.raises(UsageError, match="through ccache"):
            exchange.identity(request, Options(resolved=()), tmp_path, launcher)


@pytest.mark.skipif(
    not (shutil.which("ccache") and shutil.which("cc")), reason="UNVERIFIED: no ccache and C compiler here"
)
def test_a_real_ccache_takes_what_was_imported(tmp_path: Path) -> None:
    """Compiled on one side, deleted, imported, and taken as a hit on the other."""
    import os

    source, root = tmp_path / "a.c", tmp_path / "work"
    root.mkdir()
    source.write_text("int f(int x) { return x + 1; }\n", encoding="utf-8")
    environ = {**os.environ, **exchange.variables(root)}

    def compiled() -> str:
        assert run.call(["ccache", "cc", "-c", source, "-o", root / "a.o"], env=environ, cwd=root).ok
        return run.call(["ccache", "--print-stats"], env=environ).out

    assert "cache_miss\t1" in compiled()
    exchange.export(tmp_path / "cache.tar", root, OWN)
    shutil.rmtree(root / exchange.FOLDER)
    exchange.bring(tmp_path / "cache.tar", root, OWN)
    said = compiled()
    assert "cache_miss\t0" in said
    assert "direct_cache_hit\t1" in said
