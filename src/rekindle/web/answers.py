"""Every question the picker can ask, answered by the resolver beforehand.

The page holds no rule: it looks its answer up. Two cards of one capability and one range of drivers get the same answer
but for their name, so answers are kept by class of card, and the name stands in them as a mark. Between two versions at
which anything in the tables changes, every driver gets the same answer, so a driver is looked up by the last such
version below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rekindle.compat import driver_card
from rekindle.core import codec
from rekindle.core.command import Command
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import drivers, gpus
from rekindle.knowledge.gpu.capabilities import advice
from rekindle.knowledge.gpu.names import slowed
from rekindle.knowledge.torch import releases
from rekindle.stack import answers
from rekindle.stack.driver import unlisted
from rekindle.stack.forms import Form, render
from rekindle.stack.resolver import resolve, several_cards
from rekindle.stack.route import Route, Verdict
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Wish, machine_of
from rekindle.web import spellings

FORMS = (Form.PIP, Form.UV, Form.CONDA)
_FILES = {
    Form.UV: "into pyproject.toml, then: uv sync",
    Form.CONDA: "as environment.yml, then: conda env create -f environment.yml",
}


class FormShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same choice for one tool: its text, or why it has none."""

    name: str
    text: str = ""
    file: str = ""
    """Where the text belongs; empty for commands."""
    refusal: str = ""


class RouteShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    route: str
    summary: str = ""
    works: bool = True
    facts: tuple[tuple[str, str], ...] = ()
    forms: tuple[FormShown, ...] = ()
    commands: tuple[str, ...] = ()
    takes: str = ""
    why: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    change: str = ""
    settings: tuple[tuple[str, str], ...] = ()


class AnswerShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    best: RouteShown
    alternatives: tuple[tuple[str, RouteShown], ...] = ()
    """In what each is better, and the route."""
    others: tuple[tuple[str, ...], ...] = ()
    lacks: tuple[str, ...] = ()
    advice: tuple[tuple[str, str], ...] = ()
    advice_from: str = ""
    reported: tuple[str, ...] = ()
    chips: tuple[tuple[str, ...], ...] = ()
    """For a name that stands for several chips: capability, route, summary of each."""
    notes: tuple[str, ...] = ()
    next: tuple[tuple[str, ...], ...] = ()
    """What comes after tonight's command: a sentence, then its commands."""
    several: tuple[str, ...] = ()
    """On a page made beforehand: the notes that come with two or more of this card."""


def shown(found: Verdict, most: int = 6) -> AnswerShown:
    best = found.recommended
    above = (best, *(each.route for each in found.alternatives))
    others = [route for route in found.routes if route not in above][:most]
    alone = len(found.situation.capabilities) == 1 and not any(slowed(card.name) for card in found.situation.cards)
    how = advice(found.situation.capabilities[0]) if alone else None
    return AnswerShown(
        best=_route(found, best, decisive=found.decisive),
        alternatives=tuple((each.wins, _route(found, each.route)) for each in found.alternatives),
        others=tuple(answers.line(route) for route in others),
        lacks=best.lacks,
        advice=how.lines if how else (),
        advice_from=how.evidence.phrase if how else "",
        reported=answers.reported(found),
        chips=tuple((str(each.capability), each.route.value, each.summary) for each in found.candidates),
        notes=found.notes,
        next=tuple((step.text, *step.commands) for step in found.outlook),
    )


def _route(found: Verdict, route: Route, *, decisive: str | None = None) -> RouteShown:
    works = route.route is not RouteKind.NONE
    return codec.like(
        RouteShown,
        route,
        route=route.route.value,
        works=works,
        facts=tuple(row for row in answers.facts(route, everything=False) if row[1]),
        forms=tuple(_form(found, route, form) for form in FORMS) if works else (),
        takes=answers.takes(route),
        why=(*((decisive,) if decisive else ()), *route.why),
        missing=tuple(answers.missing(piece) for piece in route.missing),
        change=route.change.text if route.change else "",
        settings=tuple((each.code, each.why) for each in route.settings),
    )


def _form(found: Verdict, route: Route, form: Form) -> FormShown:
    try:
        text = render(msgspec.structs.replace(found, recommended=route), form)
    except RekindleError as error:
        return FormShown(name=form.value, refusal=error.message)
    # What is not a set of pinned wheels has commands of its own, which are not pip's.
    name = "commands" if form is Form.PIP and not route.requirements else form.value
    return FormShown(name=name, text=text, file=_FILES.get(form, ""))


CARD = "\u27e6card\u27e7"
DRIVER = "\u27e6driver\u27e7"
CHIPS = "\u27e6chips\u27e7"
"""How to tell which chip a card has: it names the PCI ids of exactly this card."""
_UNUSED = "98765"
_OLDEST_PYTHON = Version("3.9")
"""Older ones are asked for on the command line; the picker would only be longer."""


