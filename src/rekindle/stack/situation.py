"""What the resolver is asked: the situation (cards, system, driver, Python, tools) and the wish.

Both are plain values. A situation comes from a probed machine or from a name on the command line, where most of it is
not known: None means "not known", and then the answer says what is needed instead of what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.knowledge.builds.profiles import for_processor
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import Capability, Target

SYSTEMS = ("windows", "linux")


class Prefer(str, Enum):
    """Which of several routes that work as well is taken.

    `newest`: the newest release. `stable`: the newest whose wheel line is not experimental and whose pair of release
    and toolkit has been built before, one release behind the newest. `smallest`: the least to download and to build.
    """

    NEWEST = "newest"
    STABLE = "stable"
    SMALLEST = "smallest"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One card. Several capabilities: its name stands for several chips and nothing tells which one it is."""

    name: str
    capabilities: tuple[Capability, ...]
    architecture: str | None = None
    last_driver_branch: str | None = None
    count: int = 1
    """How many of it there are."""
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


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Where PyTorch is to run."""

    system: str
    cards: tuple[Card, ...]
    machine: str = "x86_64"
    driver: Version | None = None
    python: str | None = None
    glibc: Version | None = None
    cpu: tuple[str, ...] | None = None
    """Of `sse4.1`, `avx`, `avx2`, `avx512`; None when not known."""
    installed: Installed | None = None
    conda: bool | None = None
    wsl: bool = False
    cores: int | None = None
    memory: int | None = None
    disk: int | None = None
    toolkits: tuple[Version, ...] | None = None
    toolsets: tuple[Version, ...] | None = None
    gcc: tuple[int, ...] | None = None
    cudnns: tuple[Version, ...] | None = None
    ninja: Version | None = None
    here: bool = False
    """It is the machine that asks, or a snapshot of one, so that what it lacks can be named."""

    @property
    def profile(self) -> str:
        """The profile of a build that this machine can run."""
        return for_processor(self.cpu if self.machine == "x86_64" else None)

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return tuple(sorted({capability for card in self.cards for capability in card.capabilities}))


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. None: the resolver decides."""

    torch: str | None = None
    """A version, or a beginning of one: `2.7.1`, `2.7`."""
    cuda: Version | None = None
    toolset: Version | None = None
    profile: str | None = None
    prefer: Prefer = Prefer.NEWEST
    community: bool = False
    """A wheel that somebody else built may be recommended."""
    configured_index: bool = False
    """Only wheels of the package index that pip is configured for, not PyTorch's own."""

    def admits_cuda(self, cuda: Version) -> bool:
        """`12` admits every 12.x, `12.6` and `12.6.85` admit 12.6."""
        wanted = self.cuda.parts[:2] if self.cuda else ()
        return cuda.parts[: len(wanted)] == wanted

    def admits(self, torch: str) -> bool:
        if self.torch is None:
            return True
        wanted = self.torch.removeprefix("v").partition("+")[0]
        return torch == wanted or torch.startswith(f"{wanted}.")


def cards_named(queries: Sequence[str]) -> tuple[Card, ...]:
    """The cards of names, PCI ids, `sm_XX`, or lists of them, each with all capabilities it may have."""
    return tuple(_card(match) for match in gpus.find_all(queries))


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
        notes=match.notes,
    )


def named(
    queries: Sequence[str],
    *,
    system: str,
    driver: str | None = None,
    python: str | None = None,
    machine: str = "x86_64",
) -> Situation:
    """The situation of cards that were only named: nothing else is known of the machine."""
    return Situation(
        system=system,
        machine=machine,
        cards=cards_named(queries),
        driver=version_of(driver, "--driver"),
        python=python_of(python),
    )


def version_of(text: str | None, option: str) -> Version | None:
    """What an option says, or None where it was not given."""
    example = {"--driver": "550.54.14", "--cuda": "12.6", "--toolset": "14.39"}.get(option, "11.8")
    return typed(text, f"`{option}`", example) if text is not None else None


def python_of(text: str | None) -> str | None:
    """`3.11` of `3.11`, `3.11.9` or `cp311`."""
    if text is None:
        return None
    plain = text.strip().lower().removeprefix("python").removeprefix("py")
    if plain.startswith("cp3") and plain[2:].isdigit():
        plain = f"3.{plain[3:]}"
    parts = plain.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]) or int(parts[0]) != 3:
        message = f"`{text[:40]}` is not a Python version"
        raise UsageError(message, hint="write `--python 3.11`")
    return f"3.{int(parts[1])}"
