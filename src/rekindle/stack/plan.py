"""The lock: everything needed to go a route again on another machine, as TOML, with hashes.

A plan is written by `rekindle plan -o plan.toml`, carried out by `install` and `build`, and held against another
machine by `rekindle plan --from plan.toml`, which gives the same plan or says what differs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, NoRoute
from rekindle.core.version import Version
from rekindle.knowledge import tables
from rekindle.knowledge.torch import patches, releases
from rekindle.stack.resolver import Verdict, resolve
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish

SCHEMA = "rekindle.lock/1"
_STANDS_ON = (
    "builds/building.toml",
    "gpu/capabilities.toml",
    "torch/community_wheels.toml",
    "gpu/driver_branches.toml",
    "builds/rules.toml",
    "torch/companions.json",
    "torch/conda_forge.json",
    "cuda/cudnn.json",
    "cuda/host_compilers.json",
    "cuda/mathlibs.json",
    "cuda/toolkits.json",
    "torch/torch_releases.json",
    "torch/torch_wheels.json",
    "torch/torch_wheels_aarch64.json",
    "torch/wheel_platforms.json",
)


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A patch by name and by what it does."""

    id: str
    sha256: str


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the toolchain: what it must be and where it can be had."""

    what: str
    need: str
    where: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The stack, what builds or installs it, and what it was made from."""

    schema: str = SCHEMA
    made_by: str = f"rekindle {__version__}"
    knowledge: str
    """SHA-256 over the tables the verdict stands on: two plans with the same one were made from the same facts."""
    system: str
    machine: str
    cards: tuple[Card, ...]
    wish: Wish
    route: RouteKind
    torch: str
    variant: str | None = None
    cuda: Version | None = None
    cudnn: Version | None = None
    python: str | None = None
    driver: str | None = None
    toolset: str | None = None
    arch_list: str | None = None
    profile: str = "fast"
    backend: str | None = None
    commit: str | None = None
    """The commit of PyTorch's tag."""
    wheel: str
    """The name of the wheel that comes out, or that is installed."""
    index_url: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    numpy: str | None = None
    requires: tuple[str, ...] = ()
    """What the build environment must have, as pip requirements."""
    options: dict[str, str] = {}
    patches: tuple[Pinned, ...] = ()
    toolchain: tuple[Piece, ...] = ()
    commands: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field that comes out otherwise here."""

    field: str
    planned: str
    here: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan --from`."""

    schema: str = "rekindle.comparison/1"
    planned: Plan
    here: Plan
    differences: tuple[Difference, ...]


def plan_of(verdict: Verdict) -> Plan:
    """The plan of the recommended route; an error when there is none."""
    route = verdict.recommended
    if route.route is RouteKind.NONE or route.torch is None:
        raise NoRoute(route.summary, hint=route.change.text if route.change else None)
    situation = verdict.situation
    building = route.route is RouteKind.SOURCE_BUILD
    release = releases.torch_release(route.torch)
    return Plan(
        knowledge=fingerprint(),
        system=situation.system,
        machine=situation.machine,
        cards=situation.cards,
        wish=verdict.wish,
        route=route.route,
        torch=route.torch,
        variant=route.variant,
        cuda=route.cuda,
        cudnn=route.cudnn,
        python=route.python,
        driver=route.driver,
        toolset=route.toolset,
        arch_list=route.arch_list,
        profile=verdict.wish.profile or _profile(situation),
        backend=release.backend if building else None,
        commit=release.git_version if building and route.torch == release.newest else None,
        wheel=wheel_name(route, situation),
        index_url=route.index_url,
        torchvision=route.torchvision,
        torchaudio=route.torchaudio,
        numpy=route.numpy,
        requires=build_requirements(release, route, situation) if building else (),
        patches=_patches(route, situation) if building else (),
        toolchain=tuple(
            Piece(what=piece.what, need=piece.need, where=piece.commands[0] if piece.commands else "")
            for piece in route.missing
        ),
        commands=route.commands,
        loses=route.loses,
    )


def write(plan: Plan, path: Path) -> None:
    import tomli_w

    text = tomli_w.dumps(_without_none(codec.to_builtins(plan)), multiline_strings=True)
    head = "# Written by Rekindle. Read back by `rekindle plan --from`, `install` and `build`.\n"
    files.write_text(path, head + text)


