"""`rekindle verify --stand-in`: run a wheel for an old card on a newer one, through the old card's own PTX.

This never makes a PASS: what ran is the old card's code as this driver compiled it for another chip. The answer is
UNVERIFIED with what was shown, or FAIL with what was caught.
"""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from rekindle.core import codec, console, files
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.findings import Finding, State, failed, passed, unverified, worst
from rekindle.core.paths import sha256_of
from rekindle.core.python import ask
from rekindle.formats import elf, package
from rekindle.formats.access import File
from rekindle.formats.fatbin import sorted_out
from rekindle.formats.package import Package
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.model.card import Capability, NamedCard, Target
from rekindle.wheels.verify import stand_in_reading as reading
from rekindle.wheels.verify import stand_in_run as runs
from rekindle.wheels.verify import trial
from rekindle.wheels.verify.stand_in_reading import OwnCode
from rekindle.wheels.verify.stand_in_run import NO_IMAGE, PtxPlace, RunResult, StandInSetup
from rekindle.wheels.verify.trial import OperatorResult, Operators, TorchHome, TrialSetup

_FAMILIES = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 7: "Volta or Turing", 8: "Ampere or Ada", 9: "Hopper"}


# Without a card at hand it is held against one newer than any: what has no PTX is refused everywhere.
_NEWEST = Capability(99, 0)
# Something that could not be imported says nothing about what was computed.
_NOT_BEGUN = re.compile(r"\b(?:ModuleNotFoundError|ImportError): [^|]*")


class StandInRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`gpu` is the old card; without one it is that of the wheel's oldest PTX. `against` is an extension's torch."""

    gpu: str | None = None
    python: str | None = None
    against: Path | None = None
    trial: Path | None = None
    old_driver: Path | None = None
    jit_cache: Path | None = None
    processes: int = 8
    seconds: float = 1800.0
    only: tuple[str, ...] = ()
    run: bool = True


class StandIn(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify --stand-in` prints with `--json`. `state` is UNVERIFIED at best."""

    schema: str = "rekindle.stand-in/1"
    subject: str
    sha256: str | None = None
    torch: str | None = None
    old_card: str
    ptx: str
    stand_in: str | None = None
    headline: str
    lines: tuple[Finding, ...]
    operators: Operators | None = None
    masked_operators: Operators | None = None
    state: State
    seconds: float | None = None


def stand_in(subject: Path | None, request: StandInRequest) -> StandIn:
    begun = time.monotonic()
    wheel = subject if subject is not None and subject.suffix == ".whl" else None
    if wheel is not None and not wheel.is_file():
        raise NotFound.path(wheel)
    home = None if wheel else trial.find(subject)
    place = home.torch if home else cast(Path, wheel)
    with package.open_package(place) as opened:
        code = reading.own_code(opened)
        old = _old_target(code, request.gpu)
        here = max((trial.cards_here()), key=lambda card: card.capability, default=None) if request.run else None
        lines, (plain, masked) = _lines(_Tried(opened, code, old, request, wheel, home), here)
    return StandIn(
        subject=wheel.name if wheel else str(home.environment.root if home else subject),
        sha256=sha256_of(wheel) if wheel else None,
        old_card=limits.card if (limits := capabilities.launch_limits(old.capability)) else old.capability.sm,
        ptx=str(old),
        stand_in=here.name if here else None,
        headline=_headline(old, here, lines),
        lines=tuple(lines),
        operators=plain.operators if plain else None,
        masked_operators=masked.operators if masked else None,
        # Never better than that: another chip ran it.
        state=max(worst(lines), State.UNVERIFIED, key=lambda state: state.rank),
        seconds=round(time.monotonic() - begun, 2),
    )


class _Tried(NamedTuple):
    """What is tried for which old card: a `wheel`, or the torch of a `home`."""

    opened: Package
    code: OwnCode
    old: Target
    request: StandInRequest
    wheel: Path | None
    home: TorchHome | None


_Shown = tuple[list[Finding], tuple[RunResult | None, RunResult | None]]


def _lines(tried: _Tried, here: NamedCard | None) -> _Shown:
    refused = reading.refusal(tried.code, tried.old, here.capability if here else _NEWEST)
    if refused is not None:
        return [refused, *_static(tried)], (None, None)
    if here is None:
        asked = "not run: only static checks were requested"
        text = "there is no NVIDIA card here to run it on" if tried.request.run else asked
        return [unverified("operators", text), *_static(tried)], (None, None)
    # Reading all kernels of a torch takes minutes, in which the card need not wait.
    with ThreadPoolExecutor(max_workers=1) as pool:
        reads = pool.submit(_static, tried)
        ran, results = _on_card(tried)
        return [*ran, *reads.result()], results


