"""The audit of an environment: every compiled module against the cards, the torch, the Python and the NumPy there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.extensions import contents, history, rebuild, verdicts, whole
from rekindle.extensions.contents import Contents, Module
from rekindle.extensions.environment import Environment, open_environment
from rekindle.extensions.symbols import Offered, uses_torch
from rekindle.extensions.verdicts import Card
from rekindle.findings import Finding, State, worst
from rekindle.machine.torch_installed import parse as parse_torch
from rekindle.version import Version


class Torch(msgspec.Struct, frozen=True, kw_only=True):
    """The torch in the environment. `cuda` None: a CPU build."""

    version: str
    cuda: Version | None
    root: str


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


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle audit`. `examined` counts all compiled modules, listed or not."""

    schema: str = "rekindle.audit/1"
    environment: Environment
    torch: Torch | None
    cards: tuple[Card, ...]
    driver: Version | None
    examined: int
    modules: tuple[AuditedModule, ...]
    findings: tuple[Finding, ...]
    rebuild: tuple[rebuild.Rebuild, ...]
    state: State


def audit(
    where: Path | None,
    *,
    cards: tuple[Card, ...] = (),
    driver: Version | None = None,
    cache: Path | None = None,
) -> Audit:
    """Read the environment and judge it. Nothing in it is imported or run."""
    environment = open_environment(where)
    found = contents.read(environment, cache=history.file_of(cache, environment, "modules"))
    torch = installed_torch(environment)
    offered = Offered(Path(torch.root)) if torch else None
    past = history.load(history.file_of(cache, environment, "built"))
    place = verdicts.Place(
        environment=environment,
        contents=found,
        torch=torch.version if torch else None,
        cuda=torch.cuda if torch else None,
        cards=cards,
        driver=driver,
        offered=offered,
        known=past.asked,
    )
    judged = [_judge(place, module, past) for module in found.modules]
    listed = tuple(module for module in judged if module.targets or module.uses_torch or module.findings)
    findings = tuple(whole.findings(place))
    history.remember(history.file_of(cache, environment, "built"), past, place, listed)
    states = [worst(findings), *(module.state for module in listed)]
    return Audit(
        environment=environment,
        torch=torch,
        cards=cards,
        driver=driver,
        examined=len(found.modules),
        modules=listed,
        findings=findings,
        rebuild=rebuild.rebuild_list(found, [(m.distribution, m.findings) for m in listed], environment),
        state=max(states, key=lambda state: state.rank),
    )


def installed_torch(environment: Environment) -> Torch | None:
    """The torch in an environment, read from its files."""
    for folder in environment.site_packages:
        path = Path(folder) / "torch" / "version.py"
        if path.is_file():
            version, cuda = parse_torch(path.read_text(encoding="utf-8", errors="replace"))
            return Torch(version=version, cuda=cuda, root=str(path.parent))
    return None


def _judge(place: verdicts.Place, module: Module, past: history.History) -> AuditedModule:
    owner = _owner(place.contents, module)
    findings = [*verdicts.findings(place, module, owner), *history.findings(past, place, module)]
    distribution = place.contents.distributions.get(owner or "")
    return AuditedModule(
        path=module.path,
        distribution=distribution.name if distribution else None,
        version=distribution.version if distribution else None,
        size=module.size,
        targets=module.code.targets if module.code else {},
        coverage=verdicts.coverage(place, module),
        uses_torch=uses_torch(module),
        stable_abi=verdicts.stable(place, module),
        state=worst(findings),
        findings=tuple(findings),
    )


def _owner(found: Contents, module: Module) -> str | None:
    """The distribution a file came with; a file that no RECORD names belongs to the one whose folder it lies in."""
    known = found.owner.get(module.path)
    if known:
        return known
    top = contents.normal(module.path.partition("/")[0])
    return top if top in found.distributions else None
