"""Why not? The chain of rules behind one release, toolkit or Python, in words."""

from __future__ import annotations

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.torch_python import takes
from rekindle.core.errors import UsageError
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.inputs.torch import with_cuda
from rekindle.inputs.versions import read_cuda, read_python
from rekindle.knowledge.torch import releases
from rekindle.stack.resolver import decisive, resolve
from rekindle.stack.route import Answer, Route, Verdict, WhyNot
from rekindle.stack.rules import Candidate, Effect, Rejection, RouteKind, broken
from rekindle.stack.situation import Situation, Wish

_LONGER = 2
_QUESTION = late(r"(?i)(torch|cuda|python)\s*(?:=+|(?=[<>!~])|\s)\s*(.+)|(latest|[<>!~].+|v?\d[\w.+]*)\Z")


def why_not(question: str, situation: Situation, wish: Wish, verdict: Verdict) -> WhyNot:
    """The answer to `torch==2.7.1`, `cuda==12.3` or `python==3.13`, against what was recommended."""
    match = _QUESTION.match(question.strip())
    if not match:
        message = f"cannot parse `--why-not {question[:60]}`"
        pair = "a pair as `--torch 2.7.1 --why-not cuda==12.3`"
        hint = f"ask `--why-not torch==2.7.1`, `cuda==12.3` or `python==3.13`; {pair}"
        raise UsageError(message, hint=hint)
    # A bare version is one of PyTorch.
    name, value = (match[1] or "torch").lower(), (match[2] or match[3]).strip()
    ask = {"torch": _torch, "cuda": _cuda, "python": _python}[name]
    return ask(f"{name}{'' if value[0] in '<>!~' else '=='}{value}", value, situation, wish, verdict)


def _torch(question: str, value: str, situation: Situation, wish: Wish, verdict: Verdict) -> WhyNot:
    typed, cuda = with_cuda(value, str(wish.cuda) if wish.cuda else None)
    version = typed.release
    wish = msgspec.structs.replace(wish, torch=version, cuda=cuda)
    asked = resolve(situation, wish)
    chain = against(version, asked)
    if cuda is not None:
        # What was asked together is answered together: the toolkit that was named comes first.
        chain.sort(key=lambda each: each.candidate.cuda is None or not wish.admits_cuda(each.candidate.cuda))
    spoken = f"PyTorch {version}" + (f"+{typed.variant}" if typed.variant else "")
    return _answer(question, spoken, asked, verdict, chain, asked.recommended.torch == version)


def against(version: str, asked: Verdict) -> list[Rejection]:
    """What speaks against one release, of all that speaks against anything; what only costs something comes first."""
    chain = [each for each in asked.rejections if each.candidate.torch == version and each.kind is not Effect.CHANGES]
    if not any(route.route is RouteKind.SOURCE_BUILD and route.torch == version for route in asked.routes):
        # No pair is left: the toolkits that fell out before the release was looked at belong to the answer.
        chain += [each for each in asked.rejections if each.candidate.torch is None]
    return sorted(chain, key=lambda each: each.kind is not Effect.COSTS)


def _cuda(question: str, value: str, situation: Situation, wish: Wish, verdict: Verdict) -> WhyNot:
    wanted = read_cuda(value)
    asked = resolve(situation, msgspec.structs.replace(wish, cuda=wanted))
    chain = [
        each
        for each in asked.rejections
        if each.candidate.cuda is None or each.candidate.cuda.starts_with(wanted.major_minor)
    ]
    alone = [each for each in chain if each.candidate.torch is None]
    return _answer(question, f"CUDA {wanted}", asked, verdict, alone or chain, asked.recommended.cuda is not None)


def _python(question: str, value: str, situation: Situation, wish: Wish, verdict: Verdict) -> WhyNot:
    python = read_python(value).version
    here = msgspec.structs.replace(situation, python=python)
    taking: list[str] = []
    chain: list[Rejection] = []
    for release in reversed(releases.torch_releases()):
        answer = takes(release.newest, python, situation.system)
        if isinstance(answer, Clash):
            candidate = Candidate(name=f"torch {release.newest}", torch=release.newest, python=python)
            chain.append(broken("torch-python", candidate, row=release, sentence=answer.sentence))
        else:
            taking.append(release.newest)
    asked = resolve(here, wish)
    if asked.recommended.python != python and wish.torch is None and taking:
        # The releases that are for it may work, at a price.
        asked = resolve(here, msgspec.structs.replace(wish, torch=f">={taking[-1]},<={taking[0]}"))
    # An image brings a Python of its own.
    asked = msgspec.structs.replace(asked, routes=tuple(each for each in asked.routes if each.python == python))
    mine = [each for each in chain if each.candidate.torch == verdict.recommended.torch]
    return _answer(question, f"Python {python}", asked, verdict, mine or chain, asked.recommended.python == python)


