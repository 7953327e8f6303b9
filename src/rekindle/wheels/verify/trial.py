"""The environment in which a torch is tried: the one that is named, or a throw-away one into which a wheel is put.

PyTorch's own table of operators is compared in several processes. One in which a kernel went wrong cannot go on; it is
started again behind the operator that it was at.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from packaging.tags import sys_tags

from rekindle.core import codec, files
from rekindle.core.errors import MissingTool, NotFound
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned
from rekindle.core.paths import venv_python
from rekindle.core.programs import may_run
from rekindle.core.python import ask, isolated, pip
from rekindle.core.run import Result, call
from rekindle.machine.probe import graphics
from rekindle.machine.python.environment import find as find_environment
from rekindle.machine.python.environment import torch_of
from rekindle.model.card import NamedCard
from rekindle.model.environment import Environment
from rekindle.model.wheel import read_name

_SCRIPT = Path(__file__).with_name("ask_torch.py")
# Without the working folder: who stands in PyTorch's source tree has a `torch` there that is not the installed one.
_WHERE = (
    "import sys; sys.path = [p for p in sys.path if p]; import importlib.util as u, json; s = u.find_spec('torch'); "
    "print(json.dumps([sys.prefix, s.origin if s else None]))"
)
_MINUTES = 60.0


class TorchHome(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, and the torch folder that its interpreter imports."""

    environment: Environment
    torch: Path


class TrialSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried where: `wheel` in a new environment made by `python`, with the `torch` that it is meant for (a
    wheel, or an environment whose packages it sees), or `home` as it is. What the driver compiles meanwhile is kept in
    `jit_cache`."""

    wheel: Path | None = None
    home: TorchHome | None = None
    python: str | None = None
    torch: Path | None = None
    jit_cache: Path | None = None


class TrialRun(msgspec.Struct, kw_only=True):
    """An interpreter to run checks with; None when there is none, and `finding` says why. `facts` is torch's word."""

    python: Path | None
    finding: Finding
    seconds: float = 0.0
    facts: dict[str, Any] = {}
    jit_cache: Path | None = None


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    finding: Finding
    seconds: float | None = None


def cards_here() -> tuple[NamedCard, ...]:
    """The NVIDIA cards of this machine, whatever any torch thinks of them."""
    seen = graphics()
    return tuple(NamedCard(name=gpu.name or "a card", capability=gpu.capability) for gpu in seen.gpus if gpu.capability)


def find(where: Path | None) -> TorchHome:
    """The torch of an environment; without one named, of the environment that every other verb looks at too.

    Its interpreter says which torch it imports; where nothing may be run, the files do.
    """
    found = find_environment(where)
    if not may_run():
        torch = torch_of(found)
        if torch is None:
            raise NotFound(f"there is no torch in `{found.root}`", hint="name a wheel, or leave out `--no-run`")
        return TorchHome(environment=found, torch=torch)
    said = ask(found.program, "-c", _WHERE, env=clean_environment(), timeout=_MINUTES)
    if not said.ok:
        message = f"`{found.program}` does not run: {(said.err.strip() or 'no answer').splitlines()[-1]}"
        raise MissingTool(message, hint="name the environment's folder or its python")
    prefix, origin = json.loads(said.out.strip().splitlines()[-1])
    if origin is None:
        raise NotFound(f"there is no torch in `{prefix}`", hint="name a wheel, or the environment that has torch")
    return TorchHome(environment=found, torch=Path(origin).parent)


@contextlib.contextmanager
def environment(place: TrialSetup) -> Iterator[TrialRun]:
    """Where to run: an environment as it is, or a new one with the wheel, removed afterwards."""
    home = place.home
    if home is not None:
        finding = passed("install", f"already installed, in {home.environment.root}")
        yield TrialRun(python=Path(home.environment.program), finding=finding, jit_cache=place.jit_cache)
        return
    assert place.wheel is not None
    with files.scratch("verify") as folder:
        begun = time.monotonic()
        made = _installed(place, place.wheel, folder / "env")
        made.seconds = time.monotonic() - begun
        made.jit_cache = place.jit_cache
        yield made


def facts(environment: TrialRun) -> list[TrialAnswer]:
    """Import, and what torch says of itself, which is also kept in `environment.facts`."""
    said = _ask(environment, ["facts"], timeout=300.0)
    lines = lines_of(said.out)
    environment.facts = next((line["facts"] for line in lines if "facts" in line), {})
    return _answers(said, lines, ("import", "cpu", "numpy"))


def on_card(environment: TrialRun, index: int, names: Sequence[str]) -> list[TrialAnswer]:
    """Every GPU check on one card, in a process of its own: a crash ends the checks of this card only."""
    # Compiled PTX that the driver keeps from an earlier run would hide how long a card that is served by JIT waits.
    kept = {} if environment.jit_cache else {"CUDA_CACHE_DISABLE": "1"}
    answers = answers_of(environment, ["card", str(index)], names, timeout=600.0, **kept)
    return [_with_jit(environment, index, answer) if answer.id == "launch" else answer for answer in answers]


