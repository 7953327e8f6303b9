"""Each parser on what programs really print, and on the same with damage done to it.

The outputs are those of the machines under `tests/machines` and a few short ones here; expected values are read off
them by eye. A damaged output may give a wrong answer, but never anything but an answer or "could not read".
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.knowledge.gpu import drivers
from rekindle.machine.gpu import cards, smi
from rekindle.machine.host import CouldNotRead, Recording, Replay, Said
from rekindle.machine.probe import look
from rekindle.machine.python import interpreters
from rekindle.machine.system import memory
from rekindle.machine.toolchain import cudnn, gcc, msvc, toolkits
from rekindle.model.card import Target

MACHINES = Path(__file__).parents[1] / "machines"
TIMES = min(int(os.environ.get("REKINDLE_FUZZ", "200")), 10_000)


def recording(name: str) -> Recording:
    data = json.loads((MACHINES / f"{name}.json").read_text(encoding="utf-8"))
    return codec.from_builtins(data["recording"], Recording)


def said(name: str, question: str) -> str:
    """What a recorded command printed, by the end of its name."""
    commands = recording(name).commands
    answer = next(value for key, value in commands.items() if key.endswith(question))
    return answer.out or answer.err


def table(name: str) -> dict[str, Any]:
    text = next(v.out for k, v in recording(name).commands.items() if k.endswith(("nvidia-smi", "nvidia-smi.exe")))
    return smi.parse_table(Result(args=("nvidia-smi",), code=0, out=text))


def test_a_table_of_2015_has_two_cards_and_no_cuda() -> None:
    found = table("two-keplers-linux")
    assert found["driver"] == "352.39"
    assert found["cuda"] is None
    assert [(gpu["name"], gpu["bus"], gpu["memory"]) for gpu in found["gpus"]] == [
        ("Tesla K40c", "0000:02:00.0", 11519 * 1024**2),
        ("Tesla K20c", "0000:03:00.0", 4799 * 1024**2),
    ]


def test_a_windows_table_tells_the_driver_model_and_cuts_the_name() -> None:
    found = table("half-conda-windows")
    assert (found["driver"], found["cuda"]) == ("546.12", "12.3")
    assert found["gpus"][0]["driver_model"] == "WDDM"
    assert found["gpus"][0]["name"] == "NVIDIA GeForce RTX 3050 ..."


def test_a_driver_that_does_not_answer_is_quoted() -> None:
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    found = smi.parse_table(Result(args=("nvidia-smi",), code=9, out=text))
    assert found["driver"] is None
    assert "couldn't communicate" in found["says"]


def test_a_query_of_mixed_cards() -> None:
    fields = ["name", "pci.bus_id", "pci.device_id", "memory.total", "driver_version", "compute_cap"]
    text = (
        "Tesla K80, 00000000:05:00.0, 0x102D10DE, 11441, 470.57, [N/A]\nGPU, 0000:06:00.0, 0x2F0410DE, 1, 470, 12.0\n"
    )
    first, second = smi.parse_query(text, fields)
    assert (first["pci_id"], first["capability"], first["memory"]) == ("10de:102d", None, 11441 * 1024**2)
    assert second["capability"] == "12.0"


@pytest.mark.parametrize(
    ("banner", "version", "target"),
    [
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.29.30151 for x64", "19.29.30151", "x64"),
        ("Microsoft (R) C/C++-Optimierungscompiler Version 19.38.33133 für x86", "19.38.33133", "x86"),
        ("Compilador de optimización de C/C++ de Microsoft (R) versión 19.00.23026 para x86", "19.00.23026", "x86"),
        ("Compilateur d'optimisation Microsoft (R) C/C++ version 19.40.33813 pour x64", "19.40.33813", "x64"),
        ("用于 x64 的 Microsoft (R) C/C++ 优化编译器 19.44.35219 版", "19.44.35219", "x64"),
    ],
)
def test_the_compilers_banner_in_five_languages(banner: str, version: str, target: str) -> None:
    assert msvc.parse_cl(f"\n{banner}\nCopyright (C) Microsoft Corporation.\n") == (Version(version), target)


def test_a_banner_of_something_else_is_not_understood() -> None:
    with pytest.raises(CouldNotRead):
        msvc.parse_cl("cl: command not found")


@pytest.mark.parametrize(
    ("machine", "question", "version"),
    [
        ("k40c-windows", 'v11.4\\bin\\nvcc.exe" --version', "11.4.152"),
        ("rtx5070-windows", 'v12.3\\bin\\nvcc.exe" --version', "12.3.107"),
        ("rtx5070-windows", 'v12.9\\bin\\nvcc.exe" --version', "12.9.86"),
    ],
)
def test_nvcc_tells_its_version(machine: str, question: str, version: str) -> None:
    assert toolkits.parse_nvcc_version(said(machine, question)) == Version(version)


DEBIAN_DRY_RUN = """\
nvcc warning : The 'compute_35' architectures are deprecated
#$ _NVVM_BRANCH_=nvvm
#$ _HERE_=/usr/lib/nvidia-cuda-toolkit/bin
#$ PATH=/usr/lib/nvidia-cuda-toolkit/bin:/usr/local/bin:/usr/bin
#$ gcc -D__CUDACC_VER_MAJOR__=11 -D__CUDACC_VER_MINOR__=8 -D__CUDACC_VER_BUILD__=89 -E "/dev/null"
#$ cicc --c++17 -arch compute_35 -m64 "a.ii" -o "a.ptx"
#$ ptxas -arch=sm_35 -m64 "a.ptx"  -o "null.cubin"
"""
NVIDIA_DRY_RUN = """\
#$ _HERE_=/usr/local/cuda-13.0/bin
#$ TOP=/usr/local/cuda-13.0/bin/..
#$ CICC_PATH=/usr/local/cuda-13.0/bin/../nvvm/bin
#$ PATH=/usr/local/cuda-13.0/bin/../nvvm/bin:/usr/local/cuda-13.0/bin:/usr/bin
#$ "$CICC_PATH/cicc" --c++17 -arch compute_75 "a.ii" -o "a.ptx"
#$ ptxas -arch=sm_75 -m64  "a.ptx"  -o "null.cubin"
"""


def test_a_dry_run_names_the_programs_that_would_be_called() -> None:
    debian = toolkits.parse_dry_run(DEBIAN_DRY_RUN, separator=":")
    assert debian.here == "/usr/lib/nvidia-cuda-toolkit/bin"
    assert debian.called == {"cicc": "cicc", "ptxas": "ptxas"}
    assert debian.version == Version("11.8.89")
    files = {"/usr/local/bin/ptxas", "/usr/bin/ptxas"}
    found = toolkits.resolve_program("ptxas", debian.search, join=_join, exists=files.__contains__, ending="")
    assert found == "/usr/local/bin/ptxas"
    own = toolkits.parse_dry_run(NVIDIA_DRY_RUN, separator=":")
    assert own.called["cicc"] == "/usr/local/cuda-13.0/bin/../nvvm/bin/cicc"


def test_without_a_dry_run_the_profile_tells_which_ptxas_comes_first() -> None:
    """NVIDIA's profile puts its own folder in front (`+=`), whatever PATH says."""
    found = toolkits.parse_profile(WINDOWS_PROFILE, here="C:\\v13\\bin", path="C:\\v12\\bin;C:\\Windows", separator=";")
    assert found.search == (
        "C:\\v13\\bin/../nvvm/bin",
        "C:\\v13\\bin",
        "C:\\v13\\bin/../lib",
        "C:\\v12\\bin",
        "C:\\Windows",
    )
    behind = toolkits.parse_profile("PATH =+ :$(_HERE_)\n", here="/own", path="/usr/bin", separator=":")
    assert behind.search == ("/usr/bin", "/own")


