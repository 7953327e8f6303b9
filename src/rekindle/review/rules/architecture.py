"""Architectures: can torch read the list, does it serve the GPU, does the toolkit compile for it, is it set in time?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.toolkit_card import able_toolkits, compiles
from rekindle.core.version import Version
from rekindle.knowledge.builds import limits
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.knowledge.torch import releases
from rekindle.model.card import Capability, Target
from rekindle.review.builds import ScriptBuild
from rekindle.review.document import Dialect
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Known, Subject, toolkit_in
from rekindle.review.trace import Assignment, Invocation

NAME = "TORCH_CUDA_ARCH_LIST"


def check(subject: Subject) -> Iterator[Raised]:
    settings = [item for item in subject.settings(NAME) if item.value]
    for step in subject.builds:
        settings += [own for own in step.item.prefix if own.name == NAME and own.value]
    for item in settings:
        yield from _spelling(subject, item)
    yield from _cards(subject, settings)
    yield from _toolkits(subject, settings)
    yield from _syntax(subject, settings)
    yield from _overwritten(subject, settings)
    yield from _not_said(subject, settings)


def _reader(subject: Subject, item: Assignment) -> ArchList:
    torch = subject.torch_at()
    builds_torch = bool(subject.torch_builds) or not subject.builds
    return read_list(item.value, builds_torch=builds_torch, torch=torch.version if torch else None)


def _spelling(subject: Subject, item: Assignment) -> Iterator[Raised]:
    if not item.known:
        return
    found = _reader(subject, item)
    line = subject.document.line(item.line)
    corrected = line.replace(item.value, found.right, 1) if found.right and item.value in line else None
    if item.dialect is Dialect.BATCH and item.raw.strip().startswith('"') and item.how == "environment":
        fixed = f'set "{item.name}={item.value}"'
        yield raised("architecture-quotes", item.line, name=item.name, value=item.value, corrected=fixed)
    if found.comma:
        yield raised(
            "architecture-separator", item.line, value=item.value, right=found.right or "8.6;9.0", corrected=corrected
        )
    for fault in found.faults:
        right = f"; the whole list: {found.right}" if found.right else ""
        yield raised(
            "architecture-list", item.line, part=fault.part, problem=fault.problem, right=right,
            corrected=corrected if not found.comma else None,
        )  # fmt: skip
    builds_torch = bool(subject.torch_builds) or not subject.builds
    for name, numbers in found.names:
        first = releases.first_naming(name.removesuffix("+PTX"), builds_torch=builds_torch)
        several = releases.meanings(name.removesuffix("+PTX"), builds_torch=builds_torch)
        if len(several) > 1 and first is not None:
            shown = numbers.replace(";", " and ")
            yield raised("architecture-name", item.line, name=name, numbers=shown, first=first)


def seen_by(subject: Subject, step: ScriptBuild, settings: list[Assignment]) -> Assignment | None:
    """The list as a build sees it: its own prefix or -D, else the environment."""
    own = [item for item in settings if item.how == "prefix" and item in step.item.prefix]
    own += [item for item in settings if item.how == "cmake" and item.line in step.item.lines]
    if own:
        return own[-1]
    either = _either(subject, step, settings)
    return either[0] if either else None


def _either(subject: Subject, step: ScriptBuild, settings: list[Assignment]) -> list[Assignment]:
    """The lists of the environment that a build may see, the last one first: one for each branch of an `if`."""
    orders = [value.order for value in subject.trace.values(NAME, step.item)]
    found = {item.order: item for item in settings}
    return [found[order] for order in orders if order in found]


def _judged(subject: Subject, settings: list[Assignment]) -> list[tuple[Assignment, ScriptBuild | None]]:
    """Every list that a build sees; where nothing is built, the last list of the script."""
    found: dict[int, tuple[Assignment, ScriptBuild | None]] = {}
    for step in subject.builds:
        item = seen_by(subject, step, settings)
        if item is not None and item.how != "environment":
            found.setdefault(item.line, (item, step))
        elif item is not None:
            for each in reversed(_either(subject, step, settings)):
                found.setdefault(each.line, (each, step))
    if not found and settings and not any(step.what != "other" for step in subject.builds):
        found = {item.line: (item, None) for item in settings}
    elif not found and settings:
        # Set too late for every build: what it says can still be judged.
        found = {settings[-1].line: (settings[-1], subject.builds[-1] if subject.builds else None)}
    return list(found.values())


def _cards(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    judged = [(item, step) for item, step in _judged(subject, settings) if item.known]
    for card in subject.gpus:
        lists = [(item, step, _reader(subject, item)) for item, step in judged]
        branches = not subject.notes and any(
            item.conditional or (step is not None and subject.row_of(step.item)) for item, step, _ in lists
        )
        if branches and any(run(found.targets, card) for _, _, found in lists):
            continue  # one of several branches: enough when one of them serves the card
        for item, _, found in lists:
            if not found.targets or run(found.targets, card):
                continue
            lost = _lost(subject, item, card, settings)
            line = subject.document.line(item.line)
            apart = ";" if ";" in item.value or " " not in item.value else " "
            # What the script serves besides is never taken away; an entry that this torch cannot read is there already.
            adds = len(subject.gpus) == 1 and item.value in line and str(card) not in re.split(r"[; ,]+", item.value)
            plain = f"{item.value.rstrip('; ')}{apart}{card}" if adds else None
            yield raised(
                "architecture-not-the-card", item.line, archs=found.shown, card=card, sm=card.sm, lost=lost,
                corrected=line.replace(item.value, plain, 1) if plain else None,
                certain=not found.faults and not found.comma,
            )  # fmt: skip


def run(targets: Sequence[Target], card: Capability) -> bool:
    """Does any of the code run on a card?"""
    return any(runs(target, card) is not Runs.NO for target in targets)


def _lost(subject: Subject, item: Assignment, card: Capability, settings: list[Assignment]) -> str:
    for other in settings:
        if other.order < item.order and other.known and run(_reader(subject, other).targets, card):
            return f". This overwrites the list of line {other.line} ({other.value}), which has {card}"
    return ""


def _toolkits(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    told: set[tuple[str, str]] = set()
    for item, step in _judged(subject, settings):
        cuda = subject.cuda_at(step.item) if step is not None else any_cuda(subject)
        row = known_toolkit(cuda)
        if cuda is None or row is None or not item.known:
            continue
        others = [known_toolkit(known) for known in (subject.cudas_at(step.item)[1:] if step is not None else ())]
        for target in _reader(subject, item).targets:
            key = (str(cuda.version), str(target.capability))
            if target.ptx or row.has_target(target.capability) or key in told:
                continue
            if any(other is None or other.has_target(target.capability) for other in others):
                continue  # the list may be meant for the toolkit of another branch
            told.add(key)
            line = cuda.line if target.capability in subject.gpus else item.line
            said, also = cannot_compile(cuda.version, target.capability), _also(subject, cuda)
            yield raised("toolkit-cannot-target", line, sentence=said, also=also, source=row.source)
    for step in subject.builds:
        if step.what == "other":
            continue  # nobody knows whether CUDA has a part in it
        job = subject.row_of(step.item)
        same = [each for each in subject.builds if job and subject.row_of(each.item) == job]
        either = [cuda for each in (step, *same) for cuda in subject.cudas_at(each.item)]
        yield from card_toolkit(subject, either, told)


def card_toolkit(subject: Subject, either: Sequence[Known], told: set[tuple[str, str]]) -> Iterator[Raised]:
    """`either`: the toolkits of the branches; enough when one of them serves the card."""
    rows = [known_toolkit(cuda) for cuda in either]
    for card in subject.gpus if either else ():
        cuda, row = either[0], rows[0]
        key = (str(cuda.version), str(card))
        if row is None or key in told or any(each is None or each.version in able_toolkits(card) for each in rows):
            continue
        told.add(key)
        said, also = cannot_compile(cuda.version, card), _also(subject, cuda)
        yield raised("toolkit-not-for-the-card", cuda.line, sentence=said, sm=card.sm, also=also, source=row.source)


def cannot_compile(cuda: Version, card: Capability) -> str:
    answer = compiles(cuda, card, card.sm)
    return answer.sentence if isinstance(answer, Clash) else f"CUDA {cuda} cannot compile for {card.sm}"


def _also(subject: Subject, cuda: Known) -> str:
    """The same toolkit is refused by the release too."""
    release = subject.release_at(subject.torch_builds[0].item) if subject.torch_builds else None
    if release is None:
        return ""
    newest = max(variant.cuda for variant in release[0].variants)
    if cuda.version.major > newest.major:
        return f"; and torch {release[1].version} was never released for CUDA {cuda.version.major}"
    return ""


def any_cuda(subject: Subject) -> Known | None:
    last: Invocation | None = subject.trace.invocations[-1] if subject.trace.invocations else None
    found = subject.cuda_at(last) if last is not None else None
    for item in reversed(subject.trace.assignments) if found is None else ():
        number = toolkit_in(item.value) if item.name in ("CUDA_HOME", "CUDA_PATH") else None
        if number is not None:
            return Known(number, item.line)
    return found


def known_toolkit(cuda: Known | None) -> toolkits.Toolkit | None:
    if cuda is None:
        return None
    return next((row for row in toolkits.toolkits() if row.version == cuda.version.major_minor), None)


def _syntax(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    """12.0 asked of a release whose CMake takes one digit before the dot."""
    told: set[str] = set()
    for item, step in _judged(subject, settings):
        release = subject.release_at(step.item if step else None)
        row = limits.arch_syntax(str(release[1].version)) if release else None
        if release is None or row is None or (step is not None and step.what != "torch"):
            continue
        for target in _reader(subject, item).targets:
            if not row.admits(Target(target.capability)) and str(target.capability) not in told:
                told.add(str(target.capability))
                yield raised(
                    "architecture-syntax", item.line, torch=release[1].version, arch=target.capability,
                    digits={1: "one", 2: "two"}.get(row.major_digits, row.major_digits), source=row.source,
                )  # fmt: skip


def _overwritten(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    if subject.notes:
        return
    ordered = sorted(
        (item for item in settings if item.how == "environment" and item.known), key=lambda item: item.order
    )
    for step in subject.builds:
        now = seen_by(subject, step, settings)
        if now is None or now.appended or now.conditional or not now.known:
            continue
        scopes = {scope.number for scope in subject.trace.scopes[now.scope].chain()}
        before = [item for item in ordered if item.order < now.order and item.scope in scopes]
        if not before:
            continue
        other = before[-1]
        if other.conditional or any(other.order < each.item.order < now.order for each in subject.builds):
            continue
        have = {target.capability for target in _reader(subject, now).targets}
        lost = sorted({target.capability for target in _reader(subject, other).targets} - have)
        if lost:
            yield raised(
                "architecture-overwritten", now.line, before=other.value, line_before=other.line,
                lost=", ".join(str(capability) for capability in lost),
            )  # fmt: skip
            return


def _not_said(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    for step in subject.torch_builds[:1]:
        if settings or subject.notes or not step.certain or NAME in subject.document.text:
            return
        on = subject.text("USE_CUDA", step.item).upper() not in ("0", "OFF", "FALSE", "NO")
        if on and subject.document.dialect.unattended and subject.cuda_at(step.item) is not None:
            yield raised("architecture-not-seen", step.line)


def compiled_for(subject: Subject) -> tuple[str, ...]:
    """What the first build compiles for, as far as the script says."""
    settings = [item for item in subject.settings(NAME) if item.value]
    settings += [own for step in subject.builds for own in step.item.prefix if own.name == NAME and own.value]
    judged = _judged(subject, settings)
    return tuple(str(target) for target in _reader(subject, judged[0][0]).targets) if judged else ()


_ENTRY = re.compile(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?\Z")
_LOOKALIKE = str.maketrans({"l": "1", "I": "1", "O": "0", "o": "0", "S": "5", "B": "8"})


class Fault(msgspec.Struct, frozen=True):
    part: str
    problem: str
    right: str | None = None


class ArchList(msgspec.Struct, frozen=True, kw_only=True):
    """`targets` is what torch compiles for; `faults` is what it cannot read. `right` is the list as it should read."""

    targets: tuple[Target, ...]
    faults: tuple[Fault, ...] = ()
    comma: bool = False
    right: str | None = None
    names: tuple[tuple[str, str], ...] = ()
    """Names of architectures, each with the numbers it stands for."""

    @property
    def shown(self) -> str:
        plain = [str(target.capability) + target.suffix + ("+PTX" if target.ptx else "") for target in self.targets]
        return ", ".join(plain)


def read_list(text: str, *, builds_torch: bool = True, torch: Version | None = None) -> ArchList:
    """`torch` is the release that reads the list: some names came late."""
    comma = bool(re.search(r"\d\s*,\s*\w", text))
    decimal = re.fullmatch(r"(\d{1,2}),(\d)", text.strip())
    if decimal and Capability(int(decimal[1]), int(decimal[2])) in capabilities.known():
        # `12,0`: a comma where a dot was meant
        dotted = Capability(int(decimal[1]), int(decimal[2]))
        return ArchList(targets=(Target(dotted),), comma=True, right=str(dotted))
    targets: list[Target] = []
    faults: list[Fault] = []
    right: list[str] = []
    names: list[tuple[str, str]] = []
    for part in re.split(r"[;\s,]+", text.strip()):
        if not part:
            continue
        found = _entry(part, builds_torch, torch)
        if isinstance(found, Fault):
            faults.append(found)
            right.append(found.right or part)
            meant = _ENTRY.match(found.right or "")
            if meant:
                targets += _targets_of(meant)
        else:
            targets += found
            right.append(part)
            if part[0].isalpha():
                names.append((part, _named_numbers(part, builds_torch, torch) or ""))
    whole = ";".join(right) if not any(fault.right is None for fault in faults) else None
    return ArchList(targets=tuple(targets), faults=tuple(faults), comma=comma, right=whole, names=tuple(names))


def _entry(part: str, builds_torch: bool, torch: Version | None) -> list[Target] | Fault:
    match = _ENTRY.match(part)
    if match:
        capability = Capability(int(match[1]), int(match[2]))
        if capability not in capabilities.known():
            near = Capability(capability.major, 0)
            return Fault(
                part, f"no GPU has the capability {capability}", str(near) if near in capabilities.known() else None
            )
        return _targets_of(match) if builds_torch else _by_extension(match, torch)
    numbers = _named_numbers(part, builds_torch, torch)
    if numbers is not None:
        entries = (_ENTRY.match(entry) for entry in numbers.split(";"))
        return [target for entry in entries if entry for target in _targets_of(entry)]
    first = releases.first_naming(part.removesuffix("+PTX"), builds_torch=builds_torch)
    if first is not None:
        return Fault(part, f"torch {torch} does not know the name (torch {first} is the first): write the numbers")
    if builds_torch and part in ("All", "Auto", "Common"):
        return []
    return _fault(part)


def _named_numbers(part: str, builds_torch: bool, torch: Version | None) -> str | None:
    """The numbers that a name stands for: PyTorch's own build and that of an extension know different ones."""
    names = releases.taken_by(torch).names(builds_torch=builds_torch)
    return names.get(part) or names.get(part.removesuffix("+PTX"))


