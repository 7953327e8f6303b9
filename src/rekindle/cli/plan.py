"""`rekindle plan`: which PyTorch, by which route, and why not the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec

from rekindle.cli import options
from rekindle.core import console, files, paths
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, ChecksFailed, NoRoute, NotFound, RekindleError, Unverified, UsageError
from rekindle.core.version import Version
from rekindle.install.shelf_offers import Shelves, on_shelves
from rekindle.knowledge.gpu.capabilities import needs
from rekindle.knowledge.gpu.gpus import find_all
from rekindle.stack import answers, extensions
from rekindle.stack.from_machine import situation_here
from rekindle.stack.nodes import WITHIN, Nodes
from rekindle.stack.resolver import resolve
from rekindle.stack.route import RUNS_REKINDLE, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Prefer, Situation, TypedWish, Wish

_LISTS = ("ansible", "slurm")
_SEVERAL = "name a folder of snapshots with `--machine`"


@click.command("plan")
@options.gpus
@options.system
@options.arch
@options.python
@options.any_torch
@options.torchvision
@options.cuda()
@options.driver
@options.toolset
@options.profile
@click.option(
    "--needs",
    multiple=True,
    type=options.Several([each.id for each in needs()]),
    help="What the GPU must be able to do. May be repeated.",
)
@options.extensions("Only with a PyTorch that has ready-made wheels of flash-attn, xformers, ...")
@click.option("--for", "program", metavar="PROGRAM", help="Which release of this program runs on the GPUs: vllm, "
              "llama.cpp, ollama, comfyui, a1111, forge, onnxruntime-gpu, tensorrt, jax or cupy.")  # fmt: skip
@click.option("--prefer", type=click.Choice([each.value for each in Prefer]), default="cheapest", show_default=True,
              help="What matters most when several ways work.")  # fmt: skip
@click.option("--community", is_flag=True, help="Also recommend wheels that other people built.")
@click.option("--configured-index", is_flag=True, help="Use only the index that pip is configured for.")
@click.option("--why-not", metavar="WHAT", help="Explain why it is not torch==2.7.1, cuda==12.3 or python==3.13.")
@click.option("--list", "every", is_flag=True, help="Show the compatibility matrix: every release for these GPUs.")
@click.option("--all", "everything", is_flag=True, help="Show every route and every reason.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["pip", "requirements", "uv", "conda", "pixi", "pylock", "dockerfile", *_LISTS]),
    help="Print the answer in the form of this tool or file; `ansible` and `slurm` for several machines.",
)
@options.output("Write the plan to a TOML file, for `build` and `install`; for several machines, into a folder.")
@options.path("--bundle", "DIR", "Collect what a machine without network needs in this folder.", name="folder")
@options.path("--from", "PLAN", "Resolve this plan again and show what differs.", name="origin")
@options.shelves
@options.trust
@options.path(
    "--machine",
    "FILE",
    "Answer for the machine recorded in this snapshot, or for a folder of them. May be repeated.",
    name="machines",
    multiple=True,
)
@click.option("--within", type=click.IntRange(0), default=WITHIN, metavar="N", show_default=True,
              help="How many releases back a machine may be moved to share a stack with others.")  # fmt: skip
@options.as_json
def command(**given: Any) -> int:
    """Choose a PyTorch for your GPUs, and explain why not the others."""
    _refuse()
    asked_for = PlanOptions(**given)
    if asked_for.origin is not None:
        return _compare(asked_for.origin, asked_for)
    wish = asked_for.wish
    if asked_for.several:
        modes = [each for each in _MODES if each != "form"]
        options.exclude("machines", modes, hint="these answer for one machine: name one snapshot alone")
        return _nodes(asked_for, wish)
    if options.given("within"):
        raise UsageError("`--within` is about several machines", hint=_SEVERAL)
    if asked_for.form in _LISTS:
        raise UsageError(f"`--as {asked_for.form}` is about several machines", hint=_SEVERAL)
    writes = asked_for.output is not None and asked_for.form is None
    if asked_for.output is not None and writes:
        from rekindle.stack import plan as lock

        lock.expect_place(asked_for.output)
    named = options.given("system") and asked_for.system != paths.system()
    elsewhere = options.given("arch", "machines", "folder") or named or asked_for.form == "dockerfile"
    if not elsewhere:
        there = options.python_of_this_folder(asked_for.python)
        asked_for = msgspec.structs.replace(asked_for, python=asked_for.python or there)
    situation = asked_for.situation()
    if asked_for.program is not None:
        return _program(asked_for.program, situation, asked_for.as_json)
    if asked_for.every:
        find_all(asked_for.gpus)  # one table has one card
        _list(situation, wish, asked_for.as_json)
        return 0
    verdict = resolve(situation, wish, on_shelves(Shelves(addresses=asked_for.shelves, trust=asked_for.trust)))
    if asked_for.why_not is not None:
        from rekindle.stack.why_not import why_not as explain

        verdict = msgspec.structs.replace(verdict, why_not=explain(asked_for.why_not, situation, wish, verdict))
    if asked_for.folder is not None:
        _bundle(verdict, asked_for.folder, asked_for.as_json)
        return 0
    if asked_for.form is not None:
        from rekindle.stack.forms import Form, render, taken_by

        form = Form(asked_for.form)
        _form(render(verdict, form), asked_for.output)
        if asked_for.output is not None and (line := taken_by(form, str(asked_for.output))):
            console.say(f"Next: {line}")
        if verdict.recommended.change is not None:
            console.say(f"first: {verdict.recommended.change.text}")
    elif asked_for.as_json:
        console.out_json(verdict)
    elif verdict.why_not is not None:
        console.out(answers.why_not(verdict.why_not, everything=asked_for.everything))
    else:
        written = asked_for.output
        shown = verdict if written is None else answers.once_written(verdict, written)
        console.out(answers.verdict(shown, everything=asked_for.everything))
    if asked_for.output is not None and writes:
        from rekindle.wheels.shelf import store

        store.unchanged(verdict.recommended.location)  # a plan pins the file as it is
        lock.write(lock.plan_of(verdict), asked_for.output)
        console.say(f"wrote `{asked_for.output}`")
    # Nothing works as it is, though something may after a change.
    if not verdict.routes:
        return NoRoute.exit_code
    return Unverified.exit_code if wish.extensions and extensions.unanswered(situation, wish) else 0


class PlanOptions(TypedWish, frozen=True, kw_only=True):
    """The command line, typed."""

    gpus: tuple[str, ...]
    system: str | None
    arch: str | None
    python: str | None
    driver: str | None
    program: str | None
    why_not: str | None
    every: bool
    everything: bool
    form: str | None
    output: Path | None
    folder: Path | None
    origin: Path | None
    shelves: tuple[str, ...]
    trust: tuple[str, ...]
    machines: tuple[Path, ...]
    within: int
    as_json: bool

    @property
    def snapshots(self) -> tuple[Path, ...]:
        """The recorded machines, those of a folder one by one, those below it too."""
        found: list[Path] = []
        for named in self.machines:
            inside = sorted(named.rglob("*.json"), key=_counted) if named.is_dir() else [named]
            if not inside:
                raise NotFound(
                    f"no snapshot (`*.json`) in the folder `{named}`",
                    hint="write one on each machine: `rekindle doctor --save NAME.json`",
                )
            found += inside
        return tuple(found)

    @property
    def several(self) -> bool:
        """Also a folder with one machine, where something is written: a lab that begins has one."""
        folder = self.output is not None and any(named.is_dir() for named in self.machines)
        return len(self.snapshots) > 1 or folder

    def situation(self, snapshot: Path | None = None) -> Situation:
        recorded = snapshot or (self.snapshots[0] if self.snapshots else None)
        found = situation_here(
            gpus=self.gpus,
            system=self.system,
            machine=self.arch,
            driver=self.driver,
            python=self.python,
            snapshot=recorded,
        )
        return found.in_image(python=found.python if self.python else None) if self.form == "dockerfile" else found


def _nodes(asked_for: PlanOptions, wish: Wish) -> int:
    """One answer for all nodes, or the smallest set of answers."""
    from rekindle.stack import nodes

    places: dict[str, Situation] = {}
    unreadable: dict[str, str] = {}
    hint: str | None = None
    for file in asked_for.snapshots:
        # Two racks may both have a node1.
        name = file.stem if file.stem not in places else file.with_suffix("").as_posix()
        try:
            # What is printed for them is run there, not here.
            places[name] = msgspec.structs.replace(asked_for.situation(file), recorded=None)
        except RekindleError as error:
            unreadable[str(file)], hint = error.message, hint or error.hint
    if not places:
        first = next(iter(unreadable.values()))
        raise BadInput(f"none of {len(unreadable)} snapshots can be read; the first: {first}", hint=hint)
    with console.waiting(f"planning for {console.plural(len(places), 'machine')}"):
        found = msgspec.structs.replace(nodes.resolve_all(places, wish, asked_for.within), unreadable=unreadable)
    if asked_for.form in _LISTS:
        from rekindle.stack import lab

        made = lab.locks(places, found, wish)
        _form(lab.inventory(made) if asked_for.form == "ansible" else lab.features(made), asked_for.output)
        if missing := answers.left_out(found):
            console.say(missing)
    elif asked_for.form is not None and asked_for.output is None:
        hint = "`-o DIR` writes a file for each stack, and which machine takes which"
        raise UsageError("`--as` for several machines needs a folder", hint=hint)
    elif asked_for.as_json:
        console.out_json(found)
    else:
        console.out(answers.nodes(found))
    locked = asked_for.output is not None and asked_for.form not in _LISTS
    left_out = _lab(asked_for, places, found, wish) if locked else {}
    if unreadable:
        if hint is not None:
            console.say(f"hint: {hint}")
        return BadInput.exit_code
    return NoRoute.exit_code if left_out or any(each.route is RouteKind.NONE for each in found.nodes) else 0


def _counted(file: Path) -> list[str | int]:
    """Behind node9 comes node10."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]{1,9})", str(file)))]


