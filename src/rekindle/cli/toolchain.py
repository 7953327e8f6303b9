"""`rekindle toolchain`: private CUDA toolkits and compilers, without installers and without administrator rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rekindle.cli import options
from rekindle.core import console


@click.group("toolchain")
def command() -> None:
    """Assemble CUDA toolkits and compilers in Rekindle's own folder, without an installer.

    Nothing is registered, nothing outside that folder changes, and no administrator is needed.
    """


@command.command("install")
@click.argument("tools", nargs=-1, metavar="TOOL==VERSION...")
@options.path("--from", "PATH", "Take the archives from this folder, or this one archive.", name="source")
@options.path("--manifest", "FILE", "Install exactly what this file of `toolchain manifest` names.")
@click.option("--provider", metavar="NAME", help="Take it from this provider only.")
@click.option("--platform", metavar="OS-ARCH", help="For another kind of computer: linux-x86_64, windows-x86_64.")
@click.option("--full", is_flag=True, help="Everything, not only what a build needs.")
@click.option("--offline", is_flag=True, help="Ask nobody: use what an earlier run has downloaded.")
@click.option("--mirror", metavar="URL", help="Ask this address instead of the provider's own.")
@options.cuda("The CUDA that a cuDNN or NCCL is made for, or that a `gcc` without a version must suit.")
@options.gpus
@click.option("--again", is_flag=True, help="Make it anew, even if it is there.")
@click.option("--accept-licence", is_flag=True, help="You have read and accept the terms that are shown.")
@options.dry_run
@options.as_json
def install(as_json: bool, **given: Any) -> int:
    """Install tools: `cuda==11.8`, `gcc==11`, `cudnn==8.7.0`, `nccl`, `mkl`, `openblas`.

    A CUDA for Linux brings the newest GCC that it takes, unless this computer has one.
    """
    from rekindle.toolchain import command as room
    from rekindle.toolchain import report
    from rekindle.toolchain.store import Store

    done = room.install(room.InstallCommand(**given), say=console.say, ask=options.confirmed)
    answer = report.answer(Store(), done.kits)
    if as_json:
        console.out_json(answer)
    else:
        for kit in answer.kits:
            console.out(f"{kit.id}: {kit.folder}")
            for text in kit.missing:
                console.say(console.wrap(f"without {text}"))
    return 0


@command.command("list")
@options.as_json
def list_(as_json: bool) -> int:
    """List what is installed."""
    from rekindle.toolchain import report
    from rekindle.toolchain.store import Store

    store = Store()
    found = report.answer(store, store.kits())
    console.out_json(found) if as_json else report.show_list(found)
    return 0


@command.command("show")
@click.argument("tool", metavar="TOOL==VERSION")
@options.as_json
def show(tool: str, as_json: bool) -> int:
    """Show one tool: its folder, what it is made of, what it lacks."""
    from rekindle.toolchain import command as room
    from rekindle.toolchain import report

    found = room.show(tool)
    console.out_json(found) if as_json else report.show_kit(found)
    return 0


@command.command("remove")
@click.argument("tools", nargs=-1, required=True, metavar="TOOL==VERSION...")
@options.as_json
def remove(tools: tuple[str, ...], as_json: bool) -> int:
    """Remove tools. `gc` frees what only they used."""
    from rekindle.toolchain import command as room

    done = room.remove(tools)
    if as_json:
        console.out_json(done)
    for name in () if as_json else done.removed:
        console.out(f"removed {name}")
    return 0


@command.command("gc")
@options.as_json
def gc(as_json: bool) -> int:
    """Free disk space: downloaded archives, and files that no installed tool holds."""
    from rekindle.toolchain import command as room

    done = room.collect()
    console.out_json(done) if as_json else console.out(f"freed {(done.freed or 0) / 1e6:,.0f} MB")
    return 0


@command.command("verify")
@click.argument("tools", nargs=-1, metavar="[TOOL==VERSION...]")
@options.as_json
def verify(tools: tuple[str, ...], as_json: bool) -> int:
    """Check every file of what is installed against its record."""
    from rekindle.core.findings import exit_code, worst
    from rekindle.toolchain import command as room

    found = room.verify(tools)
    findings = [item for kit in found.kits for item in kit.findings]
    if as_json:
        console.out_json(found)
    for item in () if as_json else findings:
        console.out(console.finding(item))
    return exit_code(worst(findings))


@command.command("adopt")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@options.as_json
def adopt(folder: Path, as_json: bool) -> int:
    """Use a CUDA toolkit that is installed somewhere, where it is."""
    from rekindle.toolchain import command as room
    from rekindle.toolchain import report

    found = room.adopt(folder)
    console.out_json(found) if as_json else report.show_kit(found)
    return 0


@command.command("manifest")
@click.argument("tools", nargs=-1, metavar="[TOOL==VERSION...]")
@click.option("-o", "--output", required=True, type=options.OutputPath(), metavar="FILE", help="Where to write it.")
@options.as_json
def manifest(tools: tuple[str, ...], output: Path, as_json: bool) -> int:
    """Write down what is installed, archive by archive, to install exactly that elsewhere."""
    from rekindle.toolchain import command as room

    made = room.write_manifest(tools, output)
    console.out_json(made) if as_json else console.out(f"{len(made.kits)} tools: {output}")
    return 0


@command.command("msvc")
@click.argument("toolset", metavar="14.X", type=options.TOOLSET)
@click.option("--layout", default="C:\\vs-layout", show_default=True, metavar="DIR", help="For an offline computer.")
@options.as_json
def msvc(toolset: str, layout: str, as_json: bool) -> int:
    """Show the exact command that installs one MSVC toolset, and check whether it is here.

    Only Microsoft's installer brings MSVC, and it needs an administrator: Rekindle does not run it.
    """
    from rekindle.core.findings import exit_code, worst
    from rekindle.core.version import Version
    from rekindle.toolchain import report
    from rekindle.toolchain.report import recipe

    found = recipe(Version(toolset), folder=layout)
    console.out_json(found) if as_json else report.show_msvc(found)
    return exit_code(worst(found.findings))


@command.command("smoke")
@click.argument("tool", metavar="cuda==VERSION")
@options.gpus
@options.as_json
def smoke(tool: str, gpus: tuple[str, ...], as_json: bool) -> int:
    """Compile a kernel for each card and link cuBLAS and cuDNN, and say which programs did it."""
    from rekindle.core.findings import exit_code, worst
    from rekindle.knowledge.gpu.gpus import capabilities_of
    from rekindle.toolchain import report
    from rekindle.toolchain.model import ToolSpec
    from rekindle.toolchain.store import Store
    from rekindle.toolchain.verify import smoke as run_smoke

    store = Store()
    found = run_smoke(store, store.required(ToolSpec.parse(tool)), capabilities_of(gpus))
    console.out_json(found) if as_json else report.show_smoke(found)
    return exit_code(worst(found.findings))
