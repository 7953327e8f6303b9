"""`rekindle knowledge`: what the tables hold and how old they are; take a newer bundle, or go back."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console

if TYPE_CHECKING:
    from rekindle.knowledge.inventory import Knowledge


_LARGEST = 64 << 20


@click.group("knowledge", invoke_without_command=True)
@options.as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show each table's date and evidence; take newer tables, or go back to the built-in ones."""
    if ctx.invoked_subcommand is not None:
        return
    from rekindle.knowledge import inventory

    answer = inventory.knowledge(date.today())
    console.out_json(answer) if as_json else _show(answer)


@command.command("update")
@click.argument("source", metavar="FILE|DIR|URL", type=click.Path(path_type=str))
@click.option("--sha256", metavar="HEX", help="What the bundle must hash to; a `.sha256` file beside it works too.")
def update(source: str, sha256: str | None) -> int:
    """Take newer tables from a bundle. All of it is checked first; `reset` undoes it."""
    from rekindle.knowledge import updates

    with _Local(source, sha256) as (path, wanted):
        taken = updates.take(path, wanted)
    console.say(f"using the data of {taken.made_at}: {', '.join(taken.tables)}")
    return 0


@command.command("reset")
def reset() -> int:
    """Go back to the tables that came with Rekindle."""
    from rekindle.knowledge import updates

    console.say("back to the built-in tables" if updates.reset() else "the built-in tables are already in use")
    return 0


@command.command("projects")
@click.argument("gpu", required=False)
@options.as_json
def projects(gpu: str | None, as_json: bool) -> int:
    """Show what other people build for old cards, and container images; for one card if you name it."""
    from rekindle.compat.container import serves
    from rekindle.knowledge.gpu import gpus
    from rekindle.knowledge.torch import projects as table

    card = gpus.capabilities_of([gpu])[0] if gpu else None
    images = tuple(image for image in table.images() if card is None or serves(image, card))
    if as_json:
        console.out_json(table.OtherBuilds(projects=table.projects(card), images=images))
        return 0
    for row in table.projects(card):
        console.out(f"{row.id}  {row.link}")
        console.out(console.wrap(row.offers, indent="  "))
        console.out(
            console.wrap(f"for {', '.join(map(str, row.capabilities)) or 'cards that were not checked'}", indent="  ")
        )
        for need in row.needs:
            console.out(console.wrap(f"needs {need}", indent="  "))
        console.out(console.wrap(f"trust: {row.trust} (last seen {row.last_seen}; {row.evidence.phrase})", indent="  "))
    for image in images:
        console.out(f"{image.tag}  {image.label} in a container ({image.evidence.phrase})")
    return 0


@command.command("export")
@click.option("--as", "form", type=click.Choice(["table", "types"]), required=True,
              help="`table`: one JSON file; `types`: the same for TypeScript.")  # fmt: skip
@options.output("Write it to this file.")
@options.gpus
@options.jobs
def export(form: str, output: Path | None, gpus: tuple[str, ...], jobs: int | None) -> int:
    """Write one file for installers: card, system, Python and driver to index, pins and what is lost.

    With `--gpu`, only these GPUs and others of their kind; all of them take a few minutes of processor time.
    """
    from rekindle.core import codec, files
    from rekindle.core.errors import Interrupted
    from rekindle.stack.situation import cards_named
    from rekindle.web.site import answered, installer_table
    from rekindle.web.site import table_types as types

    if form == "types":
        options.exclude("form", ("gpus", "jobs"))
        text = types()
    else:
        only = [card.name for card in cards_named(gpus)]
        found = answered(only=only, jobs=jobs or os.cpu_count() or 1, say=console.say)
        try:
            text = codec.to_json(installer_table(found), indent=0)
        except KeyboardInterrupt:
            raise Interrupted("interrupted: nothing was written", hint="a few cards (`--gpu`) take seconds") from None
    if output is None:
        console.out(text.rstrip())
        return 0
    files.write_text(output, text.rstrip() + "\n")
    console.say(f"wrote `{output}`: {len(text.encode()) / 1000:.0f} kB")
    return 0


class _Local:
    """The bundle as a file here: an address is downloaded first, with the hash that is published beside it."""

    def __init__(self, source: str, sha256: str | None) -> None:
        self.source, self.sha256 = source, sha256
        self._folder: Path | None = None

    def __enter__(self) -> tuple[Path, str | None]:
        if not self.source.lower().startswith(("https://", "http://")):
            return Path(self.source), self.sha256
        from rekindle.core import fetch, files
        from rekindle.core.errors import FetchFailed, UsageError

        self._folder = files.scratch_folder("update")
        path = self._folder / "bundle.zip"
        if self.sha256 is None:
            try:
                fetch.download(self.source + ".sha256", path.with_name("bundle.zip.sha256"), most=4096)
            except FetchFailed as error:
                message = f"no hash is published at `{self.source}.sha256`"
                raise UsageError(message, hint="pass it with `--sha256`") from error
        fetch.download(self.source, path, sha256=self.sha256, most=_LARGEST)
        return path, self.sha256

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)


def _show(answer: Knowledge) -> None:
    rows = [
        [
            state.table + (" *" if state.updated else ""),
            str(state.rows),
            state.newest if state.oldest == state.newest else f"{state.oldest} to {state.newest}",
            ", ".join(f"{count} {kind}" for kind, count in state.evidence.items()),
        ]
        for state in answer.tables
    ]
    console.out(console.table(rows, head=["table", "rows", "observed", "evidence"]))
    console.out()
    if answer.update:
        console.out(f"* from the update of {answer.update}; `rekindle knowledge reset` undoes it")
    newest = date.fromisoformat(answer.newest)
    console.out(f"newest row: {answer.newest} ({age(newest, date.today())})")
    if answer.stale:
        console.out(answer.stale)


def age(newest: date, today: date) -> str:
    days = (today - newest).days
    return "today" if days <= 0 else "1 day ago" if days == 1 else f"{days} days ago"
