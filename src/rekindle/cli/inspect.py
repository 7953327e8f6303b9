from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("inspect")
@click.argument("where", metavar="FILE|DIR|URL")
@options.gpus
@click.option("--kernels", is_flag=True, help="List every container of GPU code, by source file where known.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="WHEEL|ENV",
    help="Check an extension against this torch: libraries, symbols, CUDA, C++ ABI.",
)
@click.option("--check", is_flag=True, help="End with the exit code of the worst finding, not with 0.")
@options.as_json
def command(where: str, gpus: tuple[str, ...], kernels: bool, against: Path | None, check: bool, as_json: bool) -> int:
    """Which GPUs a wheel, library or installed package serves, and what it needs to load.

    Read from the bytes: no CUDA toolkit is needed and nothing is imported or run.
    """
    from rekindle.core import findings
    from rekindle.wheels.inspect import inspection, report
    from rekindle.wheels.inspect.against import read_torch

    torch = read_torch(against) if against else None
    found = inspection.inspect(where, cards=gpus, kernels=kernels, against=torch)
    if as_json:
        console.out_json(found)
    else:
        console.out(report.text(found))
    return findings.exit_code(findings.worst(found.findings)) if check else 0
