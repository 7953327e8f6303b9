"""The audit of an environment: every compiled module against the cards, the torch, the Python and the NumPy there."""

from __future__ import annotations

from pathlib import Path

from rekindle.audit import contents, environment_checks, history, module_checks
from rekindle.audit.answer import Audit, AuditedModule
from rekindle.audit.contents import Contents, Module
from rekindle.audit.mending import Mending, Trouble
from rekindle.audit.symbols import Offered, uses_torch
from rekindle.core import codec, files
from rekindle.core.errors import BadInput
from rekindle.core.findings import worst
from rekindle.core.kept import kept_file
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
    past = codec.kept(kept_file(cache, environment.root, "built"), history.History) or history.History()
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
    history.remember(kept_file(cache, environment.root, "built"), past, place, listed)
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
    past: history.History,
    missing: list[environment_checks.LibrariesNowhere],
) -> AuditedModule:
    owner = _owner(place.contents, module)
    nowhere = [each.finding for each in missing]
    findings = [*module_checks.findings(place, module, owner), *nowhere, *history.findings(past, place, module)]
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
