"""Values of files that people hand each other: a hash, a name, a path that is none is refused where it is read."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.cli.main import run
from rekindle.core import codec
from rekindle.core.errors import BadInput, FetchFailed, NotFound
from rekindle.core.untrusted import Commit, InsidePath, PlainFileName, Sha256
from rekindle.fleet.order import JobOrder, JobResult
from rekindle.source.checkout import Mark
from rekindle.source.journal import PatchRecord
from rekindle.toolchain import command
from rekindle.toolchain.model import Part
from rekindle.toolchain.providers import debian, index, redistrib
from rekindle.toolchain.providers.contract import ProviderSettings

NULLS = "0" * 64
links = pytest.mark.skipif(os.name == "nt", reason="not everybody may make links there")

# Each leaves its folder, or is another file than it seems, on some system.
OUTSIDE = [
    "",
    ".",
    "..",
    "../x",
    "a/../x",
    "/etc/passwd",
    "C:\\x",
    "C:x",
    "..\\x",
    "a\\b",
    "a//b",
    "./a",
    "x\0y",
    "x\ny",
]
ON_WINDOWS = ["a.whl:stream", "con", "NUL.txt", "a?b", "a.", "a "]


@pytest.mark.parametrize(
    "text", ["", "0" * 63, "0" * 65, "g" * 64, f" {NULLS[1:]}", f"{NULLS}\n", "/" + "a" * 63, "\uff10" * 64]
)
def test_no_hash(text: str) -> None:
    with pytest.raises(ValueError, match="is not a SHA-256"):
        Sha256(text)


@pytest.mark.parametrize("text", ["", "a" * 39, "A" * 40, "HEAD", "--exec=x", f"{'a' * 40}\n"])
def test_no_commit(text: str) -> None:
    with pytest.raises(ValueError, match="is not a commit"):
        Commit(text)


def test_a_hash() -> None:
    assert Sha256("AB" * 32) == "ab" * 32
    assert Commit("ab" * 20) == "ab" * 20


@pytest.mark.parametrize("text", [*OUTSIDE, *ON_WINDOWS, "a/b", ".hidden", "n" * 256])
def test_no_plain_file_name(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        PlainFileName(text)


@pytest.mark.parametrize("text", [*OUTSIDE, "a/", "n" * 256, *(ON_WINDOWS if os.name == "nt" else [])])
def test_no_path_inside(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        InsidePath(text)


@links
def test_a_path_inside_follows_no_link_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "lib").mkdir()
    (root / "lib64").symlink_to("lib")
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    assert InsidePath("lib64/x").below(root) == root / "lib64" / "x"
    for name in ("out", "out/x", "loop/x"):
        with pytest.raises(BadInput, match="leads out"):
            InsidePath(name).below(root)


class Both(msgspec.Struct):
    sha256: Sha256
    names: dict[PlainFileName, int] = {}


def test_a_file_decodes_into_them_or_says_where_it_is_wrong() -> None:
    found = codec.from_json(f'{{"sha256": "{NULLS}", "names": {{"a": 1}}}}', Both)
    assert type(found.sha256) is Sha256 and [type(name) for name in found.names] == [PlainFileName]
    assert codec.from_json(codec.to_json(found), Both) == found
    for text, place in ((f'{{"sha256": "{NULLS}0"}}', r"\$\.sha256"), ('{"sha256": "/etc/x"}', r"\$\.sha256")):
        with pytest.raises(BadInput, match=place):
            codec.from_json(text, Both)


# --- install --undo --------------------------------------------------------------------------------------------------


@pytest.fixture
def handed_over(tmp_path: Path) -> Path:
    """An environment of a stranger's, in which Rekindle is said to have installed something."""
    root = tmp_path / "env"
    (root / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").write_text("#!/bin/sh\n", encoding="utf-8")
    (root / "Scripts").mkdir()
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="utf-8")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("precious\n", encoding="utf-8")
    return root


def undo(root: Path, **fields: Any) -> int:
    folder = root / ".rekindle" / "undo-20270101T000000000000"
    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        "when": "x",
        "route": "official-wheel",
        "freeze": [],
        "kept": [],
        "changes": [],
        "files": {},
        "entries": [],
    }
    (folder / "record.json").write_text(json.dumps(plain | fields), encoding="utf-8")
    return run(["install", str(root), "--undo"])


