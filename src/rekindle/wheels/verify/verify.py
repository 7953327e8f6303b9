"""`rekindle verify`: numbered checks of a wheel or of an installed torch, from its file to a step of training.

What can be read is read first; if that already fails, nothing is run. What needs a GPU is UNVERIFIED without one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import msgspec

from rekindle.core import codec, console
from rekindle.core.errors import NotFound
from rekindle.core.findings import Finding, State, passed, unverified, worst
from rekindle.core.paths import sha256_of
from rekindle.core.programs import reads_only
from rekindle.core.run import call
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capabilities import throughput
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.model.card import Capability, NamedCard
from rekindle.model.wheel import WheelIdentity, identity_fields
from rekindle.wheels.inspect.inspection import CardCoverage, Reading
from rekindle.wheels.verify import static_checks, trial
from rekindle.wheels.verify.static_checks import OpenedSubject
from rekindle.wheels.verify.trial import TrialAnswer, TrialRun

# The order is the number. `gpu` checks are carried out on each card.
STATIC = ("file", "record", "tags", "closure", "coverage")
RUNNING = ("install", "import", "version", "config", "cpu", "numpy", "cuda")
ON_CARD = (
    "arch-list", "launch", "allocation", "matmul-fp32", "matmul-fp16", "matmul-bf16", "matmul-tf32", "cublas", "cudnn",
    "fft", "linalg", "magma", "random", "streams", "training",
)  # fmt: skip


class NumberedCheck(Finding, frozen=True, kw_only=True):
    """A finding with its number; `card` is the one it was carried out on, `seconds` how long that took."""

    number: int
    card: str | None = None
    seconds: float | None = None


class SeenCard(NamedCard, frozen=True, kw_only=True):
    """A card of this machine, as torch or the driver sees it."""

    index: int


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan, or the command line, says it should be. None: not said.

    `bench` measures each card as well; `all_gpus` lets all cards work together.
    """

    torch: str | None = None
    cuda: str | None = None
    cards: tuple[str, ...] = ()
    bench: bool = False
    all_gpus: bool = False


class Verification(WheelIdentity, frozen=True, kw_only=True):
    """What `verify` prints with `--json`, and the report that travels with a wheel (`sha256` is the wheel's)."""

    schema: str = "rekindle.verify/1"
    subject: str
    kind: str
    sha256: str | None = None
    size: int | None = None
    python: str | None = None
    platform: str | None = None
    cards: tuple[SeenCard, ...] = ()
    checks: tuple[NumberedCheck, ...] = ()
    state: State
    seconds: float | None = None


