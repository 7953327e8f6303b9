r"""The verbs from a Windows command line, on a machine that is made up of stand-ins: real executables that answer as
nvidia-smi, nvcc, vswhere and cl do, and folders as the installers make them.

Wine cannot vouch for: the real programs' timing, and whatever they print that the samples do not hold; a real card.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import studio
from programs import stand_in

from rekindle.core import run
from rekindle.core.run import Result

SMI = """+-----------------------------------------------------------------------------+
| NVIDIA-SMI 472.50       Driver Version: 472.50       CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name            TCC/WDDM | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|===============================+======================+======================|
|   0  Tesla K40c         TCC   | 00000000:02:00.0 Off |                    0 |
| 23%   35C    P8    22W / 235W |     10MiB / 11448MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
"""
NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2021 NVIDIA Corporation
Built on Mon_Oct_11_22:11:21_Pacific_Daylight_Time_2021
Cuda compilation tools, release 11.4, V11.4.152
Build cuda_11.4.r11.4/compiler.30521435_0
"""


def rekindle(*words: str, env: dict[str, str] | None = None) -> Result:
    return run.call([sys.executable, "-m", "rekindle", *words], env={**os.environ, **(env or {})}, timeout=240)


def answer(said: Result) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(said.out)
    return data


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The variables of a machine with a K40c, driver 472.50, CUDA 11.4 and Visual Studio 2019 with two toolsets."""
    wow = tmp_path / "Program Files (x86)"
    files = tmp_path / "Program Files"
    bin_folder = tmp_path / "bin"
    cuda = files / "NVIDIA GPU Computing Toolkit" / "CUDA" / "v11.4"
    refused = 'Field "compute_cap" is not a valid field to query.\r\n'
    row = "Tesla K40c, 00000000:02:00.0, 0x102410DE, 11448, 472.50, TCC\r\n"
    stand_in(bin_folder / "nvidia-smi.exe", ("compute_cap", refused, 2), ("--query-gpu", row, 0), ("", SMI, 0))
    stand_in(
        cuda / "bin" / "nvcc.exe",
        ("--version", NVCC, 0),
        ("--list-gpu-code", "sm_35\nsm_37\nsm_50\nsm_86\n", 0),
        ("--list-gpu-arch", "compute_35\ncompute_37\ncompute_50\ncompute_86\n", 0),
    )
    place = studio.make(wow / "Microsoft Visual Studio" / "2019" / "Community", "14.16.27023", "14.29.30133")
    listed = [
        {
            "instanceId": "a7578c88",
            "installationPath": str(place),
            "installationVersion": "16.11.34601.136",
            "isComplete": True,
            "displayName": "Visual Studio Community 2019",
            "description": "Zaawansowane środowisko IDE — bezpłatne dla uczniów i studentów",
        }
    ]
    found = json.dumps(listed, ensure_ascii=False, indent=2)
    stand_in(wow / "Microsoft Visual Studio" / "Installer" / "vswhere.exe", ("-utf8", found, 0))
    return {
        "PATH": f"{bin_folder};{os.environ['PATH']}",
        "ProgramFiles(x86)": str(wow),
        "ProgramFiles": str(files),
        "ProgramW6432": str(files),
        "CUDA_PATH": str(cuda),
        "CUDA_PATH_V11_4": str(cuda),
    }


def test_the_doctor_reads_the_whole_machine(machine: dict[str, str]) -> None:
    said = rekindle("doctor", "--json", env=machine)
    found = answer(said)["machine"]
    assert [(gpu["name"], gpu["capability"], gpu["driver_model"]) for gpu in found["gpus"]] == [
        ("Tesla K40c", "3.5", "TCC")
    ]
    assert found["driver"]["version"] == "472.50"
    assert [toolkit["version"] for toolkit in found["toolkits"]] == ["11.4.152"]
    toolsets = [toolset["version"] for studio in found["studios"] for toolset in studio["toolsets"]]
    assert toolsets == ["14.29.30133", "14.16.27023"]
    assert said.code in (0, 8, 9)


def test_the_doctor_speaks_plainly_into_a_pipe(machine: dict[str, str]) -> None:
    said = rekindle("doctor", env=machine)
    assert "Tesla K40c" in said.out
    assert "Traceback" not in said.err
    assert "internal error" not in said.err


def test_a_snapshot_taken_here_replays_here_and_names_nobody(machine: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "K40c – Zoë.json"
    saved = rekindle("doctor", "--save", str(file), "--json", env=machine)
    assert file.is_file(), saved.err
    text = file.read_text(encoding="utf-8")
    assert "Ångström" not in text
    replayed = answer(rekindle("doctor", "--machine", str(file), "--json"))["machine"]
    assert replayed["gpus"][0]["name"] == "Tesla K40c"
    assert replayed["os"] == "windows"


def test_a_snapshot_made_on_linux_replays_here(tmp_path: Path) -> None:
    linux = {
        "schema": "rekindle.machine/1",
        "recording": {
            "os": "linux",
            "arch": "x86_64",
            "environment": {"PATH": "/usr/local/cuda/bin:/usr/bin"},
            "commands": {
                "/usr/local/cuda/bin/nvcc --version": {"code": 0, "out": NVCC},
                "/usr/local/cuda/bin/nvcc --list-gpu-code": {"code": 0, "out": "sm_35\nsm_50\n"},
            },
            "present": ["/usr/local/cuda/bin/nvcc"],
        },
    }
    file = tmp_path / "linux.json"
    file.write_text(json.dumps(linux), encoding="utf-8")
    found = answer(rekindle("doctor", "--machine", str(file), "--json"))["machine"]
    assert found["os"] == "linux"
    assert [(toolkit["nvcc"], toolkit["version"]) for toolkit in found["toolkits"]] == [
        ("/usr/local/cuda/bin/nvcc", "11.4.152")
    ]


def test_gpu_and_plan_answer_for_windows_without_being_told() -> None:
    card = answer(rekindle("gpu", "Tesla K40c", "--json"))
    assert card["schema"].startswith("rekindle.gpu/")
    said = rekindle("plan", "--gpu", "GTX 1080 Ti", "--json")
    plan = answer(said)
    assert plan["recommended"]["route"] in ("official-wheel", "conda-forge", "source-build")
    assert answer(rekindle("plan", "--gpu", "GTX 1080 Ti", "--os", "windows", "--json")) == plan


def test_inspect_reads_a_dll_by_a_windows_path() -> None:
    library = Path(sys.executable).with_name("python3.dll")
    said = rekindle("inspect", str(library), "--json")
    assert answer(said)["schema"].startswith("rekindle.inspect/")


def test_a_mistake_is_a_sentence_and_a_code() -> None:
    said = rekindle("inspect", r"C:\not there\torch.whl")
    assert said.code == 14
    assert "Traceback" not in said.err
    assert "hint:" in said.err


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment; made by hand where the interpreter has no `venv` (the embeddable build)."""
    folder = tmp_path / "my env (x86)"
    if run.call([sys.executable, "-m", "venv", folder], timeout=240).ok:
        return folder
    home = Path(sys.executable).parent
    (folder / "Scripts").mkdir(parents=True)
    (folder / "Lib" / "site-packages" / "pip-24.2.dist-info").mkdir(parents=True)
    for file in [Path(sys.executable), *home.glob("python3*.dll"), *home.glob("vcruntime*.dll")]:
        (folder / "Scripts" / file.name).write_bytes(file.read_bytes())
    version = ".".join(map(str, sys.version_info[:3]))
    settings = f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n"
    (folder / "pyvenv.cfg").write_text(settings, encoding="utf-8")
    return folder


