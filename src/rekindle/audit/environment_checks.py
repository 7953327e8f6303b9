"""What can be wrong with an environment as a whole: releases that do not fit, libraries twice or missing."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from rekindle.audit.contents import Module
from rekindle.audit.mending import Trouble, bringing, required
from rekindle.audit.module_checks import AuditContext
from rekindle.audit.symbols import uses_torch
from rekindle.compat import driver_cuda
from rekindle.compat.companion import belongs
from rekindle.compat.driver_card import drives, window
from rekindle.compat.judgement import Clash, Unknown
from rekindle.compat.torch_python import takes_numpy
from rekindle.core import files
from rekindle.core.findings import Finding, Fix, State, failed, unverified, warned
from rekindle.core.paths import architecture
from rekindle.core.pattern import late
from rekindle.knowledge.torch import companions
from rekindle.model.driver import Driver
from rekindle.model.requirement import holds, requirement
from rekindle.model.requirement import place as marked

# Provided by the driver, the interpreter or the C library's own packages: never part of an environment.
_ELSEWHERE = late(r"(?:libcuda|libnvidia-ml|libpython3[\d.]*|ld-linux[\w.-]*|linux-vdso)\.so")
_SYSTEM_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_LOADER = "/etc/ld.so.conf.d"
_NO_DEVICE = "`torch.cuda.is_available()` is False, or the first call says that the driver is too old"
_ONCE = {"libiomp5md.dll": "Intel's OpenMP", "libiomp5.so": "Intel's OpenMP"}
_CUDNN = late(r"(?:libcudnn\.so\.|cudnn64_)(\d{1,9})")


def findings(place: AuditContext) -> Iterator[Trouble]:
    yield from _gpu(place)
    yield from _companions(place)
    yield from _numpy(place)
    yield from _pinned(place)
    yield from _driver(place)
    yield from _twice(place)
    yield from _shared(place)
    yield from (Trouble(finding=each) for each in (*_mixed(place), *_headers(place)))


def _gpu(place: AuditContext) -> Iterator[Trouble]:
    """Is there a torch that uses a GPU, and a GPU to hold the code against?"""
    if place.cards and place.torch is not None and place.cuda is None:
        cpu = failed(
            "audit.cpu-torch",
            f"torch {place.torch} is built without CUDA: it does not use {place.cards[0].name}",
            why="`torch.cuda.is_available()` is False whatever the driver is",
            fix="install a torch for it",
        )
        yield Trouble(finding=cpu, package="torch")
    if not place.cards and any(module.code for module in place.contents.modules):
        unnamed = unverified(
            "audit.gpu-code",
            "no GPU was found or named: which of the GPU code here runs was not checked",
            fix="name the GPU: `--gpu NAME`",
        )
        yield Trouble(finding=unnamed)


def _refused(id: str, answer: Clash, why: str, *, package: str | None = None, source: str | None = None) -> Trouble:
    """Two things that do not go together, with what would change that."""
    fix = ", or ".join(each.text for each in answer.changes)
    finding = failed(id, answer.sentence, why=why, fix=fix, source=source)
    return Trouble(finding=finding, package=package)


def _companions(place: AuditContext) -> Iterator[Trouble]:
    """torchvision and torchaudio are built with one torch each, and few serve newer ones."""
    if place.torch is None:
        return
    for name in companions.PROJECTS:
        installed = place.contents.distribution(name)
        if installed is None:
            continue
        answer = belongs(name, installed.version, place.torch)
        if isinstance(answer, Unknown):
            found = f"{answer.missing}; {installed.version} is installed"
            yield Trouble(finding=unverified("audit.companions", found), package=name)
        elif isinstance(answer, Clash):
            why = "its operators are compiled against one torch: imports fail, or operators are missing"
            yield _refused("audit.companions", answer, why, package=name)


def _numpy(place: AuditContext) -> Iterator[Trouble]:
    """Where nobody could read it off torch's own modules."""
    installed = place.contents.distribution("numpy")
    read = any(module.numpy == "1" and module.path.startswith("torch/") for module in place.contents.modules)
    if place.torch is None or installed is None or read:
        return
    answer = takes_numpy(place.torch, installed.version, place.environment.os)
    if isinstance(answer, Clash):
        why = "what goes from torch to NumPy and back fails or crashes"
        yield _refused("audit.numpy", answer, why, package="numpy", source=answer.source)


