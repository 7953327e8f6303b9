"""The lists that a command reads: requirements, constraints, environments and projects beside the script."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from rekindle.review.document import Dialect
from rekindle.review.other_files import OtherFile
from rekindle.review.packages import Install, install_of, listed, parts_of, plain_name
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
            installs += _project(trace, item, name, Dialect.ENVIRONMENT)
    whole = _words(trace, item, found.lists, 0)
    if whole:
        again = install_of(msgspec.structs.replace(item, words=(*item.words, *whole)))
        installs[0] = found = again or found
    if found.verb == "sync" or any(each.source in (".", "./") for each in found.wanted):
        installs += _project(trace, item, "pyproject.toml", Dialect.PROJECT)
    limits = _limits(trace, item, found.constraints)
    return [msgspec.structs.replace(each, limits=limits) for each in installs] if limits else installs


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


def _project(trace: Trace, item: Invocation, name: str, dialect: Dialect) -> list[Install]:
    """What a project or an environment beside the script asks for, as if it stood at the line that reads it."""
    from rekindle.review.readers.lists import read_conda_environment, read_project

    other = _opened(trace, item, name)
    if other is None:
        return []
    inner = Trace(dialect)
    (read_project if dialect is Dialect.PROJECT else read_conda_environment)(inner, other.text)
    found = [install_of(moved(each, item.line)) for each in inner.invocations if not each.conditional]
    return [msgspec.structs.replace(each, item=_at(each.item, item)) for each in found if each is not None]


def _at(inner: Invocation, item: Invocation) -> Invocation:
    return msgspec.structs.replace(
        inner, order=item.order, scope=item.scope, directory=item.directory, conditional=item.conditional,
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
                found[plain_name(parts[0])] = parts[1]
    return found
