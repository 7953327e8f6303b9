"""`verify --stand-in`: what may stand in, and what the old card's own machine code says. No card is needed here.

The GPU code is real: `tests/data/stand_in/kernels.cu` by nvcc 11.8.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput, NotFound
from rekindle.core.findings import State
from rekindle.formats import cubin, fatbin, gpu_payload
from rekindle.formats.access import Buffer, File
from rekindle.formats.package import open_package
from rekindle.knowledge.gpu.capabilities import launch_limits as limits
from rekindle.model.card import Capability, NamedCard, Target
from rekindle.wheels.verify import stand_in, stand_in_reading, stand_in_run, trial
from rekindle.wheels.verify.stand_in import StandInRequest
from rekindle.wheels.verify.trial import OperatorResult, Trip
from support import fatbins
from support.fatbins import container
from support.small_wheels import make

DATA = Path(__file__).parent.parent / "data" / "stand_in"
H200 = NamedCard(name="NVIDIA H200", capability=Capability(9, 0))


def small(folder: Path, code: str) -> Path:
    return packed(folder, (DATA / f"{code}.fatbin").read_bytes())


def packed(folder: Path, code: bytes) -> Path:
    files = {
        "small/__init__.py": b"",
        "small/kernels.so": code,
        "small-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        "small-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return make(folder, files, name="small-1.0-py3-none-any.whl")


def lines(path: Path, monkeypatch: pytest.MonkeyPatch, *cards: NamedCard, **request: object) -> dict[str, State]:
    monkeypatch.setattr(trial, "cards_here", lambda: cards)
    done = stand_in.stand_in(path, StandInRequest(**request))  # type: ignore[arg-type]
    assert done.state is not State.PASS
    return {line.id: line.state for line in done.lines}


def entries(code: str) -> list[tuple[fatbin.GpuEntry, bytes]]:
    with File(DATA / f"{code}.fatbin") as file:
        return [(one, gpu_payload.payload(file, one)) for found in fatbin.scan(file) for one in found.entries]


def test_kernels_of_a_cubin_have_the_resources_that_cuobjdump_prints() -> None:
    machine = next(data for entry, data in entries("ptx") if entry.kind == fatbin.Kind.CUBIN)
    found = {kernel.name: kernel for kernel in cubin.kernels(machine)}
    assert set(found) == {"_Z4turnPf", "_Z5heavyPd", "_Z5scaleIfEvPT_S0_i"}
    # cuobjdump --dump-resource-usage: REG:6 SHARED:4096, REG:128, REG:5.
    assert (found["_Z4turnPf"].registers, found["_Z4turnPf"].shared) == (6, 4096)
    assert found["_Z4turnPf"].max_threads == 1024
    assert (found["_Z5heavyPd"].registers, found["_Z5heavyPd"].max_threads) == (128, None)
    assert found["_Z5scaleIfEvPT_S0_i"].registers == 5


def test_registers_of_hopper_code_are_in_its_attributes() -> None:
    """cuobjdump: REG:116, REG:8, REG:10; the header of the section has none."""
    machine = next(data for entry, data in entries("native") if str(entry.target) == "sm_90")
    found = {kernel.name: kernel.registers for kernel in cubin.kernels(machine)}
    assert found == {"_Z5heavyPd": 116, "_Z5scaleIfEvPT_S0_i": 8, "_Z4turnPf": 10}


def test_compressed_code_is_the_same_code() -> None:
    plain = [data for entry, data in entries("ptx") if entry.kind == fatbin.Kind.CUBIN]
    packed = [(entry, data) for entry, data in entries("packed") if entry.kind == fatbin.Kind.CUBIN]
    assert packed[0][0].compressed
    assert [cubin.kernels(data) for _, data in packed] == [cubin.kernels(data) for data in plain]
    texts = [data for entry, data in entries("packed") if entry.kind == fatbin.Kind.PTX]
    assert cubin.ptx_kernels(texts[0]) == {"_Z4turnPf", "_Z5heavyPd", "_Z5scaleIfEvPT_S0_i"}


def test_code_packed_with_zstd_is_read_by_every_python() -> None:
    """nvcc 12.8 and newer: below Python 3.14 it was "compressed with zstd, which this Python cannot read"."""
    machine, text = (data for entry, data in entries("zstd") if entry.flags & 0x8000)
    found = {kernel.name: kernel.registers for kernel in cubin.kernels(machine)}
    assert found == {"_Z5heavyPd": 116, "_Z5scaleIfEvPT_S0_i": 8, "_Z4turnPf": 10}
    assert cubin.ptx_kernels(text) == set(found)


def test_launch_limits_are_read_from_code_packed_with_zstd(tmp_path: Path) -> None:
    old = Target.parse("compute_75")
    with open_package(small(tmp_path, "zstd")) as package:
        kernels, unread = stand_in_reading.readable(package, stand_in_reading.own_code(package), old)
    assert unread is None
    found = stand_in_reading.launch_limits(kernels, limits(Capability(3, 5)), old)
    assert found.state is State.PASS
    assert found.found.startswith("all 3 kernels for sm_75 fit Tesla K40c: at most 116 registers")


def test_zstd_that_asks_for_more_memory_than_its_code_has_is_refused() -> None:
    """A frame of a few bytes that wants a window of a gigabyte."""
    frame = bytes.fromhex("28b52ffd") + b"\x00" + bytes([20 << 3]) + b"\x01\x00\x00"
    code = container(fatbins.entry("sm_75", payload=frame, flags=0x8000, unpacked=4096))
    entry = fatbin.scan(code)[0].entries[0]
    with pytest.raises(BadInput, match="does not decompress"):
        gpu_payload.payload(Buffer(code), entry)


@pytest.mark.parametrize("cut", [1, 7])
@pytest.mark.parametrize("code", ["ptx", "zstd"])
def test_code_that_does_not_decompress_is_an_error(code: str, cut: int) -> None:
    data = bytearray((DATA / f"{code}.fatbin").read_bytes())
    entry = next(one for found in fatbin.scan(bytes(data)) for one in found.entries if one.compressed)
    data[entry.offset + 64 + cut : entry.offset + 64 + cut + 40] = b"\xff" * 40
    with pytest.raises(BadInput):
        gpu_payload.payload(Buffer(bytes(data)), entry)


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + b"\0" * 60, b"\x7fELF" + b"\xff" * 200])
def test_a_broken_cubin_is_an_error(data: bytes) -> None:
    with pytest.raises(BadInput):
        cubin.kernels(data)


def test_what_a_block_may_take_on_kepler() -> None:
    kepler = limits(Capability(3, 5))
    assert kepler is not None
    assert (kepler.card, kepler.multiprocessors, kepler.shared_per_block) == ("Tesla K40c", 15, 48 << 10)
    # cuda_occupancy.h: registers are given out 256 at a time per warp.
    assert [kepler.largest_block(count) for count in (32, 64, 65, 128, 255)] == [1024, 1024, 896, 512, 256]


def test_a_wheel_with_the_old_cards_ptx_may_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(small(tmp_path, "ptx"), monkeypatch)
    assert "refused" not in found
    assert found["launch-limits"] is State.PASS
    assert found["kernel-names"] is State.PASS
    assert found["warps"] is State.UNVERIFIED


@pytest.mark.parametrize(
    ("code", "word"), [("bare", "no PTX"), ("native", "native code for the stand-in (sm_90")], ids=str
)
def test_without_ptx_or_with_native_code_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, word: str
) -> None:
    monkeypatch.setattr(trial, "cards_here", lambda: (H200,))
    done = stand_in.stand_in(small(tmp_path, code), StandInRequest())
    assert done.lines[0].id == "refused"
    assert word in done.lines[0].found
    assert done.state is State.FAIL
    assert done.headline.startswith("refused")
    assert "refused" in stand_in.text(done)


def test_newer_ptx_beside_the_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes the newest PTX that fits, so the old card's own would not run."""
    path = packed(tmp_path, container("sm_35", "compute_35", "compute_50"))
    monkeypatch.setattr(trial, "cards_here", lambda: (H200,))
    done = stand_in.stand_in(path, StandInRequest())
    assert "would take compute_50 instead of compute_35" in done.lines[0].found


