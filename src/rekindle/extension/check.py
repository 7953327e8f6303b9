"""A wheel held against the torch of an environment before anybody installs it: its code, its linkage, its import."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rekindle.audit import module_checks
from rekindle.audit.contents import Contents, Module, is_module, read
from rekindle.audit.symbols import Offered, links_torch, missing_in, uses_torch
from rekindle.compat.extension_torch import has_symbols, runtimes, same_cuda
from rekindle.compat.judgement import Clash
from rekindle.core import paths
from rekindle.core.command import Command, rekindle
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.core.python import ask
from rekindle.core.version import Version
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.package import headers, open_package, unpack
from rekindle.knowledge.builds.extension_files import files
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.logs.extension_homes import wheels
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.machine.model import InstalledTorch
from rekindle.model.card import NamedCard
from rekindle.model.cuda_line import CudaLine
from rekindle.model.environment import Environment
from rekindle.model.requirement import holds, place, requirement
from rekindle.model.wheel import read_name
from rekindle.wheels.inspect.identity import admits, torch_line
from rekindle.wheels.inspect.inspection import CardCoverage as Judged
from rekindle.wheels.inspect.inspection import Inspection, inspect

_LINE = re.compile(r"cuda\d{2,3}\.")
_MOST = 12
"""Modules named in one sentence, and imported one by one, at most."""


def judged(
    wheel: Path, arch_list: str, cards: Sequence[NamedCard], environment: Environment, torch: InstalledTorch, work: Path
) -> list[Finding]:
    """Right code and nothing else, linked to this torch, importable where it was made."""
    seen = inspect(wheel, cards=[card.capability.sm for card in cards])
    folder = work / "imported"
    with File(wheel) as file:
        unpack(Archive(file), folder)
    installed = msgspec.structs.replace(environment, site_packages=(str(folder),))
    found = read(installed)
    return [
        _right_code(seen, arch_list),
        *_served(seen),
        _linked(found, installed, torch),
        _importable(folder, found.modules, environment),
        *([finding] if (finding := misnamed(wheel.name, paths.architecture())) else []),
    ]


def misnamed(name: str, architecture: str) -> Finding | None:
    """A wheel that pip refuses by its name: rotary-emb calls itself `manylinux2014_x86_64` wherever it is built."""
    platforms = {tag.platform for tag in read_name(name).tags}
    endings = {architecture, "amd64"} if architecture == "x86_64" else {architecture, "arm64"}
    if any(platform == "any" or platform.endswith(tuple(endings)) for platform in platforms):
        return None
    rename = Command("python", "-m", "wheel", "tags", "--remove", "--platform-tag", f"linux_{architecture}", name)
    return failed(
        "extension.name",
        f"pip refuses {name} here: it is named for {', '.join(sorted(platforms))}, and this is {architecture}",
        why="the project writes the name itself; the code in it was compiled here",
        fix=Fix(text="rename it", commands=(rename,)),
    )


class ForTorch(NamedTuple):
    """The torch that a ready-made wheel is held against. `cuda` None: it is for the processor."""

    version: str
    cuda: Version | None
    cxx_abi: str | None = None
    installed: InstalledTorch | None = None


class TorchLink(NamedTuple):
    """How a wheel hangs together with torch. `wrong`: why it cannot be used with this one."""

    wrong: str | None
    compiled: bool = False
    torch: bool = False
    """Something in it is linked to torch."""
    cuda: bool = False
    """Something in it is linked to CUDA's runtime."""
    pinned: bool = False
    """It asks for this torch and no other."""
    asks: tuple[str, ...] = ()
    """What else it requires, by the lines of its metadata."""

    def brings(self, system: str) -> str:
        """What a file without compiled code asks for there and has some for one torch, in a sentence."""
        if self.compiled:
            return ""
        around = place(system == "windows")
        asked = [each for line in self.asks if (each := requirement(line)) is not None and holds(each, around)]
        name = next((each.name for each in asked if files(each.name) or wheels(each.name)), None)
        if name is None:
            return ""
        find = rekindle("extension", "find", name, system=system)
        return f"it asks for {name}, which has to fit as well: `{find}` first"


