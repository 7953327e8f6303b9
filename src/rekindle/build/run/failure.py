"""What a failed step says to the person in front of it: the cause where it is known, the log, and how to go on."""

from __future__ import annotations

from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.diagnose import diagnosis, facts, report
from rekindle.diagnose.answer import Diagnosis, LogOutcome


def diagnose(log: Path, request: BuildRequest) -> Diagnosis | None:
    """The diagnosis of this log, told what the plan knows; None when the log shows nothing."""
    if not log.exists():
        return None
    known = facts.told(
        gpus=tuple(dict.fromkeys(target.capability.sm for target in request.gpu_targets)),
        system=request.system,
        torch=request.torch,
        cuda=str(request.cuda.version.major_minor) if request.cuda else None,
        toolset=str(request.compiler.toolset) if request.compiler.toolset else None,
    )
    found = diagnosis.diagnose_file(log, known=known)
    return None if found.outcome is LogOutcome.NONE else found


def text(found: Diagnosis) -> str:
    return report.text(found)
