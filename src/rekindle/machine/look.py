"""Looks at a machine: every probe at once, each with its own time limit. One that hangs costs its own answer only."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rekindle.machine import (
    compilers,
    cudnn,
    graphics,
    intel,
    memory,
    msvc,
    programs,
    pythons,
    settings,
    surroundings,
    toolkits,
    torch_installed,
)
from rekindle.machine.model import FoundPython, FoundTorch, Machine, Memory, Processor, Prompt, Surroundings, Unread
from rekindle.machine.run import CouldNotRead, Host, Run

T = TypeVar("T")

TIME_LIMIT = 45.0
"""Seconds for a probe. A broken driver can hold a call for ever; a slow one needs ten."""


def look(
    run: Run | None = None, *, time_limit: float = TIME_LIMIT, meanwhile: Callable[[], object] | None = None
) -> Machine:
    """What the machine has. What could not be read is in `unread`, with the reason.

    `meanwhile` is done in this thread while the probes wait for the programs they started.
    """
    run = run or Host()
    answers = together(
        {
            **{f"graphics: {name}": _bound(source, run) for name, source in graphics.SOURCES.items()},
            "toolkits": _bound(toolkits.probe, run),
            "studios": _bound(msvc.studios, run),
            "sdks": _bound(msvc.sdks, run),
            "prompt": _bound(msvc.prompt, run),
            "compilers": _bound(compilers.probe, run),
            "intel": _bound(intel.probe, run),
            "pythons": _bound(_pythons, run),
            "programs": _bound(programs.probe, run),
            "memory": _bound(memory.probe, run),
            "processor": _bound(memory.processor, run),
            "disks": _bound(surroundings.disks, run),
            "surroundings": _bound(surroundings.probe, run),
            "stale": _bound(settings.stale, run),
        },
        time_limit=time_limit,
        meanwhile=meanwhile,
    )
    unread = [Unread(probe=name, reason=str(said)) for name, said in answers.items() if isinstance(said, CouldNotRead)]
    seen = graphics.merge(run, {name: answers[f"graphics: {name}"] for name in graphics.SOURCES})
    unread += [Unread(probe="graphics", reason=trouble) for trouble in seen.troubles]
    found, torch, cudnns = _good(answers["pythons"], ((), None, ()))
    return Machine(
        os=run.os,
        arch=run.arch,
        gpus=seen.gpus,
        driver=seen.driver,
        toolkits=_good(answers["toolkits"], ()),
        cudnns=cudnns,
        studios=_good(answers["studios"], ()),
        sdks=_good(answers["sdks"], ()),
        prompt=_good(answers["prompt"], Prompt()),
        compilers=_good(answers["compilers"], ()),
        intel=_good(answers["intel"], ()),
        python=found[0] if found else None,
        pythons=found,
        python_on_path=next(iter(pythons.on_path(run)), None),
        torch=torch,
        programs=_good(answers["programs"], ()),
        memory=_good(answers["memory"], Memory()),
        processor=_good(answers["processor"], Processor()),
        disks=_good(answers["disks"], ()),
        surroundings=_good(answers["surroundings"], Surroundings()),
        environment=dict(sorted(run.environment.items())),
        stale=_good(answers["stale"], ()),
        unread=tuple(unread),
    )


def together(
    questions: Mapping[str, Callable[[], Any]], *, time_limit: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Every question answered in a thread of its own; `CouldNotRead` stands for one that failed or took too long.

    The threads are daemons: one stuck inside a driver must not keep the process alive.
    """
    answers: dict[str, Any] = {}
    threads = [
        threading.Thread(target=_answer, args=(name, question, answers), name=name, daemon=True)
        for name, question in questions.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + time_limit
    if meanwhile is not None:
        meanwhile()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
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


def _bound(probe: Callable[[Run], T], run: Run) -> Callable[[], T]:
    return lambda: probe(run)


def _pythons(run: Run) -> tuple[tuple[FoundPython, ...], FoundTorch | None, tuple[Any, ...]]:
    """The Pythons first: where they keep packages is where torch and pip's cuDNN lie."""
    found = pythons.probe(run)
    target = found[0] if found else None
    try:
        torch = torch_installed.probe(run, target)
    except CouldNotRead:
        torch = None
    return found, torch, cudnn.probe(run, target.site_packages if target else ())


def _good(answer: Any, otherwise: T) -> T:
    return otherwise if isinstance(answer, CouldNotRead) else answer
