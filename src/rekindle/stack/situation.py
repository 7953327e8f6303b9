"""What the resolver is asked: the situation (cards, system, driver, Python, tools) and the wish.

Both are plain values. A situation comes from a probed machine or from a name on the command line, where most of it is
not known: None means "not known", and then the answer says what is needed instead of what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from rekindle.core import codec
from rekindle.core.errors import UsageError, did_you_mean
from rekindle.core.version import Range, Version
from rekindle.inputs.driver import read_driver
from rekindle.inputs.package import read_extension
from rekindle.inputs.system import read_system
from rekindle.inputs.torch import read_torchvision, with_cuda
from rekindle.inputs.versions import read_python, read_toolset
from rekindle.knowledge.builds import costs
from rekindle.knowledge.builds.profiles import for_processor
from rekindle.knowledge.gpu import capabilities, gpus, jetson
from rekindle.knowledge.tables import cached_questions
from rekindle.knowledge.torch import companions
from rekindle.knowledge.torch.releases import TorchRelease, torch_releases
from rekindle.model.card import Capability, NamedCard, Target
from rekindle.model.driver import Driver
from rekindle.model.platform import Platform
from rekindle.model.torch_pin import TorchPin

SYSTEMS = ("windows", "linux")
PROFILES = ("fast", "compat", "minimal")


class Prefer(str, Enum):
    """Which of several routes that work as well is taken.

    `cheapest`: the least time, with changes that a person can make and with what a loss is worth counted in minutes.
    `newest`: the newest release that loses nothing. `quickest`: what is ready in minutes, even where it loses
    something. `complete`: what loses nothing, even where it takes hours. `stable`: the newest whose wheel line is not
    experimental and whose pair of release and toolkit has been built before, one release behind the newest.
    `smallest`: the least to download and to build. `no-admin`: the cheapest without another driver, WSL or packages of
    the system, where there is a way without them.
    """

    CHEAPEST = "cheapest"
    NEWEST = "newest"
    QUICKEST = "quickest"
    COMPLETE = "complete"
    STABLE = "stable"
    SMALLEST = "smallest"
    NO_ADMIN = "no-admin"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One card. Several capabilities: its name stands for several chips and nothing tells which one it is."""

    name: str
    capabilities: Annotated[tuple[Capability, ...], msgspec.Meta(min_length=1, max_length=32)]
    architecture: str | None = None
    last_driver_branch: str | None = None
    tcc: bool = False
    """Windows runs it without a display (TCC), where WSL 2 cannot reach it."""
    count: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """How many of it there are."""
    guest: bool = False
    """A part of a card that a hypervisor hands to a virtual machine: its driver is the host's affair."""
    slice: bool = False
    """A part of a card as MIG divides it."""
    jetson: str | None = None
    """The chip of a Jetson board."""
    few_cores: int | None = None
    """The most cores that it has, where it computes about as much as a processor; None of every other card."""
    notes: tuple[str, ...] = ()
    """What was assumed about its name."""

    @property
    def ambiguous(self) -> bool:
        return len(self.capabilities) > 1


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The torch that is in the environment already. `targets` None: its GPU code has not been read."""

    version: str
    cuda: Version | None = None
    cudnn: Version | None = None
    targets: tuple[Target, ...] | None = None
    partial: tuple[Target, ...] = ()
    numpy: Version | None = None
    """The NumPy beside it."""

    @property
    def pin(self) -> TorchPin:
        return TorchPin.parse(self.version)


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Where PyTorch is to run."""

    system: str
    cards: tuple[Card, ...]
    arch: str = msgspec.field(default="x86_64", name="machine")
    arch_note: str | None = msgspec.field(default=None, name="machine_note")
    driver: Version | None = None
    no_driver: bool = False
    """It was looked for, and none runs there."""
    python: str | None = None
    """`3.11`, or `3.13t` for a free-threaded one."""
    bits: int | None = None
    """Of the Python."""
    release: str | None = None
    """Which Windows, where that matters: `7`."""
    system_name: str | None = None
    """As it was said, where that was more than `linux`: `Ubuntu 22.04`."""
    system_note: str | None = None
    libc: str | None = None
    """`glibc` or `musl`."""
    glibc: Version | None = None
    jetpack: int | None = None
    """The major release of L4T that a Jetson runs."""
    distribution: str | None = None
    """`ubuntu`, `debian`, `fedora`, `arch`, `nixos`, `suse`: whose driver packages are meant."""
    driver_note: str | None = None
    cpu: tuple[str, ...] | None = None
    """Of `sse4.1`, `avx`, `avx2`, `avx512`; None when not known."""
    installed: Installed | None = None
    conda: bool | None = None
    wsl: bool = False
    cores: int | None = None
    """What compiles may run on, threads counted one by one."""
    physical_cores: int | None = None
    memory: int | None = None
    disk: int | None = None
    toolkits: tuple[Version, ...] | None = None
    toolsets: tuple[Version, ...] | None = None
    gcc: tuple[int, ...] | None = None
    cudnns: tuple[Version, ...] | None = None
    ninja: Version | None = None
    here: bool = False
    """It is the machine that asks, or a snapshot of one, so that what it lacks can be named."""
    recorded: str | None = None
    """The snapshot that it was read from."""

    @property
    def platform(self) -> Platform:
        return Platform(self.system, self.arch)

    @property
    def driver_system(self) -> str:
        """By whose numbers the driver counts: inside WSL it is the Windows one."""
        return "windows" if self.wsl else self.system

    @property
    def driven_by(self) -> Driver | None:
        return Driver(self.driver, self.driver_system) if self.driver else None

    def in_image(self, *, python: str | None, glibc: Version | None = None) -> Situation:
        """In a container on it: the cards and their driver are the machine's, all the rest is the image's."""
        own = {"bits": None, "release": None, "libc": None, "installed": None, "conda": None, "here": False}
        return msgspec.structs.replace(self, python=python, glibc=glibc, **own)

    @property
    def profile(self) -> str:
        """The profile of a build that this machine can run."""
        return for_processor(self.cpu if self.arch == "x86_64" else None)

    @property
    def named_cards(self) -> tuple[NamedCard, ...]:
        """Each card with each chip that its name stands for."""
        every = (NamedCard(name=card.name, capability=one) for card in self.cards for one in card.capabilities)
        return tuple(dict.fromkeys(every))

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        # Asked for at every candidate; most questions are about one card.
        if len(self.cards) == 1 and not self.cards[0].ambiguous:
            return self.cards[0].capabilities
        return tuple(sorted({capability for card in self.cards for capability in card.capabilities}))

    def each_chip(self) -> list[Situation]:
        """Itself, once with each chip that its first card of several may have."""
        unsure = next(card for card in self.cards if card.ambiguous)
        alone = (msgspec.structs.replace(unsure, capabilities=(one,)) for one in unsure.capabilities)
        return [
            msgspec.structs.replace(self, cards=tuple(known if card is unsure else card for card in self.cards))
            for known in alone
        ]

    @property
    def oldest(self) -> Capability:
        return min(self.capabilities)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. None: the resolver decides."""

    torch: str | None = None
    """A version, or a beginning of one: `2.7.1`, `2.7`."""
    cuda: Version | None = None
    toolset: Version | None = None
    profile: str | None = None
    prefer: Prefer = Prefer.CHEAPEST
    community: bool = False
    """A wheel that somebody else built may be recommended."""
    configured_index: bool = False
    """Only wheels of the package index that pip is configured for, not PyTorch's own."""

    torchvision: str | None = None
    """A version or range of torchvision that the PyTorch must have been made with."""
    needs: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """What the card must be able to do: `bf16`, `compile`."""
    extensions: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Those that a ready-made wheel must exist of: `flash-attn`."""

    @property
    def words(self) -> tuple[str, ...]:
        """What every other of our commands must be asked, too."""
        return ("--needs", ",".join(self.needs)) if self.needs else ()

    def admits_cuda(self, cuda: Version) -> bool:
        """`12` admits every 12.x, `12.6` and `12.6.85` admit 12.6."""
        wanted = self.cuda.parts[:2] if self.cuda else ()
        return cuda.parts[: len(wanted)] == wanted

    def admits(self, torch: str) -> bool:
        if self.torch is not None and not _range(self.torch).holds(torch):
            return False
        return self.torchvision is None or torch in companions.made_with("torchvision", self.torchvision)

    def version_of(self, release: TorchRelease) -> str | None:
        """The patch release to take of a minor one: the newest that is admitted; None when none is."""
        if self.torch is None and self.torchvision is None:
            return release.newest
        return _newest_of(self.torch, self.torchvision)[release.minor]


class TypedWish(msgspec.Struct, frozen=True, kw_only=True):
    """The same as people type it: on the command line, or as words of the library."""

    torch: str | None = None
    cuda: str | None = None
    torchvision: str | None = None
    toolset: str | None = None
    profile: str | None = None
    needs: Sequence[str] = ()
    """Each may name several: `bf16,compile`."""
    extensions: Sequence[str] = ()
    prefer: str = Prefer.CHEAPEST.value
    community: bool = False
    configured_index: bool = False

    @property
    def wish(self) -> Wish:
        torch, line = with_cuda(self.torch, self.cuda)
        wants = tuple(dict.fromkeys(one.strip() for each in self.needs for one in each.split(",")))
        for one in wants:
            _one_of(one, "--needs", [each.id for each in capabilities.needs()])
        _one_of(self.prefer, "--prefer", [each.value for each in Prefer])
        _one_of(self.profile or PROFILES[0], "--profile", PROFILES)
        return Wish(
            torch=torch.wanted,
            torchvision=read_torchvision(self.torchvision) if self.torchvision is not None else None,
            cuda=line,
            toolset=read_toolset(self.toolset) if self.toolset is not None else None,
            profile=self.profile,
            needs=wants,
            extensions=tuple(dict.fromkeys(read_extension(one) for each in self.extensions for one in each.split(","))),
            prefer=Prefer(self.prefer),
            community=self.community,
            configured_index=self.configured_index,
        )


def _one_of(said: str, option: str, known: Sequence[str]) -> None:
    if said not in known:
        every = ", ".join(f"`{each}`" for each in known)
        raise UsageError(f"`{option}` has no `{said[:40]}`", hint=f"{did_you_mean(said, known)}it takes {every}")


@cached_questions
def _newest_of(torch: str | None, torchvision: str | None) -> dict[str, str | None]:
    """By minor release: the newest patch release that such a wish admits."""
    wish = Wish(torch=torch, torchvision=torchvision)
    return {
        row.minor: max(filter(wish.admits, row.patches), key=Version.parse, default=None) for row in torch_releases()
    }


@lru_cache(maxsize=64)
def _range(text: str) -> Range:
    return Range(text, "`--torch`")


def card_words(cards: Sequence[Card]) -> tuple[str, ...]:
    """The cards as options of another of our commands."""
    return tuple(word for card in cards for word in ("--gpu", gpus.spelled(card.name, card.capabilities)))


def place_words(situation: Situation, *, driver: bool = True) -> tuple[str, ...]:
    """The place as options of another of our commands: this computer needs none, a recorded one its file.

    `driver`: that command takes one.
    """
    if situation.recorded is not None:
        return ("--machine", situation.recorded)
    if situation.here:
        return ()
    name = "wsl" if situation.wsl else situation.system_name or situation.system
    arch = ("--arch", situation.arch) if situation.arch != "x86_64" else ()
    told = ("--driver", str(situation.driver)) if driver and situation.driver else ()
    return (*card_words(situation.cards), "--os", name, *arch, *told)


def cards_named(queries: Sequence[str], *, undecided: bool = False) -> tuple[Card, ...]:
    """The cards of names, PCI ids, `sm_XX`, or lists of them, each with all capabilities it may have."""
    return tuple(_card(match) for match in gpus.find_all(queries, undecided=undecided))


def _card(match: gpus.Match) -> Card:
    by_number = match.by is gpus.MatchedBy.CAPABILITY
    branches = {gpu.last_driver_branch for gpu in match.gpus}
    return Card(
        name=match.name,
        capabilities=match.capabilities,
        architecture=match.gpus[0].architecture if len({gpu.architecture for gpu in match.gpus}) == 1 else None,
        # A card's own list of drivers wins over its architecture's only where all its chips agree.
        last_driver_branch=branches.pop() if len(branches) == 1 and not by_number else None,
        count=match.count,
        guest=match.guest,
        slice=match.slice,
        notes=match.notes,
        **by_chips(match.gpus),
    )


def by_chips(found: Sequence[gpus.Gpu]) -> dict[str, Any]:
    """What a card's chips say of it, whoever named it."""
    chips = dict.fromkeys(gpu.chip for gpu in found)
    return {"jetson": next(filter(jetson.is_jetson, chips), None), "few_cores": costs.few_cores(chips)}


