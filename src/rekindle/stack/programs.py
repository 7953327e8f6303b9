"""Which release of vLLM, llama.cpp, ONNX Runtime … runs on these cards: what `rekindle plan --for` answers.

The rows say what code a release has; card, driver, cuDNN and PyTorch are judged where they always are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rekindle.compat.extension_torch import same_cuda
from rekindle.compat.feature_card import has
from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import last_cudnn_of
from rekindle.compat.torch_python import spread
from rekindle.core.codec import JsonAnswer
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Version
from rekindle.knowledge.builds import extension_files
from rekindle.knowledge.builds.programs import (
    OtherProgram,
    ProgramRelease,
    known,
    notes_of,
    portable,
    program,
    programs,
    releases,
    releases_as,
)
from rekindle.knowledge.cuda.toolkits import toolkit
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.knowledge.gpu.capability import Runs
from rekindle.knowledge.logs.extension_homes import home_of_folder
from rekindle.knowledge.tables import Evidence
from rekindle.model.platform import WINDOWS
from rekindle.model.torch_pin import TorchPin
from rekindle.stack import offers, prebuilt
from rekindle.stack.driver import drive, window_of
from rekindle.stack.resolver import resolve
from rekindle.stack.route import (
    PythonChoice,
    Route,
    choose_python,
    environment_note,
    environment_pip,
    environment_steps,
)
from rekindle.stack.rules import Candidate, Rejection, RouteKind
from rekindle.stack.situation import Situation, Wish, card_words, place_words


class TooNew(msgspec.Struct, frozen=True, kw_only=True):
    """A newer release, and what speaks against it."""

    version: str
    reason: str
    source: str
    evidence: Evidence


class ProgramAnswer(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle plan --for`. `version` None: no release that the tables know runs there."""

    schema: str = "rekindle.program/1"
    program: str
    situation: Situation
    version: str | None
    newest: bool = False
    """No newer release is known."""
    commands: tuple[Command, ...] = ()
    requirements: tuple[str, ...] = ()
    """What pip is asked for in them."""
    by_jit: bool = False
    """The driver compiles its code when it starts."""
    driver: str | None = None
    pythons: tuple[str, ...] = ()
    cuda: Version | None = None
    notes: tuple[str, ...] = ()
    page: str
    source: str
    evidence: Evidence
    too_new: tuple[TooNew, ...] = ()

    @property
    def known_from(self) -> str:
        """How it is known, with the address to look at where nobody opened the files."""
        if self.evidence.confirmed:
            return f"{self.evidence.phrase}: {self.source}"
        return f"UNVERIFIED: {self.source}; see {self.page}"

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text, in the order they are shown."""
        jit = " (it compiles the code at the first start)" if self.by_jit else ""
        rows = [("driver", self.driver + jit)] if self.driver else []
        rows += [("Python", spread(self.pythons))] if self.pythons else []
        rows += [("note", note) for note in self.notes if self.version]
        return (*rows, ("known from", self.known_from))


class BesideTorch(NamedTuple):
    """What is settled where a program goes into an environment that has a torch."""

    python: str | None
    cuda: Version | None


def for_program(name: str, situation: Situation, beside: BesideTorch | None = None) -> ProgramAnswer:
    """The newest release of a program that runs on these cards, and beside that torch where there is one."""
    if known(name) is None and home_of_folder(name) is not None:
        raise _an_extension(name, situation)
    if any(card.ambiguous for card in situation.cards):
        every = [for_program(name, alone, beside) for alone in situation.each_chip()]
        if len({(each.version, each.commands) for each in every}) > 1:
            match = gpus.find(next(card.name for card in situation.cards if card.ambiguous))
            raise UsageError(gpus.several_chips(match), hint=gpus.which_chip(match))
        return msgspec.structs.replace(every[0], situation=situation)
    row = program(name)
    if row.torch is not None:
        return _by_torch(row, situation)
    here = _here(name, situation)
    if not here or any(card.jetson for card in situation.cards):
        return _elsewhere(row, situation)
    refused: dict[str, TooNew] = {}
    for release in here:
        found = _considered(row, release, situation, beside)
        if isinstance(found, ProgramAnswer):
            refused.pop(release.version, None)  # a second row of it knows of more cards
            driver = _newer_driver(row, situation, found.version, beside) if refused else ()
            notes = (*driver, *found.notes)
            return msgspec.structs.replace(found, newest=not refused, notes=notes, too_new=tuple(refused.values()))
        refused[release.version] = TooNew(
            version=release.version, reason=found, source=release.source, evidence=release.evidence
        )
    last = [*refused.values()][-1]
    return ProgramAnswer(
        program=row.id,
        situation=situation,
        version=None,
        notes=_newer_driver(row, situation, None, beside) or (row.otherwise, *_by_others(row, situation)),
        page=row.page,
        source=last.source,
        evidence=Evidence.weakest(each.evidence for each in refused.values()),
        too_new=tuple(refused.values()),
    )


def _here(name: str, situation: Situation) -> list[ProgramRelease]:
    """The releases that have a build for such a computer."""
    place = (situation.system, situation.arch)
    return [row for row in releases_as(name) if place in ((system, row.machine) for system in row.systems)]


def refused(release: ProgramRelease, situation: Situation) -> str | None:
    """What speaks against one release on these cards; None: it runs."""
    found = _considered(program(release.program), release, situation)
    return found if isinstance(found, str) else None


def _an_extension(name: str, situation: Situation) -> UnknownName:
    """What is compiled against torch is looked for with the torch of the plan."""
    best = resolve(situation, Wish()).recommended
    python = ("--python", best.python) if best.python else ()
    torch = ("--torch", best.version, *python) if best.torch else ()
    # Of the machine that asks, the environment says all of it.
    words = () if situation.here else (*place_words(situation, driver=False), *torch)
    find = rekindle("extension", "find", name, *words, system=situation.system)
    one_of = ", ".join(row.id for row in programs())
    hint = f"it is an extension of torch: `{find}` looks for its ready-made wheels"
    if situation.here:
        hint += f", and `{rekindle('install', '--with', name, system=situation.system)}` installs it with its torch"
    return UnknownName(f"`{name}` is not one of {one_of}", hint=hint)


def _newer_driver(
    row: OtherProgram, situation: Situation, version: str | None, beside: BesideTorch | None
) -> tuple[str, ...]:
    """The newer releases that only the driver is in the way of: the newest, and the newest with the oldest driver."""
    if situation.driver is None and not situation.no_driver:
        return ()
    free = msgspec.structs.replace(situation, driver=None, no_driver=False)
    newer = itertools.takewhile(lambda release: release.version != version, _here(row.id, situation))
    judged = (_considered(row, release, free, beside) for release in newer)
    found = [answer for answer in judged if isinstance(answer, ProgramAnswer)]
    if not found:
        return ()
    least = min(found, key=_floor)
    page = "https://www.nvidia.com/en-us/drivers/"
    return tuple(
        f"with driver {each.driver} ({page}) {row.id} {each.version} runs{_for_python(each, situation)}"
        for each in (found[0], *([least] if _floor(least) < _floor(found[0]) else []))
    )


def _floor(answer: ProgramAnswer) -> Version:
    return Version.find(answer.driver or "") or Version("0")


def _for_python(answer: ProgramAnswer, situation: Situation) -> str:
    """Where it is for another Python than the one that is there."""
    other = answer.pythons and situation.python and situation.python not in answer.pythons
    return f", with Python {answer.pythons[0]} to {answer.pythons[-1]}" if other else ""


def _by_others(row: OtherProgram, situation: Situation) -> Iterator[str]:
    """What others changed and built for the cards, as `extension find` proposes it."""
    for file in extension_files.files(row.id):
        fits = file.by and file.is_for(situation.platform)
        if fits and all(map(file.serves, situation.capabilities)):
            words = (*place_words(situation, driver=False), "--torch", file.builds[-1], "--python", file.pythons[-1])
            find = rekindle("extension", "find", row.id, *words, system=situation.system)
            yield f"{file.by} built {file.requirement} for it: `{find}` says more."


def _elsewhere(row: OtherProgram, situation: Situation) -> ProgramAnswer:
    """The tables have no build for such a computer. Windows runs what is for Linux only in WSL 2."""
    board = any(card.jetson for card in situation.cards)
    place = "a Jetson" if board else str(situation.platform)
    reason = f"no build of {row.id} for {place} is in the tables"
    answer = ProgramAnswer(
        program=row.id,
        situation=situation,
        version=None,
        notes=(row.jetson,) if row.jetson and board else (),
        page=row.page,
        source=row.source,
        evidence=row.evidence,
        too_new=(TooNew(version=releases(row.id)[0].version, reason=reason, source=row.source, evidence=row.evidence),),
    )
    if situation.platform != WINDOWS:
        return answer
    inside = for_program(row.id, msgspec.structs.replace(situation, system="linux", wsl=True))
    if inside.version is None:
        return msgspec.structs.replace(inside, situation=situation)
    driver = ("--driver", str(situation.driver)) if situation.driver else ()
    words = ("plan", "--for", row.id, *card_words(situation.cards), "--os", "wsl", *driver)
    old = [card.name for card in situation.cards if not has("wsl", max(card.capabilities))]
    doubt = [f"NVIDIA supports CUDA in WSL 2 for Pascal and newer: {name} may not work there." for name in old]
    found = f"Take WSL 2: {row.id} {inside.version} is for Linux; that command says what it needs there."
    return msgspec.structs.replace(answer, commands=(rekindle(*words, system="windows"),), notes=(found, *doubt))


def for_card(situation: Situation) -> tuple[ProgramAnswer, ...]:
    """Every program of the tables that has code of its own."""
    return tuple(for_program(row.id, situation) for row in programs() if row.torch is None)


def _considered(
    row: OtherProgram, release: ProgramRelease, situation: Situation, beside: BesideTorch | None = None
) -> ProgramAnswer | str:
    """The answer with this release, or the sentence that speaks against it."""
    name = f"{row.id} {release.version}"
    # What lasts comes first: another driver would not help there.
    lacking = next((card for card in situation.capabilities if release.serves(card) is Runs.NO), None)
    if lacking is not None:
        return f"{name} has no code that runs on {lacking.sm}: it begins with {min(release.targets)}"
    if beside and beside.python and release.pythons and beside.python not in release.pythons:
        return f"{name} is for Python {spread(release.pythons)}, not for {beside.python}"
    clash = same_cuda(name, release.cuda, beside.cuda) if beside and beside.cuda else None
    if isinstance(clash, Clash):
        return clash.sentence
    driving = drive(toolkit(release.cuda), situation, window_of(situation), Candidate(name=name, cuda=release.cuda))
    if isinstance(driving, Rejection):
        return f"{name}: {driving.sentence}"
    least = release.driver_for(situation.capabilities)
    if least and situation.driver and situation.driver < least:
        return f"{name} asks for driver {least} or newer, not {situation.driver}"
    if least and driving.need.floor < least:
        driving = msgspec.structs.replace(driving, need=msgspec.structs.replace(driving.need, floor=least))
    compiled = [card for card in situation.capabilities if release.serves(card) is not Runs.NATIVE]
    if compiled and not driving.jit:
        return f"{name} has no code that runs on {compiled[0].sm}: it begins with {min(release.targets)}"
    end = last_cudnn_of(situation.capabilities)
    cudnn = end.release if end else None
    if release.cudnn_from and cudnn and cudnn < release.cudnn_from:
        return f"{name} needs cuDNN {release.cudnn_from}; the last with code for the card is {cudnn}"
    # The wheel that pip takes with a program that pins it.
    its = TorchPin.parse(release.torch) if release.torch else None
    torch = its and _wheel_of(Wish(torch=its.release, configured_index=not its.variant), situation, its.variant)
    if release.torch and torch is None:
        return f"{name} asks for torch {release.torch}, whose wheel on the index does not serve the card"
    pin = f"{release.cudnn}=={cudnn}.*" if release.cudnn and cudnn else None
    asked = (*release.requirements, *([pin] if pin else []))
    notes = notes_of(release, situation.capabilities)
    if pin:
        notes.append(f"cuDNN {cudnn} is the last with code for the card: without the pin pip takes a newer one")
    notes += torch.loses if torch else ()
    if asked and (python := _python(release, situation)).changed:
        notes += [python.why, *environment_note(situation, python)]
    return ProgramAnswer(
        program=row.id,
        situation=situation,
        version=release.version,
        commands=_commands(release, situation, asked),
        requirements=asked,
        by_jit=bool(compiled),
        driver=driving.words(by_jit=bool(compiled)),
        pythons=release.pythons,
        cuda=release.cuda,
        notes=(*notes, *notes_of(row, situation.capabilities)),
        page=row.page,
        source=release.source + (f"; torch {torch.torch}: {torch.known_from}" if torch else ""),
        evidence=Evidence.weakest([release.evidence, *([torch.evidence] if torch else [])]),
    )


def _wheel_of(wish: Wish, situation: Situation, line: str | None = None) -> Route | None:
    """The official wheel of the release that is asked for, of this line where one is named."""
    every = offers.official_of(wish.torch or "", situation.platform)
    window = window_of(situation)
    fitting = (offer for offer in every if line in (None, offer.variant))
    routes = (prebuilt.consider(offer, situation, wish, window)[0] for offer in fitting)
    return next((route for route in routes if route is not None), None)


def _commands(release: ProgramRelease, situation: Situation, asked: tuple[str, ...]) -> tuple[Command, ...]:
    if release.build:
        numbers = ";".join(card.sm.removeprefix("sm_") for card in situation.capabilities)
        lines = ([word.replace("{numbers}", numbers) for word in line] for line in release.build)
        return tuple(Command(*line, system=situation.system) for line in lines)
    if not asked:
        return ()
    choice = _python(release, situation)
    install = environment_pip(situation, choice, "install", *asked)
    return (*environment_steps(situation, choice), install)


def _python(release: ProgramRelease, situation: Situation) -> PythonChoice:
    """The Python it goes into; another than the one that is there gets a folder by the program's name."""
    choice = choose_python(situation, release.pythons, f"{release.program} {release.version}")
    return msgspec.structs.replace(choice, folder=f"{release.program}-env")


