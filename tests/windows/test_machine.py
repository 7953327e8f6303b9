r"""What Rekindle asks Windows itself: registry, memory, processor, short paths, devices, the CUDA driver's DLL.

Wine cannot vouch for: real devices (there is no PCI card in it: cfgmgr32 is stood in for by the same calls), real
driver DLLs, 8.3 names as NTFS gives them, the console's code page (the bench has no console).
"""

from __future__ import annotations

import ctypes
import sys
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import program

from rekindle.core import run
from rekindle.core.disk import DEV_VOLUME, UNKNOWN_TO_THIS_WINDOWS, dev_drive
from rekindle.machine.gpu import ask_cuda_driver
from rekindle.machine.host import Host
from rekindle.machine.system import windows

CARD = r"PCI\VEN_10DE&DEV_1024&SUBSYS_098310DE&REV_A1\4&1A2B3C&0&0008"
SOUND = r"PCI\VEN_10DE&DEV_0E1A&SUBSYS_098310DE&REV_A1\4&1A2B3C&0&0108"


@pytest.fixture
def key() -> Iterator[str]:
    """A registry key of our own."""
    import winreg

    name = rf"Software\rekindle-test-{uuid.uuid4().hex}"
    with winreg.CreateKey(winreg.HKEY_CURRENT_USER, name) as opened:
        winreg.SetValueEx(opened, "text", 0, winreg.REG_SZ, "Zoë 日本")
        winreg.SetValueEx(opened, "number", 0, winreg.REG_DWORD, 1)
        winreg.SetValueEx(opened, "list", 0, winreg.REG_MULTI_SZ, ["a", "b"])
        winreg.SetValueEx(opened, "bytes", 0, winreg.REG_BINARY, b"\x01\xff")
        winreg.SetValueEx(opened, "", 0, winreg.REG_SZ, "unnamed")
        winreg.CreateKey(opened, "child").Close()
    yield "HKCU\\" + name
    winreg.DeleteKey(winreg.HKEY_CURRENT_USER, name + r"\child")
    winreg.DeleteKey(winreg.HKEY_CURRENT_USER, name)


def test_the_registry_is_read_as_plain_data(key: str) -> None:
    expected = {
        "text": "Zoë 日本",
        "number": 1,
        "list": ["a", "b"],
        "bytes": "01ff",
        "(default)": "unnamed",
        "": ["child"],
    }
    assert windows.registry(key) == expected
    assert Host().registry(key) == expected
    assert windows.registry(key + r"\not there") is None


def test_memory_is_what_psutil_says() -> None:
    said = windows.memory()
    assert said is not None
    assert abs(said["total"] - psutil.virtual_memory().total) < 64 * 1024**2
    assert 0 < said["available"] <= said["total"]
    assert said["commit_total"] >= said["commit_free"] > 0


def test_a_processor_of_this_century() -> None:
    said = windows.processor()
    assert said is not None
    assert set(said["flags"]) <= {"sse4.1", "avx", "avx2", "avx512", "neon"}
    assert "flags" in said


def test_a_short_path_has_no_spaces_and_is_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "Program Files (x86)"
    folder.mkdir()
    (folder / "here.txt").touch()
    short = windows.short_path(str(folder))
    assert short is None or (" " not in short and Path(short, "here.txt").is_file())
    assert windows.short_path(str(tmp_path / "not there")) is None


def test_a_console_or_none() -> None:
    page = windows.console_code_page()
    assert page is None or page > 0


