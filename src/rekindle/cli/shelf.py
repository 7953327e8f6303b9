"""`rekindle shelf`: your own wheels, as a folder that pip, uv and other people can install from."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rekindle.cli import options
from rekindle.core import console, own
from rekindle.core.paths import shelf_folder

if TYPE_CHECKING:
    from rekindle.core.signing import PublicKey
    from rekindle.wheels.shelf.store import Shelf, ShelfHealth


@click.group("shelf")
def command() -> None:
    """Keep checked wheels in a folder that pip and uv can install from."""


@command.command("add")
@click.argument("wheels", nargs=-1, required=True, metavar="WHEEL|DIR...", type=click.Path(path_type=Path))
@options.path("--report", "FILE", "The report of `rekindle verify` [the one beside the wheel].")
@click.option("--run", "run", is_flag=True, help="Also install and import each wheel, and run it on the GPUs here.")
@options.path("--against", "WHEEL|ENV", "The torch that an extension is meant for: checked, and named in its label.")
@click.option("--replace", is_flag=True, help="Replace another build of the same name; it is kept aside.")
@click.option("--no-label", is_flag=True, help="Do not add CUDA, architectures and torch to an extension's version.")
@options.trust
@options.shelf
@options.as_json
def add(
    wheels: tuple[Path, ...],
    report: Path | None,
    run: bool,
    against: Path | None,
    replace: bool,
    no_label: bool,
    trust: tuple[str, ...],
    shelf: Path | None,
    as_json: bool,
) -> int:
    """Check wheels and put them on the shelf, each with its report and a signed statement.

    A report beside the wheel counts only if your own key, or one given with `--trust`, has signed it.
    """
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf import store
    from rekindle.wheels.shelf.store import Shelf

    folder = shelf or shelf_folder()
    how = shelves.Addition(
        report=report, trusted=_keys(trust), against=against, replace=replace, run=run, labels=not no_label
    )
    with console.waiting(f"checking and copying {console.plural(len(wheels), 'wheel')}"):
        added = shelves.add(folder, wheels, how)
    _answer(Shelf(folder=folder, wheels=added), as_json)
    for each in added:
        console.say(store.install_command(folder, each))
    return 0


@command.command("list")
@options.shelf
@options.as_json
def list_(shelf: Path | None, as_json: bool) -> int:
    """List what is on the shelf."""
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    return _answer(Shelf(folder=folder, wheels=shelves.entries(folder)), as_json)


@command.command("find")
@click.argument("project", required=False)
@options.gpus
@options.any_torch
@options.cuda()
@options.python
@options.shelf
@options.as_json
def find(
    project: str | None,
    gpus: tuple[str, ...],
    torch: str | None,
    cuda: str | None,
    python: str | None,
    shelf: Path | None,
    as_json: bool,
) -> int:
    """Find the wheel to install for these GPUs, this torch and this Python. Exits with 5 if there is none."""
    from rekindle.core.errors import NoRoute
    from rekindle.inputs.torch import with_cuda
    from rekindle.inputs.versions import read_python
    from rekindle.knowledge.gpu.gpus import capabilities_of
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf import store
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    meant, toolkit = with_cuda(torch, cuda)
    version = read_python(python).version if python is not None else None
    fitting = shelves.find(folder, capabilities_of(gpus), project=project, python=version, cuda=toolkit)
    found = tuple(each for each in fitting if torch is None or (each.torch and meant.admits(each.torch)))
    _answer(Shelf(folder=folder, wheels=found), as_json, gpus)
    if found:
        console.say(store.install_command(folder, found[0]))
    return 0 if found else NoRoute.exit_code


@command.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8037, show_default=True, type=click.IntRange(0, 65535), help="The port to listen on.")
@options.shelf
def serve(host: str, port: int, shelf: Path | None) -> int:
    """Serve the shelf over HTTP, read-only, until Ctrl-C."""
    own.need("serve", "starlette", "uvicorn")
    from rekindle.wheels.shelf import serve as serving

    server = serving.server(_place(shelf), host, port)
    console.out(f"{server.address}/simple/")
    console.say("press Ctrl-C to stop")
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0


@command.command("export")
@click.option("-o", "--output", required=True, type=options.OutputPath(), metavar="DIR", help="Where to put it.")
@options.gpus
@options.shelf
@options.as_json
def export(output: Path, gpus: tuple[str, ...], shelf: Path | None, as_json: bool) -> int:
    """Copy the shelf, or what supports these GPUs, to a folder that any web server can serve."""
    from rekindle.knowledge.gpu.gpus import capabilities_of
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    chosen = shelves.find(folder, capabilities_of(gpus)) if gpus else shelves.entries(folder)
    shelves.export(folder, output, chosen)
    return _answer(Shelf(folder=output, wheels=chosen), as_json)


@command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="FILE|PROJECT==VERSION...")
@options.shelf
@options.as_json
def remove(names: tuple[str, ...], shelf: Path | None, as_json: bool) -> int:
    """Take wheels off the shelf. They are kept in its folder `replaced`."""
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    gone, kept = shelves.remove(folder, names)
    done = Shelf(folder=folder, wheels=shelves.entries(folder), removed=gone, replaced=kept)
    if as_json:
        return _answer(done, as_json)
    for file, place in zip(gone, kept, strict=True):
        console.out(f"removed: {console.clean(file)}; it is kept in `{place}`")
    return 0


@command.command("yank")
@click.argument("file")
@click.option("--reason", default="", help="Why it should not be chosen any more.")
@click.option("--undo", is_flag=True, help="Let it be chosen again.")
@options.shelf
@options.as_json
def yank(file: str, reason: str, undo: bool, shelf: Path | None, as_json: bool) -> int:
    """Mark a wheel so that pip and uv no longer choose it by themselves (PEP 592)."""
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    entry = shelves.yank(folder, file, None if undo else reason)
    return _answer(Shelf(folder=folder, wheels=(entry,)), as_json)


@command.command("verify")
@options.trust
@click.option("--signed", is_flag=True, help="Fail wheels that no trusted key has signed.")
@options.shelf
@options.as_json
def verify(trust: tuple[str, ...], signed: bool, shelf: Path | None, as_json: bool) -> int:
    """Hash every wheel again and check every statement and the index.

    Exits with 8 if something is not as it was added, with 9 if something could not be checked.
    """
    from rekindle.wheels.shelf import health

    with console.waiting("reading the wheels of the shelf"):
        found = health.check(_place(shelf), _keys(trust), signed=signed or bool(trust))
    return _health(found, as_json)


@command.command("mend")
@options.shelf
@options.as_json
def mend(shelf: Path | None, as_json: bool) -> int:
    """Rebuild a damaged index from the wheels; set aside what can no longer be trusted."""
    from rekindle.wheels.shelf import health

    with console.waiting("reading the wheels of the shelf"):
        done = health.mend(_place(shelf))
    return _health(done, as_json)


@command.command("key")
@click.option("-o", "--output", type=options.OutputPath(), metavar="FILE", help="Write the public key here, too.")
@options.as_json
def key(output: Path | None, as_json: bool) -> int:
    """Print your public key, for others to trust, and where the private one is. It is made the first time."""
    from rekindle.core import files, signing

    mine = signing.own_key() or signing.make_key()
    if as_json:
        console.out_json(signing.OwnKey(public=str(mine.public), file=str(signing.key_file())))
    else:
        console.out(str(mine.public))
        console.say(f"the private key is in `{signing.key_file()}`; keep it to yourself")
    if output is not None:
        files.write_text(output, f"{mine.public}\n")
    return 0


@command.command("prune")
@click.option("--keep", default=1, show_default=True, help="How many versions of each kind to keep.")
@options.dry_run
@options.shelf
@options.as_json
def prune(keep: int, dry_run: bool, shelf: Path | None, as_json: bool) -> int:
    """Delete older versions; keep the newest of each project, Python, platform and CUDA."""
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf.store import Shelf

    folder = _place(shelf)
    gone = shelves.prune(folder, keep=keep, dry_run=dry_run)
    left = tuple(entry for entry in shelves.entries(folder) if entry.file not in gone)
    done = Shelf(folder=folder, wheels=left, removed=gone)
    if as_json:
        return _answer(done, as_json)
    would = "would be deleted" if dry_run else "deleted"
    console.out("\n".join(f"{would}: {console.clean(file)}" for file in gone) or "nothing to delete")
    return 0


def _place(given: Path | None) -> Path:
    """The shelf that is read or changed. Your own may not be there yet; one that is named must be."""
    from rekindle.wheels.shelf import store

    return store.existing(given) if given is not None else shelf_folder()


def _keys(trust: tuple[str, ...]) -> tuple[PublicKey, ...]:
    from rekindle.core import signing

    return tuple(signing.public_key(text) for text in trust)


def _answer(done: Shelf, as_json: bool, gpus: tuple[str, ...] = ()) -> int:
    from rekindle.wheels.shelf import shelf as shelves
    from rekindle.wheels.shelf import store

    if as_json:
        console.out_json(done)
    else:
        console.out(store.shelf_text(done.wheels, gpus, shelves.doubts(done.folder, done.wheels)))
        console.say(f"shelf: {done.folder}")
    return 0


def _health(done: ShelfHealth, as_json: bool) -> int:
    from rekindle.core.findings import exit_code

    if as_json:
        console.out_json(done)
    else:
        for item in done.findings:
            console.out(console.finding(item))
    return exit_code(done.state)
