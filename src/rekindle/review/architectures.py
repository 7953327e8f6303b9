"""TORCH_CUDA_ARCH_LIST as torch reads it: strictly. What torch would not take is named, with what was meant."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.capability import Capability, Target
from rekindle.knowledge.torch import architecture_lists

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
                targets += _targets(meant)
        else:
            targets += found
            right.append(part)
            if part[0].isalpha():
                names.append((part, _named(part, builds_torch, torch) or ""))
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
        return _targets(match) if builds_torch else _by_extension(match, torch)
    numbers = _named(part, builds_torch, torch)
    if numbers is not None:
        entries = (_ENTRY.match(entry) for entry in numbers.split(";"))
        return [target for entry in entries if entry for target in _targets(entry)]
    first = architecture_lists.first_naming(part.removesuffix("+PTX"), builds_torch=builds_torch)
    if first is not None:
        return Fault(part, f"torch {torch} does not know the name (torch {first} is the first): write the numbers")
    if builds_torch and part in ("All", "Auto", "Common"):
        return []
    return _fault(part)


def _named(part: str, builds_torch: bool, torch: Version | None) -> str | None:
    """The numbers that a name stands for: PyTorch's own build and that of an extension know different ones."""
    names = architecture_lists.taken_by(torch).names(builds_torch=builds_torch)
    return names.get(part) or names.get(part.removesuffix("+PTX"))


def _by_extension(match: re.Match[str], torch: Version | None) -> list[Target] | Fault:
    """A number that the release of an extension's build has in its list, or what is wrong with it."""
    number = match[0].removesuffix("+PTX")
    if torch is None or number in architecture_lists.taken_by(torch).extension:
        return _targets(match)
    first = architecture_lists.first_taking(number)
    if first is None or Version(first) < torch.major_minor:
        return _targets(match)
    return Fault(match[0], f"torch {torch} refuses it (Unknown CUDA arch); torch {first} is the first that takes it")


def _fault(part: str) -> Fault:
    low = part.lower()
    number = re.fullmatch(r"(?:sm|compute|cuda|arch)?[_-]?(\d{1,2})(\d)([af]?)(\+ptx)?", low)
    if number:
        right = f"{int(number[1])}.{number[2]}{number[3]}{'+PTX' if number[4] else ''}"
        problem = "it has no dot" if low[0].isdigit() else "torch wants the number with a dot"
        return Fault(part, f"{problem}: write {right}", right if _ENTRY.match(right) else None)
    dotted = re.fullmatch(r"(?:sm|compute)[_-]?(\d{1,2}\.\d[af]?)", low)
    if dotted:
        return Fault(part, f"torch wants the number only: write {dotted[1]}", dotted[1])
    ptx = re.fullmatch(r"(\d{1,2}\.\d[af]?)[-_ +]*ptx", low)
    if ptx:
        return Fault(part, f"PTX is asked for with +PTX: write {ptx[1]}+PTX", f"{ptx[1]}+PTX")
    alike = part.translate(_LOOKALIKE)
    if alike != part and _ENTRY.match(alike):
        return Fault(part, f"a letter stands in place of a digit: write {alike}", alike)
    long = re.fullmatch(r"(\d{1,2})\.(\d)0", part)
    if long:
        return Fault(part, f"write {long[1]}.{long[2]}", f"{long[1]}.{long[2]}")
    if re.fullmatch(r"\d{1,2}", part):
        return Fault(
            part,
            f"it has no dot: write {part}.0",
            f"{part}.0" if Capability(int(part), 0) in capabilities.known() else None,
        )
    return Fault(part, "torch knows no architecture of this name", None)


def _targets(match: re.Match[str]) -> list[Target]:
    capability = Capability(int(match[1]), int(match[2]))
    found = [Target(capability, suffix=match[3])]
    return [*found, Target(capability, ptx=True, suffix=match[3])] if match[4] else found