def test_a_kernel_that_is_only_there_as_ptx_is_seen() -> None:
    old = Target.parse("compute_35")
    one = stand_in_reading.ReadKernels(
        file="a.so",
        offset=0,
        cubin=(cubin.CubinKernel(name="f", registers=8),),
        ptx=frozenset({"f", "g"}),
    )
    found = stand_in_reading.kernel_names([one], old)
    assert found.state is State.FAIL
    assert "1 only as PTX (g)" in found.found


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (cubin.CubinKernel(name="f", registers=80, max_threads=1024), "1024 threads of 80 registers"),
        (cubin.CubinKernel(name="f", registers=8, shared=50000), "50000 bytes of shared memory"),
    ],
    ids=["registers", "shared"],
)
def test_a_kernel_that_cannot_be_launched_on_kepler_is_named(kernel: cubin.CubinKernel, words: str) -> None:
    one = stand_in_reading.ReadKernels(file="a.so", offset=0, cubin=(kernel,), ptx=frozenset({"f"}))
    found = stand_in_reading.launch_limits([one], limits(Capability(3, 5)), Target.parse("compute_35"))
    assert found.state is State.FAIL
    assert words in found.found


def test_nothing_is_a_pass_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "cards_here", lambda: ())
    done = stand_in.stand_in(small(tmp_path, "ptx"), StandInRequest())
    assert done.headline == "UNVERIFIED on Kepler (nothing was run)"
    assert done.state is State.UNVERIFIED
    with pytest.raises(NotFound):
        stand_in.stand_in(tmp_path / "none.whl", StandInRequest())