WINDOWS_PROFILE = """
TOP              = $(_HERE_)/..

CICC_PATH        = $(TOP)/nvvm/bin
PATH            += $(CICC_PATH);$(_HERE_);$(TOP)/lib;

CUDAFE_FLAGS    +=
"""


def _join(*parts: str) -> str:
    return "/".join(parts)


def test_targets_are_listed_in_order() -> None:
    assert toolkits.parse_targets("sm_90\nsm_35\nsm_120\n") == tuple(
        Target.parse(t) for t in ("sm_35", "sm_90", "sm_120")
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022\n", "12.2.0"),
        ("g++ (Ubuntu 4.8.4-2ubuntu1~14.04.3) 4.8.4\n", "4.8.4"),
        ("g++-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n", "11.4.0"),
        ("g++ (GCC) 8.5.0 20210514 (Red Hat 8.5.0-22)\n", "8.5.0"),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n", "14.0.6"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)\n", "18.1.3"),
    ],
)
def test_compilers_tell_their_version(text: str, version: str) -> None:
    assert gcc.parse_version(text) == Version(version)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("git version 2.50.1.windows.1\n", "2.50.1"),
        ("cmake version 4.0.3\n", "4.0.3"),
        ("1.11.1.git.kitware.jobserver-1\n", "1.11.1"),
        ("cmake version 3.31.0-rc2\n", "3.31.0"),
    ],
)
def test_programs_tell_their_version(text: str, version: str) -> None:
    assert gcc.parse_program_version(text) == Version(version)


