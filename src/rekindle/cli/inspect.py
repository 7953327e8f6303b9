from __future__ import annotations

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("inspect")
@click.argument("where", metavar="FILE|DIR|URL")
@options.gpus
@click.option("--kernels", is_flag=True, help="List every container of GPU code, by source file where known.")
@click.option("--check", is_flag=True, help="End with the exit code of the worst finding, not with 0.")
@options.as_json
def command(where: str, gpus: tuple[str, ...], kernels: bool, check: bool, as_json: bool) -> int:
    """Which GPUs a wheel, library or installed package serves, and what it needs to load.

    Read from the bytes: no CUDA toolkit is needed and nothing is imported or run.
    """
    from rekindle.core import findings
    from rekindle.wheels.inspect import inspection, report

    found = inspection.inspect(where, cards=gpus, kernels=kernels)
    if as_json:
        console.out_json(found)
    else:
        console.out(report.text(found))
    return findings.exit_code(findings.worst(found.findings)) if check else 0