_SUFFIX = {
    None: ".toml",
    "pip": ".pip.txt",
    "requirements": ".requirements.txt",
    "uv": ".pyproject.toml",
    "conda": ".environment.yml",
    "pixi": ".pixi.toml",
    "pylock": ".pylock.toml",
    "dockerfile": ".Dockerfile",
}


def _lab(asked_for: PlanOptions, places: dict[str, Situation], found: Nodes, wish: Wish) -> dict[str, str]:
    """Write a lock for each stack and the index of them; answers which machines have none though something works."""
    from rekindle.stack import lab
    from rekindle.stack import plan as lock
    from rekindle.stack.forms import Form, render
    from rekindle.wheels.shelf import store

    folder, form = asked_for.output, asked_for.form
    assert folder is not None
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    made = lab.locks(places, found, wish)
    for each in made if form is not None else ():
        try:
            texts[each.name] = render(each.verdict, Form(form)).rstrip() + "\n"
        except UsageError as error:
            left_out |= dict.fromkeys(each.hosts, error.message)

    def put(each: lab.Lock, folder: Path) -> str:
        file = folder / (each.name + _SUFFIX[form])
        if form is None:
            store.unchanged(each.verdict.recommended.location)
            lock.write(lock.plan_of(answers.once_written(each.verdict, file)), file)
        else:
            files.write_text(file, texts[each.name])
        return file.name

    nothing = {node.name: node.summary for node in found.nodes if node.route is RouteKind.NONE}
    written = [each for each in made if form is None or each.name in texts]
    index = lab.write(folder, written, {**nothing, **left_out}, put)
    for reason in dict.fromkeys(left_out.values()):
        console.say(f"left out: {', '.join(name for name, why in left_out.items() if why == reason)}: {reason}")
    if not written:
        console.say(f"no plan was written for any of these machines: `{folder / lab.INDEX}` says why")
        return left_out
    console.say(f"wrote {console.plural(len(written), 'file')} for {console.plural(len(index.hosts), 'machine')}"
                f" and `{folder / lab.INDEX}`")  # fmt: skip
    if form is None:
        console.say(f"on each of them: {rekindle('install', '--plan', str(folder))}")
        pythons = {host: each.verdict.recommended.python for each in written for host in each.hosts}
        if old := [host for host, python in pythons.items() if python and Version(python.rstrip("t")) < RUNS_REKINDLE]:
            console.say(f"on {', '.join(old)} the lines above: Rekindle needs Python {RUNS_REKINDLE} or newer")
    return left_out


