"""What an install command takes, with the lists and projects it names filled in where they lie beside the script."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from rekindle.model.requirement import canonical_name
from rekindle.review.document import Dialect
from rekindle.review.other_files import OtherFile
from rekindle.review.packages import Install, install_of, listed, options_of, parts_of
from rekindle.review.readers.recorder import moved
from rekindle.review.trace import Invocation, Trace, Word

_DEEPEST = 4


def followed(trace: Trace, item: Invocation) -> list[Install]:
    """What a command installs, with the lists it names filled in where they lie beside the script."""
    found = install_of(item)
    if found is None:
        return []
    installs = [found]
    if trace.beside is None:
        return installs
    for name in found.lists:
        if name.endswith((".yml", ".yaml")):
            installs += _project(trace, item, name, Dialect.ENVIRONMENT, found.environment)
    whole = _words(trace, item, found.lists, 0)
    if whole:
        again = install_of(msgspec.structs.replace(item, words=(*item.words, *whole)))
        installs[0] = found = again or found
    if found.verb == "sync" or any(each.source in (".", "./") for each in found.wanted):
        installs += _project(trace, item, "pyproject.toml", Dialect.PROJECT)
    limits = _limits(trace, item, found.constraints)
    return [_limited(each, limits) for each in installs] if limits else installs


def _limited(found: Install, limits: dict[str, str]) -> Install:
    """A name without a release takes that of its constraint."""
    wanted = [
        msgspec.structs.replace(each, requirement=limits.get(each.name, "")) if each.requirement == "" else each
        for each in found.wanted
    ]
    return msgspec.structs.replace(found, limits=limits, wanted=tuple(wanted))


def _opened(trace: Trace, item: Invocation, name: str) -> OtherFile | None:
    found = trace.beside.text(name, item.directory) if trace.beside is not None else None
    if found is not None:
        trace.opened.setdefault(item.line, found.name)
    return found


def _words(trace: Trace, item: Invocation, names: tuple[str, ...], depth: int) -> list[Word]:
    """The words of lists of requirements, and of those that they name in turn."""
    words: list[Word] = []
    for name in names if depth < _DEEPEST else ():
        other = _opened(trace, item, name) if not name.endswith((".yml", ".yaml")) else None
        if other is None:
            continue
        rows = listed(other.text, item.line)
        inner = tuple(after.text for word, after in pairwise(rows) if word.text in ("-r", "--requirement"))
        words += [*rows, *_words(trace, item, inner, depth + 1)]
    return words


def _project(trace: Trace, item: Invocation, name: str, dialect: Dialect, own: str | None = None) -> list[Install]:
    """What a project or an environment beside the script asks for, as if it stood at the line that reads it."""
    from rekindle.review.readers.lists import read_conda_environment, read_project

    other = _opened(trace, item, name)
    if other is None:
        return []
    inner, chosen = Trace(dialect), _chosen(item)
    if dialect is Dialect.PROJECT:
        read_project(inner, other.text, chosen, pips=item.program in ("pip", "python", "py"))
    else:
        read_conda_environment(inner, other.text)
    items = [each for each in inner.invocations if chosen is None or not each.conditional]
    # What the command is told counts for all that it reads; conda runs pip in the environment that it makes.
    told = options_of(item) if dialect is Dialect.PROJECT else []
    items = [msgspec.structs.replace(each, words=(*each.words, *told)) for each in items]
    found = [each for one in items if (each := install_of(moved(one, item.line))) is not None]
    named = [own, *(each.environment for each in found)] if dialect is Dialect.ENVIRONMENT else []
    place = next((name for name in named if name), None)
    return [
        msgspec.structs.replace(each, item=_at(each.item, item), environment=place or each.environment)
        for each in found
    ]


def _chosen(item: Invocation) -> frozenset[str] | None:
    """The extras and groups of a project that a command names: `--extra cu129`, `.[gpu]`; None where they are open."""
    named = [after for word, after in pairwise(item.words) if word.text in ("--extra", "--group")]
    named += [word for word in item.words if re.match(r"--(?:extra|group)=|\.[\\/]?\[", word.text)]
    if not all(word.known for word in named) or item.has("--all-extras", "--all-groups"):
        return None
    return frozenset(part for word in named for part in re.split(r"[\[\], =]+", word.text))


def _at(inner: Invocation, item: Invocation) -> Invocation:
    return msgspec.structs.replace(
        inner, order=item.order, scope=item.scope, directory=item.directory,
        conditional=item.conditional or inner.conditional,
        dialect=item.dialect, system=item.system, reached=item.reached,
    )  # fmt: skip


def _limits(trace: Trace, item: Invocation, names: tuple[str, ...]) -> dict[str, str]:
    """What constraints say of each name."""
    found: dict[str, str] = {}
    for name in names:
        other = _opened(trace, item, name)
        for word in listed(other.text, item.line) if other is not None else ():
            parts = parts_of(word.text) if re.match(r"[A-Za-z0-9]", word.text) else None
            if parts is not None:
                found[canonical_name(parts[0])] = parts[1]
    return found