def _pinned(place: AuditContext) -> Iterator[Trouble]:
    """torch names Triton and NVIDIA's libraries to the last number; another package may have brought others."""
    torch = place.contents.distribution("torch")
    around = marked(place.environment.os == "windows")
    for line in torch.requires if torch else ():
        asked = requirement(line)
        installed = place.contents.distribution(asked.name) if asked is not None else None
        if asked is None or installed is None or not holds(asked, around):
            continue
        if any(each.operator == "==" for each in asked.specifier) and installed.version not in asked.specifier:
            other = warned(
                "audit.pinned",
                f"torch {place.torch} asks for {asked.name}{asked.specifier}; {installed.version} is installed",
                why="torch was tried with that one alone; pip replaces it without a word when another package asks",
                fix=f"install {asked.name}{asked.specifier}",
            )
            yield Trouble(finding=other, package=installed.name)


def _drives(place: AuditContext, driver: Driver | None) -> Iterator[Trouble]:
    """Does the driver drive the cards at all? No package of the environment mends that."""
    for card in place.cards:
        answer = drives(driver, card.name, window(card.capability, driver.counting if driver else place.environment.os))
        if isinstance(answer, Clash):
            yield _refused("audit.driver", answer, _NO_DEVICE, source=answer.source)


def _driver(place: AuditContext) -> Iterator[Trouble]:
    undriven = list(_drives(place, place.driver)) if place.driver is not None or place.no_driver else []
    yield from undriven
    # The driver that a card needs decides first: what its CUDA would ask for is less, or of no use.
    if place.cuda is None or place.driver is None or undriven:
        return
    answer = driver_cuda.runs(place.driver, place.cuda)
    if isinstance(answer, Unknown):
        yield Trouble(finding=unverified("audit.driver", answer.missing), package="torch")
    elif isinstance(answer, Clash):
        said = msgspec.structs.replace(answer, sentence=f"torch {place.torch}: {answer.sentence}")
        yield _refused("audit.driver", said, _NO_DEVICE, package="torch", source=answer.source)


def _twice(place: AuditContext) -> Iterator[Trouble]:
    where: dict[str, list[str]] = defaultdict(list)
    cudnn: dict[str, str] = {}
    for module in place.contents.modules:
        if module.file.lower() in _ONCE:
            where[module.file.lower()].append(module.path)
        match = _CUDNN.match(module.file.lower())
        if match:
            cudnn.setdefault(match[1], module.path)
    for name, paths in where.items():
        if len(paths) > 1:
            copies = warned(
                "audit.duplicates",
                f"{name} is there {len(paths)} times: {', '.join(paths[:3])}",
                why=f"two copies of {_ONCE[name]} in one process end it (OMP: Error #15), or slow it down",
                fix="keep the one in torch/lib and remove the package that brings the other",
            )
            yield Trouble(finding=copies)
    if len(cudnn) > 1:
        majors = warned(
            "audit.duplicates",
            "cuDNN of two majors: " + ", ".join(cudnn.values()),
            why="whichever is loaded first wins, and the other's users fail",
            fix="remove the one that torch was not built for",
        )
        yield Trouble(
            finding=majors, about=_needless(place, [place.contents.owner.get(path) for path in cudnn.values()])
        )


def _shared(place: AuditContext) -> Iterator[Trouble]:
    """Two packages that bring the same file, as cuDNN for CUDA 11 and for CUDA 12 do."""
    brought: dict[str, list[str]] = defaultdict(list)
    for name, distribution in place.contents.distributions.items():
        for each in distribution.binaries:
            brought[each].append(name)
    there = {module.path for module in place.contents.modules}
    pairs: dict[tuple[str, ...], str] = {}
    for file, owners in brought.items():
        if len(owners) > 1 and file in there:
            pairs.setdefault(tuple(sorted(owners)), file)
    for names, path in pairs.items():
        twice = warned(
            "audit.duplicates",
            f"{' and '.join(names)} both bring {path}",
            why="the file is that of whichever was installed last, and goes with whichever is removed first",
            fix="keep one of them, and install that one again",
        )
        yield Trouble(finding=twice, about=_needless(place, names))


def _needless(place: AuditContext, owners: Iterable[str | None]) -> tuple[str, ...]:
    """The one of these packages that nobody here requires, where another is required."""
    needed = {name: required(place.contents, name, place.environment) for name in owners if name}
    free = [name for name, asked in needed.items() if not asked]
    return tuple(free) if len(free) == 1 and len(needed) > 1 else ()


