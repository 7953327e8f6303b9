"""Every way to a PyTorch for a situation and a wish, and every rule that ruled one out.

Candidates are enumerated, not searched: what is installed, every official wheel line, conda-forge, the shelf, listed
wheels of other people, and every pair of release and toolkit. Each is held against the rules.
The best of several routes is one that loses nothing, then the cheapest, then by the preference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from rekindle.compat.companion import belongs, release_for, to_build_for
from rekindle.compat.driver_card import Window
from rekindle.compat.feature_card import has
from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import cudnn_serves
from rekindle.compat.torch_python import takes_numpy
from rekindle.core.command import Command, pip, pip_install, rekindle
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Version
from rekindle.inputs.system import jetpack_release
from rekindle.inputs.torch import not_released
from rekindle.knowledge.builds import costs, programs
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.gpu.jetson import JetPack, jetpacks
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import companions, releases
from rekindle.knowledge.torch.torch_wheels import least_glibc
from rekindle.model.card import Capability
from rekindle.stack import containers, extensions, offers, prebuilt, source_build
from rekindle.stack.driver import Driving, cards_driven, drive, window_of
from rekindle.stack.offers import Offer
from rekindle.stack.route import Missing, Route, lacks
from rekindle.stack.rules import Candidate, Rejection, RouteKind, broken
from rekindle.stack.situation import Card, Installed, Prefer, Situation, Wish, place_words


def candidates(
    situation: Situation, wish: Wish, shelf: Sequence[Offer] = (), *, ready: bool = False
) -> tuple[list[Ranked], list[Rejection]]:
    """Every route that works, at most one per kind and release, and every rule that was broken.

    `ready`: only what somebody has built already.
    """
    _checked(situation, wish)
    window = window_of(situation)
    rejections = [*against_place(situation, wish), *cards_driven(situation, window)]
    if rejections or not situation.cards:
        return [], rejections
    if any(card.jetson for card in situation.cards) and (situation.jetpack or 0) < SERVERS_FROM:
        if wish.extensions:
            return [], [broken("package-wheel", Candidate(name="any PyTorch"), sentence=JETSON_WHEELS)]
        routes, rejections = jetson_routes(situation, wish)
        return [Ranked(route=route) for route in routes], rejections
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
        usual = _is_default(offer, situation.capabilities)
        found.append(Ranked(route=route, default_variant=usual, experimental=offer.experimental, jit=route.driver_jit))
    if ready:
        return found, rejections
    if not wish.extensions:
        built, broken_rules = _source_builds(situation, wish, window)
        found += built
        rejections += broken_rules
        found += [Ranked(route=route) for route in containers.routes(situation, wish, window)]
    found += _wsl(situation, wish, found)
    return found, rejections


def _checked(situation: Situation, wish: Wish) -> None:
    """A release or toolkit that is not in the data is an error of its own, with what is."""
    if wish.torch is not None and wish.torchvision is not None:
        _together(wish)
    if own := next((each for each in wish.extensions if programs.brings_torch(each)), None):
        line = rekindle("plan", "--for", own, *place_words(situation), system=situation.system)
        raise UsageError(f"{own} brings a torch of its own", hint=f"`{line}` plans for it")
    early = (each.torch for each in offers.old(situation.platform))
    if wish.torch is not None and not any(map(wish.admits, (*early, *releases.patches()))):
        raise not_released(wish.torch)
    if wish.cuda is not None:
        toolkits.toolkit(wish.cuda)
    if wish.cuda is not None and len(wish.cuda.parts) > 1:
        least = releases.oldest_cuda()
        if wish.torch is None and wish.cuda < least:
            message = f"no PyTorch since {releases.torch_releases()[0].minor} was built with CUDA {wish.cuda}"
            raise UnknownName(message, hint=f"{least} is the oldest; name an older release with `--torch`")


def _together(wish: Wish) -> None:
    """A torch and a torchvision that do not belong together are told so before anything is searched for."""
    made = companions.made_with("torchvision", wish.torchvision or "")
    alone = msgspec.structs.replace(wish, torchvision=None)
    if any(map(alone.admits, made)):
        return
    answer = belongs("torchvision", wish.torchvision or "", wish.torch or "")
    owners = " and ".join(sorted(made, key=Version))
    ours = f"torchvision {wish.torchvision} does not belong to torch {wish.torch}; it belongs to torch {owners}"
    message = answer.sentence if isinstance(answer, Clash) else ours
    raise UsageError(message, hint="leave `--torch` or `--torchvision` out")


def _offers(situation: Situation, wish: Wish, shelf: Sequence[Offer]) -> Iterable[Offer]:
    where = situation.platform
    free = situation.python if situation.python and situation.python.endswith("t") else None
    if wish.torch is None and wish.torchvision is None and free is None:
        yield from offers.official(where)
    else:
        for release in reversed(releases.torch_releases()):
            # A patch release may have dropped the free-threaded Python that the one before it had.
            having = [
                patch for patch, pythons in release.free_threaded.items() if free in pythons and wish.admits(patch)
            ]
            version = max(having, key=Version, default=None) or wish.version_of(release)
            if version is not None:
                yield from offers.official_of(version, where)
    if wish.extensions:
        return  # ready-made extensions are for PyTorch's own wheels
    yield from offers.old(where) if wish.torch is not None or wish.torchvision is not None else ()
    yield from offers.conda(where)
    yield from (offer for offer in shelf if offer.platform == where)
    yield from offers.community(where)


def _is_default(offer: Offer, cards: Sequence[Capability]) -> bool:
    """PyTorch's own line of the release; where the cards came after its CUDA, the newest line whose CUDA knows them."""
    lines = offers.official_of(offer.torch, offer.platform) if offer.variant else ()
    knowing = [each for each in lines if all(map(toolkits.toolkit(each.cuda).has_target, cards))]
    if not knowing or any(each.default_variant for each in knowing):
        return offer.default_variant
    return offer.variant == max(knowing, key=lambda each: (not each.experimental, each.cuda)).variant