def link_to(where: str | Path, torch: ForTorch, *, most: int | None = None) -> TorchLink:
    """Of a ready-made wheel with a torch: what it requires, its CUDA, and if that torch is installed its symbols.

    `most`: libraries of more bytes are left out; with 0 only what it requires is read.
    """
    with open_package(where) as package:
        requires = headers(package, "METADATA").get("Requires-Dist", [])
        line = torch_line(requires) or ""
        if not admits(requires, torch.version):
            return TorchLink(f"it requires `{line}`, and this is {torch.version}")
        offered = Offered(Path(torch.installed.root)) if torch.installed else None
        links = TorchLink(None, pinned="==" in line, asks=tuple(requires))
        modules = [name for name, size in package.files.items() if is_module(name) and (most is None or size <= most)]
        for name in _for_line(modules, torch.cuda):
            binary = package.binary(name, symbols=offered is not None)
            needed = binary.elf.needed if binary.elf else tuple(binary.pe.imports) if binary.pe else ()
            majors = runtimes(needed)
            links = links._replace(compiled=True, torch=links.torch or links_torch(needed))
            links = links._replace(cuda=links.cuda or bool(majors))
            answers = [same_cuda(binary.file, Version(str(each)), torch.cuda) for each in majors]
            if offered is not None:
                answers.append(has_symbols(binary.file, len(missing_in(binary, offered)), torch.version))
            for answer in answers:
                if isinstance(answer, Clash):
                    return TorchLink(answer.sentence)
    return links


def _for_line(names: list[str], cuda: Version | None) -> list[str]:
    """The modules that are loaded: of a library for each CUDA (`libbitsandbytes_cuda126.so`) that of torch's own."""
    own = f"cuda{CudaLine(cuda).name[2:]}." if cuda else None
    if own is None or not any(own in name for name in names):
        return names
    return [name for name in names if own in name or not _LINE.search(name)]


def _right_code(seen: Inspection, arch_list: str) -> Finding:
    wanted = {str(target) for target in parse_arch_list(arch_list)}
    got = set(seen.targets)
    if not got and not wanted:
        return passed("extension.code", "the wheel has no GPU code, as requested")
    if not got:
        return warned("extension.code", "the wheel has no GPU code: the project has none, or its build skipped it")
    if got != wanted:
        return warned(
            "extension.code",
            f"the wheel has {', '.join(sorted(got))}; requested was {', '.join(sorted(wanted)) or 'none'}",
            why="the project sets architectures of its own",
        )
    found_targets = ", ".join(seen.targets)
    return passed("extension.code", f"the wheel has code for {found_targets} and nothing else")


def _served(seen: Inspection) -> list[Finding]:
    return [
        Finding(
            id="extension.serves",
            state=State.PASS if card.coverage is Coverage.SERVES else State.FAIL,
            found=f"{card.name}: {card.coverage.value}" + (" by JIT" if card.by_jit else ""),
        )
        for card in seen.cards
        if seen.targets
    ]


def _linked(found: Contents, installed: Environment, torch: InstalledTorch) -> Finding:
    """The symbols, the CUDA runtime, the Python: what an audit would say of it once it is installed."""
    place = module_checks.AuditContext(
        environment=installed,
        contents=found,
        torch=torch.version,
        cuda=torch.cuda,
        cards=(),
        driver=None,
        offered=Offered(Path(torch.root)),
    )
    wrong = [finding for module in found.modules for finding in module_checks.findings(place, module, None)]
    users = [module for module in found.modules if uses_torch(module)]
    if wrong:
        worst = max(wrong, key=lambda finding: finding.state.rank)
        return Finding(id="extension.linkage", state=worst.state, found=worst.found, why=worst.why, fix=worst.fix)
    if not users:
        return warned("extension.linkage", "nothing in the wheel is linked to torch")
    names = ", ".join(module.file for module in users[:_MOST])
    return passed("extension.linkage", f"{names}: every symbol it needs of torch is in {torch.version}")