def _by_torch(row: OtherProgram, situation: Situation) -> ProgramAnswer:
    """A program without GPU code of its own takes the PyTorch of the plan."""
    situation = msgspec.structs.replace(situation, python=situation.python or row.python)
    best = _its_own(row, situation) or resolve(situation, Wish(torch=row.torch)).recommended
    advice = [capabilities.advice(card) for card in situation.capabilities]
    wanted = [each.comfyui for each in dict.fromkeys(advice) if each and row.id == "comfyui"]
    flags = [f"flags: {each}" for each in (["--cpu"] if best.route is RouteKind.CPU_WHEEL else wanted)]
    plan = rekindle("plan", *place_words(situation), "--torch", str(row.torch), system=situation.system)
    served = best.route is not RouteKind.NONE
    return ProgramAnswer(
        program=row.id,
        situation=situation,
        version=f"with torch {best.torch}" if served else None,
        newest=served,
        commands=best.commands if best.route.ready_made else (plan,),
        driver=best.driver,
        pythons=(best.python,) if best.python else (),
        cuda=best.cuda,
        notes=(row.note, best.summary, *best.loses, *flags, *_folder(row, situation)) if served else (row.otherwise,),
        page=row.page,
        source=row.source,
        evidence=Evidence.weakest([row.evidence, best.evidence]),
    )


