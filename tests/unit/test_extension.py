"""What an extension is built with: toolkit, compiler, architectures, decided before the first compiler starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rekindle.core.findings import Fix, State
from rekindle.core.version import Version
from rekindle.diagnose import fix
from rekindle.diagnose.answer import Cause, Diagnosis, LogOutcome
from rekindle.extension import build as build_module
from rekindle.extension.build import ExtensionRequest, for_python, jobs, satisfied
from rekindle.extension.prepare import Preparation, Workbench, arch_list, prepare
from rekindle.knowledge.cuda.toolkits import toolkit
from rekindle.machine.model import FoundCompiler, FoundPython, InstalledTorch, Machine, Memory, Processor, Surroundings
from rekindle.model.card import Capability, NamedCard, Target
from rekindle.model.environment import Environment
from rekindle.model.toolkit import CalledTool, FoundToolkit
from support.command import rekindle_command


def _kit(version: str, root: str) -> FoundToolkit:
    return FoundToolkit(
        root=root,
        nvcc=f"{root}/bin/nvcc",
        version=Version(version),
        targets=toolkit(version).targets,
        found_by=("/usr/local",),
    )


CUDA118, CUDA130 = _kit("11.8.89", "/usr/local/cuda-11.8"), _kit("13.0.88", "/usr/local/cuda-13.0")
COMPILERS = tuple(
    FoundCompiler(kind="gcc", path=f"/usr/bin/g++-{major}", version=Version(f"{major}.3.0"), default=major == 12)
    for major in (11, 12)
)
MACHINE = Machine(
    os="linux",
    arch="x86_64",
    toolkits=(CUDA130, CUDA118),
    compilers=COMPILERS,
    python=FoundPython(path="/env/bin/python", version=Version("3.11.4")),
    pythons=(FoundPython(path="/env/bin/python", version=Version("3.11.4")),),
)
PLACE = Environment(
    root="/env",
    os="linux",
    kind="venv",
    python=Version("3.11.4"),
    site_packages=("/env/lib/python3.11/site-packages",),
    interpreter="/env/bin/python",
    has_headers=True,
)


def cards(*names: str) -> tuple[NamedCard, ...]:
    return tuple(NamedCard(name=name, capability=Capability.parse(name)) for name in names)


def prepared(
    cuda: str | None, *names: str, place: Environment = PLACE, machine: Machine = MACHINE, ptx: bool = False
) -> Preparation:
    version = Version(cuda) if cuda else None
    bench = Workbench(temp="/tmp/x", jobs=3, ptx=ptx)
    return prepare(
        place, InstalledTorch(version="2.0.1", cuda=version, root="/env"), cards(*names), machine, bench=bench
    )


def states(found: Preparation) -> dict[str, State]:
    return {finding.id.removeprefix("extension."): finding.state for finding in found.findings}


@pytest.mark.parametrize(
    ("wanted", "cuda", "expected"),
    [
        (["12.0", "8.6"], "13.0", "8.6;12.0"),  # numeric order: as text 12.0 would come first
        (["3.5", "6.1", "9.0"], "11.8", "3.5;6.1;9.0"),
        (["12.1"], "12.8", "12.0"),  # sm_121 is not known to 12.8; sm_120 code runs there
        (["12.0"], "11.8", "9.0+PTX"),  # newer than anything 11.8 knows
        (["8.9", "8.9"], "11.8", "8.9"),
        ([], "11.8", ""),
    ],
)
def test_the_architecture_list(wanted: list[str], cuda: str, expected: str) -> None:
    assert arch_list([Capability.parse(text) for text in wanted], toolkit(cuda).targets) == expected


def test_ptx_is_added_to_the_last_one() -> None:
    targets = (Target.parse("sm_86"), Target.parse("sm_120"))
    assert arch_list([Capability(12, 0), Capability(8, 6)], targets, ptx=True) == "8.6;12.0+PTX"


def test_a_minor_difference_is_explained_and_not_refused() -> None:
    """torch 2.0.1 is built with 11.7; 11.8 is what is here and the last that compiles for a K40c."""
    found = prepared("11.7", "3.5", "6.1", "9.0")
    assert states(found) == {"python": State.PASS, "toolkit": State.WARN, "cards": State.PASS, "compiler": State.PASS}
    sentence = next(finding for finding in found.findings if finding.id == "extension.toolkit")
    assert "compatible" in sentence.found
    assert found.arch_list == "3.5;6.1;9.0"
    assert found.toolkit == "/usr/local/cuda-11.8"


def test_another_toolkits_ptxas_is_said_beside_the_minor_difference() -> None:
    """Debian's 11.8 with CUDA 13 first on PATH: the one finding hid the other."""
    other = CalledTool(path="/usr/local/bin/ptxas", version=Version.parse("13.0"))
    kits = tuple(msgspec.structs.replace(kit, ptxas=other) for kit in MACHINE.toolkits)
    found = prepared("11.7", "3.5", machine=msgspec.structs.replace(MACHINE, toolkits=kits))
    said = {finding.id: finding for finding in found.findings}
    assert "compatible" in said["extension.toolkit"].found
    assert said["extension.ptxas"].state is State.WARN