class Manager:
    """cfgmgr32 of a machine with a K40c whose driver failed to start (code 43), and its sound device."""

    devices = {  # noqa: RUF012
        CARD: {
            0x01: "Tesla K40c",
            0x03: "PCI\\VEN_10DE&DEV_1024\0PCI\\CC_0302",
            0x08: "Display",
            0x0A: "{4d36e968}\\0001",
        },
        SOUND: {0x01: "High Definition Audio", 0x03: "PCI\\VEN_10DE&CC_0403", 0x08: "MEDIA"},
        r"PCI\VEN_8086&DEV_1912\3&11": {0x01: "Intel", 0x08: "Display"},
    }

    def __init__(self) -> None:
        self.listing = "\0".join(self.devices) + "\0\0"

    def CM_Get_Device_ID_List_SizeW(self, size: Any, filter: str, flags: int) -> int:
        size._obj.value = len(self.listing)
        assert (filter, flags) == ("PCI", 0x101)
        return 0

    def CM_Get_Device_ID_ListW(self, filter: str, buffer: Any, size: Any, flags: int) -> int:
        for index, letter in enumerate(self.listing):
            buffer[index] = letter
        return 0

    def CM_Locate_DevNodeW(self, node: Any, instance: str, flags: int) -> int:
        node._obj.value = list(self.devices).index(instance) + 1
        return 0

    def CM_Get_DevNode_Status(self, status: Any, problem: Any, node: Any, flags: int) -> int:
        problem._obj.value = 43
        return 0

    def CM_Get_DevNode_Registry_PropertyW(
        self, node: Any, which: int, kind: Any, buffer: Any, size: Any, flags: int
    ) -> int:
        text = list(self.devices.values())[node.value - 1].get(which)
        if text is None:
            return 0x25
        for index, letter in enumerate(text + "\0"):
            buffer[index] = letter
        return 0


def test_a_card_is_found_among_devices_with_its_problem_and_its_sound_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    windll = types.SimpleNamespace(cfgmgr32=Manager(), kernel32=ctypes.windll.kernel32)
    monkeypatch.setattr(windows, "ctypes", _Ctypes(windll))
    assert windows.nvidia_devices() == [
        {"instance": CARD, "name": "Tesla K40c", "problem": 43, "driver": None},
    ]


def test_a_machine_without_pci_has_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Manager()
    empty.listing = ""
    monkeypatch.setattr(windows, "ctypes", _Ctypes(types.SimpleNamespace(cfgmgr32=empty)))
    assert windows.nvidia_devices() == []


@pytest.mark.parametrize("refuses", ["CM_Get_Device_ID_List_SizeW", "CM_Get_Device_ID_ListW", "CM_Locate_DevNodeW"])
def test_a_system_that_refuses_to_list_devices_has_no_cards(monkeypatch: pytest.MonkeyPatch, refuses: str) -> None:
    manager = Manager()
    monkeypatch.setattr(manager, refuses, lambda *_: 1, raising=True)
    monkeypatch.setattr(windows, "ctypes", _Ctypes(types.SimpleNamespace(cfgmgr32=manager)))
    assert windows.nvidia_devices() == []


def test_memory_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel32 = types.SimpleNamespace(GlobalMemoryStatusEx=lambda _: 0)
    monkeypatch.setattr(windows, "ctypes", _Ctypes(types.SimpleNamespace(kernel32=kernel32)))
    assert windows.memory() is None


def test_the_system_itself_is_asked_for_devices_without_a_fault() -> None:
    assert isinstance(windows.nvidia_devices(), list)


class _Ctypes:
    """ctypes with other system libraries."""

    def __init__(self, windll: Any) -> None:
        self.windll = windll

    def __getattr__(self, name: str) -> Any:
        return getattr(ctypes, name)


NVCUDA = """
#define EXPORT __declspec(dllexport)
#include <string.h>
EXPORT int cuInit(unsigned flags) { return 0; }
EXPORT int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
EXPORT int cuDeviceGetCount(int *count) { *count = 1; return 0; }
EXPORT int cuDeviceGet(int *device, int index) { *device = index; return 0; }
EXPORT int cuDeviceGetName(char *name, int size, int device) { strcpy(name, "Tesla K40c"); return 0; }
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)12 << 30; return 0; }
EXPORT int cuDeviceGetAttribute(int *value, int which, int device) {
    switch (which) { case 75: *value = 3; return 0; case 76: *value = 5; return 0; case 33: *value = 2; return 0;
        case 34: case 50: *value = 0; return 0; case 35: *value = 1; return 0; }
    return 1;
}
"""


