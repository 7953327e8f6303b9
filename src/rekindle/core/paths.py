"""Where Rekindle keeps its files, what this computer is called, and the hash of a file: each decided once.

`REKINDLE_CACHE`, `REKINDLE_SHELF` and `REKINDLE_TOOLCHAIN` move the folders that grow. Everything that can be made
again quickly (downloads, build folders, answers of `audit`) is in the cache; the shelf holds wheels that took hours and
is never cleared; private toolkits have a folder of their own, with a short path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rekindle.core.errors import UsageError
from rekindle.core.untrusted import Sha256

STATE_FOLDER = ".rekindle"
_CHUNK = 1 << 20
MOVED_BY = ("REKINDLE_CACHE", "REKINDLE_TOOLCHAIN", "REKINDLE_UPDATES")
"""Variables that a program of ours must be given, or it keeps its files elsewhere."""
_CALLED = {"x86_64": ("x86_64", "x86-64", "amd64", "x64"), "aarch64": ("aarch64", "arm64", "sbsa")}
ARCHITECTURES = {said: arch for arch, every in _CALLED.items() for said in every}
"""What systems and people call a processor, and our name for it."""

BROUGHT_PYTHONS = ("python_embeded", "python_embedded", "python", "venv", ".venv", "system/python")
"""What ComfyUI and its relatives call the folder of the Python they bring along (the first spelling is theirs)."""


def cache_folder(*inside: str) -> Path:
    """The cache, or the folder `inside` it. It may not exist yet."""
    named = os.environ.get("REKINDLE_CACHE")
    if named:
        return Path(named, *inside)
    return _home("cache", "XDG_CACHE_HOME", "~/.cache").joinpath(*inside)


def _home(kind: str, variable: str, usual: str) -> Path:
    """What platformdirs answers, on Linux without its import: every answer asks for one of these folders. One that
    depends on where one stands is none, as the standard says: a stranger's folder would give us tables and keys."""
    if system() == "linux":
        named = Path(os.environ.get(variable, "").strip())
        place = named if named.is_absolute() else Path(os.path.expanduser(usual))  # noqa: PTH111, which raises
        if not place.is_absolute():
            raise UsageError("`HOME` names no folder of yours", hint="set HOME to its whole path, `/home/NAME`")
        return place / "rekindle"
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_dir")("rekindle", appauthor=False))


def shelf_folder() -> Path:
    """The user's own shelf of wheels. It may not exist yet. Addresses in `REKINDLE_SHELF` are other people's."""
    named = shelf_variable()
    return Path(named) if named and "://" not in named else data_folder("shelf")


def data_folder(*inside: str) -> Path:
    """Where what must not be lost is kept: the shelf, keys."""
    return _home("data", "XDG_DATA_HOME", "~/.local/share").joinpath(*inside)


def toolchain_folder() -> Path:
    """Where private toolkits and compilers are kept; `REKINDLE_TOOLCHAIN` moves it. It may not exist yet.

    nvcc takes a path with a space apart, so on Windows a user called `Jane Doe` gets a folder below ProgramData.
    """
    named = os.environ.get("REKINDLE_TOOLCHAIN")
    if named:
        return Path(named)
    folder = data_folder("toolchain")
    if os.name == "nt" and (" " in str(folder) or not str(folder).isascii()):
        shared = os.environ.get("PROGRAMDATA", "C:\\ProgramData")
        import hashlib

        return Path(shared, "rekindle", hashlib.sha256(str(folder).lower().encode()).hexdigest()[:8])
    return folder


def knowledge_folder() -> Path:
    """Where newer tables are kept that the user took with `rekindle knowledge update`. It may not exist yet."""
    named = os.environ.get("REKINDLE_UPDATES")
    if named:
        return Path(named)
    return data_folder("knowledge")


def config_folder() -> Path:
    """Where the user's own settings are read from. It may not exist."""
    return _home("config", "XDG_CONFIG_HOME", "~/.config")


def shelf_variable() -> str:
    """What `REKINDLE_SHELF` says: the user's folder, or addresses of other people's shelves."""
    return os.environ.get("REKINDLE_SHELF", "")


def state_folder(root: Path) -> Path:
    """Where Rekindle keeps what it did to the tree or environment `root`."""
    return root / STATE_FOLDER


def venv_python(root: Path) -> Path:
    """The interpreter of the virtual environment `root`, as `venv` lays it out on this system."""
    return root / "Scripts" / "python.exe" if os.name == "nt" else root / "bin" / "python"


def system() -> str:
    """`windows` or `linux`: this computer."""
    return "windows" if os.name == "nt" else "linux"


def architecture() -> str:
    """`x86_64` or `aarch64`, whatever this system calls it."""
    if sys.platform == "win32":
        # A 32-bit Python on a 64-bit Windows is told the truth in the second variable.
        name = os.environ.get("PROCESSOR_ARCHITEW6432") or os.environ.get("PROCESSOR_ARCHITECTURE", "")
    else:
        name = os.uname().machine
    name = name.lower()
    return ARCHITECTURES.get(name, name)


def sha256_of(path: Path | int) -> Sha256:
    """The SHA-256 of a file, in hexadecimal; of one that is open, by its number, from the beginning."""
    import hashlib

    digest = hashlib.sha256()
    with path.open("rb") if isinstance(path, Path) else os.fdopen(path, "rb", closefd=False) as stream:
        if not isinstance(path, Path):
            stream.seek(0)
        while data := stream.read(_CHUNK):
            digest.update(data)
    return Sha256(digest.hexdigest())
