"""Which distributions to build or install again, what they depend on first, with the command for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rekindle.audit.answer import AuditedCard, Rebuild
from rekindle.audit.cards import words
from rekindle.audit.contents import Contents, normal
from rekindle.compat.companion import release_for
from rekindle.core.command import Command, rekindle
from rekindle.core.findings import Finding, State
from rekindle.knowledge.builds import programs
from rekindle.knowledge.torch import companions
from rekindle.model.environment import Environment

# A finding of these is mended by building the module again; the others by something else.
_MENDED = {"audit.gpu-code", "audit.cuda-runtime", "audit.torch-symbols", "audit.python", "audit.changed"}


def install_command(environment: Environment, cards: Sequence[AuditedCard]) -> Command:
    """The command that puts a torch for these cards into this environment, with what belongs to that torch."""
    return rekindle("install", environment.root, *words(cards), system=environment.os)


def rebuild_list(
    found: Contents,
    judged: Iterable[tuple[str | None, Sequence[Finding]]],
    environment: Environment,
    cards: Sequence[AuditedCard],
    torch: str | None = None,
) -> tuple[Rebuild, ...]:
    """`torch` is the one that stays: a companion is built at the release that belongs to it."""
    reasons: dict[str, dict[str, None]] = {}
    for name, findings in judged:
        for finding in findings:
            wrong = finding.state in (State.FAIL, State.WARN) and finding.id in _MENDED
            if wrong and name and not normal(name).startswith("nvidia-"):
                reasons.setdefault(normal(name), {})[finding.id.removeprefix("audit.")] = None
    # A torch is installed with the torchvision and torchaudio that belong to it; those there now go with the old one.
    installed = {"torch", *companions.PROJECTS} if "torch" in reasons else set()
    rebuilt = ("--env", environment.root, *words(cards))
    entries = []
    for name in _ordered(found, list(reasons)):
        there = found.distributions[name]
        right = release_for(name, torch) if torch and name in companions.PROJECTS else None
        pin = f"{there.name}=={right or there.version.partition('+')[0]}"
        command = rekindle("extension", "build", pin, *rebuilt, system=environment.os)
        if row := programs.known(name):  # no extension of torch: another release of it is what helps
            command = rekindle("plan", "--for", row.id, *words(cards), system=environment.os)
        if name in installed:
            command = install_command(environment, cards)
        entries.append(
            Rebuild(distribution=there.name, version=there.version, reasons=tuple(reasons[name]), command=command)
        )
    return tuple(entries)


def _ordered(found: Contents, names: list[str]) -> list[str]:
    """Each after everything it requires; a circle is cut where it closes."""
    done: list[str] = []
    under_way: set[str] = set()

    def visit(name: str) -> None:
        if name in done or name in under_way:
            return
        under_way.add(name)
        distribution = found.distributions.get(name)
        for below in sorted(distribution.requires if distribution else ()):
            if below in found.distributions:
                visit(below)
        under_way.discard(name)
        done.append(name)

    # torch first whatever the metadata says: everything else here is compiled against it.
    for name in sorted(names, key=lambda name: (name != "torch", name)):
        visit(name)
    return [name for name in done if name in names]
