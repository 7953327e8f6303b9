"""The audit of an environment: every compiled module against the cards, the torch, the Python and the NumPy there.

What each module was built with is remembered from audit to audit: when it is first seen, what is installed beside it is
what it was built for. If later the Python, the torch or
its CUDA has changed and the file has not, it is named: exactly these must be built again. Kept in Rekindle's own cache
folder, not in the environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from rekindle.audit import contents, environment_checks, module_checks
from rekindle.audit.answer import Audit, AuditedModule
from rekindle.audit.contents import Contents, Module
from rekindle.audit.mending import Mending, Trouble
from rekindle.audit.module_checks import AuditContext, stable
from rekindle.audit.symbols import Offered, WantedSymbols, uses_torch
from rekindle.core import codec, files
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, warned, worst
from rekindle.core.kept import keep, kept_file
from rekindle.machine.host import CouldNotRead
from rekindle.machine.model import InstalledTorch
from rekindle.machine.python.environment import find as find_environment
from rekindle.machine.python.environment import torch_of
from rekindle.machine.toolchain.cudnn import parse_torch_version as parse_torch
from rekindle.model.card import NamedCard
from rekindle.model.driver import Driver
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name


def audit(
    where: Path | None,
    *,
    cards: tuple[NamedCard, ...] = (),
    driver: Driver | None = None,
    no_driver: bool = False,
    cache: Path | None = None,
) -> Audit:
    """Read the environment and judge it. Nothing in it is imported or run.

    `cache.audit` is the same, and gives the last answer again while nothing has changed.
    """
    environment = find_environment(where)
    found = contents.read(environment, cache=kept_file(cache, environment.root, "modules"))
    torch = installed_torch(environment)
    offered = Offered(Path(torch.root)) if torch else None
    past = codec.kept(kept_file(cache, environment.root, "built"), History) or History()
    place = module_checks.AuditContext(
        environment=environment,
        contents=found,
        torch=torch.version if torch else None,
        cuda=torch.cuda if torch else None,
        cards=cards,
        driver=driver,
        no_driver=no_driver,
        offered=offered,
        known=past.asked,
    )
    missing = environment_checks.missing(place)
    judged = [_judge(place, module, past, missing.get(module.path, [])) for module in found.modules]
    listed = tuple(module for module in judged if module.targets or module.uses_torch or module.findings)
    about_all = tuple(environment_checks.findings(place))
    findings = tuple(each.finding for each in about_all)
    _remember(kept_file(cache, environment.root, "built"), past, place, listed)
    states = [worst(findings), *(module.state for module in listed)]
    return Audit(
        environment=environment,
        torch=torch,
        cards=cards,
        driver=driver.version if driver else None,
        examined=len(found.modules),
        modules=listed,
        findings=findings,
        steps=Mending(
            found=found,
            environment=environment,
            cards=cards,
            driver=driver,
            torch=place.torch,
            modules=listed,
            wrong=(*about_all, *(each for module in listed for each in _wrong(module, missing.get(module.path, [])))),
        ).steps(),
        state=max(states, key=lambda state: state.rank),
    )


def installed_torch(environment: Environment) -> InstalledTorch | None:
    """The torch in an environment, read from its files."""
    folder = torch_of(environment)
    if folder is None:
        return None
    try:
        version, cuda = parse_torch(files.plain_text(folder / "version.py", errors="replace"))
    except CouldNotRead as error:
        raise BadInput(f"the torch in `{folder}` cannot be read: {error}", hint="install torch again") from error
    return InstalledTorch(version=version, cuda=cuda, root=str(folder))


def _wrong(module: AuditedModule, missing: list[environment_checks.LibrariesNowhere]) -> list[Trouble]:
    package = canonical_name(module.distribution) if module.distribution else None
    brought = {each.finding: each.packages for each in missing}
    return [Trouble(finding=each, package=package, about=brought.get(each, ())) for each in module.findings]


def _judge(
    place: module_checks.AuditContext,
    module: Module,
    past: History,
    missing: list[environment_checks.LibrariesNowhere],
) -> AuditedModule:
    owner = _owner(place.contents, module)
    nowhere = [each.finding for each in missing]
    findings = [*module_checks.findings(place, module, owner), *nowhere, *_changed(past, place, module)]
    distribution = place.contents.distributions.get(owner or "")
    return AuditedModule(
        path=module.path,
        distribution=distribution.name if distribution else None,
        version=distribution.version if distribution else None,
        size=module.size,
        targets=module.code.targets if module.code else {},
        coverage=module_checks.coverage(place, module),
        uses_torch=uses_torch(module),
        stable_abi=module_checks.stable(place, module),
        state=worst(findings),
        findings=tuple(findings),
    )


def _owner(found: Contents, module: Module) -> str | None:
    """The distribution a file came with; a file that no RECORD names belongs to the one whose folder it lies in."""
    known = found.owner.get(module.path)
    if known:
        return known
    top = canonical_name(module.path.partition("/")[0])
    return top if top in found.distributions else None


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


def _remember(file: Path | None, past: History, place: AuditContext, modules: Iterable[AuditedModule]) -> None:
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


def _changed(past: History, place: AuditContext, module: Module) -> list[Finding]:
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
