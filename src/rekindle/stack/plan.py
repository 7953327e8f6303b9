"""The lock: everything needed to go a route again on another machine, as TOML, with hashes.

A plan is written by `rekindle plan -o plan.toml`, carried out by `install` and `build`, and held against another
machine by `rekindle plan --from plan.toml`, which gives the same plan or says what differs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from rekindle import __version__
from rekindle.core import codec, console, files, untrusted
from rekindle.core.errors import BadInput, NoRoute, UsageError
from rekindle.core.paths import sha256_of
from rekindle.core.texts import ArchList, SystemName
from rekindle.core.untrusted import (
    Commit,
    CondaPin,
    LocalLabel,
    PipRequirement,
    PipVersion,
    PlainFileName,
    PlainValue,
    PythonVersion,
    Sha256,
)
from rekindle.core.version import Version
from rekindle.knowledge import tables
from rekindle.knowledge.builds.profiles import cpu_level
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.torch import options, patches, releases
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.knowledge.torch.torch_wheels import opened_wheels
from rekindle.model.cuda_line import index_of
from rekindle.model.platform import PlainWord
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route, Stack, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish

SCHEMA = "rekindle.lock/1"
LOCKED = (
    "route", "torch", "variant", "cuda", "cudnn", "arch_list", "index_url", "torchvision", "torchaudio", "numpy",
    "conda", "system", "machine", "cards", "profile", "cpu", "backend", "commit", "wheel", "requires", "wheels",
    "options", "patches",
)  # fmt: skip
"""What nobody edits by hand. Which Python and toolset of a machine are taken may be changed there."""
_AGAIN = "write the plan again with `rekindle plan -o`; `rekindle build --unlocked` takes it as it is"
_STANDS_ON = (
    "builds/building.toml", "gpu/capabilities.toml", "torch/community_wheels.toml", "gpu/driver_branches.toml",
    "builds/rules.toml", "torch/aarch64_lines.toml", "torch/old_lines.toml", "torch/companions.json",
    "torch/conda_forge.json", "cuda/cudnn.json", "cuda/host_compilers.json", "cuda/mathlibs.json",
    "cuda/toolkits.json", "torch/torch_releases.json", "torch/torch_wheels.json", "torch/torch_wheels_aarch64.json",
    "torch/line_platforms.toml", "torch/wheel_platforms.json",
)  # fmt: skip


# Plain texts once they are checked: a build writes them into its scripts.
_Version = Annotated[str, msgspec.Meta(pattern=rf"\A{PipVersion.SHAPE}\Z")]
_Commit = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{Commit.SHAPE})\Z")]
_Python = Annotated[str, msgspec.Meta(pattern=rf"\A{PythonVersion.SHAPE}\Z")]
_Requirement = Annotated[str, msgspec.Meta(pattern=rf"\A{PipRequirement.SHAPE}\Z")]


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A patch by name and by what it does."""

    id: str
    sha256: Sha256


class PinnedWheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel by its file name and its bytes."""

    name: PlainFileName
    sha256: Sha256


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the toolchain: what it must be and where it is available."""

    what: str
    need: str
    where: str = ""


class Plan(Stack, frozen=True, kw_only=True):
    """The stack, what builds or installs it, and what it was made from.

    People hand it to each other: what becomes a word of pip's, conda's or git's is of a type that is nothing else.
    """

    schema: str = SCHEMA
    made_by: str = f"rekindle {__version__}"
    knowledge: str
    """SHA-256 over the tables the verdict stands on: two plans with the same one were made from the same facts."""
    system: SystemName
    machine: PlainWord
    arch_list: ArchList | None = None
    cards: Annotated[tuple[Card, ...], msgspec.Meta(max_length=256)]
    wish: Wish
    torch: _Version
    python: _Python | None = None
    variant: LocalLabel | None = None
    torchvision: PipVersion | None = None
    torchaudio: PipVersion | None = None
    numpy: PipRequirement | None = None
    conda: tuple[CondaPin, ...] = ()
    profile: str = "fast"
    cpu: str | None = None
    """The least processor a build runs on: `avx`, or the x86-64 level `v1`."""
    backend: str | None = None
    commit: _Commit | None = None
    """The commit of PyTorch's tag."""
    wheel: PlainFileName
    """The name of the wheel that comes out, or that is installed."""
    requires: tuple[_Requirement, ...] = ()
    """What the build's own environment gets, as pip requirements: `build` installs exactly these."""
    wheels: tuple[PinnedWheel, ...] = ()
    """The wheels that are installed, where their bytes are known: another file of that name is refused."""
    options: dict[str, PlainValue] = msgspec.field(default_factory=dict)
    """Switches alone: what names a program or a file runs it, and stands in a build file."""
    patches: tuple[Pinned, ...] = ()
    toolchain: tuple[Piece, ...] = ()
    seal: dict[str, str] = msgspec.field(default_factory=dict)
    """A hash of each locked field, as it was written: an edit by hand is noticed and named."""


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A field that comes out otherwise here."""

    field: str
    planned: str
    here: str


class PlanComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan --from`."""

    schema: str = "rekindle.comparison/1"
    planned: Plan
    here: Plan
    differences: tuple[PlanDifference, ...]


