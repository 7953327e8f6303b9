"""Does this torchvision or torchaudio belong to this torch?"""

from __future__ import annotations

from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement, Unknown
from rekindle.core.errors import UnknownName
from rekindle.knowledge.torch import companions


def release_for(project: str, torch: str) -> str | None:
    """The release that belongs to a torch; None where the tables know of none, or not of that torch."""
    try:
        return companions.version_for(project, torch)
    except (UnknownName, ValueError):
        return None


def belongs(project: str, version: str, torch: str) -> Judgement:
    expected = release_for(project, torch)
    if expected is None:
        return Unknown(missing=f"which {project} belongs to torch {torch} is not in the tables")
    known = companions.belongs(project, version, torch)
    if known:
        return Fits()
    change = Alternative(what=project, value=expected, text=f"install {project} {expected}")
    return Clash(
        sentence=f"{project} {version} does not belong to torch {torch}, which goes with {expected}",
        source="the torch that each release of it was built with",
        changes=(change,),
    )
