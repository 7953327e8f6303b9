"""Looks at a machine: every probe at once, and one value from what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rekindle.machine.host import CouldNotRead, Host, Run
from rekindle.machine.model import Environments, Machine, Memory, Processor, Prompt, Surroundings, Unread
from rekindle.machine.probes import PROBES, TIME_LIMIT, ask

T = TypeVar("T")


def look(
    run: Run | None = None, *, time_limit: float = TIME_LIMIT, meanwhile: Callable[[], object] | None = None
) -> Machine:
    """What the machine has. What could not be read is in `unread`, with the reason.

    `meanwhile` is done in this thread while the probes wait for the programs they started.
    """
    run = run or Host()
    answers = ask(run, PROBES, time_limit=time_limit, meanwhile=meanwhile)
    from rekindle.machine.gpu import cards
    from rekindle.machine.python import interpreters
    from rekindle.machine.toolchain import toolkits

    unread = [Unread(probe=name, reason=str(said)) for name, said in answers.items() if isinstance(said, CouldNotRead)]
    seen = cards.merge(run, {name: answers[f"graphics: {name}"] for name in cards.TRUST})
    unread += [Unread(probe="graphics", reason=trouble) for trouble in seen.troubles]
    around = _good(answers["pythons"], Environments())
    return Machine(
        os=run.os,
        arch=run.arch,
        gpus=seen.gpus,
        driver=seen.driver,
        toolkits=toolkits.merged(_good(answers["toolkits"], ()), around.toolkits),
        cudnns=around.cudnns,
        studios=_good(answers["studios"], ()),
        sdks=_good(answers["sdks"], ()),
        prompt=_good(answers["prompt"], Prompt()),
        compilers=_good(answers["compilers"], ()),
        intel=_good(answers["intel"], ()),
        openblas=_good(answers["openblas"], ()),
        python=around.target,
        pythons=around.pythons,
        python_on_path=next(iter(interpreters.on_path(run)), None),
        torch=around.torch,
        programs=_good(answers["programs"], ()),
        memory=_good(answers["memory"], Memory()),
        processor=_good(answers["processor"], Processor()),
        disks=_good(answers["disks"], ()),
        surroundings=_good(answers["surroundings"], Surroundings()),
        environment=dict(sorted(run.environment.items())),
        stale=_good(answers["stale"], ()),
        unread=tuple(unread),
    )


def _good(answer: Any, otherwise: T) -> T:
    return otherwise if isinstance(answer, CouldNotRead) else answer
