"""GitLab CI: a stage per round, every job of the matrix in `parallel`, what was compiled in the cache."""

from __future__ import annotations

from typing import Any

from rekindle.fleet.export.workflow import (
    COMPILED,
    SHELF,
    Exported,
    ExportedJob,
    ExportSettings,
    build_words,
    quoted,
    toolchain_words,
)

_MOST = 200
IMAGES = {"linux-x86_64": "python:3.12-bookworm", "linux-aarch64": "python:3.12-bookworm"}


def pipeline(exported: Exported) -> dict[str, Any]:
    stages: list[str] = []
    jobs: dict[str, Any] = {}
    for level in sorted({job.level for job in exported.jobs}):
        entries = [job for job in exported.jobs if job.level == level]
        for number in range(1, exported.rounds + 1):
            stage = f"{'build' if level == 0 else 'extensions'}-{number}"
            stages.append(stage)
            for place in sorted({f"{job.system}-{job.machine}" for job in entries}):
                fitting = [job for job in entries if f"{job.system}-{job.machine}" == place]
                for start in range(0, len(fitting), _MOST):
                    part = fitting[start : start + _MOST]
                    title = f"{stage}-{place}" + (f"-{start // _MOST + 1}" if len(fitting) > _MOST else "")
                    jobs[title] = _job(exported.settings, stage, place, part, last=number == exported.rounds)
    return {
        "stages": stages,
        "variables": {"REKINDLE_REQUIREMENT": exported.settings.rekindle, "PYTHONUTF8": "1"},
        **jobs,
    }


def _job(settings: ExportSettings, stage: str, place: str, jobs: list[ExportedJob], *, last: bool) -> dict[str, Any]:
    image = settings.runner.get(place) or IMAGES.get(place)
    command = quoted(build_words(settings, "$KEY"))
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