def _answer(
    question: str, spoken: str, asked: Verdict, verdict: Verdict, chain: list[Rejection], granted: bool
) -> WhyNot:
    best, other = verdict.recommended, asked.recommended
    costs = [each for each in chain if each.kind is Effect.COSTS]
    chain = [*costs, *[each for each in chain if each.kind is not Effect.COSTS]]
    if best.route is not RouteKind.NONE and granted and _same(best, other):
        sentence = f"{spoken} is the recommended choice"
        answer = Answer.RECOMMENDED
    elif other.route is RouteKind.NONE or not granted:
        sentence = incompatible(spoken, chain[0].sentence if chain else other.summary)
        answer = Answer.IMPOSSIBLE
    else:
        ways = "; ".join(_way(route) for route in _kinds(asked, other))
        wheel = _no_wheel(asked, other)
        sentence = f"{wheel.sentence}; {spoken} works otherwise: {ways}" if wheel else f"{spoken} works: {ways}"
        answer = Answer.POSSIBLE
    reason = f", because {_because(best, other)}" if answer is Answer.POSSIBLE else ""
    change = other.change or best.change
    nothing = best.route is RouteKind.NONE and change is not None
    instead = change.text if nothing and change else f"{describe(best)}{reason}"
    return WhyNot(question=question, answer=answer, sentence=sentence, chain=tuple(chain), instead=instead)


def _no_wheel(asked: Verdict, other: Route) -> Rejection | None:
    """What stops the plain `pip install` of what works by another route or Python: most who ask mean that."""
    of_version = [each for each in asked.rejections if each.candidate.torch == other.torch]
    if asked.situation.python not in (None, other.python):
        of_python = (each for each in of_version if each.rule == "torch-python" and each.candidate.cuda == other.cuda)
        return next(of_python, None)
    if any(each.route is RouteKind.OFFICIAL_WHEEL for each in asked.routes):
        return None
    return decisive([each for each in of_version if each.candidate.route is RouteKind.OFFICIAL_WHEEL])


def incompatible(spoken: str, because: str) -> str:
    return f"{spoken} is not compatible: {because}"


def _kinds(asked: Verdict, first: Route) -> list[Route]:
    """What would be recommended, and the best route of each other kind."""
    best = {first.route: first}
    for route in asked.routes:
        best.setdefault(route.route, route)
    return list(best.values())


def _way(route: Route) -> str:
    after = f" once you {route.change.text}" if route.change else ""
    return describe(route) + after + (f", which loses something ({route.loses[0]})" if route.loses else "")


def _same(one: Route, other: Route) -> bool:
    return (one.route, one.torch, one.cuda, one.python) == (other.route, other.torch, other.cuda, other.python)


def _because(best: Route, other: Route) -> str:
    if other.change and not best.change:
        return f"it works without a change (that one: {other.change.text})"
    if other.loses and not best.loses:
        return "it loses nothing"
    if best.estimate and other.estimate and other.estimate.minutes > _LONGER * best.estimate.minutes:
        return f"it takes {best.estimate.time} and not {other.estimate.time}"
    if other.torch and best.torch and Version(other.torch) < Version(best.torch):
        return "it is newer"
    return "it is the better-tested option" if other.route is RouteKind.SOURCE_BUILD else "it serves better"


def describe(route: Route) -> str:
    """A route in a few words."""
    if route.route is RouteKind.NONE:
        return "nothing works"
    # An image brings its own Python, and NVIDIA's builds are no release.
    parts = {"torch": route.version, "CUDA": route.cuda, "Python": route.python}
    named = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
    return f"{_kind(route)} {named}"


def _kind(route: Route) -> str:
    return {
        RouteKind.INSTALLED: "the installed",
        RouteKind.OFFICIAL_WHEEL: "the official wheel",
        RouteKind.CONDA_FORGE: "conda-forge's",
        RouteKind.SHELF: "the shelf's wheel",
        RouteKind.COMMUNITY: "a wheel that somebody built,",
        RouteKind.CPU_WHEEL: "the wheel for the processor,",
        RouteKind.SOURCE_BUILD: "a source build:",
        RouteKind.WSL: "in WSL 2",
        RouteKind.CONTAINER: "in a container",
    }.get(route.route, route.route.value)
