"""Which distributions to build or install again, what they depend on first, with the command for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rekindle.audit.answer import Rebuild
from rekindle.audit.contents import Contents, normal
from rekindle.core.findings import Finding, State
from rekindle.model.environment import Environment

# A finding of these is mended by building the module again; the others by something else.
_MENDED = {"audit.gpu-code", "audit.cuda-runtime", "audit.torch-symbols", "audit.python", "audit.changed"}


def rebuild_list(
    found: Contents, judged: Iterable[tuple[str | None, Sequence[Finding]]], environment: Environment
) -> tuple[Rebuild, ...]:
    reasons: dict[str, dict[str, None]] = {}
    for name, findings in judged:
        for finding in findings:
            wrong = finding.state in (State.FAIL, State.WARN) and finding.id in _MENDED
            if wrong and name and not normal(name).startswith("nvidia-"):
                reasons.setdefault(normal(name), {})[finding.id.removeprefix("audit.")] = None
    return tuple(_entry(found, name, tuple(reasons[name]), environment) for name in _ordered(found, list(reasons)))


def _entry(found: Contents, name: str, reasons: tuple[str, ...], environment: Environment) -> Rebuild:
    distribution = found.distributions[name]
    place = f'"{environment.root}"' if " " in environment.root else environment.root
    version = distribution.version.partition("+")[0]
    command = f"rekindle extension build {distribution.name}=={version} --env {place}"
    if name == "torch":
        command = f"rekindle install {place}"
    return Rebuild(distribution=distribution.name, version=distribution.version, reasons=reasons, command=command)


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
