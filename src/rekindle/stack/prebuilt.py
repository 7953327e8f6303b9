"""Builds that can be had ready-made, held against the cards, the driver, the Python and the system."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from rekindle.compat.companion import none_for
from rekindle.compat.driver_card import Window
from rekindle.compat.gpu_code import overall
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.compat.library_card import cudnn_evidence, cudnn_serves, last_cudnn, last_cudnn_of, math_serves
from rekindle.compat.old_wheels import nearly
from rekindle.compat.toolkit_card import compiles
from rekindle.compat.torch_python import among
from rekindle.compat.wheel_platform import loads
from rekindle.core.command import Command, ShellVariable, Word, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs, limits
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu.capabilities import need, on_boards_only
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import companions, wheel_platforms
from rekindle.model.card import Capability, Target
from rekindle.model.torch_pin import CPU
from rekindle.stack import estimates, extensions
from rekindle.stack.driver import Driving, drive
from rekindle.stack.offers import Offer
from rekindle.stack.route import (
    Missing,
    PythonChoice,
    Route,
    RuntimeSetting,
    choose_python,
    environment_folder,
    environment_note,
    environment_pip,
    environment_steps,
    index_words,
    lacks,
    numpy_pin,
    python_missing,
)
from rekindle.stack.rules import Candidate, Effect, Rejection, RouteKind, broken
from rekindle.stack.situation import Card, Prefer, Situation, Wish, card_words

BY_JIT = "wheel-jit"
_NOT_ON_WINDOWS = {"compile": "windows-triton", "nccl": "windows-nccl", "flash-attention": "windows-flash"}
"""The rule of a build that reaches a card only through PTX."""


def coverage(offer: Offer, capability: Capability) -> Coverage:
    """How far a build serves a card: SERVES only if every one of its GPU libraries does."""
    return overall(offer.served(code, capability).coverage for code in offer.code)


def consider(offer: Offer, situation: Situation, wish: Wish, window: Window) -> tuple[Route | None, list[Rejection]]:
    """The route this offer makes, or None; and every rule that rejected it or that it pays for."""
    candidate = Candidate(name=offer.label, route=offer.route, torch=offer.torch, cuda=offer.cuda)
    found: list[Rejection] = _place(offer, situation, wish, candidate)
    toolkit = toolkits.toolkit(offer.cuda)
    driving = drive(toolkit, situation, window, candidate)
    if isinstance(driving, Rejection):
        found.append(driving)
    found += extensions.missing(offer, situation, wish, candidate)
    if not offer.code:
        found.append(broken("wheel-unknown", candidate, row=offer.row, wheel=offer.label, system=situation.system))
    for card in situation.cards:
        for capability in card.capabilities:
            found += _code(offer, card, capability, driving, candidate)
            found += libraries(offer, card, capability, candidate)
    fatal = [each for each in found if each.kind is Effect.REJECTS]
    if isinstance(driving, Rejection) or fatal:
        # What it would have cost besides is of no interest any more.
        return None, fatal
    route = _route(offer, situation, wish, driving, found)
    if situation.python is not None and isinstance(
        answer := among(offer.torch, offer.pythons, situation.python), Clash
    ):
        found.append(broken("torch-python", candidate, row=offer.row, sentence=answer.sentence))
    return route, found


def _place(offer: Offer, situation: Situation, wish: Wish, candidate: Candidate) -> list[Rejection]:
    found: list[Rejection] = []
    if isinstance(answer := loads(offer.label, offer.glibc, situation.glibc), Clash):
        found.append(broken("wheel-glibc", candidate, row=offer.row, sentence=answer.sentence))
    if wish.configured_index and offer.route is RouteKind.OFFICIAL_WHEEL and not offer.on_configured_index:
        found.append(broken("wheel-index", candidate, wheel=offer.label))
    found += [*not_on_windows(situation, wish, candidate), *too_early(wish, candidate)]
    if offer.cpu_floor and situation.cpu is not None and offer.cpu_floor.lower() not in situation.cpu:
        found.append(broken("cpu-floor", candidate, row=offer.row, wheel=offer.label, floor=offer.cpu_floor))
    return found


def too_early(wish: Wish, candidate: Candidate) -> list[Rejection]:
    """What is wished for and began with a later PyTorch."""
    torch = candidate.torch and Version(candidate.torch)
    return [
        broken("torch-need", candidate, row=row, need=row.name, torch=candidate.torch, floor=row.torch)
        for row in map(need, wish.needs)
        if torch and row.torch and torch < row.torch
    ]


def not_on_windows(situation: Situation, wish: Wish, candidate: Candidate) -> list[Rejection]:
    """What is wished for and no PyTorch for Windows has, whoever built it."""
    if situation.system != "windows":
        return []
    return [broken(rule, candidate) for wanted, rule in _NOT_ON_WINDOWS.items() if wanted in wish.needs]


def _code(
    offer: Offer, card: Card, capability: Capability, driving: Driving | Rejection, candidate: Candidate
) -> list[Rejection]:
    """The GPU code of every library against one card. The largest library decides; the others cost what they lack."""
    if not offer.code:
        # Whatever is in it, its toolkit does not compile for a card older than all that it knows.
        answer = compiles(offer.cuda, capability, f"{card.name} ({capability.sm})")
        toolkit = toolkits.toolkit(offer.cuda)
        older = capability < min(target.capability for target in toolkit.plain)
        if not older or not isinstance(answer, Clash):
            return []
        return [broken("toolkit-target", candidate, row=toolkit, sentence=answer.sentence)]
    main = max(offer.code, key=lambda code: code.containers)
    words: dict[str, Any] = {"wheel": offer.label, "card": card.name, "capability": capability}
    state = offer.served(main, capability)
    if state.coverage is Coverage.NO:
        targets = ", ".join(str(target) for target in _usual(main))
        return [broken("wheel-code", candidate, row=offer.row, targets=targets, **words)]
    if state.coverage is Coverage.PARTIAL:
        runs = state.native + state.jit
        detail = f"{runs} of {state.containers} containers of {main.file}"
        rule = "cudnn-inside" if offer.cudnn_inside and nearly(runs, state.containers) else "wheel-code-partial"
        return [broken(rule, candidate, row=offer.row, detail=detail, **words)]
    found = [
        broken(
            "wheel-library",
            candidate,
            row=offer.row,
            library=code.file.rpartition("/")[2],
            detail=_lacking(offer, code, capability),
            operations=costs.operations(code.file.rpartition("/")[2]),
            **words,
        )
        for code in offer.code
        if code is not main and offer.served(code, capability).coverage is not Coverage.SERVES
    ]
    if state.jit:
        if isinstance(driving, Driving) and not driving.jit:
            return [*found, broken("wheel-jit-driver", candidate, cuda=offer.cuda, full=driving.need.full, **words)]
        if not isinstance(math_serves(offer.cuda, capability), Fits):
            return [*found, broken("math-unknown", candidate, row=offer.row, cuda=offer.cuda, **words)]
        found.append(broken(BY_JIT, candidate, row=offer.row, **words))
    return found


def libraries(offer: Offer, card: Card, capability: Capability, candidate: Candidate) -> list[Rejection]:
    """cuDNN and the math libraries that come with the build."""
    found: list[Rejection] = []
    if isinstance(math_serves(offer.cuda, capability), Clash):
        found.append(broken("math-code", candidate, cuda=offer.cuda, card=card.name, capability=capability))
    if isinstance(cudnn_inside(offer, capability), Clash):
        spoken = offer.cudnn or f"{offer.cudnn_pin} (any that the package admits)"
        last = last_cudnn(capability)
        ends = f"{last} was the last with it" if last else "no release before the newest has it"
        found.append(broken("cudnn-code", candidate, cudnn=spoken, card=card.name, capability=capability, last=ends))
    return found


def cudnn_inside(offer: Offer, capability: Capability) -> Judgement:
    """Of a conda package, which cuDNN it admits decides: conda chooses."""
    unknown = Unknown(missing="which cuDNN is inside, and whether it has code for the card")
    if offer.cudnn is not None:
        answer = cudnn_serves(offer.cudnn, capability, cuda_major=offer.cuda.major)
        # The rows were read off x86_64 files: they say nothing of a chip that is sold with an Arm processor only.
        arm = offer.machine != "x86_64" and on_boards_only(capability)
        return unknown if arm and isinstance(answer, Clash) else answer
    last = last_cudnn(capability)
    oldest = Version.parse(offer.cudnn_pin).major_minor if offer.cudnn_pin is not None else None
    return cudnn_serves(oldest, capability) if oldest and last is not None and last < oldest else unknown


def _lacking(offer: Offer, code: GpuCode, capability: Capability) -> str:
    state = offer.served(code, capability)
    return f"{state.containers - state.native - state.jit} of {state.containers} containers"


def _route(offer: Offer, situation: Situation, wish: Wish, driving: Driving, found: list[Rejection]) -> Route:
    choice = choose_python(situation, _pythons(offer, situation, wish), f"PyTorch {offer.torch}")
    official = offer.route is RouteKind.OFFICIAL_WHEEL
    # conda brings the Python with its package.
    made = msgspec.structs.replace(choice, changed=choice.changed and offer.route is not RouteKind.CONDA_FORGE)
    beside = _companions(offer, choice.python) if official else {}
    requirements = _requirements(offer, beside) if official else ()
    afterwards = _afterwards(offer, choice.python, beside) if official else ()
    conda = _conda_pins(offer, choice.python, situation) if offer.route is RouteKind.CONDA_FORGE else ()
    brought = extensions.brought(offer.pin, choice.python, situation, wish)
    numpy = numpy_pin(offer.torch, situation.system)
    rows = [offer.evidence, toolkits.toolkit(offer.cuda).evidence]
    of_cudnn = cudnn_evidence(offer.cudnn) if offer.cudnn else None
    why = [choice.why] if choice.why else []
    why += environment_note(situation, made)
    why += driving.loses
    if offer.note:
        why.append(offer.note)
    if offer.route is RouteKind.COMMUNITY:
        why.append(f"WHEEL in the commands is the file that {offer.location} gives you")
    if official:
        why += _left_out(offer, choice.python, (*beside, *(pin.partition("==")[0] for pin in afterwards)))
    if offer.evidence.confirmed and of_cudnn is not None and not of_cudnn.confirmed:
        why.append(f"not yet confirmed: which cards cuDNN {offer.cudnn} serves (known of versions before and after it)")
    return Route(
        route=offer.route,
        torch=offer.torch,
        variant=offer.variant,
        cuda=offer.cuda,
        cudnn=offer.cudnn,
        python=choice.python,
        driver=driving.words(by_jit=any(each.rule == BY_JIT for each in found)),
        driver_detail=driving.detail,
        driver_jit=driving.jit,
        arch_list=";".join(_arch_words(offer)),
        index_url=offer.index_url,
        torchvision=beside.get("torchvision"),
        torchaudio=beside.get("torchaudio"),
        numpy=numpy,
        builder=offer.builder,
        strangers=tuple(f"{name} ({file.by})" for name, file in brought.items() if file and file.stranger),
        location=offer.location,
        hashes=offer.hashes,
        requirements=requirements,
        afterwards=afterwards,
        conda=conda,
        commands=(
            *environment_steps(situation, made),
            *_commands(offer, made, numpy, conda or requirements, situation),
            *(environment_pip(situation, choice, "install", "--no-deps", pin) for pin in afterwards),
            *(environment_pip(situation, choice, "install", *file.words) for file in brought.values() if file),
        ),
        loses=tuple(dict.fromkeys(each.sentence for each in found if each.kind is Effect.COSTS)),
        evidence=Evidence.weakest([*rows, *([of_cudnn] if of_cudnn else [])]),
        why=tuple(why),
        settings=_settings(found),
        lacks=lacks(situation),
        unverified=(*_unverified(offer, situation), *extensions.unread(brought)),
        missing=(
            *python_missing(situation, made),
            *_conda_missing(offer, situation),
            *_community_missing(offer, situation),
            *_compiler_missing(situation, wish),
        ),
        estimate=estimates.ready_made(offer.route, situation.system),
        targets=tuple(str(target) for target in offer.targets),
        on_configured_index=offer.on_configured_index,
        consent=offer.route is not RouteKind.COMMUNITY,
        summary=_summary(offer),
    )


def _pythons(offer: Offer, situation: Situation, wish: Wish) -> tuple[str, ...]:
    """The Pythons to choose from: those with a torchvision, where no Python was named or torchvision is asked for."""
    asked = situation.python is not None and wish.torchvision is None
    pythons = extensions.pythons(offer.pin, offer.pythons, situation, wish)
    if offer.route is not RouteKind.OFFICIAL_WHEEL or offer.torchvision is not None or asked:
        return pythons
    line = offer.variant or CPU
    row = companions.companion("torchvision", offer.torch, offer.platform, line=line, python=None)
    both = tuple(each for each in pythons if row is not None and each in row.pythons)
    return both or pythons


def _companions(offer: Offer, python: str | None) -> dict[str, str]:
    """torchvision and torchaudio for this line, Python and platform, as far as there are any."""
    if offer.torchvision is not None:
        return {"torchvision": offer.torchvision}
    found: dict[str, str] = {}
    for project in companions.PROJECTS:
        row = companions.companion(project, offer.torch, offer.platform, line=offer.variant or CPU, python=python)
        if row is None and offer.on_configured_index:
            row = companions.without_gpu_code(project, offer.torch, offer.platform, python=python)
        found |= {project: row.version} if row else {}
    return found


def _afterwards(offer: Offer, python: str | None, beside: Collection[str]) -> tuple[str, ...]:
    """A companion that goes with every line, and is not on the index of this one."""
    rows = (
        companions.without_gpu_code(project, offer.torch, offer.platform, python=python)
        for project in companions.PROJECTS
        if project not in beside and not offer.on_configured_index
    )
    return tuple(f"{row.project}=={row.version}" for row in rows if row)


def _summary(offer: Offer) -> str:
    """What will be installed; how that is known is `Route.known_from`."""
    kind = {
        RouteKind.OFFICIAL_WHEEL: "the official wheel",
        RouteKind.CONDA_FORGE: "the package",
        RouteKind.SHELF: "the wheel",
        RouteKind.COMMUNITY: "the wheel",
    }.get(offer.route, "")
    return f"{kind} {offer.label}".strip()


def _usual(code: GpuCode) -> tuple[Target, ...]:
    """What most containers of a library were compiled for; a few hold code of their own, for newer cards only."""
    return max(code.groups, key=lambda group: group.count).targets


def _arch_words(offer: Offer) -> list[str]:
    """The targets as an architecture list: `3.7+PTX` where PTX is inside as well."""
    usual = _usual(max(offer.code, key=lambda code: code.containers))
    ptx = {(target.capability, target.suffix) for target in usual if target.ptx}
    cubins = [target for target in usual if not target.ptx]
    return [
        f"{target.capability}{target.suffix}{'+PTX' if (target.capability, target.suffix) in ptx else ''}"
        for target in cubins
    ]


def _commands(
    offer: Offer, choice: PythonChoice, numpy: str | None, requirements: tuple[str, ...], situation: Situation
) -> tuple[Command, ...]:
    if offer.route is RouteKind.CONDA_FORGE:
        return (Command("conda", "install", "-c", "conda-forge", *requirements, system=situation.system),)
    if offer.route is RouteKind.COMMUNITY:
        return _by_hand(offer, situation, choice)
    if offer.route is RouteKind.SHELF:
        return (environment_pip(situation, choice, "install", str(offer.location)),)
    index = () if offer.on_configured_index else index_words(offer.index_url, choice.python)
    first = (environment_pip(situation, choice, "install", numpy),) if numpy else ()
    return (*first, environment_pip(situation, choice, "install", *requirements, *index))


def _conda_pins(offer: Offer, python: str | None, situation: Situation) -> tuple[str, ...]:
    """What conda is asked for: the newest cuDNN with code for the oldest card, where there is one."""
    pins = [f"python={python}", f"pytorch={offer.torch}=cuda*", f"cuda-version={offer.cuda}"]
    last = last_cudnn_of(situation.capabilities)
    package = "libcudnn" if Version.parse(offer.torch) >= limits.since("libcudnn-package") else "cudnn"
    if last is not None and not isinstance(cudnn_inside(offer, min(situation.capabilities)), Clash):
        pins.append(f"{package}<={last}")
    return tuple(pins)


def _by_hand(offer: Offer, situation: Situation, choice: PythonChoice) -> tuple[Command, ...]:
    """Somebody else's wheel: looked into, made whole with the libraries it lacks, tried, and only then installed."""
    cards = card_words(situation.cards)
    made = environment_folder(situation, choice)
    toolkit = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{offer.cuda}"
    folders: list[Word] = [rf"{toolkit}\bin", rf"{toolkit}\extras\CUPTI\lib64"]
    if offer.cudnn is not None:
        folders.append(r"C:\Program Files\NVIDIA\CUDNN\bin")
    if any(word.startswith("mkl") for word in offer.beside):
        folders.append(rf"{made}Library\bin" if made else (ShellVariable("VIRTUAL_ENV"), r"\Library\bin"))
    brought = (environment_pip(situation, choice, "install", *offer.beside),) if offer.beside else ()
    repaired = (*(word for folder in folders for word in ("--from", folder)), "-o", "repaired")
    wheel = r"repaired\WHEEL"
    return (
        Command.page(str(offer.location)),
        *brought,
        rekindle("inspect", "WHEEL", *cards, system=situation.system),
        rekindle("repair", "WHEEL", *cards, *repaired, system=situation.system),
        rekindle("verify", wheel, *cards, system=situation.system),
        rekindle("install", *([made.rstrip("\\")] if made else []), "--wheel", wheel, *cards, system=situation.system),
    )


