"""Has this torch wheels for this Python, and does it take this NumPy?"""

from __future__ import annotations

from collections.abc import Iterable

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import preferred_python
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch.releases import TorchRelease, torch_release, torch_releases
from rekindle.knowledge.torch.torch_wheels import old_wheels
from rekindle.knowledge.torch.wheel_platforms import old_lines


@cached
def takes(torch: str, python: str, system: str) -> Judgement:
    try:
        row = torch_release(torch)
    except UnknownName as unknown:
        every = _before_the_tables(torch, system)
        return among(torch, every, python) if every else Unknown(missing=unknown.message)
    known = row.wheels_for(torch, system)
    if not known:
        return Unknown(missing=f"for which Pythons torch {torch} has wheels is not in the tables")
    return among(torch, known, python, near=_nearest(row, python, system))


def among(torch: str, pythons: tuple[str, ...], python: str, *, near: Alternative | None = None) -> Fits | Clash:
    """The same of a build whose Pythons are known."""
    if python in pythons:
        return Fits()
    best = preferred_python(pythons)
    other = Alternative(what="python", value=str(best), text=f"use Python {best}")
    return Clash(
        sentence=f"PyTorch {torch} is for Python {spread(pythons)}; {python} is not among them",
        source="wheels of the release",
        changes=(other, *([near] if near else [])),
    )


def takes_numpy(torch: str, numpy: str, system: str) -> Judgement:
    """A torch that was compiled against NumPy 1 cannot use a NumPy 2."""
    plain, number = Version.find(torch), Version.find(numpy)
    if plain is None or number is None:
        return Unknown(missing=f"NumPy's version `{numpy}` cannot be read")
    try:
        row = torch_release(torch)
    except (UnknownName, UsageError, ValueError):
        return Unknown(missing=f"torch {torch} is not in Rekindle's data")
    first = row.numpy2_from(system)
    if number.major < 2 or (first is not None and plain >= first):
        return Fits()
    sentence = f"torch {torch} was compiled against NumPy 1, but NumPy {numpy} is installed"
    change = Alternative(what="numpy", value="<2", text="install a NumPy below 2")
    return Clash(sentence=sentence, source="PyTorch's wheels: the NumPy they were compiled with", changes=(change,))


def _before_the_tables(torch: str, system: str) -> tuple[str, ...]:
    """The Pythons of an old release, or of its neighbours with the same two numbers."""
    asked = Version.find(torch)
    old = [(row.version, row.pythons) for row in old_wheels() if row.system == system]
    old += [(row.torch, row.pythons) for row in old_lines() if row.system == system]
    near = [row for row in old if asked is not None and Version(row[0]).major_minor == asked.major_minor]
    found = {each for _, pythons in [row for row in near if row[0] == torch] or near for each in pythons}
    return tuple(sorted(found, key=lambda each: Version(each.rstrip("t"))))


@cached
def releases_for(python: str, system: str) -> tuple[TorchRelease, ...]:
    """The releases with wheels for a Python, oldest first."""
    return tuple(row for row in torch_releases() if python in row.wheels_for(row.newest, system))


def _nearest(row: TorchRelease, python: str, system: str) -> Alternative | None:
    having = releases_for(python, system)
    if not having:
        return None
    later = Version(having[0].minor) > Version(row.minor)
    near = min(having[0].patches, key=Version.parse) if later else having[-1].newest
    text = f"torch {near} is the {'first' if later else 'last'} that has a wheel for Python {python}"
    return Alternative(what="torch", value=near, text=text)


def spread(versions: Iterable[str]) -> str:
    """`3.8 to 3.11` for a run of versions; free-threaded ones are their own matter."""
    found = [version for version in versions if not version.endswith("t")]
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}" if found else "none"