def _source_builds(situation: Situation, wish: Wish, window: Window) -> tuple[list[Ranked], list[Rejection]]:
    """For every release the best toolkit to build it with."""
    usable, rejections = source_build.usable_toolkits(situation, window, wish)
    found: list[Ranked] = []
    for release in reversed(releases.torch_releases()):
        version = wish.version_of(release)
        if version is None:
            continue
        built, broken_rules = source_build.consider(release, version, usable, situation, wish)
        rejections += broken_rules
        if built:
            found.append(Ranked(route=built.route, proof=built.proof.rank, untried=built.proof.untried))
    return found, rejections


def _installed(situation: Situation, wish: Wish) -> list[Ranked]:
    """What is in the environment already, if its code runs on every card and its driver runs its CUDA."""
    have = situation.installed
    if have is None or have.cuda is None or not have.targets or not wish.admits(have.pin.release):
        return []
    if not wish.admits_cuda(have.cuda) or not extensions.pythons(have.pin, (situation.python,), situation, wish):
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
        answer.sentence
        for capability in situation.capabilities
        if have.cudnn is not None
        and isinstance(answer := cudnn_serves(have.cudnn, capability, cuda_major=have.cuda.major), Clash)
    )
    lower = _lower_numpy(have, situation.system)
    but = f"; NumPy {have.numpy} beside it is too new for it" if lower else ""
    route = Route(
        route=RouteKind.INSTALLED,
        torch=have.pin.release,
        variant=have.pin.variant,
        cuda=have.cuda,
        cudnn=have.cudnn,
        python=situation.python,
        driver=driving.words(),
        driver_detail=driving.detail,
        driver_jit=driving.jit,
        loses=loses,
        summary=f"torch {have.version}, which is installed already{but}",
        evidence=Evidence.BINARY,
        commands=lower,
        lacks=lacks(situation),
        targets=tuple(str(target) for target in whole),
    )
    return [Ranked(route=route)]


