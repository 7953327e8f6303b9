"""What a script does, in order: the commands it starts with the environment each sees, and the variables it sets.

A reader fills a `Trace`; the rules only look. Every value is a text with the word whether it is known as a whole: what
comes from outside (an argument, the output of a program) stays as it is written and counts as not known.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from rekindle.review.document import Dialect
from rekindle.review.other_files import OtherFiles
from rekindle.review.remark import Raised

LONGEST_VALUE = 16 << 10
_ALL_VALUES = 4 << 20
GIVEN = "__given_"
"""How a word begins that stands for what a workflow is given from outside."""
EVENTS = 2_000  # rules hold commands against each other: ten times as many would take a hundred times as long


PIXI = "pixi"
"""The environment of a project of pixi, which has no name of its own."""
LIST = "\x1f"
"""Stands between the values of a list that one variable holds; no script has it."""


_order = attrgetter("order")
_BETWEEN_BLANKS = re.compile(r"(?:\"[^\"]*\"|[^\s\"])+")


_VARIABLE = r"%%?~?\w*%?|\$\{?[\w@*:]+\}?(?:\.\w+)*|\$\(.*\)|!\w+!"


class Word(msgspec.Struct, frozen=True):
    """One word of a command, quotes taken off and variables filled in. `raw` is how it stands in the file."""

    text: str
    raw: str
    line: int
    quoted: bool = False
    known: bool = True

    @property
    def loose(self) -> bool:
        """Options or packages that nobody knows: all of it comes from outside."""
        outside = rf"{_VARIABLE}|{GIVEN}\w+"
        return bool(re.fullmatch(r"\{+ ?[\w.]+ ?\}+" if self.known else outside, self.text))

    def apart(self, *, bare: bool = False) -> list[Word]:
        """A list in a variable is as many words as it has; a `bare` variable ends words at its blanks as well."""
        parts = [part for part in self.text.split(LIST) if part]
        if bare:
            parts = [part for each in parts for part in _BETWEEN_BLANKS.findall(each)]
        return [msgspec.structs.replace(self, text=part) for part in parts] if len(parts) > 1 else [self]


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """`glued`: no space stands before the sign, as in `numpy>=2`."""

    sign: str
    target: str
    line: int
    glued: bool = False


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """`how`: `environment` (programs see it), `shell` (they do not), `cmake` (a -D), `prefix` (for one command).

    A reader says what the line says; the recorder adds where it stands: order, language, scope, condition.
    """

    name: str
    value: str
    line: int
    order: int = 0
    how: str = "environment"
    dialect: Dialect = Dialect.SHELL
    raw: str = ""
    known: bool = True
    conditional: bool = False
    appended: bool = False
    scope: int = 0
    text: str = ""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is started. `program` is its name without folder and `.exe`, in lower case.

    A reader says what the line says; the recorder adds the program and where it stands.
    `checked`: something looks at how it ended. `piped` is what its output goes through. `called`: `call`, `source` or a
    dot stands before it, so it changes the environment of this script. `after` is the operator behind it.
    """

    words: tuple[Word, ...]
    line: int
    last: int
    text: str
    program: str = ""
    order: int = 0
    dialect: Dialect = Dialect.SHELL
    scope: int = 0
    directory: str | None = None
    checked: bool = False
    conditional: bool = False
    called: bool = False
    piped: tuple[str, ...] = ()
    pipefail: bool = False
    redirects: tuple[Redirect, ...] = ()
    prefix: tuple[Assignment, ...] = ()
    after: str = ""
    reached: bool = True
    child: bool = False
    system: str | None = None
    listed: bool = False
    """It stands in no line: a list of packages, or the words of code, mean it."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words[1:])

    @property
    def lines(self) -> range:
        return range(self.line, self.last + 1)

    @property
    def module(self) -> str | None:
        """What stands behind `-m`."""
        return next((after for word, after in pairwise(self.arguments) if word == "-m"), None)

    def has(self, *options: str) -> bool:
        return any(word in options for word in self.arguments)


class NotUnderstood(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not read, and why."""

    line: int
    text: str
    why: str


class Value(msgspec.Struct, frozen=True):
    """`bodies`: the branches of conditions that it was set in, so that what was set before may hold just as well."""

    text: str
    known: bool
    line: int
    exported: bool
    order: int
    bodies: tuple[tuple[int, int], ...] = ()

    @property
    def branch(self) -> bool:
        return bool(self.bodies)


