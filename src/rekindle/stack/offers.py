"""Offers: builds of PyTorch available without compiling. Official wheels, conda-forge, the shelf, other people's.

What is inside is `code`: read off the wheel itself where the observed table has it (evidence `binary`), else taken from
the architecture list of the script that built it, which is not yet confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rekindle.compat.gpu_code import Served, own, served
from rekindle.core import codec
from rekindle.core.errors import BadInput, ChecksFailed
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu.gpu_code import GpuCode, Group
from rekindle.knowledge.tables import Evidence, Row, cached
from rekindle.knowledge.torch import releases, wheel_platforms
from rekindle.knowledge.torch.projects import community_wheels, conda_builds
from rekindle.knowledge.torch.torch_wheels import TorchWheel, least_glibc, old_wheels, opened_wheels, printed_list
from rekindle.model.card import Capability, Target
from rekindle.model.cuda_line import CudaLine, index_of
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import TorchPin
from rekindle.model.wheel import WheelIdentity
from rekindle.stack.rules import RouteKind

# What an x86-64 level asks for, in the words of a situation's `cpu`.
_CPU_FLOORS = {"avx": "avx", "v2": "sse4.1", "v3": "avx2", "v4": "avx512"}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One build. `code` empty: what it was built for is not known. `cudnn` None: which cuDNN comes with it is not."""

    route: RouteKind
    torch: str
    cuda: Version
    system: str
    pythons: tuple[str, ...]
    code: tuple[GpuCode, ...]
    source: str
    evidence: Evidence
    machine: str = "x86_64"
    variant: str | None = None
    cudnn: Version | None = None
    cudnn_pin: str | None = None
    """What a conda recipe pins, when conda chooses the cuDNN."""
    glibc: Version | None = None
    index_url: str | None = None
    on_configured_index: bool = False
    """The Python package index itself has this one, without PyTorch's own index."""
    default_variant: bool = False
    experimental: bool = False
    builder: str | None = None
    location: str | None = None
    """Where the file is: a path on the shelf, a page."""
    hashes: dict[str, str] = {}
    """Its SHA-256 by its file name, where a shelf says it."""
    cpu_floor: str | None = None
    beside: tuple[str, ...] = ()
    """What pip must bring for it, since it carries no requirement of its own for them."""
    note: str | None = None
    wheel: WheelIdentity | None = None
    """The file itself, of an offer that was read off one."""
    torchvision: str | None = None
    """Where the offer itself says which belongs to it."""
    cudnn_inside: bool = False
    """cuDNN is linked into torch's own library, with kernels for a few cards each."""

    def served(self, code: GpuCode, card: Capability) -> Served:
        """How far one of its libraries serves a card."""
        return served(code, card, torch=Version.find(self.torch))

    @property
    def platform(self) -> Platform:
        return Platform(self.system, self.machine)

    @property
    def pin(self) -> TorchPin:
        return TorchPin(self.torch, self.variant)

    @property
    def version(self) -> str:
        return str(self.pin)

    @property
    def label(self) -> str:
        plain = self.pin.spoken
        if self.route is RouteKind.CONDA_FORGE:
            return f"{plain} of conda-forge (CUDA {self.cuda})"
        if self.route is RouteKind.SHELF:
            return f"{plain} on the shelf"
        return f"{plain} by {self.builder}" if self.route is RouteKind.COMMUNITY else plain

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(sorted({target for code in self.code for group in code.groups for target in group.targets}))

    @property
    def row(self) -> Row:
        return Row(source=self.source, observed_at="", evidence=self.evidence)


def of_wheel(wheel: WheelIdentity, code: Sequence[GpuCode], *, location: str, source: str) -> Offer:
    """The one conversion from a wheel file: what it is for is its own word, never the machine's that asks.

    An error where it cannot be judged: it is not torch, it has no GPU code, its platform is not one of ours, or it is
    newer than the tables.
    """
    if not wheel.is_torch:
        message = f"`{wheel.project or 'the wheel'}` is not torch"
        raise BadInput(message, hint="name a wheel of torch; another goes beside it with `pip install --no-deps FILE`")
    if wheel.cuda is None or not code or not all(each.groups for each in code):
        message = f"torch {wheel.version} holds no GPU code: it is a CPU build"
        raise ChecksFailed(message, hint="`rekindle inspect` shows what is in a wheel")
    system, machine = wheel.system, wheel.machine
    if system is None or machine is None:
        message = f"torch {wheel.version} is for another platform: {', '.join(wheel.tags[:2]) or 'it has no tags'}"
        raise BadInput(message, hint="Rekindle knows Windows and Linux wheels")
    own, named = TorchPin.parse(wheel.torch or wheel.version or ""), TorchPin.parse(wheel.version or "")
    releases.torch_release(own.release)
    toolkits.toolkit(wheel.cuda)
    return Offer(
        route=RouteKind.SHELF,
        torch=own.release,
        variant=own.variant or named.variant,
        cuda=wheel.cuda.major_minor,
        cudnn=Version.find(wheel.cudnn or ""),
        system=system,
        machine=machine,
        pythons=wheel.pythons,
        code=tuple(code),
        glibc=wheel.oldest_glibc if system == "linux" else None,
        location=location,
        cpu_floor=_CPU_FLOORS.get(wheel.cpu or ""),
        source=source,
        evidence=Evidence.BINARY,
        wheel=wheel,
    )


