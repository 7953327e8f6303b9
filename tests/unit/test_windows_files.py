"""What belongs to Windows or to the driver, inside a wheel: `inspect`, `verify` and `repair` say the same of it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rekindle.formats import pe
from rekindle.knowledge.cuda.libraries import owner_of
from rekindle.knowledge.cuda.library_packages import providers
from rekindle.model.platform import WINDOWS
from support import small_wheels
from support.command import rekindle_command
from support.dlls import dll

SET = "api-ms-win-crt-heap-l1-1-0.dll"
INFO = {
    "torch-2.7.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1\n",
    "torch-2.7.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n",
    "torch/version.py": b"__version__ = '2.7.1'\ncuda = None\n",
}


def _wheel(folder: Path, *planted: str) -> Path:
    """A torch whose c10.dll imports an API set, and what was put beside it."""
    data = dll(folder / "c10.dll", ["KERNEL32.dll", SET]).read_bytes()
    files = {"torch/lib/c10.dll": data, **dict.fromkeys(planted, dll(folder / "planted.dll").read_bytes()), **INFO}
    return small_wheels.make(folder, files, name="torch-2.7.1-cp311-cp311-win_amd64.whl")


def _closure(wheel: Path) -> list[tuple[str, str, str]]:
    found = rekindle_command("inspect", str(wheel), "--json").json()["findings"]
    return [
        (item["id"], item["state"], item["found"].split("`")[1] if "`" in item["found"] else "")
        for item in found
        if item["id"].startswith("closure")
    ]


def test_one_that_holds_nothing_of_windows_is_right(tmp_path: Path) -> None:
    assert _closure(_wheel(tmp_path)) == [("closure", "PASS", "")]


@pytest.mark.parametrize(
    "member", ["torch/lib/kernel32.dll", f"torch/lib/{SET}", "torch/bin/UCRTBASE.dll", "torch/lib/nvcuda.dll"]
)
def test_one_planted_file_is_found_by_inspect_and_by_verify(tmp_path: Path, member: str) -> None:
    wheel = _wheel(tmp_path, member)
    assert _closure(wheel) == [("closure.system-file", "FAIL", member)]
    checks = {
        each["id"]: each for each in rekindle_command("verify", str(wheel), "--no-run", "--json").json()["checks"]
    }
    assert checks["closure"]["state"] == "FAIL"
    assert member in checks["closure"]["found"]


def test_a_second_openmp_runtime_is_found(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "torch/lib/libiomp5md.dll", "torch.libs/libiomp5md.dll")
    assert _closure(wheel) == [("closure.duplicate", "WARN", "libiomp5md.dll")]
    checks = rekindle_command("verify", str(wheel), "--no-run", "--json").json()["checks"]
    assert "is there 2 times" in next(each["found"] for each in checks if each["id"] == "closure")
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--no-index")
    assert "`libiomp5md.dll` is there 2 times" in seen.out


def test_one_that_is_loaded_by_name_alone_is_found(tmp_path: Path) -> None:
    """No import table has it. What Windows brings, what nobody knows and what the file is itself is not asked for."""
    texts = [b"nvToolsExt64_1.dll", "cufftw64_10.dll".encode("utf-16-le"), b"ntdll.dll", b"odd.dll", b"shm.dll"]
    data = dll(tmp_path / "shm.dll", ["KERNEL32.dll"], texts=texts).read_bytes()
    files = {"torch/lib/shm.dll": data, **INFO}
    wheel = small_wheels.make(tmp_path, files, name="torch-2.7.1-cp311-cp311-win_amd64.whl")
    assert _closure(wheel) == [
        ("closure.missing", "WARN", "cufftw64_10.dll"),
        ("closure.missing", "WARN", "nvtoolsext64_1.dll"),
    ]
    checks = rekindle_command("verify", str(wheel), "--no-run", "--json").json()["checks"]
    assert "`cufftw64_10.dll` is not in" in next(each["found"] for each in checks if each["id"] == "closure")
    folder = dll(tmp_path / "cuda" / "cufftw64_10.dll").parent
    seen = rekindle_command(
        "repair", str(wheel), "-o", str(tmp_path / "out"), "--no-index", "--from", str(folder), "--json"
    )
    assert _closure(Path(seen.json()["output"])) == [("closure.missing", "WARN", "nvtoolsext64_1.dll")]


def test_of_a_large_section_what_lies_around_the_table_is_kept(tmp_path: Path) -> None:
    """cuDNN 8.9's largest DLL has 122 MB of constants before its import table, and was called broken."""
    data = bytearray(dll(tmp_path / "a.dll", ["KERNEL32.dll"]).read_bytes())
    table, section = 64 + 24 + 112 + 8, 64 + 24 + 240
    far = 200 << 20
    struct.pack_into("<I", data, table, 0x1000 + far)
    for at in (section + 8, section + 16):
        struct.pack_into("<I", data, at, far + (1 << 20))
    wanted = pe.regions(bytes(data[:4096]), far)
    (begin, end) = wanted[-1]
    assert begin <= 0x400 + far < end and (begin - 0x400) % 0x10000 == 0
    assert end - begin <= 96 << 20


def test_repair_takes_it_out_and_never_puts_it_in(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "torch/lib/kernel32.dll")
    out = ["-o", str(tmp_path / "out"), "--no-index"]
    assert rekindle_command("repair", str(wheel), *out).code == 8
    seen = rekindle_command("repair", str(wheel), *out, "--remove", "kernel32.dll", "--complete", "--json")
    assert seen.code == 0, seen.out
    assert _closure(Path(seen.json()["output"])) == [("closure", "PASS", "")]
    planted = dll(tmp_path / "System32" / "user32.dll")
    refused = rekindle_command("repair", str(wheel), *out, "--add", str(planted))
    assert refused.code == 2
    assert "`user32.dll` is part of Windows" in " ".join(refused.err.split())


def test_a_file_of_windows_looked_at_alone_is_where_it_belongs(tmp_path: Path) -> None:
    assert _closure(dll(tmp_path / "kernel32.dll")) == [("closure", "PASS", "")]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("KERNEL32.dll", "windows-system"), ("ntdll.dll", "windows-system"), ("combase.dll", "windows-system"),
        ("ucrtbase.dll", "windows-crt"), (SET, "windows-crt"), ("ext-ms-win-gdi-draw-l1-1-1.dll", "windows-crt"),
        ("msvcp140.dll", "vc-runtime"), ("vcruntime140.dll", "vc-runtime-of-python"),
        ("cudart64_110.dll", "windows-cuda"),
        ("cudnn_ops64_9.dll", "windows-cudnn"), ("mkl_core.2.dll", "windows-mkl"), ("libiomp5md.dll", "windows-openmp"),
        ("torch_cpu.dll", "windows-torch"), ("nvcuda.dll", "windows-driver"), ("somebodys.dll", None),
    ],
)  # fmt: skip
def test_each_name_has_one_owner(name: str, id: str | None) -> None:
    found = owner_of(name, "windows")
    assert (found.id if found else None) == id


def test_nothing_that_a_package_of_the_index_brings_is_said_to_be_windows() -> None:
    names = {row.dll for row in providers("*", WINDOWS)}
    assert len(names) > 200
    own = {name for name in names if (owner := owner_of(name, "windows")) and owner.bundle == "no"}
    assert own == set()
