"""`rekindle fleet export`: the file of one format, with where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import files
from rekindle.core.command import Command, sh
from rekindle.core.errors import UsageError
from rekindle.fleet.export.workflow import (
    COMPILED,
    FREE_GB,
    SHELF,
    Exported,
    ExportedJob,
    ExportRound,
    ExportSettings,
    build_command,
    divided,
    notes,
    rounds,
    toolchain_words,
    usable,
    variables,
)

_MOST_AT_GITHUB = 256
RUNNERS = {
    "linux-x86_64": "ubuntu-22.04",
    "linux-aarch64": "ubuntu-22.04-arm",
    "windows-x86_64": "windows-2022",
}
ACTIONS = {
    "checkout": "actions/checkout@v4",
    "python": "actions/setup-python@v5",
    "restore": "actions/cache/restore@v4",
    "save": "actions/cache/save@v4",
    "upload": "actions/upload-artifact@v4",
    "download": "actions/download-artifact@v4",
}
KEY_ENVIRONMENT = {"REKINDLE_KEY_TEXT": "${{ secrets.REKINDLE_KEY }}"}
KEY_SCRIPT = (
    'if [ -n "$REKINDLE_KEY_TEXT" ]; then\n'
    "  umask 077\n"
    '  printf "%s\\n" "$REKINDLE_KEY_TEXT" > "$RUNNER_TEMP/rekindle-key.pem"\n'
    '  export REKINDLE_KEY="$RUNNER_TEMP/rekindle-key.pem"\n'
    "fi\n"
    "unset REKINDLE_KEY_TEXT\n"
)
"""What signs is the key of the repository's secret, where it has one."""
_PAGES = "https://${{ github.repository_owner }}.github.io/${{ github.event.repository.name }}"


def workflow(exported: Exported, *, name: str = "fleet", then: dict[str, Any] | None = None) -> dict[str, Any]:
    """The workflow as plain values. `then` are jobs that come after the last round, by name."""
    jobs: dict[str, Any] = {}
    before: list[str] = []
    for turn in rounds(exported):
        made = _round(exported, turn, before)
        jobs |= made
        before = list(made)
    for title, after in (then or {}).items():
        jobs[title] = {**after, "needs": before, "if": "${{ !cancelled() }}"}
        before = [title]
    pushed = {"push": {"branches": ["main"], "paths": [exported.settings.matrix]}}
    if exported.settings.by_hand:
        pushed = {}
    return {
        "name": name,
        "on": {"workflow_dispatch": {}, **pushed},
        "permissions": {"contents": "read"},
        "concurrency": {"group": f"{name}-${{{{ github.ref }}}}", "cancel-in-progress": False},
        "env": {
            **variables(exported.settings),
            **({"SITE_URL": _PAGES} if exported.settings.site else {}),
        },
        "jobs": jobs,
    }


def _round(exported: Exported, turn: ExportRound, before: list[str]) -> dict[str, Any]:
    """All jobs of a turn; more than a matrix may have are divided."""
    settings = exported.settings
    return {
        f"{turn.kind}-round-{turn.number}{ending}": {
            "name": f"${{{{ matrix.name }}}} ({turn.number}/{exported.rounds})",
            **({"needs": before, "if": "${{ !cancelled() }}"} if before else {}),
            "runs-on": "${{ matrix.runner }}",
            "timeout-minutes": settings.limit,
            "strategy": {"fail-fast": False, "matrix": {"include": [_entry(job, settings) for job in part]}},
            "steps": steps(settings, turn.number, last=turn.last),
        }
        for ending, part in divided(turn.jobs, _MOST_AT_GITHUB)
    }


def _entry(job: ExportedJob, settings: ExportSettings) -> dict[str, str]:
    place = f"{job.system}-{job.machine}"
    return {
        "name": job.name,
        "key": job.key,
        "runner": settings.runner.get(place) or RUNNERS.get(place, "self-hosted"),
        "python": job.python,
        "toolchain": " ".join(job.toolchain),
        "project": job.project.replace("-", "_"),
        "needs": job.needs,
        "room": "yes" if job.disk_gb > FREE_GB else "no",
    }


