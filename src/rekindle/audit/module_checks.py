"""What can be wrong with one compiled module."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rekindle.audit.answer import label
from rekindle.audit.cards import words
from rekindle.audit.contents import Contents, Module
from rekindle.audit.symbols import Offered, WantedSymbols, uses_torch, wanted
from rekindle.compat.driver_cuda import newest_ptx
from rekindle.compat.extension_torch import has_symbols, runtimes, same_cuda
from rekindle.compat.gpu_code import Served, served
from rekindle.compat.judgement import Clash
from rekindle.core.command import rekindle
from rekindle.core.findings import Finding, Fix, State, failed, unverified
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.model.card import NamedCard
from rekindle.model.driver import Driver
from rekindle.model.environment import Environment
from rekindle.model.requirement import canonical_name

# NVIDIA's own libraries that torch uses for every model; what the others lack costs one feature, not the card.
_ESSENTIAL = ("nvidia-cudnn", "nvidia-cublas", "nvidia-cufft", "nvidia-cusolver", "nvidia-cusparse-", "nvidia-curand")


class AuditContext(msgspec.Struct, kw_only=True):
    """Everything a module is held against."""

    environment: Environment
    contents: Contents
    torch: str | None
    cuda: Version | None
    cards: tuple[NamedCard, ...]
    driver: Driver | None
    no_driver: bool = False
    offered: Offered | None
    known: dict[str, WantedSymbols] = {}
    asked: dict[str, WantedSymbols] = msgspec.field(default_factory=dict)

    @property
    def driver_ptx(self) -> Version | None:
        return newest_ptx(self.driver) if self.driver else None

    def file(self, module: Module) -> Path:
        every = [Path(folder) / module.path for folder in self.environment.site_packages]
        return next((path for path in every if path.exists()), every[0])

    def wanted(self, module: Module) -> WantedSymbols | None:
        """What the module wants of torch; None when it does not use torch, or is part of it."""
        if self.offered is None or not uses_torch(module) or _is_torchs_own(module):
            return None
        key = f"{module.path} {module.size} {module.stamp} {self.offered.key}"
        if key not in self.asked:
            self.asked[key] = self.known.get(key) or wanted(self.file(module), module, self.offered)
        return self.asked[key]


def findings(place: AuditContext, module: Module, owner: str | None) -> list[Finding]:
    """Everything wrong with the module; empty when it is well."""
    every = [
        _unreadable(module),
        *_gpu_code(place, module, owner),
        _runtime(place, module),
        _symbols(place, module),
        _python(place, module),
        _numpy(place, module),
    ]
    return [finding for finding in every if finding is not None]


def coverage(place: AuditContext, module: Module) -> dict[str, str]:
    """Per card: `SERVES`, `SERVES by JIT`, `PARTIAL`, `NO`."""
    if module.code is None:
        return {}
    answers = {card: _served(place, module, card) for card in place.cards}
    return {
        label(card, place.cards): answer.coverage.value + (" by JIT" if answer.by_jit else "")
        for card, answer in answers.items()
    }


def _served(place: AuditContext, module: Module, card: NamedCard) -> Served:
    assert module.code is not None
    own = Version.find(place.torch) if place.torch and _is_torchs_own(module) else None
    return served(module.code, card.capability, driver_ptx=place.driver_ptx, torch=own)


def stable(place: AuditContext, module: Module) -> bool:
    asked = place.wanted(module)
    return asked is not None and asked.stable


def _unreadable(module: Module) -> Finding | None:
    if module.problem is None:
        return None
    return unverified(
        "audit.readable",
        f"{module.path} could not be read: {module.problem}",
        why="whatever is wrong with it cannot be told",
        fix="install the package again",
    )


def _gpu_code(place: AuditContext, module: Module, owner: str | None) -> list[Finding]:
    """One finding for all the cards that fare alike, so that a file is named once."""
    if module.code is None:
        return []
    answers = {card: _served(place, module, card) for card in place.cards}
    by_jit = [card for card, answer in answers.items() if answer.coverage is Coverage.SERVES and answer.by_jit]
    alike: dict[str, list[NamedCard]] = {}
    for card, answer in answers.items():
        if answer.coverage is not Coverage.SERVES:
            alike.setdefault(_how_much(answer), []).append(card)
    found = [_lacking(module, owner, how, cards) for how, cards in alike.items()]
    return [*found, _jit(place, module, by_jit)] if by_jit else found


def _lacking(module: Module, owner: str | None, how: str, cards: list[NamedCard]) -> Finding:
    essential = owner is None or not owner.startswith("nvidia-") or owner.startswith(_ESSENTIAL)
    targets = ", ".join(module.code.targets if module.code else ()) or "no code that any card runs"
    return Finding(
        id="audit.gpu-code",
        state=State.FAIL if essential else State.WARN,
        found=f"{module.path} has {how} for {_named(cards)}; it has {targets}",
        why="a kernel without code for the card fails with `no kernel image`, or, where a launch is not checked, "
        "leaves wrong numbers behind without any error",
        fix=Fix(text="install or build one with its code"),
    )


def _named(cards: list[NamedCard]) -> str:
    return " and ".join(f"the {card.name} ({card.capability.sm})" for card in cards)


def _how_much(answer: Served) -> str:
    if answer.coverage is Coverage.NO:
        return "no code"
    return f"code in only {answer.native + answer.jit} of {answer.containers} parts"


def _jit(place: AuditContext, module: Module, cards: list[NamedCard]) -> Finding:
    sure = place.driver_ptx is not None
    text = "runs" if sure else "runs only if the driver knows its PTX: that could not be checked;"
    owner, where = place.contents.owner.get(module.path), ("--env", place.environment.root, *words(cards))
    built = (rekindle("extension", "build", owner, *where, system=place.environment.os),) if owner else ()
    return Finding(
        id="audit.jit",
        state=State.WARN if sure else State.UNVERIFIED,
        found=f"{module.path} has no code of its own for {_named(cards)}",
        why=f"it {text} by JIT: the first start is slow, and an older driver cannot do it",
        fix=Fix(text="a build with code for the card starts at once", commands=built if uses_torch(module) else ()),
    )


def _runtime(place: AuditContext, module: Module) -> Finding | None:
    """A CUDA runtime of another major than torch's. Within a major they are compatible."""
    if place.cuda is None or not uses_torch(module):
        return None
    answers = [same_cuda(module.path, Version(str(each)), place.cuda) for each in runtimes(module.needed)]
    wrong = next((each for each in answers if isinstance(each, Clash)), None)
    if wrong is None:
        return None
    fix = Fix(text=wrong.changes[0].text) if wrong.changes else None
    return failed("audit.cuda-runtime", wrong.sentence, why=wrong.source, fix=fix)


