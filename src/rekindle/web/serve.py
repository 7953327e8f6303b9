"""`rekindle serve`: the site with this computer filled in, and what doctor, audit and the shelf say of it.

Every answer is made when it is asked for, by the functions of the command line. Nothing can be changed from here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rekindle import __version__, api
from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.findings import State
from rekindle.core.paths import shelf_folder
from rekindle.core.web_server import WebServer
from rekindle.doctor import text as doctor_text
from rekindle.doctor.report import DoctorReport, report
from rekindle.install.shelf_offers import Shelves, on_shelves
from rekindle.knowledge.gpu import gpus, names
from rekindle.knowledge.logs import signatures
from rekindle.machine import snapshot
from rekindle.machine.model import Machine
from rekindle.model.card import Capability
from rekindle.stack.from_machine import situation_of
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import SYSTEMS, Situation, Wish
from rekindle.web import answers, page, site, spellings
from rekindle.web.answers import AnswerShown, CardClass, shown
from rekindle.web.guard import Bind, Guard
from rekindle.web.site import grid
from rekindle.wheels.shelf import shelf

_KINDS = {".css": "text/css", ".js": "text/javascript"}
_OTHERS = ("matrix.js", "copy.js", "names.js", "picker.js", "rekindle.css")


class ServedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the picker gets: the answer for a card, or why there is none and which names are near."""

    name: str = ""
    page: str = ""
    shown: AnswerShown | None = None
    refusal: str = ""
    near: tuple[str, ...] = ()
    falls: int = 0
    """How often the server had to be started again."""


class ThisComputer(msgspec.Struct, frozen=True, kw_only=True):
    """What the picker begins with. Empty: not known."""

    gpu: str = ""
    os: str = ""
    python: str = ""
    driver: str = ""
    names: tuple[str, ...] = ()
    version: str = __version__
    date: str = ""


def answer(gpu: str, system: str, python: str, driver: str) -> ServedAnswer:
    try:
        situation = spellings.situation(gpu, system, python or None, driver or None)
        found = shown(_resolved(situation))
    except RekindleError as error:
        near = gpus.nearest(gpu) if names.vendor(gpu) is None else ()
        text = f"{error.message}: {error.hint}" if error.hint else error.message
        return ServedAnswer(refusal=text, near=near)
    name = " + ".join(card.name for card in situation.cards)
    known = any(gpu_row.name == name for gpu_row in gpus.gpus())
    return ServedAnswer(name=name, page=site.slug(name) if known else "", shown=found)


def _resolved(situation: Situation) -> Any:
    return resolve(situation, Wish(), on_shelves(Shelves()))


def this_computer(machine: Machine) -> ThisComputer:
    situation = situation_of(machine)
    cards = situation.cards
    python = situation.python if situation.python in answers.pythons() else ""
    return ThisComputer(
        gpu=cards[0].name if cards else "",
        os=situation.system,
        python=python or "",
        # In WSL it is counted as that of Windows, and the page asks about Linux.
        driver=str(situation.driver) if situation.driver and not situation.wsl else "",
        names=tuple(sorted({gpu.name for gpu in gpus.gpus()})),
        date=date.today().isoformat(),
    )


class Pages:
    """The pages, each made when it is asked for. `machine` is looked at once, when the server starts.

    `here`: it is this computer, and not the recording of another.
    """

    def __init__(self, machine: Machine, folder: Path | None = None, *, here: bool = False) -> None:
        self.machine = machine
        self.here_now = here
        self.shelf = folder or shelf_folder()
        self.falls = 0

    def front(self) -> str:
        doctor = report(self.machine)
        situation = situation_of(self.machine)
        plan = shown(_resolved(situation)) if situation.cards else None
        return self._linked("machine.html", summary=doctor_text.summary(self.machine), plan=plan, doctor=doctor)

    def doctor(self) -> str:
        found: DoctorReport = report(self.machine)
        return self._findings("doctor", found.state, found.checks)

    def audit(self) -> str:
        if not self.here_now:
            message = "An audit opens the modules of an environment, and a recording of a computer does not hold them."
            hint = "Run `rekindle audit` there, or `rekindle serve` without `--machine`."
            return self._linked("refused.html", title="audit", message=message, hint=hint)
        try:
            found = api.audit()
        except RekindleError as error:
            return self._linked("refused.html", title="audit", message=error.message, hint=error.hint or "")
        every = [*found.findings, *(each for module in found.modules for each in module.findings)]
        said = f"checked {found.examined} modules in {found.environment.root}"
        return self._findings("audit", found.state, every, steps=found.steps, said=said)

    def _findings(self, title: str, state: State, findings: Any, steps: Any = (), said: str = "") -> str:
        return self._linked("findings.html", title=title, state=state, findings=findings, steps=steps, said=said)

    def shelved(self) -> str:
        wheels = shelf.entries(self.shelf)
        every = sorted({gpu.capability for gpu in gpus.gpus()})
        rows = [(wheel, [str(each) for each in every if shelf.serves(wheel, each)]) for wheel in wheels]
        covered = {each for _, served in rows for each in served}
        missing = [str(each) for each in every if str(each) not in covered]
        return self._linked("shelf.html", folder=self.shelf, rows=rows, missing=missing)

    def picker(self) -> str:
        return self._linked("picker_served.html", systems=SYSTEMS, pythons=answers.pythons())

    def here(self) -> str:
        return f"REKINDLE.served({codec.to_json(this_computer(self.machine), indent=0)});\n"

    def card(self, file: str) -> str | None:
        name = next((gpu.name for gpu in gpus.gpus() if site.slug(gpu.name) == file), None)
        if name is None:
            return None
        cards = next(each for each in classes() if name in each.names)
        found = {system: shown(answers.verdict(name, system, None, None)) for system in SYSTEMS}
        return site.card_page(name, cards, found)

    def capability(self, text: str) -> str | None:
        known = {str(gpu.capability): gpu.capability for gpu in gpus.gpus()}
        return site.capability_page(known[text], list(classes())) if text in known else None

    def cause(self, name: str) -> str | None:
        found = next((each for each in signatures.causes() if each.id == name), None)
        return page.render_linked("cause.html", root="../", cause=found) if found else None

    def _linked(self, template: str, **values: Any) -> str:
        return page.render_linked(template, root="/", served=True, falls=self.falls, **values)


