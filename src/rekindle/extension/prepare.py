"""What an extension needs to be built for an installed torch: toolkit, compiler, architectures, environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rekindle.audit.cards import install_command
from rekindle.build.configure.environment import BuildEnvironment as BuildEnvironment
from rekindle.build.configure.environment import BuildPlaces, VariableChange, compute, set_to
from rekindle.build.configure.request import BuildFile, BuildRequest, resolve
from rekindle.compat.host_compiler import compiles_with
from rekindle.compat.judgement import Clash
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import MissingTool, StepFailed
from rekindle.core.findings import Finding, Fix, State, failed, passed, warned
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolkits import last_toolkit_for
from rekindle.knowledge.cuda.toolkits import toolkits as known_toolkits
from rekindle.machine.model import InstalledTorch, Machine
from rekindle.machine.python.environment import python_has_headers
from rekindle.machine.toolchain.msvc import VcVars
from rekindle.model.card import Capability, NamedCard, Target
from rekindle.model.environment import Environment
from rekindle.model.toolkit import FoundToolkit

Capture = Callable[[BuildRequest], VcVars | None]


class Workbench(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is built and with how many compilers at once; with `ptx` newer GPUs can run the result, too."""

    temp: str
    jobs: int
    ptx: bool = False


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """`request` and `environment` are None when something that cannot be done without is missing.

    `builder` is the Python that runs the build; `paths` is where it finds the torch when that is in another one.
    """

    findings: tuple[Finding, ...]
    arch_list: str
    toolkit: str | None = None
    request: BuildRequest | None = None
    environment: BuildEnvironment | None = None
    builder: str | None = None
    paths: tuple[str, ...] = ()

    def with_changes(self, changes: Sequence[VariableChange]) -> Preparation:
        """The same with more variables set, when there is an environment at all."""
        if self.environment is None:
            return self
        environment = msgspec.structs.replace(self.environment, changes=(*self.environment.changes, *changes))
        return msgspec.structs.replace(self, environment=environment)


def prepare(
    place: Environment,
    torch: InstalledTorch,
    cards: Sequence[NamedCard],
    machine: Machine,
    *,
    bench: Workbench,
    capture: Capture = lambda _: None,
) -> Preparation:
    """Everything decided before the first compiler starts; each decision is a finding.

    `capture` gives what the compiler's own set-up (`vcvarsall.bat`) changes in the environment.
    """
    cuda = torch.cuda
    builder = _builder(place, machine)
    findings = [_python(place, builder)]
    kit = _toolkit(machine.toolkits, cuda, cards) if cuda else None
    lost = _dropped(cuda, cards)
    if lost is not None:
        findings.append(_other_torch(torch, lost, place, cards))
        return Preparation(findings=tuple(findings), arch_list="", toolkit=kit.root if kit else None)
    findings.append(_toolkit_finding(kit, torch.version, cuda, machine.toolkits, install_command(place, cards)))
    if kit is not None and kit.own_ptxas is False:
        findings.append(_ptxas(kit))
    findings += _c_library(kit, machine.surroundings.glibc)
    capabilities, targets = [card.capability for card in cards], kit.targets if kit else ()
    architectures = arch_list(capabilities, targets, ptx=bench.ptx)
    forward = arch_list(capabilities, targets).endswith("+PTX")
    findings.append(_cards(cards, architectures, kit, forward=forward))
    if any(finding.state is State.FAIL for finding in findings):
        return Preparation(findings=tuple(findings), arch_list=architectures, toolkit=kit.root if kit else None)
    wanted = BuildFile(
        source=".",
        name="extension",
        cuda_root=kit.root if kit else None,
        python=builder,
        arch_list=architectures,
    )
    try:
        request = resolve(wanted, machine)
        compiler = capture(request)
    except (MissingTool, StepFailed) as missing:
        fix = Fix(text=missing.hint or "install it")
        findings.append(failed("extension.compiler", missing.message, fix=fix))
        return Preparation(findings=tuple(findings), arch_list=architectures, toolkit=kit.root if kit else None)
    named = f"{request.compiler.cxx} {request.compiler.version or request.compiler.toolset or ''}".strip()
    findings.append(passed("extension.compiler", f"compiler {named}"))
    environment = _environment(request, architectures, compiler, temp=bench.temp, jobs=bench.jobs)
    return Preparation(
        findings=tuple(findings),
        arch_list=architectures,
        toolkit=kit.root if kit else None,
        request=request,
        environment=environment,
        builder=builder,
        paths=() if builder == place.interpreter else place.site_packages,
    )


