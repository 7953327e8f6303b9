"""Checks on CUDA toolkits and cuDNN."""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.compat import driver_cuda
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown, holds, judged
from rekindle.compat.library_card import cudnn_serves, last_cudnn
from rekindle.compat.toolkit_card import able_toolkits, compiles
from rekindle.core.command import Command, first_on_path
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.doctor.check import judge, listed, say
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.machine.model import Machine
from rekindle.machine.toolchain.toolkits import PRIVATE
from rekindle.model.card import Capability
from rekindle.model.driver import Driver
from rekindle.model.toolkit import FoundToolkit


@judge("cuda.present", of="toolkits")
def present(machine: Machine) -> Iterator[Finding]:
    if not machine.toolkits:
        fix = wanted_toolkit(machine)
        yield say("cuda.present", State.WARN, "no CUDA toolkit on this machine", fix=fix)
    else:
        found = listed(f"CUDA {short(toolkit)} in {toolkit.root}{_how(toolkit)}" for toolkit in machine.toolkits)
        yield say("cuda.present", State.PASS, found)


@judge("cuda.own-tools")
def own_tools(machine: Machine) -> Iterator[Finding]:
    for toolkit in machine.toolkits:
        called = toolkit.ptxas
        if toolkit.own_ptxas is None:
            reason = toolkit.trouble or "its ptxas would not tell its version"
            found = f"which ptxas CUDA {short(toolkit)} calls could not be found out: {reason}"
            yield say("cuda.own-tools", State.UNVERIFIED, found, fix="load the compiler's prompt and look again")
        elif called and not toolkit.own_ptxas:
            yield say(
                "cuda.own-tools",
                State.FAIL,
                f"nvcc {toolkit.version} ({toolkit.nvcc}) calls ptxas {called.version} ({called.path})",
                fix=_own_fix(toolkit),
                commands=_own_commands(machine, toolkit),
            )
        elif called:
            yield say("cuda.own-tools", State.PASS, f"nvcc {toolkit.version} calls its own ptxas ({called.path})")


def _own_fix(toolkit: FoundToolkit) -> str:
    if toolkit.right_ptxas:
        return (
            f"put the folder of ptxas {short(toolkit)} before the other one on PATH, in the shell that builds with it"
        )
    return f"install the ptxas of CUDA {short(toolkit)} and put its folder first on PATH"


def _own_commands(machine: Machine, toolkit: FoundToolkit) -> tuple[Command, ...]:
    if not toolkit.right_ptxas:
        return ()
    folders = list(dict.fromkeys([machine.paths.join(toolkit.root, "bin"), machine.paths.dirname(toolkit.right_ptxas)]))
    return (first_on_path(*folders, system=machine.os),)


@judge("cuda.one-wins")
def one_wins(machine: Machine) -> Iterator[Finding]:
    if not machine.toolkits:
        return
    winner = machine.toolkit
    named = {
        how: toolkit
        for toolkit in machine.toolkits
        for how in toolkit.found_by
        if how in ("CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CUDACXX")
    }
    stale = [
        f"{name}={machine.environment[name]}"
        for name in ("CUDA_PATH", "CUDA_HOME")
        if machine.environment.get(name) and name not in named
    ]
    if stale:
        found = f"{listed(stale)} names no toolkit"
        yield say("cuda.one-wins", State.FAIL, found, fix="point it at a toolkit, or clear it")
        return
    if winner is None and all(toolkit.found_by == (PRIVATE,) for toolkit in machine.toolkits):
        rest = listed(f"CUDA {short(toolkit)}" for toolkit in machine.toolkits)
        found = f"{rest} of `rekindle toolchain`: a build puts the one it needs first on PATH by itself"
        yield say("cuda.one-wins", State.PASS, found)
        return
    if winner is None:
        where = listed(f"{toolkit.root}" for toolkit in machine.toolkits)
        found = f"no nvcc is on PATH, though there is a toolkit in {where}"
        yield say("cuda.one-wins", State.WARN, found, fix="put the bin folder of the toolkit you mean on PATH")
        return
    other = {how: toolkit for how, toolkit in named.items() if toolkit.root != winner.root}
    if other:
        said = listed(f"{how} names CUDA {short(toolkit)}" for how, toolkit in other.items())
        found = f"PATH gives nvcc {winner.version}, but {said}"
        meant = serving(machine) or winner
        fix = f"let PATH and the variables name one toolkit: CUDA {short(meant)}"
        fix += ", which compiles for the cards here" if serving(machine) else ""
        yield say("cuda.one-wins", State.FAIL, found, fix=fix, commands=_point(machine, meant, winner, other))
    elif len(machine.toolkits) > 1:
        rest = listed(f"CUDA {short(toolkit)}" for toolkit in machine.toolkits if toolkit.root != winner.root)
        found = f"nvcc {winner.version} ({winner.nvcc}) wins on PATH; {rest} is there too"
        yield say("cuda.one-wins", State.PASS, found)
    else:
        yield say("cuda.one-wins", State.PASS, f"nvcc {winner.version} ({winner.nvcc}) is the only one")