@links
@pytest.mark.parametrize("text", ["evil\n", None])
@pytest.mark.parametrize("way", ["whole", "relative", "link"])
def test_undo_writes_and_removes_nothing_outside(handed_over: Path, tmp_path: Path, text: str | None, way: str) -> None:
    precious = tmp_path / "home" / ".bashrc"
    (handed_over / "out").symlink_to(tmp_path / "home")
    name = {"whole": str(precious), "relative": "../home/.bashrc", "link": "out/.bashrc"}[way]
    assert undo(handed_over, files={name: text}) == BadInput.exit_code
    assert precious.read_text(encoding="utf-8") == "precious\n"


@links
def test_undo_puts_no_kept_file_through_a_link(handed_over: Path, tmp_path: Path) -> None:
    (handed_over / "out").symlink_to(tmp_path / "home")
    kept = handed_over / ".rekindle" / "undo-20270101T000000000000" / "files" / "out" / ".bashrc"
    kept.parent.mkdir(parents=True)
    kept.write_text("evil\n", encoding="utf-8")
    assert undo(handed_over) == BadInput.exit_code
    assert (tmp_path / "home" / ".bashrc").read_text(encoding="utf-8") == "precious\n"


@links
def test_undo_removes_no_file_that_a_record_reaches_through_a_link(handed_over: Path, tmp_path: Path) -> None:
    (handed_over / "out").symlink_to(tmp_path / "home")
    info = handed_over / "lib" / "python3.11" / "site-packages" / "torch-2.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("../../../out/.bashrc,,\n", encoding="utf-8")
    assert undo(handed_over, changes=[{"name": "torch", "before": None, "after": "2.0"}]) == 0
    assert (tmp_path / "home" / ".bashrc").read_text(encoding="utf-8") == "precious\n"
    assert not info.exists()


@links
def test_undo_clears_no_site_packages_that_lie_elsewhere(handed_over: Path, tmp_path: Path) -> None:
    """What a stopped install left is whatever the record does not list: all of it, if it lists nothing of it."""
    site = handed_over / "lib" / "python3.11" / "site-packages"
    site.rmdir()
    site.symlink_to(tmp_path / "home")
    assert undo(handed_over, entries=["nothing"]) == BadInput.exit_code
    assert (tmp_path / "home" / ".bashrc").read_text(encoding="utf-8") == "precious\n"


@links
def test_undo_of_an_earlier_version_still_works(handed_over: Path) -> None:
    """0.1 wrote whole paths."""
    (handed_over / "pip.conf").write_text("[install]\n", encoding="utf-8")
    assert undo(handed_over, files={str(handed_over / "pip.conf"): None}, freeze=["no version"]) == 0
    assert not (handed_over / "pip.conf").exists()


# --- toolchain -------------------------------------------------------------------------------------------------------


def a_part(**changes: Any) -> dict[str, Any]:
    plain = {"name": "x", "version": "1", "file": "x.deb", "size": 1, "sha256": NULLS, "origin": "file:x.deb"}
    return plain | changes


def a_manifest(path: Path, part: dict[str, Any] | None = None, **changes: Any) -> Path:
    offering = {
        "provider": "folder", "name": "cuda", "version": "11.8", "variant": "", "layout": "debian-cuda",
        "place": {"system": "linux", "arch": "x86_64"}, "parts": [part or a_part()],
    }  # fmt: skip
    text = {"schema": command.MANIFEST_SCHEMA, "kits": [{"digest": NULLS, "offering": offering | changes}]}
    path.write_text(json.dumps(text), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "../../../v"},
        {"variant": "..\\v"},
        {"name": "../../v"},
        {"name": "cuda\n"},
        {"place": {"system": "../..", "arch": "v"}},
        {"place": {"system": "linux", "arch": "/v"}},
        *({"part": a_part(file=name)} for name in [*OUTSIDE, *ON_WINDOWS, ".x", "a/b"]),
        *({"part": a_part(sha256=text)} for text in ("", "x" * 64, "/" + "x" * 63, f"../{'a' * 61}", NULLS + "0")),
    ],
)  # fmt: skip
def test_a_manifest_names_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "store" / "toolchain"))
    victim = tmp_path / "v"
    victim.mkdir()
    (victim / "precious").touch()
    words = [
        "toolchain",
        "install",
        "--manifest",
        str(a_manifest(tmp_path / "m.json", **changes)),
        "--from",
        str(victim),
    ]
    assert run(words) == BadInput.exit_code
    assert "cannot be read" in capsys.readouterr().err
    assert (victim / "precious").exists()


