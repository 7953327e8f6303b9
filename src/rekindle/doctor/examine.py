"""Every check, over one machine. A check is a function from a machine to findings; its words are in `checks.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rekindle.core import console
from rekindle.core.findings import Finding, Fix, State
from rekindle.knowledge.builds import checks
from rekindle.machine.model import Machine

Judge = Callable[[Machine], Iterable[Finding]]
_JUDGES: dict[str, Judge] = {}


def judge(*ids: str) -> Callable[[Judge], Judge]:
    """Marks the function that answers these checks."""

    def mark(function: Judge) -> Judge:
        for name in ids:
            _JUDGES[name] = function
        return function

    return mark


def examine(machine: Machine, *, only: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings, in the order of `checks.toml`. A check that does not apply to this machine gives none.

    `only` takes ids and groups: `cuda` means every `cuda.…`.
    """
    wanted = _selected(only)
    found: list[Finding] = []
    for function in dict.fromkeys(judges()[name] for name in wanted if name in judges()):
        found += [finding for finding in function(machine) if finding.id in wanted]
    return tuple(sorted(found, key=lambda finding: wanted.index(finding.id)))


def judges() -> dict[str, Judge]:
    """Which function answers which check. Importing the modules registers them."""
    from rekindle.doctor import compilers, computer, cuda, graphics, python, torch

    del compilers, computer, cuda, graphics, python, torch
    return _JUDGES


def prepare() -> None:
    """Read the tables that every examination reads."""
    from rekindle.knowledge.cuda import toolkits
    from rekindle.knowledge.torch import releases

    checks.checks()
    releases.torch_releases()
    toolkits.toolkits()


def say(
    name: str,
    state: State,
    found: str,
    *,
    why: str | None = None,
    fix: str | None = None,
    commands: Iterable[str] = (),
    mechanical: bool = False,
) -> Finding:
    """A finding of check `name`; its reason, fix and source are the catalogue's unless this case knows better."""
    row = checks.check(name)
    remedy = None
    if state is not State.PASS:
        steps = tuple(console.clean(command) for command in commands)
        remedy = Fix(text=console.clean(fix or row.fix), commands=steps, mechanical=mechanical)
    # What was found is foreign text: a file name, a program's words.
    return Finding(id=name, state=state, found=console.clean(found), why=why or row.why, fix=remedy, source=row.source)


def _selected(only: Iterable[str]) -> list[str]:
    every = [row.id for row in checks.checks()]
    asked = [name.strip() for part in only for name in part.split(",") if name.strip()]
    if not asked:
        return every
    chosen = set()
    for name in asked:
        group = [one for one in every if one.split(".")[0] == name]
        chosen |= set(group) if group else {checks.check(name).id}
    return [one for one in every if one in chosen]


def listed(words: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    parts: Iterator[str] = (str(word) for word in words)
    every = list(parts)
    return " and ".join([", ".join(every[:-1]), every[-1]]) if len(every) > 1 else "".join(every)