def _requirements(offer: Offer, beside: dict[str, str]) -> tuple[str, ...]:
    """torch and its companions, each with its pin."""
    local = f"+{offer.variant}" if offer.variant and not offer.on_configured_index else ""
    return (f"torch=={offer.torch}{local}", *(f"{project}=={version}{local}" for project, version in beside.items()))


def _left_out(offer: Offer, python: str | None, beside: Collection[str]) -> list[str]:
    """A companion that is not in the command, and why."""
    opened = offer.machine == "x86_64" or offer.on_configured_index
    found = {
        name: none_for(name, offer.torch, offer.platform, line=offer.variant or CPU, python=python, opened=opened)
        for name in companions.PROJECTS
        if name not in beside
    }
    return [
        f"{name} is left out: {why.sentence if isinstance(why, Clash) else why.missing}" for name, why in found.items()
    ]


def _settings(found: list[Rejection]) -> tuple[RuntimeSetting, ...]:
    """A cuDNN without code for a card has to be switched off before the first convolution."""
    without = next((each for each in found if each.rule == "cudnn-code"), None)
    if without is None:
        return ()
    return (RuntimeSetting(code="torch.backends.cudnn.enabled = False", why=without.sentence),)


def _unverified(offer: Offer, situation: Situation) -> tuple[str, ...]:
    found: list[str] = []
    if offer.route is RouteKind.SHELF and not offer.evidence.confirmed:
        found.append(
            "what is in the wheel, and that it is not withdrawn: its shelf says so, and no key that you trust signed it"
        )
    if offer.route is RouteKind.COMMUNITY:
        found.append("the folders in the command: they are the usual ones, and nobody looked at this machine")
        found.append(f"what is inside the wheel: {offer.builder} says so, and the file was not opened here")
    old = situation.cpu is not None and situation.arch == "x86_64" and "avx" not in situation.cpu
    if offer.route is RouteKind.SHELF and old and offer.wheel is not None and offer.wheel.cpu is None:
        found.append("which processor the wheel was built for: this one has no AVX, and the wheel does not say")
    boards = [each for each in situation.capabilities if on_boards_only(each)]
    if any(each not in {target.capability for target in offer.targets} for each in boards):
        found.append("that a board runs code for cards: NVIDIA promises it of newer cards alone")
    unknown = [each for each in situation.capabilities if isinstance(cudnn_inside(offer, each), Unknown)]
    if unknown and offer.route is not RouteKind.CONDA_FORGE:
        found.append("which cuDNN is inside, and whether it has code for the card")
    if unknown and offer.route is RouteKind.CONDA_FORGE:
        found.append("which cuDNN conda chooses; the command holds it to one with code for the card")
    if any(isinstance(math_serves(offer.cuda, each), Unknown) for each in situation.capabilities):
        found.append(f"whether cuBLAS and the other libraries of CUDA {offer.cuda} have code for the card")
    return tuple(found)


