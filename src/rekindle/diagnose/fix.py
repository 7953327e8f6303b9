"""The fix of a cause, written for this machine and plan: templates filled from the log and the facts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.core.console import clean
from rekindle.core.findings import Fix
from rekindle.core.version import Version
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.cuda import host_compilers
from rekindle.knowledge.logs.mechanical import of_cause
from rekindle.knowledge.logs.signatures import CauseRow, Step

_FIELD = re.compile(r"\{(\w+)\}")
# What came from a log goes into a command that a person may paste: only harmless characters pass.
_HARMLESS = re.compile(r"[\w.+,:;/\\ ()\[\]<>=~-]*")


def write(cause: CauseRow, fields: Mapping[str, str], facts: Facts) -> Fix:
    """Every step that can be filled and fits the system, in order; the fall-back steps when there is none."""
    values = _values(fields, facts)
    steps = [_fill(step, values) for step in cause.fix if not step.fallback and _fits(step, facts)]
    filled = [step for step in steps if step]
    if not filled:
        steps = [_fill(step, values) for step in cause.fix if step.fallback]
        filled = [step for step in steps if step]
    texts = dict.fromkeys(text for text, _ in filled)
    commands = dict.fromkeys(command for _, command in filled if command)
    return Fix(text=" ".join(texts), commands=tuple(commands), mechanical=bool(of_cause(cause.id)))


def _fits(step: Step, facts: Facts) -> bool:
    return step.os is None or facts.os is None or step.os == facts.os


def _fill(step: Step, values: Mapping[str, str]) -> tuple[str, str | None] | None:
    text = _filled(step.text, values)
    command = _filled(step.command, values) if step.command else None
    if text is None or (step.command and command is None):
        return None
    return text, command


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    if any(name not in values for name in _FIELD.findall(template)):
        return None
    return _FIELD.sub(lambda match: values[match[1]], template)


def _values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in ("os", "torch", "cuda", "python", "toolset", "gpu_name", "jobs"):
        value = getattr(facts, name)
        if value is not None:
            values[name] = str(value)
    if facts.gpus:
        values["arch"] = ";".join(str(gpu) for gpu in sorted(set(facts.gpus)))
        values["gpu"] = str(max(facts.gpus))
    for name, value in fields.items():
        kept = clean(value).strip()
        if kept and len(kept) <= 300 and _HARMLESS.fullmatch(kept):
            values[name] = kept
    return values | _spelled(values)


def _fitting(cuda: str) -> dict[str, str]:
    """The newest compilers that this CUDA takes, where the tables know."""
    try:
        version = Version(cuda)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    toolsets, limits = host_compilers.toolset_range(version), host_compilers.host_limits(version)
    if toolsets:
        found["fits_toolset"] = str(toolsets[1])
    if limits and limits.gcc_max:
        found["fits_gcc"] = str(limits.gcc_max)
    return found


def _spelled(values: Mapping[str, str]) -> dict[str, str]:
    """The same values as the steps want them: `sm_120` for 12.0, `12-4` for a package name."""
    more: dict[str, str] = {}
    if "cuda" in values:
        more["cuda_dashed"] = values["cuda"].replace(".", "-")
        more |= _fitting(values["cuda"])
    asked = next((values[name] for name in ("arch_asked", "arch_number", "arch_dotted") if name in values), None)
    if asked:
        more["arch_asked"] = "sm_" + asked.rpartition("_")[2].replace(".", "")
    return more
