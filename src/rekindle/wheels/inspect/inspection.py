"""`rekindle inspect`: which GPUs a wheel, library or installed package serves, and what it needs to load."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rekindle.compat.driver_cuda import DriverNeed, need
from rekindle.compat.gpu_code import Served, overall, own, served
from rekindle.core import codec, files
from rekindle.core.codec import JsonAnswer
from rekindle.core.errors import BadInput, RekindleError, UsageError
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.core.programs import reads_only
from rekindle.core.version import Version
from rekindle.formats import archive, binary, package
from rekindle.formats.access import File
from rekindle.formats.binary import Binary
from rekindle.formats.package import Package
from rekindle.formats.remote import Remote
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import Capability, Target
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.closure import linkage, search_path
from rekindle.wheels.closure.linkage import Closure
from rekindle.wheels.closure.search_path import Elsewhere
from rekindle.wheels.closure.search_path import closure as closure_of
from rekindle.wheels.closure.walk import TorchLibraries
from rekindle.wheels.inspect import identity, integrity
from rekindle.wheels.inspect.identity import Identity, cuda_linked, cuda_of, fit_findings, read_binaries, read_torch


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """One container: where it lies, the source file it comes from (null: not stated), and what it was compiled for."""

    offset: int
    section: str | None
    unit: str | None
    targets: tuple[Target, ...]


class FileCode(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU code of one file: how many containers, how many entries per target, and how far it serves each card.

    `aside` is code that the program does not launch itself, counted apart. Files that are not `counted` (NVIDIA's own
    libraries riding along) do not enter into the coverage of the whole.
    """

    file: str
    containers: int
    targets: dict[str, int]
    aside: dict[str, int] = {}
    sizes: dict[str, int] = {}
    """Bytes in the file for each target."""
    counted: bool = True
    coverage: dict[str, Served] = {}
    kernels: tuple[Kernels, ...] = ()


class CardCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one card that was asked for."""

    query: str
    name: str
    capability: Capability
    coverage: Coverage
    by_jit: bool
    files: dict[str, Served]


class Inspection(WheelIdentity, JsonAnswer, frozen=True, kw_only=True):
    """What `inspect` prints with `--json`. `coverage` is that of all files together; null means unknown.

    `serves` are the cards it serves by name, as NVIDIA lists them.
    """

    schema: str = "rekindle.inspect/1"
    kind: str
    name: str
    size: int
    min_driver: dict[str, Version | None] | None = None
    full_driver: dict[str, Version | None] | None = None
    python: str | None = None
    platform: str | None = None
    numpy_abi: tuple[int, ...] | None = None
    blas: str | None = None
    glibcxx: Version | None = None
    gpu_code: tuple[FileCode, ...] = ()
    coverage: dict[str, Coverage] = msgspec.field(default_factory=dict)
    by_jit: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    cards: tuple[CardCoverage, ...] = ()
    closure: Closure | None = None
    parts: dict[str, int] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


class Inspections(msgspec.Struct, frozen=True, kw_only=True):
    """What `inspect` prints with `--json` for more than one."""

    schema: str = "rekindle.inspections/1"
    inspections: tuple[Inspection, ...]


@reads_only()
def inspect(
    where: str | Path,
    *,
    cards: Sequence[str] = (),
    kernels: bool = False,
    against: TorchLibraries | None = None,
) -> Inspection:
    """Read a file, folder or address. Nothing is imported, run or unpacked to disk.

    With `kernels`, every container of GPU code is listed by itself. An extension is checked `against` that torch.
    """
    asked = gpus.certain(cards)
    text = str(where)
    if text.startswith(("http://", "https://")) and not _is_wheel_name(text):
        return _of_file(text, binary.read(Remote(text)), asked, kernels)
    path = Path(where)
    if not text.startswith(("http://", "https://")) and not path.is_dir() and not _is_zip(path):
        with File(path) as file:
            if _is_wheel_name(text):
                archive.Archive(file)
            found = binary.read(file, units=kernels)
            return _of_file(path, found, asked, kernels, search_path.beside(path, found))
    with package.open_package(where) as opened:
        return _of_package(opened, read_binaries(opened, units=kernels), asked, kernels, against)


class Reading(NamedTuple):
    """What a wheel's libraries hold, and the SHA-256 of every member that was read for it: one pass serves all that
    is asked of the file.
    """

    binaries: Sequence[Binary]
    digests: dict[str, bytes]


def read_whole(opened: Package, *, hashed: bool = True) -> Reading:
    digests: dict[str, bytes] = {}
    if hashed and isinstance(opened, package.Wheel):
        opened.archive.digests = digests
    return Reading(read_binaries(opened), digests)


def inspect_package(
    opened: Package, reading: Reading, *, cards: Sequence[str] = (), against: TorchLibraries | None = None
) -> Inspection:
    """As `inspect`, of a package that is open already and was read."""
    return _of_package(opened, reading.binaries, gpus.certain(cards), kernels=False, against=against)


class InspectedCode(NamedTuple):
    """An inspection, the GPU code of the wheel's own libraries container by container, and the CUDA they link."""

    inspection: Inspection
    code: tuple[GpuCode, ...]
    linked: Version | None
    reading: Reading


