"""Looks at a machine: every probe at once, and one value from what they answer."""

from __future__ import annotations

from collections.abc import Callable

from rekindle.machine.host import CouldNotRead, Host, Run
from rekindle.machine.model import Environments, Machine, Unread
from rekindle.machine.probes import PROBES, TIME_LIMIT, ask


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
    good = {name: said for name, said in answers.items() if not isinstance(said, CouldNotRead)}
    around: Environments = good.pop("pythons", Environments())
    kits = toolkits.merged(good.pop("toolkits", ()), around.toolkits)
    # Every other probe is called like the field of a machine that it fills.
    return Machine(
        os=run.os,
        arch=run.arch,
        gpus=seen.gpus,
        driver=seen.driver,
        toolkits=kits,
        cudnns=around.cudnns,
        python=around.target,
        pythons=around.pythons,
        python_on_path=next(iter(interpreters.on_path(run)), None),
        torch=around.torch,
        environment=dict(sorted(run.environment.items())),
        unread=tuple(unread),
        **{name: said for name, said in good.items() if not name.startswith("graphics: ")},
    )
