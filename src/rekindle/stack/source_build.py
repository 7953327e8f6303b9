"""Source builds: which release with which toolkit, cuDNN, compiler and Python can be compiled for these cards."""

from __future__ import annotations

from typing import Any

import msgspec

from rekindle.compat.driver_card import Window
from rekindle.compat.host_compiler import (
    gcc_majors,
    limits_evidence,
    newest_gcc,
    packaged_gcc,
    takes_compiler,
    toolset_range,
)
from rekindle.compat.judgement import Clash, Fits
from rekindle.compat.library_card import (
    compiles_with,
    cudnn_evidence,
    cudnn_serves,
    cudnns_for,
    last_cudnn,
    same_release,
)
from rekindle.compat.toolkit_card import arch_list as listed
from rekindle.compat.toolkit_card import compiles
from rekindle.core import codec
from rekindle.core.command import Command, pip, pip_install, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits as building
from rekindle.knowledge.builds.sweeps import nearest, seen, sweep
from rekindle.knowledge.cuda import toolchains, toolkits
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.tables import Evidence, cached
from rekindle.knowledge.torch import companions
from rekindle.knowledge.torch.releases import TorchRelease, oldest_cuda, torch_release, upstream_build
from rekindle.model.card import Capability, Target
from rekindle.model.host_compiler import gcc, msvc
from rekindle.stack import estimates
from rekindle.stack.driver import Driving, drive
from rekindle.stack.prebuilt import not_on_windows, too_early
from rekindle.stack.route import Missing, Route, choose_python, lacks, numpy_pin, python_missing
from rekindle.stack.rules import Candidate, Rejection, RouteKind, broken
from rekindle.stack.shorter import MAGMA, shorter
from rekindle.stack.shorter import after_planning as shorter_after
from rekindle.stack.situation import Situation, Wish, card_words, place_words


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """How sure a pair of release and toolkit is: 0 built for such a card, 1 built upstream, 2 only admitted."""

    rank: int
    text: str
    evidence: Evidence
    untried: bool = False
    """Upstream built the pair, and nobody is known to have built the release for such a card."""