def steps(settings: ExportSettings, number: int, *, last: bool) -> list[dict[str, Any]]:
    cache = f"fleet-${{{{ matrix.key }}}}-{number}-${{{{ github.run_id }}}}"
    time_is_up = '[ "$code" = 75 ] && [ "$LAST" != true ]'
    return [
        {"uses": ACTIONS["checkout"]},
        {"uses": ACTIONS["python"], "with": {"python-version": "${{ matrix.python }}"}},
        {
            "name": "Its wheel, if an earlier round made it",
            "uses": ACTIONS["download"],
            "continue-on-error": True,
            "with": {"pattern": "wheel-${{ matrix.key }}-*", "path": SHELF, "merge-multiple": True},
        },
        {
            "name": "The wheel that it needs",
            "if": "matrix.needs != ''",
            "uses": ACTIONS["download"],
            "continue-on-error": True,
            "with": {"pattern": "wheel-${{ matrix.needs }}-*", "path": SHELF, "merge-multiple": True},
        },
        {
            "name": "What was compiled before",
            "uses": ACTIONS["restore"],
            "with": {"path": COMPILED, "key": cache, "restore-keys": "fleet-${{ matrix.key }}-"},
        },
        {
            "name": "Room on the disk",
            "if": "runner.os == 'Linux' && matrix.room == 'yes'",
            "shell": "bash",
            "run": (
                "sudo rm -rf /usr/share/dotnet /usr/local/lib/android /opt/ghc /opt/hostedtoolcache/CodeQL\ndf -h .\n"
            ),
        },
        {"name": "Rekindle", "shell": "bash", "run": 'python -m pip install "$REKINDLE_REQUIREMENT"\n'},
        {
            "name": "Toolchain",
            "if": "matrix.toolchain != ''",
            "shell": "bash",
            "env": {"TOOLCHAIN": "${{ matrix.toolchain }}"},
            "run": f"{toolchain_words(settings)} $TOOLCHAIN\n",
        },
        {
            "name": "Build",
            "id": "build",
            "shell": "bash",
            "env": {
                "LAST": str(last).lower(),
                **KEY_ENVIRONMENT,
                "KEY": "${{ matrix.key }}",
            },
            "run": (
                f"{KEY_SCRIPT}"
                'have() { ls shelf/fleet/"$KEY"*.json > /dev/null 2>&1; }\n'
                "before=no; have && before=yes\n"
                "code=0\n"
                'touch "$RUNNER_TEMP/begun"\n'
                f"{build_command(settings)} || code=$?\n"
                # By what is new: a wheel need not be called as the matrix calls its project.
                'if [ "$before" = no ] && have; then\n'
                '  { echo "fresh=yes"; echo "wheels<<END"; find shelf/wheels -type f -newer "$RUNNER_TEMP/begun"\n'
                '    echo "END"; } >> "$GITHUB_OUTPUT"\n'
                "fi\n"
                'rm -f "$RUNNER_TEMP/rekindle-key.pem"\n'
                f"if {time_is_up}; then echo 'the next round goes on'; exit 0; fi\n"
                'exit "$code"\n'
            ),
        },
        {
            "name": "Keep what was compiled",
            "if": "always()",
            "uses": ACTIONS["save"],
            "with": {"path": COMPILED, "key": cache},
        },
        {
            "name": "Wheel",
            "if": "steps.build.outputs.fresh == 'yes'",
            "uses": ACTIONS["upload"],
            "with": {
                "name": f"wheel-${{{{ matrix.key }}}}-{number}",
                "path": f"${{{{ steps.build.outputs.wheels }}}}\n{SHELF}/fleet/${{{{ matrix.key }}}}*\n",
                "retention-days": 30,
            },
        },
    ]


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
    made: dict[str, Callable[[Exported], dict[str, Any]]] = {"github": workflow, "gitlab": pipeline}
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
