"""A Slurm array: one task per job, put back into the queue when its time is up."""

from __future__ import annotations

from rekindle.core.command import Command, sh
from rekindle.fleet.export.workflow import Exported, ExportSettings, build_command, usable


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