def _symbols(place: AuditContext, module: Module) -> Finding | None:
    asked = place.wanted(module)
    if asked is None:
        return None
    if asked.problem:
        return unverified("audit.torch-symbols", f"{module.path}: {asked.problem}")
    answer = has_symbols(module.path, len(asked.missing), f"torch {place.torch}")
    if not isinstance(answer, Clash):
        return None
    return failed(
        "audit.torch-symbols",
        f"{answer.sentence}, such as {asked.missing[0][:90]}",
        why=answer.source,
        fix="build it against the torch that is installed, or install the torch it was built for",
    )


def _python(place: AuditContext, module: Module) -> Finding | None:
    """A module for another Python, with none beside it for this one."""
    mine = place.environment.tag
    if mine is None or module.python is None or fits(module, mine):
        return None
    stem = module.path.partition(".")[0]
    beside = (other for other in place.contents.modules if other.python and other.path.partition(".")[0] == stem)
    if any(fits(other, mine) for other in beside):
        return None
    return failed(
        "audit.python",
        f"{module.path} is for Python {module.python[0]}.{module.python[1:]}; this is {place.environment.python}",
        why="Python does not even see a module with another version in its name: the import says that it is missing",
        fix="install or build it for this Python",
    )


def fits(module: Module, tag: str) -> bool:
    return module.python == "abi3" or f"cp{module.python}".rstrip("t") == tag


def _numpy(place: AuditContext, module: Module) -> Finding | None:
    installed = place.contents.distribution("numpy")
    if installed is None or module.numpy != "1" or not installed.version.startswith("2"):
        return None
    if module.path.startswith("numpy/"):
        return None
    return failed(
        "audit.numpy",
        f"{module.path} was compiled with NumPy 1; NumPy {installed.version} is installed",
        why="it fails with `compiled using NumPy 1.x cannot be run in NumPy 2` or `_ARRAY_API not found`",
        fix="go back to NumPy 1, or install a version built for NumPy 2",
    )


def _is_torchs_own(module: Module) -> bool:
    return canonical_name(module.path.partition("/")[0]) in ("torch", "functorch", "torchgen")
