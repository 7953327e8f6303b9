"""`rekindle fleet export`: the file of one format, with where it belongs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rekindle.core import console, files, own
from rekindle.core.command import Command, ShellVariable, rekindle, sh, workflow_step
from rekindle.core.errors import UsageError
from rekindle.fleet.job import FleetJob, FleetLock, JobKind, JobState
from rekindle.fleet.planning import FleetPlan

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
    for turn in export_rounds(exported):
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


def _entry(job: FleetJob, settings: ExportSettings) -> dict[str, str]:
    place, lock = _place(job), job.lock
    assert lock is not None
    return {
        "name": job.name,
        "key": lock.asked[:16],
        "runner": settings.runner.get(place) or RUNNERS.get(place, "self-hosted"),
        "python": lock.python or "3.12",
        "toolchain": _toolchain(lock),
        "project": lock.project.replace("-", "_"),
        "needs": job.needs[0][:16] if job.needs else "",
        "room": "yes" if job.estimate.disk_gb > FREE_GB else "no",
    }


def _toolchain(lock: FleetLock) -> str:
    """Words for `rekindle toolchain install`."""
    words = [f"cuda=={lock.cuda}"] if lock.cuda else []
    if lock.kind is JobKind.TORCH and lock.cudnn:
        words += [f"cudnn=={lock.cudnn}", "--cuda", str(lock.cuda)]
    return " ".join(words)


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
        {
            "name": "Compiler cache",
            "if": "runner.os == 'Linux'",
            "shell": "bash",
            "run": "command -v ccache || { sudo apt-get update && sudo apt-get install -y ccache; }\n",
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
                "code=0\n"
                'touch "$RUNNER_TEMP/begun"\n'
                f'{build_command(settings)} > "$RUNNER_TEMP/said" || code=$?\n'
                'cat "$RUNNER_TEMP/said"\n'
                # By what is new: a wheel need not be called as the matrix calls its project.
                "if grep -q '^done ' \"$RUNNER_TEMP/said\"; then\n"
                '  { echo "fresh=yes"; echo "made<<END"\n'
                f'    find {SHELF}/wheels {SHELF}/fleet -type f -newer "$RUNNER_TEMP/begun"\n'
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
                "path": "${{ steps.build.outputs.made }}\n",
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
    if place.exists() and not ours(place):
        message = f"`{place}` already exists and was not written by Rekindle"
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


def ours(path: Path) -> bool:
    return path.is_file() and b"Written by `rekindle" in files.read_bytes(path, limit=16 * 1024 * 1024)[:400]


_MOST = 200
IMAGES = {"linux-x86_64": "python:3.12-bookworm", "linux-aarch64": "python:3.12-bookworm"}


def pipeline(exported: Exported) -> dict[str, Any]:
    stages: list[str] = []
    jobs: dict[str, Any] = {}
    for turn in export_rounds(exported):
        stage = f"{turn.kind}-{turn.number}"
        stages.append(stage)
        for place in sorted({_place(job) for job in turn.jobs}):
            fitting = [job for job in turn.jobs if _place(job) == place]
            for ending, part in divided(fitting, _MOST):
                jobs[f"{stage}-{place}{ending}"] = _job(exported.settings, stage, place, part, last=turn.last)
    return {"stages": stages, "variables": variables(exported.settings), **jobs}


def _place(job: FleetJob) -> str:
    return f"{job.lock.system}-{job.lock.machine}" if job.lock else ""


def _job(settings: ExportSettings, stage: str, place: str, jobs: Sequence[FleetJob], *, last: bool) -> dict[str, Any]:
    image = settings.runner.get(place) or IMAGES.get(place)
    command = build_command(settings)
    goes_on = "" if last else ' if [ "$code" = 75 ]; then code=0; fi;'
    return {
        "stage": stage,
        **({"image": image} if image else {"tags": [place]}),
        "timeout": f"{settings.limit} minutes",
        "parallel": {
            "matrix": [
                {"JOB": row["name"], "KEY": row["key"], "PYTHON": row["python"], "TOOLCHAIN": row["toolchain"]}
                for row in (_entry(job, settings) for job in jobs)
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
    levels = sorted({bool(job.needs) for job in exported.jobs})
    if len(levels) > 1:
        note = "# Submit it once per level: LEVEL=0 first, then LEVEL=1 with --dependency=afterok:JOBID.\n"
    else:
        note = ""
    tools = dict.fromkeys(words for job in exported.jobs if job.lock and (words := _toolchain(job.lock)))
    note += "".join(f"# First, where every node reads it: {toolchain_words(settings)} {words}\n" for words in tools)
    lines = [f"  {len(job.needs[:1])} {job.lock.asked[:16]} {job.name}" for job in exported.jobs if job.lock]
    count = max(sum(bool(job.needs) is level for job in exported.jobs) for level in levels)
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


SHELF = "shelf"
WORK = "fleet-work"
COMPILED = f"{WORK}/ccache"
"""What goes from round to round: objects, not the build tree, which is many times larger than a cache may be."""
FREE_GB = 14
"""What a hosted runner has free before its preinstalled software is removed."""


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` is how many minutes a runner gives to a job; `cores` what it has, against the eight of the estimates."""

    matrix: str = "matrix.toml"
    rekindle: str | None = None
    """What pip installs; an address works as well. None: where this Rekindle came from."""
    limit: int = 350
    cores: int = 4
    runner: dict[str, str] = {}
    """By `linux-x86_64` and so on: the runner's label or image."""
    rounds: int | None = None
    accept_licence: bool = False
    """You have read the terms that `rekindle toolchain install` shows, and accept them for these runners."""
    site: bool = False
    """The runners take up what is published at the repository's own pages."""
    by_hand: bool = False
    """A push starts nothing: the first one would come before key and pages are there."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    jobs: tuple[FleetJob, ...]
    rounds: int
    settings: ExportSettings

    @property
    def needs_toolchains(self) -> bool:
        return any(job.lock and _toolchain(job.lock) for job in self.jobs)


class ExportRound(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the jobs that need the same things built before them. What is not finished goes on in the next."""

    kind: str
    number: int
    last: bool
    jobs: tuple[FleetJob, ...]


