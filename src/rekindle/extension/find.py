"""Which ready-made wheel of an extension fits a torch, its CUDA, a Python, a system and the cards.

The tables say which files there are; what can be reached from here is looked into before it is proposed, and what
cannot is UNVERIFIED. A file name is never made up: it comes from a pattern that a row has, or from pip.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import msgspec
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from rekindle.audit.cards import words as card_words
from rekindle.compat import extension_file, wheel_platform
from rekindle.compat import package as packages
from rekindle.compat.companion import release_for
from rekindle.compat.judgement import Clash
from rekindle.compat.torch_cuda import package_line
from rekindle.core import codec
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import NoRoute, Unverified
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.extension import companions
from rekindle.extension.candidates import IndexAnswer, on_index
from rekindle.extension.looking import LookedInto, look_into
from rekindle.extension.question import ExtensionQuestion
from rekindle.knowledge.builds import extension_builds, extension_files, programs
from rekindle.knowledge.builds.extension_files import ExtensionFile
from rekindle.knowledge.logs import extension_homes
from rekindle.knowledge.logs.extension_homes import ExtensionHome
from rekindle.knowledge.torch.projects import conda_extensions
from rekindle.model.card import NamedCard
from rekindle.model.cuda_line import index_of
from rekindle.model.platform import Platform
from rekindle.model.requirement import canonical_name
from rekindle.model.torch_pin import TorchPin
from rekindle.model.wheel import read_name, tagged_glibc
from rekindle.stack.candidates import JETSON_WHEELS, against_place
from rekindle.stack.driver import window_of
from rekindle.stack.offers import conda, official_of
from rekindle.stack.prebuilt import consider
from rekindle.stack.programs import BesideTorch, for_program
from rekindle.stack.situation import Wish, place_words

_MOST = 3
"""Wheels that are proposed at most."""
_STRANGERS = "the project did not build it: look into it before you trust it"
_COST = "minutes for a small project, hours for the attention kernels; needs a CUDA toolkit and a compiler"


class FoundWheel(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is who built it; `address` None: pip finds it; `observed_at` None: it was not read in a table."""

    what: str
    by: str
    state: State
    why: str
    words: tuple[str, ...]
    """What pip is told to install, as in `command`; neither where nothing says that it is for this torch."""
    command: Command | None
    address: str | None = None
    source: str | None = None
    observed_at: str | None = None

    @property
    def finding(self) -> Finding:
        """As a person reads it."""
        return Finding(
            id="extension.find",
            state=self.state,
            found=f"{self.what}, {self.by}" + (f": {self.why}" if self.state is State.PASS else ""),
            why=self.why
            + (f". Known from {self.source}" if self.source else "")
            + (f"; read on {self.observed_at}" if self.observed_at else ""),
            source=self.source,
        )