def _on_card(tried: _Tried) -> _Shown:
    request = tried.request
    place = TrialSetup(wheel=tried.wheel, home=tried.home, python=request.python, torch=request.against)
    with trial.environment(place) as made, files.scratch("stand-in") as folder:
        if made.python is None:
            return [made.finding], (None, None)
        setup = codec.like(StandInSetup, request, python=made.python, folder=folder, torch=_is_torch(tried.opened))
        ran, results = _run(setup, tried.old, _places(tried.code, made.python))
        if request.old_driver is not None and setup.torch:
            ran.append(runs.with_old_driver(setup, request.old_driver))
        return ran, results


def _places(code: OwnCode, python: Path) -> tuple[PtxPlace, ...]:
    """Where the containers with PTX lie in the environment of the trial."""
    roots = [python.parent.parent, *_package_folders(python)]
    found = []
    for binary in code.own:
        path = next((root / binary.name for root in roots if (root / binary.name).is_file()), None)
        if path is not None:
            found += [
                PtxPlace(file=path, offset=one.offset, size=one.size)
                for one in sorted_out(binary.containers)[0]
                if any(target.ptx for target in one.targets)
            ]
    return tuple(found)


def _package_folders(python: Path) -> tuple[Path, ...]:
    program = "import json, sysconfig as s; print(json.dumps([s.get_path('platlib'), s.get_path('purelib')]))"
    said = ask(python, "-c", program, env=os.environ, timeout=60.0)
    folders = [Path(one) for one in json.loads(said.out.strip().splitlines()[-1])] if said.ok else []
    return tuple(inner for folder in folders for inner in (folder, folder / "torch"))


def _run(setup: StandInSetup, old: Target, places: tuple[PtxPlace, ...]) -> _Shown:
    if not setup.torch and setup.trial is None:
        text = "this wheel is not torch, and no trial was given: nothing was run"
        return [unverified("operators", text)], (None, None)
    control, without = runs.without_jit(setup)
    if control.state is State.FAIL:
        return [control], (None, None)
    lines = [control]
    if places:
        lines.append(runs.warm_line(runs.warm(setup, places, runs.variables(setup)), old))
    plain = runs.run(setup, runs.variables(setup))
    lines[0] = _control(control, without, plain)
    name = "operators" if setup.torch else "trial"
    limits = capabilities.launch_limits(old.capability)
    if limits is None:
        text = f"no card of compute capability {old.capability} is in the tables to be imitated"
        return [*lines, _result(name, plain, old), unverified("host-branches", text)], (plain, None)
    masked, why = runs.masked(setup, limits)
    lines.append(_result(name, plain, old, masked))
    lines.append(_mask_line(plain, masked, why, limits.card))
    lines.append(_nvrtc_line(plain, masked, old))
    return lines, (plain, masked)


def _control(control: Finding, without: RunResult, plain: RunResult) -> Finding:
    """A torch whose kernels are loaded lazily raises nothing when there is no code for them: its results are wrong.

    What is wrong without the driver's compiler and right with it was made by that compiler.
    """
    if control.state is not State.UNVERIFIED:
        return control
    wrong = {one.key for one in without.operators.results if one.result == "failed"} if without.operators else set()
    right = {one.key for one in plain.operators.results if one.result == "passed"} if plain.operators else set()
    both = len(wrong & right)
    if both:
        text = f"with the driver's compiler switched off all {both} comparisons tried are wrong, with it they are right"
        return passed("control-jit", text)
    if without.trial is False and plain.trial:
        return passed("control-jit", "with the driver's compiler switched off the trial fails, with it it passes")
    return control


