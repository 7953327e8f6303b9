"""Libraries made with one chosen fault each: that fault is found, and nothing else."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from rekindle.formats.package import Folder, open_package
from rekindle.knowledge.cuda.libraries import loader_places
from rekindle.wheels.closure.linkage import Closure
from rekindle.wheels.closure.search_path import Elsewhere, closure
from rekindle.wheels.inspect.identity import read_binaries
from rekindle.wheels.inspect.inspection import inspect
from support.artefacts import wheel
from support.compiled import MINGW, Compiler
from support.dlls import dll

LIB = "torch/lib/"


@pytest.fixture
def mingw(tmp_path: Path) -> Compiler:
    root = tmp_path / "package"
    (root / "torch").mkdir(parents=True)
    (root / "torch" / "version.py").write_text("__version__ = '2.7.1'\ncuda = None\n", encoding="utf-8")
    return Compiler(root, MINGW)


@pytest.fixture
def gcc(tmp_path: Path) -> Compiler:
    (tmp_path / "package").mkdir()
    return Compiler(tmp_path / "package", "")


def checked(compiler: Compiler, *, torch: bool = True, elsewhere: tuple[Elsewhere, ...] = ()) -> Closure:
    found = closure(read_binaries(Folder(compiler.root)), torch=torch, elsewhere=elsewhere)
    assert found is not None
    return found


def faults(found: Closure) -> dict[str, list[str]]:
    """Everything that was found amiss, in short."""
    short = {
        "missing": [f"{item.library} ({item.how.value})" for item in found.missing],
        "outside": [f"{item.library} in {item.where}" for item in found.outside],
        "skew": [f"{item.file}: {', '.join(item.symbols)}" for item in found.skew],
        "machine": [f"{item.file} is {item.machine}" for item in found.wrong_machine],
        "duplicates": [item.library for item in found.duplicates],
        "tests": list(found.tests),
        "system": list(found.system_files),
    }
    return {name: items for name, items in short.items() if items}


def test_windows_a_healthy_pair_has_no_fault(mingw: Compiler) -> None:
    mingw.build(LIB + "c10.dll", offers=["fa"])
    mingw.build(LIB + "torch_cpu.dll", wants=["fa"], options=[str(mingw.import_library("c10.dll", ["fa"]))])
    found = checked(mingw)
    assert faults(found) == {}
    assert (found.links, found.symbols) == (1, 1)


def test_windows_a_missing_library_and_the_way_to_it(mingw: Compiler) -> None:
    mingw.build(
        LIB + "middle.dll", offers=["fm"], wants=["fx"], options=[str(mingw.import_library("gone.dll", ["fx"]))]
    )
    mingw.build(LIB + "first.dll", wants=["fm"], options=[str(mingw.import_library("middle.dll", ["fm"]))])
    found = checked(mingw)
    assert faults(found) == {"missing": ["gone.dll (import)"]}
    assert found.missing[0].chain == (LIB + "first.dll", LIB + "middle.dll", "gone.dll")


def test_windows_a_delay_loaded_library_is_told_apart(mingw: Compiler) -> None:
    library = mingw.import_library("later.dll", ["fl"], delayed=True)
    stub = mingw.work / "stub.c"
    stub.write_text("void *__delayLoadHelper2(void *a, void *b) { return 0; }\n", encoding="utf-8")
    mingw.delay_directory(mingw.build(LIB + "eager.dll", wants=["fl"], options=[str(library), str(stub)]))
    found = checked(mingw)
    assert faults(found) == {"missing": ["later.dll (delayed)"]}


def test_windows_a_circle_is_no_fault(mingw: Compiler) -> None:
    mingw.build(LIB + "one.dll", offers=["f1"], wants=["f2"], options=[str(mingw.import_library("two.dll", ["f2"]))])
    mingw.build(LIB + "two.dll", offers=["f2"], wants=["f1"], options=[str(mingw.import_library("one.dll", ["f1"]))])
    assert faults(checked(mingw)) == {}


def test_windows_a_symbol_that_the_other_side_does_not_export(mingw: Compiler) -> None:
    mingw.build(LIB + "c10.dll", offers=["old_name"])
    lies = mingw.import_library("c10.dll", ["new_name", "old_name"])
    mingw.build(LIB + "torch_cpu.dll", wants=["new_name", "old_name"], options=[str(lies)])
    assert faults(checked(mingw)) == {"skew": [LIB + "torch_cpu.dll: new_name"]}


def test_windows_a_library_for_another_machine(mingw: Compiler) -> None:
    narrow = mingw.build(LIB + "narrow.dll", offers=["fn"])
    data = bytearray(narrow.read_bytes())
    at = data.index(b"PE\0\0") + 4
    assert data[at : at + 2] == b"\x64\x86"
    data[at : at + 2] = b"\x64\xaa"  # ARM64
    narrow.write_bytes(data)
    mingw.build(LIB + "wide.dll", wants=["fn"], options=[str(mingw.import_library("narrow.dll", ["fn"]))])
    assert faults(checked(mingw)) == {"machine": [LIB + "narrow.dll is aarch64"]}


def test_windows_two_openmp_runtimes(mingw: Compiler) -> None:
    mingw.build(LIB + "libiomp5md.dll")
    mingw.build("numpy.libs/libiomp5md.dll")
    assert faults(checked(mingw)) == {"duplicates": ["libiomp5md.dll"]}


def test_windows_a_file_of_windows_and_an_api_set(mingw: Compiler) -> None:
    name = "api-ms-win-crt-heap-l1-1-0.dll"
    mingw.build(LIB + "c10.dll", wants=["malloc"], options=[str(mingw.import_library(name, ["malloc"]))])
    assert faults(checked(mingw)) == {}
    mingw.build(LIB + name, offers=["malloc"])
    mingw.build("torch/bin/KERNEL32.dll")
    assert faults(checked(mingw)) == {"system": ["torch/bin/KERNEL32.dll", LIB + name]}


def test_windows_the_real_wheel_holds_nothing_of_windows(tmp_path: Path) -> None:
    """torch 2.7.1 as it is published, and again with three files planted in it."""
    real = wheel("torch==2.7.1", platform="win_amd64")
    lacks = ["MSVCP140.dll", "python311.dll", "VCRUNTIME140.dll", "VCRUNTIME140_1.dll"]
    expected = {"missing": [f"{name} (import)" for name in lacks]}
    assert faults(_closure_of(real)) == expected
    planted = tmp_path / real.name
    shutil.copyfile(real, planted)
    names = ["torch/lib/kernel32.dll", "torch/lib/api-ms-win-crt-heap-l1-1-0.dll", "torch.libs/libiomp5md.dll"]
    with zipfile.ZipFile(planted, "a") as archive:
        for name in names:
            archive.write(dll(tmp_path / "planted.dll"), name)
    assert faults(_closure_of(planted)) == {
        **expected, "system": sorted(names[:2]), "duplicates": ["libiomp5md.dll"],
    }  # fmt: skip


def _closure_of(path: Path) -> Closure:
    found = inspect(path).closure
    assert found is not None
    return found


def test_windows_torch_bin_is_not_on_the_loaders_way(mingw: Compiler) -> None:
    mingw.build("torch/bin/tool.dll", wants=["fx"], options=[str(mingw.import_library("gone.dll", ["fx"]))])
    mingw.build("torch/bin/c10.dll")
    mingw.build(LIB + "c10.dll")
    assert faults(checked(mingw)) == {}


def test_windows_a_test_library_in_torch_lib(mingw: Compiler) -> None:
    mingw.build(LIB + "aoti_custom_ops.dll")
    assert faults(checked(mingw)) == {"tests": [LIB + "aoti_custom_ops.dll"]}


def test_windows_parts_that_are_loaded_while_running(mingw: Compiler) -> None:
    """cudnn64_8.dll is the front of six; here two of them were forgotten, and zlibwapi."""
    mingw.build(LIB + "cudnn64_8.dll")
    for part in ("cudnn_ops_infer", "cudnn_ops_train", "cudnn_cnn_infer", "cudnn_cnn_train"):
        mingw.build(f"{LIB}{part}64_8.dll")
    mingw.build(LIB + "nvrtc64_112_0.dll")
    mingw.build(LIB + "nvrtc-builtins64_118.dll")
    assert faults(checked(mingw)) == {
        "missing": [
            "cudnn_adv_infer64_8.dll (run-time)",
            "cudnn_adv_train64_8.dll (run-time)",
            "zlibwapi.dll (run-time)",
        ]
    }


def test_windows_what_only_path_brings_is_a_finding(mingw: Compiler, tmp_path: Path) -> None:
    """The library on PATH needs another one in turn, which is missing: the walk goes on through it."""
    other = Compiler(tmp_path / "cuda", MINGW)
    other.build(
        "cupti64_2022.2.1.dll", offers=["fc"], wants=["fd"], options=[str(mingw.import_library("deep.dll", ["fd"]))]
    )
    mingw.build(
        LIB + "torch_cpu.dll", wants=["fc"], options=[str(mingw.import_library("cupti64_2022.2.1.dll", ["fc"]))]
    )
    there = {found.file: found for found in read_binaries(Folder(other.root))}
    label = next(place.label for place in loader_places("2.7.1") if place.id == "cuda-path")
    found = checked(mingw, elsewhere=(Elsewhere(label=label, sure=False, libraries=there),))
    assert faults(found) == {
        "outside": ["cupti64_2022.2.1.dll in the CUDA folder"],
        "missing": ["deep.dll (import)"],
    }
    sure = checked(mingw, elsewhere=(Elsewhere(label="Library\\bin", sure=True, libraries=there),))
    assert faults(sure) == {"missing": ["deep.dll (import)"]}


def test_windows_inspect_says_it_in_words(mingw: Compiler) -> None:
    mingw.build(LIB + "middle.dll", wants=["fx"], options=[str(mingw.import_library("gone.dll", ["fx"]))])
    report = inspect(mingw.root)
    assert report.torch == "2.7.1"
    finding = next(item for item in report.findings if item.id == "closure.missing")
    assert finding.state.value == "FAIL"
    assert "gone.dll" in finding.found and "WinError 126" in finding.why


ORIGIN = "-Wl,-rpath,$ORIGIN"


def test_linux_a_healthy_pair_has_no_fault(gcc: Compiler) -> None:
    first = gcc.build("libfirst.so", offers=["fa"])
    gcc.build("libsecond.so", wants=["fa"], options=[str(first), ORIGIN, "-Wl,-soname,libsecond.so"])
    # gcc records the path it was given unless the library says its own name.
    second = gcc.build("libthird.so", wants=["fa"], options=["-L", str(gcc.root), "-lfirst", ORIGIN])
    assert second.exists()
    found = checked(gcc, torch=False)
    assert "skew" not in faults(found)


def test_linux_a_missing_library_and_the_way_to_it(gcc: Compiler) -> None:
    gone = gcc.build("libgone.so", offers=["fx"], options=["-Wl,-soname,libgone.so"])
    gcc.build("libmiddle.so", offers=["fm"], wants=["fx"], options=[str(gone), ORIGIN, "-Wl,-soname,libmiddle.so"])
    gone.unlink()
    gcc.build(
        "libfirst.so",
        wants=["fm"],
        options=["-L", str(gcc.root), "-lmiddle", ORIGIN, "-Wl,--allow-shlib-undefined", "-Wl,-soname,libfirst.so"],
    )
    found = checked(gcc, torch=False)
    assert faults(found) == {"missing": ["libgone.so (import)"]}
    assert found.missing[0].chain == ("libfirst.so", "libmiddle.so", "libgone.so")


def test_linux_a_library_that_no_run_path_names(gcc: Compiler) -> None:
    there = gcc.build("deep/libthere.so", offers=["ft"], options=["-Wl,-soname,libthere.so"])
    gcc.build("libuser.so", wants=["ft"], options=[str(there)])
    found = checked(gcc, torch=False)
    assert faults(found) == {"missing": ["libthere.so (import)"]}
    assert "deep/libthere.so" in found.missing[0].note


def test_linux_a_symbol_that_nobody_offers(gcc: Compiler) -> None:
    first = gcc.build("libfirst.so", offers=["old_name", "new_name"], options=["-Wl,-soname,libfirst.so"])
    gcc.build("libsecond.so", wants=["old_name", "new_name"], options=[str(first), ORIGIN])
    gcc.build("libfirst.so", offers=["old_name"], options=["-Wl,-soname,libfirst.so"])
    assert faults(checked(gcc, torch=False)) == {"skew": ["libsecond.so: new_name"]}


def test_linux_names_of_the_c_library_are_not_missed(gcc: Compiler) -> None:
    """NVIDIA's NVPL asks for pthread_once without a version; only a list tells it from a name that nobody has."""
    first = gcc.build("libfirst.so", offers=["fa"], options=["-Wl,-soname,libfirst.so"])
    user = gcc.build(
        "libuser.so", wants=["fa", "pthread_once", "stray"], options=[str(first), ORIGIN, "-Wl,--allow-shlib-undefined"]
    )
    assert user.exists()
    assert faults(checked(gcc, torch=False)) == {"skew": ["libuser.so: stray"]}