def test_install_says_what_it_would_do_and_does_nothing(environment: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in environment.rglob("*") if "__pycache__" not in path.parts}
    said = rekindle("install", str(environment), "--dry-run", "--gpu", "Tesla V100-PCIE-16GB", "--json")
    assert said.out, said.err
    report = answer(said)
    assert report["schema"].startswith("rekindle.install/")
    assert report["route"] == "official-wheel", report
    assert "torch" in json.dumps(report["commands"])
    after = {path: path.stat().st_mtime_ns for path in environment.rglob("*") if "__pycache__" not in path.parts}
    assert after == before


def test_the_environments_own_pip_settings_are_in_pip_ini(environment: Path) -> None:
    from rekindle.install.apply import pip_configuration
    from rekindle.install.command import locate_environment

    found = locate_environment(environment)
    assert pip_configuration(found) == environment / "pip.ini"


@pytest.fixture
def full_python(tmp_path: Path) -> Path:
    """A Python with headers and a torch for CUDA 11.3, as far as files tell."""
    root = tmp_path / "Python 3.11 (x64)"
    (root / "include").mkdir(parents=True)
    (root / "include" / "Python.h").touch()
    torch = root / "Lib" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '1.10.0+cu113'\ncuda = '11.3'\n", encoding="utf-8")
    for file in (Path(sys.executable), *Path(sys.executable).parent.glob("python3*.dll")):
        (root / file.name).write_bytes(file.read_bytes())
    return root


def test_an_extension_gets_the_compilers_environment(machine: dict[str, str], full_python: Path) -> None:
    words = ["extension", "check", "--env", str(full_python), "--gpu", "Tesla K40c", "--json"]
    said = rekindle(*words, env=machine)
    found = {finding["id"]: finding for finding in answer(said)["findings"]}
    states = {name.removeprefix("extension."): finding["state"] for name, finding in found.items()}
    assert states == {"python": "PASS", "toolkit": "WARN", "cards": "PASS", "compiler": "PASS"}, found
    assert "14.29" in found["extension.compiler"]["found"]
    # A Visual Studio whose batch file fails: said before the first compiler starts, with the reason.
    batch = next(Path(machine["ProgramFiles(x86)"]).rglob("vcvarsall.bat"))
    batch.write_bytes(b"@echo off\r\necho [ERROR:vcvarsall.bat] Windows SDK not found\r\nexit /b 1\r\n")
    broken = {finding["id"]: finding for finding in answer(rekindle(*words, env=machine))["findings"]}
    assert broken["extension.compiler"]["state"] == "FAIL"
    assert "Windows SDK not found" in json.dumps(broken["extension.compiler"])


def test_the_shell_gets_a_call_of_the_compilers_batch_file(machine: dict[str, str], full_python: Path) -> None:
    said = rekindle(
        "extension", "env", "--env", str(full_python), "--gpu", "Tesla K40c", "--shell", "cmd", env=machine
    )  # fmt: skip
    assert "vcvarsall.bat" in said.out
    assert 'set "TORCH_CUDA_ARCH_LIST=3.5"' in said.out
    assert 'set "DISTUTILS_USE_SDK=1"' in said.out