def _result(name: str, ran: RunResult, old: Target, masked: RunResult | None = None) -> Finding:
    """A refusal when the driver cannot compile the PTX; a failure when something was caught; else what was shown.

    What is right once the card says that it is the old one was wrong for the stand-in's sake: since 2.7.1 torch takes
    kernels on a 9.0 that have no body in code for older cards.
    """
    failures = [one.why for one in ran.operators.results if one.result == "failed"] if ran.operators else []
    said = [ran.said, *failures]
    if any("PTX" in text and ("unsupported toolchain" in text or "JIT compil" in text) for text in said):
        text = f"this driver cannot compile {old}: {next(text for text in said if 'PTX' in text)[:200]}"
        return failed("refused", text, why="without it nothing runs here")
    operators = ran.operators
    if ran.trial is False and operators is None and (error := _NOT_BEGUN.search(ran.said)):
        text = f"the trial did not begin: {error[0]}"
        return unverified(name, text, fix="name what it needs: `--against` its torch, or `--python` of an environment")
    parts = []
    if operators is not None:
        if operators.problem:
            return unverified(name, f"the operators were not tried: {operators.problem}")
        parts.append(
            f"{operators.table} entries of PyTorch's own table: {operators.passed} comparisons with the CPU passed, "
            f"{operators.failed} failed, {operators.crashed} crashed, {sum(operators.skipped.values())} skipped"
        )
        if operators.not_reached:
            parts.append(f"{operators.not_reached} operators not reached in time")
    if ran.trial is not None:
        parts.append("the trial passed" if ran.trial else f"the trial failed: {ran.said}")
    own_ways = _right_behind_mask(ran, masked)
    if own_ways:
        parts.append(
            f"{own_ways} of these failed only because torch chose kernels for the card here, not for the old one"
        )
    text = "; ".join(parts)
    if ran.failed and (ran.trial is False or operators is None or operators.failed + operators.crashed > own_ways):
        return failed(name, text, why="this code computed something else than the CPU")
    state = State.UNVERIFIED if operators is not None and not operators.whole else State.PASS
    return Finding(id=name, state=state, found=f"{text}, through {old}")


def _right_behind_mask(plain: RunResult, masked: RunResult | None) -> int:
    if plain.operators is None or masked is None or masked.operators is None:
        return 0
    right = {one.key for one in masked.operators.results if one.result == "passed"}
    return sum(one.key in right for one in plain.operators.results if one.result in ("failed", "crashed"))


def _mask_line(plain: RunResult, masked: RunResult | None, why: str, card: str) -> Finding:
    """Line 1: the branches that the host takes by the card's properties."""
    if masked is None:
        return unverified("host-branches", why)
    if "properties masked" not in masked.log:
        text = "the mask was never asked: the CUDA runtime is linked statically, or nothing looked at the card"
        if any("layout" in line for line in masked.log):
            text = "the mask does not know this CUDA runtime's cudaDeviceProp"
        return unverified("host-branches", text)
    broken, unloaded = _behind_mask(plain, masked)
    if broken or (plain.trial and masked.trial is False):
        named = ", ".join(f"{one.op} ({one.dtype}, {one.part})" for one in broken[:8]) or masked.said
        why = "the program takes another way on the old card, and that way is wrong"
        return failed("host-branches", f"fails when the card says it is {card}: {named}", why=why)
    text = f"with a runtime that reports {card}"
    if masked.operators is not None:
        text += f", {masked.operators.passed} comparisons passed, "
        text += f"{unloaded} found no code that loads here" if unloaded else "none that had passed before failed"
        if masked.operators.not_reached:
            text += f", {masked.operators.not_reached} operators not reached in time"
    if masked.trial is not None:
        text += ", the trial passed" if masked.trial else ", the trial fails as before"
    return Finding(id="host-branches", state=State.UNVERIFIED if unloaded else State.PASS, found=text)


def _behind_mask(plain: RunResult, masked: RunResult) -> tuple[list[OperatorResult], int]:
    """What passes without the mask and not behind it; and how much of that only found no code to load.

    The old card would load what NVRTC made for it: that it cannot be loaded here says nothing about it.
    """
    before = {one.key for one in plain.operators.results if one.result == "passed"} if plain.operators else set()
    after = {one.key: one for one in masked.operators.results} if masked.operators else {}
    other = [after[key] for key in sorted(before) if key in after and after[key].result in ("failed", "crashed")]
    broken = [one for one in other if NO_IMAGE not in one.why]
    return broken, len(other) - len(broken)


def _nvrtc_line(plain: RunResult, masked: RunResult | None, old: Target) -> Finding:
    """Line 2: kernels that torch compiles while running."""
    if masked is None:
        return unverified("nvrtc", "not seen without the mask of the old card")
    compiled, refused = masked.log.count("nvrtc compiled"), masked.log.count("nvrtc failed")
    if refused:
        text = f"NVRTC could not compile {refused} of {compiled + refused} kernels for {old.capability.sm}"
        return failed("nvrtc", text)
    if not compiled:
        return unverified("nvrtc", "nothing was compiled by NVRTC in these runs")
    unloaded = _behind_mask(plain, masked)[1]
    if unloaded:
        text = (
            f"NVRTC compiled {compiled} kernels for {old.capability.sm}, but {unloaded} comparisons could not load them"
        )
        return unverified("nvrtc", text)
    return passed("nvrtc", f"NVRTC compiled {compiled} kernels for {old.capability.sm}, and they ran as {old}")


