"""`rekindle install`: carry out the recommended route into an environment."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.command import rekindle
from rekindle.core.errors import UsageError
from rekindle.install.apply import InstallReport
from rekindle.install.beside import INSTALLERS
from rekindle.install.shelf_offers import Shelves
from rekindle.stack.situation import Prefer, TypedWish


@click.command("install")
@click.argument("environment", metavar="[ENV]", required=False, type=click.Path(path_type=Path))
@options.gpus
@options.any_torch
@options.cuda()
@options.driver
@click.option("--prefer", type=click.Choice([each.value for each in Prefer]), default="cheapest", show_default=True,
              help="What matters most when several ways work.")  # fmt: skip
@click.option("--configured-index", is_flag=True, help="Use only the index that pip is configured for.")
@options.shelves
@options.trust
@click.option("--require-signed", is_flag=True, help="Use a wheel from a shelf or a file only if it is signed.")
@options.path("--wheel", "FILE", "Install this wheel.")
@options.path("--plan", "PLAN", "Install what this plan says; in a folder of plans, this machine's own.")
@options.extensions("Also a ready-made flash-attn, xformers, ...")
@click.option("--installer", type=click.Choice(INSTALLERS), help="Which one to use [pip, if the environment has it].")
@click.option("--undo", is_flag=True, help="Restore the environment to what it was before the last install.")
@options.dry_run
@options.as_json
def command(
    environment: Path | None,
    gpus: tuple[str, ...],
    torch: str | None,
    cuda: str | None,
    driver: str | None,
    prefer: str,
    configured_index: bool,
    shelves: tuple[str, ...],
    trust: tuple[str, ...],
    require_signed: bool,
    wheel: Path | None,
    plan: Path | None,
    extensions: tuple[str, ...],
    installer: str | None,
    undo: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Install the right PyTorch into ENV (a folder, a python, or the active environment) and pin it."""
    from rekindle.install import command as verb

    _refuse()
    if environment is not None and environment.suffix == ".whl":
        named = rekindle("install", "--wheel", str(environment))
        raise UsageError(f"`{environment}` is a wheel, not an environment", hint=f"name it as one: `{named}`")
    if undo:
        report = verb.undo(environment)
    else:
        wish = TypedWish(
            torch=torch, cuda=cuda, extensions=extensions, prefer=prefer, configured_index=configured_index
        )
        request = verb.InstallRequest(
            wish=wish.wish,
            gpus=gpus,
            driver=driver,
            shelves=Shelves(addresses=shelves, trust=trust, signed=require_signed),
            wheel=wheel,
            plan=plan,
            installer=installer,
            dry_run=dry_run,
        )
        report = verb.install(environment, request)
    console.out_json(report) if as_json else _show(report)
    return report.exit_code


def _refuse() -> None:
    """What is given is used or refused: an undo takes nothing else, a plan has its cards and its stack."""
    chosen = (
        "gpus", "torch", "cuda", "driver", "prefer", "configured_index", "shelves", "trust", "require_signed",
        "wheel",
    )  # fmt: skip
    modes = options.given("undo", "plan", "wheel")
    if "undo" in modes:
        options.exclude(
            "undo",
            (*chosen, "plan", "extensions", "installer", "dry_run"),
            hint="an undo restores what was there before",
        )
    elif "plan" in modes:
        options.exclude("plan", chosen, hint="the plan has its cards and its stack already")
    elif "wheel" in modes:
        options.exclude("wheel", ("shelves", "configured_index"))


def _show(report: InstallReport) -> None:
    said = {
        "installed": f"installed torch {report.torch} ({report.route.value})",
        "would-install": f"would install torch {report.torch} ({report.route.value})",
        "already": "nothing to do",
        "undone": "restored",
    }[report.state]
    console.out(f"{said} in `{report.environment.root}`")
    for note in report.notes:
        console.out(console.wrap(note, indent="  "))
    for wheel in report.beside:
        console.out(console.finding(wheel.finding))
    if report.state == "would-install":
        console.out("  it would run")
        for line in report.commands:
            console.out(f"    {line}")
    rows = [(each.name, each.before or "-", each.after or "-") for each in report.changes]
    if rows:
        console.out(console.table(rows, head=("package", "before", "after"), indent="  "))
    for capability, coverage in report.coverage.items():
        console.out(f"  GPU code for {capability}: {coverage.value} (read off the installed files)")
    if report.constraints:
        console.out(f"  kept by `{report.constraints}`, which this environment's pip reads by itself")
        console.out("  `rekindle install --undo` restores the environment")