def test_the_drivers_own_dll_is_asked(tmp_path: Path) -> None:
    """In a process of its own, as Rekindle does: a DLL that was loaded stays."""
    source = tmp_path / "nvcuda.c"
    source.write_text(NVCUDA, encoding="utf-8")
    built = run.call([program("tcc"), "-shared", "-o", tmp_path / "nvcuda.dll", source])
    assert built.ok, built.err
    code = (
        "import os, sys, json; os.add_dll_directory(sys.argv[1])\n"
        "from rekindle.machine.gpu import ask_cuda_driver\n"
        "print(json.dumps(ask_cuda_driver.main()))"
    )
    said = run.call([sys.executable, "-c", code, tmp_path])
    assert '"cuda": "11.4"' in said.out, said.err
    assert '"capability": "3.5"' in said.out
    assert '"driver_model": "TCC"' in said.out
    assert '"bus": "0000:02:00.0"' in said.out


def test_without_a_driver_there_is_no_dll() -> None:
    said = ask_cuda_driver.main()
    assert said.get("error") == "no driver library" or "gpus" in said


def test_a_32_bit_python_still_sees_a_64_bit_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCESSOR_ARCHITEW6432", "ARM64")
    assert Host().arch == "aarch64"
    monkeypatch.delenv("PROCESSOR_ARCHITEW6432")
    assert Host().arch == "x86_64"
    assert Host().os == "windows"


def test_a_program_that_ends_by_a_missing_dll_says_so_in_its_code(tmp_path: Path) -> None:
    """0xC0000135 is what a user sees as a dialog; here it is a number that can be explained."""
    (tmp_path / "dep.c").write_text("__declspec(dllexport) int dep(void) { return 1; }", encoding="utf-8")
    run.checked(
        run.call([program("tcc"), "-shared", "-o", tmp_path / "dep.dll", tmp_path / "dep.c"]), doing="compile a DLL"
    )
    main = tmp_path / "main.c"
    main.write_text("int dep(void); int main(void) { return dep(); }", encoding="utf-8")
    (tmp_path / "alone").mkdir()
    linked = run.call([program("tcc"), "-o", tmp_path / "alone" / "app.exe", main, tmp_path / "dep.def"])
    assert linked.ok, linked.err
    assert run.call([tmp_path / "alone" / "app.exe"]).code == 0xC0000135
    (tmp_path / "dep.dll").rename(tmp_path / "alone" / "dep.dll")
    assert run.call([tmp_path / "alone" / "app.exe"]).code == 1


@pytest.mark.parametrize(
    ("told", "flags", "error", "expected"),
    [(1, DEV_VOLUME, 0, True), (1, 0, 0, False), (0, 0, UNKNOWN_TO_THIS_WINDOWS, False), (0, 0, 1, None)],
)
def test_the_volume_says_whether_it_is_a_dev_drive(
    told: int, flags: int, error: int, expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ctypes.WinDLL("kernel32", use_last_error=True)

    class Kernel:
        """The real one, but for the one question that Wine does not know."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def DeviceIoControl(self, handle: Any, code: int, asked: Any, *rest: Any) -> int:
            assert handle.value and code == 0x9023C and list(asked) == [0, DEV_VOLUME, 1, 0]
            asked[0] = flags
            ctypes.set_last_error(error)
            return told

    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: Kernel())
    assert dev_drive(str(Path.cwd())) is expected


def test_the_drive_of_windows_itself_is_never_a_dev_drive() -> None:
    assert dev_drive("C:\\") is not True
    assert dev_drive("Q:\\nowhere") is None
