from __future__ import annotations

from typing import Any

import click

from rekindle.cli import options
from rekindle.core import console


@click.command("env")
@click.option("--diff", is_flag=True, help="Show every variable before and after, with the reason.")
@click.option("--cmd", "shell", flag_value="cmd", help="Print it for a batch file.")
@click.option("--ps1", "shell", flag_value="ps1", help="Print it for PowerShell.")
@click.option("--sh", "shell", flag_value="sh", help="Print it for a POSIX shell.")
@click.option("--options", "listing", is_flag=True, help="List the options of the release instead.")
@options.build_question
@options.machine
@options.as_json
def command(diff: bool, listing: bool, as_json: bool, **given: Any) -> int:
    """Show the environment of a build: every variable, and why. Nothing is changed."""
    from rekindle.build import env_command as env
    from rekindle.build.configure import render

    wanted = env.EnvCommand(**given)
    if listing:
        listed = env.list_options(wanted)
        console.out_json(listed) if as_json else console.out(env.options_text(listed))
        return 0
    report, computed = env.environment(wanted)
    if as_json:
        console.out_json(report)
    elif wanted.shell:
        console.out(render.render(computed, wanted.shell).rstrip("\n"))
    else:
        console.out(env.environment_text(report, diff=diff))
    for finding in report.findings:
        console.say(console.finding(finding))
    return 0
