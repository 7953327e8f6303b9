"""Does this torchvision or torchaudio belong to this torch?"""

from __future__ import annotations

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.version import Version
from rekindle.knowledge.torch import companions
from rekindle.model.platform import Platform


def release_for(project: str, torch: str) -> str | None:
    """The release that belongs to a torch; None where the tables know of none, or not of that torch."""
    try:
        return companions.version_for(project, torch)
    except (UnknownName, ValueError):
        return None


def to_build_for(project: str, torch: str, python: str) -> str | None:
    """The release to build beside a torch: the one that belongs to it, or the last before it that takes this Python."""
    return next((row.version for row in companions.up_to(project, torch) if python in row.pythons), None)


def none_for(
    project: str, torch: str, place: Platform, *, line: str, python: str | None, opened: bool
) -> Clash | Unknown:
    """Why no wheel of it stands beside this torch: there is none, or nobody looked (`opened`: its index was read)."""
    expected = release_for(project, torch)
    if expected is None:
        return Unknown(missing=f"which {project} belongs to torch {torch} is not in the tables")
    lines = companions.lines_for(project, torch, place)
    if not opened and line not in lines:
        said = f"{project} {expected} belongs to torch {torch}; whether there is one of {line} for {place} is not known"
        return Unknown(missing=said)
    if line in lines and not lines[line].evidence.confirmed:
        said = f"whether its {line} has a wheel for Python {python} is not known"
        return Unknown(missing=f"{project} {expected} belongs to torch {torch}; {said}")
    if line in lines:
        sentence = f"there is no {project} of {line} for Python {python}, torch {torch} and {place}"
    else:
        others = f", only of {', '.join(sorted(lines))}" if lines else ""
        sentence = f"there is no {project} of {line} for torch {torch} and {place}{others}"
    return Clash(sentence=sentence, source="file names on the package index; PyTorch's page of previous versions")


def made_for(project: str, version: str) -> tuple[str, ...]:
    """The torch releases that this version or range of a companion was built with; empty: not known."""
    try:
        return tuple(sorted(companions.made_with(project, version), key=Version))
    except (UnknownName, UsageError):
        return ()


def belongs(project: str, version: str, torch: str) -> Judgement:
    expected = release_for(project, torch)
    if expected is None:
        return Unknown(missing=f"which {project} belongs to torch {torch} is not in the tables")
    known, number = companions.belongs(project, version, torch), Version.find(version)
    if known or (number is not None and Version(expected).starts_with(number)):
        return Fits()
    if known is None and number is not None and number.major_minor == Version(expected).major_minor:
        return Unknown(missing=f"{project} {version} is not in the tables; torch {torch} goes with {expected}")
    change = Alternative(what=project, value=expected, text=f"install {project} {expected}")
    homes = " and ".join(made_for(project, version))
    belongs = f"; {version} belongs to torch {homes}" if homes else ""
    return Clash(
        sentence=f"{project} {version} does not belong to torch {torch}, which goes with {project} {expected}{belongs}",
        source="the torch that each release of it was built with",
        changes=(change,),
    )
