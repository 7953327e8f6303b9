"""The script's own search for DLLs, its look at cuDNN and at MKL's threads: held against staged folders."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from rekindle.build.configure import backends, cmake_result, options, preflight, request
from rekindle.build.configure.options import Options
from rekindle.build.run.folders import Folders
from rekindle.build.script import script, standalone, standalone_libraries, standalone_steps
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.formats import binary, pe
from rekindle.formats.access import File
from rekindle.formats.dll_names import DllNames
from rekindle.knowledge.cuda import libraries
from rekindle.machine.snapshot import load
from rekindle.model.toolkit import FoundToolkit
from support.dlls import dll

MACHINE = Path(__file__).resolve().parents[1] / "machines" / "k40c-ready-windows.json"
PARTS = ["cudnn", "cudnn_ops_infer", "cudnn_ops_train", "cudnn_cnn_infer", "cudnn_cnn_train", "cudnn_adv_infer",
         "cudnn_adv_train"]  # fmt: skip

NOTHING: dict[str, object] = {
    "needs": [], "steps": [{"name": "environment", "print": ""}], "disk": 0, "memory": 0, "python": "", "nvcc": 0,
}  # fmt: skip
"""A plan that asks for nothing before it begins."""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    for name, value in {"RK_WORK": str(tmp_path / "w"), "RK_PATH": "", "SYSTEMROOT": str(tmp_path / "win")}.items():
        monkeypatch.setenv(name, value)
    wanted = request.BuildFile(torch="1.12.1", cuda=None, cudnn=None, python="3.9")
    resolved = request.resolve(wanted, load(MACHINE))
    made: dict[str, object] = {"steps": [], **preflight.known_libraries(resolved), "cudnn_parts": PARTS, "expected": {},
                               "architectures": [], "cuda": ""}  # fmt: skip
    for module in (standalone, standalone_libraries, standalone_steps):
        monkeypatch.setattr(module, "PLAN", made)
    return made


def test_imports_are_read_as_the_real_reader_reads_them(tmp_path: Path) -> None:
    path = dll(tmp_path / "a.dll", ["KERNEL32.dll", "cudart64_110.dll"], ["cublas64_11.dll"])
    with File(path) as source:
        found = pe.read(source)
    ours = set(standalone_libraries.imported(path)[0])
    assert ours == {"kernel32.dll", "cudart64_110.dll", "cublas64_11.dll"}
    assert ours == {name.lower() for name in (*found.imports, *found.delayed)}


def test_names_in_the_data_are_read_as_the_real_reader_reads_them(tmp_path: Path) -> None:
    """Also across two pieces. A text that does not begin after a zero is a piece of another one."""
    texts = [b"zlibwapi.dll", b"UV.DLL", "nvrtc64_112_0.dll".encode("utf-16-le"), b"C:\\x\\a.dll", b"%s.dll", b".dll"]
    path = dll(tmp_path / "a.dll", ["cudart64_110.dll", "tbb12-0a1b.dll"], texts=[*texts, b"tbb12.dll", b"a.dll"])
    own = ("nvrtc64_112_0.dll", "uv.dll", "zlibwapi.dll")
    assert standalone_libraries.imported(path)[1] == own
    with File(path) as source:
        assert binary.read(source).dlls == own
    data = path.read_bytes()
    for size in (1, 7, 64):
        pieces = DllNames([(0x400, len(data))])
        for at in range(0, len(data), size):
            pieces.look(at, data[at : at + size])
        assert pieces.beside(["cudart64_110.dll", "tbb12-0a1b.dll", "a.dll"]) == own


def test_real_programs_too() -> None:
    import pip

    programs = sorted((Path(pip.__file__).parent / "_vendor" / "distlib").glob("*.exe"))
    if not programs:
        pytest.skip("UNVERIFIED: this pip brings no Windows programs")
    for path in programs:
        with File(path) as source:
            found = pe.read(source)
        assert set(standalone_libraries.imported(path)[0]) == {
            name.lower() for name in (*found.imports, *found.delayed)
        }


def stage(tmp_path: Path) -> tuple[Path, list[str]]:
    """A torch of a build, and CUDA, cuDNN, MKL, NVTX and zlib where they lie on a computer."""
    lib = tmp_path / "s" / "torch" / "lib"
    dll(lib / "torch_cpu.dll", ["kernel32.dll", "libiomp5md.dll", "cupti64_2021.2.2.dll", "c10.dll"])
    dll(lib / "torch_cuda.dll", ["cudnn64_8.dll", "cublas64_11.dll", "nvToolsExt64_1.dll", "nvcuda.dll"])
    dll(lib / "caffe2_nvrtc.dll", ["nvrtc64_112_0.dll"])
    dll(lib / "c10.dll", ["api-ms-win-crt-heap-l1-1-0.dll", "VCRUNTIME140.dll"])
    dll(lib.parent / "_C.cp39-win_amd64.pyd", ["python39.dll", "torch_cpu.dll"])
    cuda, cudnn, mkl, nvtx = (tmp_path / name for name in ("cuda/bin", "cudnn/bin", "env/Library/bin", "nvtx/x64"))
    dll(cuda / "cublas64_11.dll", ["cublasLt64_11.dll"])
    for name in ("cublasLt64_11.dll", "nvrtc64_112_0.dll", "nvrtc-builtins64_114.dll"):
        dll(cuda / name)
    dll(tmp_path / "cuda" / "extras" / "cupti64_2021.2.2.dll")
    for part in PARTS:
        dll(cudnn / f"{part}64_8.dll")
    dll(cudnn / "zlibwapi.dll")
    dll(mkl / "libiomp5md.dll")
    dll(nvtx / "nvToolsExt64_1.dll")
    dll(tmp_path / "win" / "System32" / "kernel32.dll")
    return lib, [str(each) for each in (cudnn, cuda, tmp_path / "cuda" / "extras", nvtx, mkl)]


def test_the_closure_is_found_and_put_beside_torchs_own(tmp_path: Path, plan: dict[str, object]) -> None:
    lib, places = stage(tmp_path)
    assert standalone_libraries.libraries(str(lib), *places) == 0
    assert {path.name.lower() for path in lib.iterdir()} == {
        "torch_cpu.dll", "torch_cuda.dll", "caffe2_nvrtc.dll", "c10.dll", "libiomp5md.dll", "nvtoolsext64_1.dll",
        "zlibwapi.dll", "cupti64_2021.2.2.dll", "nvrtc64_112_0.dll", "nvrtc-builtins64_114.dll", "cublas64_11.dll",
        "cublaslt64_11.dll", *(f"{part}64_8.dll" for part in PARTS),
    }  # fmt: skip
    assert standalone_libraries.libraries(str(lib), *places) == 0, "a second time there is nothing to do"


@pytest.mark.parametrize(
    "name", ["libiomp5md.dll", "nvToolsExt64_1.dll", "zlibwapi.dll", "cupti64_2021.2.2.dll", "nvrtc-builtins64_114.dll",
             "cudnn_cnn_train64_8.dll", "cublasLt64_11.dll"],
)  # fmt: skip
def test_any_one_that_is_nowhere_stops_it_and_is_named(
    tmp_path: Path, plan: dict[str, object], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    lib, places = stage(tmp_path)
    next(path for path in tmp_path.rglob(name) if lib not in path.parents).unlink()
    assert standalone_libraries.libraries(str(lib), *places) == 1
    said = capsys.readouterr().out.lower()
    pattern = "nvrtc-builtins64_*.dll" if "builtins" in name else name.lower()
    assert f"missing  {pattern}" in said


def test_what_is_loaded_by_name_alone_is_brought_where_it_is_and_named_where_it_is_not(
    tmp_path: Path, plan: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name in a file's data is no proof that it is loaded: nothing stops at it, or at what a table knows of."""
    lib = tmp_path / "lib"
    dll(lib / "torch_cpu.dll", texts=[b"cusolverMg64_11.dll", b"mkl_def.2.dll", b"kernel32.dll", b"odd.dll"])
    dll(lib / "shm.dll", texts=["nvToolsExt64_1.dll".encode("utf-16-le")])
    nvtx = dll(tmp_path / "nvtx" / "nvToolsExt64_1.dll").parent
    assert standalone_libraries.libraries(str(lib), str(nvtx)) == 0
    said = capsys.readouterr().out
    assert "without  cusolvermg64_11.dll, which torch_cpu.dll names and may load while running" in said
    assert "mkl_def" not in said and "odd.dll" not in said
    assert sorted(path.name for path in lib.iterdir()) == ["nvToolsExt64_1.dll", "shm.dll", "torch_cpu.dll"]


