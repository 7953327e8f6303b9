"""GitHub Actions: one workflow, a round of all jobs after another, each round a matrix with the jobs' keys."""

from __future__ import annotations

from typing import Any

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
    rounds,
    toolchain_words,
    variables,
)

_MOST = 256
RUNNERS = {
    "linux-x86_64": "ubuntu-22.04",
    "linux-aarch64": "ubuntu-22.04-arm",
    "windows-x86_64": "windows-2022",
}
_ACTIONS = {
    "checkout": "actions/checkout@v4",
    "python": "actions/setup-python@v5",
    "restore": "actions/cache/restore@v4",
    "save": "actions/cache/save@v4",
    "upload": "actions/upload-artifact@v4",
    "download": "actions/download-artifact@v4",
}
_PAGES = "https://${{ github.repository_owner }}.github.io/${{ github.event.repository.name }}"


def action(name: str) -> str:
    return _ACTIONS[name]


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
    return {
        "name": name,
        "on": {"workflow_dispatch": {}, "push": {"branches": ["main"], "paths": [exported.settings.matrix]}},
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
        for ending, part in divided(turn.jobs, _MOST)
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
        {"uses": action("checkout")},
        {"uses": action("python"), "with": {"python-version": "${{ matrix.python }}"}},
        {
            "name": "Its wheel, if an earlier round made it",
            "uses": action("download"),
            "continue-on-error": True,
            "with": {"pattern": "wheel-${{ matrix.key }}-*", "path": SHELF, "merge-multiple": True},
        },
        {
            "name": "The wheel that it needs",
            "if": "matrix.needs != ''",
            "uses": action("download"),
            "continue-on-error": True,
            "with": {"pattern": "wheel-${{ matrix.needs }}-*", "path": SHELF, "merge-multiple": True},
        },
        {
            "name": "What was compiled before",
            "uses": action("restore"),
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
                "REKINDLE_KEY_TEXT": "${{ secrets.REKINDLE_KEY }}",
                "KEY": "${{ matrix.key }}",
                "PROJECT": "${{ matrix.project }}",
            },
            "run": (
                'if [ -n "$REKINDLE_KEY_TEXT" ]; then\n'
                "  umask 077\n"
                '  printf "%s\\n" "$REKINDLE_KEY_TEXT" > "$RUNNER_TEMP/rekindle-key.pem"\n'
                '  export REKINDLE_KEY="$RUNNER_TEMP/rekindle-key.pem"\n'
                "fi\n"
                "unset REKINDLE_KEY_TEXT\n"
                'have() { ls shelf/fleet/"$KEY"*.json > /dev/null 2>&1; }\n'
                "before=no; have && before=yes\n"
                "code=0\n"
                f"{build_command(settings)} || code=$?\n"
                'if [ "$before" = no ] && ls shelf/wheels/"$PROJECT"-*.whl > /dev/null 2>&1 && have; then\n'
                '  echo "fresh=yes" >> "$GITHUB_OUTPUT"\n'
                "fi\n"
                'rm -f "$RUNNER_TEMP/rekindle-key.pem"\n'
                f"if {time_is_up}; then echo 'the next round goes on'; exit 0; fi\n"
                'exit "$code"\n'
            ),
        },
        {
            "name": "Keep what was compiled",
            "if": "always()",
            "uses": action("save"),
            "with": {"path": COMPILED, "key": cache},
        },
        {
            "name": "Wheel",
            "if": "steps.build.outputs.fresh == 'yes'",
            "uses": action("upload"),
            "with": {
                "name": f"wheel-${{{{ matrix.key }}}}-{number}",
                "path": f"{SHELF}/wheels/${{{{ matrix.project }}}}-*\n{SHELF}/fleet/${{{{ matrix.key }}}}*\n",
                "retention-days": 30,
            },
        },
    ]
