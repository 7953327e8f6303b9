"""`rekindle fleet`: the same build for a matrix, over many machines."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import UsageError

if TYPE_CHECKING:
    from rekindle.fleet.run import RunSettings
    from rekindle.fleet.state import FleetState, FleetStatus

F = TypeVar("F", bound=Callable[..., Any])
matrix = click.argument("matrix", type=click.Path(path_type=Path), metavar="MATRIX", default="matrix.toml")
machines = options.path(
    "--machine",
    "FILE",
    "A snapshot that stands for its cards, system and Python. May be repeated.",
    name="machines",
    multiple=True,
)
state_folder = options.path("--state", "DIR", "Where the run keeps its journal [MATRIX.fleet].")
certificates = options.path("--certs", "DIR", "The certificates of `fleet certs`.")
cache = click.option(
    "--cache", metavar="URL",
    help="A compile cache that all share: redis://HOST:PORT or http://…; also REKINDLE_FLEET_CACHE.",
)  # fmt: skip


def running(command: F) -> F:
    """The options of everything that builds."""
    for option in reversed((
        state_folder,
        options.shelf,
        click.option("--scheduler", metavar="URL", help="The scheduler, tls://HOST:PORT [this machine alone]."),
        certificates,
        click.option("--workers", type=click.IntRange(1, 64), help="Worker processes of a local run."),
        click.option("--slots", type=click.IntRange(1, 64), help="Jobs at a time on each of them."),
        options.path("--work", "DIR", "Build here in a local run."),
        cache,
        click.option("--deaths", type=click.IntRange(1, 100), default=4, show_default=True,
                     help="Set a job aside that takes so many workers with it."),
        click.option("--patience", type=click.FloatRange(1), default=120.0, show_default=True, metavar="SECONDS",
                     help="Wait so long for a worker that can build what is left."),
        click.option("--keep", is_flag=True, help="Leave the jobs' folders on the workers."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.group("fleet")
def command() -> None:
    """Build a matrix of wheels on many machines."""


@command.command("plan")
@matrix
@machines
@options.shelf
@click.option("--workers", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Machines to plan for.")
@options.as_json
def plan_command(matrix: Path, machines: tuple[Path, ...], shelf: Path | None, workers: int, as_json: bool) -> int:
    """Every job of MATRIX: what would be built, in which order, and why the rest would not. Nothing is run.

    Exits with 5 if nothing of it can be built.
    """
    from rekindle.core.errors import NoRoute
    from rekindle.core.paths import shelf_folder
    from rekindle.fleet import planning, view

    made = planning.make(matrix, machines=machines, shelf_folder=shelf or shelf_folder(), workers=workers).plan
    console.out_json(made) if as_json else _lines(view.plan_lines(made))
    return NoRoute.exit_code if made.totals.impossible == len(made.jobs) else 0


@command.command("run")
@matrix
@machines
@running
@options.as_json
def run_command(matrix: Path, machines: tuple[Path, ...], as_json: bool, **given: Any) -> int:
    """Build MATRIX, here or on a fleet. Rerun it to resume; a finished job is never built again."""
    from rekindle.fleet import run

    return _ended(run.run(matrix, _state(matrix, given), _settings(given), machines=machines, tell=_say), as_json)


@command.command("resume")
@matrix
@running
@options.as_json
def resume_command(matrix: Path, as_json: bool, **given: Any) -> int:
    """Go on with the plan of the last run, as it was made."""
    from rekindle.fleet import run

    return _ended(run.resume(_state(matrix, given), _settings(given), tell=_say), as_json)


@command.command("retry")
@matrix
@click.option("--failed", is_flag=True, help="Everything that failed, was cancelled or set aside, or found no worker.")
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="This job, by name or key. May be repeated.")
@running
@options.as_json
def retry_command(matrix: Path, failed: bool, jobs: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Try jobs again that did not succeed."""
    from rekindle.fleet import run
    from rekindle.fleet.state import keys_named

    if failed == bool(jobs):
        raise UsageError("say what to retry", hint="`--failed`, or `--job NAME`")
    state = _state(matrix, given)
    keys = keys_named(state.planned(), jobs) if jobs else ()
    return _ended(run.retry(state, _settings(given), keys, tell=_say), as_json)


@command.command("status")
@matrix
@state_folder
@options.as_json
def status_command(matrix: Path, as_json: bool, **given: Any) -> int:
    """Where every job is, from the journal: also while it runs, and after a crash."""
    from rekindle.fleet.state import status_of

    _show(status_of(_state(matrix, given)), as_json)
    return 0


