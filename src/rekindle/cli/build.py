from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.command import rekindle as own
from rekindle.core.errors import NotFound, UsageError
from rekindle.core.own import need

if TYPE_CHECKING:
    from rekindle.build.command import BuildListener

# As in `rekindle.build.run.steps`, which takes too long to import for a help text.
STEPS = (
    "preflight", "source", "patch", "smoke", "configure", "check", "compile", "package", "repair", "verify", "shelve",
)  # fmt: skip


@click.command("build")
@click.argument("plan", type=click.Path(path_type=Path), metavar="PLAN", default="plan.toml")
@options.path("--source", "DIR", "The source, instead of the plan's.")
@click.option("-D", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of the build. May be repeated.")
@click.option("--allow-unknown", is_flag=True, help="Pass on options that this release does not have.")
@click.option("--until", metavar="STEP", help=f"Stop after this step: {', '.join(STEPS)}.")
@click.option("--from", "start", metavar="STEP", help="Redo this step and all after it.")
@click.option("--clean", is_flag=True, help="Empty the build's folder first.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Compile at most N files at a time.")
@options.path("--work", "DIR", "Build in this folder, not in the cache.")
@click.option(
    "--cache", "launcher", is_flag=False, flag_value="any", metavar="[PROGRAM|URL]",
    help="Compile through sccache or ccache; `none` for neither.",
)  # fmt: skip
@options.path(
    "--export-cache", "FILE", "Write what was compiled, through ccache, to take to another machine.", written=True
)
@options.path(
    "--import-cache", "FILE", "Take what another machine compiled with the same compilers, paths and options."
)
@options.path(
    "--script", "FILE", "Build nothing: write the plan as a script, build.cmd, build.ps1 or build.sh.", written=True
)
@options.path("--container", "FILE", "Build nothing: write the plan as a Dockerfile.", written=True)
@click.option("--base", metavar="IMAGE", help="With `--container`: the image to start from.")
@click.option("--rekindle", metavar="REQUIREMENT", help="With `--container`: what pip installs Rekindle from.")
@click.option("--auto-fix", is_flag=True, help="Apply fixes that need no decision without asking.")
@options.path("--bundle", "DIR", "Install what the build requires from a folder of `plan --bundle`, not an index.")
@options.path("--graft", "WHEEL", "Compile only the GPU half of this official wheel, for the plan's cards.")
@click.option("--no-cudnn", is_flag=True, help="Leave cuDNN out; convolutions on the GPU are slower.")
@click.option("--provision", is_flag=True,
              help="First install the CUDA, compiler and cuDNN that are missing.")  # fmt: skip
@click.option("--accept-licence", is_flag=True, help="With --provision: you accept the terms that are shown.")
@click.option("--unlocked", is_flag=True, help="Build a plan that was edited by hand, and say what differs.")
@click.option("--force", is_flag=True, help="Build although a check of the machine failed.")
@click.option("--yes", is_flag=True, help="Do not ask before a long build.")
@click.option("--tidy", is_flag=True, help="Build nothing: free what the finished build no longer needs.")
@click.option("--serve", is_flag=True, help="Show the build as a page while it runs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With `--serve`: the address to listen on.")
@click.option("--port", default=8036, show_default=True, type=click.IntRange(0, 65535),
              help="With `--serve`: the port to listen on; 0 takes any free one.")  # fmt: skip
@options.machine
@options.dry_run
@options.as_json
def command(as_json: bool, serve: bool, host: str, port: int, **given: Any) -> int:
    """Build a plan into a wheel, unattended. Rerun the same command to resume."""
    if not given["plan"].exists():
        hint = f"write one first: `{own('plan', '--gpu', 'NAME', '-o', str(given['plan']))}`"
        raise NotFound.path(given["plan"], hint=hint)
    served = options.given("host", "port")
    if extra := [name for name in options.given("base", "rekindle") if given["container"] is None]:
        raise UsageError(f"`--{extra[0]}` goes with `--container`", hint="add `--container Dockerfile`")
    if served and not serve:
        raise UsageError(f"`--{served[0]}` goes with `--serve`", hint="add `--serve`")
    from rekindle.build import command
    from rekindle.build import command as build

    container, base, rekindle = (given.pop(name) for name in ("container", "base", "rekindle"))
    if container is not None:
        return _container(given["plan"], container, base, rekindle, as_json)
    wanted = build.BuildCommand(words=tuple(click.get_current_context().obj or ()), **given)
    if wanted.script is not None:
        from rekindle.build.script import write

        written = write.write(wanted)
        console.out_json(written) if as_json else console.out(write.text(written))
        for finding in written.findings:
            console.say(console.finding(finding))
        return 0
    done = build.build(wanted, tell=console.say, listener=_page(host, port) if serve else _page())
    console.out_json(done) if as_json else console.out(command.text(done))
    return 0


def _page(host: str | None = None, port: int = 0) -> BuildListener:
    """Writes the report when a run ends, and shows it while it runs."""
    from rekindle.web.build_page import BuildPage

    if host is not None:
        need("serve", "starlette", "uvicorn")
    return BuildPage(console.say, serve=(host, port) if host is not None else None)


def _container(plan: Path, path: Path, base: str | None, rekindle: str | None, as_json: bool) -> int:
    from rekindle.build.script import write

    options.exclude("container", (name for name in _others() if name not in ("plan", "base", "rekindle", "as_json")))
    made = write.write_container(plan, path, base=base, rekindle=rekindle)
    console.out_json(made) if as_json else console.out(f"wrote `{made.path}`: {made.base}, {' '.join(made.tools)}")
    return 0


def _others() -> list[str]:
    return [str(option.name) for option in click.get_current_context().command.params]
