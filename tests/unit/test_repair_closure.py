"""What is missing is brought: real libraries made by mingw and gcc, providers from folders and a stand-in for pip."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rekindle.core.errors import FetchFailed
from rekindle.core.findings import State
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.knowledge.cuda import library_packages
from rekindle.knowledge.cuda.libraries import Owner, owner_of
from rekindle.knowledge.cuda.library_packages import DllProvider
from rekindle.model.card import Capability
from rekindle.model.platform import WINDOWS, Platform
from rekindle.wheels.repair import providers, repair
from rekindle.wheels.repair.providers import WantedLibrary
from support import small_wheels
from support.command import rekindle_command
from support.compiled import MINGW, Compiler

INFO = {
    "torch-2.7.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1\n",
    "torch-2.7.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n",
    "torch/version.py": b"__version__ = '2.7.1'\ncuda = '11.8'\n",
}
SEED_001 = ("mkl_intel_thread.2.dll", "libiomp5md.dll", "cupti64_2022.2.1.dll")


@pytest.fixture
def windows(tmp_path: Path) -> Compiler:
    root = tmp_path / "built"
    root.mkdir()
    return Compiler(root, MINGW)


def _needing(compiler: Compiler, name: str, *libraries: str) -> bytes:
    archives = [compiler.import_library(library, [f"from_{n}"]) for n, library in enumerate(libraries)]
    wants = [f"from_{n}" for n in range(len(libraries))]
    return compiler.build(name, wants=wants, options=[str(path) for path in archives]).read_bytes()


def _offering(compiler: Compiler, folder: Path, library: str, number: int, *libraries: str) -> Path:
    """A DLL as its maker would ship it: found in a folder of its own, not in the wheel."""
    archives = [compiler.import_library(one, [f"onward_{n}"]) for n, one in enumerate(libraries)]
    wants = [f"onward_{n}" for n in range(len(libraries))]
    offers = [f"from_{number}", *([] if libraries else ["onward_0"])]
    options = [str(path) for path in archives]
    made = compiler.build(f"elsewhere/{library}", offers=offers, wants=wants, options=options)
    folder.mkdir(parents=True, exist_ok=True)
    return made.rename(folder / library)


def _wheel(folder: Path, files: dict[str, bytes], name: str = "torch-2.7.1-cp311-cp311-win_amd64.whl") -> Path:
    return small_wheels.make(folder, {**files, **INFO}, name=name)


def test_the_three_libraries_of_seed_001_come_from_a_folder(tmp_path: Path, windows: Compiler) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/aoti_custom_ops.dll": _needing(windows, "aoti_custom_ops.dll", *SEED_001)})
    toolkit = tmp_path / "CUDA/v11.7"
    for number, name in enumerate(SEED_001):
        _offering(windows, toolkit / ("extras/CUPTI/lib64" if "cupti" in name else "bin"), name, number)
    words = ["repair", str(wheel), "-o", str(tmp_path / "out"), "--from", str(toolkit), "--no-index", "--json"]
    seen = rekindle_command(*words)
    assert seen.code == 0, (seen.out, seen.err)
    answer = seen.json()
    assert sorted(item["member"] for item in answer["added"]) == sorted(f"torch/lib/{name}" for name in SEED_001)
    made = Path(answer["output"])
    small_wheels.check_record(made)
    with zipfile.ZipFile(made) as zipped:
        bill = json.loads(zipped.read("torch-2.7.1.dist-info/sboms/rekindle.cdx.json"))
        data = zipped.read("torch/lib/libiomp5md.dll")
    assert data == (toolkit / "bin/libiomp5md.dll").read_bytes()
    assert bill["bomFormat"] == "CycloneDX"
    names = {part["name"]: part for part in bill["components"]}
    assert set(names) == set(SEED_001)
    assert names["libiomp5md.dll"]["licenses"][0]["license"]["name"] == "Intel Simplified Software License"
    assert str(tmp_path) not in json.dumps(bill), "where it lay on the builder's disk is nobody's business"
    # Repaired once, it lacks nothing more.
    again = rekindle_command("repair", str(made), "-o", str(tmp_path / "again"), "--no-index", "--json").json()
    assert again["added"] == []
    assert [item["id"] for item in again["findings"]] == ["closure.test-library"]


def test_what_a_brought_library_needs_is_brought_too(tmp_path: Path, windows: Compiler) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", "first.dll")})
    _offering(windows, tmp_path / "libs", "first.dll", 0, "second.dll")
    _offering(windows, tmp_path / "libs/deeper", "second.dll", 0)
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish(folders=(tmp_path / "libs",), index=False))
    assert [item.member for item in done.added] == ["torch/lib/first.dll", "torch/lib/second.dll"]
    assert not done.findings


def test_what_cannot_be_had_is_named_with_where_to_get_it(
    tmp_path: Path, windows: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("zlibwapi.dll", "nvToolsExt64_1.dll", "nobody_knows.dll")
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", *names)})
    lucky = tmp_path / "on the path"
    _offering(windows, lucky, "zlibwapi.dll", 0)
    monkeypatch.setenv("PATH", str(lucky))
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--json")
    assert seen.code == 8
    answer = seen.json()
    assert answer["added"] == [], "a DLL that merely lies on PATH is not taken"
    said = {item["found"].split("`")[1]: item for item in answer["findings"] if item["id"] == "repair.missing"}
    assert set(said) == set(names)
    assert f"there is one on PATH at `{lucky / 'zlibwapi.dll'}`" in said["zlibwapi.dll"]["found"]
    assert "NvToolsExt" in said["nvToolsExt64_1.dll"]["fix"]["text"]


def test_excluded_and_what_python_has_are_left_out(tmp_path: Path, windows: Compiler) -> None:
    needs = _needing(windows, "torch_cpu.dll", "vcruntime140.dll", "libiomp5md.dll")
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": needs})
    _offering(windows, tmp_path / "libs", "libiomp5md.dll", 1)
    wish = repair.RepairWish(folders=(tmp_path / "libs",), exclude=("LIBIOMP*",), index=False)
    done = repair.repair(wheel, tmp_path / "out", wish=wish)
    assert done.added == ()
    assert [(item.id, item.state) for item in done.findings] == [("repair.missing", State.WARN)]


def test_a_test_library_fails_alone_and_loads_after_remove(tmp_path: Path, windows: Compiler) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/aoti_custom_ops.dll": _needing(windows, "aoti_custom_ops.dll", "gone.dll")})
    out = ["-o", str(tmp_path / "out"), "--no-index"]
    assert rekindle_command("repair", str(wheel), *out).code == 8
    seen = rekindle_command("repair", str(wheel), *out, "--remove", "aoti_custom_ops.dll", "--complete")
    assert seen.code == 0, seen.out


def test_the_driver_is_never_bundled(tmp_path: Path, windows: Compiler) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", "nvcuda.dll")})
    driver = _offering(windows, tmp_path / "System32", "nvcuda.dll", 0)
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish(folders=(driver.parent,), index=False))
    assert done.added == () and done.findings == ()
    assert rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--add", str(driver)).code == 2


def _provider(package: str, version: str, dll: str = "x.dll", *, yanked: bool = False, tag: str = "py3") -> DllProvider:
    wheel = f"{package.replace('-', '_')}-{version}-{tag}-none-win_amd64.whl"
    return DllProvider(
        dll=dll,
        package=package,
        version=version,
        path=f"a/{dll}",
        size=1,
        crc32="0",
        wheel=wheel,
        wheel_size=1,
        yanked=yanked,
    )


def test_the_package_of_the_wheels_cuda_is_chosen_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        _provider("nvidia-cublas-cu12", "12.9.1.4"),
        _provider("nvidia-cublas-cu11", "11.10.3.66"),
        _provider("nvidia-cublas-cu11", "11.9.2.110"),
        _provider("nvidia-cublas-cu11", "11.11.3.6", yanked=True),
        _provider("somebody-else", "99"),
    ]
    monkeypatch.setattr(library_packages, "providers", lambda *_: tuple(rows))
    terms = owner_of("cublas64_11.dll", "windows")
    assert terms is not None
    wanted = WantedLibrary(system="windows", python="cp311", cuda=Version("11.8"))
    chosen = [row.version for row in providers.choose("cublas64_11.dll", wanted, terms)]
    assert chosen == ["11.10.3.66", "11.9.2.110", "11.11.3.6"]
    same = WantedLibrary(system="windows", python="cp311", cuda=None, versions={"nvidia-cublas-cu11": "11.9.2.110"})
    assert providers.choose("cublas64_11.dll", same, terms)[0].version == "11.9.2.110"


def test_no_cudnn_without_code_for_the_card_is_taken() -> None:
    """No cuDNN of the index for Windows has code for Kepler: 8.7.0, the last that has, was never put there."""
    terms = owner_of("cudnn64_8.dll", "windows")
    assert terms is not None
    kepler = WantedLibrary(system="windows", python="cp311", cuda=Version("11.8"), cards=(Capability.parse("3.5"),))
    volta = WantedLibrary(system="windows", python="cp311", cuda=Version("11.8"), cards=(Capability.parse("7.0"),))
    assert providers.choose("cudnn64_8.dll", volta, terms)[0].version.startswith("8.")
    for row in providers.choose("cudnn64_8.dll", kepler, terms):
        assert Version.parse(row.version) < Version("8.8"), row.version


def test_a_file_other_than_the_recorded_one_is_refused(
    tmp_path: Path, windows: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", "libiomp5md.dll")})
    data = _offering(windows, tmp_path / "x", "libiomp5md.dll", 0).read_bytes()
    package = small_wheels.make(tmp_path / "index", {"a/libiomp5md.dll": data, **small_wheels.FILES})
    row = _provider("intel-openmp", "2025.3.1", "libiomp5md.dll")
    monkeypatch.setattr(library_packages, "providers", lambda *_: (row,))
    monkeypatch.setattr(providers, "download", lambda _: package)
    assert rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out")).code == 7
    assert not list((tmp_path / "out").glob("*"))


def test_a_library_of_a_package_keeps_its_compressed_bytes_and_brings_its_licence(
    tmp_path: Path, windows: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zlib

    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", "libiomp5md.dll")})
    data = _offering(windows, tmp_path / "x", "libiomp5md.dll", 0).read_bytes()
    files = {"a/libiomp5md.dll": data, "demo-1.0.dist-info/LICENSE.txt": b"terms", **small_wheels.FILES}
    package = small_wheels.make(tmp_path / "index", files)
    row = DllProvider(
        dll="libiomp5md.dll", package="intel-openmp", version="2025.3.1", path="a/libiomp5md.dll", size=len(data),
        crc32=f"{zlib.crc32(data):08x}", wheel=package.name, wheel_size=1, yanked=False,
    )  # fmt: skip
    monkeypatch.setattr(library_packages, "providers", lambda *_: (row,))
    monkeypatch.setattr(providers, "download", lambda _: package)
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish())
    assert done.output is not None
    assert small_wheels.raw(done.output, "torch/lib/libiomp5md.dll") == small_wheels.raw(package, "a/libiomp5md.dll")
    with zipfile.ZipFile(done.output) as zipped:
        assert zipped.read("torch-2.7.1.dist-info/licenses/bundled/intel-openmp/LICENSE.txt") == b"terms"
        bill = json.loads(zipped.read("torch-2.7.1.dist-info/sboms/rekindle.cdx.json"))
    assert bill["components"][0]["purl"] == "pkg:pypi/intel-openmp@2025.3.1"


def test_a_dry_run_fetches_nothing(tmp_path: Path, windows: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _wheel(tmp_path, {"torch/lib/torch_cpu.dll": _needing(windows, "torch_cpu.dll", "libiomp5md.dll")})

    def fetch(_: object) -> None:
        raise AssertionError("fetched on a dry run")

    monkeypatch.setattr(providers, "download", fetch)
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--dry-run")
    assert seen.code == 0
    assert "intel-openmp" in seen.out
    assert not (tmp_path / "out").exists()


def test_a_linux_extension_finds_what_was_brought(tmp_path: Path) -> None:
    """Built against a library that lies elsewhere, repaired, installed: the linker itself says where it finds it."""
    if sys.platform != "linux":
        return
    import platform

    root = tmp_path / "built"
    root.mkdir()
    gcc = Compiler(root, "")
    library = gcc.build("libs/libhelper.so.1", offers=["help_me"], options=["-Wl,-soname,libhelper.so.1"])
    module = gcc.build("fast/_fast.so", offers=["go"], wants=["help_me"], options=[str(library)])
    tag = f"py3-none-linux_{platform.machine()}"
    files = {
        "fast/__init__.py": b"",
        "fast/_fast.so": module.read_bytes(),
        "fast-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: fast\nVersion: 1.0\n",
        "fast-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    wheel = small_wheels.make(tmp_path, files, name=f"fast-1.0-{tag}.whl")
    done = repair.repair(wheel, tmp_path / "out", wish=repair.RepairWish(folders=(library.parent,)))
    assert [item.member for item in done.added] == ["fast.libs/libhelper.so.1"]
    assert done.output is not None
    small_wheels.check_record(done.output)
    with zipfile.ZipFile(done.output) as zipped:
        zipped.extractall(tmp_path / "site")
    library.unlink()
    code = f"import ctypes; print(ctypes.CDLL({str(tmp_path / 'site/fast/_fast.so')!r}).go())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout.strip() == "2", said.stderr


def _linux_terms(library: str) -> Owner:
    terms = owner_of(library, "linux")
    assert terms is not None
    return terms


def _first(library: str, machine: str = "x86_64", cuda: str = "11.8", **more: object) -> DllProvider:
    wanted = WantedLibrary(system="linux", machine=machine, python="cp310", cuda=Version(cuda), **more)  # type: ignore[arg-type]
    return providers.choose(library, wanted, _linux_terms(library))[0]


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libcublas.so.11", "nvidia-cublas-cu11"),
        ("libcublasLt.so.11", "nvidia-cublas-cu11"),
        ("libcufft.so.10", "nvidia-cufft-cu11"),
        # These two names did not change with CUDA 12.
        ("libcurand.so.10", "nvidia-curand-cu11"),
        ("libcusolver.so.11", "nvidia-cusolver-cu11"),
        ("libcusparse.so.11", "nvidia-cusparse-cu11"),
        ("libcudart.so.11.0", "nvidia-cuda-runtime-cu11"),
        ("libnvrtc.so.11.2", "nvidia-cuda-nvrtc-cu11"),
        ("libnvToolsExt.so.1", "nvidia-nvtx-cu11"),
        ("libcupti.so.11.8", "nvidia-cuda-cupti-cu11"),
        ("libnccl.so.2", "nvidia-nccl-cu11"),
    ],
)
def test_each_linux_library_of_cuda_11_has_its_package(library: str, package: str) -> None:
    row = _first(library)
    assert row.package == package
    assert row.wheel.endswith("_x86_64.whl")


def test_a_library_is_of_the_toolkit_that_the_wheel_was_built_with_and_of_its_processor() -> None:
    """cuda-toolkit 12.4.1 pins cuBLAS 12.4.5.8; a newer one is not taken for it."""
    assert _first("libcublas.so.12", cuda="12.4").version == "12.4.5.8"
    arm = _first("libcublas.so.12", machine="aarch64", cuda="12.6")
    assert arm.wheel.endswith("_aarch64.whl")
    assert arm.version == "12.6.4.1"


def test_on_linux_the_last_cudnn_with_code_for_kepler_is_had() -> None:
    kepler = (Capability.parse("3.5"),)
    assert _first("libcudnn.so.8", cards=kepler).version == "8.7.0.84"
    assert _first("libcudnn_cnn_train.so.8", cards=(Capability.parse("7.0"),)).version.startswith("8.9")


def test_the_builtins_of_nvrtc_come_from_the_same_package() -> None:
    taken = {"nvidia-cuda-nvrtc-cu12": "12.1.105"}
    row = _first("libnvrtc-builtins.so.*", cuda="12.9", versions=taken)
    assert (row.dll, row.version) == ("libnvrtc-builtins.so.12.1", "12.1.105")


def test_the_cards_of_a_wheel_are_those_it_has_code_for() -> None:
    from rekindle.formats import binary
    from rekindle.formats.access import Buffer
    from rekindle.wheels.repair.closure import own_cards
    from support.fatbins import container

    own = binary.read(Buffer(container("sm_35", "sm_50", "compute_50"), "torch/lib/a.fatbin"))
    assert [str(card) for card in own_cards([own])] == ["3.5", "5.0"]
    assert own_cards([]) == ()


def test_a_package_that_is_not_the_one_of_the_index_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same name, same size, same CRC-32 of the library would not do: the mirror's file has another hash."""
    row = library_packages.providers("cudart64_12.dll", WINDOWS)[0]
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path))
    place = tmp_path / "providers" / row.wheel

    def mirror(words: list[str], **_: object) -> Result:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(1000))
        return Result(args=tuple(words), code=0)

    monkeypatch.setattr(providers, "call", mirror)
    with pytest.raises(FetchFailed, match="different SHA-256"):
        providers.download(row)
    assert not place.exists()
    # One that lies in the cache with the right size and other contents is fetched again, and refused again.
    with place.open("wb") as stream:
        stream.truncate(row.wheel_size)
    with pytest.raises(FetchFailed):
        providers.download(row)


def test_every_wheel_that_repair_may_take_has_a_hash() -> None:
    for system in ("windows", "linux"):
        for machine in ("x86_64", "aarch64"):
            rows = library_packages.providers("*", Platform(system, machine))
            assert [row.wheel for row in rows if library_packages.sha256_of_wheel(row.wheel) is None] == []
