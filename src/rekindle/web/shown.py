"""What a page shows of a plan's answer: the texts of the command line, in the order in which they are read."""

from __future__ import annotations

import msgspec

from rekindle.core.errors import RekindleError
from rekindle.knowledge.gpu.capabilities import advice
from rekindle.stack import answers
from rekindle.stack.forms import Form, render
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind
from rekindle.stack.verdict import Verdict

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
    how = advice(found.situation.capabilities[0]) if len(found.situation.capabilities) == 1 else None
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
    return RouteShown(
        route=route.route.value,
        summary=route.summary,
        works=works,
        facts=tuple(row for row in answers.facts(route, everything=False) if row[1]),
        forms=tuple(_form(found, route, form) for form in FORMS) if works else (),
        commands=route.commands,
        takes=answers.takes(route),
        why=(*((decisive,) if decisive else ()), *route.why),
        loses=route.loses,
        unverified=route.unverified,
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