def test_the_drivers_choice_of_code_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_CACHE_DISABLE"):
        monkeypatch.setenv(name, "1")
    setup = stand_in_run.StandInSetup(python=Path(sys.executable), folder=tmp_path)
    env = stand_in_run.variables(setup)
    assert "CUDA_FORCE_PTX_JIT" not in env
    assert "CUDA_DISABLE_PTX_JIT" not in env
    assert env["CUDA_CACHE_PATH"].startswith(str(tmp_path))
    assert int(env["CUDA_CACHE_MAXSIZE"]) >= 1 << 30
    assert env["NVIDIA_TF32_OVERRIDE"] == "0"


def trial_program(folder: Path, text: str) -> Path:
    path = folder / "trial.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_runs_without_the_drivers_compiler_was_native(tmp_path: Path) -> None:
    """A trial that passes although PTX may not be compiled shows nothing about PTX."""
    setup = stand_in_run.StandInSetup(
        python=Path(sys.executable), folder=tmp_path, torch=False, trial=trial_program(tmp_path, "print('fine')")
    )
    assert stand_in_run.without_jit(setup)[0].state is State.FAIL
    text = "import os, sys; sys.exit('no kernel image is available' if os.environ.get('CUDA_DISABLE_PTX_JIT') else 0)"
    setup = stand_in_run.StandInSetup(
        python=Path(sys.executable), folder=tmp_path, torch=False, trial=trial_program(tmp_path, text)
    )
    assert stand_in_run.without_jit(setup)[0].state is State.PASS
    assert stand_in_run.run(setup, stand_in_run.variables(setup)).trial is True


def test_a_trial_that_fails_for_another_reason_is_no_control(tmp_path: Path) -> None:
    setup = stand_in_run.StandInSetup(
        python=Path(sys.executable), folder=tmp_path, torch=False, trial=trial_program(tmp_path, "1 / 0")
    )
    assert stand_in_run.without_jit(setup)[0].state is State.UNVERIFIED


def test_a_trial_that_could_not_begin_accuses_nobody(tmp_path: Path) -> None:
    """Right and spoiled extensions both failed for want of torch, and both were told that they compute wrongly."""
    old = Target.parse("compute_61")
    for program, state in (("import torch_of_nobody", State.UNVERIFIED), ("assert 1 == 2, 'wrong sum'", State.FAIL)):
        setup = stand_in_run.StandInSetup(
            python=Path(sys.executable), folder=tmp_path, torch=False, trial=trial_program(tmp_path, program)
        )
        ran = stand_in_run.run(setup, stand_in_run.variables(setup))
        line = stand_in._result("trial", ran, old)
        assert line.state is state
        if state is State.UNVERIFIED:
            assert "did not begin: ModuleNotFoundError: No module named 'torch_of_nobody'" in line.found
            assert "--against" in line.fix.text