_WISHES = (
    "torch",
    "torchvision",
    "cuda",
    "needs",
    "extensions",
    "toolset",
    "profile",
    "prefer",
    "community",
    "configured_index",
    "shelves",
    "trust",
)
_MODES = ("origin", "program", "every", "why_not", "folder", "form")


def _refuse() -> None:
    """What is given is used or refused."""
    modes = options.given(*_MODES)
    if modes and modes[0] in ("origin", "program"):
        options.exclude(modes[0], (*_WISHES, *_MODES, "output"))
    elif modes:
        torch_alone = {"form": ("as_json", "extensions"), "folder": ("output", "extensions")}
        more = torch_alone.get(modes[0], () if modes[0] == "why_not" else ("output",))
        options.exclude(modes[0], (*_MODES, *more))


def _form(text: str, output: Path | None) -> None:
    """Print it, or write it to a new file: somebody's own `pyproject.toml` is never replaced."""
    if output is None:
        console.out(text)
        return
    if output.exists():
        message = f"`{output}` already exists"
        raise UsageError(message, hint="leave `-o` out and merge what is printed, or name a new file")
    files.write_text(output, text.rstrip() + "\n")
    console.say(f"wrote `{output}`")


def _bundle(verdict: Verdict, folder: Path, as_json: bool) -> None:
    from rekindle.install.bundle import bundle

    found = bundle(verdict, folder)
    if as_json:
        console.out_json(found)
        return
    size = sum(each.size for each in found.files) / 1e9
    console.out(f"`{folder}`: the plan and {len(found.files)} wheels, {size:.2f} GB")
    for title, lines in (("to fetch by hand", found.by_hand), ("then, on the other machine", found.commands)):
        console.out(f"  {title}")
        for line in lines:
            console.out(f"    {line}")