def _point(
    machine: Machine, meant: FoundToolkit, winner: FoundToolkit, other: dict[str, FoundToolkit]
) -> tuple[Command, ...]:
    """PATH and the variables at the toolkit that is meant: the one that serves the cards, else the one PATH has."""
    wrong = [how for how, toolkit in other.items() if how != "CUDACXX" and toolkit.root != meant.root]
    first = (
        (first_on_path(machine.paths.join(meant.root, "bin"), system=machine.os),) if meant.root != winner.root else ()
    )
    there = (Command(environment=dict.fromkeys(wrong, meant.root), system=machine.os),) if wrong else ()
    return (*first, *there)


def serving(machine: Machine) -> FoundToolkit | None:
    """The toolkit here that compiles for every card: the one on PATH if it does, else another; None: none does."""
    cards = machine.capabilities
    able = [each for each in machine.toolkits if cards and all(compiles_for(each, card) for card in cards)]
    winner = machine.toolkit
    return next((each for each in able if winner is not None and each.root == winner.root), able[0] if able else None)


@judge("cuda.targets-card")
def targets_card(machine: Machine) -> Iterator[Finding]:
    for card in machine.capabilities:
        fitting = [toolkit for toolkit in machine.toolkits if compiles_for(toolkit, card)]
        for turn, toolkit in enumerate(machine.toolkits):
            state, found = judged(targets(toolkit, card), f"CUDA {short(toolkit)} compiles for {card.sm}")
            if state is not State.FAIL:
                yield say("cuda.targets-card", state, found)
                continue
            # Another toolkit that can, and comes first, makes this one a bystander.
            first = turn == 0 or not fitting
            fix = f"use CUDA {short(fitting[0])} ({fitting[0].root})" if fitting else wanted_toolkit(machine)
            yield say("cuda.targets-card", State.FAIL if first else State.WARN, found + _span(toolkit), fix=fix)


@judge("cuda.driver-runs")
def driver_runs(machine: Machine) -> Iterator[Finding]:
    if machine.driven_by is None:
        return
    for toolkit in machine.toolkits:
        if toolkit.version is not None:
            yield driven("cuda.driver-runs", machine.driven_by, toolkit.version, f"CUDA {short(toolkit)}")


@judge("cuda.whole")
def whole(machine: Machine) -> Iterator[Finding]:
    for turn, toolkit in enumerate(machine.toolkits):
        if not toolkit.missing:
            yield say("cuda.whole", State.PASS, f"CUDA {short(toolkit)} in {toolkit.root} is complete")
        else:
            found = f"CUDA {short(toolkit)} in {toolkit.root} lacks {listed(toolkit.missing)}"
            fix = "install the missing parts, or use it only for extensions that do not need them"
            yield say("cuda.whole", State.WARN if turn or len(toolkit.missing) < 12 else State.FAIL, found, fix=fix)


@judge("cuda.visual-studio")
def visual_studio(machine: Machine) -> Iterator[Finding]:
    for toolkit in machine.toolkits:
        if toolkit.visual_studio_integration is not None:
            has = "has" if toolkit.visual_studio_integration else "has no"
            found = f"CUDA {short(toolkit)} {has} Visual Studio integration; Ninja does not need it"
            yield say("cuda.visual-studio", State.PASS, found)


