"""Build options and flags: do they exist in this release, do they do anything, do they contradict each other?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.builds.script_rules import script_rules
from rekindle.knowledge.torch import options as known
from rekindle.review.remark import Raised, raised
from rekindle.review.rules.code import compiled
from rekindle.review.subject import Subject
from rekindle.review.trace import Assignment

_OFF = frozenset({"0", "OFF", "FALSE", "NO", "N"})
_ON = frozenset({"1", "ON", "TRUE", "YES", "Y"})
_OURS = re.compile(r"^(?:USE|BUILD|CAFFE2|TORCH|PYTORCH|CUDA|CUDNN|CMAKE|NCCL|MKL|BLAS|ATEN)_?\w*$")


def check(subject: Subject) -> Iterator[Raised]:
    others = any(step.what == "extension" for step in subject.builds) or bool(compiled(subject))
    relevant = bool(subject.torch_builds) or (subject.notes and not others)
    settings = _settings(subject)
    if relevant:
        told: set[str] = set()
        for setting in settings:
            key = f"{setting.how} {setting.name} {setting.line}"
            if key not in told:
                told.add(key)
                yield from _option(subject, setting)
        yield from _contradictions(settings)
        yield from _renamed(subject, settings)
        version = next((item for item in settings if item.name == "PYTORCH_BUILD_VERSION" and item.value), None)
        if version and not (subject.notes or any(item.name == "PYTORCH_BUILD_NUMBER" for item in settings)):
            yield raised("build-number-missing", version.line)
    yield from _flags(subject, settings)
    yield from _off(subject)


def _settings(subject: Subject) -> list[Assignment]:
    found = [item for item in subject.trace.assignments if item.how in ("environment", "cmake")]
    return found + [own for step in subject.builds for own in step.item.prefix]


def truth(value: str) -> bool | None:
    upper = value.strip().strip("\"'").upper()
    return True if upper in _ON else False if upper in _OFF else None


def _option(subject: Subject, setting: Assignment) -> Iterator[Raised]:
    name = setting.name
    if not _OURS.match(name) or not setting.value:
        return
    torch = subject.torch_at(subject.torch_builds[0].item if subject.torch_builds else None)
    verdict = known.verdicts().get(name)
    if verdict is not None and not (name == "CUDA_TOOLKIT_ROOT_DIR" and setting.how == "cmake"):
        instead = f". Instead: {verdict.instead}" if verdict.instead else ""
        if verdict.verdict in ("never-existed", "no-effect"):
            yield raised(
                f"option-{verdict.verdict}", setting.line, name=name, detail=verdict.detail, instead=instead,
                corrected=_without(subject, setting), certain=setting.how == "cmake", source=verdict.source,
            )  # fmt: skip
            return
        if verdict.verdict == "limited" and not _within(torch.version if torch else None, verdict.first, verdict.last):
            span = f"{verdict.first} to {verdict.last}" if verdict.last else f"{verdict.first} and later"
            always = name == "CMAKE_ARGS" and (torch is None or torch.version.major_minor < since("setup-py-gone"))
            if torch is None and not always:
                yield raised("option-limited-unknown", setting.line, name=name, span=span, detail=verdict.detail)
            else:
                shown = torch.version if torch else "through 2.13"
                yield raised(
                    "option-limited", setting.line, name=name, torch=shown, span=span, detail=verdict.detail,
                    instead=instead, source=verdict.source,
                )  # fmt: skip
            return
    yield from _unknown(subject, setting, torch.version if torch else None)
    yield from _default(setting, verdict)


def _unknown(subject: Subject, setting: Assignment, torch: Version | None) -> Iterator[Raised]:
    name = setting.name
    if not re.match(r"(?:USE|BUILD)_[A-Z0-9_]+\Z", name) or name in known.options() or name in known.verdicts():
        return
    text = subject.document.text
    if any(used in text for used in (f"${name}", f"${{{name}", f"%{name}%")):
        return  # a variable of the script's own
    if f"env:{name}" in text and setting.how == "environment" and text.count(name) > 1:
        return
    near = known.nearest(name, str(torch), 1) if torch else ()
    yield raised("option-unknown", setting.line, name=name, near=f"; is {near[0]} meant?" if near else "")


def _default(setting: Assignment, verdict: known.OptionVerdict | None) -> Iterator[Raised]:
    """What people write in the belief that it changes something."""
    off = verdict is not None and verdict.verdict == "real" and "off by default" in verdict.detail
    if off and verdict is not None and truth(setting.value) is False:
        yield raised("option-default", setting.line, name=setting.name, value=setting.value, detail=verdict.detail)


def _contradictions(settings: list[Assignment]) -> Iterator[Raised]:
    last = {setting.name: setting for setting in settings}
    for parent, children in known.parents().items():
        above = last.get(parent)
        if above is None or truth(above.value) is not False:
            continue
        for child in children:
            below = last.get(child)
            if below is None:
                continue
            if truth(below.value):
                yield raised("option-contradiction", below.line, name=child, parent=parent, line_parent=above.line)
            elif below.how == "cmake":
                yield raised("option-redundant", below.line, name=child, parent=parent)


def _renamed(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    torch = subject.torch_at(subject.torch_builds[0].item if subject.torch_builds else None)
    for row in script_rules().renamed if torch else ():
        for item in settings:
            if item.how != "cmake" or torch is None:
                continue
            old = item.name == row.old and torch.version >= row.new_from
            new = item.name == row.new and torch.version <= row.old_until
            if old or new:
                yield raised(
                    "option-renamed", item.line, torch=torch.version, right=row.new if old else row.old, name=item.name
                )


def _flags(subject: Subject, settings: list[Assignment]) -> Iterator[Raised]:
    ninja = generator(subject) == "Ninja"
    for setting in settings:
        if re.search(r"(?:^|\s)[/-]MP\d*\b", setting.value) and ninja:
            yield raised("flag-mp-with-ninja", setting.line)
        windows = setting.dialect.windows or subject.system() == "windows"
        if setting.how == "cmake" and setting.name in ("CMAKE_CXX_FLAGS", "CMAKE_C_FLAGS") and windows:
            instead = "CXXFLAGS" if "CXX" in setting.name else "CFLAGS"
            yield raised("flags-replaced", setting.line, name=setting.name, instead=instead)
        for switch in script_rules().switch:
            for value in re.findall(rf"{re.escape(switch.name)}:([\w.]+)", setting.value):
                if value.upper() not in {item.upper() for item in switch.values}:
                    yield raised("switch-unknown", setting.line, switch=switch.name, value=value, reason=switch.why)


def _off(subject: Subject) -> Iterator[Raised]:
    """CUDA switched off where a GPU is meant."""
    told: set[int] = set()
    for step in subject.builds if not subject.notes else ():
        for name, rule in (("USE_CUDA", "cuda-off"), ("FORCE_CUDA", "force-cuda-off")):
            value = subject.visible(name, step.item)
            if value is None or truth(value.text) is not False or value.line in told or not value.known:
                continue
            if (name == "USE_CUDA") != (step.what == "torch"):
                continue
            archs = subject.visible("TORCH_CUDA_ARCH_LIST", step.item)
            wants = subject.gpus or archs is not None
            if not wants:
                continue
            told.add(value.line)
            evidence = ", although TORCH_CUDA_ARCH_LIST is set" if archs is not None else ""
            yield raised(rule, value.line, value=value.text, evidence=evidence)


def _without(subject: Subject, setting: Assignment) -> str | None:
    """The line without this -D; empty when nothing else is on it."""
    if setting.how != "cmake":
        return None
    line = subject.document.line(setting.line)
    alone = re.fullmatch(r"\s*-D\w+(?::\w+)?=(?:\"[^\"]*\"|\S*)\s*[\^\\`]?\s*", line)
    if alone:
        return ""
    changed = re.sub(rf"\s*-D{re.escape(setting.name)}(?::\w+)?=(?:\"[^\"]*\"|\S+)", "", line, count=1)
    return changed if changed != line else None


def _within(torch: Version | None, first: str | None, last: str | None) -> bool:
    if torch is None:
        return False
    minor = torch.major_minor
    return not (first and minor < Version(first)) and not (last and minor > Version(last))


def generator(subject: Subject) -> str | None:
    """Ninja or another, where the script says."""
    text = subject.document.text
    if re.search(r"(?i)-G\s?\"?Ninja|CMAKE_GENERATOR\W+Ninja|USE_NINJA\W*(?:1|ON)\b", text):
        return "Ninja"
    return "other" if re.search(r"(?i)-G\s?\"?(?:Visual Studio|NMake|Unix)|CMAKE_GENERATOR\W+Visual", text) else None