def read(path: Path) -> Plan:
    data = files.read_bytes(path, limit=4 * 1024 * 1024)
    plan = codec.from_toml(data, Plan, name=f"`{path}`")
    if plan.schema != SCHEMA:
        message = f"`{path}` is not a plan: its schema is `{plan.schema[:60]}`, not `{SCHEMA}`"
        raise BadInput(message, hint="`rekindle plan -o plan.toml` writes one")
    return plan


def again(plan: Plan, situation: Situation | None = None) -> Plan:
    """The same wish, resolved now: for the plan's own machine, or for another situation."""
    own = Situation(system=plan.system, machine=plan.machine, cards=plan.cards, python=plan.python)
    wish = msgspec.structs.replace(plan.wish, torch=plan.torch, cuda=plan.cuda)
    return plan_of(resolve(situation or own, wish))


def compare(planned: Plan, situation: Situation | None = None) -> Comparison:
    here = again(planned, situation)
    return Comparison(planned=planned, here=here, differences=differences(planned, here))


def differences(plan: Plan, other: Plan) -> tuple[Difference, ...]:
    """What comes out otherwise, field by field. The version of Rekindle that wrote it is of no interest."""
    found = []
    for field in msgspec.structs.fields(Plan):
        if field.name in ("made_by", "wish", "toolchain"):
            continue
        planned, here = (codec.to_builtins(getattr(each, field.name)) for each in (plan, other))
        if planned != here:
            found.append(Difference(field=field.name, planned=_spoken(planned), here=_spoken(here)))
    return tuple(found)


def wheel_name(route: Route, situation: Situation) -> str:
    """`torch-2.7.1-cp311-cp311-win_amd64.whl`; a source build adds its stack to the version when it is built."""
    tag = f"cp{(route.python or '3').replace('.', '')}"
    machines = {"windows": {"x86_64": "win_amd64", "aarch64": "win_arm64"}, "linux": {}}
    platform = machines[situation.system].get(situation.machine, f"linux_{situation.machine}")
    return f"torch-{route.version}-{tag}-{tag}-{platform}.whl"


def build_requirements(release: releases.TorchRelease, route: Route, situation: Situation) -> tuple[str, ...]:
    """The pins of the build environment: the setuptools, CMake, Ninja and NumPy that this release builds with."""
    cmake = f"cmake>={release.min_cmake}" + ("" if release.cmake4_unpatched else ",<4")
    ninja = "ninja>=1.13.2" if situation.system == "windows" else "ninja"
    backend = ("scikit-build-core>=1.0",) if release.backend == "scikit-build-core" else ()
    others = (route.numpy or "numpy", "pyyaml", "typing-extensions")
    return (f"setuptools{release.setuptools}", cmake, ninja, *others, *backend)


def fingerprint() -> str:
    """One hash over every data file the verdict reads, an overlay included."""
    digest = hashlib.sha256()
    for name in _STANDS_ON:
        digest.update(name.encode("utf-8") + b"\0" + tables.raw(name) + b"\0")
    return digest.hexdigest()


def _profile(situation: Situation) -> str:
    """`fast` needs AVX; a processor without it gets `compat`."""
    return "compat" if situation.cpu is not None and "avx" not in situation.cpu else "fast"


def _patches(route: Route, situation: Situation) -> tuple[Pinned, ...]:
    setting = patches.Setting(
        torch=Version(route.torch or "0"),
        os=situation.system,
        arch=situation.machine,
        compiler="cl" if situation.system == "windows" else "gcc",
        cuda=route.cuda,
        python=Version(route.python) if route.python else None,
        targets=tuple((route.arch_list or "").split(";")),
    )
    return tuple(Pinned(id=patch.id, sha256=patch.hash) for patch in patches.needed(setting))


def _without_none(value: Any) -> Any:
    """TOML has no null: what is not known is left out."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(each) for each in value]
    return value


def _spoken(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_spoken(each) for each in value) or "nothing"
    if isinstance(value, dict):
        return " ".join(f"{key}={_spoken(each)}" for key, each in value.items())
    return "nothing" if value is None else str(value)