def driver_page() -> tuple[Command, ...]:
    return (Command.page("https://www.nvidia.com/en-us/drivers/"),)


def packages_for(wish: Wish, python: str | None = None) -> tuple[str, ...]:
    """What Debian and Ubuntu have to bring for it: Triton compiles a small C file when it first runs.

    `python`: another one than the system's own.
    """
    return ("gcc", f"python{python}-dev" if python else "python3-dev") if "compile" in wish.needs else ()


def _compiler_missing(situation: Situation, wish: Wish) -> tuple[Missing, ...]:
    """Said where nobody has looked at the machine."""
    own = wheel_platforms.own_python(situation.system_name) if situation.system_name else None
    other = situation.python if situation.python and own and situation.python.rstrip("t") != own else None
    packages = packages_for(wish, other)
    if not packages or situation.system != "linux" or situation.gcc:
        return ()
    alone = wish.prefer is Prefer.NO_ADMIN
    known = situation.distribution in (None, "ubuntu", "debian") and not alone
    install = (Command("sudo", "apt-get", "install", "-y", *packages, system="linux"),) if known else ()
    why = "torch.compile compiles a small C file when it first runs"
    why += "; an environment of conda's with `gxx` has both, without an administrator" if alone else ""
    return (Missing(what="compiler", need="gcc and Python's headers", why=why, commands=install),)