def test_windows_numbers_of_a_driver() -> None:
    # The last five digits of Windows' number, with a dot before the last two: NVIDIA's own rule.
    assert drivers.of_windows("30.0.14.7250") == "472.50"
    assert drivers.of_windows("32.0.15.7688") == "576.88"
    assert drivers.of_windows("10.18.13.6519") == "365.19"
    assert drivers.of_windows("garbage") is None


@pytest.mark.parametrize(
    ("text", "version", "cuda"),
    [
        ("__version__ = '2.1.2+cu121'\ncuda = '12.1'\n", "2.1.2+cu121", "12.1"),
        ("from typing import Optional\n__version__ = '2.7.1+cpu'\ncuda: Optional[str] = None\n", "2.7.1+cpu", None),
        ("__version__: str = '2.15.0'\ncuda: str | None = '13.2'\n", "2.15.0", "13.2"),
    ],
)
def test_torch_tells_its_cuda(text: str, version: str, cuda: str | None) -> None:
    assert cudnn.parse_torch_version(text) == (version, Version(cuda) if cuda else None)


def test_the_kernel_modules_version() -> None:
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  352.39  Fri Aug 14 18:09:10 PDT 2015\n"
    new = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n"
    assert cards.kernel_version(old) == Version("352.39")
    assert cards.kernel_version(new) == Version("580.65.06")
    assert cards.kernel_version(None) is None


def test_memory_of_the_machine_of_document_002_is_32_gb() -> None:
    found = memory.parse_windows({"total": 33378976 * 1024, "available": 1, "commit_total": 1})
    assert found.physical == 33378976 * 1024


# --- damage ----------------------------------------------------------------------------------------------------------

WINDOWS, LINUX = Replay(recording("k40c-windows")), Replay(recording("two-keplers-linux"))
PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "nvidia-smi's table": (
        said("two-keplers-linux", "nvidia-smi"),
        lambda text: smi.parse_table(Result(args=("nvidia-smi",), code=0, out=text)),
    ),
    "nvidia-smi's list": (
        "Tesla K40c, 00000000:02:00.0, 0x102410DE, 11441, 472.50, TCC\n",
        lambda text: smi.parse_query(text, list(smi.FIELDS)),
    ),
    "the driver's answer": (said("wsl", "ask_cuda_driver.py"), smi.parse_answer),
    "nvcc --version": (said("k40c-windows", 'v11.4\\bin\\nvcc.exe" --version'), toolkits.parse_nvcc_version),
    "nvcc --list-gpu-code": (said("k40c-windows", 'v11.4\\bin\\nvcc.exe" --list-gpu-code'), toolkits.parse_targets),
    "nvcc --dryrun": (DEBIAN_DRY_RUN, lambda text: toolkits.parse_dry_run(text, separator=":")),
    "nvcc --dryrun of NVIDIA's": (NVIDIA_DRY_RUN, lambda text: toolkits.parse_dry_run(text, separator=":")),
    "nvcc.profile": (
        WINDOWS_PROFILE,
        lambda text: toolkits.parse_profile(text, here="C:\\v13\\bin", path="C:\\Windows", separator=";"),
    ),
    "vswhere": (said("k40c-windows", "-format json -utf8"), msvc.parse_vswhere),
    "cl": (said("rtx5070-windows", 'cl.exe"'), msvc.parse_cl),
    "g++ --version": ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022\n", gcc.parse_version),
    "cmake --version": ("cmake version 3.25.1\n\nCMake suite\n", gcc.parse_program_version),
    "a Python": (
        said("k40c-windows", "ask_python.py"),
        lambda text: interpreters.parse(WINDOWS, "C:\\rk\\env\\Scripts\\python.exe", text),
    ),
    "torch/version.py": ("__version__ = '2.1.2+cu121'\ndebug = False\ncuda = '12.1'\n", cudnn.parse_torch_version),
    "cudnn_version.h": (
        "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 5\n",
        cudnn.parse_header,
    ),
    "/proc/meminfo": ("MemTotal:       65867820 kB\nMemAvailable:   62000000 kB\n", memory.parse_meminfo),
    "/proc/cpuinfo": ("model name\t: Xeon\nflags\t\t: fpu sse4_1 avx\n", memory.parse_cpuinfo),
    "/proc/driver/nvidia/version": (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  352.39  Fri\n",
        cards.kernel_version,
    ),
    "Windows' driver number": ("30.0.14.7250", drivers.of_windows),
}