def plan_of(verdict: Verdict) -> Plan:
    """The plan of the recommended route; an error when there is none."""
    route = verdict.recommended
    if route.route is RouteKind.NONE or route.torch is None:
        raise NoRoute(route.summary, hint=route.change.text if route.change else None)
    situation = verdict.situation
    building = route.route is RouteKind.SOURCE_BUILD
    release = releases.torch_release(route.torch)
    profile = verdict.wish.profile or situation.profile
    return Plan(
        **route.facts(),
        knowledge=fingerprint(),
        system=situation.system,
        machine=situation.arch,
        cards=situation.cards,
        wish=verdict.wish,
        profile=profile,
        cpu=cpu_level(profile, situation.arch) if building else None,
        backend=release.backend if building else None,
        commit=releases.commit_of(route.torch) if building else None,
        wheel=PlainFileName(wheel_name(route, situation)),
        wheels=_wheels(route, situation),
        requires=_requirements(route.torch, profile, situation) if building else (),
        patches=_patches(route, situation) if building else (),
        toolchain=tuple(
            Piece(what=piece.what, need=piece.need, where=str(piece.commands[0]) if piece.commands else "")
            for piece in route.missing
        ),
    )


_HEAD = "# Written by Rekindle. Read back by `rekindle plan --from`, `install` and `build`.\n"


def write(plan: Plan, path: Path) -> None:
    """Write the plan. An older plan is replaced; a file that somebody else wrote never is."""
    import tomli_w

    expect_place(path)
    sealed = msgspec.structs.replace(plan, seal={name: _sealed(plan, name) for name in LOCKED})
    plain = {"schema": plan.schema, **codec.to_builtins(sealed)}  # what it is stands first
    text = tomli_w.dumps(_without_none(plain), multiline_strings=True)
    files.write_text(path, _HEAD + text)


def expect_place(path: Path) -> None:
    """An error, before an answer is shown, where no plan would be written."""
    if path.exists() and not _ours(path):
        message = f"`{path}` already exists and is not a plan"
        raise UsageError(message, hint="name another file with `-o`, for example `-o plan.toml`")


def _ours(path: Path) -> bool:
    return path.is_file() and files.read_bytes(path, limit=4 * 1024 * 1024).startswith(_HEAD[:20].encode())


def read(path: Path) -> Plan:
    data = files.read_bytes(path, limit=4 * 1024 * 1024)
    plan = codec.from_toml(data, Plan, name=f"`{path}`")
    codec.expect(plan.schema, SCHEMA, "a plan", name=f"`{path}`", hint="`rekindle plan -o plan.toml` writes one")
    if plan.index_url not in (None, index_of(plan.variant or "")):
        message = f"`{path}` names another index than PyTorch's own: `{untrusted.printable(str(plan.index_url))}`"
        raise BadInput(message, hint="do not use it; to install from a mirror, configure pip for it")
    return plan


def again(plan: Plan, situation: Situation | None = None) -> Plan:
    """The same wish, resolved now: for the plan's own machine, or for another situation."""
    own = Situation(system=plan.system, arch=plan.machine, cards=plan.cards, python=plan.python)
    wish = msgspec.structs.replace(plan.wish, torch=plan.torch, cuda=plan.cuda)
    return plan_of(resolve(situation or own, wish))


def compare(planned: Plan, situation: Situation | None = None) -> PlanComparison:
    here = again(planned, situation)
    return PlanComparison(planned=planned, here=here, differences=differences(planned, here))


def differences(plan: Plan, other: Plan) -> tuple[PlanDifference, ...]:
    """What comes out otherwise, field by field. The version of Rekindle that wrote it is of no interest."""
    found = []
    for field in msgspec.structs.fields(Plan):
        if field.name in ("made_by", "wish", "toolchain", "seal", "commands"):
            continue
        planned, here = (codec.to_builtins(getattr(each, field.name)) for each in (plan, other))
        if planned != here:
            found.append(PlanDifference(field=field.name, planned=_spoken(planned), here=_spoken(here)))
    return tuple(found)


def wheel_name(route: Route, situation: Situation) -> str:
    """`torch-2.7.1-cp311-cp311-win_amd64.whl`; a source build adds its stack to the version when it is built."""
    abi = f"cp{(route.python or '3').replace('.', '')}"
    tag = abi.rstrip("t")
    machines = {"windows": {"x86_64": "win_amd64", "aarch64": "win_arm64"}, "linux": {}}
    platform = machines[situation.system].get(situation.arch, f"linux_{situation.arch}")
    return f"torch-{route.version}-{tag}-{abi}-{platform}.whl"


