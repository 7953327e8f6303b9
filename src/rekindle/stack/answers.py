"""The answer of `rekindle plan` as a person reads it: what to do first, then why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.core import console
from rekindle.core.command import Command, for_powershell_only, rekindle
from rekindle.core.version import Version
from rekindle.knowledge.torch.torch_wheels import describe, field_reports
from rekindle.model.platform import LINUX
from rekindle.stack.route import Answer, Missing, OtherWay, Route, Verdict, WhyNot
from rekindle.stack.rules import Rejection, RouteKind
from rekindle.stack.shorter import shorter_lines
from rekindle.stack.situation import Situation, place_words
from rekindle.stack.source_build import after_planning

if TYPE_CHECKING:
    from rekindle.stack.nodes import Apart, Node, Nodes
    from rekindle.stack.programs import ProgramAnswer

_FEW = 3
_FEWEST = 20  # columns for the cards of a stack


def verdict(answer: Verdict, *, everything: bool = False) -> str:
    lines = [heading(answer.situation)]
    lines += [console.wrap(note) for note in answer.notes]
    instead = [text for each in answer.alternatives for text in alternative(each)]
    instead = ["", "Or", *instead] if instead else []
    # Who is sent to hours of building sees at once what another way would spare.
    building = answer.recommended.route is RouteKind.SOURCE_BUILD
    lines += ["", *_route(answer.recommended, answer, instead if building else (), everything=everything)]
    if answer.outlook:
        lines += ["", "What comes next"]
        for step in answer.outlook:
            lines.append(console.wrap(step.text, first="  - ", indent="    "))
            lines += [f"      {command}" for command in step.commands]
    if found := reported(answer):
        lines += ["", "Reported from real cards", *(console.wrap(each, indent="  ") for each in found)]
    lines += () if building else instead
    # By what they are: the commands of the recommended one change when its plan is written.
    shown_above = {_same(route) for route in (answer.recommended, *(each.route for each in answer.alternatives))}
    others = [route for route in answer.routes if _same(route) not in shown_above]
    shown = others if everything else others[:_FEW]
    if shown:
        lines += ["", "Other routes that work", console.table([line(route) for route in shown], indent="  ")]
        if len(others) > len(shown):
            lines.append(f"  and {len(others) - len(shown)} more: `--all` lists them")
    if answer.candidates:
        rows = [(str(each.capability), each.route.value, each.summary) for each in answer.candidates]
        lines += ["", "Per chip", console.table(rows, indent="  ")]
    return "\n".join(lines)


def reported(answer: Verdict) -> tuple[str, ...]:
    """What owners of such a card reported of the recommended release."""
    chosen = answer.recommended
    if chosen.torch is None:
        return ()
    capabilities = {one for card in answer.situation.cards for one in card.capabilities}
    return tuple(describe(row) for row in field_reports(chosen.torch, capabilities, answer.situation.system))


def _same(route: Route) -> tuple[object, ...]:
    return route.route, route.torch, route.variant, route.cuda, route.python, route.builder


def why_not(answer: WhyNot, *, everything: bool = False) -> str:
    """Three lines: the question, the one reason that decides, what is recommended instead."""
    lines = [console.paint(f"why not {answer.question}?", "bold"), console.wrap(answer.sentence, indent="  ")]
    if everything:
        lines += _chain(answer.chain)
    if answer.answer is not Answer.RECOMMENDED:
        lines.append(console.wrap(f"recommended instead: {answer.instead}", indent="  "))
    hidden = len({each.sentence for each in answer.chain})
    if not everything and hidden > 1:
        lines.append(console.paint(f"  {hidden} reasons in all: `--all` shows them with their sources", "dim"))
    return "\n".join(lines)


def program(answer: ProgramAnswer) -> str:
    """What to install, what it needs, and why not the newest."""
    last = "" if answer.newest else ": the newest in the tables that runs here"
    inside = "; in WSL 2 one does:" if answer.commands else ""
    none = f"no {answer.program} of the tables runs here{inside}"
    said = f"{answer.program} {answer.version}{last}" if answer.version else none
    lines = [heading(answer.situation), "", console.paint(console.wrap(said, indent="  ", first=""), "bold")]
    lines += [f"    {command}" for command in answer.commands]
    lines += [console.table(list(answer.lines), indent="  ")]
    if answer.too_new:
        lines += ["", "Why not a newer one" if answer.version else "Why"]
        lines += [console.wrap(each.reason, first="  - ", indent="    ") for each in answer.too_new]
    if not answer.version:
        lines += ["", *(console.wrap(note) for note in answer.notes)]
    return "\n".join(lines)


def once_written(answer: Verdict, plan: Path) -> Verdict:
    """The answer beside a plan that was written: nobody is sent to plan it again."""
    return msgspec.structs.replace(answer, recommended=after_planning(answer.recommended, answer.situation, str(plan)))


def nodes(answer: Nodes) -> str:
    """A line for each stack, what each machine runs, and the price of those that have a stack of their own."""
    stacks: dict[tuple[object, ...], list[Node]] = {}
    runs: dict[tuple[Command, ...], list[Node]] = {}
    moved: dict[tuple[object, ...], list[Node]] = {}
    for node in answer.nodes:
        stacks.setdefault((node.key, node.variant, node.route), []).append(node)
        if node.commands:
            runs.setdefault(node.commands, []).append(node)
        if node.alone:
            moved.setdefault((node.alone, node.torch), []).append(node)
    lines = [_stacks(list(stacks.values()))]
    for same in runs.values():
        lines += ["", f"Run on {_several(same)}", *(f"    {line}" for line in same[0].commands)]
        told = dict.fromkeys(note for node in same for note in node.notes)
        lines += [console.wrap(note, indent="    ") for note in told]
        if same[0].route is RouteKind.SOURCE_BUILD and len(same) > 1:
            lines.append("  on one of them; `rekindle install --wheel WHEEL` puts its wheel on the others")
    for reason in _reasons(answer):
        lines += ["", reason]
    count = len(answer.nodes)
    served = sum(node.route is not RouteKind.NONE for node in answer.nodes)
    several = console.plural(answer.stacks, "stack")
    said = "one stack serves all of them" if answer.stacks == 1 and served == count else several
    lines += ["", f"{served} of {count} machines served: {said}"]
    for (alone, torch), same in moved.items():
        text = f"By itself {_several(same)} would get torch {alone}, and shares {torch} with others."
        lines.append(console.wrap(text, indent="  ", first=""))
    lines += [console.wrap(_price(each), indent="  ", first="") for each in answer.apart]
    many = [same for same in stacks.values() if len(same) > 1 and same[0].torch]
    lines += ["", "Machines"] if many else []
    for same in many:
        names = ", ".join(node.name for node in same)
        lines.append(console.wrap(f"torch {_version(same[0])}: {names}", first="  - ", indent="    "))
    if answer.unreadable:
        lines += ["", *_unread(answer.unreadable)]
    return "\n".join(lines)


def left_out(answer: Nodes) -> str:
    """What a list of machines does not have, beside that list."""
    return "\n".join([*_reasons(answer), *(_unread(answer.unreadable) if answer.unreadable else ())])


def _reasons(answer: Nodes) -> list[str]:
    """Why a machine has nothing to run."""
    reasons: dict[str, list[Node]] = {}
    for node in answer.nodes:
        if not node.commands:
            reasons.setdefault(node.summary, []).append(node)
    return [console.wrap(f"{_several(same)}: {why}", first="", indent="  ") for why, same in reasons.items()]


def _unread(problems: Mapping[str, str]) -> list[str]:
    """What several files have in common is said once."""
    reasons: dict[str, list[str]] = {}
    for file, said in problems.items():
        reasons.setdefault(said.removeprefix(f"`{file}` "), []).append(f"`{file}`")
    each = {why: f"{'each of ' if len(files) > 1 else ''}{', '.join(files)}" for why, files in reasons.items()}
    head = f"Not read: {len(problems)}; nothing is said of these machines"
    return [head, *(console.wrap(f"{files} {why}", first="  - ", indent="    ") for why, files in each.items())]


def _stacks(groups: list[list[Node]]) -> str:
    """One line each: what does not fit of the cards is counted."""
    head = ("torch", "route", "python", "machines", "cards")
    rows = [
        (
            _version(same[0]),
            same[0].route.value,
            ", ".join(
                sorted({node.python for node in same if node.python}, key=lambda each: Version(each.rstrip("t")))
            ),
            str(len(same)),
        )
        for same in groups
    ]
    taken = sum(max(len(each) for each in column) + 2 for column in zip(*rows, head[:-1], strict=True))
    # The last column may take a second row.
    cards = [_cards(same, 2 * max(console.width() - taken, _FEWEST)) for same in groups]
    return console.table([(*row, each) for row, each in zip(rows, cards, strict=True)], head=head)


def _cards(same: list[Node], room: int) -> str:
    """`8x A100, 2x V100`, those of which there are most first."""
    counted = Counter(card.removeprefix("NVIDIA ") for node in same for card in node.cards)
    words = [f"{number}x {card}" if number > 1 else card for card, number in counted.most_common()]
    for shown in range(len(words), 0, -1):
        rest = len(words) - shown
        text = ", ".join(words[:shown]) + (f" and {console.plural(rest, 'other kind')}" if rest else "")
        if len(text) <= room:
            return text
    return console.plural(len(words), "kind") if words else "no card"


def _version(node: Node) -> str:
    return f"{node.torch}{'+' + node.variant if node.variant else ''}" if node.torch else "none as it is"


def _price(apart: Apart) -> str:
    others = "other machine" if apart.others == 1 else f"{apart.others} other machines"
    if apart.releases is None:
        return f"A stack of its own: {apart.what}. No PyTorch that is as good serves it and the {others}."
    if apart.releases <= 0:
        return f"A stack of its own: {apart.what}."
    back = console.plural(apart.releases, "release")
    return f"A stack of its own: {apart.what}. It would cost the {others} {back} (torch {apart.torch})."


def _several(same: list[Node]) -> str:
    """`node1`, or `node1 and 36 more`."""
    return same[0].name + (f" and {len(same) - 1} more" if len(same) > 1 else "")


def heading(situation: Situation) -> str:
    cards = " + ".join(
        f"{f'{card.count} x ' if card.count > 1 else ''}{card.name} ({', '.join(map(str, card.capabilities))})"
        for card in situation.cards
    )
    driver = f", driver {situation.driver}" if situation.driver else ""
    python = f", Python {situation.python}" if situation.python else ""
    system = situation.system.capitalize() + (f" {situation.release}" if situation.release else "")
    system += f" ({situation.system_name})" if situation.system_name else ""
    system += " in WSL" if situation.wsl else ""
    arch = f" on {situation.arch}" if situation.arch != LINUX.arch else ""
    said = f"{cards or 'no NVIDIA card'} on {system}{arch}{driver}{python}"
    return console.paint(console.wrap(said, indent="  ", first=""), "bold")


def _chain(chain: Iterable[Rejection]) -> list[str]:
    said: dict[str, str] = {}
    for each in chain:
        said.setdefault(each.sentence, each.source)
    lines: list[str] = []
    for sentence, source in said.items():
        lines += ["", console.wrap(sentence, first="  - ", indent="    ")]
        lines.append(console.paint(console.wrap(f"source: {source}", indent="    "), "dim"))
    return [*lines, ""]


def _route(route: Route, answer: Verdict, instead: Sequence[str], *, everything: bool) -> list[str]:
    lines = [console.wrap(f"{route.route.value}: {route.summary}", first="", indent="  ")]
    shown = [row for row in facts(route, everything=everything) if row[1]]
    lines += [console.table(shown, indent="  ")] if shown else []
    lines += instead
    why = [*([answer.decisive] if answer.decisive else []), *route.why]
    for title, items in (
        ("why", why),
        ("loses", route.loses),
        ("unverified", route.unverified),
        ("not supported on this GPU", route.lacks if len(answer.situation.cards) == 1 else ()),
    ):
        lines += _items(title, items)
    lines += _per_card(answer) if len(answer.situation.cards) > 1 and route.route is not RouteKind.CPU_WHEEL else []
    if route.missing:
        lines += ["", "  missing"]
        for piece in route.missing:
            lines.append(console.wrap(missing(piece), first="    - ", indent="      "))
            lines += [f"        {line}" for line in piece.commands]
    if route.change and route.route is RouteKind.NONE:
        lines += ["", console.wrap(f"what would help: {route.change.text}", indent="  ")]
        if route.change.torch:
            lines.append(f"    then {route.change.route.value}: torch {route.change.torch}, CUDA {route.change.cuda}")
            if route.change.commands:
                lines += ["", "  Run instead", *(f"    {line}" for line in route.change.commands)]
            elif route.change.what == "torch":
                there = answer.situation
                again = rekindle("plan", *place_words(there), "--torch", route.change.torch, system=there.system)
                lines += ["", f"Next: {again}"]
    if route.commands:
        printed = (*route.commands, *(line for piece in route.missing for line in piece.commands))
        shell = " (in PowerShell; `--shell cmd` for cmd)" if for_powershell_only(printed) else ""
        lines += ["", f"  Run{shell}", *(f"    {line}" for line in route.commands)]
    if route.shorter:
        lines += _items("or compile less", shorter_lines(route.shorter))
        lines += [f"        {line}" for line in route.shorter.commands]
    return lines


def missing(piece: Missing) -> str:
    need = f"{piece.what.capitalize()} {piece.need}" if piece.what in ("python", "driver") else piece.need
    return need + (f" (here: {piece.have})" if piece.have else "")


def facts(route: Route, *, everything: bool) -> list[tuple[str, str]]:
    return [
        ("evidence", route.known_from),
        ("torch", route.version if route.torch else ""),
        ("cuda", str(route.cuda or "")),
        ("cudnn", str(route.cudnn or "")),
        ("python", route.python or ""),
        ("driver", (route.driver_detail if everything else None) or route.driver or ""),
        ("toolset", route.toolset or ""),
        ("built for", route.arch_list or ""),
        ("takes", takes(route)),
    ]


def _per_card(answer: Verdict) -> list[str]:
    """What each of several cards cannot do: one that can is not blamed for another."""
    from rekindle.knowledge.gpu import capabilities

    lines: list[str] = []
    for card in answer.situation.cards:
        facts = [facts for each in card.capabilities if (facts := capabilities.facts(each))]
        lines += _items(f"not supported on {card.name}", dict.fromkeys(lack for row in facts for lack in row.lacks))
    return lines


def _items(title: str, items: Iterable[str]) -> list[str]:
    told = [console.wrap(item, first="    - ", indent="      ") for item in items]
    return ["", f"  {title}", *told] if told else []


def alternative(other: OtherWay) -> list[str]:
    """In what it is better and what it asks for, then what to run."""
    route = other.route
    words = [f"{other.wins}: {route.route.value} torch {route.version}", route.estimate.time if route.estimate else ""]
    words += [f"for Python {route.python}"] if other.wins == "newest" and route.python else []
    words += [route.change.text] if route.change else []
    words += [f"loses: {loss}" for loss in route.loses]
    words += route.strangers
    # A build begins with its plan, which shows the rest.
    steps = route.commands[:1] if route.route is RouteKind.SOURCE_BUILD else route.commands
    said = console.wrap("; ".join(word for word in words if word), first="  - ", indent="    ")
    return [said, *(f"      {step}" for step in steps)]


def takes(route: Route) -> str:
    guess = route.estimate
    return f"{guess.download_gb:g} GB to download, {guess.disk_gb:g} GB of disk, {guess.time}" if guess else ""


def line(route: Route) -> tuple[str, str, str]:
    cost = f"loses: {route.loses[0]}" if route.loses else ""
    if route.route is RouteKind.CONTAINER:
        torch = f"torch {route.version}" if route.torch else "NVIDIA's torch"
        return route.route.value, torch, f"CUDA {route.cuda}: {route.builder} {cost}".strip()
    who = f"by {route.builder}" if route.builder else ""
    return route.route.value, f"torch {route.version}", f"CUDA {route.cuda}, Python {route.python} {who} {cost}".strip()