PIECES = ["\x00", "\n", "9" * 400, "-1", "1e999", "N/A", "[", '"', "{", "١٢", "½", "\u2028", "", ", ", "0x", "\ud800"]


def damaged(text: str) -> st.SearchStrategy[str]:
    """`text` with pieces cut out, doubled, moved, or overwritten with what parsers trip over."""

    def apply(seed: int) -> str:
        # One draw per case and the rest from a seeded generator: drawing every edit would take most of the time.
        chance = random.Random(seed)
        result = text
        for _ in range(chance.randint(1, 4)):
            low, high = sorted((chance.randint(0, len(result)), chance.randint(0, len(result))))
            if chance.random() < 0.6:
                high = min(high, low + chance.randint(0, 6))
            new = chance.choice(
                [*PIECES, result[low:high] * 2, chr(chance.randint(1, 0x10FF)), str(chance.getrandbits(80))]
            )
            result = result[:low] + new + result[high:]
        return result

    return st.integers(0, 2**48).map(apply)


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_output_is_answered_or_not_read(name: str) -> None:
    text, parse = PARSERS[name]
    parse(text)

    @settings(max_examples=TIMES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(damaged(text))
    def try_it(broken: str) -> None:
        try:
            parse(broken)
        except CouldNotRead:
            return

    try_it()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpus", "driver", "cuda", "error", "name", "bus", "pci_id", "capability"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=max(TIMES // 10, 20), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(nvml=anything, driver=anything, pnp=anything, sizes=anything)
def test_a_machine_with_wild_answers_is_still_a_machine(nvml: Any, driver: Any, pnp: Any, sizes: Any) -> None:
    wild = Recording(
        os="windows",
        arch="x86_64",
        commands={
            "ask_nvml.py": Said(code=0, out=json.dumps(nvml)),
            "ask_cuda_driver.py": Said(code=0, out=json.dumps(driver)),
        },
        asked={
            "pnp display devices": pnp,
            "GlobalMemoryStatusEx": sizes,
            "places": sizes,
            "cores": driver,
        },
    )
    machine = look(Replay(wild))
    assert not [item for item in machine.unread if "fault" in item.reason], machine.unread
    codec.to_json(machine)


def test_cards_without_number_are_refused_before_they_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of 1 MB with 16,000 lines of nvidia-smi took five seconds, one of 4 MB more than a minute."""
    monkeypatch.setattr(cards, "_grouped", lambda _: pytest.fail("each was compared with each"))
    with pytest.raises(BadInput, match="16000 GPUs are listed"):
        cards.merge(LINUX, {cards.TRUST[0]: [{"name": "x"}] * 16_000})


def test_an_answer_of_another_kind_is_no_answer() -> None:
    """A snapshot may hold anything: the short path of a toolkit is put together with other paths."""
    root = "C:\\Program Files\\CUDA\\v11.8"
    for said in ({"x": 1}, 8, ["C:\\PROGRA~1"], None):
        run = Replay(Recording(os="windows", arch="x86_64", asked={f"short path of {root}": said}))
        assert toolkits._short(run, root) is None
    run = Replay(Recording(os="windows", arch="x86_64", asked={f"short path of {root}": "C:\\PROGRA~1\\CUDA\\v11.8"}))
    assert toolkits._short(run, root) == "C:\\PROGRA~1\\CUDA\\v11.8"