def test_what_lies_on_the_users_path_is_found_last(
    tmp_path: Path, plan: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, places = stage(tmp_path)
    (tmp_path / "cudnn" / "bin" / "zlibwapi.dll").unlink()
    dll(tmp_path / "tools" / "zlibwapi.dll")
    monkeypatch.setenv("RK_PATH", str(tmp_path / "tools"))
    assert standalone_libraries.libraries(str(lib), *places) == 0
    assert (lib / "zlibwapi.dll").is_file()


def test_windows_itself_is_never_brought(
    tmp_path: Path, plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The PATH of every prompt begins with System32: 20 files of Windows came into the wheel that way."""
    lib, system = tmp_path / "s" / "torch" / "lib", tmp_path / "win" / "System32"
    wanted = ["KERNEL32.dll", "MSVCP140.dll", "api-ms-win-crt-heap-l1-1-0.dll", "newer_than_the_table.dll"]
    dll(lib / "c10.dll", wanted)
    dll(system / "kernel32.dll", ["ntdll.dll", "kernelbase.dll"])
    dll(system / "msvcp140.dll", ["ucrtbase.dll", "vcruntime140.dll"])
    names = ("ntdll", "kernelbase", "ucrtbase", "vcruntime140", "api-ms-win-crt-heap-l1-1-0", "newer_than_the_table")
    for name in names:
        dll(system / f"{name}.dll")
    monkeypatch.setenv("RK_PATH", os.pathsep.join([str(system), str(tmp_path / "win")]))
    assert standalone_libraries.libraries(str(lib)) == 0
    assert {path.name for path in lib.iterdir()} == {"c10.dll", "msvcp140.dll"}
    assert "left     newer_than_the_table.dll" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll", "nvcuda.dll"])
def test_what_an_earlier_run_packed_of_windows_stops_it(
    tmp_path: Path, plan: dict[str, object], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    lib = dll(tmp_path / "s" / "torch" / "lib" / name).parent
    dll(lib / "c10.dll")
    assert standalone_libraries.libraries(str(lib)) == 1
    assert f"WRONG    {name} does not belong into" in capsys.readouterr().out


def test_another_table_of_owners_does_the_step_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older Rekindle's script packed is not kept by the mark of that time."""

    def prints() -> dict[str, str]:
        wanted = request.resolve(request.BuildFile(torch="1.12.1", cuda=None, cudnn=None, python="3.9"), load(MACHINE))
        composed = script.compose(wanted, options.resolve(wanted), work=r"C:\rk", jobs=2)
        return {step["name"]: step["print"] for step in composed.plan["steps"]}

    before = prints()
    monkeypatch.setattr(libraries, "owners_on", lambda _: ())
    after = prints()
    assert [name for name in before if before[name] != after[name]] == ["libraries", "package", "tryout"]


# ---- cuDNN


HEADER = "#define CUDNN_MAJOR {0}\n#define CUDNN_MINOR {1}\n#define CUDNN_PATCHLEVEL {2}\n"


def cudnn(root: Path, version: str = "8.7.0") -> Path:
    for part in PARTS:
        dll(root / "bin" / f"{part}64_8.dll")
    (root / "include").mkdir(parents=True)
    (root / "include" / "cudnn.h").write_text("", encoding="utf-8")
    (root / "include" / "cudnn_version.h").write_text(HEADER.format(*version.split(".")), encoding="utf-8")
    (root / "lib" / "x64").mkdir(parents=True)
    (root / "lib" / "x64" / "cudnn.lib").write_bytes(b"!<arch>\n")
    return root


def test_a_whole_cudnn_is_accepted(tmp_path: Path, plan: dict[str, object]) -> None:
    assert standalone_libraries.cudnn_of(str(cudnn(tmp_path)), "8.7.0", PARTS) == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda root: (root / "include" / "cudnn_version.h").write_text(HEADER.format(8, 9, 2)), "is cuDNN 8.9.2, not"),
        (lambda root: (root / "include" / "cudnn_version.h").unlink(), "missing or empty"),
        (lambda root: (root / "lib" / "x64" / "cudnn.lib").unlink(), "no cudnn.lib"),
        (lambda root: (root / "bin" / "cudnn_adv_train64_8.dll").unlink(), "cudnn_adv_train64_8.dll"),
    ],
)
def test_a_wrong_or_half_cudnn_stops_with_its_sentence(
    tmp_path: Path, plan: dict[str, object], harm: object, said: str
) -> None:
    root = cudnn(tmp_path)
    harm(root)  # type: ignore[operator]
    wrong = standalone_libraries.cudnn_of(str(root), "8.7.0", PARTS)
    assert len(wrong) == 1 and said in wrong[0]


