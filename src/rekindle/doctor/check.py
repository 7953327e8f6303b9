"""What every check is made of: the mark that registers it, the finding it gives, and how words are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rekindle.core import console
from rekindle.core.command import Command
from rekindle.core.findings import Finding, Fix, State
from rekindle.knowledge.builds import checks
from rekindle.machine.model import Machine

Judge = Callable[[Machine], Iterable[Finding]]
JUDGES: dict[str, Judge] = {}


def judge(*ids: str, of: str = "") -> Callable[[Judge], Judge]:
    """Marks the function that answers these checks; `of` is the part of the machine without which none is answered."""

    def mark(function: Judge) -> Judge:
        def answered(machine: Machine) -> Iterable[Finding]:
            reason = machine.could_not_read(of)
            unknown = f"{of} could not be read: {reason}"
            return [say(name, State.UNVERIFIED, unknown) for name in ids] if reason else function(machine)

        for name in ids:
            JUDGES[name] = answered
        return function

    return mark


def say(
    name: str,
    state: State,
    found: str,
    *,
    fix: str | None = None,
    commands: Iterable[Command] = (),
    mechanical: bool = False,
) -> Finding:
    """A finding of check `name`; its words are the catalogue's, its fix unless this case knows better."""
    row = checks.check(name)
    remedy = None
    if state is not State.PASS:
        remedy = Fix(text=console.clean(fix or row.fix), commands=tuple(commands), mechanical=mechanical)
    # What was found is foreign text: a file name, a program's words.
    return Finding(id=name, state=state, found=console.clean(found), why=row.why, fix=remedy, source=row.source)


def listed(words: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    every = [str(word) for word in words]
    return " and ".join([", ".join(every[:-1]), every[-1]]) if len(every) > 1 else "".join(every)