def _list(situation: Situation, wish: Wish, as_json: bool) -> None:
    from rekindle.stack.matrix import matrix, spoken_pythons, spoken_source, spoken_wheels

    found = matrix(situation, wish)
    if as_json:
        console.out_json(found)
        return
    console.out(answers.heading(found.situation))
    console.out()
    head = ("torch", "Python", "build with CUDA", "cuDNN", "ready-made")
    rows = [
        (
            row.torch,
            spoken_pythons(row),
            spoken_source(row),
            str(row.source_cudnn or "-"),
            spoken_wheels(row),
        )
        for row in found.rows
    ]
    console.out(console.table(rows, head=head) if rows else "nothing")
    for note in found.notes:
        console.out(note)
    if any(wheel.loses for row in found.rows for wheel in row.wheels):
        console.out()
        console.out("(-) works and loses something: `rekindle plan --torch X` says what")


def _program(name: str, situation: Situation, as_json: bool) -> int:
    from rekindle.stack.programs import for_program

    found = for_program(name, situation)
    console.out_json(found) if as_json else console.out(answers.program(found))
    return 0 if found.version else NoRoute.exit_code


def _compare(origin: Path, asked_for: PlanOptions) -> int:
    from rekindle.stack import plan as lock

    planned = lock.read(origin)
    elsewhere = None
    if asked_for.gpus or asked_for.machines:
        elsewhere = asked_for.situation()
    answer = lock.compare(planned, elsewhere)
    if asked_for.as_json:
        console.out_json(answer)
    elif not answer.differences:
        cuda = f", CUDA {planned.cuda}" if planned.cuda else ""
        console.out(f"the same: torch {planned.version}{cuda}, Python {planned.python}")
    else:
        for each in answer.differences:
            console.out(console.paint(each.field, "bold"))
            console.out(console.wrap(each.planned, first="  planned  ", indent="           "))
            console.out(console.wrap(each.here, first="  here     ", indent="           "))
    return ChecksFailed.exit_code if answer.differences else 0
