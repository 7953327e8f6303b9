"""The probes on this very machine, against what other programs say of it.

Runs anywhere: what a machine does not have is reported UNVERIFIED. On one with a card every probe is compared with
nvidia-smi and, where torch is installed, with torch itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rekindle.core.findings import State
from rekindle.doctor.report import examine
from rekindle.machine.host import Host
from rekindle.machine.model import FoundPython, Machine
from rekindle.machine.probe import look
from rekindle.machine.toolchain import cudnn
from rekindle.model.toolkit import FoundToolkit
from support.artefacts import unverified

KERNEL = "__global__ void twice(float *a) { a[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def machine() -> Machine:
    return look(Host())


def said(*args: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=False, env=env)
    return done.stdout + done.stderr


def test_every_probe_answered(machine: Machine) -> None:
    faults = [item for item in machine.unread if "fault" in item.reason or "no answer" in item.reason]
    assert not faults


def test_memory_is_what_psutil_says(machine: Machine) -> None:
    assert machine.memory.physical == psutil.virtual_memory().total
    assert machine.processor.cores
    assert machine.processor.cores <= (os.cpu_count() or 1)


def test_disk_space_is_what_the_system_says(machine: Machine) -> None:
    here = next(disk for disk in machine.disks if disk.role == "here")
    assert here.total == shutil.disk_usage(Path.cwd()).total


def test_packages_are_what_the_interpreter_itself_says(machine: Machine) -> None:
    own = next((python for python in machine.pythons if python.prefix == sys.prefix), None)
    if own is None:
        unverified("another environment is active than the one that runs the tests")
    assert own is not None
    assert str(own.version) == ".".join(str(part) for part in sys.version_info[:3])
    ask = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    expected = json.loads(said(sys.executable, "-E", "-c", ask).splitlines()[-1])
    for name in ("pip", "packaging", "numpy", "torch"):
        assert own.packages.get(name) == expected.get(name)


def test_compilers_tell_the_version_that_the_probe_read(machine: Machine) -> None:
    gccs = [compiler for compiler in machine.compilers if compiler.kind == "gcc"]
    if not gccs:
        unverified("no GCC here")
    for compiler in gccs:
        assert said(compiler.path, "-dumpfullversion").strip() == str(compiler.version)


def test_toolkits_tell_the_version_that_the_probe_read(machine: Machine) -> None:
    if not machine.toolkits:
        unverified("no CUDA toolkit here")
    for toolkit in machine.toolkits:
        assert toolkit.nvcc
        assert f"V{toolkit.version}" in said(toolkit.nvcc, "--version")
        listed = said(toolkit.nvcc, "--list-gpu-code").split()
        assert {str(target) for target in toolkit.targets} == {word for word in listed if word.startswith("sm_")}


def trapped(machine: Machine) -> FoundToolkit:
    """A toolkit here that calls another's ptxas, and has its own somewhere."""
    for toolkit in machine.toolkits:
        if toolkit.own_ptxas is False and toolkit.right_ptxas:
            return toolkit
    unverified("no toolkit here calls another's ptxas")
    raise AssertionError


def test_the_wrong_ptxas_fails_and_the_doctors_fix_works(machine: Machine, tmp_path: Path) -> None:
    """Not only said: with the PATH as it is the compile fails, with the doctor's command it works."""
    toolkit = trapped(machine)
    finding = next(f for f in examine(machine, only=["cuda.own-tools"]) if f.state is State.FAIL)
    assert finding.fix
    oldest = str(toolkit.targets[0])
    source = tmp_path / "twice.cu"
    source.write_text(KERNEL, encoding="utf-8")
    compile_it = f'"{toolkit.nvcc}" -cubin -arch={oldest} "{source}" -o "{tmp_path / "twice.cubin"}"'
    before = subprocess.run(["bash", "-c", compile_it], capture_output=True, text=True, check=False)
    assert before.returncode != 0
    assert "ptxas" in before.stderr
    after = subprocess.run(
        ["bash", "-c", f"{finding.fix.commands[0]}\n{compile_it}"], capture_output=True, text=True, check=False
    )
    assert after.returncode == 0, after.stderr
    again = said(
        "bash", "-c", f'{finding.fix.commands[0]}\n"{sys.executable}" -m rekindle doctor --only cuda.own-tools --json'
    )
    states = {(check["state"], check["found"].split()[1]) for check in json.loads(again[again.index("{") :])["checks"]}
    assert ("PASS", str(toolkit.version)) in states


def test_gpu_code_of_an_installed_torch_is_read_from_its_files(machine: Machine, tmp_path: Path) -> None:
    """A library that nvcc just made for two targets, lying where torch's would."""
    maker = next((t for t in machine.toolkits if t.own_ptxas and len(t.targets) > 3), None)
    if maker is None:
        unverified("no toolkit here that calls its own ptxas")
    assert maker
    chosen = [str(maker.targets[0]), str(maker.targets[2])]
    lib = tmp_path / "torch" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "torch" / "version.py").write_text("__version__ = '9.9.9+cu999'\ncuda = '99.9'\n", encoding="utf-8")
    source = tmp_path / "twice.cu"
    source.write_text(KERNEL, encoding="utf-8")
    codes = [f"-gencode=arch=compute_{t.removeprefix('sm_')},code={t}" for t in chosen]
    out = said(
        str(maker.nvcc), "-shared", "-Xcompiler", "-fPIC", *codes, str(source), "-o", str(lib / "libtorch_cuda.so")
    )
    if not (lib / "libtorch_cuda.so").exists():
        unverified(f"this toolkit could not make a library: {out[-200:]}")
    python = FoundPython(path=sys.executable, site_packages=(str(tmp_path),))
    torch = cudnn.installed_torch(Host(), python)
    assert torch
    assert [str(target) for target in torch.targets] == chosen


def test_the_cards_are_those_of_nvidia_smi(machine: Machine) -> None:
    if shutil.which("nvidia-smi") is None or "GPU 0" not in said("nvidia-smi", "-L"):
        unverified("no NVIDIA card here")
    lines = [line for line in said("nvidia-smi", "-L").splitlines() if line.startswith("GPU ")]
    cards = [gpu for gpu in machine.gpus if "nvidia-smi" in gpu.sources]
    assert len(cards) == len(lines)
    for gpu, line in zip(cards, lines, strict=True):
        assert gpu.name
        assert gpu.name in line
        assert gpu.capability
        assert not gpu.clashes
        assert {"nvml", "cuda", "nvidia-smi"} <= set(gpu.sources)
    version = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()[0]
    assert machine.driver
    assert str(machine.driver.version) == version
    caps = said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split()
    assert [str(gpu.capability) for gpu in cards] == caps


def test_torch_agrees_about_itself_and_the_card(machine: Machine) -> None:
    if machine.torch is None or machine.python is None:
        unverified("no torch in the target environment")
    assert machine.torch
    assert machine.python
    ask = (
        "import json, torch; there = torch.cuda.is_available(); "
        "card = torch.cuda.get_device_capability(0) if there else None; "
        "print(json.dumps([torch.__version__, torch.version.cuda, card, torch.cuda.get_arch_list()]))"
    )
    version, cuda, capability, archs = json.loads(said(machine.python.path, "-c", ask).splitlines()[-1])
    assert machine.torch.version == version
    assert (str(machine.torch.cuda) if machine.torch.cuda else None) == cuda
    if capability:
        assert [machine.gpus[0].capability.major, machine.gpus[0].capability.minor] == capability  # type: ignore[union-attr]
        assert {str(target) for target in machine.torch.targets} >= {arch for arch in archs if arch.startswith("sm_")}