def arch_list(cards: Sequence[Capability], targets: Sequence[Target], *, ptx: bool = False) -> str:
    """`TORCH_CUDA_ARCH_LIST` for these cards: in numeric order, each a target that this nvcc has.

    A card newer than the toolkit gets the nearest older target of its own major, or, where there is none, PTX of the
    newest target: the driver then compiles it. `ptx` adds PTX to the last entry.
    """
    known = sorted({target.capability for target in targets if not target.suffix})
    chosen: set[Capability] = set()
    forward = False
    for card in cards:
        same = [target for target in known if target.major == card.major and target <= card]
        if card in known or not known:
            chosen.add(card)
        elif same:
            chosen.add(same[-1])
        elif known[-1] < card:
            chosen.add(known[-1])
            forward = True
    entries = [str(capability) for capability in sorted(chosen)]
    if entries and (ptx or forward):
        entries[-1] += "+PTX"
    return ";".join(entries)


def _environment(
    request: BuildRequest, architectures: str, compiler: VcVars | None, *, temp: str, jobs: int
) -> BuildEnvironment:
    base = compute(request, places=BuildPlaces(temp=temp), vcvars=compiler)
    compilers = request.compiler
    more = [
        set_to("TORCH_CUDA_ARCH_LIST", architectures, "code for these GPUs and no others"),
        set_to("FORCE_CUDA", "1", "without it torchvision and others leave CUDA out on a machine without a GPU"),
        set_to("MAX_JOBS", str(jobs), "as many compilers at once as there is memory for"),
        set_to("CC", compilers.c, "the compiler that this CUDA accepts"),
        set_to("CXX", compilers.cxx, "the compiler that this CUDA accepts"),
        set_to("NVCC_PREPEND_FLAGS", f"-ccbin {compilers.cuda_host}", "the same compiler for nvcc"),
    ]
    if request.system == "windows":
        sdk = "the compiler environment is loaded already: setuptools must not look for another"
        more = [*more[:3], set_to("DISTUTILS_USE_SDK", "1", sdk)]
    if not architectures:
        more = [change for change in more if change.name in ("MAX_JOBS", "CC", "CXX", "DISTUTILS_USE_SDK")]
    return msgspec.structs.replace(base, changes=(*base.changes, *more))


def _builder(place: Environment, machine: Machine) -> str | None:
    """The Python that runs the build: the environment's own or, where that has no headers, a full one of its version.

    ComfyUI portable and others bring an embedded Python: it runs everything, and nothing can be compiled with it.
    """
    if place.has_headers or place.interpreter is None or place.python is None:
        return place.interpreter
    for python in machine.pythons:
        same = python.version is not None and python.version.major_minor == place.python.major_minor
        if same and python.kind != "embedded" and not python.trouble and python_has_headers(Path(python.path)):
            return python.path
    return None


def _python(place: Environment, builder: str | None) -> Finding:
    if place.interpreter is None:
        found = f"{place.root} has no interpreter that can run here"
        return failed("extension.python", found, fix="name an environment of this system")
    if builder is None:
        version = str(place.python.major_minor) if place.python else "3"
        brought = Command("winget", "install", f"Python.Python.{version}", system="windows")
        text = f"install a full Python {version} beside it; it will be found and used for the build"
        return failed(
            "extension.python",
            f"Python {place.python} in {place.root} has no headers",
            why="an embedded or minimal Python runs programs, but cannot compile extensions",
            fix=Fix(text=text, commands=(brought,) if place.os == "windows" else ()),
        )
    if builder != place.interpreter:
        return passed(
            "extension.python",
            f"Python {place.python} in {place.root} has no headers; {builder} of the same version is used",
        )
    return passed("extension.python", f"Python {place.python} with headers")


def _toolkit(toolkits: Sequence[FoundToolkit], cuda: Version | None, cards: Sequence[NamedCard]) -> FoundToolkit | None:
    """The toolkit nearest to torch's CUDA: the same minor, else another of the same major that reaches the cards."""
    fitting = [kit for kit in toolkits if kit.nvcc and kit.version and cuda and kit.version.major == cuda.major]

    def rank(kit: FoundToolkit) -> tuple[bool, bool, int, bool]:
        assert kit.version is not None
        assert cuda is not None
        reached = all(arch_list([card.capability], kit.targets).startswith(str(card.capability)) for card in cards)
        near = -abs(kit.version.minor - cuda.minor)
        # PyTorch's own headers include those of cuBLAS and cuSPARSE: of two alike the one that has them.
        return (reached, kit.version.major_minor == cuda.major_minor, near, not kit.missing)

    return max(fitting, key=rank, default=None)