@cached
def official(place: Platform) -> tuple[Offer, ...]:
    """Every official CUDA wheel line, for the newest patch of each minor release, newest first."""
    found: list[Offer] = []
    for release in reversed(releases.torch_releases()):
        found += _of_release(release, release.newest, place)
    return tuple(found)


@cached
def official_of(version: str, place: Platform) -> tuple[Offer, ...]:
    """The official wheels of one exact version, `2.7.0` as well as `2.7.1`."""
    if version in releases.early():
        return tuple(each for each in old(place) if each.torch == version)
    return tuple(_of_release(releases.torch_release(version), version, place))


@cached
def conda(place: Platform) -> tuple[Offer, ...]:
    return tuple(
        codec.like(
            Offer,
            row,
            route=RouteKind.CONDA_FORGE,
            cudnn=None,
            cudnn_pin=row.cudnn or "9",
            code=(listed(row.targets),),
        )
        for row in reversed(conda_builds())
        if Platform(row.system, row.machine) == place
    )


@cached
def old(place: Platform) -> tuple[Offer, ...]:
    """Official wheels of releases before those of the tables: of the package index, then of PyTorch's own."""
    return (*_opened(place), *_listed(place))


def _opened(place: Platform) -> Iterable[Offer]:
    known = {row.version for row in toolkits.toolkits()}
    for row in old_wheels():
        if Platform(row.system, row.machine) == place and row.cuda and row.cuda in known:
            yield codec.like(
                Offer,
                row,
                route=RouteKind.OFFICIAL_WHEEL,
                torch=row.version,
                variant=CudaLine(row.cuda).name,
                code=tuple(own(row.gpu_code)),
                wheel=None,
                on_configured_index=True,
                default_variant=True,
                cudnn_inside=True,
            )


def _listed(place: Platform) -> Iterable[Offer]:
    return (
        codec.like(
            Offer,
            row,
            route=RouteKind.OFFICIAL_WHEEL,
            code=(listed(releases.parse_arch_list(row.arch_list)),),
            index_url=index_of(row.variant),
        )
        for row in wheel_platforms.old_lines()
        if Platform(row.system, "x86_64") == place
    )


@cached
def community(place: Platform) -> tuple[Offer, ...]:
    return tuple(
        codec.like(
            Offer,
            row,
            route=RouteKind.COMMUNITY,
            pythons=(row.python,),
            code=(listed(row.targets),),
            location=row.link or row.page,
            beside=tuple(word for word in (row.numpy, *row.mkl) if word),
        )
        for row in community_wheels()
        if Platform(row.system, "x86_64") == place
    )


def _observed(version: str, variant: releases.Variant, place: Platform) -> TorchWheel | None:
    """The row of exactly this wheel: the same version, CUDA, system and machine."""
    return _opened_by_line().get((version, variant.cuda, place))


@cached
def _opened_by_line() -> dict[tuple[str, Version, Platform], TorchWheel]:
    """The first row of each release, line and platform."""
    found: dict[tuple[str, Version, Platform], TorchWheel] = {}
    for row in opened_wheels():
        if row.cuda is not None:
            line = TorchPin.parse(row.version).release, row.cuda.major_minor, Platform(row.system, row.machine)
            found.setdefault(line, row)
    return found


def _sibling(
    release: releases.TorchRelease, version: str, variant: releases.Variant, place: Platform
) -> TorchWheel | None:
    """A wheel that was read, of the same release or a patch release of it, CUDA major and architecture list.

    Where a library of it lacks what the list promises, the unread one is not expected to do better.
    """
    alike = [
        other
        for other in release.variants
        if other.cuda.major == variant.cuda.major and _cubins(other, place.system) == _cubins(variant, place.system)
    ]
    patches = (version, *(each for each in reversed(release.patches) if each != version))
    seen = (_observed(patch, other, place) for patch in patches for other in alike)
    return next((each for each in seen if each is not None), None)