def answers_of(
    environment: TrialRun, words: Sequence[str], names: Sequence[str], *, timeout: float, **more: str
) -> list[TrialAnswer]:
    """The answers of one process that was asked for these checks, with `more` variables."""
    said = _ask(environment, words, timeout=timeout, **more)
    return _answers(said, lines_of(said.out), names)


def _with_jit(environment: TrialRun, index: int, answer: TrialAnswer) -> TrialAnswer:
    """The first launch again in a process in which the driver may not compile PTX: what fails now was JIT."""
    if answer.finding.state is not State.PASS:
        return answer
    said = _ask(environment, ["launch", str(index)], timeout=120.0, CUDA_DISABLE_PTX_JIT="1", CUDA_CACHE_DISABLE="1")
    again = next((line for line in lines_of(said.out) if line.get("id") == "launch"), None)
    if again is not None and again["ok"]:
        text = answer.finding.found + "; nothing had to be compiled by the driver"
        finding = msgspec.structs.replace(answer.finding, found=text)
    else:
        finding = warned(
            "launch",
            answer.finding.found + "; without the driver's JIT compiler they do not run",
            why="this torch has no native code for the card: every first use of a kernel waits for the driver",
            fix="`rekindle plan` names a build with native code",
        )
    return msgspec.structs.replace(answer, finding=finding)


def _installed(place: TrialSetup, wheel: Path, folder: Path) -> TrialRun:
    seen = find_environment(place.torch) if place.torch is not None and place.torch.suffix != ".whl" else None
    interpreter = Path(place.python or (seen.program if seen else sys.executable))
    foreign = None if place.python or seen else _foreign(wheel)
    if foreign:
        return _without(foreign, State.UNVERIFIED)
    made = call(isolated(interpreter, "-m", "venv", str(folder)), timeout=5 * _MINUTES)
    if not made.ok:
        return _without(f"no environment could be made with `{interpreter}`: {_last(made)}", State.UNVERIFIED)
    inner = venv_python(folder)
    if seen is not None:
        files.write_text(find_environment(folder).site / "meant_for.pth", "\n".join(seen.site_packages) + "\n")
    plain = read_name(wheel.name).plain
    if plain != wheel.name:  # pip does not know the names of variants
        wheel = Path(shutil.copy(wheel, folder / plain))
    wheels = [wheel, *([place.torch] if place.torch is not None and place.torch.suffix == ".whl" else [])]
    words = pip(inner, "install", "-q", *(str(each.absolute()) for each in wheels))
    said = call(words, timeout=30 * _MINUTES)
    if not said.ok:
        last = _last(said)
        unsuited = "not a supported wheel" in said.err
        lacking = "No matching distribution" in said.err or "Could not find a version" in said.err
        return _without(f"pip did not install it: {last}", State.UNVERIFIED if unsuited or lacking else State.FAIL)
    finding = passed("install", "pip installed it and its requirements in a new environment")
    return TrialRun(python=inner, finding=finding)


def _without(text: str, state: State) -> TrialRun:
    fix = Fix(text="run this on the wheel's own platform, or name an interpreter with `--python`")
    return TrialRun(python=None, finding=Finding(id="install", state=state, found=text, fix=fix))


def _foreign(wheel: Path) -> str | None:
    mine = set(sys_tags())
    tags = read_name(wheel.name).tags
    if tags & mine:
        return None
    first = min(str(tag) for tag in tags)
    python = ".".join(str(part) for part in sys.version_info[:2])
    return f"a wheel for {first} cannot be run by this Python ({python} on {sys.platform} {platform.machine()})"


def _ask(environment: TrialRun, words: Sequence[str], *, timeout: float, **more: str) -> Result:
    assert environment.python is not None
    env = {
        **clean_environment(),
        **driver_cache(environment.jit_cache),
        **more,
        "PYTHONUTF8": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return ask(environment.python, str(_SCRIPT), *words, env=env, timeout=timeout)


def driver_cache(folder: Path | None) -> dict[str, str]:
    """The driver keeps what it compiles in this folder, all of a torch if need be."""
    if folder is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {"CUDA_CACHE_PATH": str(folder), "CUDA_CACHE_MAXSIZE": str(4 << 30), "CUDA_CACHE_DISABLE": "0"}


def clean_environment() -> dict[str, str]:
    """Without what was set for Rekindle's own Python."""
    theirs = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH")
    return {name: value for name, value in os.environ.items() if name not in theirs}


def _answers(said: Result, lines: Sequence[dict[str, Any]], names: Sequence[str]) -> list[TrialAnswer]:
    """One answer per name. A check that began and did not end is where the process died."""
    done = {line["id"]: line for line in lines if "id" in line}
    begun = [line["begin"] for line in lines if "begin" in line]
    answers = []
    for name in names:
        line = done.get(name)
        if line is not None:
            state = {True: State.PASS, False: State.FAIL, None: State.UNVERIFIED}[line["ok"]]
            why, fix = _advice(str(line["found"])) if state is State.FAIL else ("", None)
            finding = Finding(id=name, state=state, found=str(line["found"]), why=why, fix=fix)
            answers.append(TrialAnswer(id=name, finding=finding, seconds=line.get("seconds")))
        elif name in begun:
            end = "timed out" if said.timed_out else f"exited with code {said.code}"
            text = f"the process {end} during this check: {_last(said)}"
            answers.append(TrialAnswer(id=name, finding=failed(name, text)))
        elif not begun or done:
            last = begun[-1] if begun else "start"
            text = f"not run: the process had ended ({last}: {_last(said)})" if last not in done else "not run"
            answers.append(TrialAnswer(id=name, finding=unverified(name, text)))
    return answers


def _advice(found: str) -> tuple[str, Fix | None]:
    if "WinError 126" in found or "WinError 127" in found or "cannot open shared object" in found:
        return (
            "a library that it needs is not there; the file named is seldom the one that is missing",
            Fix(text="`rekindle inspect` names it, `rekindle repair` brings it"),
        )
    if "no kernel image" in found:
        return "there is no code for this card inside", Fix(text="`rekindle plan` names a build that serves the card")
    return "", None


def _last(said: Result) -> str:
    lines = [line for line in (said.err or said.out).strip().splitlines() if line.strip() and not line.startswith(MARK)]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1].strip()[:300]