class BuiltRoute(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    proof: Proof


def usable_toolkits(
    situation: Situation, window: Window, wish: Wish
) -> tuple[list[tuple[Toolkit, Driving]], list[Rejection]]:
    """The toolkits that compile for all the cards and whose code a driver for them runs."""
    usable: list[tuple[Toolkit, Driving]] = []
    rejected: list[Rejection] = []
    for toolkit in toolkits.toolkits():
        if toolkit.version < oldest_cuda():
            continue
        candidate = Candidate(name=f"CUDA {toolkit.version}", route=RouteKind.SOURCE_BUILD, cuda=toolkit.version)
        found = [
            broken("toolkit-target", candidate, row=toolkit, sentence=answer.sentence)
            for card in situation.cards
            for capability in card.capabilities
            if isinstance(answer := compiles(toolkit.version, capability, f"{card.name} ({capability.sm})"), Clash)
        ]
        driving = drive(toolkit, situation, window, candidate)
        if isinstance(driving, Rejection):
            found.append(driving)
        elif not found and wish.admits_cuda(toolkit.version):
            usable.append((toolkit, driving))
        rejected += found
    return usable, rejected


def consider(
    release: TorchRelease,
    version: str,
    usable: list[tuple[Toolkit, Driving]],
    situation: Situation,
    wish: Wish,
) -> tuple[BuiltRoute | None, list[Rejection]]:
    """The best way to build one release, or None; and why the other toolkits are out."""
    fitting: list[tuple[tuple[object, ...], Toolkit, Driving]] = []
    rejected: list[Rejection] = []
    for toolkit, driving in usable:
        candidate = Candidate(
            name=f"torch {version} with CUDA {toolkit.version}",
            route=RouteKind.SOURCE_BUILD,
            torch=version,
            cuda=toolkit.version,
        )
        broken_rules = _pair(release, version, toolkit, situation, wish, candidate)
        rejected += broken_rules
        if not broken_rules:
            fitting.append((_toolkit_key(release, version, toolkit, situation), toolkit, driving))
    if not fitting:
        return None, rejected
    _, toolkit, driving = min(fitting, key=lambda each: each[0])
    return _built(release, version, toolkit, driving, situation, wish), rejected


def _toolkit_key(release: TorchRelease, version: str, toolkit: Toolkit, situation: Situation) -> tuple[object, ...]:
    """A toolkit that is here already, then the surest pair, then one whose compilers are known, then the newest."""
    compilers_known = situation.system == "linux" or toolset_range(toolkit.version) is not None
    return (
        not _is_here(toolkit, situation),
        _proof(version, toolkit.version, situation.system, situation.oldest).rank,
        not compilers_known,
        (-toolkit.version.major, -toolkit.version.minor),
    )


def builds(release: TorchRelease, version: str, toolkit: Toolkit, situation: Situation, wish: Wish) -> bool:
    """Can this release be built with this toolkit, as far as the rules know?"""
    candidate = Candidate(name=f"torch {version} with CUDA {toolkit.version}", route=RouteKind.SOURCE_BUILD)
    return not _pair(release, version, toolkit, situation, wish, candidate)


def _is_here(toolkit: Toolkit, situation: Situation) -> bool:
    return situation.toolkits is not None and any(each.starts_with(toolkit.version) for each in situation.toolkits)


def _pair(
    release: TorchRelease, version: str, toolkit: Toolkit, situation: Situation, wish: Wish, candidate: Candidate
) -> list[Rejection]:
    if early := too_early(wish, candidate):
        return early
    found: list[Rejection] = []
    words: dict[str, Any] = {"torch": version, "cuda": toolkit.version}
    if toolkit.version < release.min_cuda:
        found.append(broken("torch-cuda-min", candidate, row=release, need=release.min_cuda, **words))
    newest = max(variant.cuda for variant in release.variants)
    if toolkit.version.major > newest.major:
        found.append(
            broken("torch-cuda-max", candidate, row=release, major=toolkit.version.major, newest=newest, **words)
        )
    syntax = building.arch_syntax(version)
    found += [
        broken("torch-arch-syntax", candidate, row=syntax, torch=version, capability=capability)
        for capability in situation.capabilities
        if syntax is not None and not syntax.admits(Target(capability))
    ]
    if situation.system == "windows" and wish.toolset is not None:
        answer = takes_compiler(toolkit.version, msvc(wish.toolset))
        if isinstance(answer, Clash):
            found.append(broken("cuda-msvc", candidate, reason=answer.sentence))
    if wish.profile == "fast" and situation.profile != "fast":
        found.append(broken("cpu-profile", candidate, profile="fast", floor="AVX", instead="compat"))
    if situation.system == "linux" and isinstance(takes_compiler(toolkit.version, gcc(release.min_gcc)), Clash):
        found.append(broken("cuda-gcc", candidate, need=release.min_gcc, most=newest_gcc(toolkit.version), **words))
    return found


def _built(
    release: TorchRelease, version: str, toolkit: Toolkit, driving: Driving, situation: Situation, wish: Wish
) -> BuiltRoute:
    choice = choose_python(situation, release.pythons(situation.system), f"PyTorch {version}")
    chosen = choose_cudnn(release, version, toolkit, situation)
    toolset = (_msvc if situation.system == "windows" else _gcc)(release, toolkit, situation, wish)
    proof = _proof(version, toolkit.version, situation.system, situation.oldest)
    arch_list = listed(situation.capabilities, toolkit.version, jit=driving.jit)
    about_cudnn = (chosen and cudnn_evidence(chosen)) or Evidence.NOTES
    loses: list[str] = []
    if chosen is None:
        loses.append("cuDNN: no release of it has code for the card and compiles with this PyTorch")
    candidate = Candidate(name=f"torch {version}", route=RouteKind.SOURCE_BUILD, torch=version)
    loses += [each.sentence for each in not_on_windows(situation, wish, candidate)]
    # What a sweep of the release's CUDA files found.
    compiles = seen(version, toolkit.version, situation.oldest)
    why = [proof.text, *([compiles] if compiles else [])]
    if choice.why:
        why.insert(0, choice.why)
    if situation.system == "windows":
        # Every build of ours for Windows is without it, so it decides nothing between them.
        why.append(f"unlike PyTorch's own wheels, without {MAGMA}")
    planning = _plan(version, toolkit, choice.python, situation, wish)
    route = Route(
        route=RouteKind.SOURCE_BUILD,
        torch=version,
        cuda=toolkit.version,
        cudnn=chosen,
        python=choice.python,
        driver=driving.words(),
        driver_detail=driving.detail,
        driver_jit=driving.jit,
        toolset=toolset.text,
        toolsets=toolset.span,
        arch_list=arch_list,
        commands=(planning, *_after(version, situation, "plan.toml")),
        loses=tuple(loses),
        evidence=Evidence.weakest([proof.evidence, release.evidence, toolkit.evidence, about_cudnn, toolset.evidence]),
        summary=f"PyTorch {version} built here for {arch_list} with CUDA {toolkit.version}",
        numpy=numpy_pin(version, situation.system),
        why=(*why, *toolset.why),
        lacks=lacks(situation),
        unverified=(*toolset.unverified, *_untried(version, toolkit, situation)),
        missing=(
            *_pieces(toolkit, chosen, toolset, situation),
            # A build takes the Python that is active.
            *python_missing(situation, choice, activate=True),
        ),
        estimate=estimates.source_build(version, situation),
        shorter=shorter(version, toolkit.version, choice.python, situation, planning),
        targets=tuple(capability.sm for capability in situation.capabilities),
    )
    return BuiltRoute(route=route, proof=proof)


def choose_cudnn(release: TorchRelease, version: str, toolkit: Toolkit, situation: Situation) -> Version | None:
    """The newest cuDNN with code for all cards that this release compiles with and that is made for this CUDA."""

    def fits(candidate: Version) -> bool:
        major = toolkit.version.major
        judged = (cudnn_serves(candidate, capability, cuda_major=major) for capability in situation.capabilities)
        return isinstance(compiles_with(version, candidate), Fits) and all(isinstance(each, Fits) for each in judged)

    official = next((row.cudnn for row in release.variants if row.cuda == toolkit.version and row.cudnn), None)
    if official is not None and fits(official):
        return official
    made = cudnns_for(toolkit.version.major)
    if situation.cudnns:
        made = [*made, *situation.cudnns]
    ends = [last for capability in situation.capabilities if (last := last_cudnn(capability))]
    return next((each for each in sorted([*made, *ends], reverse=True) if fits(each)), None)


class _Toolset(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None
    need: str
    have: str | None
    missing: bool
    evidence: Evidence = Evidence.BINARY
    why: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    span: str | None = None


def _msvc(release: TorchRelease, toolkit: Toolkit, situation: Situation, wish: Wish) -> _Toolset:
    span = toolset_range(toolkit.version)
    have = situation.toolsets
    if wish.toolset is not None:
        return _Toolset(text=str(wish.toolset), need=str(wish.toolset), have=None, missing=False)
    if span is None:
        linker = release.official_linker
        return _Toolset(
            text=str(linker),
            need=f"MSVC toolset {linker}",
            have=None,
            missing=have is None or all(not each.starts_with(linker) for each in have),
            evidence=Evidence.NOTES,
            unverified=(f"which MSVC toolsets CUDA {toolkit.version} takes; {linker} linked the official wheels",),
            commands=_install_toolset(linker),
        )
    first, last = span
    fitting = [each for each in have or () if isinstance(takes_compiler(toolkit.version, msvc(each)), Fits)]
    best = max(fitting, default=None)
    return _Toolset(
        text=str(best.major_minor if best else last),
        need=f"MSVC toolset {first} to {last}",
        have=", ".join(str(each) for each in have) if have else None,
        missing=best is None,
        evidence=limits_evidence(toolkit.version),
        why=(f"toolset: CUDA {toolkit.version} takes MSVC {first} to {last} (nvcc's gate and the STL's)",),
        commands=_install_toolset(last),
        span=f"{first} to {last}",
    )


def _install_toolset(toolset: Version) -> tuple[Command, ...]:
    """Visual Studio's installer has every toolset as a component of its own; we only write its command."""
    if any(row.toolset == toolset.major_minor for row in toolchains.msvc_components()):
        return (rekindle("toolchain", "msvc", str(toolset.major_minor), system="windows"),)
    text = f"Visual Studio Installer: Individual components, MSVC {toolset.major_minor} x64/x86 build tools"
    return (Command.parse(text),)


def _provision(tool: str, version: Version, situation: Situation, *more: str) -> tuple[Command, ...]:
    """The command that assembles it without an installer, where somebody is known to have its parts."""
    known = toolchains.providers_of(tool, version, situation.platform)
    if not known:
        return ()
    note = "" if any(tried for _, tried in known) else "UNVERIFIED: never installed in our tests"
    return (rekindle("toolchain", "install", f"{tool}=={version}", *more, system=situation.system, note=note),)


def _provision_gcc(cuda: Version, situation: Situation) -> tuple[Command, ...]:
    """Which of those that this CUDA takes starts there is found out there: its C library is not known here."""
    majors = [Version(str(major)) for major in gcc_majors(cuda)]
    known = any(toolchains.providers_of("gcc", each, situation.platform) for each in majors)
    return (toolchains.install_gcc(cuda),) if known else ()


def _gcc(release: TorchRelease, toolkit: Toolkit, situation: Situation, wish: Wish) -> _Toolset:
    most, least = newest_gcc(toolkit.version), release.min_gcc
    if most is None:
        unknown = (f"which GCC CUDA {toolkit.version} takes",)
        return _Toolset(text=None, need=f"GCC {least}", have=None, missing=False, unverified=unknown)
    fitting = [each for each in situation.gcc or () if least.major <= each <= most]
    best = max(fitting, default=most)
    return _Toolset(
        text=f"GCC {best}",
        need=f"GCC {least} to {most}",
        have=", ".join(str(each) for each in situation.gcc) if situation.gcc else None,
        missing=not fitting,
        evidence=limits_evidence(toolkit.version),
        why=(f"toolset: CUDA {toolkit.version} takes GCC up to {most}, PyTorch asks for {least} or newer",),
        commands=(*_provision_gcc(toolkit.version, situation), *packaged_gcc(most, situation.distribution)),
    )


@cached
def _proof(version: str, cuda: Version, system: str, oldest: Capability) -> Proof:
    """How sure this pair is for a card of this capability."""
    release = torch_release(version)
    row = building.built_by(version, cuda, system, oldest)
    if row:
        text = f"CUDA {cuda}: built so for such a card by {row.who}"
        return Proof(rank=0, text=text, evidence=row.evidence)
    variant = next((each for each in release.variants if each.cuda == cuda), None)
    others = building.built_by(version, None, system, oldest)
    beside = f"; for such a card {others.who.partition(':')[0]} built it with {others.cuda[0]}" if others else ""
    if variant:
        inside = any(runs(target, oldest) is Runs.NATIVE for target in variant.targets(system) or ())
        untried = not inside and not beside
        text = f"CUDA {cuda}: PyTorch's own wheels of this release were built with it{beside}"
        text += f"; no build of it for {oldest} is known" if untried else ""
        swept = sweep(version, cuda, oldest)
        whole = bool(swept and swept.whole)
        return Proof(rank=0 if whole else 1, text=text, evidence=variant.evidence, untried=untried and not whole)
    upstream = upstream_build(version, cuda)
    if upstream:
        text = f"CUDA {cuda}: PyTorch compiles this release with it in its own tests"
        return Proof(rank=1, text=text, evidence=upstream.evidence)
    return Proof(
        rank=2,
        evidence=Evidence.NOTES,
        text=f"CUDA {cuda}: the release's CMake files admit it; nobody is known to have built this pair",
    )


def _untried(version: str, toolkit: Toolkit, situation: Situation) -> tuple[str, ...]:
    """Upstream's tests compile it with this toolkit for other cards, and nobody has compiled all of it for this one."""
    upstream = upstream_build(version, toolkit.version)
    built = building.built_by(version, toolkit.version, situation.system, situation.oldest)
    if _proof(version, toolkit.version, situation.system, situation.oldest).untried:
        return (f"the whole build: nobody is known to have built {version} for {situation.oldest}",)
    if built is not None or upstream is None or upstream.purpose != "test":
        return ()
    return tuple(
        sentence for one in situation.capabilities if (sentence := _open_question(version, toolkit.version, one))
    )


def _open_question(version: str, cuda: Version, card: Capability) -> str | None:
    near = nearest(version, cuda, card)
    if near is None or not near.whole:
        return f"whether every CUDA file of {version} compiles for {card}: nobody is known to have tried them all"
    if near.torch == version and near.cuda == cuda and near.capability == card:
        return None
    return (
        f"whether {version} compiles whole for {card} with CUDA {cuda}: the CUDA files of {near.torch} did with "
        f"{near.cuda}, one by one; no whole build is known"
    )


def _pieces(toolkit: Toolkit, chosen: Version | None, toolset: _Toolset, situation: Situation) -> tuple[Missing, ...]:
    found: list[Missing] = []
    if not _is_here(toolkit, situation):
        have = ", ".join(str(each) for each in situation.toolkits) if situation.toolkits else None
        found.append(
            Missing(
                what="toolkit",
                need=f"CUDA {toolkit.version}",
                have=have,
                why="nvcc compiles the kernels; install the toolkit without the driver that it offers",
                commands=(
                    *_provision("cuda", toolkit.version, situation),
                    Command.page("https://developer.nvidia.com/cuda-toolkit-archive"),
                ),
            )
        )
    if chosen is not None and not cudnn_is_here(chosen, situation):
        found.append(
            Missing(
                what="cudnn",
                need=f"cuDNN {chosen} for CUDA {toolkit.version.major}",
                have=", ".join(str(each) for each in situation.cudnns) if situation.cudnns else None,
                why="the newest with code for the card that this PyTorch compiles with",
                commands=(
                    *_provision("cudnn", chosen, situation, "--cuda", str(toolkit.version)),
                    Command.page("https://developer.nvidia.com/rdp/cudnn-archive"),
                ),
            )
        )
    broken_ninja = building.bad_tool("ninja", situation.ninja, situation.system) if situation.ninja else None
    if broken_ninja:
        found.append(
            Missing(
                what="ninja",
                need=f"Ninja {building.tool('ninja').least} or newer",
                have=str(situation.ninja),
                why=broken_ninja.trouble,
                commands=(pip_install([f"ninja>={building.tool('ninja').least}"], system=situation.system),),
            )
        )
    if toolset.missing:
        found.append(codec.like(Missing, toolset, what="toolset", why="the host compiler of nvcc"))
    return tuple(found)


def cudnn_is_here(wanted: Version, situation: Situation) -> bool:
    return any(same_release(each, wanted) for each in situation.cudnns or ())


def _plan(version: str, toolkit: Toolkit, python: str | None, situation: Situation, wish: Wish) -> Command:
    words = ["--torch", version, "--cuda", str(toolkit.version), "--python", str(python)]
    words += ["--toolset", str(wish.toolset)] if wish.toolset else []
    words += ["--profile", wish.profile] if wish.profile else []
    return rekindle("plan", *place_words(situation), *words, *wish.words, "-o", "plan.toml", system=situation.system)


def _after(version: str, situation: Situation, plan: str) -> tuple[Command, ...]:
    """The build brings the source itself, and puts the wheel on the shelf, from which `install` takes it."""
    cards = () if situation.here and situation.recorded is None else card_words(situation.cards)
    beside = [(name, found) for name in companions.PROJECTS if (found := companions.version_for(name, version))]
    steps = [
        ("build", plan),
        ("install", *cards, "--torch", version),
        *(("extension", "build", f"{name}=={found}", *cards, "-o", "wheels") for name, found in beside),
    ]
    # Without its dependencies: they would bring the index's torch back.
    alone = ("install", "--no-deps", "--no-index", "--find-links", "wheels")
    last = [pip(*alone, *(name for name, _ in beside), system=situation.system)] if beside else []
    return (*(rekindle(*step, system=situation.system) for step in steps), *last)


def complete(route: Route) -> Route:
    """The same build where the plan that begins it would choose something else unless it is told not to."""
    if route.route is not RouteKind.SOURCE_BUILD:
        return route
    first, *rest = route.commands
    planning = first.saying(*first.words[:-2], "--prefer", "complete", *first.words[-2:])
    less = route.shorter
    if less is not None:
        less = msgspec.structs.replace(less, commands=(planning, *less.commands[1:]))
    return msgspec.structs.replace(route, commands=(planning, *rest), shorter=less)


def after_planning(route: Route, situation: Situation, plan: str) -> Route:
    """The same route once its plan is written: what is left to run begins with the build of that file."""
    if route.route is not RouteKind.SOURCE_BUILD or route.torch is None:
        return route
    less = shorter_after(route.shorter, plan) if route.shorter else None
    return msgspec.structs.replace(route, commands=_after(route.torch, situation, plan), shorter=less)
