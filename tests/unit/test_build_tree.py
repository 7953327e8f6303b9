"""The source copy, the wheel of an install tree, cleaning, plans as build files."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import msgspec
import pytest

from rekindle.build.backend_choice import choose
from rekindle.build.configure import request as request_room
from rekindle.build.configure import tree
from rekindle.build.configure.request import BuildCudnn, BuildFile, BuildRequest, Compiler, Cuda
from rekindle.build.configure.tools import jobs_for
from rekindle.build.run.folders import Folders, clean, folder_of, wheel_version
from rekindle.build.script.standalone_steps import wheel_of_tree
from rekindle.core.errors import BadInput, NotFound, UsageError
from rekindle.core.version import Version
from rekindle.machine.model import Machine, Memory, Processor
from rekindle.machine.snapshot import load

MACHINES = Path(__file__).resolve().parents[1] / "machines"
GCC = Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++")


def source(root: Path, **contents: str) -> Path:
    for name, text in contents.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def test_the_copy_leaves_out_git_and_build_folders_and_keeps_links(tmp_path: Path) -> None:
    root = source(tmp_path / "a", x="1", build__old="2", sub__build__kept="3")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("", encoding="utf-8")
    if os.name != "nt":
        (root / "link").symlink_to("x")
    found = tree.manifest(root)
    assert {"x", "sub/build/kept"} <= found.keys() and not [
        name for name in found if name.startswith((".git", "build"))
    ]
    tree.copy(root, tmp_path / "b", found, {})
    assert (tmp_path / "b" / "x").read_text(encoding="utf-8") == "1"
    assert os.name == "nt" or (tmp_path / "b" / "link").is_symlink()


def test_only_what_changed_is_copied_again_and_a_patched_copy_stays_patched(tmp_path: Path) -> None:
    root, copy = source(tmp_path / "a", x="1", y="1", z="1"), tmp_path / "b"
    before = tree.manifest(root)
    assert tree.copy(root, copy, before, {}) == 3
    (copy / "x").write_text("patched", encoding="utf-8")
    (root / "y").write_text("22", encoding="utf-8")
    (root / "z").unlink()
    now = tree.manifest(root)
    assert tree.copy(root, copy, now, before) == 1
    assert (copy / "x").read_text(encoding="utf-8") == "patched"
    assert (copy / "y").read_text(encoding="utf-8") == "22"
    assert not (copy / "z").exists()
    assert tree.manifest_fingerprint(now) != tree.manifest_fingerprint(before)


def test_a_file_written_again_as_it_was_changes_nothing(tmp_path: Path) -> None:
    """A checkout of another branch and back touches files: source, patch and configure were redone for it."""
    root, copy = source(tmp_path / "a", x="1", y="1"), tmp_path / "b"
    before = tree.manifest(root)
    tree.copy(root, copy, before, {})
    os.utime(root / "x", (1_000_000_000, 1_000_000_000))
    now = tree.manifest(root, before)
    assert now["x"] != before["x"] and now["y"] == before["y"]
    assert tree.manifest_fingerprint(now) == tree.manifest_fingerprint(before)
    assert tree.copy(root, copy, now, before) == 0
    (root / "y").write_text("2", encoding="utf-8")
    os.utime(root / "y", (1_000_000_000, 1_000_000_000))
    assert tree.manifest_fingerprint(tree.manifest(root, now)) != tree.manifest_fingerprint(now)


def test_a_file_replaced_by_an_older_one_is_new_to_the_build(tmp_path: Path) -> None:
    """Ninja compares times: an older header, from a tarball say, would leave the objects as they are."""
    root, copy = source(tmp_path / "a", x="1"), tmp_path / "b"
    first = tree.manifest(root)
    tree.copy(root, copy, first, {})
    built = (copy / "x").stat().st_mtime_ns
    (root / "x").write_text("older", encoding="utf-8")
    os.utime(root / "x", (1_000_000_000, 1_000_000_000))
    assert tree.copy(root, copy, tree.manifest(root), first) == 1
    assert (copy / "x").read_text(encoding="utf-8") == "older"
    assert (copy / "x").stat().st_mtime_ns >= built


def test_a_link_in_the_copy_leads_to_the_copy_whatever_the_users_tree_is_called(tmp_path: Path) -> None:
    if os.name == "nt":
        return
    root = source(tmp_path / "real", x="1", sub__y="2")
    outside = source(tmp_path / "other", file="3", folder__z="4")
    (tmp_path / "a").symlink_to("real")
    (root / "sub" / "by_its_path").symlink_to(root / "x")
    (root / "by_its_other_path").symlink_to(tmp_path / "a" / "sub")
    (root / "a_file_outside").symlink_to(outside / "file")
    (root / "sub" / "a_folder_outside").symlink_to("../../other/folder")
    for spelled in ("a", "real"):
        copy = tmp_path / f"copy-{spelled}"
        found = tree.manifest(tmp_path / spelled)
        tree.copy(tmp_path / spelled, copy, found, {})
        (copy / "sub" / "by_its_path").write_text("built", encoding="utf-8")
        (copy / "by_its_other_path" / "y").write_text("built", encoding="utf-8")
        (copy / "a_file_outside").write_text("built", encoding="utf-8")
        assert (copy / "x").read_text(encoding="utf-8") == "built"
        assert (copy / "sub" / "a_folder_outside" / "z").read_text(encoding="utf-8") == "4"
        assert [(root / name).read_text(encoding="utf-8") for name in ("x", "sub/y", "a_file_outside")] == [
            "1",
            "2",
            "3",
        ]
    (outside / "file").write_text("33", encoding="utf-8")
    assert tree.manifest(root)["a_file_outside"] != found["a_file_outside"]


def test_the_users_tree_is_never_written_through_a_link(tmp_path: Path) -> None:
    """The copy must be copies: what writes into it in place must not reach the original."""
    root = source(tmp_path / "a", x="1")
    tree.copy(root, tmp_path / "b", tree.manifest(root), {})
    with (tmp_path / "b" / "x").open("r+", encoding="utf-8") as stream:
        stream.write("9")
    assert (root / "x").read_text(encoding="utf-8") == "1"


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        tree.manifest(tmp_path / "nowhere")


def test_the_same_tree_gives_the_same_wheel_and_its_record_is_right(tmp_path: Path) -> None:
    root = source(tmp_path / "a", pkg__b="2", pkg__a="1")
    one = wheel_of_tree(root, name="my-pkg", version="1.0", into=tmp_path / "1", generator="x").read_bytes()
    os.utime(root / "pkg" / "a", (1, 1))
    path = wheel_of_tree(root, name="my-pkg", version="1.0", into=tmp_path / "2", generator="x")
    assert path.read_bytes() == one
    from rekindle.formats.access import File
    from rekindle.formats.archive import Archive

    with File(path) as file, zipfile.ZipFile(path) as archive:
        assert Archive(file).members.keys() == set(archive.namelist())
        record = archive.read("my_pkg-1.0.dist-info/RECORD").decode().splitlines()
    assert [line.split(",")[0] for line in record][:2] == ["pkg/a", "pkg/b"] and len(record) == 5


def test_cleaning_takes_read_only_files_and_keeps_the_lock(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "w")
    folders.make()
    folders.lock.write_text("", encoding="utf-8")
    locked = folders.logs / "deep"
    locked.mkdir()
    file = locked / "read-only"
    file.write_text("x", encoding="utf-8")
    file.chmod(stat.S_IRUSR)
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    clean(folders, keep=(folders.lock,))
    assert [entry.name for entry in folders.root.iterdir()] == ["lock"]


def test_the_backend_is_told_from_the_source(tmp_path: Path) -> None:
    assert choose(None, source(tmp_path / "a", **{"CMakeLists.txt": ""})).name == "cmake"
    assert choose(None, source(tmp_path / "b", **{"setup.py": ""})).name == "setup.py"
    skbuild = source(tmp_path / "c", **{"setup.py": "", "pyproject.toml": 'build-backend = "scikit_build_core.build"'})
    assert choose(None, skbuild).name == "scikit-build-core"


def test_the_folder_stays_the_same_when_only_options_or_architectures_change() -> None:
    def folder(**more: object) -> Path:
        values: dict[str, object] = {"source": "s", "system": "linux", "arch": "x86_64", "python": "p", "compiler": GCC}
        return folder_of(BuildRequest(**{**values, "torch": "2.7.1", **more}), Path("r"))  # type: ignore[arg-type]

    assert folder(arch_list="3.5") == folder(arch_list="5.0", options={"USE_KINETO": "0"})
    assert folder() != folder(torch="2.6.0") and folder() != folder(source="other")


@pytest.mark.parametrize(
    ("arch_list", "name"),
    [("3.5", "2.0.1+cu118.cudnn870.sm35"), ("3.5;5.0;8.6+PTX", "2.0.1+cu118.cudnn870.sm35.sm50.sm86ptx")],
)
def test_the_wheel_names_release_stack_and_architectures(arch_list: str, name: str) -> None:
    from packaging.version import Version as Pep440

    cuda = Cuda(root="r", nvcc="n", version=Version("11.8.89"))
    asked = BuildRequest(
        source="s", system="linux", arch="x86_64", python="p", compiler=GCC, torch="2.0.1", cuda=cuda,
        cudnn=BuildCudnn(root="c", version=Version("8.7.0.84")), arch_list=arch_list,
    )  # fmt: skip
    assert wheel_version(asked) == name
    assert str(Pep440(name)) == name, "pip must keep it as it is"


def test_a_plan_of_rekindle_plan_is_a_build_file(tmp_path: Path) -> None:
    from support.command import rekindle_command

    plan = tmp_path / "plan.toml"
    snapshot = str(MACHINES / "k40c-windows.json")
    assert rekindle_command("plan", "--machine", snapshot, "--torch", "1.12.1", "-o", str(plan)).code == 0
    wanted = request_room.read(plan)
    assert (wanted.torch, str(wanted.cuda), wanted.arch_list, wanted.toolset) == ("1.12.1", "11.4", "3.5", "14.29")
    assert wanted.patches is not None and "distutils-vcenv" in wanted.patches
    said = rekindle_command("build", str(plan), "--machine", snapshot, "--dry-run")
    assert said.code == 6 and "cuDNN 8.7.0" in said.err, "the recorded machine has no such cuDNN"


def test_a_plan_that_installs_has_nothing_to_build(tmp_path: Path) -> None:
    from support.command import rekindle_command

    plan = tmp_path / "plan.toml"
    words = ["plan", "--gpu", "NVIDIA H200", "--os", "linux", "--python", "3.11", "-o", str(plan)]
    assert rekindle_command(*words).code == 0
    with pytest.raises(UsageError, match="nothing to build"):
        request_room.read(plan)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "x.toml"
    other.write_text('schema = "something/9"\nsource = "."\n', encoding="utf-8")
    with pytest.raises(BadInput, match="something/9"):
        request_room.read(other)
    other.write_text("source = [", encoding="utf-8")
    with pytest.raises(BadInput):
        request_room.read(other)
    with pytest.raises(BadInput, match="neither a source"):
        request_room.resolve(BuildFile(), load(MACHINES / "k40c-windows.json"))


@pytest.mark.parametrize(
    ("cores", "gigabytes", "cuda", "number"),
    [(24, 32, True, 8), (24, 32, False, 21), (4, 64, True, 4), (16, 2, True, 1), (None, None, True, None)],
)
def test_as_many_compiles_as_cores_and_memory_have_room_for(
    cores: int | None, gigabytes: int | None, cuda: bool, number: int | None
) -> None:
    memory = Memory(physical=gigabytes * 1024**3 if gigabytes else None)
    machine = Machine(os="linux", arch="x86_64", memory=memory, processor=Processor(cores=cores))
    assert jobs_for(machine, cuda=cuda) == number


def test_a_build_on_a_recorded_machine_is_only_shown(tmp_path: Path) -> None:
    from support.command import rekindle_command

    file = tmp_path / "b.toml"
    file.write_text('torch = "1.12.1"\ncuda = "11.4"\narch_list = "3.5"\n', encoding="utf-8")
    snapshot = str(MACHINES / "k40c-windows.json")
    shown = rekindle_command("build", str(file), "--machine", snapshot, "--dry-run", "--json").json()
    assert {step["state"] for step in shown["steps"]} == {"planned"}
    assert shown["version"] == "1.12.1+cu114.sm35"
    assert rekindle_command("build", str(file), "--machine", snapshot).code == 2


def test_the_wheel_gets_the_libraries_that_the_build_was_linked_with() -> None:
    """cuDNN's, the toolkit's, CUPTI's and NVTX's own folders, and MKL of the build's own environment."""
    toolkit = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v11.4"
    asked = BuildRequest(
        source="s", system="windows", arch="x86_64", python="p", torch="1.12.1", compiler=GCC,
        cuda=Cuda(root=toolkit, nvcc="nvcc", version=Version("11.4")), cudnn=BuildCudnn(root=r"C:\cudnn"),
    )  # fmt: skip
    assert asked.library_folders(r"C:\env") == (
        r"C:\cudnn\bin",
        rf"{toolkit}\bin",
        rf"{toolkit}\extras\CUPTI\lib64",
        r"C:\Program Files\NVIDIA Corporation\NvToolsExt\bin\x64",
        r"C:\env\Library\bin",
    )
    own = msgspec.structs.replace(asked, mkl=r"C:\mkl", cuda=None, cudnn=None)
    assert own.library_folders() == (r"C:\mkl\bin", r"C:\mkl\redist\intel64")
    linux = msgspec.structs.replace(
        asked, system="linux", cudnn=None, cuda=Cuda(root="/cuda", nvcc="nvcc", version=Version("11.4"))
    )
    assert linux.library_folders("/env") == ("/cuda/lib64", "/cuda/lib", "/cuda/extras/CUPTI/lib64", "/env/lib")