def _lower_numpy(have: Installed, system: str) -> tuple[Command, ...]:
    """The command that the installed torch needs before it works, where its NumPy is too new for it."""
    clash = have.numpy is not None and isinstance(takes_numpy(have.version, str(have.numpy), system), Clash)
    return (pip_install(["numpy<2"], system=system),) if clash else ()


def _wsl(situation: Situation, wish: Wish, found: list[Ranked]) -> list[Ranked]:
    """Linux inside Windows, where a ready-made build exists there and here only a build from source, or nothing."""
    if situation.system != "windows" or situation.wsl or any(is_ready(each.route) for each in found):
        return []
    if not wsl_can(situation):
        return []
    linux = Situation(system="linux", cards=situation.cards, arch=situation.arch)
    there, _ = candidates(linux, wish, ())
    for best in ranked(there, linux, wish):
        driving = _driving(best, situation) if is_ready(best) else None
        if driving is None:
            continue
        here = next((each for each in ranked(found, situation, wish) if each.loses), None)
        reason = f"on Windows: {here.loses[0]}" if here else "on Windows there is no ready-made build"
        route = msgspec.structs.replace(
            best,
            route=RouteKind.WSL,
            commands=_inside_wsl(best.commands, ("python3-venv", *prebuilt.packages_for(wish))),
            summary=f"in WSL 2 (or on Linux) {best.summary}",
            estimate=best.estimate and best.estimate.longer(costs.change("wsl")),
            why=(reason, *best.why),
            driver=f"{driving.words()}, on Windows: WSL 2 has none of its own",
            driver_detail=driving.detail,
            driver_jit=driving.jit,
        )
        return [Ranked(route=route)]
    return []


def _inside_wsl(commands: Sequence[Command], packages: Sequence[str]) -> tuple[Command, ...]:
    """From a prompt of Windows: a bare `pip` there would be the one of Windows. Ubuntu comes without the packages."""
    enter = ("wsl", "--cd", "~", "--exec")
    first = (
        ("wsl", "--install"),
        ("wsl", "-u", "root", "--exec", "apt-get", "update"),
        ("wsl", "-u", "root", "--exec", "apt-get", "install", "-y", *packages),
        (*enter, "python3", "-m", "venv", "torch-env"),
    )
    inside = (each.by_pip_of("torch-env/bin/python", "-m", "pip") for each in commands)
    return tuple(Command(*words, system="windows") for words in (*first, *((*enter, *each.words) for each in inside)))


def wsl_can(situation: Situation) -> bool:
    """Whether CUDA works in WSL 2 on these cards: Pascal or newer, and no card that Windows runs in TCC mode."""
    if not situation.capabilities or not has("wsl", min(situation.capabilities)):
        return False
    return not any(card.tcc for card in situation.cards)


def _driving(route: Route, situation: Situation) -> Driving | None:
    """WSL 2 runs on the driver of Windows, so that one must run the CUDA."""
    if route.cuda is None:
        return None
    candidate = Candidate(name="WSL 2", route=RouteKind.WSL)
    answer = drive(toolkits.toolkit(route.cuda), situation, window_of(situation), candidate)
    return None if isinstance(answer, Rejection) else answer


def against_place(situation: Situation, wish: Wish) -> list[Rejection]:
    """What rules this machine out whatever PyTorch is chosen: its C library, Python, Windows, what its cards lack."""
    candidate = Candidate(name="any PyTorch")
    found: list[Rejection] = []
    if situation.release is not None:
        found.append(broken("place-old-windows", candidate, release=situation.release))
    if situation.system == "windows" and situation.arch == "aarch64":
        found.append(broken("place-windows-arm", candidate))
    if situation.libc == "musl":
        found.append(broken("place-musl", candidate))
    elif situation.glibc is not None and situation.glibc < least_glibc():
        found.append(broken("place-old-glibc", candidate, glibc=situation.glibc, floor=least_glibc()))
    found += [
        broken("wsl-card", candidate, card=card.name, capability=max(card.capabilities))
        for card in situation.cards
        if situation.wsl and not has("wsl-at-all", max(card.capabilities))
    ]
    if situation.bits == 32:
        found.append(broken("place-32bit", candidate))
    return [*found, *_needs(situation, wish, candidate), *chain(*extensions.without_code(situation, wish).values())]


