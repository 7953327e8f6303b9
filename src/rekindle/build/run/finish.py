"""After the wheel: repaired so that it loads where only the driver is, verified, and put on the shelf."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.core import codec
from rekindle.core.findings import Finding
from rekindle.core.paths import shelf_folder
from rekindle.wheels.repair import repair
from rekindle.wheels.repair.repair import Repair
from rekindle.wheels.shelf import shelf
from rekindle.wheels.shelf.provenance import BuildFacts
from rekindle.wheels.verify import signed_report, verify
from rekindle.wheels.verify.verify import Verification


def folders_of(request: BuildRequest, tools: Path | None = None) -> tuple[Path, ...]:
    """Where the build's own libraries lie: the toolkit, cuDNN and MKL that it was linked with, and no other.

    `tools` is the build's own environment, into which pip brings MKL.
    """
    join = request.paths.join
    windows = request.system == "windows"
    found: list[str] = []
    parts = ("bin",) if windows else ("lib64", "lib")
    for root in (request.cuda.root if request.cuda else None, request.cudnn.root if request.cudnn else None):
        if root:
            found += [join(root, part) for part in parts]
    if request.cuda:
        found.append(join(request.cuda.root, "extras", "CUPTI", "lib64"))
        if windows:
            # NVTX has a folder of its own beside the toolkits.
            programs = request.paths.dirname(request.paths.dirname(request.paths.dirname(request.cuda.root)))
            found.append(join(programs, "NVIDIA Corporation", "NvToolsExt", "bin", "x64"))
    if windows and request.mkl:
        found.append(join(request.mkl, "bin"))
    if tools is not None and request.pip_mkl:
        found.append(join(str(tools), "Library", "bin") if windows else join(str(tools), "lib"))
    return tuple(folder for folder in dict.fromkeys(map(Path, found)) if folder.is_dir())


def cards_of(request: BuildRequest) -> tuple[str, ...]:
    return tuple(dict.fromkeys(target.capability.sm for target in request.gpu_targets))


def repaired(request: BuildRequest, wheel: Path, into: Path, tools: Path | None = None) -> Repair:
    wish = repair.RepairWish(folders=folders_of(request, tools), cards=cards_of(request))
    return repair.repair(wheel, into, wish=wish)


def verified(request: BuildRequest, wheel: Path) -> Verification:
    """Only a torch is imported and run; of another project the file, its links and its GPU code are looked at.

    The report is written beside the wheel and travels with it.
    """
    # A graft's Python half and its packages are those of the base's CUDA, whatever toolkit compiled the GPU half.
    built = request.base.cuda if request.base else request.cuda.version if request.cuda else None
    cuda = str(built.major_minor) if built else None
    expected = verify.Expected(torch=request.torch, cuda=cuda, cards=cards_of(request))
    done = verify.verify(wheel, expected=expected, python=request.python, run=request.torch is not None)
    signed_report.write(verify.report_beside(wheel), done)
    return done


def shelved(request: BuildRequest, wheel: Path, applied: Mapping[str, str] | None = None) -> Path:
    """The shelf that it now lies on, with a statement of how it was built. An older build of the name is kept aside."""
    folder = shelf_folder()
    shelf.add(folder, [wheel], shelf.Addition(replace=True, labels=False, build=facts_of(request, applied)))
    return folder


def facts_of(request: BuildRequest, applied: Mapping[str, str] | None = None) -> BuildFacts:
    """How it was built, without a name of a person, a host or a folder."""
    tools = {
        "compiler": f"{request.compiler.kind} {request.compiler.version or ''}".strip(),
        "toolset": str(request.compiler.toolset or ""),
        "cmake": str(request.cmake_version or ""),
        "python": str(request.python_version or ""),
        "cuda": str(request.cuda.version) if request.cuda else "",
        "cudnn": str(request.cudnn.version or "") if request.cudnn else "",
        "system": f"{request.system} {request.arch}",
    }
    return BuildFacts(
        parameters={
            "project": request.name,
            "torch": request.torch,
            "arch_list": request.arch_list,
            "profile": request.profile,
            "options": dict(request.options),
            **({"base": Path(request.base.wheel).name, "base_sha256": request.base.sha256} if request.base else {}),
        },
        tools={name: text for name, text in tools.items() if text},
        sources={"git+https://github.com/pytorch/pytorch": request.commit} if request.commit and request.torch else {},
        patches=dict(applied or {}),
    )


def report_of(wheel: Path) -> Path:
    return verify.report_beside(wheel)


def plain(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings of other rooms as the build reports them: what is numbered there is a plain finding here."""
    return tuple(codec.like(Finding, each) for each in findings)