class FoundExtension(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle extension find`. `wheels` best first; `refused` is what does not fit, and why."""

    schema: str = "rekindle.extension-find/1"
    package: str
    torch: str
    cuda: str | None
    python: str
    system: str
    machine: str
    cards: tuple[NamedCard, ...]
    wheels: tuple[FoundWheel, ...]
    refused: tuple[str, ...]
    command: Command | None
    """What to run: the best wheel, else a build."""
    instead: str | None = None
    note: str | None = None
    """What was taken for granted."""
    build_cost: str | None = None
    """What the build takes, where `command` is one."""
    listed: bool = True
    """The tables know the package. False: only the index was asked, and others may have built it."""

    @property
    def exit_code(self) -> int:
        if not self.wheels and self.listed:
            return NoRoute.exit_code
        return 0 if self.wheels and self.wheels[0].state is State.PASS else Unverified.exit_code

    @property
    def findings(self) -> tuple[Finding, ...]:
        """As a person reads it."""
        found = [wheel.finding for wheel in self.wheels]
        state = State.WARN if self.wheels or self.build_cost else State.FAIL if self.listed else State.UNVERIFIED
        found += [Finding(id="extension.refused", state=state, found=said) for said in self.refused]
        return tuple(found)


Asker = Callable[[str, Sequence[str], ExtensionQuestion], IndexAnswer]
Looker = Callable[[str | Path, ExtensionQuestion, bool], LookedInto]


def find(question: ExtensionQuestion, *, ask: Asker | None = None, look: Looker | None = None) -> FoundExtension:
    """`ask` is how pip is asked which wheel it would take, `look` how a wheel is looked into."""
    name = extension_file.known_as(question.package, question.system)
    home = extension_homes.home(name)
    question = msgspec.structs.replace(question, package=name)
    if (beside := _program(question)) is not None:
        return beside
    elsewhere, barred = _elsewhere(question), _no_code(question)
    search = _Search(question, home, ask or _ask, look or look_into)
    search.refused += barred
    wheels = () if elsewhere else search.wheels()
    if elsewhere or (barred and not wheels):
        return _answer(question, (), (*elsewhere, *barred), instead=home.instead if home else None)
    build = not wheels and _builds(question, home)
    refused = tuple(dict.fromkeys(search.refused)) if wheels else (*dict.fromkeys(search.refused), *search.near())
    where = home.windows if home and question.system == "windows" and home.windows else home.builds if home else None
    rows = (*extension_files.files(name), *extension_homes.wheels(name))
    other = None if wheels else _by_conda(question)
    listed = home is not None or bool(rows) or other is not None or extension_builds.project(name) is not None
    where = where if listed else f"{name} is not in the tables: only the index was asked"
    refused = refused if wheels or where is None else (*refused, where)
    return _answer(question, wheels, refused, build, instead=other, listed=listed)


def _by_conda(question: ExtensionQuestion) -> str | None:
    """conda-forge's build of it, which is for conda-forge's own PyTorch: a way in an environment of its own."""
    place = question.place
    if place is None:
        return None
    named, cards = canonical_name(question.package), [card.capability for card in question.cards]
    place = msgspec.structs.replace(place, python=None)
    for row in conda_extensions():
        if (row.package, Platform(row.system, row.machine)) != (named, place.platform) or not all(
            map(row.serves, cards)
        ):
            continue
        for offer in conda(place.platform):
            route = consider(offer, place, Wish(), window_of(place))[0] if row.beside(offer.torch, offer.cuda) else None
            if route is not None and (not row.pythons or route.python in row.pythons):
                pins = (*route.conda, f"{row.name}={row.version}")
                made = Command("conda", "create", "-n", named, "-c", "conda-forge", *pins, system=place.system)
                return f"conda-forge builds {named} {row.version} on its own PyTorch (from its recipe): `{made}`"
    return None


def _program(question: ExtensionQuestion) -> FoundExtension | None:
    """Of a package that is bound to no torch (ONNX Runtime, CuPy), `plan --for` knows which release the cards run."""
    place = question.place
    if place is None or not programs.free_of_torch(question.package) or extension_files.files(question.package):
        return None
    row = programs.program(question.package)
    found = for_program(question.package, place, BesideTorch(question.python or place.python, question.cuda))
    newer = tuple(each.reason for each in found.too_new)
    if found.version is None:
        alone = for_program(question.package, place)
        plan = rekindle("plan", "--for", row.id, *place_words(place, driver=False), system=question.system)
        apart = f"{row.id} {alone.version} runs in an environment of its own: `{plan}`"
        instead = "; ".join((apart, *alone.notes)) if alone.version else " ".join(found.notes) or row.otherwise
        return _answer(question, (), newer, instead=instead)
    wheel = FoundWheel(
        what=f"{row.id} {found.version}",
        by="on the index",
        state=State.PASS if found.evidence.confirmed else State.UNVERIFIED,
        why="; ".join([*(f"it needs driver {each}" for each in [found.driver] if each), *found.notes]),
        words=found.requirements,
        command=question.pip_install(*found.requirements),
        source=found.source,
    )
    return _answer(question, (wheel,), newer)


def _elsewhere(question: ExtensionQuestion) -> tuple[str, ...]:
    """Why no ready-made wheel loads there: as `plan` says it of the torch that it is for."""
    place = question.place
    if place is None:
        return ()
    against = [each.sentence for each in against_place(place, Wish())]
    against += [JETSON_WHEELS] if any(card.jetson for card in place.cards) else []
    own = [each for each in official_of(question.torch, place.platform) if each.variant == question.line]
    judged = [wheel_platform.loads(each.label, each.glibc, place.glibc) for each in own]
    return (*against, *(each.sentence for each in judged if isinstance(each, Clash)))


def _no_code(question: ExtensionQuestion) -> tuple[str, ...]:
    """Why no build of the project runs on a card."""
    judged = [packages.runs_on(question.package, None, card.capability) for card in question.cards]
    return tuple(dict.fromkeys(each.sentence for each in judged if isinstance(each, Clash)))


def _builds(question: ExtensionQuestion, home: ExtensionHome | None) -> bool:
    """May a build here give what no ready-made file does?"""
    if home is None:
        return extension_builds.project(question.package) is not None
    able = home.compiles_on_windows or question.system != "windows"
    known = home.from_source or home.sdist
    return able and known and companions.refused(question.package, question.cards) is None


def _answer(
    question: ExtensionQuestion,
    wheels: tuple[FoundWheel, ...],
    refused: tuple[str, ...],
    build: bool = False,
    *,
    instead: str | None = None,
    listed: bool = True,
) -> FoundExtension:
    env = ("--env", question.environment.root) if question.environment else ()
    own = rekindle("extension", "build", question.package, *env, *card_words(question.cards), system=question.system)
    return codec.like(
        FoundExtension,
        question,
        system=question.system,
        machine=question.platform.arch,
        cuda=question.line,
        wheels=wheels,
        refused=refused,
        command=wheels[0].command if wheels else own if build else None,
        instead=instead,
        build_cost=_COST if build else None,
        listed=listed,
    )


class _Search:
    def __init__(self, question: ExtensionQuestion, home: ExtensionHome | None, ask: Asker, look: Looker) -> None:
        self.question, self.home, self.ask, self.look = question, home, ask, look
        self.asked = extension_files.nearest(question.package, question.asked)
        self.refused: list[str] = []
        self.seen_unfit: set[tuple[str | None, str]] = set()
        """Who built what: another file of a release that has no code for the cards has none either."""

    def wheels(self) -> tuple[FoundWheel, ...]:
        """The first that was looked into and fits; else what could not be looked into."""
        unverified: list[FoundWheel] = []
        for wheel in self._every():
            if wheel.state is State.PASS:
                return (wheel,)
            unverified.append(wheel)
            if len(unverified) == _MOST:
                break
        return tuple(sorted(unverified, key=lambda each: each.command is None))

    def _every(self) -> Iterator[FoundWheel]:
        """Of the project first: its files, else its list; then what others built, or changed for a card it has not."""
        rows = extension_files.fitting(self.question.package, self.asked)
        own = [row for row in rows if row.by is None]
        barred = bool(self.refused)
        if not barred:
            yield from self._of_rows(own) if own else self._otherwise()
        cards = [card.capability for card in self.question.cards]
        others = [row for row in rows if row.by is not None]
        yield from self._of_rows([row for row in others if not barred or all(map(row.serves, cards))])

    def _of_rows(self, rows: Sequence[ExtensionFile]) -> Iterator[FoundWheel]:
        for row in rows:
            judged = extension_file.serves(row, self.asked, self.question.cards, self._glibc)
            if isinstance(judged, Clash):
                self.refused.append(judged.sentence)
            elif (row.by, row.version) not in self.seen_unfit:
                before = len(self.refused)
                for found in self._of_file(row) if row.name else self._of_index(row):
                    notes = (found.why, self._other_line(row), _STRANGERS if row.by else None, row.note)
                    yield msgspec.structs.replace(
                        found, why="; ".join(filter(None, notes)), source=row.source, observed_at=row.observed_at
                    )
                self.seen_unfit |= {(row.by, row.version)} if len(self.refused) > before else set()

    def _other_line(self, row: ExtensionFile) -> str | None:
        """What is said of a file of another line of the same CUDA major."""
        if self.asked.torch == self.question.pin or row.build_for(self.question.pin):
            return None
        return f"it was built for {self.asked.torch.variant}: within one CUDA major the runtimes are compatible"

    def _of_file(self, row: ExtensionFile) -> Iterator[FoundWheel]:
        address = extension_file.file_address(row, self.asked, self.question.cxx_abi)
        if address is None:
            return
        name = name_of(address)
        seen = self._loaded(name) or self.look(address, self.question, row.pure)
        if seen.state is State.FAIL:
            self.refused.append(f"{name}, {extension_file.made_by(row)}, {seen.said}")
            return
        beside = extension_file.words_beside(row, self.asked, self.question.cards)
        yield self._found(name, extension_file.made_by(row), seen.state, seen.said, (address, *beside), address)

    def _found(
        self, what: str, by: str, state: State, why: str, words: tuple[str, ...], address: str | None
    ) -> FoundWheel:
        command = self.question.pip_install(*words) if words else None
        return FoundWheel(what=what, by=by, state=state, why=why, words=words, command=command, address=address)

    def _of_index(self, row: ExtensionFile) -> Iterator[FoundWheel]:
        requirement, *switch = extension_file.index_words(row, self.asked)
        if row.read and self.question.cards and self.question.installed is None:
            said = f"GPU code of this release was read: {row.targets or f'from {row.begins} on'}"
            yield self._found(requirement, "on the index", State.PASS, said, (requirement, *switch), None)
            return
        found = self._asked(requirement, switch, pure=row.pure, known=True)
        if found is not None:
            yield msgspec.structs.replace(found, by=extension_file.made_by(row)) if row.by else found

    def _otherwise(self) -> Iterator[FoundWheel]:
        """A package without rows: its own list of wheels, else what the index has."""
        question, home = self.question, self.home
        release = release_for(question.package, question.torch) if extension_builds.project(question.package) else None
        rows = [row for row in extension_files.files(question.package) if not row.installs]
        known = [row for row in rows if row.by is None or not row.packages]
        here = [row for row in known if row.is_for(question.platform)]
        made = extension_homes.wheel_for(question.package, question.torch)
        # A row of two numbers is every release that begins with them.
        every = ".*" if made and made.version.count(".") == 1 else ""
        exact = f"{question.package}=={made.version}{every}" if made else question.package
        if release is not None:
            usual = package_line(question.torch, question.platform)
            switch = ["--index-url", index_of(question.line)] if question.line and question.line != usual else []
            found = self._asked(f"{question.package}=={release}", switch, pure=False, known=True)
        elif any(row.builds_for(question.torch) for row in here) or any(row.by is None and row.name for row in known):
            found = None  # the rows name every file, and none is for this question: the index has none of them
        elif home is not None and (listed := self._list(home, known)) is not None:
            found = self._asked(exact, listed.split(" "), pure=False, known=True)
            found = msgspec.structs.replace(found, source=home.source, observed_at=home.observed_at) if found else None
        elif self._none_for_windows:
            found = None
        else:
            found = self._asked(exact, [], pure=False, known=made is not None)
        if found is not None:
            yield found

    @property
    def _none_for_windows(self) -> bool:
        """The project has no wheels for Windows; its row says who has."""
        return self.question.system == "windows" and self.home is not None and self.home.windows is not None

    def _list(self, home: ExtensionHome, known: Sequence[ExtensionFile]) -> str | None:
        """Its list for a torch that no row names: what the rows have of another, they have whole."""
        if self.question.line is None or self._none_for_windows or _builds_of(known, self.question.torch):
            return None
        return home.lists(self.question.torch, self.question.line)

    def _asked(self, requirement: str, switch: Sequence[str], *, pure: bool, known: bool) -> FoundWheel | None:
        """What pip would take, looked into. `known`: a table says that it is for this torch."""
        told = self.ask(requirement, switch, self.question)
        page = next((word for word in switch if word.startswith("http")), None)
        by = "in the project's own list" if page else "on the index"
        words = (requirement, *switch)
        if told.place is None:
            if told.reached:
                where = f" at {page}" if page else ""
                self.refused.append(f"the index has no wheel of {requirement} for this Python and system{where}")
                return None
            if not known and "==" not in requirement:
                self.refused.append(f"no index could be asked for {requirement}")
                return None
            said = f"{page or 'the index'} could not be read from here"
            if requirement == self.question.package and not {"--only-binary", "--index-url"} & {*switch}:
                # pip would take a newer source, or what another project has under that name.
                words, said = (), f"{said}, so which release it has is not known, and there is no line to install it"
            return self._found(requirement, by, State.UNVERIFIED, said, words, page)
        name = name_of(told.place)
        version = _version(name)
        if version is not None and requirement == self.question.package:
            if version.is_prerelease:
                # All that is left for this Python: years older than what a build would bring.
                self.refused.append(f"the index has no wheel of {requirement} for this Python and system but {version}")
                return None
            if made := self._made_for(version):
                self.refused.append(f"{name} {by} is for torch {made}")
                return None
            words = (f"{requirement}=={version}", *switch)
        pure = pure or (self.home is not None and self.home.without_code)
        seen = self._loaded(name) or self.look(told.place, self.question, pure)
        if seen.state is State.FAIL:
            self.refused.append(f"{name} {by} {seen.said}")
            return None
        fits = known or seen.bound
        look = self.home.repository if self.home else told.place
        doubt = f"which torch it was compiled for is not known, so there is no line to install it: look at {look}"
        doubt = "nothing in it is linked to torch" if seen.free else doubt
        doubt = seen.brings or doubt
        state, said = (seen.state, seen.said) if fits else (State.UNVERIFIED, f"{seen.said}; {doubt}")
        return self._found(name, by, state, said, words if fits or seen.free else (), page)

    def _made_for(self, version: Release) -> str:
        """For which other torch the rows have a release of the index."""
        rows = [row for row in extension_files.files(self.question.package) if not (row.by or row.name or row.switch)]
        own = [row for row in rows if Requirement(row.requirement).specifier.contains(version, prereleases=True)]
        return ", ".join(_builds_of(own))

    @property
    def _glibc(self) -> Version | None:
        return self.question.place.glibc if self.question.place else None

    def _loaded(self, name: str) -> LookedInto | None:
        """What the tag of a file says against this system; None: nothing."""
        need = tagged_glibc(name.removesuffix(".whl").rpartition("-")[2])
        judged = wheel_platform.loads("it", need, self._glibc)
        return LookedInto(State.FAIL, judged.sentence) if isinstance(judged, Clash) else None

    def near(self) -> tuple[str, ...]:
        """What the files that there are were made for, where none fits."""
        asked = self.question.asked
        rows = extension_files.files(self.question.package)
        if not rows:
            return ()
        there = [row for row in rows if extension_files.lacking(row, asked) != "system"]
        if not there:
            systems = " and ".join(dict.fromkeys(each for row in rows for each in _places(row)))
            return (f"the ready-made files that are known are for {systems}",)
        if any(not extension_files.lacking(row, asked) for row in there):
            return self._for_the_cards(there)
        other = [row for row in there if extension_files.lacking(row, asked) == "python"]
        if other:
            pythons = ", ".join(sorted({each for row in other for each in row.pythons}, key=_number))
            words = f"its files for this torch are for Python {pythons}, not for {asked.python}"
            return (f"{words}: `{self._planned}` chooses the Python, too",)
        builds = _builds_of(there)
        said = ", ".join(_builds_of(there, asked.torch.release)) or " to ".join(dict.fromkeys((builds[0], builds[-1])))
        return (f"its ready-made files are for torch {said}, not for {asked.torch}",)

    def _for_the_cards(self, rows: Sequence[ExtensionFile]) -> tuple[str, ...]:
        """With which other torch or CUDA a file has code for the cards."""
        cards = [card.capability for card in self.question.cards]
        able = [row for row in rows if self.question.python in row.pythons and all(map(row.serves, cards))]
        pins = dict.fromkeys(each.pin for each in official_of(self.question.torch, self.question.platform))
        same = [str(pin) for pin in pins if any(row.build_for(pin) for row in able)]
        if str(self.question.asked.torch) in same:
            return (f"its file has code for your card: `{self._planned}` takes a torch for what it needs besides, too",)
        if not able or same:
            return (f"it has code for your card with torch {', '.join(same)}",) if able else ()
        newest = TorchPin.parse(_builds_of(able)[-1]).release
        return (f"it has code for your card with torch {newest} and older: `{self._planned}` takes one",)

    @property
    def _planned(self) -> Command:
        asked = (*card_words(self.question.cards), "--os", self.question.system, "--with", self.question.package)
        return rekindle("plan", *asked, system=self.question.system)


def _places(row: ExtensionFile) -> Iterator[str]:
    return (f"{system} {machine}" for system in row.systems for machine in row.machines)


def _builds_of(rows: Sequence[ExtensionFile], torch: str | None = None) -> list[str]:
    return sorted({build for row in rows for build in row.builds_for(torch)}, key=_number)


def _number(text: str) -> list[int]:
    return [int("".join(filter(str.isdigit, part)) or 0) for part in text.replace("+", ".").split(".")]


def _version(file: str) -> Release | None:
    with contextlib.suppress(InvalidVersion, InvalidWheelFilename):
        return Release(read_name(file).version)
    return None


def name_of(place: str | Path) -> str:
    return place.name if isinstance(place, Path) else unquote(urlsplit(place).path).rpartition("/")[2]


def _ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
    found = on_index(
        requirement, switch, environment=question.environment, python=question.python, place=question.platform
    )
    if isinstance(found.place, str) and found.place.startswith("file:"):
        return IndexAnswer(place=Path(url2pathname(urlsplit(found.place).path)), reached=True)
    return found
