"""`rekindle audit`: an environment's compiled modules against the cards, the torch, the Python and the NumPy there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.findings import Finding, State, exit_code

if TYPE_CHECKING:
    from rekindle.audit.answer import Audit, AuditedModule


@click.command("audit")
@click.argument("environment", required=False, type=click.Path(path_type=Path))
@options.gpus
@options.system
@options.driver
@options.machine
@click.option("--no-cache", is_flag=True, help="Read every file again.")
@options.as_json
def command(
    environment: Path | None,
    gpus: tuple[str, ...],
    system: str | None,
    driver: str | None,
    machine: Path | None,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Show which compiled modules of ENVIRONMENT (a folder or a python; default: the active one) will fail, and why."""
    from rekindle.audit.cache import audit
    from rekindle.core.paths import cache_folder

    cache = None if no_cache else cache_folder("audit")
    with console.waiting(f"reading the compiled modules of {environment or 'the active environment'}"):
        answer = audit(environment, names=gpus, machine=machine, system=system, driver=driver, cache=cache)
    console.out_json(answer) if as_json else _show(answer)
    return exit_code(answer.state)


def _show(answer: Audit) -> None:
    where = answer.environment
    torch = f"torch {answer.torch.version}" if answer.torch else "no torch"
    named = ", ".join(f"{card.name} ({card.capability.sm})" for card in answer.cards)
    driver = f", driver {answer.driver}" if answer.driver else ""
    console.out(f"{where.root}: Python {where.python or '?'} ({where.kind}), {torch}")
    console.out(f"GPUs: {named or 'none found; name one with `--gpu`'}{driver}")
    if answer.modules:
        console.out()
        console.out(_table(answer))
    findings = [*answer.findings, *(finding for module in answer.modules for finding in module.findings)]
    if findings:
        console.out()
        _explain(findings)
    if answer.steps:
        console.out()
        console.out("Run these, in this order")
        for line in dict.fromkeys(line for step in answer.steps for line in step.commands):
            console.out(f"  {line}")
    console.out()
    console.out(_summary(answer))
    if answer.torch is None:
        from rekindle.audit.cards import install_command

        console.out(f"no torch is in it: `{install_command(where, answer.cards)}` installs one")


def _table(answer: Audit) -> str:
    """One column for each GPU, in the order of the GPUs; the path last, since it is the longest."""
    from rekindle.audit.answer import label

    cards = [label(card, answer.cards) for card in answer.cards]
    rows = [
        (module.state.value, *_code(module, cards), module.distribution or "", module.path) for module in answer.modules
    ]
    return console.table(rows, head=("state", *(cards or ["GPU code"]), "package", "module"))


def _code(module: AuditedModule, cards: list[str]) -> list[str]:
    if not cards:
        return [" ".join(module.targets) or "none"]
    return [module.coverage.get(card, "no GPU code") for card in cards]


def _summary(answer: Audit) -> str:
    count = f"checked {answer.examined} module{'' if answer.examined == 1 else 's'}"
    every = [
        finding.state for finding in (*answer.findings, *(one for each in answer.modules for one in each.findings))
    ]
    said = [
        f"{number} {state.value}"
        for state in (State.FAIL, State.UNVERIFIED, State.WARN)
        if (number := sum(each is state for each in every))
    ]
    fine = "no problems" if answer.examined else "nothing in it is compiled code"
    return f"{count}, {', '.join(said) or fine}"


def _explain(findings: list[Finding]) -> None:
    """What is wrong, with the reason and the fix said once for all modules that share them."""
    kinds: dict[tuple[str, State, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.id, finding.state, finding.why), []).append(finding)
    for same in kinds.values():
        for finding in same[:-1]:
            console.out(console.finding(Finding(id=finding.id, state=finding.state, found=finding.found)))
        console.out(console.finding(same[-1]))