def _mixed(place: AuditContext) -> Iterator[Finding]:
    """Two environments on one path."""
    own = [os.path.normcase(folder) for folder in place.environment.site_packages]
    foreign = [
        line.strip()
        for line in place.contents.path_lines
        if not line.startswith(("#", "import ", "import\t")) and re.search(r"(?i)(?:site|dist)-packages", line)
    ]
    for line in foreign:
        if not any(os.path.normcase(line).startswith(folder) for folder in own):
            yield warned(
                "audit.mixed",
                f"a .pth file adds the packages of another Python: {line}",
                why="modules of two environments meet in one process; which one is imported depends on the order",
                fix="remove that line, and install what is needed here",
            )


def _headers(place: AuditContext) -> Iterator[Finding]:
    if place.environment.kind == "embedded" and not place.environment.has_headers:
        yield warned(
            "audit.headers",
            "this is an embedded Python without headers and import libraries",
            why="it runs everything, but nothing can be compiled with it: a source install fails at `Python.h`",
            fix="build wheels with a full Python of the same version and install them here",
        )


class LibrariesNowhere(msgspec.Struct, frozen=True, kw_only=True):
    """`packages` are those of the index that bring them, where they are known."""

    finding: Finding
    packages: tuple[str, ...]


def missing(place: AuditContext) -> dict[str, list[LibrariesNowhere]]:
    """By the module's path: libraries that it needs, itself or through another, and that are nowhere.

    Each library is reported once: with a module of the package that asks for it, else with the first that needs it.
    """
    if place.environment.os != "linux" or not place.environment.here:
        return {}
    by_file: dict[str, Module] = {}
    for module in place.contents.modules:
        by_file.setdefault(module.file, module)
    system = _system_folders()
    found_there = cache(lambda name: any((folder / name).exists() for folder in system))  # one is asked for by many
    reported: dict[str, tuple[bool, Module, str]] = {}
    for module in place.contents.modules:
        if module.python is None or module.machine != architecture():
            continue
        for name, chain in _closure(module, by_file):
            if name in by_file or _ELSEWHERE.match(name) or (name not in reported and found_there(name)):
                continue
            own = not chain or _top(by_file[chain]) == _top(module)
            if name not in reported or (own and not reported[name][0]):
                reported[name] = own, module, chain
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (_, module, chain) in reported.items():
        grouped[module.path, chain].append(name)
    found: dict[str, list[LibrariesNowhere]] = defaultdict(list)
    for (path, chain), names in grouped.items():
        found[path].append(_nowhere(place, reported[names[0]][1], sorted(names), chain))
    return found


def _top(module: Module) -> str:
    return module.path.partition("/")[0]


def _nowhere(place: AuditContext, module: Module, names: list[str], chain: str) -> LibrariesNowhere:
    """Packages bring modules for back ends that are not installed (MPI, TBB, cuTENSOR): only with torch it is sure."""
    sure = uses_torch(module)
    major = place.cuda.major if place.cuda else None
    machine = module.machine or architecture()
    packages = tuple(dict.fromkeys(filter(None, (bringing(name, machine, major) for name in names))))
    brings = ", ".join(f"`{each}`" for each in packages)
    text = "install the package that brings it, or one built to carry it along"
    if packages:
        text = f"install what brings {'it' if len(names) == 1 else 'them'}: {brings}"
    finding = Finding(
        id="audit.missing",
        state=State.FAIL if sure else State.WARN,
        found=f"{module.path} needs {', '.join(names)}, which {'is' if len(names) == 1 else 'are'} nowhere"
        + (f" (through {chain})" if chain else ""),
        why="the import fails with `cannot open shared object file`"
        + ("" if sure else "; nothing is lost if it belongs to a back end that you do not use"),
        fix=Fix(text=text),
    )
    return LibrariesNowhere(finding=finding, packages=packages)


def _closure(module: Module, by_file: dict[str, Module]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    waiting = [(name, "") for name in module.needed]
    while waiting:
        name, chain = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name, chain
        if name in by_file:
            waiting += [(below, name) for below in by_file[name].needed]


def _system_folders() -> list[Path]:
    folders = [Path(folder) for folder in _SYSTEM_FOLDERS]
    folders += [path for base in ("/lib", "/usr/lib") for path in Path(base).glob("*-linux-gnu*")]
    for line in _loader_lines():
        folders.append(Path(line))
    folders += [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return [folder for folder in folders if folder.is_dir()]


def looked_in() -> list[str]:
    """The folders of the system on which the answer depends."""
    return [_LOADER, *(str(folder) for folder in _system_folders())]


def _loader_lines() -> Iterator[str]:
    for path in sorted(Path(_LOADER).glob("*.conf")):
        try:
            yield from (line.strip() for line in files.plain_text(path).splitlines() if line.startswith("/"))
        except OSError:
            continue