def test_the_environment_of_that_build() -> None:
    found = prepared("11.7", "3.5")
    assert found.environment is not None
    made = found.environment.over({"PATH": "/usr/local/cuda-13.0/bin:/usr/bin", "TORCH_CUDA_ARCH_LIST": "8.6"})
    assert made["PATH"].split(":")[0] == "/usr/local/cuda-11.8/bin"
    assert "/usr/local/cuda-13.0/bin" not in made["PATH"].split(":")
    assert made["CUDA_HOME"] == "/usr/local/cuda-11.8"
    assert made["TORCH_CUDA_ARCH_LIST"] == "3.5"
    assert (made["CC"], made["CXX"]) == ("/usr/bin/gcc-11", "/usr/bin/g++-11")  # 11.8 refuses GCC 12
    assert made["NVCC_PREPEND_FLAGS"] == "-ccbin /usr/bin/g++-11"
    assert made["MAX_JOBS"] == "3"
    assert made["FORCE_CUDA"] == "1"


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, 8), ("1", 1), ("0", 1), ("3", 3), ("64", 8), ("many", 8), ("", 8), ("²", 8)]
)
def test_fewer_jobs_than_fit_can_be_asked_for(shell: str | None, expected: int) -> None:
    machine = Machine(
        os="linux", arch="x86_64", processor=Processor(cores=8), memory=Memory(physical=256 << 30, available=128 << 30)
    )
    assert jobs(machine, {} if shell is None else {"MAX_JOBS": shell}) == expected


def test_another_major_is_refused_with_what_to_install() -> None:
    found = prepared("12.6", "9.0")
    assert states(found)["toolkit"] is State.FAIL
    assert found.environment is None
    fix = next(finding.fix for finding in found.findings if finding.id == "extension.toolkit")
    assert fix is not None
    assert "CUDA 12.6" in fix.text


@pytest.mark.parametrize(("glibc", "said"), [("2.41", True), ("2.42", True), ("2.39", False), (None, False)])
def test_a_c_library_that_nvcc_cannot_read_is_said(glibc: str | None, said: bool) -> None:
    """Met on Debian 13: every check passed, and each CUDA file then failed inside the system's math headers."""
    system = Surroundings(glibc=Version(glibc) if glibc else None)
    found = prepared("11.7", "3.5", machine=msgspec.structs.replace(MACHINE, surroundings=system))
    assert (states(found).get("libc") is State.WARN) == said


def test_a_card_that_cuda_has_dropped_needs_another_torch_first() -> None:
    """No CUDA 13 compiles for Volta: a toolkit would be installed in vain."""
    found = prepared("13.0", "7.0")
    assert states(found)["toolkit"] is State.FAIL
    wrong = next(finding for finding in found.findings if finding.id == "extension.toolkit")
    assert "no CUDA 13 compiles for" in wrong.found
    assert "12.9" in wrong.why
    assert wrong.fix is not None
    assert wrong.fix.commands == ("rekindle install /env --gpu 7.0",)


def test_a_cpu_torch_and_no_card_are_said() -> None:
    found = prepared(None, "9.0")
    assert states(found)["toolkit"] is State.FAIL
    fix = next(finding.fix for finding in found.findings if finding.id == "extension.toolkit")
    assert fix is not None
    assert fix.commands == ("rekindle install /env --gpu 9.0",)
    assert states(prepared("11.7"))["cards"] is State.FAIL