def _by_extension(match: re.Match[str], torch: Version | None) -> list[Target] | Fault:
    """A number that the release of an extension's build has in its list, or what is wrong with it."""
    number = match[0].removesuffix("+PTX")
    if torch is None or number in releases.taken_by(torch).extension:
        return _targets_of(match)
    first = releases.first_taking(number)
    if first is None or Version(first) < torch.major_minor:
        return _targets_of(match)
    return Fault(match[0], f"torch {torch} refuses it (Unknown CUDA arch); torch {first} is the first that takes it")


# What people write for an architecture, how torch wants it, and why.
_SPELT = (
    (r"(\d{1,2})(\d)([af]?)(\+ptx)?", r"\1.\2\3\4", "it has no dot"),
    (r"(?:sm|compute|cuda|arch)?[_-]?(\d{1,2})(\d)([af]?)(\+ptx)?", r"\1.\2\3\4", "torch wants the number with a dot"),
    (r"(?:sm|compute)[_-]?(\d{1,2}\.\d[af]?)", r"\1", "torch wants the number only"),
    (r"(\d{1,2}\.\d[af]?)[-_ +]*ptx", r"\1+PTX", "PTX is asked for with +PTX"),
    (r"(\d{1,2}\.\d)0", r"\1", "one digit stands behind the dot"),
    (r"(\d{1,2})", r"\1.0", "it has no dot"),
)


def _fault(part: str) -> Fault:
    alike = part.translate(_LOOKALIKE)
    if alike != part and _ENTRY.match(alike):
        return Fault(part, f"a letter stands in place of a digit: write {alike}", alike)
    for pattern, template, problem in _SPELT:
        if match := re.fullmatch(pattern, part.lower()):
            right = match.expand(template).lstrip("0").replace("ptx", "PTX")
            entry = _ENTRY.match(right)
            known = entry and (len(part) > 2 or Capability(int(entry[1]), int(entry[2])) in capabilities.known())
            return Fault(part, f"{problem}: write {right}", right if known else None)
    return Fault(part, "torch knows no architecture of this name", None)


def _targets_of(match: re.Match[str]) -> list[Target]:
    capability = Capability(int(match[1]), int(match[2]))
    found = [Target(capability, suffix=match[3])]
    return [*found, Target(capability, ptx=True, suffix=match[3])] if match[4] else found
