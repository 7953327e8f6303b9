"""The one small configuration file: `config.toml` in the user's own folder; `REKINDLE_CONFIG` names another place.

    [[shelf]]
    address = "https://wheels.example.org/"
    key = "ed25519:…"

It says which shelves of other people `plan` and `install` look at, and whose signature each must carry.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rekindle.core import codec, files, paths
from rekindle.core.signing import PublicKey


class ShelfSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shelf to look at: a folder or an address, and the key that its owner signs with."""

    address: str
    key: PublicKey | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shelf: tuple[ShelfSetting, ...] = ()


def config_file() -> Path:
    named = os.environ.get("REKINDLE_CONFIG")
    return Path(named) if named else paths.config_folder() / "config.toml"


def read() -> Settings:
    """What the user has set; nothing when there is no file. A file that cannot be read is an error, never ignored."""
    path = config_file()
    if not path.is_file():
        return Settings()
    return codec.from_toml(files.read_bytes(path, limit=1 << 20), Settings, name=f"`{path}`")
