"""`rekindle source`: PyTorch's source at a release, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rekindle.cli import options
from rekindle.core import console
from rekindle.core.command import rekindle
from rekindle.core.errors import Unverified, UsageError

if TYPE_CHECKING:
    from rekindle.source.checkout import Tree
    from rekindle.source.request import Unpacked


@click.command("source")
@options.torch("The PyTorch release, e.g. 2.7.1 [the newest].")
@options.output("The folder to fetch it into (default: `pytorch-X.Y.Z` here).")
@options.path("--mirror", "DIR", "Fetch everything from the repositories in DIR.")
@click.option("--from", "origin", metavar="CLONE|TARBALL|URL", help="Fetch it from a clone or a release tarball.")
@click.option("--sha256", metavar="HASH", help="The SHA-256 that the tarball must have.")
@click.option("--without", multiple=True, metavar="FOLDER", help="Leave a folder out. May be repeated.")
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=4, show_default=True, help="How many submodules to fetch at a time."
)
@options.as_json
def command(as_json: bool, **given: Any) -> int:
    """Fetch PyTorch's source at a release, every submodule at its pinned commit. Completes what is there."""
    from rekindle.source.request import SourceCommand, bring

    wanted = SourceCommand(**given)
    if wanted.mirror is not None and wanted.origin is not None:
        message = "`--mirror` and `--from` exclude each other"
        raise UsageError(message, hint="pass the one that holds the repositories")
    result = bring(wanted, say=console.say)
    console.out_json(result) if as_json else _print(result)
    return Unverified.exit_code if getattr(result, "checked", True) is None else 0


def _print(result: Tree | Unpacked) -> None:
    from rekindle.source.checkout import RepositoryState, Tree

    if isinstance(result, Tree):
        count = sum(one.state is not RepositoryState.LEFT_OUT for one in result.repositories) - 1
        console.out(f"PyTorch {result.torch} at {result.commit[:12]} with {count} submodules in {result.root}")
        if result.checked is None:
            console.say("UNVERIFIED: the tables do not have the commit of this release; the tag was believed")
        left_out = [one.path for one in result.repositories if one.state is RepositoryState.LEFT_OUT]
        if left_out:
            console.say(console.wrap(f"left out, and not looked at: {', '.join(left_out)}"))
        edited = [f"{one.path} ({one.edited})" for one in result.repositories if one.edited]
        if edited:
            console.say(console.wrap(f"edited files were left as they are: {', '.join(edited)}"))
    else:
        console.out(f"PyTorch {result.torch} in {result.root}: {result.files} files")
        if result.checked is None:
            console.say(f"UNVERIFIED: its SHA-256 is {result.sha256}; give the one you trust with `--sha256`")
        if result.empty:
            console.say(console.wrap(f"this tarball leaves submodules empty: {', '.join(result.empty)}"))
    console.say(f"next: `{rekindle('patch', result.root, '--list')}`")
