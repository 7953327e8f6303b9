"""GitLab CI: a stage per round, every job of the matrix in `parallel`, what was compiled in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rekindle.fleet.export.workflow import (
    COMPILED,
    SHELF,
    Exported,
    ExportedJob,
    ExportSettings,
    build_command,
    divided,
    rounds,
    toolchain_words,
    variables,
)

_MOST = 200
IMAGES = {"linux-x86_64": "python:3.12-bookworm", "linux-aarch64": "python:3.12-bookworm"}


def pipeline(exported: Exported) -> dict[str, Any]:
    stages: list[str] = []
    jobs: dict[str, Any] = {}
    for turn in rounds(exported):
        stage = f"{turn.kind}-{turn.number}"
        stages.append(stage)
        for place in sorted({_place(job) for job in turn.jobs}):
            fitting = [job for job in turn.jobs if _place(job) == place]
            for ending, part in divided(fitting, _MOST):
                jobs[f"{stage}-{place}{ending}"] = _job(exported.settings, stage, place, part, last=turn.last)
    return {"stages": stages, "variables": variables(exported.settings), **jobs}


def _place(job: ExportedJob) -> str:
    return f"{job.system}-{job.machine}"


def _job(
    settings: ExportSettings, stage: str, place: str, jobs: Sequence[ExportedJob], *, last: bool
) -> dict[str, Any]:
    image = settings.runner.get(place) or IMAGES.get(place)
    command = build_command(settings)
    goes_on = "" if last else ' if [ "$code" = 75 ]; then code=0; fi;'
    return {
        "stage": stage,
        **({"image": image} if image else {"tags": [place]}),
        "timeout": f"{settings.limit} minutes",
        "parallel": {
            "matrix": [
                {"JOB": job.name, "KEY": job.key, "PYTHON": job.python, "TOOLCHAIN": " ".join(job.toolchain)}
                for job in jobs
            ]
        },
        "cache": {"key": "fleet-$KEY", "paths": [f"{COMPILED}/"], "when": "always"},
        "artifacts": {"paths": [f"{SHELF}/"], "expire_in": "30 days", "when": "always"},
        "script": [
            'python -m pip install "$REKINDLE_REQUIREMENT"',
            f'if [ -n "$TOOLCHAIN" ]; then {toolchain_words(settings)} $TOOLCHAIN; fi',
            f"code=0; {command} || code=$?;{goes_on} exit $code",
        ],
    }