@cache
def classes() -> tuple[CardClass, ...]:
    """The cards of the tables by capability: enough for lists, where no answer is shared."""
    found: dict[str, set[Capability]] = {}
    for gpu in gpus.gpus():
        found.setdefault(gpu.name, set()).add(gpu.capability)
    grouped: dict[tuple[Capability, ...], list[str]] = {}
    for name, capabilities in found.items():
        grouped.setdefault(tuple(sorted(capabilities)), []).append(name)
    generation = {gpu.capability: gpu.architecture for gpu in gpus.gpus()}
    made = [(tuple(map(str, each)), generation[each[0]], sorted(names)) for each, names in sorted(grouped.items())]
    return tuple(
        CardClass(id="", key="", capabilities=each, architecture=architecture, names=tuple(names))
        for each, architecture, names in made
    )


@cache
def _matrix() -> str:
    return site.matrix_page({system: grid(system) for system in SYSTEMS})


def application(pages: Pages, place: Bind) -> Guard:
    def made(make: Callable[[], str]) -> Any:
        async def endpoint(request: Request) -> Response:
            del request
            return HTMLResponse(await asyncio.to_thread(make))

        return endpoint

    def found(make: Callable[[str], str | None]) -> Any:
        async def endpoint(request: Request) -> Response:
            text = await asyncio.to_thread(make, request.path_params["name"])
            return HTMLResponse(text) if text is not None else _missing()

        return endpoint

    async def asked(request: Request) -> Response:
        given = {name: request.query_params.get(name, "")[:200] for name in ("gpu", "os", "python", "driver")}
        seen = await asyncio.to_thread(answer, given["gpu"], given["os"], given["python"], given["driver"])
        told = msgspec.structs.replace(seen, falls=pages.falls)
        return Response(codec.to_json(told, indent=0), media_type="application/json")

    async def here(request: Request) -> Response:
        del request
        return Response(await asyncio.to_thread(pages.here), media_type="text/javascript")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _OTHERS:
            return _missing()
        return Response(page.asset(name), media_type=_KINDS[Path(name).suffix])

    listed = sorted({gpu.capability for gpu in gpus.gpus()})
    routes = [
        Route("/", made(pages.front)),
        Route("/index.html", made(pages.picker)),
        Route("/doctor.html", made(pages.doctor)),
        Route("/audit.html", made(pages.audit)),
        Route("/shelf.html", made(pages.shelved)),
        Route("/matrix.html", made(_matrix)),
        Route("/cards.html", made(lambda: site.cards_page(listed, list(classes())))),
        Route("/causes.html", made(site.causes_page)),
        Route("/answer", asked),
        Route("/here.js", here),
        Route("/gpu/{name}.html", found(pages.card)),
        Route("/sm/{name}.html", found(pages.capability)),
        Route("/cause/{name}.html", found(pages.cause)),
        Route("/{name}", asset),
    ]
    return Guard(Starlette(routes=routes), place)


def _missing() -> Response:
    return Response("there is no such page\n", status_code=404, media_type="text/plain")


def serve(pages: Pages, place: Bind, opened: socket.socket, falls: int) -> None:
    """Until the process is told to end; `falls`: how often this was begun before."""
    pages.falls = falls
    WebServer(application(pages, place), opened).run()


def pages_of(machine: Path | None, folder: Path | None) -> Pages:
    return Pages(snapshot.load(machine) if machine else snapshot.here(), folder, here=machine is None)
