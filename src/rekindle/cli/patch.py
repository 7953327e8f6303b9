"""`rekindle patch`: the patches that a source tree needs, shown, made and undone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.command import rekindle
from rekindle.core.errors import PatchMismatch, Unverified, UsageError

if TYPE_CHECKING:
    from rekindle.source.patches import PatchReport


@click.command("patch")
@click.argument("root", type=click.Path(path_type=Path), required=False)
@click.option("--root", "named", type=click.Path(path_type=Path), metavar="DIR", hidden=True)
@options.torch("The PyTorch release, e.g. 2.7.1.")
@click.option("--list", "listing", is_flag=True, help="List the patches that apply, and why the others do not.")
@options.dry_run
@click.option("--undo", is_flag=True, help="Restore the exact bytes of every patched file.")
@click.option("--only", multiple=True, metavar="ID", help="Apply only this patch. May be repeated.")
@options.system
@click.option(
    "--compiler", type=click.Choice(["msvc", "clang-cl", "icx", "gcc", "clang"]), help="The C++ compiler of the build."
)
@click.option("--cmake", metavar="X.Y", help="The CMake version of the build [any].")
@click.option("--setuptools", metavar="X.Y", help="The setuptools version of the build [any].")
@options.cuda()
@options.as_json
def command(
    root: Path | None, named: Path | None, torch: str | None, listing: bool, dry_run: bool, undo: bool,
    only: tuple[str, ...],
    system: str | None, compiler: str | None, cmake: str | None, setuptools: str | None, cuda: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Patch PyTorch's source at ROOT so that it builds with today's tools. `--undo` restores every byte."""
    from rekindle.source import patches as patching
    from rekindle.source import request

    root = root or named
    if root is None:
        message = "name the root of PyTorch's source"
        raise UsageError(message, hint="`rekindle patch DIR --dry-run` shows what would change")
    if listing + dry_run + undo > 1:
        message = "`--list`, `--dry-run` and `--undo` exclude each other"
        raise UsageError(message, hint="give one of them, or none to patch the tree")
    if undo and only:
        message = "`--undo` restores every patched file; it does not take `--only`"
        raise UsageError(message, hint="undo, then patch again with the `--only` that you want to keep")
    stack = request.setting(
        root, torch=torch, system=system, compiler=compiler, cmake=cmake, setuptools=setuptools, cuda=cuda
    )
    if undo:
        report = patching.undo(root, stack)
    elif listing or dry_run:
        report = patching.show(root, stack, only=only, diffs=dry_run)
    else:
        report = patching.apply(root, stack, only=only)
    if as_json:
        console.out_json(report)
    else:
        _print(report)
        if listing and only:
            _explain(only)
    if any(one.state is patching.PatchState.MISMATCH for one in report.patches):
        return PatchMismatch.exit_code
    return Unverified.exit_code if report.unreadable or report.kept else 0


def _print(report: PatchReport) -> None:
    if report.action == "dry-run":
        console.out((report.diff or "").rstrip("\n"))
        console.say(f"would change {_files(len(report.changed))} in `{report.root}`; nothing was written")
    elif report.action == "list":
        console.out(f"PyTorch {report.torch} in {report.root}\n")
        rows = [(one.id, one.state.value, one.reason) for one in report.patches]
        console.out(console.table(rows, head=("patch", "state", "reason")))
    elif report.action == "undo":
        console.out(f"restored {_files(len(report.changed))}")
    else:
        for one in report.patches:
            if one.state.value in ("applied", "option", "absent"):
                console.out(f"{one.state.value:<8} {one.id}: {one.reason}")
        console.out(
            f"changed {_files(len(report.changed))}; `{rekindle('patch', report.root, '--undo')}` puts them back"
        )
    for path in report.kept:
        console.say(f"left alone, edited since it was patched: {console.clean(path)}")
    for place in report.unreadable:
        console.say(f"could not be read: {console.clean(place.file)}: {console.clean(place.reason)}")


def _explain(only: tuple[str, ...]) -> None:
    """`--list --only ID`: what the patch is for, in full."""
    from rekindle.knowledge.torch import patches

    for id in only:
        one = patches.patch(id)
        console.out(f"\n{one.id}: {one.title}\n")
        console.out("\n".join(f"    {line}" for line in one.symptom.strip().splitlines()))
        console.out(f"\n{console.wrap(one.cause.strip())}")
        if one.alternative:
            console.out(console.wrap(f"Instead: {one.alternative}"))
        for address in one.upstream:
            console.out(address)
        console.out(console.wrap(f"Known from: {one.source} ({one.evidence.phrase})"))


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