def test_an_embedded_python_cannot_compile() -> None:
    embedded = Environment(
        root="/portable",
        os="linux",
        kind="embedded",
        python=Version("3.11"),
        site_packages=(),
        interpreter="/p",
        has_headers=False,
    )
    found = prepared("11.7", "3.5", place=embedded)
    assert states(found)["python"] is State.FAIL


def test_no_compiler_that_the_toolkit_takes() -> None:
    only_12 = Machine(os="linux", arch="x86_64", toolkits=(CUDA118,), compilers=COMPILERS[1:], python=MACHINE.python)
    found = prepared("11.7", "3.5", machine=only_12)
    assert states(found)["compiler"] is State.FAIL
    assert found.environment is None


def test_a_requirement_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "setuptools-75.8.2.dist-info").mkdir()
    (tmp_path / "scikit_build_core-0.10.7.dist-info").mkdir()
    (tmp_path / "wheel-0.46.1.egg-info").mkdir()
    (tmp_path / "Cython-3.0.11-py3.13.egg-info").touch()
    place = Environment(
        root=str(tmp_path),
        os="linux",
        kind="venv",
        python=Version("3.11"),
        site_packages=(str(tmp_path),),
        interpreter="/x",
        has_headers=True,
    )
    for text, met in (
        ("setuptools", True),
        ("setuptools>=77", False),
        ("scikit-build-core>=0.10", True),
        ("pybind11", False),
        ("wheel>=0.40", True),
        ("cython<3", False),
        ("tomli; python_version < '3'", True),
    ):
        assert satisfied(text, place, {"PATH": ""}) is met, text


def test_bad_input_is_said(tmp_path: Path) -> None:
    assert rekindle_command("extension", "check", "--env", str(tmp_path), "--gpu", "k40c").code == 14
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    seen = rekindle_command("extension", "build", "x", "--env", str(tmp_path), "--gpu", "k40c")
    assert seen.code == 14
    assert "no torch" in seen.err


def test_ptx_is_added_where_it_was_asked_for() -> None:
    """A torch for `3.5+PTX` runs on a newer card, too: what is built for it must be able to."""
    for ptx, wanted in ((False, "3.5"), (True, "3.5+PTX")):
        found = prepared("11.8", "3.5", ptx=ptx)
        assert found.arch_list == wanted
        assert found.environment is not None
        assert {one.name: one.value for one in found.environment.changes}["TORCH_CUDA_ARCH_LIST"] == wanted
        assert states(found)["cards"] is State.PASS
    # Without PTX such a card is not reached at all, asked for or not.
    assert states(prepared("11.8", "12.0", ptx=True))["cards"] is State.WARN


def test_without_a_gpu_nothing_is_fetched_and_nothing_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of the index was said to support the GPUs when none was named."""
    site = tmp_path / "lib" / "python3.11" / "site-packages" / "torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text("__version__ = '2.7.1'\ncuda = '12.6'\n", encoding="utf-8")
    monkeypatch.setattr(build_module, "candidate", lambda *_: pytest.fail("the index was asked"))
    request = ExtensionRequest(project="torchvision==0.22.1", environment=tmp_path, output=tmp_path / "out")
    report = build_module.build(request, cards=(), machine=MACHINE)
    assert report.state is State.FAIL
    assert report.wheel is None


def test_the_commands_are_for_the_python_that_built() -> None:
    lines = ("pip install ninja", "python -m pip install ninja", "pipx run a")
    cause = Cause(
        family="x", label="x", title="x", confidence=1.0, explanation="x", line=1, evidence=(),
        fix=Fix(text="x", commands=tuple(fix.command_of(line, "linux", {}) for line in lines)),
    )  # fmt: skip
    diagnosis = Diagnosis(outcome=LogOutcome.CAUSE, summary="x", lines=1, causes=(cause,))
    made = for_python(diagnosis, "/other env/bin/python")
    own = '"/other env/bin/python" -m pip install ninja'
    assert made.causes[0].fix.commands == (own, own, "pipx run a")
