"""`rekindle gpu`: what is true of a card."""

from __future__ import annotations

import click

from rekindle.cli import options
from rekindle.compat.old_wheels import old_wheels_line
from rekindle.core import console
from rekindle.core.command import rekindle
from rekindle.core.errors import UsageError
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.model.torch_pin import TorchPin
from rekindle.stack.card import CardAnswer, ServingWheel, describe


@click.command("gpu")
@click.argument("name", required=False, shell_complete=options.complete_card)
@click.option("--list", "every", is_flag=True, help="List every known GPU.")
@options.as_json
def command(name: str | None, every: bool, as_json: bool) -> None:
    """Look up a GPU by NAME, PCI id (10de:1024) or compute capability (sm_35); without one, the GPU of this machine."""
    if every and name is not None:
        raise UsageError("name one card, or ask for `--list`", hint="leave one of them out")
    if every:
        _list(as_json)
        return
    answer = describe(_of_this_machine() if name is None else name)
    console.out_json(answer) if as_json else _show(answer)


def _of_this_machine() -> str:
    from rekindle.machine.probe import graphics

    cards = list(dict.fromkeys(name for gpu in graphics().gpus if (name := gpu.name or gpu.pci_id)))
    if len(cards) != 1:
        found = f"this machine has {len(cards)} kinds: {', '.join(cards)}" if cards else "no GPU was found here"
        raise UsageError(f"{found}; name the one you mean", hint='for example `rekindle gpu "Tesla K40c"`')
    return cards[0]


def _list(as_json: bool) -> None:
    from rekindle.knowledge.gpu.gpus import GpuList, gpus

    rows = sorted(gpus(), key=lambda gpu: (gpu.capability, gpu.name))
    if as_json:
        console.out_json(GpuList(gpus=tuple(rows)))
        return
    lines = [(gpu.name, str(gpu.capability), gpu.architecture, gpu.chip, ", ".join(gpu.pci_ids)) for gpu in rows]
    console.out(console.table(lines, head=("name", "capability", "architecture", "chip", "PCI ids")))


def _show(answer: CardAnswer) -> None:
    console.out(console.paint(answer.name, "bold"))
    for note in answer.notes:
        console.out(console.wrap(note, indent="  "))
    if answer.ambiguous:
        _show_candidates(answer)
        return
    console.out(console.table(_facts(answer), indent="  "))
    console.out()
    console.out("Official PyTorch wheels with its code")
    rows = [(system.capitalize(), _wheels(found)) for system, found in answer.official_wheels.items()]
    if not rows:
        rows = [("none", "a Jetson takes NVIDIA's own, for its JetPack: `rekindle plan` names it")]
    elif answer.compute_capability and "windows" in answer.official_wheels:
        rows.append(("Linux before 1.10", old_wheels_line(answer.compute_capability)))
    console.out(console.table(rows, indent="  "))
    if answer.lacks:
        console.out()
        console.out("Not supported on this GPU")
        for item in answer.lacks:
            console.out(console.wrap(item, first="  - ", indent="    "))
    if answer.advice:
        console.out()
        console.out("How to use it")
        console.out(console.table([*answer.advice.lines, ("evidence", answer.advice.evidence.phrase)], indent="  "))
    if answer.programs:
        console.out()
        console.out(console.wrap("Other programs: the newest known to run on it (`rekindle plan --for NAME`)"))
        console.out(console.table([(name, _by_system(found)) for name, found in answer.programs.items()], indent="  "))
    console.out()
    console.out(f"Next: {answer.next}")


def _facts(answer: CardAnswer) -> list[tuple[str, str]]:
    capability = answer.compute_capability
    assert capability is not None
    cuda = f"{answer.first_cuda or '?'} to {answer.last_cuda or 'the newest'}"
    return [
        ("compute capability", f"{capability} ({capability.sm}), {answer.architecture}" + _chip(answer)),
        ("PCI ids", _shortened([f"10de:{pci}" for pci in answer.pci_ids]) or "none in the tables"),
        (
            "last driver",
            f"R{answer.last_driver_branch}" if answer.last_driver_branch else "the newest still supports it",
        ),
        ("CUDA toolkits", cuda),
        ("last cuDNN", str(answer.last_cudnn) if answer.last_cudnn else _open_cudnn(answer)),
        ("PyTorch", answer.torch or "not in the tables: UNVERIFIED"),
    ]


def _open_cudnn(answer: CardAnswer) -> str:
    return "the newest still has its code" if answer.last_cuda is None else "none has its code"


def _show_candidates(answer: CardAnswer) -> None:
    from rekindle.knowledge.gpu.names import SHOWN_BY

    console.out(
        console.wrap("This name was sold with different chips. The PCI id tells which one yours is:", indent="  ")
    )
    rows = [
        (str(c.compute_capability), c.architecture, c.chip, _shortened([f"10de:{pci}" for pci in c.pci_ids]))
        for c in answer.candidates
    ]
    console.out(console.table(rows, head=("capability", "architecture", "chip", "PCI ids"), indent="  "))
    console.out()
    pci = next((pci for c in answer.candidates for pci in c.pci_ids), "1287")
    console.out(console.wrap(f"Next: find the id ({SHOWN_BY} shows it), then"))
    console.out(f"  {rekindle('gpu', '10de:' + pci.partition(':')[0])}")


def _by_system(found: dict[str, str | None]) -> str:
    """One word where the systems agree."""
    said = {system.capitalize(): version or "none" for system, version in found.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{system}: {version}" for system, version in said.items())


def _wheels(rows: tuple[ServingWheel, ...]) -> str:
    if not rows:
        every = torch_releases()
        return f"none of {every[0].minor} to {every[-1].minor}"
    whole = next((row for row in rows if not row.loses), None)
    first = whole or rows[0]
    text = _wheel(first) + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
    sure = "" if first.evidence.confirmed else " (by the build scripts)"
    if rows[0] is not first:
        text += f"; newer, and losing something: {_wheel(rows[0])}"
    return text + sure


def _wheel(row: ServingWheel) -> str:
    return (
        str(TorchPin(row.torch, row.variant))
        + (" by JIT" if row.by_jit else "")
        + (" without cuDNN" if row.cudnn_serves is False else " in part" if row.loses and not row.by_jit else "")
    )


def _chip(answer: CardAnswer) -> str:
    return f", chip {answer.chip}" if answer.chip else f", {len(answer.candidates)} cards in the tables"


def _shortened(words: list[str], most: int = 6) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