class Verifications(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` prints with `--json` for more than one."""

    schema: str = "rekindle.verifications/1"
    verifications: tuple[Verification, ...]


def verify(
    subject: Path | None,
    *,
    expected: Expected | None = None,
    python: str | None = None,
    run: bool = True,
    against: Path | None = None,
    jit_cache: Path | None = None,
    reading: Reading | None = None,
) -> Verification:
    """Every check in order. `python` is the interpreter for a wheel's throw-away environment; without `run` nothing
    is installed or imported. `against` is the torch that an extension is meant for: a wheel or an environment.
    `jit_cache` keeps what the driver compiles. `reading` is what was read of this very file before."""
    begun = time.monotonic()
    expected = expected or Expected()
    wheel = subject if subject is not None and subject.suffix == ".whl" else None
    if wheel is not None and not wheel.is_file():
        raise NotFound.path(wheel)
    with contextlib.nullcontext() if run else reads_only():
        home = None if wheel else trial.find(subject)
        here = trial.cards_here() if run else ()
        wanted = [*expected.cards, *dict.fromkeys(card.capability.sm for card in here)]
        with static_checks.opened(home.torch if home else cast(Path, wheel), wanted, against, reading) as read:
            place = trial.TrialSetup(wheel=wheel, home=home, python=python, torch=against, jit_cache=jit_cache)
            outcome = _carried_out(read, place, expected, run)
    known = read.inspection
    return Verification(
        subject=wheel.name if wheel else str(home.environment.root if home else subject),
        kind="wheel" if wheel else "environment",
        sha256=sha256_of(wheel) if wheel else None,
        size=wheel.stat().st_size if wheel else None,
        **identity_fields(known),
        python=outcome.facts.get("python") or known.python,
        platform=known.platform,
        cards=tuple(
            SeenCard(index=one["index"], name=one["name"], capability=Capability.parse(one["capability"]))
            for one in outcome.facts.get("cards", ())
        ),
        checks=outcome.checks,
        state=worst(outcome.checks),
        seconds=round(time.monotonic() - begun, 2),
    )


def _carried_out(read: OpenedSubject, place: trial.TrialSetup, expected: Expected, run: bool) -> _Outcome:
    wanted = _asked(read, expected)
    cards = [card.query for card in wanted]
    findings: dict[str, Finding] = {}
    seconds: dict[str, float] = {}
    for name, check in static_checks.CHECKS.items():
        begun = time.monotonic()
        findings[name] = check(read, cards)
        seconds[name] = time.monotonic() - begun
    failed = _stops(read, wanted, findings, installed=place.home is not None)
    if not run or failed:
        asked = "not run: only static checks were requested"
        why = f"not run, because the check `{failed}` failed" if failed and run else asked
        return _Outcome(checks=_numbered(findings, seconds, expected, (), why))
    with trial.environment(place) as environment:
        findings["install"] = environment.finding
        seconds["install"] = environment.seconds
        if environment.python is None:
            why = "not run, because there is no environment to run it in"
            return _Outcome(checks=_numbered(findings, seconds, expected, (), why))
        seen = _run(environment, read, expected, findings, seconds)
        return _Outcome(checks=_numbered(findings, seconds, expected, seen, None), facts=environment.facts)


def _asked(read: OpenedSubject, expected: Expected) -> tuple[CardCoverage, ...]:
    """The cards it has to serve: those that are named. Where none is, those of this machine, if it is for any GPU."""
    named = gpus.capabilities_of(expected.cards)
    if not named and not read.inspection.torch and not read.inspection.gpu_code:
        return ()
    return tuple(card for card in read.inspection.cards if not named or card.capability in named)


def _meant(read: OpenedSubject, expected: Expected, card: Mapping[str, Any]) -> bool:
    """Is this card of the machine one that it was made for? Who builds for another machine's has a card here too."""
    capability = Capability.parse(str(card["capability"]))
    if not expected.cards or capability in gpus.capabilities_of(expected.cards):
        return True
    here = [one for one in read.inspection.cards if one.capability == capability]
    return any(one.coverage is Coverage.SERVES and not one.by_jit for one in here)


def _stops(
    read: OpenedSubject, asked: Sequence[CardCoverage], findings: Mapping[str, Finding], *, installed: bool
) -> str | None:
    """The check whose failure makes running pointless. What is installed may load in spite of what reading says."""
    failed = [name for name in STATIC if findings[name].state is State.FAIL]
    if not installed:
        return next(iter(failed), None)
    hopeless = not read.inspection.gpu_code or any(card.coverage is Coverage.NO for card in asked)
    return "coverage" if "coverage" in failed and hopeless else None


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    checks: tuple[NumberedCheck, ...]
    facts: dict[str, Any] = {}


def expected_of(path: Path, *, bench: bool = False, all_gpus: bool = False) -> Expected:
    """What a plan says it should be."""
    from rekindle.stack import plan as lock

    planned = lock.read(path)
    cards = tuple(dict.fromkeys(capability.sm for card in planned.cards for capability in card.capabilities))
    cuda = str(planned.cuda) if planned.cuda else None
    return Expected(torch=planned.torch, cuda=cuda, cards=cards, bench=bench, all_gpus=all_gpus)


def report_beside(wheel: Path) -> Path:
    """Where a wheel's report lies: beside it, under its whole name."""
    return wheel.with_name(wheel.name + ".verify.json")


def _run(
    environment: TrialRun,
    read: OpenedSubject,
    expected: Expected,
    findings: dict[str, Finding],
    seconds: dict[str, float],
) -> list[NumberedCheck]:
    own = () if static_checks.is_torch(read) else static_checks.modules(read)
    # Of a wheel that is not torch: can what it brings be imported?
    asked = ["import", *own]
    answers = trial.answers_of(environment, asked, ("import",), timeout=300.0) if own else trial.facts(environment)
    for answer in answers:
        findings[answer.id] = answer.finding
        if answer.seconds is not None:
            seconds[answer.id] = answer.seconds
    if own and findings["import"].state is State.PASS and findings["closure"].state is State.UNVERIFIED:
        text = "what comes with torch is there: it was imported with the torch that pip installed beside it"
        findings["closure"] = passed("closure", text)
    if findings["import"].state is State.FAIL or own:
        return []
    links = findings["closure"]
    if links.state is State.FAIL:
        text = f"{links.found}. Here it was imported all the same: this machine brings what is missing"
        findings["closure"] = msgspec.structs.replace(links, state=State.WARN, found=text)
    findings["version"] = static_checks.version_finding(read, environment.facts, expected.torch, expected.cuda)
    findings["config"] = static_checks.config_finding(read, environment.facts)
    meant = [card for card in environment.facts.get("cards", ()) if _meant(read, expected, card)]
    findings["cuda"] = _cuda_finding(environment.facts, meant, _asked(read, expected))
    if findings["cuda"].state is not State.PASS:
        return []
    seen = []
    for card in meant:
        label = f"{card['index']}: {card['name']}"
        for answer in trial.on_card(environment, card["index"], ON_CARD):
            number = len(STATIC) + len(RUNNING) + ON_CARD.index(answer.id) + 1
            seen.append(_check(answer.finding, number, answer.seconds, label))
        if expected.bench:
            seen += _further(bench(environment, card), BENCH, label, after=len(ON_CARD))
    if expected.all_gpus:
        answers = together(environment, environment.facts["cards"])
        seen += _further(answers, TOGETHER, "all cards", after=len(ON_CARD) + len(BENCH))
    return seen


def _further(answers: Sequence[TrialAnswer], names: Sequence[str], label: str, *, after: int) -> list[NumberedCheck]:
    first = len(STATIC) + len(RUNNING) + after + 1
    return [_check(each.finding, first + names.index(each.id), each.seconds, label) for each in answers]


def _cuda_finding(
    facts: Mapping[str, Any], meant: Sequence[Mapping[str, Any]], asked: Sequence[CardCoverage]
) -> Finding:
    if facts.get("cuda") is None:
        return unverified("cuda", "torch is a CPU build")
    if facts.get("cuda_available"):
        cards = facts["cards"]
        if meant:
            return passed("cuda", f"torch sees {len(cards)} GPU(s)")
        there = ", ".join(f"{card['name']} ({card['capability']})" for card in cards) or "no GPU"
        wanted = ", ".join(dict.fromkeys(card.name for card in asked))
        return unverified(
            "cuda",
            f"torch sees {there}; it was made for {wanted}, so nothing was tried on a GPU",
            fix="run this on the machine with the card; with `--stand-in` a newer card runs its PTX",
        )
    problem = str(facts.get("cuda_problem") or "no reason given").split("\n")[0]
    return unverified(
        "cuda",
        f"torch sees no GPU on this machine: {problem}",
        why="checks that need a GPU cannot run without one",
        fix="run this on the machine with the card; `rekindle doctor` says what is wrong with its driver",
    )


def _numbered(
    findings: dict[str, Finding],
    seconds: dict[str, float],
    expected: Expected,
    seen: Sequence[NumberedCheck],
    why: str | None,
) -> tuple[NumberedCheck, ...]:
    """All checks in order; one that did not happen is UNVERIFIED with the reason."""
    checks = []
    reason = why or _blocker(findings)
    for number, name in enumerate((*STATIC, *RUNNING), start=1):
        finding = findings.get(name) or unverified(name, reason)
        checks.append(_check(finding, number, seconds.get(name), None))
    if seen:
        return (*checks, *seen)
    first = len(checks) + 1
    every = enumerate((*ON_CARD, *BENCH, *TOGETHER), start=first)
    left_out = (() if expected.bench else BENCH) + (() if expected.all_gpus else TOGETHER)
    return (
        *checks,
        *(_check(unverified(name, reason), number, None, None) for number, name in every if name not in left_out),
    )


def _blocker(findings: dict[str, Finding]) -> str:
    if findings.get("import") and findings["import"].state is State.FAIL:
        return "not run, because it cannot be imported"
    if "import" in findings and "cuda" not in findings:
        return "not run: this wheel is not of torch"
    return findings["cuda"].found if "cuda" in findings else "not run"


def _check(finding: Finding, number: int, seconds: float | None, card: str | None) -> NumberedCheck:
    seconds = None if seconds is None else round(seconds, 3)
    return codec.like(NumberedCheck, finding, number=number, card=card, seconds=seconds)


BENCH = ("bench-fp32", "bench-fp16", "bench-conv")
TOGETHER = ("peer-copy", "all-reduce")


def bench(environment: TrialRun, card: dict[str, Any]) -> list[TrialAnswer]:
    """Matrix products and a convolution on one card, each with its share of the nominal rate."""
    single, half = _nominal(card, _clocks())
    words = ["bench", str(card["index"]), f"{single or 0:.3f}", f"{half or 0:.3f}"]
    return trial.answers_of(environment, words, BENCH, timeout=300.0)


def together(environment: TrialRun, cards: Sequence[dict[str, Any]]) -> list[TrialAnswer]:
    """Copies between every two cards, and a sum over all of them."""
    if len(cards) < 2:
        text = "torch sees one card; this needs two (a K80 is two)"
        return [TrialAnswer(id=name, finding=unverified(name, text)) for name in TOGETHER]
    return trial.answers_of(environment, ["together", str(len(cards))], TOGETHER, timeout=300.0)


def _nominal(card: dict[str, Any], clocks: Sequence[float]) -> tuple[float | None, float | None]:
    rates = throughput(Capability.parse(str(card["capability"])))
    index = int(card["index"])
    clock = clocks[index] if index < len(clocks) else (card.get("clock") or 0) / 1000
    if rates is None or not clock or not card.get("multiprocessors"):
        return None, None
    return rates.nominal(int(card["multiprocessors"]), clock)


def _clocks() -> list[float]:
    """The highest clock of each card in MHz, in the order of their PCI addresses."""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,clocks.max.sm", "--format=csv,noheader,nounits"]
    said = call(query, timeout=30.0)
    if not said.ok:
        return []
    rows = sorted(line.split(",") for line in said.out.splitlines() if line.count(",") == 1)
    try:
        return [float(row[1]) for row in rows]
    except ValueError:
        return []


_WORDS = {
    State.PASS: "all checks passed",
    State.WARN: "works, with warnings",
    State.UNVERIFIED: "no failures, but some checks could not be run",
    State.FAIL: "failed",
}


def text(done: Verification) -> str:
    head = console.paint(console.clean(done.subject), "bold")
    lines = []
    for card, checks in groupby(done.checks, key=lambda check: check.card):
        if card is not None:
            lines.append("\n" + console.paint(console.clean(card), "bold"))
        lines += _lines(list(checks))
    counts = [f"{sum(check.state is state for check in done.checks)} {state.value}" for state in State]
    took = f" in {done.seconds:.0f} s" if done.seconds is not None else ""
    end = console.wrap(f"{_WORDS[done.state]}: {', '.join(counts)}{took}")
    return f"{head}\n\n" + "\n".join(lines) + f"\n\n{end}"


def junit(done: Verification) -> str:
    suite = ElementTree.Element(
        "testsuite",
        name="rekindle verify",
        tests=str(len(done.checks)),
        failures=str(sum(check.state is State.FAIL for check in done.checks)),
        skipped=str(sum(check.state is State.UNVERIFIED for check in done.checks)),
        errors="0",
        time=f"{done.seconds or 0:.3f}",
    )
    for check in done.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_xml(f"{done.subject}.{check.card or 'all'}"),
            name=f"{check.number:02} {check.id}",
            time=f"{check.seconds or 0:.3f}",
        )
        if check.state is State.FAIL:
            ElementTree.SubElement(case, "failure", message=_xml(check.found)).text = _xml(check.why)
        elif check.state is State.UNVERIFIED:
            ElementTree.SubElement(case, "skipped", message=_xml(f"UNVERIFIED: {check.found}"))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(f"{check.state.value}: {check.found}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _lines(checks: Sequence[NumberedCheck]) -> Iterator[str]:
    """One line a check; a run of those that could not be carried out for the same reason is one."""
    for key, group in groupby(checks, key=lambda check: (check.state, check.found)):
        same = list(group)
        if key[0] is State.UNVERIFIED and len(same) > 2:
            names = ", ".join(check.id for check in same)
            label = console.paint(f"{State.UNVERIFIED.value:<10}", "cyan")
            body = console.wrap(f"{names}: {console.clean(key[1])}", indent=" " * 14).strip()
            yield f"{same[0].number:>2} {label} {body}"
        else:
            for check in same:
                yield f"{check.number:>2} {console.finding(_named(check), indent='   ').strip()}"


def _named(check: NumberedCheck) -> NumberedCheck:
    import msgspec

    took = f" ({check.seconds:.1f} s)" if check.seconds is not None and check.seconds >= 0.5 else ""
    return msgspec.structs.replace(check, found=f"{check.id}: {console.clean(check.found)}{took}")


def _xml(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(letter for letter in console.clean(text) if letter.isprintable() or letter in "\n\t")