def test_operators_are_counted_with_reasons() -> None:
    found = trial.operator_counts(
        [
            {"table": 3, "share": 2},
            {"begin": 0, "op": "add"},
            {"op": "add", "dtype": "float32", "part": "forward", "result": "passed", "why": "6 samples"},
            {"op": "add", "dtype": "bool", "part": "forward", "result": "skipped", "why": "no sample: ValueError: x"},
            {"op": "sort", "dtype": "int64", "part": "forward", "result": "failed", "why": "differs"},
            {"op": "eig", "result": "crashed", "why": "illegal memory access"},
        ]
    )
    assert (found.passed, found.failed, found.crashed, found.skipped) == (1, 1, 1, {"no sample": 1})
    assert found.whole
    assert not trial.operator_counts([{"problem": "no numpy", "table": 0}]).whole


FAKE = """
import json, sys
device, share, shares, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def tell(**what): print("rekindle-verify: " + json.dumps(what), flush=True)
tell(table=4, share=4)
for number in range(first, 4):
    tell(begin=number, op=f"op{number}")
    if number == 1:
        sys.exit(11)
    tell(op=f"op{number}", dtype="float32", part="forward", result="passed", why="")
tell(end=4)
"""


def test_a_crash_ends_one_operator_not_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = trial_program(tmp_path, FAKE)
    monkeypatch.setattr(trial, "OPERATORS_SCRIPT", script)
    found = trial.compare_operators(Trip(python=Path(sys.executable), env={}, processes=1))
    assert [one.op for one in found.results if one.result == "passed"] == ["op0", "op2", "op3"]
    assert [one.op for one in found.results if one.result == "crashed"] == ["op1"]
    assert found.whole


def test_what_fails_only_behind_the_mask_is_a_host_branch() -> None:
    def ran(result: str, *log: str, why: str = "") -> stand_in_run.RunResult:
        one = OperatorResult(op="mm", dtype="float16", part="forward", result=result, why=why)
        counts = {"passed": int(result == "passed"), "failed": int(result == "failed")}
        found = trial.Operators(table=1, **counts, skipped={}, crashed=0, not_reached=0, results=(one,))
        return stand_in_run.RunResult(operators=found, log=log)

    old = Target.parse("compute_61")
    # Since 2.7.1 `x * 2` in float16 takes a kernel on a 9.0 that has no body in code for a 6.1.
    assert stand_in._result("operators", ran("failed"), old, ran("failed")).state is State.FAIL
    line = stand_in._result("operators", ran("failed"), old, ran("passed"))
    assert line.state is State.PASS
    assert "1 of these failed only because torch chose kernels for the card here" in line.found
    plain = ran("passed")
    line = stand_in._mask_line(plain, ran("failed", "properties masked"), "", "Tesla K40c")
    assert line.state is State.FAIL
    assert "mm (float16, forward)" in line.found
    assert stand_in._mask_line(plain, ran("passed", "properties masked"), "", "Tesla K40c").state is State.PASS
    assert stand_in._mask_line(plain, ran("passed"), "", "Tesla K40c").state is State.UNVERIFIED
    # The old card loads what NVRTC makes for it; this one may not: nothing is shown, either way.
    why = "raised RuntimeError: CUDA driver error: no kernel image is available for execution on the device"
    unloaded = ran("failed", "properties masked", "nvrtc compiled", why=why)
    line = stand_in._mask_line(plain, unloaded, "", "Tesla K40c")
    assert line.state is State.UNVERIFIED
    assert "1 found no code that loads here" in line.found
    line = stand_in._nvrtc_line(plain, unloaded, Target.parse("compute_35"))
    assert line.state is State.UNVERIFIED
    assert "1 comparisons could not load them" in line.found
    loaded = ran("passed", "properties masked", "nvrtc compiled")
    assert stand_in._nvrtc_line(plain, loaded, Target.parse("compute_35")).state is State.PASS


def test_the_script_for_the_environment_is_old_python() -> None:
    """It runs in the environment's own Python, which may be as old as torch 1.13's oldest."""
    ast.parse(trial.OPERATORS_SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_small_library_from_nvcc_has_a_container_without_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the device linker leaves, an sm_35 entry without a kernel, is no reason to refuse."""
    empty = (DATA / "link.fatbin").read_bytes()
    assert not any(cubin.kernels(data) for entry, data in entries("link"))
    found = lines(packed(tmp_path, (DATA / "ptx.fatbin").read_bytes() + empty), monkeypatch)
    assert "refused" not in found
    assert found["kernel-names"] is State.PASS
