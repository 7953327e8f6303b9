"""A real Ninja that takes job tokens: not every system's does."""

from __future__ import annotations

import zipfile
from pathlib import Path

from support.artefacts import cache, made_once, unverified, wheel


def ninja_with_tokens() -> Path:
    """The folder to put first on PATH."""
    packed = wheel("ninja==1.13.2")

    def unpack(folder: Path) -> None:
        with zipfile.ZipFile(packed) as archive:
            inside = next((name for name in archive.namelist() if name.endswith(("scripts/ninja", "bin/ninja"))), None)
            if inside is None:
                unverified(f"`{packed.name}` holds no ninja")
                raise AssertionError
            folder.mkdir(exist_ok=True)
            fresh = folder / "ninja.part"
            fresh.write_bytes(archive.read(inside))
            fresh.chmod(0o755)
            fresh.replace(folder / "ninja")

    return made_once(cache() / "ninja" / packed.stem, unpack)
