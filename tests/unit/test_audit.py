"""`rekindle audit` on environments made for the purpose: each fault found, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from ctypes.util import find_library
from pathlib import Path

import pytest

from rekindle.audit import cache as remembered
from rekindle.audit import contents
from rekindle.audit.answer import Audit
from rekindle.audit.audit import audit
from rekindle.core.command import Command
from rekindle.core.findings import State
from rekindle.core.kept import kept_file
from rekindle.core.version import Version
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.card import Capability, NamedCard
from rekindle.model.driver import Driver
from support.artefacts import unverified
from support.command import rekindle_command
from support.compiled import Compiler
from support.fatbins import container

K40 = NamedCard(name="Tesla K40c", capability=Capability(3, 5))
H200 = NamedCard(name="H200", capability=Capability(9, 0))
TORCH = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"


class Environment:
    """A venv on Linux with a torch of ours, and packages with chosen modules."""

    def __init__(self, root: Path, torch: str = "2.7.1", cuda: str | None = "12.6", python: str = "3.11") -> None:
        self.root = root
        self.site = root / "lib" / f"python{python}" / "site-packages"
        (self.site / "torch" / "lib").mkdir(parents=True)
        (root / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {python}.4\n", encoding="utf-8")
        spelled = f"'{cuda}'" if cuda else "None"
        (self.site / "torch" / "version.py").write_text(
            f"__version__ = '{torch}'\ncuda: Optional[str] = {spelled}\n", encoding="utf-8"
        )
        self.compiler = Compiler(self.site, "")
        self.compiler.build("torch/lib/libc10.so", offers=(TORCH,), options=("-Wl,-soname,libc10.so",))
        self.distribution("torch", torch)

    def distribution(self, name: str, version: str, requires: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir(exist_ok=True)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {other}" for other in requires), "", "text"]
        (folder / "METADATA").write_text("\n".join(lines), encoding="utf-8")
        (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files), encoding="utf-8")

    def module(
        self, path: str, *, wants: Sequence[str] = (TORCH,), targets: Sequence[str] = (), options: Sequence[str] = ()
    ) -> None:
        """A module linked against our torch, with GPU code for these targets in its own section."""
        allow = (
            "-Wl,--unresolved-symbols=ignore-all",
            "-L",
            str(self.site / "torch/lib"),
            "-Wl,--no-as-needed",
            "-lc10",
        )
        built = self.compiler.build(path, wants=wants, options=(*options, *allow))
        if targets:
            code = self.compiler.work / "code.fatbin"
            code.write_bytes(container(*targets))
            command = ["objcopy", "--add-section", f".nv_fatbin={code}", str(built)]
            self.compiler.run(command)

    def audit(self, *cards: NamedCard, driver: str | None = None, cache: Path | None = None) -> Audit:
        return audit(self.root, cards=cards, driver=Driver(Version(driver), "linux") if driver else None, cache=cache)


@pytest.fixture
def place(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


def ids(answer: Audit, *, fails: bool = True) -> list[str]:
    every = [*answer.findings, *(finding for module in answer.modules for finding in module.findings)]
    return sorted(finding.id for finding in every if not fails or finding.state is State.FAIL)


def test_a_healthy_environment_has_nothing_to_say(place: Environment) -> None:
    place.module("ext/_C.cpython-311-aarch64-linux-gnu.so", targets=("sm_80", "sm_90"))
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-aarch64-linux-gnu.so"])
    answer = place.audit(H200)
    assert ids(answer, fails=False) == []
    assert answer.state is State.PASS
    assert answer.steps == ()


def test_code_for_other_cards_only(place: Environment) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    place.distribution("ext", "1.0", requires=["torch"], files=["ext/_C.cpython-311-x.so"])
    answer = place.audit(H200)
    assert ids(answer) == ["audit.gpu-code"]
    module = next(module for module in answer.modules if module.distribution == "ext")
    assert module.coverage == {"H200": "NO"}
    assert "wrong numbers" in module.findings[0].why
    assert [step.packages for step in answer.steps] == [("ext",)]


def test_ptx_is_said_to_be_jit_and_judged_by_the_driver(place: Environment) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_80", "compute_80"))
    assert ids(place.audit(H200), fails=False) == ["audit.jit"]
    assert place.audit(H200).state is State.UNVERIFIED  # no driver is known
    assert place.audit(H200, driver="580.65.06").state is State.WARN  # it knows PTX 9.0; the code is 8.7
    assert ids(place.audit(H200, driver="535.54.03")) == ["audit.gpu-code"]  # PTX 8.2 at most


def test_a_symbol_that_this_torch_does_not_have(place: Environment) -> None:
    place.module("ext/_C.cpython-311-x.so", wants=(TORCH, "_ZN2at3addERKNS_6TensorES2_"))
    answer = place.audit()
    assert ids(answer) == ["audit.torch-symbols"]
    assert "_ZN2at3add" in answer.modules[-1].findings[0].found


def test_a_stable_abi_module_is_recognised(place: Environment) -> None:
    place.compiler.build("torch/lib/libtorch_cpu.so", offers=("aoti_torch_get_dim",))
    place.module("ext/_C.abi3.so", wants=("aoti_torch_get_dim",))
    answer = place.audit()
    assert ids(answer) == []
    assert next(module for module in answer.modules if module.path == "ext/_C.abi3.so").stable_abi


def test_a_module_for_another_python(place: Environment) -> None:
    place.module("ext/_C.cpython-310-x.so")
    assert ids(place.audit()) == ["audit.python"]


def test_a_package_with_modules_for_many_pythons_is_well(place: Environment) -> None:
    for tag in ("310", "311", "312"):
        place.module(f"ext/_C.cpython-{tag}-x.so")
    assert ids(place.audit()) == []


def test_another_cuda_runtime(place: Environment) -> None:
    runtime = place.compiler.work / "libcudart.so.11.0"
    place.compiler.build(str(runtime), options=("-Wl,-soname,libcudart.so.11.0",))
    place.module("ext/_C.cpython-311-x.so", options=("-Wl,--no-as-needed", str(runtime)))
    shutil.copy(runtime, place.site / "ext")
    assert ids(place.audit()) == ["audit.cuda-runtime"]


def test_numpy_1_module_under_numpy_2(place: Environment) -> None:
    source = place.compiler.work / "text.c"
    source.write_text(
        'const char *name = "numpy.core._multiarray_umath"; int f(void) { return name[0]; }', encoding="utf-8"
    )
    target = place.site / "old" / "_x.cpython-311-x.so"
    target.parent.mkdir()
    place.compiler.run([place.compiler.gcc, "-shared", "-fPIC", "-nostdlib", "-o", target, source])
    place.distribution("numpy", "2.1.0")
    assert ids(place.audit()) == ["audit.numpy"]
    shutil.rmtree(place.site / "numpy-2.1.0.dist-info")
    place.distribution("numpy", "1.26.4")
    assert ids(place.audit()) == []


def test_a_torch_of_numpy_1_beside_numpy_2(tmp_path: Path) -> None:
    """doctor and review refused the pair, audit had no problems."""
    place = Environment(tmp_path / "env", torch="2.2.0", cuda="12.1")
    place.distribution("numpy", "2.1.0")
    assert ids(place.audit()) == ["audit.numpy"]


def test_what_torch_pins_is_held_against_what_is_there(place: Environment) -> None:
    """Triton 2.1.0 beside torch 2.6.0 was refused by review, and audit had no problems."""
    place.distribution("torch", "2.7.1", requires=['triton==3.3.1; platform_system == "Linux"', "numpy", "sympy>=1.13"])
    place.distribution("triton", "2.1.0")
    place.distribution("sympy", "1.12")
    (found,) = (each for each in place.audit().findings if each.id == "audit.pinned")
    assert (found.state, found.found) == (State.WARN, "torch 2.7.1 asks for triton==3.3.1; 2.1.0 is installed")


def test_torchvision_of_another_torch(place: Environment) -> None:
    place.distribution("torchvision", "0.22.1")
    assert ids(place.audit()) == []
    shutil.rmtree(place.site / "torchvision-0.22.1.dist-info")
    place.distribution("torchvision", "0.20.1+cu121")
    assert ids(place.audit()) == ["audit.companions"]


def test_a_driver_that_is_too_old_for_torch(place: Environment) -> None:
    (found,) = (each for each in place.audit(H200, driver="470.256.02").findings if each.id == "audit.driver")
    # The CUDA of torch asks for less than the card: 525.60.13 would not have helped.
    assert found.fix is not None and "525.60.13" not in found.fix.text
    assert ids(place.audit(H200, driver="550.54.14")) == []


@pytest.mark.parametrize(
    ("card", "driver", "said"),
    [(K40, "550.54.14", "R470 was the last branch that did"), (H200, "470.57.02", "is the first that does")],
)
def test_a_driver_that_does_not_drive_the_card(place: Environment, card: NamedCard, driver: str, said: str) -> None:
    """A K80 with driver 550 had no problems here, while plan, review and diagnose refused it."""
    found = [each for each in place.audit(card, driver=driver).findings if each.id == "audit.driver"]
    assert any(said in each.found for each in found if each.state is State.FAIL), found


def test_a_library_that_is_nowhere(place: Environment) -> None:
    ghost = place.compiler.work / "libghost.so.3"
    place.compiler.build(str(ghost), options=("-Wl,-soname,libghost.so.3",))
    middle = "ext/libmiddle.so"
    place.compiler.build(middle, options=("-Wl,-soname,libmiddle.so", "-Wl,--no-as-needed", str(ghost)))
    machine = place.compiler.root.parents[2]
    assert machine.exists()
    place.module("ext/_C.cpython-311-x.so", options=("-Wl,--no-as-needed", str(place.site / middle)))
    answer = place.audit()
    assert ids(answer) == ["audit.missing"]
    module = next(each for each in answer.modules if each.path == "ext/_C.cpython-311-x.so")
    assert "libghost.so.3" in module.findings[0].found
    assert "through libmiddle.so" in module.findings[0].found
    assert module.state is State.FAIL, "the worst finding about a file decides what its row says"


def test_libraries_that_are_nowhere_are_of_the_package_that_asks_for_them(place: Environment) -> None:
    """Eleven libraries of torch were eleven findings about functorch, and torch passed."""
    ghosts = [place.compiler.work / f"lib{name}.so.3" for name in ("ghost", "wraith")]
    for ghost in ghosts:
        place.compiler.build(str(ghost), options=(f"-Wl,-soname,{ghost.name}",))
    middle = "ext/libmiddle.so"
    place.compiler.build(middle, options=("-Wl,-soname,libmiddle.so", "-Wl,--no-as-needed", *map(str, ghosts)))
    for path in ("a/_C.cpython-311-x.so", "ext/_C.cpython-311-x.so"):
        place.module(path, options=("-Wl,--no-as-needed", str(place.site / middle)))
    answer = place.audit()
    (found,) = (each for module in answer.modules for each in module.findings)
    assert found.found.startswith("ext/_C") and "libghost.so.3, libwraith.so.3, which are nowhere" in found.found


def test_a_missing_back_end_is_no_failure(place: Environment) -> None:
    """mpi4py, numba and CuPy bring modules for libraries that need not be there."""
    ghost = place.compiler.work / "libmpi.so.12"
    place.compiler.build(str(ghost), options=("-Wl,-soname,libmpi.so.12",))
    place.compiler.build("mpi4py/MPI.cpython-311-x.so", options=("-Wl,--no-as-needed", str(ghost)))
    assert ids(place.audit()) == []
    assert ids(place.audit(), fails=False) == ["audit.missing"]


def test_a_library_with_a_letter_in_its_version_is_seen(place: Environment) -> None:
    crypto = "opencv_python.libs/libcrypto-5409cd36.so.1.1.1k"
    place.compiler.build(crypto, options=("-Wl,-soname,libcrypto-5409cd36.so.1.1.1k",))
    place.compiler.build("cv2/cv2.abi3.so", options=("-Wl,--no-as-needed", str(place.site / crypto)))
    assert ids(place.audit(), fails=False) == []


def test_what_has_ready_made_files_is_looked_for_before_it_is_built(place: Environment) -> None:
    place.module("bitsandbytes/_C.cpython-311-x.so", targets=("sm_75",))
    place.distribution("bitsandbytes", "0.40.0", requires=["torch"], files=["bitsandbytes/_C.cpython-311-x.so"])
    (step,) = place.audit(H200).steps
    (command,) = step.commands
    assert command.startswith("rekindle extension find bitsandbytes --env ")


def test_two_openmp_runtimes_and_two_cudnns(place: Environment) -> None:
    for folder in ("torch/lib", "other"):
        place.compiler.build(f"{folder}/libiomp5.so")
    for name in ("libcudnn.so.8", "libcudnn.so.9"):
        place.compiler.build(f"nvidia/cudnn/lib/{name}")
    assert ids(place.audit(), fails=False) == ["audit.duplicates", "audit.duplicates"]


def test_packages_of_another_python_on_the_path(place: Environment) -> None:
    (place.site / "other.pth").write_text("/opt/python3.9/lib/python3.9/site-packages\n", encoding="utf-8")
    (place.site / "fine.pth").write_text("import os\n# a comment about site-packages\n", encoding="utf-8")
    assert ids(place.audit(), fails=False) == ["audit.mixed"]


def test_what_is_built_again_follows_the_requirements(place: Environment) -> None:
    for name, requires in (("zeta", []), ("alpha", ["mid"]), ("mid", ["zeta", "torch"])):
        place.module(f"{name}/_C.cpython-311-x.so", targets=("sm_75",))
        place.distribution(name, "1.0", requires=requires, files=[f"{name}/_C.cpython-311-x.so"])
    answer = place.audit(H200)
    assert [step.packages for step in answer.steps] == [("zeta",), ("mid",), ("alpha",)]
    building, installing = answer.steps[0].commands
    assert building.startswith("rekindle extension build zeta==1.0 --env ")
    assert building.endswith(" -o wheels")
    assert installing.endswith(" --find-links wheels zeta==1.0")


def test_another_program_is_not_built_as_an_extension_of_torch(place: Environment) -> None:
    place.module("onnxruntime/capi/_C.cpython-311-x.so", targets=("sm_75",))
    place.distribution("onnxruntime-gpu", "1.20.2", files=["onnxruntime/capi/_C.cpython-311-x.so"])
    (step,) = place.audit(H200).steps
    assert step.commands[0].startswith("rekindle plan --for onnxruntime-gpu --gpu ")


def test_what_a_module_was_built_with_is_remembered(place: Environment, tmp_path: Path) -> None:
    place.module("ext/_C.cpython-311-x.so")
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-x.so"])
    cache = tmp_path / "cache"
    assert ids(place.audit(cache=cache), fails=False) == []
    (place.site / "torch" / "version.py").write_text("__version__ = '2.8.0'\ncuda = '12.8'\n", encoding="utf-8")
    answer = place.audit(cache=cache)
    assert ids(answer, fails=False) == ["audit.changed"]
    assert "torch 2.7.1 → 2.8.0, CUDA 12.6 → 12.8" in answer.modules[-1].findings[0].found
    assert [step.reasons for step in answer.steps] == [("changed",)]
    place.module("ext/_C.cpython-311-x.so", wants=())  # built again
    assert ids(place.audit(cache=cache), fails=False) == []


def test_the_second_look_reads_nothing_again(
    place: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_90",))
    first = place.audit(H200, cache=tmp_path)
    monkeypatch.setattr(contents, "_facts", lambda source: pytest.fail(f"{source.name} was read again"))
    monkeypatch.setattr(contents, "_list", lambda folder, *_, **__: pytest.fail(f"{folder} was listed again"))
    assert place.audit(H200, cache=tmp_path) == first


def test_a_cache_that_cannot_be_written_is_no_reason_against_an_answer(place: Environment, tmp_path: Path) -> None:
    """A home with a full quota, or one that belongs to nobody."""
    (tmp_path / "cache").write_text("a file where the folder would be", encoding="utf-8")
    cache = tmp_path / "cache" / "audit"
    assert place.audit(H200, cache=cache) == place.audit(H200)
    assert remembered.audit(place.root, names=("H200",), machine=None, driver=None, cache=cache) is not None


def _ask(place: Environment, cache: Path, names: tuple[str, ...] = ("H200",)) -> Audit:
    return remembered.audit(place.root, names=names, machine=None, driver=None, cache=cache)


def test_the_last_answer_is_given_again_while_nothing_has_changed(
    place: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-x.so"])
    cache = tmp_path / "cache"
    first = _ask(place, cache)
    assert ids(first) == ["audit.gpu-code"]
    with monkeypatch.context() as patched:
        patched.setattr(contents, "read", lambda *_, **__: pytest.fail("the environment was read again"))
        assert _ask(place, cache) == first
    assert ids(_ask(place, cache, ("sm_75",))) == []  # another question
    assert _ask(place, cache) == first


@pytest.mark.parametrize("change", ["module", "version", "distribution", "removed", "pth", "library"])
def test_whatever_changes_is_seen(
    place: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_90",))
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-x.so"])
    place.distribution("torchvision", "0.22.1")
    (place.site / "a.pth").write_text("# nothing\n", encoding="utf-8")
    cache = tmp_path / "cache"
    assert ids(_ask(place, cache), fails=False) == []
    expected = {
        "module": ["audit.gpu-code"],
        "version": ["audit.changed", "audit.companions"],
        "distribution": ["audit.companions"],
        "removed": [],
        "pth": ["audit.mixed"],
        "library": [],
    }[change]
    if change == "module":
        place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    elif change == "version":
        (place.site / "torch" / "version.py").write_text("__version__ = '2.8.0'\ncuda = '12.8'\n", encoding="utf-8")
    elif change == "distribution":
        metadata = place.site / "torchvision-0.22.1.dist-info" / "METADATA"
        metadata.write_text("Name: torchvision\nVersion: 0.20.1\n\n", encoding="utf-8")
    elif change == "removed":
        shutil.rmtree(place.site / "ext")
    elif change == "pth":
        (place.site / "a.pth").write_text("/opt/python3.9/lib/python3.9/site-packages\n", encoding="utf-8")
    else:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        monkeypatch.setattr(contents, "read", _counting(read := []))
        assert ids(_ask(place, cache), fails=False) == []
        assert read
    assert ids(_ask(place, cache), fails=False) == expected


def _counting(read: list[int]) -> object:
    real = contents.read

    def reading(*args: object, **named: object) -> contents.Contents:
        read.append(1)
        return real(*args, **named)  # type: ignore[arg-type]

    return reading


def test_a_broken_cache_is_as_none(place: Environment, tmp_path: Path) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    environment = find_environment(place.root)
    for name in ("modules", "built", "answer"):
        file = kept_file(tmp_path, environment.root, name)
        assert file is not None
        file.write_bytes(b'{"format": 7, "modules": [')
    assert ids(place.audit(H200, cache=tmp_path)) == ["audit.gpu-code"]


def test_a_broken_library_is_unverified(place: Environment) -> None:
    (place.site / "bad").mkdir()
    (place.site / "bad" / "x.so").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 58)
    answer = place.audit()
    assert ids(answer, fails=False) == ["audit.readable"]
    assert answer.state is State.UNVERIFIED


def test_a_portable_windows_folder_is_read_here(tmp_path: Path) -> None:
    python = tmp_path / "ComfyUI_windows_portable" / "python_embeded"
    site = python / "Lib" / "site-packages"
    (site / "torch" / "lib").mkdir(parents=True)
    (python / "python311._pth").write_text("python311.zip\n", encoding="utf-8")
    (python / "python311.dll").write_bytes(b"")
    (site / "torch" / "version.py").write_text("__version__ = '2.7.1+cu128'\ncuda = '12.8'\n", encoding="utf-8")
    answer = audit(tmp_path / "ComfyUI_windows_portable", cards=(K40,))
    assert (answer.environment.os, answer.environment.kind) == ("windows", "embedded")
    assert str(answer.environment.python) == "3.11"
    assert [finding.id for finding in answer.findings] == ["audit.headers"]


def test_what_is_no_environment_is_a_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        seen = rekindle_command("audit", str(path), "--gpu", "k40c")
        assert seen.code == 14
        assert "hint:" in seen.err


def test_the_command_line(place: Environment) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-x.so"])
    seen = rekindle_command("audit", str(place.root), "--gpu", "H200", "--no-cache")
    assert seen.code == 8
    assert "has no code for the H200 (sm_90); it has sm_75" in " ".join(seen.out.split())
    answer = rekindle_command("audit", str(place.root), "--gpu", "H200", "--no-cache", "--json").json()
    assert answer["state"] == "FAIL"
    assert answer["steps"][0]["packages"] == ["ext"]
    assert rekindle_command("audit", str(place.root), "--gpu", "GT 730").code == 2


def rows(out: str) -> list[list[str]]:
    """The table of an audit, cut at the rules under its heads."""
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("-----"))
    starts = [match.start() for match in re.finditer(r"-+", lines[at])]
    body = [lines[at - 1], *lines[at + 1 : lines.index("", at)]]
    return [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in body]


def test_one_column_for_each_card_in_the_order_of_the_cards(place: Environment) -> None:
    place.module("one/_C.cpython-311-x.so", targets=("sm_75",))
    place.module("two/_C.cpython-311-x.so", targets=("sm_90",))
    for cards in (("H200", "RTX 2080"), ("RTX 2080", "H200")):
        words = [word for card in cards for word in ("--gpu", card)]
        seen = rekindle_command("audit", str(place.root), *words, "--no-cache")
        head, *body = rows(seen.out)
        assert [name.split()[-1] for name in head[1:3]] == [card.split()[-1] for card in cards]
        by_path = {row[-1]: row for row in body}
        assert set(by_path) >= {"one/_C.cpython-311-x.so", "two/_C.cpython-311-x.so"}, "with their folders"
        served = {card: by_path["two/_C.cpython-311-x.so"][1 + cards.index(card)] for card in cards}
        assert served == {"H200": "SERVES", "RTX 2080": "NO"}
        paths = [row[-1] for row in body]
        assert len(paths) == len(set(paths)), "no file twice"
        said = seen.out.split("\n\n", 2)[2]
        assert said.count("one/_C.cpython-311-x.so has") == 1


def test_the_rules_are_as_wide_as_their_columns(place: Environment) -> None:
    place.module("a_long_folder/with_another_one/_C.cpython-311-x86_64-linux-gnu.so", targets=("sm_75",))
    seen = rekindle_command("audit", str(place.root), "--gpu", "H200", "--no-cache")
    lines = seen.out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("-----"))
    below = lines[at + 1 : lines.index("", at)]
    assert len(lines[at]) == max(len(line) for line in [lines[at - 1], *below])


def test_two_chips_of_one_name_have_a_column_each(place: Environment) -> None:
    place.module("one/_C.cpython-311-x.so", targets=("sm_35",))
    old = NamedCard(name="GeForce GT 730", capability=Capability(2, 1))
    new = NamedCard(name="GeForce GT 730", capability=Capability(3, 5))
    module = next(each for each in place.audit(old, new).modules if each.path.startswith("one/"))
    assert module.coverage == {"GeForce GT 730 (sm_21)": "NO", "GeForce GT 730 (sm_35)": "SERVES"}


def test_a_shared_finding_names_the_file_once(place: Environment) -> None:
    place.module("one/_C.cpython-311-x.so", targets=("sm_75",))
    module = next(each for each in place.audit(K40, H200).modules if each.path.startswith("one/"))
    assert [finding.id for finding in module.findings] == ["audit.gpu-code"]
    assert "the Tesla K40c (sm_35) and the H200 (sm_90)" in module.findings[0].found


def test_the_commands_name_the_environment_and_the_card(place: Environment) -> None:
    """What belongs to the torch that is replaced is not built again for it: it comes with the new one."""
    for name, version in (("torch", "2.7.1"), ("torchvision", "0.22.1"), ("ext", "1.0")):
        place.module(f"{name}/_C.cpython-311-x.so", targets=("sm_75",))
        place.distribution(name, version, requires=["torch"], files=[f"{name}/_C.cpython-311-x.so"])
    (place.root.parent / "here").mkdir()
    untidy = place.root.parent / "here" / ".." / "env"
    card = NamedCard(name="GTX 1080 Ti", capability=Capability(6, 1))
    answer = audit(untidy, cards=(card,))
    assert ".." not in answer.environment.root
    root = str(Command(answer.environment.root))
    assert {step.packages: step.commands[0] for step in answer.steps} == {
        ("torch", "torchvision"): f'rekindle install {root} --gpu "GTX 1080 Ti"',
        ("ext",): f'rekindle extension build ext==1.0 --env {root} --gpu "GTX 1080 Ti" -o wheels',
    }
    seen = rekindle_command("audit", str(untidy), "--gpu", "GTX 1080 Ti", "--no-cache")
    assert seen.out.count("rekindle install") == 1
    assert f'{root} --gpu "GeForce GTX 1080 Ti"' in seen.out


def test_a_torch_without_cuda_does_not_pass_for_a_gpu(place: Environment) -> None:
    version = place.site / "torch/version.py"
    version.write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", encoding="utf-8")
    answer = place.audit(H200)
    assert ids(answer) == ["audit.cpu-torch"]
    assert [line.startswith("rekindle install ") for step in answer.steps for line in step.commands] == [True]


def test_without_a_gpu_nothing_is_said_to_run(place: Environment) -> None:
    place.module("ext/_C.cpython-311-x.so", targets=("sm_75",))
    assert place.audit().state is State.UNVERIFIED


def test_the_count_is_that_of_the_lines_above_it(place: Environment) -> None:
    place.module("ext/_C.cpython-310-x.so", targets=("sm_75",))
    place.distribution("ext", "1.0", files=["ext/_C.cpython-310-x.so"])
    out = rekindle_command("audit", str(place.root), "--gpu", "H200", "--no-cache").out
    explained = out.partition("\n\n")[2].partition("\n\n")[2]
    lines = sum(line.startswith("FAIL ") for line in explained.splitlines())
    assert lines > 1
    assert f"{lines} FAIL" in out.splitlines()[-1]


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: libraries of Linux are not looked for on Windows")
def test_the_package_that_brings_a_missing_library_is_named(place: Environment) -> None:
    if find_library("cudnn"):
        unverified("this machine has a cuDNN of its own, so none is missing")
    stub = place.compiler.work / "libcudnn.so.9"
    place.compiler.run(
        [
            place.compiler.gcc,
            "-shared",
            "-nostdlib",
            "-Wl,-soname,libcudnn.so.9",
            "-o",
            str(stub),
            "-x",
            "c",
            os.devnull,
        ]
    )
    place.module("ext/_C.cpython-311-x.so", options=("-Wl,--no-as-needed", str(stub)))
    asked = ("nvidia-cudnn-cu12 @ http://127.0.0.1:9/x.whl", "other @ file:///etc/passwd")
    place.distribution("ext", "1.0", files=["ext/_C.cpython-311-x.so"], requires=asked)
    answer = place.audit(H200)
    fix = next(one.fix for each in answer.modules for one in each.findings if one.id == "audit.missing")
    assert fix is not None
    assert "nvidia-cudnn-cu12" in fix.text
    told = [command for step in answer.steps for command in step.commands]
    assert any("nvidia-cudnn-cu12" in each for each in told), "by its name"
    assert not any("://" in each for each in told), "and from no address that METADATA names"
    assert [line.endswith("-m pip install nvidia-cudnn-cu12") for line in answer.steps[0].commands] == [True]
    asks = ["cuda-toolkit[cublas,cudart]==13.0.2; platform_system == 'Linux'", "nvidia-cudnn-cu12==9.1.0.70", "torch"]
    place.distribution("ext", "1.0", requires=asks, files=["ext/_C.cpython-311-x.so"])
    (line,) = place.audit(H200).steps[0].commands
    wanted = '-m pip install "cuda-toolkit[cublas,cudart]==13.0.2" nvidia-cudnn-cu12==9.1.0.70'
    assert line.endswith(wanted), "what it asks for itself, in that version"


def test_what_belongs_to_a_torch_comes_from_the_index_of_its_line(tmp_path: Path) -> None:
    place = Environment(tmp_path / "env", torch="2.7.1+cu118", cuda="11.8")
    place.distribution("torchvision", "0.20.1")
    (step,) = place.audit(H200).steps
    assert step.commands[0].endswith("torchvision==0.22.1+cu118 --index-url https://download.pytorch.org/whl/cu118")


def test_an_environment_without_compiled_code_is_not_praised(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.4\n", encoding="utf-8")
    seen = rekindle_command("audit", str(tmp_path), "--no-cache")
    assert "no problems" not in seen.out and "nothing in it is compiled code" in seen.out
    assert "no torch is in it: `rekindle install " in seen.out


def test_the_packages_of_a_user_are_no_environment_to_install_into(tmp_path: Path) -> None:
    """`rekindle install /.local` was printed, which `install` refuses."""
    (tmp_path / ".local/lib/python3.12/site-packages").mkdir(parents=True)
    seen = rekindle_command("audit", str(tmp_path / ".local"), "--gpu", "V100")
    assert "`rekindle install ENV --gpu" in seen.out and " -m venv ENV`" in " ".join(seen.out.split()), seen