@command.command("cancel")
@matrix
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="This job, by name or key [all that are left].")
@state_folder
@options.as_json
def cancel_command(matrix: Path, jobs: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Stop jobs that run and drop those that wait; what is finished stays."""
    from rekindle.fleet.state import keys_named, status_of

    state = _state(matrix, given)
    left = [job.key for job in status_of(state).jobs if job.key and job.state in ("waiting", "running")]
    named = keys_named(state.planned(), jobs) if jobs else tuple(left)
    asked = tuple(key for key in named if key in left)
    state.ask_cancel(asked)
    status = status_of(state)
    _show(status, as_json)
    if asked and not status.running:
        jobs_left = console.plural(len(asked), "job")
        console.say(f"no run is on: `resume` begins by cancelling {jobs_left}, `run` builds what is missing after all")
    return 0


@command.command("job")
@matrix
@click.argument("job", metavar="JOB")
@options.shelf
@click.option("--work", type=click.Path(path_type=Path), metavar="DIR", default=Path("fleet-work"), help="Build here.")
@cache
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.01),
    metavar="MINUTES",
    help="Stop in good order after so long, with exit code 75; the same command goes on.",
)
@click.option("--from", "site", metavar="URL", help="A factory's pages: what is published there is done.")
@options.as_json
def job_command(
    matrix: Path, job: str, shelf: Path | None, work: Path, cache: str | None, time_limit: float | None,
    site: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Build one JOB of MATRIX (a name, or the beginning of a key) here, as exported workflows do."""
    from rekindle.core.paths import shelf_folder
    from rekindle.fleet import run

    place = run.JobPlace(
        shelf=(shelf or shelf_folder()).resolve(),
        work=work.resolve(),
        cache=_cache(cache),
        minutes=time_limit,
        site=site,
    )
    done = run.run_job(matrix, job, place, tell=_say)
    if as_json:
        console.out_json(done)
    else:
        console.out(f"{done.state:<10} {done.name}" + (f"  {done.wheel}" if done.wheel else ""))
    return run.GOES_ON if done.state == "unfinished" else 0


@command.command("export")
@click.argument("form", type=click.Choice(["github", "gitlab", "slurm"]))
@matrix
@options.output("The file [where the format expects it].")
@options.shelf
@click.option("--rekindle", metavar="REQUIREMENT", help="What pip installs Rekindle from.")
@click.option(
    "--limit",
    type=click.IntRange(10, 43_200),
    default=350,
    show_default=True,
    metavar="MINUTES",
    help="How long a runner lets a job run.",
)
@click.option("--cores", type=click.IntRange(1, 1024), default=4, show_default=True, help="Of a runner.")
@click.option("--rounds", type=click.IntRange(1, 50), help="Turns for each job [from the estimates].")
@click.option(
    "--runner",
    "runners",
    multiple=True,
    metavar="PLACE=LABEL",
    help="The runner of a place: linux-x86_64=my-label. May be repeated.",
)
@click.option("--accept-licence", is_flag=True, help="You accept NVIDIA's terms for the runners' toolchains.")
@options.as_json
def export_command(form: str, matrix: Path, output: Path | None, as_json: bool, **given: Any) -> int:  # fmt: skip
    """Write MATRIX as a workflow for hosted runners or as a Slurm array."""
    from rekindle.fleet import matrix_file, planning
    from rekindle.fleet.export import write

    pairs = dict(_pair(each) for each in given["runners"])
    settings = write.ExportSettings(
        matrix=write.relative_matrix(matrix, Path()),
        limit=given["limit"],
        cores=given["cores"],
        rounds=given["rounds"],
        runner=pairs,
        accept_licence=given["accept_licence"],
        rekindle=given["rekindle"],
    )
    if form != "slurm":
        matrix_file.below(matrix)
    plan = planning.make(matrix, shelf_folder=given["shelf"], one_cache=form == "slurm").plan
    made = write.write(form, write.exported(plan, settings), output)
    if as_json:
        console.out_json(made)
    else:
        console.out(f"{made.file}: {console.plural(made.jobs, 'job')} in {console.plural(made.rounds, 'round')}")
        if form == "slurm":
            console.say(f"Next: what its first lines ask for, then `{Command('sbatch', made.file)}`")
    return 0


@command.command("certs")
@options.output("The folder for them; must be new.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name or address of a machine. May be repeated.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid.")
@options.as_json
def certs_command(output: Path | None, hosts: tuple[str, ...], days: int, as_json: bool) -> int:
    """Make the certificates of a fleet: whoever holds one can run code on all its machines."""
    from rekindle.fleet import scheduler

    made = scheduler.make(output or Path("fleet-certs"), hosts, days=days)
    if as_json:
        console.out_json(made)
        return 0
    console.out(f"certificates for {', '.join(made.hosts)} in {made.folder}, valid for {made.days} days")
    console.say("copy scheduler*, worker* and ca.pem to the machines; keep ca-key.pem to yourself")
    return 0


@command.command("scheduler")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8790, show_default=True)
@certificates
@options.path("--address-file", "FILE", "Write the address to FILE.", written=True)
def scheduler_command(host: str, port: int, certs: Path | None, address_file: Path | None) -> int:
    """Run the scheduler that clients and workers meet at."""
    from rekindle.fleet import scheduler

    scheduler.serve(host, port, certs, address_file=address_file, tell=console.say)
    return 0