def situation_from_options(
    queries: Sequence[str],
    *,
    system: str,
    driver: str | None = None,
    python: str | None = None,
    machine: str | None = None,
) -> Situation:
    """The situation of cards that were only named: nothing else is known of the machine."""
    cards = cards_named(queries, undecided=True)
    if machine == "x86_64" and (bound := next((card for card in cards if _on_arm(card)), None)):
        message = f"{bound.name} comes with an Arm processor only, and `--arch {machine}` was said"
        raise UsageError(message, hint="leave `--arch` out")
    place = read_system(system)
    asked = read_driver(driver, place.driver_system) if driver is not None else None
    chosen = read_python(python) if python is not None else None
    return codec.like(
        Situation,
        place,
        system_name=place.spoken,
        system_note=place.note,
        jetpack=place.l4t,
        arch=machine or machine_of(cards),
        cards=cards,
        driver=asked.driver.version if asked else None,
        driver_note=asked.note if asked else None,
        python=chosen.version if chosen else None,
        bits=chosen.bits if chosen else None,
    )


def machine_of(cards: Sequence[Card]) -> str:
    """A Jetson, a DGX Spark or a GH200 says by itself which processor it comes with."""
    return "aarch64" if any(map(_on_arm, cards)) else "x86_64"


def _on_arm(card: Card) -> bool:
    return card.jetson is not None or jetson.only_on_arm(card.name)
