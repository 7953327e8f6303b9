"""`rekindle extension`: CUDA extension projects against the torch that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.findings import exit_code

if TYPE_CHECKING:
    from rekindle.extension.build import ExtensionReport
    from rekindle.extension.find import FoundExtension
    from rekindle.machine.model import Machine
    from rekindle.model.card import NamedCard

environment = options.path("--env", "ENV", "The environment; the active one by default.", name="place")
with_ptx = click.option("--ptx", is_flag=True, help="Also add PTX, which newer GPUs can run.")


@click.group("extension")
def command() -> None:
    """Find or build CUDA extensions for your torch and your GPUs."""


@command.command("build")
@click.argument("project")
@environment
@options.gpus
@with_ptx
@options.output("Where to put the wheel (default: here).")
@click.option("--from-source", is_flag=True, help="Build from source even if the index has a wheel that fits.")
@options.path("--mirror", "DIR", "Take the source from the repositories in DIR.")
@options.as_json
def build_command(
    project: str, place: Path | None, gpus: tuple[str, ...], ptx: bool, output: Path | None, from_source: bool,
    mirror: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Build a wheel of PROJECT (a folder, or a requirement such as torchvision==0.22.1) for your GPUs."""
    from rekindle.extension.build import ExtensionRequest, build

    cards, machine = _here(gpus)
    wanted = ExtensionRequest(
        project=project, environment=place, output=output or Path(), from_source=from_source, ptx=ptx, mirror=mirror
    )
    report = build(wanted, cards=cards, machine=machine, tell=console.say)
    _print(report, as_json=as_json)
    return exit_code(report.state)


@command.command("check")
@environment
@options.gpus
@with_ptx
@options.as_json
def check_command(place: Path | None, gpus: tuple[str, ...], ptx: bool, as_json: bool) -> int:
    """Check whether a CUDA extension would build here, with which tools and for which GPUs."""
    from rekindle.extension.build import check

    cards, machine = _here(gpus)
    report = check(place, cards=cards, machine=machine, ptx=ptx)
    _print(report, as_json=as_json)
    return exit_code(report.state)


@command.command("env")
@environment
@options.gpus
@with_ptx
@click.option("--shell", type=click.Choice(["sh", "cmd", "ps1"]), help="For which shell (default: this system's).")
@options.as_json
def env_command(place: Path | None, gpus: tuple[str, ...], ptx: bool, shell: str | None, as_json: bool) -> int:
    """Print the environment for running pip yourself, as lines for a shell."""
    from rekindle.extension.build import shell_environment

    cards, machine = _here(gpus)
    answer = shell_environment(place, cards=cards, machine=machine, shell=shell, ptx=ptx)
    console.out_json(answer) if as_json else console.out(answer.text.rstrip("\n"))
    return 0


@command.command("find")
@click.argument("name")
@environment
@options.torch("The torch it must fit, e.g. 2.8.0 or 2.8.0+cu128 (default: the one in the environment).")
@options.cuda("The CUDA of that torch, e.g. 12.8.")
@options.python
@options.system
@options.arch
@options.gpus
@options.as_json
def find_command(
    name: str, place: Path | None, torch: str | None, cuda: str | None, python: str | None, system: str | None,
    arch: str | None, gpus: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Find a ready-made wheel of NAME (flash-attn, xformers, ...) for your torch, CUDA, Python and GPUs."""
    from rekindle.extension import question
    from rekindle.extension.find import find

    said = question.TorchNamed(torch=torch, cuda=cuda, python=python, os=system, arch=arch)
    found = find(question.of(name, said, place=place, gpus=gpus))
    console.out_json(found) if as_json else _print_found(found)
    return found.exit_code


def _print_found(found: FoundExtension) -> None:
    cards = ", ".join(f"{card.name} ({card.capability.sm})" for card in found.cards) or "no GPU named"
    line = f"+{found.cuda}" if found.cuda else ""
    place = f"{found.system.capitalize()} {found.machine}"
    about = f"{found.package} for torch {found.torch}{line}, Python {found.python}, {place}, {cards}"
    console.out(console.wrap(about, indent="  ", first=""))
    console.out()
    if found.command:
        console.out(f"  {found.command}")
        console.out()
    if found.build_cost:
        console.out(console.wrap(f"No ready-made wheel fits: this builds one ({found.build_cost})."))
    for finding in found.findings:
        console.out(console.finding(finding))
    if found.note:
        console.out(console.wrap(found.note[:1].upper() + found.note[1:] + "."))
    if found.instead:
        console.out(console.wrap(f"Instead: {found.instead}"))


def _here(gpus: tuple[str, ...]) -> tuple[tuple[NamedCard, ...], Machine]:
    from rekindle.audit.cards import cards_for
    from rekindle.machine.probe import look

    return cards_for(gpus, None, None).cards, look()


def _print(report: ExtensionReport, *, as_json: bool) -> None:
    if as_json:
        console.out_json(report)
        return
    console.out(f"{report.project} for torch {report.torch} in {report.environment}")
    for finding in report.findings:
        console.out(console.finding(finding))
    if report.command:
        console.out()
        console.out(f"Next: {report.command}")
