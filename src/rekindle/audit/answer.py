"""What an audit answers. Kept apart from how it is found, which takes longer to import than an answer to read."""

from __future__ import annotations

import msgspec

from rekindle.core.codec import JsonAnswer
from rekindle.core.command import Command
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.machine.model import InstalledTorch
from rekindle.model.card import NamedCard
from rekindle.model.environment import Environment


def label(card: NamedCard, cards: tuple[NamedCard, ...]) -> str:
    """A card's name, with its architecture where several chips were sold under the same one."""
    same = sum(other.name == card.name for other in cards) > 1
    return f"{card.name} ({card.capability.sm})" if same else card.name


class MendingStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to some packages, and why: the commands in their order."""

    packages: tuple[str, ...]
    reasons: tuple[str, ...]
    commands: tuple[Command, ...]


class AuditedModule(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled module that has GPU code, uses torch, or has something wrong with it."""

    path: str
    distribution: str | None
    version: str | None
    size: int
    targets: dict[str, int]
    coverage: dict[str, str]
    uses_torch: bool
    stable_abi: bool
    state: State
    findings: tuple[Finding, ...]


class Audit(msgspec.Struct, JsonAnswer, frozen=True, kw_only=True):
    """The answer of `rekindle audit`. `examined` counts all compiled modules, listed or not.

    `steps` mend it, in this order; the findings have no commands of their own that could contradict them.
    """

    schema: str = "rekindle.audit/1"
    environment: Environment
    torch: InstalledTorch | None
    cards: tuple[NamedCard, ...]
    driver: Version | None
    examined: int
    modules: tuple[AuditedModule, ...]
    findings: tuple[Finding, ...]
    steps: tuple[MendingStep, ...]
    state: State
