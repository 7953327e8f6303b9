"""What each module was built with, remembered from audit to audit.

When a module is first seen, what is installed beside it is what it was built for. If later the Python, the torch or
its CUDA has changed and the file has not, it is named: exactly these must be built again. Kept in Rekindle's own cache
folder, not in the environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.audit.contents import Module
from rekindle.audit.module_checks import AuditContext, stable
from rekindle.audit.symbols import WantedSymbols, uses_torch
from rekindle.core.findings import Finding, warned
from rekindle.core.kept import keep

if TYPE_CHECKING:
    from rekindle.audit.answer import AuditedModule


class BuiltWith(msgspec.Struct, frozen=True, kw_only=True):
    """What stood beside a module when its file was first seen."""

    size: int
    stamp: int
    python: str | None
    torch: str | None
    cuda: str | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """`asked` keeps what each module wants of which torch: reading torch's symbols again takes a second."""

    modules: dict[str, BuiltWith] = {}
    asked: dict[str, WantedSymbols] = {}


def remember(file: Path | None, past: History, place: AuditContext, modules: Iterable[AuditedModule]) -> None:
    if file is None:
        return
    by_path = {module.path: module for module in place.contents.modules}
    now = {}
    for audited in modules:
        module = by_path[audited.path]
        if audited.uses_torch:
            known = _known(past, module)
            now[module.path] = known or _built(place, module)
    current = History(modules=now, asked=place.asked)
    if current != past:
        keep(file, current)


def findings(past: History, place: AuditContext, module: Module) -> list[Finding]:
    known = _known(past, module)
    if known is None or not uses_torch(module) or module.path.startswith(("torch/", "functorch/")):
        return []
    now = _built(place, module)
    changed = [
        f"{what} {before or 'none'} → {after or 'none'}"
        for what, before, after in (
            ("Python", known.python, now.python),
            ("torch", known.torch, now.torch),
            ("CUDA", known.cuda, now.cuda),
        )
        if before != after
    ]
    if not changed or (stable(place, module) and known.python == now.python):
        return []
    return [
        warned(
            "audit.changed",
            f"{module.path} was built before this changed: {', '.join(changed)}",
            why="compiled modules fit the Python, torch and CUDA they were built with",
            fix="build it again",
        )
    ]


def _known(past: History, module: Module) -> BuiltWith | None:
    known = past.modules.get(module.path)
    return known if known and (known.size, known.stamp) == (module.size, module.stamp) else None


def _built(place: AuditContext, module: Module) -> BuiltWith:
    return BuiltWith(
        size=module.size,
        stamp=module.stamp,
        python=place.environment.tag,
        torch=place.torch,
        cuda=str(place.cuda) if place.cuda else None,
    )
