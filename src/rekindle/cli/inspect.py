from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("inspect")
@click.argument("places", metavar="FILE|DIR|URL...", nargs=-1, required=True, type=click.Path(path_type=str))
@options.gpus
@click.option("--kernels", is_flag=True, help="List every piece of GPU code, by source file where known.")
@options.path("--against", "WHEEL|ENV", "Check an extension against this torch: libraries, symbols, CUDA, C++ ABI.")
@options.path("--graft", "BASE", "Compare a wheel of `build --graft` with the official one that it was made from.")
@click.option(
    "--require",
    multiple=True,
    metavar="TARGET",
    help="Exit with 8 if a library lacks sm_61 (native code) or compute_90 (PTX). May be repeated.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Also exit with 9 if something could not be checked.",
)
@options.as_json
def command(
    places: tuple[str, ...],
    gpus: tuple[str, ...],
    kernels: bool,
    against: Path | None,
    graft: Path | None,
    require: tuple[str, ...],
    check: bool,
    as_json: bool,
) -> int:
    """Show which GPUs a wheel, library or installed package supports, and what it needs to load.

    GPU code is native (a cubin, for one GPU architecture and the minor versions above it) or PTX, which the driver
    compiles for any newer GPU.

    Read from the bytes: no CUDA toolkit is needed and nothing is imported or run. A folder of wheels stands for each.
    """
    import msgspec

    from rekindle.core import findings
    from rekindle.wheels import tags
    from rekindle.wheels.inspect import inspection, report
    from rekindle.wheels.inspect.identity import read_torch
    from rekindle.wheels.inspect.inspection import required_findings, targets_of

    wanted = targets_of(require)
    torch = read_torch(against) if against else None
    seen = []
    for where in tags.subjects(places):
        with console.waiting(f"reading {where}"):
            found = inspection.inspect(where, cards=gpus, kernels=kernels, against=torch)
        more = tuple(required_findings(found, wanted))
        if graft is not None:
            from rekindle.wheels.inspect import grafted

            more = (*more, *grafted.compare(graft, Path(where)))
        seen.append(msgspec.structs.replace(found, findings=(*found.findings, *more)))
        if not as_json:
            console.out(("\n" if len(seen) > 1 else "") + report.text(seen[-1]))
    if as_json:
        console.out_json(seen[0] if len(seen) == 1 else inspection.Inspections(inspections=tuple(seen)))
    elif len(seen) > 1:
        console.out(f"\n{report.closing(seen, wanted)}")
    items = [item for found in seen for item in found.findings]
    state = findings.worst(items)
    return findings.exit_code(state) if check or state is findings.State.FAIL else 0