def _dropped(cuda: Version | None, cards: Sequence[NamedCard]) -> NamedCard | None:
    """The first card that no toolkit of torch's CUDA major compiles for any more. A newer card than that has PTX."""
    rows = [row for row in known_toolkits() if cuda is not None and row.version.major == cuda.major]
    if not rows:
        return None
    return next((card for card in cards if not any(_reaches(card.capability, row.plain) for row in rows)), None)


def _other_torch(torch: InstalledTorch, card: NamedCard, place: Environment, cards: Sequence[NamedCard]) -> Finding:
    assert torch.cuda is not None
    last = last_toolkit_for(card.capability)
    named = f"{card.name} ({card.capability.sm})"
    return failed(
        "extension.toolkit",
        f"torch {torch.version} is built with CUDA {torch.cuda}, and no CUDA {torch.cuda.major} compiles for {named}",
        why=f"the last toolkit for it is CUDA {last.version}"
        if last
        else "no toolkit that Rekindle knows compiles for it",
        fix=Fix(text="install a torch of an older CUDA first", commands=(install_command(place, cards),)),
    )


def _toolkit_finding(
    kit: FoundToolkit | None, torch: str, cuda: Version | None, toolkits: Sequence[FoundToolkit], install: Command
) -> Finding:
    if cuda is None:
        found = f"torch {torch} is a CPU build: CUDA code cannot be built against it"
        return failed("extension.toolkit", found, fix=Fix(text="install a torch with CUDA first", commands=(install,)))
    if kit is None or kit.version is None:
        have = ", ".join(str(other.version) for other in toolkits if other.version) or "none"
        return failed(
            "extension.toolkit",
            f"torch {torch} is built with CUDA {cuda}, and no CUDA {cuda.major} toolkit is here (found: {have})",
            why="the runtimes of two CUDA majors in one process do not share streams or memory",
            fix=Fix(
                text=f"bring CUDA {cuda.major_minor}, or another {cuda.major}.x; no driver is needed for it",
                commands=(rekindle("toolchain", "install", f"cuda=={cuda.major_minor}"),),
            ),
        )
    if kit.version.major_minor != cuda.major_minor:
        return warned(
            "extension.toolkit",
            f"CUDA {kit.version} for a torch built with {cuda}: compatible",
            why="minor-version compatibility: within one CUDA major, code of either runs; torch prints a warning",
        )
    return passed("extension.toolkit", f"CUDA {kit.version}, like torch's {cuda}")


def _ptxas(kit: FoundToolkit) -> Finding:
    found = f"CUDA {kit.version} would call another toolkit's ptxas because of PATH; the build corrects that"
    return warned("extension.ptxas", found)


def _c_library(kit: FoundToolkit | None, glibc: Version | None) -> list[Finding]:
    """A warning and no refusal: headers can be mended, and nothing tells from outside whether they were."""
    answer = compiles_with(kit.version, glibc) if kit and kit.version else None
    if not isinstance(answer, Clash):
        return []
    fix = " or ".join(each.text for each in answer.changes) + " with a torch of its major"
    fix += ", or build in a container of an older system (Ubuntu 22.04 or 24.04)"
    return [warned("extension.libc", answer.sentence, fix=fix)]


def _cards(cards: Sequence[NamedCard], architectures: str, kit: FoundToolkit | None, *, forward: bool) -> Finding:
    if not cards:
        return failed(
            "extension.cards",
            "no GPU selected; name one with `--gpu`",
            why="without one, torch uses its own list, which may not include your GPU",
            fix='name it, for example `--gpu "GTX 1080 Ti"`',
        )
    missing = [card for card in cards if kit and not _reaches(card.capability, kit.targets)]
    if missing:
        names = ", ".join(f"{card.name} ({card.capability.sm})" for card in missing)
        return failed(
            "extension.cards",
            f"CUDA {kit.version if kit else '?'} cannot compile for {names}",
            why="its nvcc has no target that runs on it",
            fix="install a toolkit of torch's CUDA major that supports the GPU, or another torch",
        )
    if forward:
        return warned(
            "extension.cards",
            f"architectures {architectures}: newer than the toolkit, so the driver compiles PTX for it",
        )
    return passed("extension.cards", f"architectures {architectures}")


def _reaches(card: Capability, targets: Sequence[Target]) -> bool:
    known = {target.capability for target in targets if not target.suffix}
    return not known or max(known) < card or any(t.major == card.major and t <= card for t in known)