def _needs(situation: Situation, wish: Wish, candidate: Candidate) -> list[Rejection]:
    """What is wished for and no card of that capability has."""
    return [
        broken("card-need", candidate, row=row, card=card.name, capability=capability, need=row.name, floor=row.floor)
        for row in map(capabilities.need, wish.needs)
        for card in situation.cards
        for capability in card.capabilities
        if not has(row.id, capability)
    ]


SERVERS_FROM = 38
"""From this L4T on a board runs what is made for Arm servers."""
JETSON_WHEELS = "a Jetson runs NVIDIA's wheels for its JetPack: PyTorch's aarch64 wheels are for servers"


def jetson_routes(situation: Situation, wish: Wish) -> tuple[list[Route], list[Rejection]]:
    """The routes of a situation that has a Jetson, newest JetPack first. Nothing else is considered for one."""
    card = next(card for card in situation.cards if card.jetson)
    every = jetpacks(card.jetson or "")
    fitting = [each for each in every if situation.jetpack in (None, each.l4t)]
    fitting = [each for each in fitting if wish.admits(each.torch) and wish.admits_cuda(each.cuda)]
    if fitting:
        own = [each for each in fitting if each.python == situation.python]
        return [_jetson_route(each, card, situation) for each in own or fitting], []
    listed = ", ".join(f"{each.covers} with Python {each.python}, torch {each.torch}" for each in every) or "none"
    asked = [f"torch {wish.torch}"] if wish.torch else []
    asked += [f"CUDA {wish.cuda}"] if wish.cuda else []
    asked += [f"L4T R{situation.jetpack}"] if situation.jetpack else []
    why = f"none is for {' and '.join(asked)}" if asked and every else "there is none for it"
    return [], [broken("place-jetson", Candidate(name="any PyTorch"), card=card.name, jetpacks=listed, why=why)]


def _beside_jetson(jetpack: JetPack) -> tuple[Missing, ...]:
    """What NVIDIA's wheel needs and does not bring."""
    packages = ("git", *jetpack.packages)
    found = [
        Missing(
            what="apt",
            need=", ".join(packages),
            why="the wheel loads them, torchvision is built with them and needs Pillow",
            commands=(Command("sudo", "apt-get", "install", "-y", *packages, system="linux"),),
        )
    ]
    if jetpack.cusparselt:
        place = "libcusparseLt.so.0 of cuSPARSELt, in /usr/local/cuda/lib64"
        file = jetpack.cusparselt.rpartition("/")[2]
        lines = [
            ("wget", jetpack.cusparselt),
            ("tar", "-xf", file),
            ("sudo", "cp", "-a", f"{file.removesuffix('.tar.xz')}/lib/.", "/usr/local/cuda/lib64/"),
        ]
        steps = tuple(Command(*words, system="linux") for words in lines)
        found.append(Missing(what="cusparselt", need=place, why="JetPack does not bring it", commands=steps))
    return tuple(found)


