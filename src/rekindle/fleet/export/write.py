"""`rekindle fleet export`: the file of one format, with where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import files
from rekindle.core.command import Command, sh
from rekindle.core.errors import UsageError
from rekindle.fleet.export import github
from rekindle.fleet.export.workflow import (
    COMPILED,
    SHELF,
    Exported,
    ExportedJob,
    ExportSettings,
    build_command,
    divided,
    notes,
    rounds,
    toolchain_words,
    usable,
    variables,
)

_HEAD = "# Written by `rekindle fleet export {form}`; write it again when the matrix changes.\n"
PLACES = {"github": ".github/workflows/fleet.yml", "gitlab": ".gitlab-ci.yml", "slurm": "fleet.sbatch"}


class FleetExport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle fleet export`."""

    schema: str = "rekindle.fleet-export/1"
    form: str
    file: str
    jobs: int
    rounds: int


def write(form: str, exported: Exported, output: Path | None) -> FleetExport:
    place = output or Path(PLACES[form])
    if place.exists() and not _ours(place):
        message = f"`{place}` is there already and was not written by Rekindle"
        raise UsageError(message, hint="name another file with `-o`")
    files.write_text(place, text(form, exported))
    return FleetExport(form=form, file=str(place), jobs=len(exported.jobs), rounds=exported.rounds)


def text(form: str, exported: Exported) -> str:
    if form == "slurm":
        return script(exported)
    made: dict[str, Callable[[Exported], dict[str, Any]]] = {"github": github.workflow, "gitlab": pipeline}
    return _HEAD.format(form=form) + notes(exported) + as_yaml(made[form](exported))


def as_yaml(value: dict[str, Any]) -> str:
    import yaml

    class Lines(yaml.SafeDumper):
        """Scripts of several lines as blocks, as a person writes them."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, data: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Lines.add_representer(str, represent)
    # `on` would be read as true by a YAML 1.1 parser, and is quoted by PyYAML for that reason.
    return yaml.dump(value, Dumper=Lines, sort_keys=False, width=1000, default_flow_style=False)


def _ours(path: Path) -> bool:
    return b"Written by `rekindle" in files.read_bytes(path, limit=16 * 1024 * 1024)[:400]


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


def script(exported: Exported) -> str:
    """One script to hand to `sbatch`. Level by level: what needs another wheel waits in a later array."""
    settings = exported.settings
    levels = sorted({job.level for job in exported.jobs})
    if len(levels) > 1:
        note = "# Submit it once per level: LEVEL=0 first, then LEVEL=1 with --dependency=afterok:JOBID.\n"
    else:
        note = ""
    lines = [f"  {job.level} {job.key} {job.name}" for job in exported.jobs]
    count = max(sum(job.level == level for job in exported.jobs) for level in levels)
    return f"""#!/bin/bash
# Written by `rekindle fleet export slurm`. Submit from the folder that holds the matrix: sbatch THIS_FILE
{note}#SBATCH --job-name=rekindle-fleet
#SBATCH --array=1-{count}
#SBATCH --time={_clock(settings)}
#SBATCH --cpus-per-task={settings.cores}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=fleet-%A_%a.log
set -u
# level key name
{sh(Command(environment={"jobs": chr(10).join(lines)}))}
line=$(printf '%s\\n' "$jobs" | awk -v level="${{LEVEL:-0}}" '$1 == level' | sed -n "${{SLURM_ARRAY_TASK_ID}}p")
if [ -z "$line" ]; then echo "no job number $SLURM_ARRAY_TASK_ID"; exit 0; fi
set -- $line
KEY=$2
export REKINDLE_FLEET_TASK=$KEY
code=0
{build_command(settings, cache="fleet-cache")} || code=$?
if [ "$code" = 75 ]; then
  echo "the time is up; $KEY goes on when its turn comes again"
  scontrol requeue "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
  exit 0
fi
exit "$code"
"""


def _clock(settings: ExportSettings) -> str:
    hours, minutes = divmod(max(settings.limit, usable(settings) + 5), 60)
    return f"{hours:02d}:{minutes:02d}:00"