def test_a_manifest_that_is_one(tmp_path: Path) -> None:
    (entry,) = command.read_manifest(a_manifest(tmp_path / "m.json", variant="cu11")).kits
    assert entry.offering.variant == "cu11"


@pytest.mark.parametrize(
    "name", ["..\\x.tar.xz", "C:x.tar.xz", "a/..\\..\\x", "x.tar.xz:stream", "a/con", "../x", "/x"]
)
def test_nvidias_list_names_no_other_folder(name: str) -> None:
    about = {"relative_path": name, "sha256": NULLS, "size": "1"}
    table = {"cuda_nvcc": {"version": "1", "linux-x86_64": about}}
    with pytest.raises(BadInput):
        redistrib.read(json.dumps(table).encode(), "redistrib_11.8.0.json")
    about["relative_path"] = "cuda_nvcc/linux-x86_64/cuda_nvcc-linux-x86_64-11.8.89-archive.tar.xz"
    (one,) = redistrib.read(json.dumps(table).encode(), "redistrib_11.8.0.json").archives
    assert one.file == "cuda_nvcc-linux-x86_64-11.8.89-archive.tar.xz"


@pytest.mark.parametrize(
    "origin", ["apt:bookworm/-oDir::Bin::dpkg=x=1:amd64", "apt:bookworm/x=-1:amd64", "apt:bookworm/x y=1:amd64"]
)
def test_a_package_of_apts_is_no_option(tmp_path: Path, origin: str) -> None:
    part = codec.from_builtins(a_part(origin=origin), Part)
    with pytest.raises(NotFound, match="does not name a Debian package"):
        debian.fetch([part], tmp_path, ProviderSettings(state=tmp_path))


@pytest.mark.parametrize(
    "origin", ["index:--index-url=http://x==1", "index:x @ http://x==1", "index:-r==x", "index:x==1 -r y"]
)
def test_a_package_of_an_index_is_no_option(tmp_path: Path, origin: str) -> None:
    part = codec.from_builtins(a_part(origin=origin, file="x-1-py3-none-any.whl"), Part)
    with pytest.raises(FetchFailed, match="names no package"):
        index.fetch([part], tmp_path, ProviderSettings(state=tmp_path))


# --- a fleet, a tree -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["..", "../../journal.jsonl", "/etc/passwd", "..\\x", "w/dist/.."])
def test_a_worker_names_files_of_its_job_only(name: str) -> None:
    made = {"name": name, "sha256": NULLS, "size": 1}
    with pytest.raises(BadInput, match="the result cannot be read"):
        codec.from_builtins({"key": NULLS, "done": True, "seconds": 1.0, "wheel": made}, JobResult, name="the result")
    made |= {"name": "w/dist/x.whl", "sha256": "../../x"}
    with pytest.raises(BadInput, match="the result cannot be read"):
        codec.from_builtins({"key": NULLS, "done": True, "seconds": 1.0, "wheel": made}, JobResult, name="the result")


@pytest.mark.parametrize("field", ["key", "source", "torch_wheel", "torch_wheel_name", "check", "check_name"])
def test_an_order_names_no_other_folder(field: str) -> None:
    lock = {"project": "x", "kind": "cmake", "system": "linux", "machine": "x86_64"}
    with pytest.raises(BadInput, match=rf"\$\.{field}"):
        codec.from_builtins({"key": NULLS, "name": "x", "lock": lock, field: "../x"}, JobOrder)


@pytest.mark.parametrize("fields", [{"path": "../x"}, {"original": "../../x"}, {"current": "x"}, {"earlier": "x"}])
def test_the_journal_of_a_tree_names_no_other_folder(fields: dict[str, str]) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    entry = {"path": "a", "original": digest, "current": digest, "patches": []}
    assert codec.from_builtins({"files": [entry]}, PatchRecord).files[0].path == "a"
    with pytest.raises(BadInput):
        codec.from_builtins({"files": [entry | fields]}, PatchRecord)


@pytest.mark.parametrize("fields", [{"commit": "--upload-pack=x"}, {"commit": "HEAD"}, {"without": ["../x"]}])
def test_the_mark_of_a_tree_is_no_piece_of_a_command(fields: dict[str, Any]) -> None:
    mark = {"tag": "v2.0.1", "commit": "a" * 40, "without": ["android"]}
    assert codec.from_builtins(mark, Mark).without == ("android",)
    with pytest.raises(BadInput):
        codec.from_builtins(mark | fields, Mark)
