"""An inspection as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from rekindle.core import console
from rekindle.core.findings import State
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.model.card import Target
from rekindle.wheels.inspect.inspection import CardCoverage, Inspection, lost

_MEGABYTE = 1_000_000


def text(found: Inspection) -> str:
    blocks = [_head(found), _code(found), _kernels(found), _cards(found), _served(found), _findings(found)]
    return "\n\n".join(block for block in blocks if block)


def closing(seen: Sequence[Inspection], wanted: Sequence[Target]) -> str:
    """One line for each of several wheels: what it lacks, said again where nobody has to scroll for it."""
    rows = [
        (
            console.clean(found.name),
            "; ".join([*(f"no {target}" for target in lost(found, wanted)), *_lacking(found)]) or "nothing",
        )
        for found in seen
    ]
    return console.table(rows, head=("wheel", "what is wrong"))


def _lacking(found: Inspection) -> list[str]:
    named = [card for card in found.cards if card.coverage is Coverage.NO and card.files]
    cards = [f"no code for {console.clean(card.name)}" for card in named]
    cards += [
        f"code for {console.clean(card.name)} in parts only"
        for card in found.cards
        if card.coverage is Coverage.PARTIAL
    ]
    other = sum(item.state is State.FAIL and item.id != "require" for item in found.findings)
    unknown = sum(item.state is State.UNVERIFIED for item in found.findings)
    counts = [f"{number} {state}" for number, state in ((other, "FAIL"), (unknown, "UNVERIFIED")) if number]
    return [*cards, *counts]


def _head(found: Inspection) -> str:
    rows = [
        ("torch", found.torch if found.is_torch or not found.torch else f"built for {found.torch}"),
        ("CUDA", found.cuda and str(found.cuda)),
        ("cuDNN", found.cudnn),
        ("driver", _driver(found)),
        ("Python", found.python),
        ("platform", found.platform),
        ("glibc", found.glibc and f"{found.glibc} or newer"),
        ("NumPy", found.numpy_abi and " and ".join(f"{n}.x" for n in found.numpy_abi)),
        ("C++ ABI", found.cxx_abi),
        ("BLAS", found.blas),
        ("CPU", found.cpu and f"x86-64-{found.cpu} or better"),
        ("variant", _variant(found)),
        ("size", _size(found)),
    ]
    title = console.paint(console.clean(found.name), "bold")
    return f"{title} ({found.kind})\n" + console.table([(k, console.clean(v)) for k, v in rows if v], indent="  ")


def _variant(found: Inspection) -> str | None:
    if found.variant is None:
        return None
    features = [
        f"{space} :: {feature} :: {' '.join(values)}"
        for space, each in found.variant.properties.items()
        for feature, values in each.items()
    ]
    return f"{found.variant.label} ({', '.join(features) or 'no property'})"


def _driver(found: Inspection) -> str | None:
    if not found.min_driver:
        return None
    known = [f"{version} or newer on {system.capitalize()}" for system, version in found.min_driver.items() if version]
    return ", ".join(known) or None


def _size(found: Inspection) -> str:
    parts = ", ".join(f"{name} {_megabytes(size)}" for name, size in found.parts.items())
    return f"{_megabytes(found.size)} unpacked" + (f": {parts}" if parts else "")


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.0f} MB" if size >= 10 * _MEGABYTE else f"{size / _MEGABYTE:.1f} MB"


def _code(found: Inspection) -> str:
    if not found.gpu_code:
        # A library such as NVRTC has none either, and is there for nothing but the GPU.
        return "No GPU code: this runs on the CPU only" if found.is_torch else "No GPU code of its own"
    rows = [
        (console.clean(code.file), str(code.containers), " ".join(f"{t}×{n}" for t, n in code.targets.items()))
        for code in found.gpu_code
    ]
    lines = ["GPU code", console.table(rows, head=("file", "containers", "targets"), indent="  ")]
    for code in found.gpu_code:
        if code.aside:
            text = f"set aside in {console.clean(code.file)}: {sum(code.aside.values())} more that it does not launch"
            lines.append(console.wrap(f"{text} ({', '.join(code.aside)})", indent="    ", first="  "))
    return "\n".join(lines)


def _kernels(found: Inspection) -> str:
    rows = [
        (hex(one.offset), console.clean(one.unit or one.section or "?"), " ".join(map(str, one.targets)))
        for code in found.gpu_code
        for one in code.kernels
    ]
    return console.table(rows, head=("offset", "source", "targets"), indent="  ") if rows else ""


def _cards(found: Inspection) -> str:
    # Of a file without GPU code the finding says what that means for the card.
    return "\n".join(_card(card) for card in found.cards if card.files)


def _card(card: CardCoverage) -> str:
    style = {Coverage.SERVES: "green", Coverage.PARTIAL: "yellow", Coverage.NO: "red"}[card.coverage]
    jit = " by JIT: the driver compiles PTX at first use" if card.by_jit else ""
    lines = [f"{console.clean(card.name)} ({card.capability}): {console.paint(card.coverage.value, style)}{jit}"]
    if card.coverage is not Coverage.SERVES:
        lines += [
            f"  {console.clean(file)}: {answer.coverage.value}, {answer.native + answer.jit} of {answer.containers}"
            for file, answer in card.files.items()
            if answer.coverage is not Coverage.SERVES
        ]
    return "\n".join(lines)


def _served(found: Inspection) -> str:
    if not found.coverage:
        return ""
    rows = []
    for state in Coverage:
        cards = [card for card, answer in found.coverage.items() if answer is state]
        if cards:
            rows.append((state.value, _by_architecture(cards, found.by_jit)))
    lines = ["Cards by compute capability", console.table(rows, indent="  ")]
    if found.by_jit:
        lines.append("  * through PTX, which the driver compiles at first use (JIT)")
    return "\n".join(lines)


def _by_architecture(cards: Sequence[str], by_jit: Sequence[str]) -> str:
    """`Maxwell 5.0 5.2, Pascal 6.1`, with a star at what runs only by JIT."""
    names = {str(gpu.capability): gpu.architecture for gpu in gpus.gpus()}
    groups: dict[str, list[str]] = {}
    for card in cards:
        groups.setdefault(names.get(card, ""), []).append(f"{card}*" if card in by_jit else card)
    return ", ".join(" ".join([name, *found]).strip() for name, found in groups.items())


def _findings(found: Inspection) -> str:
    shown = sorted(found.findings, key=lambda item: -item.state.rank)
    return "\n".join(console.finding(item) for item in shown if item.state is not State.PASS or len(shown) < 12)