class Scope:
    """Variables as they change over time. A child sees those of its parent up to the moment it was opened."""

    def __init__(self, number: int, parent: Scope | None, at: int, label: str) -> None:
        self.number = number
        self.parent = parent
        self.at = at
        self.label = label
        self._values: dict[str, list[Value]] = {}
        self._orders: dict[str, list[int]] = {}

    def put(self, name: str, value: Value) -> None:
        """Under its name, and under the name as Windows takes it, which does not tell `Path` from `PATH`."""
        for key in (name, _folded(name)):
            self._values.setdefault(key, []).append(value)
            self._orders.setdefault(key, []).append(value.order)

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, the innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def get(self, name: str, at: int, *, windows: bool = False) -> Value | None:
        name = _folded(name) if windows else name
        for scope in self.chain():
            orders = scope._orders.get(name)
            index = bisect_right(orders, at) if orders else 0
            if index:
                return scope._values[name][index - 1]
            at = min(at, scope.at)
        return None

    def either(self, name: str, at: int, *, windows: bool = False) -> list[Value]:
        """Every value that it may have, the last one first: branches of an `if` count as either."""
        name = _folded(name) if windows else name
        found: list[Value] = []
        for scope in self.chain():
            orders = scope._orders.get(name)
            for value in reversed(scope._values[name][: bisect_right(orders, at)] if orders else []):
                found.append(value)
                if not value.branch:
                    return found
            at = min(at, scope.at)
        return found


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A base image of a container."""

    name: str
    line: int
    order: int
    scope: int
    known: bool = True

    @property
    def pytorchs(self) -> str | None:
        """The release of PyTorch's own image, as its tag begins."""
        found = _PYTORCHS.search(self.name)
        return found[1] if found else None


