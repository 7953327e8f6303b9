"""From a situation and a wish to the cheapest route that works, with every other candidate and why it is out.

Candidates are enumerated, not searched: what is installed, every official wheel line, conda-forge, the shelf, listed
wheels of other people, and every pair of release and toolkit. Each is held against the rules; what is left is ranked:
a route that loses nothing before one that does, then by what it costs to go it, then by the stated preference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.cuda import cudnn, toolkits
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.knowledge.gpu.capability import Capability, Runs, runs
from rekindle.knowledge.gpu.drivers import Window
from rekindle.knowledge.torch import releases
from rekindle.stack import offers, prebuilt, source_build
from rekindle.stack.driver import cards_driven, drive, window_of
from rekindle.stack.offers import Offer
from rekindle.stack.route import Change, Missing, Route, lacks
from rekindle.stack.rules import Candidate, Rejection, RouteKind, broken
from rekindle.stack.situation import Card, Prefer, Situation, Wish

_WSL_FLOOR = Capability(6, 0)


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` is `impossible`, `possible` (it works, something else is better) or `recommended`."""

    question: str
    answer: str
    sentence: str
    chain: tuple[Rejection, ...]
    instead: str


class AnswerFor(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer would be if the card had this capability."""

    capability: Capability
    route: RouteKind
    torch: str | None
    cuda: Version | None
    summary: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan`. `recommended` has route `none` when nothing works."""

    schema: str = "rekindle.plan/1"
    situation: Situation
    wish: Wish
    recommended: Route
    routes: tuple[Route, ...]
    rejections: tuple[Rejection, ...]
    missing: tuple[Missing, ...]
    candidates: tuple[AnswerFor, ...] = ()
    """For a name that stands for several chips: the answer for each."""
    notes: tuple[str, ...] = ()
    why_not: WhyNot | None = None


class _Ranked(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    proof: int = 0
    default_variant: bool = True
    experimental: bool = False
    jit: bool = True


def resolve(situation: Situation, wish: Wish, shelf: Sequence[Offer] = ()) -> Verdict:
    """The verdict for this situation and wish. `shelf` are the wheels the user has built or collected."""
    if any(card.ambiguous for card in situation.cards):
        return _for_each_chip(situation, wish, shelf)
    found, rejections = _enumerate(situation, wish, shelf)
    if not any(each.route.consent for each in found):
        return _none(situation, wish, shelf, found, rejections)
    ranked = _ranked(found, situation, wish)
    best = next(each for each in ranked if each.consent)
    return Verdict(
        notes=_notes(situation, wish, best),
        situation=situation,
        wish=wish,
        recommended=best,
        routes=tuple(ranked),
        rejections=tuple(rejections),
        missing=best.missing,
    )


def _enumerate(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> tuple[list[_Ranked], list[Rejection]]:
    """Every route that works, at most one per kind and release, and every rule that was broken."""
    if wish.torch is not None:
        releases.torch_release(wish.torch)
    if wish.cuda is not None and len(wish.cuda.parts) > 1:
        toolkits.toolkit(wish.cuda)
    window = window_of(situation)
    rejections = cards_driven(situation, window)
    if rejections or not situation.cards:
        return [], rejections
    found = _installed(situation, wish)
    for offer in _offers(situation, wish, shelf):
        if not wish.admits(offer.torch) or not wish.admits_cuda(offer.cuda):
            continue
        route, broken_rules = prebuilt.consider(offer, situation, wish, window)
        rejections += broken_rules
        if route is None:
            continue
        if route.route is RouteKind.COMMUNITY:
            candidate = Candidate(name=offer.label, route=offer.route, torch=offer.torch, cuda=offer.cuda)
            if wish.community:
                route = msgspec.structs.replace(route, consent=True)
            else:
                rejections.append(
                    broken("community-consent", candidate, row=offer.row, wheel=offer.label, builder=offer.builder)
                )
        found.append(_ready(route, offer))
    built, broken_rules = _source_builds(situation, wish, window)
    found += built
    rejections += broken_rules
    found += _wsl(situation, wish, found)
    return found, rejections


def _offers(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> Iterable[Offer]:
    place = (situation.system, situation.machine)
    exact = releases.full_version(wish.torch) if wish.torch else None
    if exact and exact != releases.torch_release(exact).newest:
        yield from offers.official_of(exact, *place)
    else:
        yield from offers.official(*place)
    yield from offers.conda(*place)
    yield from (offer for offer in shelf if (offer.system, offer.machine) == place)
    yield from offers.community(*place)


def _ready(route: Route, offer: Offer) -> _Ranked:
    return _Ranked(
        route=route,
        default_variant=offer.default_variant,
        experimental=offer.experimental,
        jit=route.driver_jit,
    )


def _source_builds(situation: Situation, wish: Wish, window: Window) -> tuple[list[_Ranked], list[Rejection]]:
    """For every release the best toolkit to build it with."""
    usable, rejections = source_build.usable_toolkits(situation, window, wish)
    found: list[_Ranked] = []
    for release in reversed(releases.torch_releases()):
        version = release.newest
        if wish.torch is not None:
            exact = releases.full_version(wish.torch)
            version = exact if exact in release.patches else version
        if not wish.admits(version):
            continue
        built, broken_rules = source_build.consider(release, version, usable, situation, wish)
        rejections += broken_rules
        if built:
            found.append(_Ranked(route=built.route, proof=built.proof.rank))
    return found, rejections


def _installed(situation: Situation, wish: Wish) -> list[_Ranked]:
    """What is in the environment already, if its code runs on every card and its driver runs its CUDA."""
    have = situation.installed
    if have is None or have.cuda is None or not have.targets or not wish.admits(have.version.partition("+")[0]):
        return []
    if not wish.admits_cuda(have.cuda):
        return []
    candidate = Candidate(name=f"the installed torch {have.version}", route=RouteKind.INSTALLED, torch=have.version)
    try:
        driving = drive(toolkits.toolkit(have.cuda), situation, window_of(situation), candidate)
    except UnknownName:
        return []
    whole = [target for target in have.targets if target not in have.partial]
    native = all(
        any(runs(target, capability) is Runs.NATIVE for target in whole) for capability in situation.capabilities
    )
    if isinstance(driving, Rejection) or not native:
        return []
    loses = tuple(
        f"cuDNN {have.cudnn} has no code for {capability}"
        for capability in situation.capabilities
        if have.cudnn is not None and cudnn.serves(have.cudnn, capability, cuda_major=have.cuda.major) is False
    )
    route = Route(
        route=RouteKind.INSTALLED,
        torch=have.version.partition("+")[0],
        variant=have.version.partition("+")[2] or None,
        cuda=have.cuda,
        cudnn=have.cudnn,
        python=situation.python,
        driver=driving.text,
        driver_jit=driving.jit,
        loses=loses,
        summary=f"torch {have.version}, which is installed already, has code for the card",
        lacks=lacks(situation),
        targets=tuple(str(target) for target in whole),
    )
    return [_Ranked(route=route)]


def _wsl(situation: Situation, wish: Wish, found: list[_Ranked]) -> list[_Ranked]:
    """Linux inside Windows, where a ready-made build exists there and here only a build from source, or nothing."""
    if situation.system != "windows" or situation.wsl or any(_is_ready(each.route) for each in found):
        return []
    if min(situation.capabilities) < _WSL_FLOOR:
        return []
    linux = Situation(system="linux", cards=situation.cards, machine=situation.machine, python=situation.python)
    there, _ = _enumerate(linux, wish, ())
    best = next(
        (route for route in _ranked(there, linux, wish) if _is_ready(route) and _drives(route, situation)), None
    )
    if best is None:
        return []
    route = msgspec.structs.replace(
        best,
        route=RouteKind.WSL,
        commands=("wsl --install", *best.commands),
        summary=f"in WSL 2 (or on Linux) {best.summary}",
    )
    return [_Ranked(route=route)]


def _drives(route: Route, situation: Situation) -> bool:
    """WSL 2 runs on the driver of Windows, so that one must run the CUDA."""
    if route.cuda is None:
        return False
    candidate = Candidate(name="WSL 2", route=RouteKind.WSL)
    answer = drive(toolkits.toolkit(route.cuda), situation, window_of(situation), candidate)
    return not isinstance(answer, Rejection)


def _is_ready(route: Route) -> bool:
    return (
        route.route in (RouteKind.INSTALLED, RouteKind.OFFICIAL_WHEEL, RouteKind.CONDA_FORGE, RouteKind.SHELF)
        and not route.loses
    )


def _ranked(found: list[_Ranked], situation: Situation, wish: Wish) -> list[Route]:
    """One route per kind and release, best first."""
    best: dict[tuple[RouteKind, str | None, str | None], Route] = {}
    for each in sorted(found, key=lambda one: _key(one, situation, wish)):
        best.setdefault((each.route.route, each.route.torch, each.route.builder), each.route)
    return list(best.values())


def _key(each: _Ranked, situation: Situation, wish: Wish) -> tuple[object, ...]:
    route = each.route
    version = Version(route.torch or "0")
    changed = situation.python is not None and route.python != situation.python
    cuda = route.cuda or Version("0")
    newest = tuple(-part for part in version.parts)
    taste: tuple[object, ...] = (each.proof == 2, newest)
    if wish.prefer is Prefer.STABLE:
        latest = version.major_minor == Version(releases.torch_releases()[-1].minor)
        taste = (each.proof, each.experimental, latest, newest)
    elif wish.prefer is Prefer.SMALLEST:
        size = route.estimate.disk_gb if route.estimate and route.estimate.disk_gb is not None else 99.0
        taste = (each.proof == 2, size, newest)
    # PyTorch's own choice of CUDA for a release; for a card that newer toolkits dropped, the one that asks for least.
    dropped = not all(toolkits.still_supported(capability) for capability in situation.capabilities)
    line: tuple[object, ...] = (not each.default_variant, each.experimental, -cuda.major, -cuda.minor)
    if dropped:
        line = (each.experimental, -cuda.major, cuda.minor)
    return (bool(route.loses), route.route.tier, changed, *taste, not each.jit, bool(route.unverified), line)


def _notes(situation: Situation, wish: Wish, best: Route) -> tuple[str, ...]:
    """What a newer driver would open, and where the tables end."""
    found = [note for card in situation.cards for note in card.notes]
    if situation.driver is None:
        return tuple(found)
    if toolkits.is_newer_than_tables(situation.driver):
        found.append(f"driver {situation.driver} is newer than the tables; what it runs is taken from the newest known")
    free = msgspec.structs.replace(situation, driver=None)
    others = _ranked(_enumerate(free, wish, ())[0], free, wish)
    other = next((each for each in others if each.consent), None)
    if other and other.torch and best.torch and Version(other.torch) > Version(best.torch):
        found.append(f"with another driver ({other.driver}) torch {other.version} could be had: {other.route.value}")
    return tuple(found)


def _for_each_chip(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> Verdict:
    """A name that stands for several chips: the answer if all agree, else each answer and how to find out."""
    unsure = next(card for card in situation.cards if card.ambiguous)
    answers: list[tuple[Capability, Verdict]] = []
    for capability in unsure.capabilities:
        known = Card(
            name=unsure.name,
            capabilities=(capability,),
            last_driver_branch=unsure.last_driver_branch,
            count=unsure.count,
            notes=unsure.notes,
        )
        cards = tuple(known if card is unsure else card for card in situation.cards)
        answers.append((capability, resolve(msgspec.structs.replace(situation, cards=cards), wish, shelf)))
    candidates = tuple(
        AnswerFor(
            capability=capability,
            route=verdict.recommended.route,
            torch=verdict.recommended.torch,
            cuda=verdict.recommended.cuda,
            summary=verdict.recommended.summary,
        )
        for capability, verdict in answers
    )
    first = answers[0][1]
    if len({(each.route, each.torch, each.cuda) for each in candidates}) == 1:
        note = f"{unsure.name} was sold with several chips; the answer is the same for all of them"
        return msgspec.structs.replace(first, situation=situation, candidates=candidates, notes=(note,))
    spoken = ", ".join(str(capability) for capability in unsure.capabilities)
    summary = (
        f"{unsure.name} was sold with chips of compute capability {spoken}, and the answer differs: "
        "find out which one it is"
    )
    change = Change(what="card", text=gpus.which_chip(gpus.find(unsure.name)), route=RouteKind.NONE)
    return Verdict(
        situation=situation,
        wish=wish,
        recommended=Route(route=RouteKind.NONE, summary=summary, change=change),
        routes=(),
        rejections=tuple(rejection for _, verdict in answers for rejection in verdict.rejections),
        missing=(),
        candidates=candidates,
    )


def _none(
    situation: Situation, wish: Wish, shelf: Sequence[Offer], found: list[_Ranked], rejections: list[Rejection]
) -> Verdict:
    """Nothing works: the reason in a sentence, and the smallest change that would help."""
    change = _smallest_change(situation, wish, shelf)
    route = Route(
        route=RouteKind.NONE,
        summary=_reason(situation, wish, rejections, change),
        change=change,
        lacks=lacks(situation),
    )
    return Verdict(
        situation=situation,
        wish=wish,
        recommended=route,
        routes=tuple(_ranked(found, situation, wish)),
        rejections=tuple(rejections),
        missing=(),
    )


def _reason(situation: Situation, wish: Wish, rejections: list[Rejection], change: Change) -> str:
    if not situation.cards:
        return "no NVIDIA card was found or named"
    whole = next((each for each in rejections if each.candidate.is_any), None)
    if whole:
        return whole.sentence
    oldest = min(situation.capabilities)
    facts = capabilities.facts(oldest)
    if wish.cuda is not None:
        about = next(
            (
                each
                for each in rejections
                if each.candidate.cuda is not None
                and each.candidate.torch is None
                and wish.admits_cuda(each.candidate.cuda)
            ),
            None,
        )
        if about:
            return about.sentence
    if change.what == "driver":
        old = [each for each in rejections if each.rule == "driver-too-old"]
        about = next((each for each in old if each.candidate.cuda == change.cuda), None)
        if about:
            return about.sentence
    if wish.torch is not None:
        return f"PyTorch {wish.torch} cannot be had for {' and '.join(card.name for card in situation.cards)}"
    card = next(card.name for card in situation.cards if oldest in card.capabilities)
    said = facts.torch.removeprefix("never: ") if facts else "it is not in the tables"
    return f"no PyTorch runs on {card} ({oldest}): {said}"


def _smallest_change(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> Change:
    """Relax one thing at a time, the easiest first, until a route opens."""
    trials: list[tuple[str, str, Situation, Wish]] = []
    if situation.driver is not None:
        free = msgspec.structs.replace(situation, driver=None)
        trials.append(("driver", "another driver: {driver}", free, wish))
    if wish.toolset is not None:
        trials.append(
            ("toolset", "another MSVC toolset: {toolset}", situation, msgspec.structs.replace(wish, toolset=None))
        )
    if wish.configured_index:
        trials.append(
            ("index", "PyTorch's own package index", situation, msgspec.structs.replace(wish, configured_index=False))
        )
    if wish.cuda is not None:
        trials.append(("cuda", "another CUDA: {cuda}", situation, msgspec.structs.replace(wish, cuda=None)))
    if not wish.community:
        trials.append(
            (
                "community",
                "a wheel by {builder}, with `--community`",
                situation,
                msgspec.structs.replace(wish, community=True),
            )
        )
    if wish.torch is not None:
        trials.append(
            ("torch", "another PyTorch: {torch}", situation, msgspec.structs.replace(wish, torch=None, cuda=None))
        )
    if situation.system == "windows":
        trials.append(("system", "Linux", msgspec.structs.replace(situation, system="linux", driver=None), wish))
    for what, text, where, asked in trials:
        found, _ = _enumerate(where, asked, shelf)
        usable = [each for each in found if each.route.consent]
        if usable:
            best = _ranked(usable, where, asked)[0]
            words = {
                "driver": best.driver,
                "toolset": best.toolset,
                "cuda": best.cuda,
                "builder": best.builder,
                "torch": best.version,
            }
            return Change(what=what, text=text.format(**words), route=best.route, torch=best.torch, cuda=best.cuda)
    if not situation.cards:
        return Change(what="card", text='name one, e.g. `rekindle plan --gpu "Tesla K40c"`', route=RouteKind.NONE)
    if len(situation.cards) > 1:
        return Change(what="card", text=f"the cards apart: {_apart(situation, wish, shelf)}", route=RouteKind.NONE)
    return Change(what="card", text="another card", route=RouteKind.NONE)


def _apart(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> str:
    """What each card would get alone."""
    said: list[str] = []
    for card in situation.cards:
        alone = msgspec.structs.replace(situation, cards=(card,), driver=None)
        found, _ = _enumerate(alone, wish, shelf)
        best = next((route for route in _ranked(found, alone, wish) if route.consent), None)
        answer = f"{best.route.value} torch {best.version} on driver {best.driver}" if best else "nothing"
        said.append(f"{card.name} alone gets {answer}")
    return "; ".join(said)