def test_linux_a_circle_is_no_fault(gcc: Compiler) -> None:
    first = gcc.build("libone.so", offers=["f1"], options=["-Wl,-soname,libone.so"])
    second = gcc.build("libtwo.so", offers=["f2"], wants=["f1"], options=[str(first), ORIGIN, "-Wl,-soname,libtwo.so"])
    gcc.build("libone.so", offers=["f1"], wants=["f2"], options=[str(second), ORIGIN, "-Wl,-soname,libone.so"])
    assert faults(checked(gcc, torch=False)) == {}


def test_linux_a_library_for_another_machine(gcc: Compiler) -> None:
    narrow = gcc.build("libother.so", offers=["fo"], options=["-Wl,-soname,libother.so"])
    gcc.build("libuser.so", wants=["fo"], options=[str(narrow), ORIGIN])
    data = bytearray(narrow.read_bytes())
    data[18:20] = b"\x15\x00"  # e_machine: PowerPC 64
    narrow.write_bytes(data)
    assert faults(checked(gcc, torch=False)) == {"machine": ["libother.so is ppc64le"]}


def test_linux_two_openmp_runtimes(gcc: Compiler) -> None:
    gcc.build("torch/lib/libgomp.so.1")
    gcc.build("scikit_learn.libs/libgomp-a34b3233.so.1.0.0")
    assert faults(checked(gcc, torch=False)) == {"duplicates": ["libgomp.so.1"]}


