"""Code made by a real nvcc for chosen targets is read as what it is, and as cuobjdump reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rekindle.core.version import Version
from rekindle.formats import binary, fatbin
from rekindle.formats.access import File
from rekindle.knowledge.cuda import toolkits
from support.artefacts import unverified, wheel

KERNEL = "__global__ void k(float *p) { p[threadIdx.x] *= 2; }\n"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        unverified(f"`{name}` is not installed here")
    return str(found)


@pytest.fixture(scope="module")
def cuda() -> Version:
    said = subprocess.run([program("nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
    found = Version.find(said.partition("release")[2])
    assert found is not None
    return found


def compiled(folder: Path, *codes: str, options: tuple[str, ...] = ("-c",)) -> Path:
    """`sm_90a` or `compute_80` each."""
    source = folder / "k.cu"
    source.write_text(KERNEL, encoding="utf-8")
    target = folder / "k.out"
    words = [f"-gencode=arch={code.replace('sm_', 'compute_')},code={code}" for code in codes]
    done = subprocess.run(
        [program("nvcc"), *words, *options, "-o", str(target), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def read(path: Path) -> binary.Binary:
    with File(path) as file:
        return binary.read(file)


def test_targets_and_suffixes(tmp_path: Path, cuda: Version) -> None:
    """One compile each, so that nothing but the request can have brought the target."""
    known = {str(target) for target in toolkits.toolkit(cuda).targets}
    wanted = [code for code in ("sm_75", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120f") if code in known]
    assert len(wanted) >= 2
    for code in wanted:
        found = read(compiled(tmp_path, code, options=("--fatbin",)))
        assert found.code.targets == {code: 1}
    ptx = read(compiled(tmp_path, "sm_80", "compute_80", options=("--fatbin",)))
    assert ptx.code.targets == {"sm_80": 1, "compute_80": 1}
    assert ptx.code.ptx_isa["compute_80"] == toolkits.toolkit(cuda).ptx_isa


def test_an_object_and_a_shared_library_say_the_same(tmp_path: Path, cuda: Version) -> None:
    for options in (("-c",), ("-shared", "-Xcompiler", "-fPIC", "-cudart", "none")):
        found = read(compiled(tmp_path, "sm_80", "sm_90", "compute_90", options=options))
        assert found.format == "elf"
        assert {container.section for container in found.containers} == {".nv_fatbin"}
        assert found.code.targets == {"sm_80": 1, "sm_90": 1, "compute_90": 1}


def test_relocatable_code_is_set_aside_once_it_is_linked(tmp_path: Path, cuda: Version) -> None:
    """In an object it is all there is; beside registered code it is a left-over. cuobjdump decides so too."""
    alone = read(compiled(tmp_path, "sm_80", options=("-dc",)))
    assert {container.place for container in alone.containers} == {fatbin.CodePlace.RELOCATABLE}
    assert (alone.code.targets, alone.code.aside) == ({"sm_80": 1}, {})
    beside = [msgspec.structs.replace(alone.containers[0], section=".nv_fatbin"), *alone.containers]
    both = fatbin.gpu_code("both.so", beside)
    assert (both.targets, both.aside) == ({"sm_80": 1}, {"sm_80": 1})


def test_a_container_says_which_source_file_it_comes_from(tmp_path: Path, cuda: Version) -> None:
    path = compiled(tmp_path, "sm_80", "sm_90", options=("-shared", "-Xcompiler", "-fPIC", "-cudart", "none"))
    with File(path) as file:
        found = binary.read(file, units=True)
    assert [container.unit for container in found.containers] == ["k.cu"]


def test_cuobjdump_lists_the_same(tmp_path: Path, cuda: Version) -> None:
    path = compiled(tmp_path, "sm_80", "sm_86", "sm_90", "compute_90", options=("-c",))
    with zipfile.ZipFile(wheel("nvidia-cuda-cuobjdump")) as archive:
        archive.extractall(tmp_path)
    tool = next(path for path in tmp_path.rglob("bin/cuobjdump*"))
    tool.chmod(0o755)
    listing = "".join(
        subprocess.run([str(tool), o, str(path)], capture_output=True, text=True, check=True).stdout
        for o in ("--list-elf", "--list-ptx")
    )
    theirs = Counter(re.findall(r"\.(sm_\d+[a-z]?)\.(cubin|ptx)\s*$", listing, re.MULTILINE))
    ours = Counter(
        (entry.target.capability.sm + entry.target.suffix, "ptx" if entry.target.ptx else "cubin")
        for container in read(path).containers
        for entry in container.entries
    )
    assert ours == theirs
    assert sum(ours.values()) == 4


@pytest.mark.parametrize("name", ["libcufft_static.a", "libcufft.so.10", "libcublas.so.11", "libcudadevrt.a"])
def test_a_toolkits_own_libraries_as_its_cuobjdump_lists_them(name: str) -> None:
    """Debian's CUDA 11.8: static archives with relocatable objects, and libraries that keep code among their data."""
    path = next(iter(Path("/usr/lib").glob(f"*-linux-gnu/{name}")), None)
    if path is None or not Path("/usr/bin/cuobjdump").exists():
        unverified("Debian's CUDA 11.8 is not installed here")
        return
    listing = "".join(
        subprocess.run(["/usr/bin/cuobjdump", o, str(path)], capture_output=True, text=True, check=False).stdout
        for o in ("--list-elf", "--list-ptx")
    )
    theirs = Counter(re.findall(r"\.(sm_\d+[a-z]?)\.(cubin|ptx)\s*$", listing, re.MULTILINE))
    ours = {
        (target.replace("compute_", "sm_"), "ptx" if target.startswith("compute") else "cubin"): count
        for target, count in read(path).code.targets.items()
    }
    assert ours == theirs
    assert len(ours) > 5