# ---- MKL on one core


def test_a_sequential_mkl_is_a_failure_of_the_check(
    tmp_path: Path, plan: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    sequential = "MKL_LIBRARIES_mkl_sequential_LIBRARY:FILEPATH=C:/mkl/lib/mkl_sequential.lib\n"
    missed = "MKL_LIBRARIES_libiomp5md_LIBRARY:FILEPATH=MKL_LIBRARIES_libiomp5md_LIBRARY-NOTFOUND\n"
    threaded = "MKL_LIBRARIES_libiomp5md_LIBRARY:FILEPATH=C:/mkl/lib/libiomp5md.lib\n"
    for text, wrong in (
        (sequential + missed, True),
        (sequential, True),
        (sequential + threaded, False),
        ("A:B=1\n", 0),
    ):
        (tmp_path / "CMakeCache.txt").write_text(text, encoding="utf-8")
        (tmp_path / "build.ninja").write_text("", encoding="utf-8")
        assert standalone_steps.check(str(tmp_path)) == bool(wrong)
        resolved = request.resolve(request.BuildFile(torch="1.12.1", python="3.9"), load(MACHINE))
        found = backends.check_configured(resolved, Options(resolved=()), cmake_result.configured_in(tmp_path, ""))
        assert any(each.id == "mkl-threads" and each.state is State.FAIL for each in found) == bool(wrong)
    assert "one core" in capsys.readouterr().out


def test_oneapis_openmp_is_told_to_findmkl() -> None:
    from rekindle.build.configure import environment
    from rekindle.build.configure.options import resolve

    plain = request.resolve(request.BuildFile(torch="1.12.1", python="3.9"), load(MACHINE))
    mkl = "C:\\Program Files (x86)\\Intel\\oneAPI\\mkl\\2023.2.0"
    omp = "C:\\Program Files (x86)\\Intel\\oneAPI\\compiler\\2023.2.0"
    own = msgspec.structs.replace(plain, mkl=mkl, openmp=omp)
    made = environment.compute(own, resolve(own).resolved, places=environment.BuildPlaces(temp="C:\\t", tools="C:\\e"))
    after = made.over({})
    assert after["INTEL_OMP_DIR"] == omp
    assert f"{omp}\\windows\\compiler\\lib\\intel64_win" in after["LIB"].split(";")
    assert f"{omp}\\windows\\redist\\intel64_win\\compiler" in after["PATH"].split(";")


# ---- preflight: what is not there is said before hours are spent


def test_the_preflight_asks_for_the_zlib_that_cudnn_loads(
    tmp_path: Path, plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolved = request.resolve(request.BuildFile(torch="1.12.1", python="3.9"), load(MACHINE))
    cuda = request.Cuda(root=str(tmp_path / "cuda"), nvcc="nvcc", version=Version("11.4"))
    for version, wanted in (("8.7.0", True), ("8.2.4", False), ("9.1.0", False)):
        own = request.BuildCudnn(root=str(tmp_path / "cudnn"), version=Version(version))
        assert bool(preflight.loaded_by_cudnn(msgspec.structs.replace(resolved, cuda=cuda, cudnn=own))) == wanted
    own = request.BuildCudnn(root=str(tmp_path / "cudnn"), version=Version("8.7.0"))
    listed = [
        each
        for each in preflight.script_needs(msgspec.structs.replace(resolved, cuda=cuda, cudnn=own), set())
        if each.get("dll")
    ]
    plan.update(NOTHING | {"needs": listed})
    monkeypatch.setenv("RK_CUDNN", str(tmp_path / "cudnn"))
    monkeypatch.setenv("RK_CUDA", str(tmp_path / "cuda"))
    (tmp_path / "w").mkdir()
    assert standalone_steps.preflight() == 1
    assert "MISSING  zlibwapi.dll" in capsys.readouterr().out
    dll(tmp_path / "cudnn" / "bin" / "zlibwapi.dll")
    assert standalone_steps.preflight() == 0


def test_a_cuda_with_letters_that_nvcc_cannot_read_gets_a_hint_about_cuda() -> None:
    from rekindle.build.configure import preflight

    resolved = request.resolve(request.BuildFile(torch="1.12.1", python="3.9"), load(MACHINE))
    cuda = request.Cuda(root="D:\\Gr\u00fc\u00dfe\\v11.4", nvcc="n", version=Version("11.4"))
    found = list(preflight._places(msgspec.structs.replace(resolved, cuda=cuda), Folders(Path("C:\\rk"))))
    hint = next(each.fix.text for each in found if each.id == "cuda-spelling" and each.fix)
    assert "mklink /J C:\\cuda114" in hint


def test_the_short_name_of_cuda_is_used_where_there_is_one() -> None:
    recorded = load(MACHINE)
    root = "D:\\Gr\u00fc\u00dfe\\v11.4"
    kit = FoundToolkit(
        root=root, nvcc=root + "\\bin\\nvcc.exe", version=Version("11.4.152"), short_root="D:\\GR~1\\v11.4"
    )
    seen = msgspec.structs.replace(recorded, toolkits=(kit,))
    wanted = request.BuildFile(torch="1.12.1", python="3.9", cuda=Version("11.4"), arch_list="3.5", toolset="14.29")
    found = request.resolve(wanted, seen).cuda
    assert found and found.root == "D:\\GR~1\\v11.4" and found.nvcc == "D:\\GR~1\\v11.4\\bin\\nvcc.exe"


def _small_wheel(tmp_path: Path, *, record_last: bool) -> Path:
    """A wheel as scikit-build-core leaves it: torch's own DLLs, a module, metadata."""
    import base64
    import hashlib
    import zipfile

    made = tmp_path / "w" / "wheels" / "torch-2.14.1-cp311-cp311-win_amd64.whl"
    made.parent.mkdir(parents=True)
    body = {
        "torch/lib/c10.dll": dll(tmp_path / "c10.dll", ["KERNEL32.dll", "libiomp5md.dll"]).read_bytes(),
        "torch/_C.cp311-win_amd64.pyd": dll(tmp_path / "_C.pyd", ["c10.dll", "uv.dll"]).read_bytes(),
        "torch-2.14.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.14.1\n",
        "torch-2.14.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-win_amd64\n",
    }
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in body.items()
    ]
    record = ("torch-2.14.1.dist-info/RECORD", "\n".join([*rows, "torch-2.14.1.dist-info/RECORD,,"]) + "\n")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        if not record_last:
            archive.writestr(*record)
        for name, data in body.items():
            archive.writestr(name, data)
        if record_last:
            archive.writestr(*record)
    return made


@pytest.mark.parametrize("record_last", [True, False])
def test_a_wheel_that_is_packed_already_gets_its_dlls_and_an_honest_record(
    plan: dict[str, object], tmp_path: Path, record_last: bool
) -> None:
    import base64
    import csv
    import hashlib
    import zipfile

    made = _small_wheel(tmp_path, record_last=record_last)
    dll(tmp_path / "win" / "System32" / "kernel32.dll")
    dll(tmp_path / "intel" / "libiomp5md.dll")
    dll(tmp_path / "uv" / "uv.dll", ["KERNEL32.dll"])
    assert standalone_steps.main(["wheel-libraries", str(tmp_path / "intel"), str(tmp_path / "uv")]) == 0
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(names) == len(set(names))
        assert [name for name in names if name.endswith(".dll")] == [
            "torch/lib/c10.dll", "torch/lib/libiomp5md.dll", "torch/lib/uv.dll",
        ]  # fmt: skip
        rows = list(csv.reader(archive.read("torch-2.14.1.dist-info/RECORD").decode().splitlines()))
        assert {row[0] for row in rows} == set(names)
        for name, told, size in rows:
            if told:
                data = archive.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (told, size) == (f"sha256={digest}", str(len(data)))
    # A second run has nothing to bring and leaves the file as it is.
    before = made.read_bytes()
    assert standalone_steps.main(["wheel-libraries", str(tmp_path / "intel"), str(tmp_path / "uv")]) == 0
    assert made.read_bytes() == before


def test_a_packed_wheel_that_lacks_a_dll_stops_with_its_name(
    plan: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _small_wheel(tmp_path, record_last=True)
    before = made.read_bytes()
    dll(tmp_path / "win" / "System32" / "kernel32.dll")
    assert standalone_steps.main(["wheel-libraries", str(tmp_path / "intel")]) == 1
    assert "MISSING  libiomp5md.dll, which c10.dll loads" in capsys.readouterr().out
    assert made.read_bytes() == before


def test_releases_that_scikit_build_core_packs_have_the_step_after_the_wheel() -> None:
    for torch, order in (("2.13.0", ["libraries", "package"]), ("2.14.1", ["package", "libraries"])):
        wanted = request.BuildFile(torch=torch, cuda=None, cudnn=None, python="3.9")
        resolved = request.resolve(wanted, load(MACHINE))
        from rekindle.build.configure import options

        made = script.compose(resolved, options.resolve(resolved), work="C:\\w", jobs=2)
        assert [step.name for step in made.steps if step.name in order] == order


def test_a_dll_that_is_gone_fails_the_tryout_even_where_the_import_does_not_miss_it(
    plan: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan["sets"] = []
    folder = tmp_path / "site" / "torch" / "lib"
    dll(folder / "c10.dll")
    standalone.write(standalone.place("libraries.txt"), "c10.dll\nshm.dll\n")
    monkeypatch.setattr(standalone_steps, "TRYOUT", f"print('folder:', {str(folder)!r})")
    assert standalone_steps.tryout() == 1
    assert "it lacks shm.dll" in capsys.readouterr().out
    dll(folder / "shm.dll")
    assert standalone_steps.tryout() == 0


def test_the_preflight_stops_where_disk_or_memory_cannot_hold_it(
    plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk of 200 MB was a warning, and the build died in pip."""
    standalone.place().mkdir(parents=True, exist_ok=True)
    plan.update(NOTHING | {"disk": 10**6, "memory": 10**6})
    assert standalone_steps.preflight() == 1
    said = capsys.readouterr().out
    assert "WRONG    disk" in said and "WRONG    memory" in said
    monkeypatch.setenv("RK_FORCE", "1")
    assert standalone_steps.preflight() == 0


@pytest.mark.parametrize(("told", "lines"), [(False, 1), (True, 0), (None, 0)])
def test_the_preflight_names_a_drive_that_is_no_dev_drive(
    told: bool | None,
    lines: int,
    plan: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    standalone.place().mkdir(parents=True, exist_ok=True)
    plan.update(NOTHING)
    monkeypatch.setattr(standalone_steps, "dev_drive", lambda path: told)
    standalone_steps.preflight()
    assert capsys.readouterr().out.count("is not a Dev Drive, which builds faster on Windows 11") == lines


COMPILER = """import pathlib, sys
tries = pathlib.Path("tries")
tries.write_text((tries.read_text() if tries.exists() else "") + sys.argv[2] + " ")
if int(sys.argv[2]) > 2:
    sys.exit(print("c1xx: fatal error C1060: compiler is out of heap space") or 2)
sys.exit(print("x.cu(3): error: nothing") or 1 if "broken" in sys.argv else 0)
"""


@pytest.mark.parametrize(
    ("holds", "more", "code", "tries"),
    [(64, (), 0, "8 4 2 "), (5, (), 0, "5 2 "), (2, (), 0, "2 "), (1, ("broken",), 1, "1 "), (2, ("broken",), 1, "2 ")],
)
def test_the_script_compiles_as_many_at_a_time_as_memory_holds(
    plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holds: int, more: tuple[str, ...],
    code: int, tries: str,
) -> None:  # fmt: skip
    """One number was too large where the heaviest files came together; a real error is not tried again."""
    monkeypatch.chdir(tmp_path)
    plan.update(NOTHING | {"per_job": 3 << 30, "steps": [{"name": "compile", "print": ""}]})
    standalone.write(standalone.place("step"), "compile")
    monkeypatch.setattr(standalone_steps, "memory", lambda: holds * 3 << 30)
    (tmp_path / "ninja.py").write_text(COMPILER, encoding="utf-8")
    assert standalone_steps.main(["compile", sys.executable, "ninja.py", "-j", "8", *more]) == code
    assert (tmp_path / "tries").read_text(encoding="utf-8") == tries


def test_the_preflight_asks_for_what_doctor_asks_for() -> None:
    """The Windows SDK, and every part of CUDA that a build of PyTorch includes."""
    from rekindle.machine.toolchain import toolkits

    file = request.BuildFile(torch="1.12.1", cuda=Version("11.4"), python="3.9")
    resolved = request.resolve(file, load(MACHINE))
    paths = {row["path"] for row in preflight.script_needs(resolved, {"environment"})}
    assert {f"RK_CUDA/include/{header}" for header in toolkits.HEADERS} <= paths
    assert "KitsRoot10/Include/*/um/windows.h" in paths


def test_the_sdk_is_looked_for_where_the_registry_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK on drive D: is one."""
    keys = {"SOFTWARE\\WOW6432Node\\Microsoft\\Windows Kits\\Installed Roots": str(tmp_path)}

    def opened(hive: object, key: str, *_: object) -> object:
        if key not in keys:
            raise FileNotFoundError(key)
        return contextlib.nullcontext(key)

    def value(key: str, name: str) -> tuple[str, int]:
        assert name == "KitsRoot10"
        return keys[key], 1

    fake = SimpleNamespace(HKEY_LOCAL_MACHINE=1, KEY_READ=2, KEY_WOW64_64KEY=4, OpenKey=opened, QueryValueEx=value)
    monkeypatch.setitem(sys.modules, "winreg", fake)
    header = tmp_path / "Include" / "10.0.22621.0" / "um" / "windows.h"
    header.parent.mkdir(parents=True)
    header.touch()
    assert standalone_libraries.expanded("KitsRoot10/Include/*/um/windows.h") == header
    keys.clear()
    monkeypatch.setenv("PROGRAMFILES(X86)", str(tmp_path / "files"))
    assert standalone_libraries.kits() == tmp_path / "files" / "Windows Kits" / "10"


def test_the_work_folder_is_measured_only_where_the_disk_is_short(
    plan: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run has built is room that the build has taken already."""
    walks: list[Path] = []
    monkeypatch.setattr(standalone_steps, "size_of", lambda path: walks.append(path) or 4 * 1024**3)
    plan.update(NOTHING | {"disk": 10})
    assert standalone_steps.cramped(10, 0) == [] and walks == []
    assert standalone_steps.cramped(6, 0) == [] and walks == [standalone.place()]
    assert ["WRONG    disk" in line for line in standalone_steps.cramped(5, 0)] == [True]


def test_the_preflight_says_where_else_a_thing_lies(
    plan: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most people have Visual Studio Community, and the script's usual place is that of the Build Tools."""
    resolved = request.resolve(request.BuildFile(torch="1.12.1", cuda=Version("11.4"), python="3.9"), load(MACHINE))
    rows = [row for row in preflight.script_needs(resolved, {"environment"}) if row["what"] == "Visual Studio"]
    plan.update(NOTHING | {"needs": rows})
    there = tmp_path / "Program Files/Microsoft Visual Studio/2022/Community"
    (there / "VC/Auxiliary/Build").mkdir(parents=True)
    (there / "VC/Auxiliary/Build/vcvarsall.bat").write_text("", encoding="ascii")
    standalone.place().mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("RK_STUDIO", str(tmp_path / "no"))
    monkeypatch.setenv("SYSTEMDRIVE", str(tmp_path))
    assert standalone_steps.preflight() == 1
    said = capsys.readouterr().out
    assert "MISSING  Visual Studio" in said
    assert f"there is one in `{there}`" in said


@pytest.mark.skipif(sys.platform == "win32", reason="cmd has no such variables")
def test_a_line_that_is_printed_at_the_end_goes_through_the_shell(tmp_path: Path) -> None:
    words = ("printf", "%s\\n", "/home/me/$HOME `x`/torch.whl", "it's")
    said = subprocess.run(["sh", "-c", standalone.line_of(*words)], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == list(words[2:])