def _wheels(route: Route, situation: Situation) -> tuple[PinnedWheel, ...]:
    """The torch wheel of a route that installs one: from the shelf's own file, or as it was opened for the tables."""
    if route.route is RouteKind.SHELF and route.location and Path(route.location).is_file():
        return (PinnedWheel(name=PlainFileName(Path(route.location).name), sha256=sha256_of(Path(route.location))),)
    if route.route is RouteKind.SHELF and route.location and "#sha256=" in route.location:
        address, _, digest = route.location.partition("#sha256=")
        return (PinnedWheel(name=PlainFileName(unquote(address.rpartition("/")[2])), sha256=Sha256(digest)),)
    if route.route is not RouteKind.OFFICIAL_WHEEL or not route.on_configured_index:
        return ()
    tag = f"-cp{(route.python or '').replace('.', '')}-"
    return tuple(
        PinnedWheel(name=PlainFileName(row.wheel), sha256=Sha256(row.sha256))
        for row in opened_wheels()
        if row.version == route.torch and tag in row.wheel
        and (row.system, row.machine) == (situation.system, situation.arch)
    )  # fmt: skip


def check_seal(plan: Plan, *, unlocked: bool = False) -> None:
    """What is locked is as it was written; an error, or with `unlocked` a line, names the fields that are not."""
    edited = [name for name in LOCKED if name in plan.seal and plan.seal[name] != _sealed(plan, name)]
    message = f"the plan was edited after it was written: {', '.join(f'`{name}`' for name in edited)}" if edited else ""
    if not plan.seal and plan.knowledge == fingerprint():
        message = "the plan has lost its `seal`, so that nobody can see what was edited"
    if message and not unlocked:
        raise BadInput(message, hint=_AGAIN)
    if message:
        console.say(f"{message}; it is built as it is")


def check_cards(plan: Plan) -> None:
    """What is built with CUDA has code for the cards that it is for."""
    targets = parse_arch_list(plan.arch_list or "")
    for card in plan.cards if plan.cuda is not None else ():
        if all(runs(target, one) is Runs.NO for one in card.capabilities for target in targets):
            message = f"the plan's `arch_list`, `{plan.arch_list}`, has no code for its card {card.name}"
            raise BadInput(message, hint=_AGAIN)


def _sealed(plan: Plan, name: str) -> str:
    """Of what a field says, in any order: what is empty says nothing, so a field of tomorrow breaks no plan."""
    value = _saying(codec.to_builtins(getattr(plan, name)))
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def _saying(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: said for key, each in value.items() if (said := _saying(each))}
    return sorted(map(_saying, value), key=str) if isinstance(value, (list, tuple)) else value


def check_patches(plan: Plan) -> None:
    """What each patch does here is what it did where the plan was made; an error names the ones that differ."""
    known = {(patch.id, patch.hash) for patch in patches.patches()}
    changed = [pinned.id for pinned in plan.patches if (pinned.id, pinned.sha256) not in known]
    if changed:
        listed = ", ".join(f"`{id[:60]}`" for id in changed)
        message = f"the plan pins other patches than this Rekindle has: {listed}"
        raise BadInput(message, hint=f"made by {plan.made_by[:40]}; write the plan again with `rekindle plan -o`")


def check_commit(plan: Plan) -> None:
    """The commit that a plan pins is the one of its release, as far as the tables know it."""
    known = releases.commit_of(plan.torch)
    if plan.commit is not None and known is not None and plan.commit != known:
        message = f"the plan pins commit {plan.commit[:12]}, but PyTorch {plan.torch} is {known[:12]}"
        raise BadInput(message, hint=_AGAIN)


def _requirements(torch: str, profile: str, situation: Situation) -> tuple[str, ...]:
    """What the build's own environment gets: the list that `build` installs and a bundle downloads."""
    mkl = options.with_mkl(profile, situation.platform)
    return options.requirements(torch, mkl=mkl)


@tables.cached
def fingerprint() -> str:
    """One hash over every data file the verdict reads, an overlay included."""
    digest = hashlib.sha256()
    for name in _STANDS_ON:
        digest.update(name.encode("utf-8") + b"\0" + tables.raw(name) + b"\0")
    return digest.hexdigest()


def _patches(route: Route, situation: Situation) -> tuple[Pinned, ...]:
    setting = patches.PatchSetting(
        torch=Version(route.torch or "0"),
        os=situation.system,
        arch=situation.arch,
        compiler="msvc" if situation.system == "windows" else "gcc",
        cuda=route.cuda,
        python=Version(route.python) if route.python else None,
        targets=tuple((route.arch_list or "").split(";")),
    )
    return tuple(Pinned(id=patch.id, sha256=Sha256(patch.hash)) for patch in patches.needed(setting))


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
