"""Kernels of real machine code, as `cuobjdump` counts them: compiled here by a toolkit that still knows Kepler."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rekindle.core import run
from rekindle.formats import cubin, fatbin, gpu_payload
from rekindle.formats.access import File
from support.artefacts import unverified
from support.cuda import kepler_toolkit

SOURCE = Path(__file__).resolve().parents[1] / "data" / "stand_in" / "kernels.cu"
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+)")


@pytest.mark.parametrize("target", ["35", "50", "61", "70", "90"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_registers_and_shared_memory_are_those_of_cuobjdump(tmp_path: Path, target: str, packed: bool) -> None:
    toolkit = kepler_toolkit()
    nvcc = Path(str(toolkit.nvcc))
    dump = nvcc.with_name("cuobjdump") if nvcc.with_name("cuobjdump").exists() else shutil.which("cuobjdump")
    if dump is None:
        unverified("no cuobjdump here")
    made = tmp_path / "kernels.fatbin"
    code = f"arch=compute_{target},code=[sm_{target},compute_{target}]"
    words = [nvcc, "-allow-unsupported-compiler", "-Wno-deprecated-gpu-targets", "-gencode", code, "-fatbin"]
    words += ["-Xfatbin", "-compress-all"] if packed else []
    said = run.call([*words, "-o", made, SOURCE], timeout=300)
    assert said.ok, said.err
    shown = run.call([str(dump), "--dump-resource-usage", made], timeout=120)
    wanted = {name: (int(registers), int(shared)) for name, registers, shared in _USAGE.findall(shown.out)}
    assert len(wanted) == 3
    with File(made) as file:
        entries = [entry for found in fatbin.scan(file) for entry in found.entries]
        codes = {entry.kind: gpu_payload.payload(file, entry) for entry in entries}
    found = cubin.kernels(codes[fatbin.Kind.CUBIN])
    assert {kernel.name: (kernel.registers, kernel.shared) for kernel in found} == wanted
    assert cubin.ptx_kernels(codes[fatbin.Kind.PTX]) == set(wanted)