def _jetson_route(jetpack: JetPack, card: Card, situation: Situation) -> Route:
    vision, its = to_build_for("torchvision", jetpack.torch, jetpack.python), release_for("torchvision", jetpack.torch)
    belongs = f"torchvision {vision} belongs to it and is built on the board"
    if vision != its:
        belongs = (
            f"torchvision {vision} is built on the board: {its}, which belongs to it, takes no Python {jetpack.python}"
        )
    typed = jetpack_release(situation.system_name or "")
    other = typed is not None and typed not in jetpack.covers
    first_update = f"first update {situation.system_name} to {jetpack.covers}; then " if other else ""
    # A JetPack's Python is on the board, whatever else was installed beside it.
    python = "python3" if situation.python in (None, jetpack.python) else f"python{jetpack.python}"
    # The pip of Ubuntu 18.04 does not know `--no-build-isolation`.
    first = [pip("install", "--upgrade", "pip", python=python)] if jetpack.python == "3.6" else []
    source = ("git", "clone", "--depth", "1", "--branch", f"v{vision}", "https://github.com/pytorch/vision")
    return Route(
        route=RouteKind.NVIDIA_WHEEL,
        torch=jetpack.torch,
        cuda=jetpack.cuda,
        python=jetpack.python,
        driver=f"the one of {jetpack.covers} (L4T R{jetpack.l4t})",
        location=jetpack.wheel,
        requirements=(jetpack.wheel,),
        commands=(
            *first,
            pip_install([jetpack.wheel], python=python, system=situation.system),
            Command(*source, system=situation.system),
            pip("install", "--no-deps", "--no-build-isolation", "./vision", python=python, system=situation.system),
        ),
        summary=(
            f"{first_update}NVIDIA's own wheel of torch {jetpack.torch} for {jetpack.covers} "
            f"with Python {jetpack.python} is made for {card.name}"
        ),
        why=(
            JETSON_WHEELS,
            f"{jetpack.covers} has Python {jetpack.python}; `cat /etc/nv_tegra_release` shows R{jetpack.l4t} there",
            f"{belongs}; the package index's has no GPU code for it",
        ),
        unverified=(
            "the wheel's address: NVIDIA's server was not asked for it here",
            "the build of torchvision there: nobody ran it for Rekindle",
        ),
        loses=jetpack.loses,
        missing=_beside_jetson(jetpack),
        lacks=lacks(situation),
        evidence=jetpack.evidence,
    )


READY = (
    RouteKind.INSTALLED,
    RouteKind.OFFICIAL_WHEEL,
    RouteKind.NVIDIA_WHEEL,
    RouteKind.CONDA_FORGE,
    RouteKind.SHELF,
)


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A route with what only the ranking asks for."""

    route: Route
    proof: int = 0
    untried: bool = False
    default_variant: bool = True
    experimental: bool = False
    jit: bool = True


def is_ready(route: Route) -> bool:
    return route.route in READY and not route.loses


def ranked(found: list[Ranked], situation: Situation, wish: Wish) -> list[Route]:
    """One route per kind and release, best first."""
    best: dict[tuple[RouteKind, str | None, str | None], Route] = {}
    for each in sorted(found, key=lambda one: _key(one, situation, wish)):
        best.setdefault((each.route.route, each.route.torch, each.route.builder), each.route)
    return list(best.values())


def _key(each: Ranked, situation: Situation, wish: Wish) -> tuple[object, ...]:
    route = each.route
    version = Version.parse(route.torch or "0")
    changed = situation.python is not None and route.python != situation.python
    cuda = route.cuda or Version("0")
    newest = tuple(-part for part in version.parts)
    # Of releases to build, one that somebody has built for such a card.
    taste: tuple[object, ...] = (each.proof == 2, each.untried and wish.prefer is not Prefer.NEWEST, newest)
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
    cost: tuple[object, ...] = (bool(route.loses), route.route.tier)
    if wish.prefer is Prefer.QUICKEST:
        cost = (route.route not in READY, bool(route.loses), route.route.tier)
    # A line that keeps torchvision and torchaudio, among lines that are as good.
    beside = [route.torchvision, route.torchaudio].count(None) if route.route is RouteKind.OFFICIAL_WHEEL else 0
    # None counts for whoever takes what others build.
    strangers = 0 if wish.community else len(route.strangers)
    # Its NVRTC and ptxas know the card: what is compiled while it runs is compiled for it.
    late = route.cuda is not None and not all(map(toolkits.toolkit(route.cuda).has_target, situation.capabilities))
    return (*cost, strangers, changed, *taste, not each.jit, beside, late, bool(route.unverified), line)