def test_nvrtc_names_its_builtins_in_its_data() -> None:
    """No import table has them; the table of what is loaded while running has a pattern, the file the name itself."""
    with open_package(wheel("nvidia-cuda-nvrtc-cu11==11.8.89", platform="win_amd64")) as packed:
        found = {each.file: each.dlls for each in read_binaries(packed)}
    assert "nvrtc-builtins64_118.dll" in found["nvrtc64_112_0.dll"]


@pytest.mark.parametrize(
    ("requirement", "files"),
    [
        ("nvidia-cusolver-cu11==11.4.1.48", ["cusolver64_11.dll", "cusolverMg64_11.dll"]),
        ("nvidia-cufft-cu11==10.9.0.58", ["cufft64_10.dll", "cufftw64_10.dll"]),
    ],
)
def test_no_library_of_cuda_asks_for_the_second_one_of_its_package(requirement: str, files: list[str]) -> None:
    """cusolverMg and cufftw are in official wheels, and nothing that torch loads names them. cuFFT's 22,486 small
    pieces of code were called more work than any real file is."""
    with open_package(wheel(requirement, platform="win_amd64")) as packed:
        found = {each.file: each for each in read_binaries(packed)}
    assert sorted(found) == files
    first, second = (found[name] for name in files)
    assert first.pe is not None and first.pe.imports and first.dlls
    assert second.file.lower() not in {name.lower() for name in (*first.pe.imports, *first.pe.delayed, *first.dlls)}
