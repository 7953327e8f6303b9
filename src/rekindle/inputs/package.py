"""A package as people write it."""

from __future__ import annotations

import re

from rekindle.core.errors import UnknownName, UsageError
from rekindle.knowledge.builds.extension_files import files, packages
from rekindle.knowledge.logs.extension_homes import home_of_folder, homes
from rekindle.knowledge.tables import cached
from rekindle.knowledge.torch.companions import PROJECTS
from rekindle.model.requirement import canonical_name


def read_extension(text: str) -> str:
    """The name of something that goes in beside torch: `flash-attn`, `flash attention`, `FlashAttention2`."""
    from difflib import get_close_matches

    plain = text.strip()
    if (name := canonical_name(plain)) == "torch":
        raise UsageError("torch itself is no extension", hint="`rekindle plan` finds the PyTorch for your GPUs")
    if name and (name in PROJECTS or home_of_folder(name) is not None or files(name)):
        return name
    if spelled := _spelled(plain):
        return spelled
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", plain):
        words = re.match(r"[A-Za-z0-9][\w.-]{0,60}(?: [A-Za-z][\w.-]{0,60})?", plain)
        name = (_spelled(words[0]) or canonical_name(words[0].replace(" ", "-"))) if words else "flash-attn"
        message = f"`{text[:60]}` is not the name of a package"
        raise UsageError(message, hint=f"name it alone, `{name}`: which release of it fits is looked for")
    if near := get_close_matches(name, {*packages(), *PROJECTS}, 1, 0.87):
        raise UnknownName(f"no extension called `{name}` is in Rekindle's data", hint=f"did you mean `{near[0]}`?")
    return name


def _spelled(text: str) -> str | None:
    """A known name by its letters alone, or with the number of its generation: `SageAttention2`, `flash-attn v3`."""
    letters = _letters(text)
    known = _by_letters()
    whole = re.fullmatch(r"(.*?[a-z])v?(\d)", letters)
    alone = known.get(whole[1]) if whole else None
    return known.get(letters) or (known.get(_letters(f"{alone}{whole[2]}")) or alone if whole and alone else None)


@cached
def _by_letters() -> dict[str, str]:
    folders = {_letters(row.repository.rpartition("/")[2]): canonical_name(row.package) for row in homes()}
    names = {*PROJECTS, *packages(), *(canonical_name(row.package) for row in homes())}
    known = folders | {_letters(name): name for name in names}
    return {letters: name for letters, name in known.items() if letters}


def _letters(text: str) -> str:
    return re.sub(r"[-_. ]+", "", text[:100].lower())