class CardClass(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that get the same answer but for their name."""

    id: str
    key: str
    """What the resolver sees of such a card."""
    capabilities: tuple[str, ...]
    architecture: str
    names: tuple[str, ...]
    """Of the tables: each has a page."""
    also: tuple[str, ...] = ()
    """What several of them together are called: `Tesla P100`, `compute capability 6.1`."""

    @property
    def every(self) -> tuple[str, ...]:
        return (*self.names, *self.also)

    @property
    def sample(self) -> str:
        """The name to ask with: the longest, which is least likely to be a part of some other word."""
        return max(self.names or self.also, key=len)


class TableRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer as an installer uses it. Without `pins` nothing is ready-made: `rekindle plan` says what to do."""

    route: str
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    index: str | None = None
    """pip's `--index-url`; None: the usual one."""
    pins: tuple[str, ...] = ()
    first: str | None = None
    """What pip installs before, from the usual index."""
    driver: str | None = None
    """The driver that it needs, in words."""
    loses: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """What has to be set while it runs."""
    change: str | None = None
    """What the owner has to change before."""

    @classmethod
    def of(cls, best: Route) -> TableRow:
        return codec.like(
            cls,
            best,
            route=best.route.value,
            cuda=str(best.cuda) if best.cuda else None,
            index=best.index_url if best.requirements and not best.on_configured_index else None,
            pins=best.requirements,
            first=best.numpy if best.requirements else None,
            settings=tuple(each.code for each in best.settings),
            change=best.change.text if best.change else None,
        )


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one class on one system. `cells` has, by Python, an answer for each driver of `drivers`."""

    drivers: tuple[str, ...]
    """`""`: not known; then the versions at which an answer may change, `0` for anything older than the first."""
    cells: dict[str, tuple[int, ...]]
    answers: tuple[AnswerShown, ...]
    rows: tuple[TableRow, ...] = ()
    """The same answers for a program: what `rekindle knowledge export` writes."""


def pythons() -> tuple[str, ...]:
    """`""` (not said), and every Python that a release of the tables has."""
    found = {python for release in releases.torch_releases() for python in release.pythons("linux")}
    return ("", *sorted((each for each in found if Version(each) >= _OLDEST_PYTHON), key=Version))


def classes() -> tuple[CardClass, ...]:
    """Every card that a spelling may mean, by what the resolver sees of it."""
    cards = [card for name in sorted({gpu.name for gpu in gpus.gpus()}) for card in spellings.cards_from_text(name)]
    known = {(card.name, key(card)) for card in cards}
    cards += [each.card for each in spellings.every() if each.card is not None]
    cards += spellings.by_number().values()
    found: dict[str, dict[str, Card]] = {}
    for card in cards:
        found.setdefault(key(card), {}).setdefault(card.name, card)
    rows = sorted(found.items(), key=lambda item: next(iter(item[1].values())).capabilities)
    return tuple(
        CardClass(
            id=f"c{number}",
            key=same,
            capabilities=tuple(str(each) for each in next(iter(row.values())).capabilities),
            architecture=next((card.architecture for card in row.values() if card.architecture), ""),
            names=tuple(name for name in row if (name, same) in known),
            also=tuple(name for name in row if (name, same) not in known),
        )
        for number, (same, row) in enumerate(rows)
    )


def key(card: Card) -> str:
    """All of a card that an answer may depend on, but its name."""
    ends = driver_card.window(card.capabilities[0], "linux", last_branch=card.last_driver_branch).last
    same = None if card.ambiguous or ends is None else str(ends)
    branch = card.last_driver_branch if card.ambiguous else same
    shown = {"name": "", "notes": (), "count": 1, "slice": False, "architecture": None}
    plain = msgspec.structs.replace(card, **shown, last_driver_branch=branch)
    return codec.to_json([plain, machine_of([card])], indent=0)


def driver_steps(system: str) -> tuple[str, ...]:
    """The versions at which an answer may change: every driver that the tables name for this system."""
    found: set[Version] = set()
    for toolkit in toolkits.toolkits():
        named = [each.windows if system == "windows" else each.linux for each in toolkit.min_drivers]
        branch = Version(toolkit.driver_branch) if toolkit.driver_branch else None
        found |= {
            each
            for each in (
                *named,
                toolkit.minor_floor_windows if system == "windows" else toolkit.minor_floor_linux,
                branch,
            )
            if each is not None
        }
    found |= {Version(str(branch)) for branch in drivers.branches()}
    return ("", "0", *(str(each) for each in sorted(found)))


def answers_of(cards: CardClass, system: str) -> Answers:
    steps = driver_steps(system)
    kept: dict[tuple[str, str], int] = {}
    cells: dict[str, tuple[int, ...]] = {}
    runs: list[tuple[int, int]] = []
    for python in pythons():
        ask = _asker(cards.sample, system, python, kept)
        unknown, rest = ask(""), _filled(ask, steps[1:], runs)
        cells[python] = (unknown, *rest)
        runs = _runs(rest)
    return Answers(
        drivers=steps,
        cells=cells,
        answers=tuple(codec.from_json(answer.encode(), AnswerShown) for answer, _ in kept),
        rows=tuple(codec.from_json(row.encode(), TableRow) for _, row in kept),
    )


def _asker(name: str, system: str, python: str, kept: dict[tuple[str, str], int]) -> Callable[[str], int]:
    """Asks for one driver and gives the number of the answer; equal answers have one number."""

    def ask(driver: str) -> int:
        found = verdict(name, system, python or None, driver or None)
        row = _marked(codec.to_json(TableRow.of(found.recommended), indent=0), found, name, driver)
        return kept.setdefault((marked(found, name, driver), row), len(kept))

    return ask


def _filled(ask: Callable[[str], int], steps: Sequence[str], runs: Sequence[tuple[int, int]]) -> list[int]:
    """An answer for each step. Where both ends and the middle of a stretch agree, what lies between them does too.

    `runs` are the stretches of one answer that another Python had: most Pythons have the same ones.
    """
    found: dict[int, int] = {}

    def at(index: int) -> int:
        if index not in found:
            found[index] = ask(_just_above(steps[index]))
        return found[index]

    def fill(first: int, last: int) -> None:
        if last - first < 2:
            at(first), at(last)
            return
        middle = (first + last) // 2
        if last - first <= 3 or len({at(first), at(middle), at(last)}) > 1:
            fill(first, middle)
            fill(middle, last)
        else:
            found.update(dict.fromkeys(range(first, last + 1), at(first)))

    for first, last in runs or [(0, len(steps) - 1)]:
        fill(first, last)
    return [found[index] for index in range(len(steps))]


def _runs(answers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last place of each stretch of one answer."""
    starts = [at for at, answer in enumerate(answers) if at == 0 or answer != answers[at - 1]]
    return list(zip(starts, [*(start - 1 for start in starts[1:]), len(answers) - 1], strict=True))


def _just_above(step: str) -> str:
    """A driver of this step that no table names, so that its number in an answer can only be the one asked for."""
    whole = "200" if step == "0" else step
    return f"{whole}.{_UNUSED}" if "." in whole else f"{whole}.00.{_UNUSED}"


def verdict(name: str, system: str, python: str | None, driver: str | None) -> Verdict:
    return resolve(spellings.situation(name, system, python, driver), Wish())


def marked(found: Verdict, name: str, driver: str) -> str:
    """The answer as JSON, with marks for the card's name and the driver's version.

    Without what is true of one card only or of how its name was typed: the page has that from the list of cards.
    """
    card = found.situation.cards[0]
    own = {*card.notes, found.situation.driver_note, *([] if card.ambiguous else unlisted(found.situation))}
    bare = msgspec.structs.replace(found, notes=tuple(note for note in found.notes if note not in own))
    text = codec.to_json(msgspec.structs.replace(shown(bare), several=_several(found)), indent=0)
    return _marked(text, found, name, driver)


def _marked(text: str, found: Verdict, name: str, driver: str) -> str:
    card = found.situation.cards[0]
    if card.ambiguous:
        text = text.replace(_inside(which_chip(card.name)), CHIPS)
    for said in sorted({name, card.name}, key=len, reverse=True):
        text = text.replace(_inside(said), CARD)
    # A name of one word stands without quotes in a command: whoever fills it in decides that by the name it has.
    text = text.replace(f"--gpu {CARD}", f'--gpu \\"{CARD}\\"')
    return text.replace(driver, DRIVER) if driver else text


def filled(answer: AnswerShown, name: str) -> AnswerShown:
    """The answer of a class for one of its cards."""
    text = codec.to_json(answer, indent=0)
    if CHIPS in text:
        text = text.replace(CHIPS, _inside(which_chip(name)))
    text = text.replace(f'\\"{CARD}\\"', _inside(Command(name, system="linux")))
    return codec.from_json(text.replace(CARD, _inside(name)).encode(), AnswerShown)


def which_chip(name: str) -> str:
    return gpus.which_chip(gpus.find(name))


def _inside(text: str) -> str:
    """As it stands inside a text of JSON."""
    return codec.to_json(text, indent=0)[1:-1]


def _several(found: Verdict) -> tuple[str, ...]:
    """What the owner of two or more of the card is told besides. Nothing else of an answer depends on their number."""
    if found.candidates:
        return ()
    cards = tuple(msgspec.structs.replace(card, count=2) for card in found.situation.cards)
    return tuple(several_cards(msgspec.structs.replace(found.situation, cards=cards), found.recommended))


def looked_up(kept: Answers, python: str, driver: str) -> AnswerShown:
    """What the page's script does, for the tests: the answer of the last step at or below this driver."""
    at = 0
    if driver:
        below = [index for index, step in enumerate(kept.drivers) if step and Version(step) <= Version(driver)]
        at = below[-1]
    return kept.answers[kept.cells[python][at]]


class PackedAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers as they travel: every text once, and its number wherever it stands."""

    drivers: tuple[str, ...]
    cells: dict[str, tuple[int, ...]]
    texts: tuple[str, ...]
    answers: Any


def packed(kept: Answers) -> PackedAnswers:
    texts: dict[str, int] = {}
    plain = codec.to_builtins(kept.answers)
    answers = codec.with_texts(plain, lambda text: texts.setdefault(text, len(texts)), keys=False)
    return PackedAnswers(drivers=kept.drivers, cells=kept.cells, texts=tuple(texts), answers=answers)
