"""Archives that the user has: a folder of them, or one. Their hashes are taken as they are, and recorded."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from rekindle.core import untrusted
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, NotFound
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import PlainFileName
from rekindle.core.version import Version
from rekindle.formats.unpacking import ENDINGS
from rekindle.model.platform import Platform
from rekindle.toolchain.model import FoundOffering, Part, ProviderSettings, ToolSpec, offered

NAME = "folder"
GROUP = 1


def find(wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
    """Every archive in the folder that `--from` names."""
    if settings.source is None:
        return FoundOffering(why="`--from` names none")
    paths = archives(settings.source)
    if wanted.version is None:
        return FoundOffering(why="say which version it is: `cuda==11.8`")
    if not paths:
        return FoundOffering(why=f"`{settings.source}` holds no archive ({', '.join(ENDINGS)})")
    kinds = {_layout(path.name, wanted.name) for path in paths}
    if len(kinds) != 1:
        return FoundOffering(why=f"`{settings.source}` holds archives of several kinds: {', '.join(sorted(kinds))}")
    parts = tuple(
        Part(
            name=re.split(r"[-_]\d", path.name)[0],
            version=str(Version.find(path.name) or wanted.version),
            file=untrusted.checked(PlainFileName, path.name, "the folder of `--from`"),
            size=path.stat().st_size,
            sha256=sha256_of(path),
            origin=f"file:{path.name}",
        )
        for path in paths
    )
    unverified = ("where the archives of `--from` come from: their hashes were only recorded",)
    known = {"version": wanted.version, "layout": kinds.pop(), "parts": parts, "unverified": unverified}
    return offered(NAME, wanted, place, settings, **known)


def fetch(parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
    (part,) = parts
    found = at_hand(part, settings.source)
    if found is None:
        raise NotFound(f"`{part.file}` is not in the folder of `--from`", hint="name the folder that holds it")
    shutil.copyfile(found, folder / part.file)
    return [folder / part.file]


def at_hand(part: Part, source: Path | None) -> Path | None:
    """The archive of a part in a folder of the user's, if it is the very same file."""
    if source is None:
        return None
    for path in archives(source):
        if path.name == part.file and sha256_of(path) == part.sha256:
            return path
    return None


def archives(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise NotFound(f"there is no `{source}`", hint="`--from` takes a folder of archives, or one archive")
    if (source / "bin").is_dir():
        message = f"`{source}` is a toolkit, not a folder of archives"
        raise BadInput(message, hint=f"`{rekindle('toolchain', 'adopt', str(source))}` uses it where it is")
    return sorted(path for path in source.iterdir() if path.is_file() and path.name.endswith(ENDINGS))


def _layout(name: str, tool: str) -> str:
    if name.endswith(".deb"):
        return {"cuda": "debian-cuda", "gcc": "debian-gcc"}.get(tool, "debian-library")
    if name.endswith(".whl"):
        return "wheel"
    return "conda" if name.endswith((".conda", ".tar.bz2")) else "redistrib"