def _static(tried: _Tried) -> list[Finding]:
    opened, code, old, request, *_ = tried
    kernels, unreadable = reading.readable(opened, code, old)
    limits = capabilities.launch_limits(old.capability)
    facts = capabilities.facts(old.capability)
    branch = f"R{facts.last_driver_branch}" if facts and facts.last_driver_branch else "of the old card"
    exported = _exported(request.old_driver) if request.old_driver else None
    read = [reading.launch_limits(kernels, limits, old), reading.kernel_names(kernels, old)]
    found = [*([unreadable] if unreadable else read), reading.vendor_libraries(code.vendor, old)]
    if _is_torch(opened):
        found.append(reading.magma_line(code))
        found.append(reading.driver_entry_points(code, exported, branch))
    found.append(
        unverified(
            "warps",
            "warps before Volta run in lockstep and newer ones do not: not proven either way",
            why="code that relies on lockstep, or on its absence, behaves differently on the old card",
        )
    )
    return found


def _old_target(code: OwnCode, gpu: str | None) -> Target:
    if gpu is not None:
        found = gpus.find(gpu).capabilities
        if len(found) != 1:
            raise BadInput(
                f"`{gpu}` may be a card of {' or '.join(str(one) for one in found)}",
                hint="name the compute capability: `--gpu sm_35`",
            )
        return Target(next(iter(found)), ptx=True)
    own = [target.capability for _, one in code.containers for target in one.targets]
    if not own:
        raise BadInput("it has no GPU code of its own", hint="`rekindle inspect` lists what is in it")
    return Target(min(own), ptx=True)


def _headline(old: Target, here: NamedCard | None, lines: list[Finding]) -> str:
    family = _FAMILIES.get(old.capability.major, old.capability.sm)
    if any(line.id == "refused" for line in lines):
        return f"refused: it cannot stand in for {family}"
    ran = any(line.id in ("operators", "trial") and line.state is not State.UNVERIFIED for line in lines)
    if here is None or not ran:
        return f"UNVERIFIED on {family} (nothing was run)"
    return f"UNVERIFIED on {family} (ran on {here.name} through {old})"


def _exported(library: Path) -> frozenset[str]:
    with File(library) as file:
        return elf.symbols(file).defined


def _is_torch(opened: Package) -> bool:
    return any(
        name.endswith(("torch/version.py", "/torch/version.py")) or name == "version.py" for name in opened.files
    )


_SHOWN = 12


def text(done: StandIn) -> str:
    parts = [console.paint(console.clean(done.subject), "bold"), ""]
    for number, line in enumerate(done.lines, start=1):
        named = msgspec.structs.replace(line, found=f"{line.id}: {console.clean(line.found)}")
        parts.append(f"{number:>2} {console.finding(named, indent='   ').strip()}")
    if done.operators is not None and done.operators.problem is None:
        parts += ["", *_operators("Operators", done.operators)]
    if done.masked_operators is not None and done.masked_operators.problem is None:
        parts += ["", *_operators(f"Operators, with a runtime that reports {done.old_card}", done.masked_operators)]
    took = f" in {done.seconds:.0f} s" if done.seconds is not None else ""
    bad = [line.id for line in done.lines if line.state is State.FAIL]
    end = done.headline + (f"; failed: {', '.join(bad)}" if bad else "") + took
    return "\n".join([*parts, "", console.wrap(console.clean(end))])


def _operators(title: str, found: Operators) -> list[str]:
    lines = [
        console.paint(title, "bold"),
        f"  entries in the table  {found.table}",
        f"  passed                {found.passed}",
        f"  failed                {found.failed}",
        f"  crashed               {found.crashed}",
        f"  not reached           {found.not_reached}",
        f"  skipped               {sum(found.skipped.values())}",
    ]
    lines += [f"    {number:>6}  {console.clean(why)}" for why, number in found.skipped.items()]
    wrong = [one for one in found.results if one.result in ("failed", "crashed")]
    for one in wrong[:_SHOWN]:
        what = " ".join(word for word in (one.op, one.dtype, one.part) if word)
        lines.append(console.wrap(f"{what}: {console.clean(one.why)}", indent="      ").replace("      ", "    ", 1))
    if len(wrong) > _SHOWN:
        lines.append(f"    … and {len(wrong) - _SHOWN} more; `--json` lists them all")
    return lines
