from __future__ import annotations

from pathlib import Path

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("env")
@click.argument("plan", type=click.Path(path_type=Path), metavar="[PLAN]", required=False)
@click.option("--diff", is_flag=True, help="Show every variable before and after, with the reason.")
@click.option("--cmd", "shell", flag_value="cmd", help="Print it for a batch file.")
@click.option("--ps1", "shell", flag_value="ps1", help="Print it for PowerShell.")
@click.option("--sh", "shell", flag_value="sh", help="Print it for a POSIX shell.")
@click.option("--options", "listing", is_flag=True, help="List the options of the release instead.")
@click.option("-D", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of the build. May be repeated.")
@click.option("--allow-unknown", is_flag=True, help="Pass on options that this release does not have.")
@options.gpus
@options.torch
@options.cuda
@options.python
@options.toolset
@options.profile
@options.machine
@options.as_json
def command(plan: Path | None, diff: bool, listing: bool, machine: Path | None, as_json: bool, **asked: object) -> int:
    """The environment a build runs in: every variable, and why. Nothing is changed."""
    from rekindle.build import command as verb
    from rekindle.build.configure import render

    if listing:
        listed = verb.list_options(asked)
        console.out_json(listed) if as_json else console.out(verb.options_text(listed))
        return 0
    report, computed = verb.environment(plan, machine=machine, asked=asked)
    if as_json:
        console.out_json(report)
    elif asked["shell"]:
        console.out(render.render(computed, str(asked["shell"])).rstrip("\n"))
    else:
        console.out(verb.environment_text(report, diff=diff))
    for finding in report.findings:
        console.say(console.finding(finding))
    return 0