def _evidence(version: str, variant: releases.Variant, system: str) -> Evidence:
    """What people printed on real machines outranks the build script, where the two agree."""
    printed = printed_list(version, variant.name, system)
    agrees = printed is not None and set(printed.targets) == set(variant.targets(system) or ())
    return Evidence.FIELD if agrees else variant.evidence


def _cubins(variant: releases.Variant, system: str) -> set[Target]:
    return {target for target in variant.targets(system) or () if not target.ptx}


def _confirmed(release: releases.TorchRelease, variant: releases.Variant, seen: TorchWheel) -> Offer:
    """What was read off the wheel itself wins over what the script that built it says."""
    torch = TorchPin.parse(seen.version).release
    return codec.like(
        Offer,
        seen,
        route=RouteKind.OFFICIAL_WHEEL,
        torch=torch,
        variant=variant.name,
        cuda=variant.cuda,
        cudnn=Version(seen.cudnn) if seen.cudnn else variant.cudnn,
        pythons=release.wheels_for(torch, seen.system),
        code=tuple(own(seen.gpu_code)),
        wheel=None,
        index_url=index_of(variant.name),
        on_configured_index=variant.index_default_linux,
        default_variant=variant.index_default_linux,
        experimental=variant.experimental,
    )


def listed(targets: tuple[Target, ...], file: str = "its GPU libraries") -> GpuCode:
    """Code as a list of architectures promises it: every library holds every target."""
    group = Group(targets=tuple(sorted(targets)), count=1)
    return GpuCode(file=file, containers=1, targets={str(target): 1 for target in group.targets}, groups=(group,))


def _of_release(release: releases.TorchRelease, version: str, place: Platform) -> list[Offer]:
    """On x86_64 every variant; on another Linux machine the one CUDA build that the package index has, if any."""
    variants = release.variants
    if place.arch != "x86_64":
        built = wheel_platforms.of(release.minor, place.arch) if place.system == "linux" else None
        variants = tuple(each for each in variants if each.index_default_linux and built and built.cuda)
    found = [_official(release, variant, version, place) for variant in variants]
    if place == Platform("linux", "aarch64"):
        known = {offer.variant for offer in found}
        lines = wheel_platforms.aarch64_lines(release.minor)
        found += [_on_arm(release, line, version) for line in lines if line.variant not in known]
    return found


def _on_arm(release: releases.TorchRelease, line: wheel_platforms.Aarch64Line, version: str) -> Offer:
    """A CUDA build for aarch64 that only PyTorch's own index has."""
    variant, built = release.variant(line.variant), wheel_platforms.of(release.minor, "aarch64")
    return codec.like(
        Offer,
        line,
        route=RouteKind.OFFICIAL_WHEEL,
        torch=version,
        cudnn=variant.cudnn if variant else None,
        system="linux",
        machine="aarch64",
        pythons=release.wheels_for(version, "linux"),
        code=(listed(releases.parse_arch_list(line.arch_list)),),
        glibc=built.glibc if built else None,
        index_url=index_of(line.variant),
        experimental=variant.experimental if variant else False,
    )


def _official(release: releases.TorchRelease, variant: releases.Variant, version: str, place: Platform) -> Offer:
    linux = place.system == "linux"
    built = wheel_platforms.of(release.minor, place.arch, variant.name) if linux else None
    targets = variant.targets(place.system) if place.arch == "x86_64" else None
    seen = _observed(version, variant, place)
    if seen is not None:
        return _confirmed(release, variant, seen)
    sibling = _sibling(release, version, variant, place)
    return codec.like(
        Offer,
        variant,
        route=RouteKind.OFFICIAL_WHEEL,
        torch=version,
        variant=variant.name,
        system=place.system,
        machine=place.arch,
        pythons=release.wheels_for(version, place.system),
        code=tuple(own(sibling.gpu_code)) if sibling else (listed(targets),) if targets else (),
        glibc=max(built.glibc, least_glibc()) if built else None,
        index_url=index_of(variant.name),
        on_configured_index=linux and variant.index_default_linux,
        default_variant=variant.index_default_linux,
        source=f"{variant.source}; the same list as in {sibling.wheel}" if sibling else variant.source,
        evidence=_evidence(version, variant, place.system),
    )
