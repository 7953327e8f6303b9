"""Looks at a machine: every probe at once, each with its own time limit, and one value from what they answer.

One that hangs costs its own answer only.
"""

from __future__ import annotations

import contextvars
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rekindle.machine.host import CouldNotRead, Host, Run
from rekindle.machine.model import Environments, Machine, Unread

if TYPE_CHECKING:
    from rekindle.machine.gpu.cards import Graphics

# These wait longest for the programs they start.
FIRST = ("graphics: nvidia-smi", "graphics: nvml", "graphics: cuda", "pythons")
HEAD_START = 0.004
# What is asked, by which function of which module; those that wait longest for others begin first.
PROBES = {
    "graphics: nvidia-smi": ("gpu.smi", "probe"),
    "graphics: nvml": ("gpu.smi", "nvml"),
    "graphics: cuda": ("gpu.smi", "cuda_driver"),
    "pythons": ("python.interpreters", "environments"),
    "toolkits": ("toolchain.toolkits", "probe"),
    "studios": ("toolchain.msvc", "studios"),
    "prompt": ("toolchain.msvc", "prompt"),
    "compilers": ("toolchain.gcc", "probe"),
    "programs": ("toolchain.gcc", "programs"),
    "surroundings": ("system.surroundings", "probe"),
    "graphics: pci": ("gpu.cards", "pci_devices"),
    "sdks": ("toolchain.msvc", "sdks"),
    "intel": ("toolchain.gcc", "intel"),
    "openblas": ("toolchain.gcc", "openblas"),
    "memory": ("system.memory", "probe"),
    "processor": ("system.memory", "processor"),
    "disks": ("system.surroundings", "disks"),
    "stale": ("system.surroundings", "stale_variables"),
}
TIME_LIMIT = 45.0
"""Seconds for a probe. A broken driver can hold a call for ever; a slow one needs ten."""


def ask(
    run: Run, names: Iterable[str], *, time_limit: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """What these probes answer."""
    return together({name: _bound(run, *PROBES[name]) for name in names}, time_limit=time_limit, meanwhile=meanwhile)


def graphics(*, time_limit: float = 30.0) -> Graphics:
    """The cards of this computer and their driver alone, for those who need nothing else of it."""
    from rekindle.machine.gpu import cards

    host = Host()
    answers = ask(host, [name for name in PROBES if name.startswith("graphics: ")], time_limit=time_limit)
    return cards.merge(host, {name.removeprefix("graphics: "): answer for name, answer in answers.items()})


def together(
    questions: Mapping[str, Callable[[], Any]], *, time_limit: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Every question answered in a thread of its own; `CouldNotRead` stands for one that failed or took too long.

    The threads are daemons: one stuck inside a driver must not keep the process alive.
    """
    answers: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(_answer, name, question, answers), name=name, daemon=True
        )
        for name, question in questions.items()
    ]
    # Threads that come back from waiting for a program have little to do: let them do it at once.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(interval, 0.0005))
    for turn, thread in enumerate(threads):
        thread.start()
        if turn == len(FIRST) - 1:
            # A moment for these to start their programs, before everything else competes for the interpreter.
            time.sleep(HEAD_START)
    deadline = time.monotonic() + time_limit
    if meanwhile is not None:
        meanwhile()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    sys.setswitchinterval(interval)
    late = CouldNotRead(f"no answer in {time_limit:.0f} s")
    return {name: answers.get(name, late) for name in questions}


def _answer(name: str, question: Callable[[], Any], answers: dict[str, Any]) -> None:
    try:
        answers[name] = question()
    except CouldNotRead as error:
        answers[name] = error
    except OSError as error:
        answers[name] = CouldNotRead(str(error))
    except Exception as fault:
        # A fault of ours in one probe must not cost the others, nor pass unseen.
        if os.environ.get("REKINDLE_TRACE"):
            import traceback

            traceback.print_exc()
        answers[name] = CouldNotRead(f"a fault in Rekindle: {type(fault).__name__}: {fault}")


def _bound(run: Run, module: str, probe: str) -> Callable[[], Any]:
    """Each probe's module is imported in its own thread, while others already wait for the programs they started."""
    return lambda: getattr(importlib.import_module(f"rekindle.machine.{module}"), probe)(run)


def look(run: Run | None = None, *, meanwhile: Callable[[], object] | None = None) -> Machine:
    """What the machine has. What could not be read is in `unread`, with the reason.

    `meanwhile` is done in this thread while the probes wait for the programs they started.
    """
    run = run or Host()
    answers = ask(run, PROBES, time_limit=TIME_LIMIT, meanwhile=meanwhile)
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