def _its_own(row: OtherProgram, situation: Situation) -> Route | None:
    """The PyTorch that the program installs by itself, where that serves the cards."""
    if row.brings is None:
        return None
    brings = TorchPin.parse(row.brings)
    # By itself it makes the environment with the Python that it is made for, whichever is there besides.
    own = msgspec.structs.replace(situation, python=row.python or situation.python)
    route = _wheel_of(Wish(torch=brings.release), own, brings.variant)
    if route is None or route.loses:
        return None
    if situation.python in (None, route.python) or not route.python:
        return route
    choice = choose_python(situation, (route.python,), f"PyTorch {brings.release}")
    install = environment_pip(situation, choice, "install", *route.requirements, *route.index_words)
    return msgspec.structs.replace(route, commands=(*environment_steps(situation, choice), install))


def _folder(row: OtherProgram, situation: Situation) -> tuple[str, ...]:
    """What there is to say of the folder that its makers publish; it brings a CUDA, which the driver has to run."""
    folder = portable(row.id, situation.system, situation.capabilities)
    inside = rekindle("install", "FOLDER", system=situation.system)
    done = f"in its folder `{inside}` does this, with the Python that is in there"
    if folder is None:
        return (done,)
    done += "; by hand there: `.\\python_embeded\\python.exe -s -m pip` in place of `pip`"
    driving = drive(toolkit(folder.cuda), situation, window_of(situation), Candidate(name=row.id, cuda=folder.cuda))
    if isinstance(driving, Rejection):
        return (done, f"not its makers' folder as it comes: {driving.sentence}")
    return (done, f"or take its makers' folder with everything in it: {folder.link}")