def inspect_with_code(where: Path, *, hashed: bool = False) -> InspectedCode:
    """`hashed`: the reading is to serve `verify`, too."""
    with package.open_package(where) as opened:
        reading = read_whole(opened, hashed=hashed)
        code = own(binary.codes(reading.binaries))
        found = _of_package(opened, reading.binaries, (), kernels=False)
        return InspectedCode(found, tuple(code), cuda_linked(reading.binaries), reading)


def _of_package(
    found: Package,
    binaries: Sequence[Binary],
    asked: Sequence[gpus.Match],
    kernels: bool,
    against: TorchLibraries | None = None,
) -> Inspection:
    known = identity.identify(found, binaries)
    if known.is_torch_package:
        against = None
    elif against is None and found.kind == "installed" and isinstance(found, package.Folder):
        against = _torch_beside(found.root)
    links = _closure(found, binaries, known, against)
    cuda = cuda_of(known) or cuda_linked(binaries)
    findings = [
        *integrity.info_findings(found),
        *integrity.record_findings(found),
        *integrity.name_findings(found),
        *integrity.startup_findings(found),
        *integrity.header_findings(binaries),
        *integrity.cpu_findings(binaries, known.cpu),
        *identity.variant_findings(found, known.variant, binary.codes(binaries), cuda),
        *(fit_findings(known, against, binaries) if against and links and links.brought else ()),
        *(linkage.findings(links) if links else ()),
    ]
    own = {"kind": found.kind, "name": found.name, "size": sum(found.files.values())}
    own["parts"] = integrity.parts(found.files)
    return _answer(known, binaries, links, findings, asked, kernels=kernels, **own)


def _torch_beside(root: Path) -> TorchLibraries | None:
    """The torch that an installed extension would be loaded with: the one in the same site-packages."""
    try:
        return read_torch(root / "torch") if (root / "torch").is_dir() else None
    except RekindleError:
        return None


def _closure(
    found: Package, binaries: Sequence[Binary], known: Identity, against: TorchLibraries | None
) -> Closure | None:
    """Of an installed package it is looked whether what others bring is really there; a wheel's requirements count."""
    torch = known.is_torch_package
    if found.kind != "installed" or not isinstance(found, package.Folder):
        return closure_of(binaries, requires=known.requires, torch=torch, against=against, python=known.python)
    if any(one.pe for one in binaries):
        return closure_of(
            binaries,
            torch=torch,
            elsewhere=search_path.windows_places(found.root, torch=known.torch, cuda=known.cuda),
            against=against,
            python=known.python,
        )
    return closure_of(binaries, torch=torch, elsewhere=search_path.linux_places(found.root, binaries), against=against)


def _of_file(
    where: str | Path,
    found: Binary,
    asked: Sequence[gpus.Match],
    kernels: bool,
    beside: Sequence[Elsewhere] = (),
) -> Inspection:
    if found.format == "other":
        message = files.not_a(where, "a wheel, a library or anything else with compiled code in it")
        raise BadInput(message, hint="name a `.whl`, a `.dll`, `.pyd` or `.so`, a folder such as site-packages/torch")
    if found.problem:
        raise BadInput(found.problem, hint="download or build the file again")
    links = closure_of([found], elsewhere=beside)
    findings = [*integrity.header_findings([found]), *(linkage.findings(links, alone=True) if links else ())]
    known, own = identity.of_binaries([found]), {"kind": found.format, "name": found.name, "size": found.size}
    return _answer(known, [found], links, findings, asked, kernels=kernels, **own)


def _answer(
    known: Identity,
    binaries: Sequence[Binary],
    closure: Closure | None,
    findings: Sequence[Finding],
    asked: Sequence[gpus.Match],
    *,
    kernels: bool,
    **more: Any,
) -> Inspection:
    """`more` is what it is called and how large it is."""
    codes = binary.codes(binaries)
    containers = {found.name: found.containers for found in binaries} if kernels else {}
    mine = own(codes)
    wanted = set(capabilities.known()) | {cap for match in asked for cap in match.capabilities}
    torch = Version.find(known.torch or "") if known.is_torch_package else None
    table = {card: {code.file: served(code, card, torch=torch) for code in codes} for card in sorted(wanted)}
    whole = {card: overall(files[c.file].coverage for c in mine) for card, files in table.items() if mine}
    native = {card for card, answer in whole.items() if answer is Coverage.SERVES}
    return codec.like(
        Inspection,
        known,
        min_driver=_drivers(known.cuda, full=False),
        full_driver=_drivers(known.cuda, full=True),
        gpu_code=tuple(
            codec.like(
                FileCode,
                code,
                counted=code in mine,
                coverage={str(card): files[code.file] for card, files in table.items()},
                kernels=tuple(codec.like(Kernels, one, targets=one.targets) for one in containers.get(code.file, ())),
            )
            for code in codes
        ),
        coverage={str(card): answer for card, answer in whole.items()},
        serves=tuple(sorted({gpu.name for gpu in gpus.gpus() if gpu.official and gpu.capability in native})),
        by_jit=tuple(str(card) for card, files in table.items() if any(files[c.file].by_jit for c in mine)),
        cards=tuple(
            _card(match, card, {c.file: table[card][c.file] for c in mine})
            for match in asked
            for card in match.capabilities
        ),
        closure=closure,
        findings=(*findings, *integrity.vendor_findings([code.file for code in codes])),
        **more,
    )