def _community_missing(offer: Offer, situation: Situation) -> tuple[Missing, ...]:
    """The toolkit and cuDNN whose DLLs the wheel loads and does not bring; `repair` takes them from there."""
    if offer.route is not RouteKind.COMMUNITY:
        return ()
    found = []
    if not any(each.starts_with(offer.cuda) for each in situation.toolkits or ()):
        found.append(
            Missing(
                what="toolkit",
                need=f"CUDA {offer.cuda}",
                why="the wheel loads its DLLs and does not bring them; install it without the driver that it offers",
                commands=(Command.page("https://developer.nvidia.com/cuda-toolkit-archive"),),
            )
        )
    if offer.cudnn is not None and not any(each.starts_with(offer.cudnn) for each in situation.cudnns or ()):
        found.append(
            Missing(
                what="cudnn",
                need=f"cuDNN {offer.cudnn} for CUDA {offer.cuda.major}",
                why="the wheel loads its DLLs and does not bring them",
                commands=(Command.page("https://developer.nvidia.com/rdp/cudnn-archive"),),
            )
        )
    return tuple(found)


def _conda_missing(offer: Offer, situation: Situation) -> tuple[Missing, ...]:
    if offer.route is not RouteKind.CONDA_FORGE or situation.conda:
        return ()
    return (
        Missing(
            what="conda",
            need="conda, mamba or pixi",
            why="conda-forge packages are installed by conda",
            commands=(Command.page("https://conda-forge.org/download/"),),
        ),
    )