def _importable(folder: Path, modules: Sequence[Module], environment: Environment) -> Finding:
    names = import_names(folder, modules)
    if not names or environment.interpreter is None or not environment.here:
        why = "there is nothing to import in it" if not names else "this Python cannot be started here"
        return unverified("extension.import", f"the import was not tried: {why}")
    # torch first: it brings the libraries that the modules are linked to.
    script = f"import sys; sys.path.insert(0, {str(folder)!r}); import torch; import {', '.join(names)}"
    result = ask(environment.interpreter, "-c", script, env=os.environ, timeout=600)
    shown = ", ".join(names)
    if result.ok:
        return passed("extension.import", f"`import {shown}` works with the torch here")
    said = (result.err.strip().splitlines() or ["no answer"])[-1]
    return failed(
        "extension.import", f"`import {shown}` fails: {said[:200]}", fix="`rekindle diagnose` reads the whole message"
    )


def import_names(folder: Path, modules: Sequence[Module]) -> list[str]:
    """What to import of an unpacked wheel: the packages with compiled modules in them, or those modules themselves.

    A module in a folder without `__init__.py` is imported by its full name: nothing else would load it.
    """
    names: dict[str, None] = {}
    for module in modules:
        parts = module.path.split("/")
        top = parts[0]
        if len(parts) > 1 and (folder / top / "__init__.py").is_file():
            names[top] = None
        elif module.python is not None or module.file.endswith(".pyd"):
            names[".".join([*parts[:-1], parts[-1].partition(".")[0]])] = None
    if not names:
        names = {path.name: None for path in sorted(folder.iterdir()) if (path / "__init__.py").is_file()}
    return [name for name in names if all(part.isidentifier() for part in name.split("."))][:_MOST]


class ServedCards(NamedTuple):
    """The GPU code of a wheel, and what it lacks for which card. `partly`: other modules of it do serve that card."""

    targets: dict[str, int]
    lacks: list[str]
    partly: bool
    cxx_abi: str | None = None


def served_by(where: str | Path, cards: Sequence[NamedCard], line: str | None = None) -> ServedCards:
    """Of a wheel by path or address.

    Where it has a library for each CUDA (`libbitsandbytes_cuda126.so`), that of `line` counts.
    """
    seen = inspect(where, cards=[card.capability.sm for card in cards])
    named = [code for code in seen.gpu_code if line and f"cuda{line[2:]}." in code.file]
    if not named:
        lacking = [card for card in seen.cards if card.coverage is not Coverage.SERVES]
        partly = all(any(each.coverage is Coverage.SERVES for each in card.files.values()) for card in lacking)
        lacks = [_lack(card, seen) for card in lacking]
        return ServedCards(seen.targets, lacks, bool(lacking) and partly, seen.cxx_abi)
    own = msgspec.structs.replace(seen, gpu_code=tuple(named))
    lacking = [
        card for card in seen.cards if any(card.files[code.file].coverage is not Coverage.SERVES for code in named)
    ]
    targets = {target: count for code in named for target, count in code.targets.items()}
    return ServedCards(targets, [_lack(card, own) for card in lacking], False, seen.cxx_abi)


def _lack(card: Judged, seen: Inspection) -> str:
    """The file is named with its own code: NVIDIA's libraries in the same wheel may have code for more cards."""
    wrong = [code for code in seen.gpu_code if code.file in card.files]
    wrong = [code for code in wrong if card.files[code.file].coverage is not Coverage.SERVES]
    parts = [
        f"{code.file.rpartition('/')[2]} has "
        + ("it in a part of its kernels only" if card.name in code.targets else ", ".join(code.targets))
        for code in wrong[:_MOST]
    ]
    return f"does not serve {card.name}: {'; '.join(parts) or 'it has no code for it'}"