APPTAINER = ("singularity", "apptainer")
_PYTORCHS = re.compile(r"(?:^|/)pytorch/pytorch:(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_IMAGE_NAME = re.compile(r"[a-z0-9][\w.-]*(?:/[\w.-]+)+(?::[\w.-]+)?\Z")


def started(item: Invocation) -> Image | None:
    """The image that a `docker run` starts or a `pull` fetches, or that Apptainer makes its own of."""
    runs = item.program in ("docker", "podman") and item.arguments[:1] in (("run",), ("pull",), ("create",))
    words = [(word.text.removeprefix("docker://"), word) for word in item.words if runs or "docker://" in word.text]
    spelled, name = next((each for each in words if _IMAGE_NAME.match(each[0])), ("", None))
    if name is None or not (runs or item.program in APPTAINER):
        return None
    return Image(name=spelled, line=name.line, order=item.order, scope=item.scope)


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """An action that a workflow uses, with what it is given: name -> (value, line)."""

    action: str
    line: int
    order: int
    scope: int
    given: dict[str, tuple[str, int]] = {}
    system: str | None = None

    @property
    def repository(self) -> str | None:
        """What a checkout names, empty for the repository of the workflow itself; None of any other action."""
        return self.given.get("repository", ("",))[0].lower() if self.action == "actions/checkout" else None


class Copied(NamedTuple):
    """An environment that one stage takes from another."""

    order: int
    origin: int
    scope: int
    line: int


class Admitted(NamedTuple):
    """The Pythons that a project allows. `every`: it is locked for all of them, and not for the one that is there."""

    pythons: tuple[str, ...]
    line: int
    every: bool


class WithoutCards(NamedTuple):
    """A service of docker-compose that asks for no GPU, and what was read of it."""

    name: str
    line: int
    orders: range


class Trace:
    """What the readers fill and the rules read."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.invocations: list[Invocation] = []
        self.assignments: list[Assignment] = []
        self.images: list[Image] = []
        self.runners: list[Image] = []  # the machines that GitHub lends to jobs without a container
        self.used: list[Used] = []
        self.not_understood: list[NotUnderstood] = []
        self.slips: list[Raised] = []  # faults that show while reading
        self.without_cards: list[WithoutCards] = []
        self.copies: list[Copied] = []
        self.admitted: Admitted | None = None
        self.missing: dict[tuple[str, Dialect], int] = {}
        self.empty: dict[str, int] = {}  # what an ENV of a Dockerfile reads and nobody set before
        self.asked: set[str] = set()
        self.offered: set[str] = set()  # what has a value of its own unless somebody outside gives another
        self.options: dict[str, int] = {}
        self.systems: dict[int, str] = {}
        self.order = 0
        self._spent = 0
        self.scopes: list[Scope] = []
        self.files: OtherFiles | None = None  # those that it runs in its own shell
        self.beside: OtherFiles | None = None  # lists that a command of it reads
        self.sources: dict[str, str] = {}  # the indexes that poetry is told, by their name
        self.build_arguments: dict[str, str] = {}  # what docker-compose gives a Dockerfile
        self.at: int | None = None  # the line that runs the other file which is being read
        self.opened: dict[int, str] = {}
        self.excluded: set[int] = set()
        self.open(None, "")

    def tick(self) -> int:
        self.order += 1
        return self.order

    @property
    def full(self) -> bool:
        return len(self.invocations) + len(self.assignments) > EVENTS

    def open(self, parent: Scope | None, label: str) -> Scope:
        scope = Scope(len(self.scopes), parent, self.order, label)
        self.scopes.append(scope)
        return scope

    def stands_on(self, name: str, line: int, scope: Scope, known: bool) -> None:
        self.images.append(Image(name=name, line=line, order=self.tick(), scope=scope.number, known=known))

    def uses(self, action: str, line: int, scope: Scope, **given: Any) -> None:
        self.used.append(Used(action=action, line=line, order=self.tick(), scope=scope.number, **given))

    def afford(self, text: str, line: int) -> bool:
        """Whether a value may become this long: a value that doubles thirty times must not eat the memory."""
        self._spent += len(text)
        if len(text) <= LONGEST_VALUE and self._spent <= _ALL_VALUES:
            return True
        if not any(item.why.startswith("too long") for item in self.not_understood):
            self.unread(line, "", "too long once its variables are filled in")
        return False

    def unread(self, line: int, text: str, why: str) -> None:
        if self.at is not None:
            line, text, why = self.at, "", f"{why} (in `{self.opened[self.at]}`)"
        if len(self.not_understood) < 2000 and all(item.line != line for item in self.not_understood[-3:]):
            self.not_understood.append(NotUnderstood(line=line, text=text.strip()[:200], why=why))

    def slip(self, rule: str, line: int, corrected: str | None = None, **fields: str) -> None:
        if self.at is not None:
            return  # a fault of the other file: it is told where that file is reviewed
        if len(self.slips) < 5000:
            self.slips.append(Raised(rule=rule, line=line, fields=fields, corrected=corrected))

    def ran(self, *programs: str) -> Iterator[Invocation]:
        return (item for item in self.invocations if item.program in programs)

    def before(self, item: Invocation) -> list[Invocation]:
        return self.invocations[: bisect_left(self.invocations, item.order, key=_order)]

    def after(self, item: Invocation) -> list[Invocation]:
        return self.invocations[bisect_right(self.invocations, item.order, key=_order) :]

    def value(self, name: str, item: Invocation) -> Value | None:
        """A variable as this command sees it."""
        for own in reversed(item.prefix):
            if own.name == name:
                return Value(own.value, own.known, own.line, True, own.order)
        return self.scopes[item.scope].get(name, item.order, windows=item.dialect.windows)

    def values(self, name: str, item: Invocation) -> list[Value]:
        """All that a variable may be where this command sees it, the last one first.

        A command inside of a condition sees what its own branch set.
        """
        last = self.value(name, item)
        if last is None or not last.branch or item.conditional:
            return [last] if last is not None else []
        return self.scopes[item.scope].either(name, item.order, windows=item.dialect.windows)


def last_part(path: str) -> str:
    """The name at the end of a path, in lower case."""
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1].lower()


def program_of(text: str) -> str:
    name = last_part(text.strip("\"'@")).removesuffix(".exe")
    if re.fullmatch(r"[$%]\W?\w*?python\w*\W?|\$\((?:shell )?(?:which|command -v) python[\d.]*\)", name):
        return "python"  # `$PYTHON` and `${PYTHON_BIN}`, whatever they hold
    return re.sub(r"^(python|pip)[\d.]+t?$", r"\1", name)


def _folded(name: str) -> str:
    return "\0" + name.upper()
