"""From one combination of the matrix to its lock, through the resolver; what cannot be or need not be says why.

Ten thousand combinations ask far fewer questions: cards of one compute capability are one card, and each question is
asked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from rekindle.build import backend_choice
from rekindle.build.configure import request as build_request
from rekindle.compat.judgement import Clash
from rekindle.compat.torch_python import takes
from rekindle.core import codec
from rekindle.core.errors import RekindleError, UnknownName
from rekindle.core.version import Version
from rekindle.fleet import job
from rekindle.fleet.job import FleetLock, JobEstimate, JobKind, JobState
from rekindle.fleet.matrix_file import MatrixCell, MatrixFile, ProjectEntry, rules_for
from rekindle.inputs.system import read_processor, read_system
from rekindle.inputs.torch import with_cuda
from rekindle.inputs.versions import read_python
from rekindle.knowledge.torch.companions import version_for
from rekindle.machine import snapshot
from rekindle.model.cuda_line import CudaLine
from rekindle.model.torch_pin import CPU
from rekindle.stack import source_build
from rekindle.stack.driver import window_of
from rekindle.stack.from_machine import situation_of
from rekindle.stack.offers import Offer
from rekindle.stack.plan import Plan, plan_of
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish, cards_named

_REMEMBERED = 1024
"""Answers at most: whoever asks puts equal questions next to each other, and ten thousand answers are much memory."""
_INSTALLED = (RouteKind.SHELF, RouteKind.OFFICIAL_WHEEL)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a combination. `torch` is the lock of the torch that has to be built first."""

    state: JobState
    reason: str = ""
    lock: FleetLock | None = None
    plan: Plan | None = None
    wheel: str | None = None
    cards: tuple[str, ...] = ()
    torch: FleetLock | None = None
    estimate: JobEstimate = JobEstimate()


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A combination as the resolver is asked for it."""

    situation: Situation
    wish: Wish
    python: str | None
    options: dict[str, str]
    always: bool


class Resolving:
    """Answers for the combinations of one matrix. `root` is the folder that its paths are meant from."""

    def __init__(self, matrix: MatrixFile, root: Path, shelf: tuple[Offer, ...] = ()) -> None:
        self.matrix = matrix
        self.root = root
        self.shelf = shelf
        self.asked = 0
        self._overrides = rules_for((each.when, each) for each in matrix.override)
        self._answer = lru_cache(maxsize=_REMEMBERED)(self._resolved)
        self._cards: dict[str, tuple[Card, ...]] = {}
        self._machine = cache(lambda name: situation_of(snapshot.load(Path(name))))
        self._digest = cache(lambda folder: job.digest_source(root / folder))
        self._file = cache(lambda name: build_request.read(root / name))

    def outcome(self, cell: MatrixCell) -> Outcome:
        """What to do for this combination; of one that is impossible for its cards together, how they go apart."""
        found = self._outcome(cell)
        names = re.split(r"\s*[;,]\s*", cell.gpu.strip()) if cell.gpu and cell.machine is None else []
        if found.state is not JobState.IMPOSSIBLE or len(names) < 2:
            return found
        groups: list[list[str]] = []
        alone: dict[str, list[str]] = {}
        for name in names:
            if (one := self._outcome(msgspec.structs.replace(cell, gpu=name))).state is JobState.IMPOSSIBLE:
                known = self._cards.get(name)
                reason = one.reason.replace(f" {known[0].name}", " it") if known else one.reason
                alone.setdefault(reason, []).append(name)
                continue
            for group in groups:
                together = msgspec.structs.replace(cell, gpu=";".join([*group, name]))
                if self._outcome(together).state is not JobState.IMPOSSIBLE:
                    group.append(name)
                    break
            else:
                groups.append([name])
        if not groups and len(alone) == 1:
            return found
        rows = ", ".join(f'"{";".join(group)}"' for group in groups)
        advice = [f"it works as gpu = [{rows}]"] if groups else []
        rest = [f"none at all for {', '.join(each)}: {reason}" for reason, each in alone.items()]
        return msgspec.structs.replace(found, reason="; ".join([found.reason, *advice, *rest]))

    def _outcome(self, cell: MatrixCell) -> Outcome:
        """An error of its own words makes a combination impossible, and stops no other."""
        try:
            return self._way(cell.project)(cell, self._wanted(cell))
        except RekindleError as error:
            return Outcome(state=JobState.IMPOSSIBLE, reason="; ".join(filter(None, (error.message, error.hint))))

    def _way(self, project: str) -> Callable[[MatrixCell, _Wanted], Outcome]:
        entry = self.matrix.projects.get(project)
        if entry is not None:
            return self._cmake if entry.build is not None else self._extension
        return self._torch if project == "torch" else self._extension

    # -- the question ---------------------------------------------------------------------------------------------

    def _wanted(self, cell: MatrixCell) -> _Wanted:
        python = read_python(cell.python).version if cell.python is not None else None
        if cell.machine is not None:
            situation = self._machine(cell.machine)
            python = python or situation.python
        else:
            place = read_system(cell.os)
            cards = () if cell.cuda == CPU and not cell.gpu else self._alike(cell.gpu)
            situation = Situation(
                system=place.system,
                release=place.release,
                libc=place.libc,
                glibc=place.glibc,
                arch=read_processor(cell.arch),
                cards=cards,
                python=python,
            )
        overrides = self._overrides(cell)
        torch, cuda = with_cuda(cell.torch, cell.cuda if cell.cuda != CPU else None)
        entry = self.matrix.projects.get(cell.project)
        if cuda is None and cell.cuda is None and entry and entry.build:
            cuda = self._file(entry.build).cuda
        wish = Wish(
            torch=torch.wanted,
            cuda=cuda,
            profile=cell.profile if cell.machine is None else None,
            configured_index=self.matrix.configured_index,
        )
        always = any(each.always for each in overrides)
        return _Wanted(situation=situation, wish=wish, python=python, options=self._options(cell), always=always)

    def _options(self, cell: MatrixCell) -> dict[str, str]:
        return {name: value for each in self._overrides(cell) for name, value in each.options.items()}

    def _alike(self, text: str | None) -> tuple[Card, ...]:
        """The cards of an entry; cards that differ in nothing but their name are the same card."""
        if text is None:
            raise UnknownName("no GPU is named", hint="add `gpu` to the matrix")
        if text not in self._cards:
            found: dict[Card, None] = {}
            for card in cards_named([text.replace(";", ",")]):
                if not card.ambiguous and card.jetson is None:
                    name = f"compute capability {card.capabilities[0]}"
                    card = msgspec.structs.replace(card, name=name, count=1, notes=())
                found[card] = None
            self._cards[text] = tuple(sorted(found, key=lambda card: card.capabilities))
        return self._cards[text]

    def _resolved(self, situation: Situation, wish: Wish) -> Verdict:
        self.asked += 1
        return resolve(situation, wish, self.shelf, as_it_is=True)

    # -- PyTorch itself -------------------------------------------------------------------------------------------

    def _torch(self, cell: MatrixCell, wanted: _Wanted) -> Outcome:
        verdict = self._answer(wanted.situation, wanted.wish)
        best = verdict.recommended
        if refused := _refused(best, wanted):
            return refused
        if best.route is RouteKind.SHELF:
            wheel = Path(best.location or "").name
            return Outcome(state=JobState.DONE, reason=best.summary, wheel=wheel)
        if best.route is RouteKind.OFFICIAL_WHEEL and not wanted.always:
            return Outcome(state=JobState.NOT_NEEDED, reason=best.summary)
        source = _first(verdict, (RouteKind.SOURCE_BUILD,))
        if source is None:
            return Outcome(state=JobState.NOT_NEEDED, reason=best.summary)
        plan = _plan(verdict, source)
        return Outcome(
            state=JobState.BUILD,
            reason=source.summary,
            lock=torch_lock(plan, wanted.options),
            plan=msgspec.structs.replace(plan, options={**plan.options, **wanted.options}),
            cards=source.targets,
            estimate=_estimate(source),
        )

    # -- extensions of it -----------------------------------------------------------------------------------------

    def _extension(self, cell: MatrixCell, wanted: _Wanted) -> Outcome:
        if cell.cuda == CPU:
            raise UnknownName("a torch extension needs a CUDA version", hint="leave `cpu` to CMake projects")
        verdict = self._answer(wanted.situation, wanted.wish)
        best = verdict.recommended
        if refused := _refused(best, wanted):
            return refused
        entry = self.matrix.projects.get(cell.project)
        if entry is None and best.route is RouteKind.OFFICIAL_WHEEL and not wanted.always:
            reason = f"{best.summary}; PyTorch's index has the {cell.project} that belongs to it"
            return Outcome(state=JobState.NOT_NEEDED, reason=reason)
        route = _first(verdict, _INSTALLED) or _first(verdict, (RouteKind.SOURCE_BUILD,))
        if route is None:
            return Outcome(state=JobState.IMPOSSIBLE, reason=f"no torch wheel to build it for: {best.summary}")
        plan = _plan(verdict, route)
        if self.matrix.configured_index and route.on_configured_index:
            # Without an address `install` asks the index that pip is configured for.
            plan = msgspec.structs.replace(plan, index_url=None)
        built = route.route is RouteKind.SOURCE_BUILD
        situation = wanted.situation
        lock = FleetLock(
            project=cell.project,
            kind=JobKind.EXTENSION,
            source=self._digest(entry.source) if entry and entry.source else _requirement(cell.project, plan.torch),
            torch=plan.torch,
            variant=route.variant,
            cuda=str(route.cuda),
            arch_list=";".join(str(each) for each in situation.capabilities),
            python=plan.python,
            system=situation.system,
            machine=situation.arch,
            options=wanted.options,
        )
        return Outcome(
            state=JobState.BUILD,
            reason=f"for torch {route.version}",
            lock=lock,
            plan=plan,
            cards=tuple(each.sm for each in situation.capabilities),
            torch=torch_lock(plan, self._options(msgspec.structs.replace(cell, project="torch"))) if built else None,
            estimate=_told(entry),
        )

    # -- CMake projects -------------------------------------------------------------------------------------------

    def _cmake(self, cell: MatrixCell, wanted: _Wanted) -> Outcome:
        entry = self.matrix.projects[cell.project]
        file = self._file(str(entry.build))
        source = (self.root / str(entry.build)).parent / (file.source or ".")
        situation = wanted.situation
        if wanted.wish.cuda is not None and (refused := _toolkit(wanted)):
            return Outcome(state=JobState.IMPOSSIBLE, reason=refused)
        cards = situation.capabilities if wanted.wish.cuda is not None else ()
        backend = backend_choice.choose(file.backend, source)
        lock = FleetLock(
            project=cell.project,
            kind=JobKind.CMAKE,
            source=self._digest(str(source)),
            cuda=str(wanted.wish.cuda) if wanted.wish.cuda is not None else None,
            arch_list=";".join(str(each) for each in cards),
            python=backend.python_for(source, wanted.python),
            system=situation.system,
            machine=situation.arch,
            profile=cell.profile,
            backend=backend.name,
            version=_labelled(file.version, wanted.wish.cuda, tuple(each.sm for each in cards)),
            options={**file.options, **wanted.options},
            requires=file.requires,
        )
        return Outcome(
            state=JobState.BUILD,
            reason=f"CUDA {lock.cuda} for {lock.arch_list}" if lock.cuda else "without GPU code",
            lock=lock,
            cards=tuple(each.sm for each in cards),
            estimate=_told(entry),
        )


def _plan(verdict: Verdict, route: Route) -> Plan:
    return plan_of(msgspec.structs.replace(verdict, recommended=route))


def torch_lock(plan: Plan, options: dict[str, str]) -> FleetLock:
    return codec.like(
        FleetLock,
        plan,
        project="torch",
        kind=JobKind.TORCH,
        variant=None,
        cuda=str(plan.cuda) if plan.cuda else None,
        cudnn=str(plan.cudnn) if plan.cudnn else None,
        arch_list=plan.arch_list or "",
        options={**plan.options, **options},
    )


def _refused(best: Route, wanted: _Wanted) -> Outcome | None:
    """Why there is no PyTorch for this, or none for the Python that was asked for; None when there is."""
    if best.route is RouteKind.NONE or best.torch is None:
        return Outcome(state=JobState.IMPOSSIBLE, reason=best.summary)
    answer = takes(best.torch, wanted.python, wanted.situation.system) if wanted.python is not None else None
    return Outcome(state=JobState.IMPOSSIBLE, reason=answer.sentence) if isinstance(answer, Clash) else None


def _toolkit(wanted: _Wanted) -> str | None:
    """Why the toolkit does not compile for the cards; None when it does."""
    situation = wanted.situation
    usable, rejected = source_build.usable_toolkits(situation, window_of(situation), wanted.wish)
    if usable:
        return None
    admits = wanted.wish.admits_cuda
    said = (each.sentence for each in rejected if each.candidate.cuda and admits(each.candidate.cuda))
    return next(said, None) or f"CUDA {wanted.wish.cuda} is not in Rekindle's data"


def _first(verdict: Verdict, kinds: tuple[RouteKind, ...]) -> Route | None:
    return next((route for route in (verdict.recommended, *verdict.routes) if route.route in kinds), None)


def _requirement(project: str, torch: str) -> str:
    version = version_for(project, torch)
    if version is None:
        raise UnknownName(f"which {project} belongs to torch {torch} is not in Rekindle's data")
    return f"{project}=={version}"


def _labelled(version: str | None, cuda: Version | None, cards: tuple[str, ...]) -> str | None:
    """`1.0+cu118.sm35`: builds of one release lie side by side on the shelf."""
    if version is None or "+" in version:
        return version
    parts = [CudaLine(cuda).name, *(card.replace("_", "") for card in cards)] if cuda else [CPU]
    return f"{version}+{'.'.join(parts)}"


def _estimate(route: Route) -> JobEstimate:
    found = route.estimate
    if found is None:
        return JobEstimate(disk_gb=40.0, memory_gb=8.0)
    return codec.like(JobEstimate, found, memory_gb=found.memory_gb or 8.0)


def _told(entry: ProjectEntry | None) -> JobEstimate:
    if entry is None:
        return JobEstimate(disk_gb=10.0, memory_gb=4.0)
    return JobEstimate(minutes=entry.minutes, disk_gb=entry.disk_gb or 1.0, memory_gb=entry.memory_gb or 2.0)