@command.command("worker")
@click.option("--scheduler", required=True, metavar="URL", help="Where the scheduler is: tls://HOST:PORT.")
@certificates
@click.option("--name", help="What it is called [the host's name].")
@options.path("--folder", "DIR", "Where it builds [in the cache].")
@click.option("--slots", type=click.IntRange(1, 64), help="Jobs at a time [one per 8 cores and 16 GB].")
@click.option("--memory", type=click.FloatRange(0.5), metavar="GB", help="The most memory its jobs may use.")
@cache
@click.option(
    "--provision",
    multiple=True,
    metavar="TOOL==VERSION",
    help="A toolkit it may assemble for a job, by `rekindle toolchain`. May be repeated.",
)
@click.option("--accept-licence", is_flag=True, help="With --provision: you accept the terms that are shown.")
def worker_command(
    scheduler: str, certs: Path | None, name: str | None, folder: Path | None, slots: int | None,
    memory: float | None, cache: str | None, provision: tuple[str, ...], accept_licence: bool,
) -> int:  # fmt: skip
    """Offer this machine to a fleet."""
    from rekindle.fleet import worker
    from rekindle.machine.probe import look

    if provision:
        from rekindle.toolchain import command as toolchain

        # A job has nobody to ask: what it may bring is found, and its terms accepted, before anything is offered.
        wanted = toolchain.InstallCommand(tools=provision, accept_licence=accept_licence)
        toolchain.agree(wanted, say=console.say, ask=options.confirmed)
    if slots is None:
        machine = look()
        usable = (machine.memory.usable or 0) / 1024**3
        slots = worker.default_slots(machine.processor.cores or 1, min(usable, memory or usable))
    called = name or worker.default_name()
    settings = worker.WorkerSettings(
        scheduler=scheduler,
        folder=str((folder or worker.default_folder(called)).resolve()),
        name=called,
        slots=slots,
        certs=str(certs.resolve()) if certs else None,
        memory_gb=memory,
        cache=_cache(cache),
        provision=provision,
    )
    return worker.serve(settings, console.say)


def _pair(text: str) -> tuple[str, str]:
    place, equals, label = text.partition("=")
    if not equals or not label:
        raise UsageError(f"cannot parse `--runner {text[:60]}`", hint="write `--runner linux-x86_64=ubuntu-24.04`")
    return place, label


def _state(matrix: Path, given: dict[str, Any]) -> FleetState:
    from rekindle.fleet.state import FleetState, folder_of

    return FleetState(given["state"] or folder_of(matrix))


def _settings(given: dict[str, Any]) -> RunSettings:
    from rekindle.core.paths import shelf_folder
    from rekindle.fleet.dispatch import DispatchRules
    from rekindle.fleet.run import RunSettings

    if given["scheduler"]:
        options.exclude("scheduler", ("workers", "slots", "work"), hint="those are for a run on this machine alone")
    rules = DispatchRules(
        deaths=given["deaths"], patience=given["patience"], cache=_cache(given["cache"]), keep=given["keep"]
    )
    return RunSettings(
        shelf=given["shelf"] or shelf_folder(),
        scheduler=given["scheduler"],
        certs=given["certs"],
        workers=given["workers"],
        slots=given["slots"],
        work=given["work"].resolve() if given["work"] else None,
        rules=rules,
    )


def _cache(named: str | None) -> str | None:
    """A password in the address is better kept in the environment than in a command line that others can list."""
    return named or os.environ.get("REKINDLE_FLEET_CACHE") or None


def _ended(status: FleetStatus, as_json: bool) -> int:
    from rekindle.core.errors import NoRoute, StepFailed

    _show(status, as_json)
    if status.impossible:
        return NoRoute.exit_code
    return 0 if status.well else StepFailed.exit_code


def _show(status: FleetStatus, as_json: bool) -> None:
    from rekindle.fleet import view
    from rekindle.fleet.state import FAILED

    console.out_json(status) if as_json else _lines(view.status_lines(status))
    if not as_json and status.counts.keys() & set(FAILED):
        said = click.get_current_context().params
        which = [str(said[name]) for name in options.given("matrix")]
        where = [(f"--{each}", str(said[each])) for each in options.given("state", "shelf", "scheduler", "certs")]
        again = rekindle("fleet", "retry", *which, "--failed", *itertools.chain.from_iterable(where))
        if "unplaced" in status.counts:
            worker, export = rekindle("fleet", "worker", "--help"), rekindle("fleet", "export", "--help")
            console.out(f"Next: a worker on such a machine (`{worker}`), or a workflow that has them (`{export}`)")
        cause = "fix the cause, then " if status.counts.keys() & (set(FAILED) - {"cancelled"}) else ""
        console.out(f"Next: {cause}`{again}`")


def _lines(lines: Any) -> None:
    for line in lines:
        console.out(line)


def _say(text: str) -> None:
    import time

    console.say(f"{time.strftime('%H:%M:%S')} {text}")
