"""A package as people write it."""

from __future__ import annotations

import re

from rekindle.core.errors import UnknownName, UsageError
from rekindle.knowledge.builds.extension_files import files, packages
from rekindle.knowledge.logs.extension_homes import home_of_folder
from rekindle.knowledge.torch.companions import PROJECTS
from rekindle.model.requirement import canonical_name


def read_extension(text: str) -> str:
    """The name of something that goes in beside torch: `flash-attn`, `Flash_Attn`."""
    from difflib import get_close_matches

    plain = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", plain):
        words = re.match(r"[A-Za-z0-9][\w.-]{0,60}(?: [A-Za-z][\w.-]{0,60})?", plain)
        name = canonical_name(words[0].replace(" ", "-")) if words else "flash-attn"
        message = f"`{text[:60]}` is not the name of a package"
        raise UsageError(message, hint=f"name it alone, `{name}`: which release of it fits is looked for")
    if (name := canonical_name(plain)) == "torch":
        raise UsageError("torch itself is no extension", hint="`rekindle plan` finds the PyTorch for your GPUs")
    known = name in PROJECTS or home_of_folder(name) is not None or files(name)
    if not known and (near := get_close_matches(name, {*packages(), *PROJECTS}, 1, 0.87)):
        raise UnknownName(f"no extension called `{name}` is in Rekindle's data", hint=f"did you mean `{near[0]}`?")
    return name