@judge("cuda.path-spaces")
def path_spaces(machine: Machine) -> Iterator[Finding]:
    for toolkit in machine.toolkits:
        if " " not in toolkit.root:
            continue
        if toolkit.short_root:
            found = f"{toolkit.root} has spaces; its short spelling is {toolkit.short_root}"
            yield say("cuda.path-spaces", State.PASS, found)
        else:
            yield say(
                "cuda.path-spaces",
                State.WARN,
                f"{toolkit.root} has spaces, and no short spelling that could be read",
                fix="if a build fails with `CreateProcess failed`, make a link without spaces and name that one",
                commands=(
                    Command("cmd", "/c", "mklink", "/J", rf"C:\cuda{short(toolkit)}", toolkit.root, system="windows"),
                ),
            )


@judge("cudnn.present", "cudnn.whole", "cudnn.serves-card")
def the_cudnn(machine: Machine) -> Iterator[Finding]:
    if not machine.cudnns:
        if machine.toolkits:
            yield say("cudnn.present", State.WARN, "no cuDNN on this machine", fix=_wanted_cudnn(machine))
        return
    found = listed(f"cuDNN {one.version or '(version unknown)'} in {one.root}" for one in machine.cudnns)
    yield say("cudnn.present", State.PASS, found)
    for one in machine.cudnns:
        name = f"cuDNN {one.version or '(version unknown)'} in {one.root}"
        if one.missing:
            yield say("cudnn.whole", State.FAIL, f"{name} lacks {listed(one.missing)}")
        elif one.version:
            yield say("cudnn.whole", State.PASS, f"{name} is complete")
        for card in machine.capabilities:
            serves = any(runs(t, card) is not Runs.NO for t in one.targets) if one.targets else None
            if serves is None and one.version:
                serves = holds(cudnn_serves(one.version, card))
            spelled = f"cuDNN {one.version.major_minor}" if one.version else "cuDNN"
            if serves is None:
                yield say("cudnn.serves-card", State.UNVERIFIED, f"whether {name} has {card.sm} code is not known")
            elif serves:
                yield say("cudnn.serves-card", State.PASS, f"{spelled} has code for {card.sm}")
            else:
                found = f"{spelled} has no {card.sm} code ({one.version} in {one.root})"
                yield say("cudnn.serves-card", State.FAIL, found, fix=_wanted_cudnn(machine))


def short(toolkit: FoundToolkit) -> str:
    """`11.8` of 11.8.89."""
    return str(toolkit.version.major_minor) if toolkit.version else "of unknown version"


def targets(toolkit: FoundToolkit, card: Capability) -> Judgement:
    if toolkit.version is None:
        return Unknown(missing=f"what CUDA {short(toolkit)} compiles for is not known")
    return compiles(toolkit.version, card, card.sm, own=toolkit.targets)


def compiles_for(toolkit: FoundToolkit, card: Capability) -> bool:
    return isinstance(targets(toolkit, card), Fits)


def driven(id: str, driver: Driver, cuda: Version, what: str) -> Finding:
    """Does this driver run programs of this CUDA?"""
    answer = driver_cuda.runs(driver, cuda)
    if isinstance(answer, Unknown):
        return say(id, State.UNVERIFIED, f"{what}: {answer.missing}")
    if isinstance(answer, Clash):
        return say(id, State.FAIL, f"{what}: {answer.sentence}", fix=answer.changes[0].text)
    more = f", by minor-version compatibility: {answer.loses[0]}" if answer.loses else " fully"
    return say(id, State.PASS, f"driver {driver} runs {what}{more}")


def wanted_toolkit(machine: Machine) -> str | None:
    """Which toolkit to install for the cards, in words; None when the cards are not known."""
    if not machine.capabilities:
        return None
    able = sorted(set.intersection(*(set(able_toolkits(card)) for card in machine.capabilities)))
    if not able:
        return f"no single toolkit compiles for {listed(card.sm for card in machine.capabilities)}"
    cards = listed(card.sm for card in machine.capabilities)
    span = f"CUDA {able[0]} to {able[-1]}" if len(able) > 1 else f"CUDA {able[0]}"
    return f"install {span} (compiles for {cards}), without the driver that comes with it"


def _wanted_cudnn(machine: Machine) -> str | None:
    for card in machine.capabilities:
        last = last_cudnn(card)
        if last:
            return f"use cuDNN {last.release}, the last with code for {card.sm}"
    return None


def _span(toolkit: FoundToolkit) -> str:
    plain = [target for target in toolkit.targets if not target.suffix]
    return f": its targets are {plain[0]} to {plain[-1]}" if plain else ""


def _how(toolkit: FoundToolkit) -> str:
    return " (wins on PATH)" if "PATH" in toolkit.found_by else ""