OPERATORS_SCRIPT = Path(__file__).with_name("ask_operators.py")
MARK = "rekindle-verify: "
_RESTARTS = 50


class OperatorResult(msgspec.Struct, frozen=True, kw_only=True):
    """One operator with one type, forwards or backwards. `result` is passed, failed, skipped, crashed, not reached."""

    op: str
    dtype: str = ""
    part: str = ""
    result: str
    why: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.op, self.dtype, self.part)


class Operators(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what was compared; `results` has all of it, for those who want to count again."""

    table: int
    passed: int
    failed: int
    skipped: dict[str, int]
    crashed: int
    not_reached: int
    results: tuple[OperatorResult, ...]
    problem: str | None = None

    @property
    def whole(self) -> bool:
        """Was every operator of the table tried, and was there one?"""
        return self.problem is None and self.table > 0 and not self.not_reached


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """How the table is gone through: with which Python and environment, in how many processes, for how long."""

    python: Path
    env: Mapping[str, str]
    processes: int = 8
    seconds: float = 1800.0
    only: Sequence[str] = ()
    device: str = "cuda"


def compare_operators(trip: Trip) -> Operators:
    with ThreadPoolExecutor(max_workers=trip.processes) as pool:
        shares = list(pool.map(lambda number: _share(trip, number), range(trip.processes)))
    return operator_counts([line for lines in shares for line in lines])


def operator_counts(lines: Sequence[Mapping[str, Any]]) -> Operators:
    """What the lines of all processes amount to."""
    results = tuple(
        sorted(
            (codec.from_builtins(line, OperatorResult) for line in lines if "result" in line and "op" in line),
            key=lambda one: one.key,
        )
    )
    by = Counter(one.result for one in results)
    problems = [str(line["problem"]) for line in lines if "problem" in line]
    return Operators(
        table=max((int(line["table"]) for line in lines if "table" in line), default=0),
        passed=by["passed"],
        failed=by["failed"],
        skipped=dict(Counter(_reason(one.why) for one in results if one.result == "skipped").most_common()),
        crashed=by["crashed"],
        not_reached=by["not reached"],
        results=results,
        problem=problems[0] if problems else None,
    )


def _share(trip: Trip, number: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    first, left = 0, trip.seconds
    for _ in range(_RESTARTS):
        words = [trip.device, str(number), str(trip.processes), str(first), str(left), *trip.only]
        # What a hanging kernel costs beyond the limit that the process keeps itself.
        said = call([trip.python, OPERATORS_SCRIPT, *words], env=trip.env, timeout=left + 120)
        new = lines_of(said.out)
        lines += new
        last = next((line for line in reversed(new) if "begin" in line), None)
        if any("end" in line or "problem" in line or line.get("result") == "not reached" for line in new):
            return lines
        if last is None:
            return [*lines, {"problem": _end_of(said)}]
        poisoned = next((str(line["why"]) for line in new if "poisoned" in line), None)
        lines.append({"op": last["op"], "result": "crashed", "why": poisoned or _end_of(said)})
        first = int(last["begin"]) + 1
        left -= said.seconds
        if left <= 0:
            return [*lines, {"op": f"share {number} from {first}", "result": "not reached", "why": "no time was left"}]
    return [*lines, {"problem": f"the process ended {_RESTARTS} times"}]


def lines_of(text: str) -> list[dict[str, Any]]:
    """What a script of ours said between whatever torch printed."""
    found = []
    for line in text.splitlines():
        if line.startswith(MARK):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line.removeprefix(MARK)))
    return found


def _end_of(said: Result) -> str:
    if said.timed_out:
        return "timed out"
    tail = (said.err or said.out).strip().splitlines()
    return f"exited with code {said.code}: {tail[-1][:200] if tail else 'it said nothing'}"


def _reason(why: str) -> str:
    """Reasons are counted by their kind; what an exception said goes on in `results`."""
    return why.partition(": ")[0]