def _card(match: gpus.Match, card: Capability, files: dict[str, Served]) -> CardCoverage:
    return CardCoverage(
        query=match.query,
        name=match.name if match.by is not gpus.MatchedBy.CAPABILITY else card.sm,
        capability=card,
        coverage=overall(answer.coverage for answer in files.values()),
        by_jit=any(answer.by_jit for answer in files.values()),
        files=files,
    )


def _drivers(cuda: Version | None, *, full: bool) -> dict[str, Version | None] | None:
    """The oldest driver per system that runs this CUDA's native code, or with `full` everything, JIT included."""
    wanted = {system: need(cuda, system) for system in ("linux", "windows")} if cuda else {}
    known = {system: each for system, each in wanted.items() if isinstance(each, DriverNeed)}
    return {system: each.full if full else each.floor for system, each in known.items()} or None


def _is_wheel_name(text: str) -> bool:
    return text.lower().split("?")[0].split("#")[0].endswith((".whl", ".zip"))


def _is_zip(path: Path) -> bool:
    with File(path) as file:
        return file.read(0, 4) in (b"PK\3\4", b"PK\5\6")


def targets_of(words: Sequence[str]) -> tuple[Target, ...]:
    """`sm_61` and `6.1` are native code, `compute_90` is PTX, `9.0+PTX` both. A word may be a list: `sm_61,sm_75`."""
    found: list[Target] = []
    for word in (part for text in words for part in (re.split(r"[\s,;]+", text.strip(" ,;")))):
        try:
            found += parse_arch_list(word) if word[:1].isdigit() else (Target.parse(word),)
        except ValueError:
            message = f"`{word[:40]}` is not a target"
            hint = "write `--require sm_61` for native code, `compute_90` for PTX; a card by name goes with `--gpu`"
            raise UsageError(message, hint=hint) from None
    for target in found:
        gpus.of_capability(target.capability)  # none may have it: a misspelt target would be missing everywhere
    return tuple(found)


def required_findings(found: Inspection, wanted: Sequence[Target]) -> list[Finding]:
    """Every library of the package's own must hold every target; one that has it in fewer places is named.

    A GPU that was asked for must be served.
    """
    return [*(_target_held(found, target) for target in wanted), *(_card_served(found, card) for card in found.cards)]


def lost(found: Inspection, wanted: Sequence[Target]) -> list[Target]:
    """Those of the targets that not every library holds."""
    return [target for target in wanted if _target_held(found, target).state is State.FAIL]


def _target_held(found: Inspection, target: Target) -> Finding:
    own = [code for code in found.gpu_code if code.counted]
    if not own:
        return _lost(f"{target} is not there: `{found.name}` holds no GPU code")
    without = [code.file for code in own if not code.targets.get(str(target))]
    if without:
        have = ", ".join(dict.fromkeys(name for code in own for name in code.targets))
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        return _lost(f"{target} is not in `{without[0]}`{more}; inside are {have}")
    fewer = [
        code.file
        for code in own
        if code.targets[str(target)]
        < max(n for name, n in code.targets.items() if Target.parse(name).ptx == target.ptx)
    ]
    if fewer:
        return warned("require", f"{target} is in every library, in `{fewer[0]}` in fewer places than other targets")
    every = "the one library" if len(own) == 1 else f"all {len(own)} libraries"
    return passed("require", f"{target} is in {every} with GPU code")


def _card_served(found: Inspection, card: CardCoverage) -> Finding:
    if not card.files:
        where = f"no GPU code for {card.name} ({card.capability.sm}) to lack"
        if found.project == "torch":
            return failed("gpu", f"this torch has no GPU code: it does not use {card.name} ({card.capability.sm})")
        if found.kind == "wheel":
            return unverified("gpu", f"there is {where}: whether it needs any is not known")
        return passed("gpu", f"there is {where}")
    if card.coverage is Coverage.SERVES:
        how = "through its PTX, which the driver compiles" if card.by_jit else "with native code"
        return passed("gpu", f"{card.name} ({card.capability.sm}) is served {how}")
    text = "only some of its GPU code runs" if card.coverage is Coverage.PARTIAL else "none of its GPU code runs"
    return failed("gpu", f"{text} on {card.name} ({card.capability.sm})")


def _lost(text: str) -> Finding:
    return failed("require", text, fix=Fix(text="look at TORCH_CUDA_ARCH_LIST of the build"))