def exported(plan: FleetPlan, settings: ExportSettings) -> Exported:
    jobs = tuple(job for job in plan.jobs if job.state is JobState.BUILD)
    if not jobs:
        raise UsageError("there is nothing to build in this matrix", hint="`rekindle fleet plan` says why")
    for each in plan.left_out:
        console.say(console.wrap(f"not built: {each}", first="", indent="  "))
    return Exported(jobs=jobs, rounds=settings.rounds or _rounds(jobs, settings), settings=settings)


def _rounds(jobs: Sequence[FleetJob], settings: ExportSettings) -> int:
    """As many turns as the longest job needs on such a runner, and one more: estimates are rough."""
    longest = max((job.estimate.minutes or 0 for job in jobs), default=0) * 8 / settings.cores
    return math.ceil(longest / usable(settings)) + 1 if longest > usable(settings) else 1


def export_rounds(exported: Exported) -> Iterator[ExportRound]:
    """One after another: all turns of the builds, then all turns of what needs their wheels."""
    for needs in sorted({bool(job.needs) for job in exported.jobs}):
        jobs = tuple(job for job in exported.jobs if bool(job.needs) is needs)
        kind = "extensions" if needs else "build"
        for number in range(1, exported.rounds + 1):
            yield ExportRound(kind=kind, number=number, last=number == exported.rounds, jobs=jobs)


def divided(jobs: Sequence[FleetJob], most: int) -> Iterator[tuple[str, Sequence[FleetJob]]]:
    """In parts that a matrix of the format can hold, each with what its name ends in."""
    for start in range(0, len(jobs), most):
        yield f"-{start // most + 1}" if len(jobs) > most else "", jobs[start : start + most]


def variables(settings: ExportSettings) -> dict[str, str]:
    return {"REKINDLE_REQUIREMENT": own.elsewhere(settings.rekindle, "sign"), "PYTHONUTF8": "1"}


def usable(settings: ExportSettings) -> int:
    """What is left of a runner's time for the build: fetching, unpacking and saving the cache take the rest."""
    return max(5, settings.limit - 40)


def toolchain_words(settings: ExportSettings) -> str:
    """Without your word on the terms the step stops and shows them."""
    return "rekindle toolchain install" + (" --accept-licence" if settings.accept_licence else "")


def notes(exported: Exported) -> str:
    """What whoever reads the file should know before it is run."""
    settings = exported.settings
    found = []
    if exported.needs_toolchains and not settings.accept_licence:
        found.append(
            "The step `Toolchain` stops at NVIDIA's terms: read them, then write this again with `--accept-licence`."
        )
    return "".join(f"# {line}\n" for line in found)


def build_command(settings: ExportSettings, *, cache: str = COMPILED) -> str:
    """The command of one turn for the job `KEY`. Exit code 75: the time was up, and the next turn goes on."""
    return workflow_step(
        rekindle(
            "fleet", "job", settings.matrix, ShellVariable("KEY"), "--shelf", SHELF, "--work", WORK,
            "--cache", cache, "--time-limit", str(usable(settings)),
            *(("--from", ShellVariable("SITE_URL")) if settings.site else ()),
        )
    )  # fmt: skip


def relative_matrix(matrix: Path, folder: Path) -> str:
    """The matrix as the workflow finds it: from the root of the repository."""
    try:
        found = matrix.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError as error:
        message = f"`{matrix}` is not below `{folder}`"
        raise UsageError(message, hint="export from the root of the repository that holds the matrix") from error
    if found.startswith("-"):
        raise UsageError(f"`{found}` would be read as an option", hint="rename the matrix")
    return found
