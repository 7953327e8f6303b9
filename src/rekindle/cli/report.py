"""`rekindle report`: a build as a page."""

from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import codec, console, files


@click.command("report")
@click.argument("build", type=click.Path(path_type=Path))
@options.output("Write the page here; `report.html` if not given.")
@options.path("--trace", "FILE", "Also write a trace for Perfetto.", written=True)
@click.option("--title", help="The heading of the page.")
@options.as_json
def command(build: Path, output: Path | None, trace: Path | None, title: str | None, as_json: bool) -> None:
    """Show what a build did as one HTML page.

    BUILD is a `.ninja_log` of any project, a folder that holds one, the folder of `rekindle build --work`, or the state
    folder of `rekindle fleet run`.
    """
    from rekindle.web import fleet_page, report, timeline

    if fleet_page.is_fleet(build):
        options.exclude("build", ("trace",), hint="a fleet's run has no timeline; name the folder of one build")
        _fleet(build, output, title, as_json)
        return
    found = report.build_report(build, title)
    if trace is not None:
        files.write_text(trace, codec.to_json(timeline.trace(found.timeline), indent=0))
        console.say(f"wrote `{trace}`; open it at chrome://tracing or in Perfetto")
    if as_json:
        console.out_json(found)
        return
    target = output or Path("report.html")
    files.write_text(target, report.html(found))
    drawn = found.timeline
    console.out(f"{len(drawn.bars)} commands, {drawn.wall:.0f} s, {drawn.parallel:.1f} of {drawn.slots} slots busy")
    for bar in drawn.slowest(3):
        console.out(f"  {bar.seconds:8.1f} s  {bar.name}")
    console.say(f"wrote `{target}`; open it in a browser")


def _fleet(folder: Path, output: Path | None, title: str | None, as_json: bool) -> None:
    from rekindle.web import fleet_page

    found = fleet_page.fleet_report(folder, title)
    if as_json:
        console.out_json(found)
        return
    target = output or Path("fleet.html")
    files.write_text(target, fleet_page.html(found))
    console.out(", ".join(f"{count} {state}" for state, count in found.status.counts.items()) or "no jobs")
    console.say(f"wrote `{target}`; open it in a browser")
