"""A Python environment found on disk and never run: a venv, a conda environment, a system Python, an embedded one.

The folder alone tells nearly everything: `pyvenv.cfg`, `conda-meta`, `python311._pth`, `lib/python3.11`. So a Windows
environment on a mounted disk, or a ComfyUI portable folder, is read like the one that is active here.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from pathlib import Path

import msgspec

from rekindle.core.errors import NotFound
from rekindle.core.version import Version

# What ComfyUI and its relatives call the folder of the Python they bring along (the first spelling is theirs).
_PORTABLE = ("python_embeded", "python_embedded", "python")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `venv`, `conda`, `embedded` or `system`; `python` None when nothing in the folder tells its version."""

    root: str
    os: str
    kind: str
    python: Version | None
    site_packages: tuple[str, ...]
    interpreter: str | None
    has_headers: bool

    @property
    def tag(self) -> str | None:
        """`cp311`, as in file names."""
        return f"cp{self.python.major}{self.python.minor}" if self.python else None

    @property
    def here(self) -> bool:
        """Is it an environment of this kind of system, so that its libraries can be looked for here too?"""
        return (self.os == "windows") == (os.name == "nt")


def open_environment(where: Path | None = None) -> Environment:
    """The environment in a folder, of an interpreter, or the active one; an error that says what was looked for."""
    root = _root(where)
    for candidate in (root, *(root / name for name in _PORTABLE)):
        found = _read(candidate)
        if found is not None:
            return found
    message = f"`{root}` is not a Python environment: it has no site-packages"
    hint = "name the folder of a venv or conda environment, its python executable, or a ComfyUI portable folder"
    raise NotFound(message, hint=hint)


def kept_file(cache: Path | None, environment: Environment, name: str) -> Path | None:
    """Where something about this environment is kept, in Rekindle's own cache folder."""
    if cache is None:
        return None
    # No hashlib: loading OpenSSL takes as long as everything else an unchanged answer needs.
    root = environment.root.encode("utf-8", "surrogateescape")
    return cache / f"{zlib.crc32(root):08x}{zlib.adler32(root):08x}-{name}.json"


def python_has_headers(interpreter: Path) -> bool:
    """Can extensions be compiled with this interpreter?"""
    try:
        return open_environment(interpreter).has_headers
    except NotFound:
        return False


def _root(where: Path | None) -> Path:
    if where is None:
        active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
        return Path(active) if active else Path(sys.prefix)
    if not where.exists():
        message = f"there is no `{where}`"
        raise NotFound(message, hint="check the path; quote it if it has spaces")
    if where.is_dir():
        return where.absolute()
    folder = where.absolute().parent
    return folder.parent if folder.name.lower() in ("bin", "scripts") else folder


def _read(root: Path) -> Environment | None:
    windows = (root / "Lib" / "site-packages").is_dir() and not any(root.glob("lib/python3*/site-packages"))
    site = [root / "Lib" / "site-packages"] if windows else _linux_site(root)
    if not site:
        return None
    config = _config(root)
    return Environment(
        root=str(root),
        os="windows" if windows else "linux",
        kind=_kind(root, config),
        python=_version(root, config, site, windows=windows),
        site_packages=tuple(str(folder) for folder in site),
        interpreter=_interpreter(root, windows=windows),
        has_headers=_has_headers(root, config, windows=windows),
    )


def _linux_site(root: Path) -> list[Path]:
    patterns = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3/dist-packages")
    found = [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_dir()]
    distinct = {path.resolve(): path for path in reversed(found)}
    return list(reversed(distinct.values()))


def _config(root: Path) -> dict[str, str]:
    try:
        text = (root / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _kind(root: Path, config: dict[str, str]) -> str:
    if config:
        return "venv"
    if (root / "conda-meta").is_dir():
        return "conda"
    return "embedded" if any(root.glob("python3*._pth")) else "system"


def _version(root: Path, config: dict[str, str], site: list[Path], *, windows: bool) -> Version | None:
    said = re.match(r"\d+\.\d+(?:\.\d+)?", config.get("version_info") or config.get("version") or "")
    if said:
        return Version(said[0])
    for meta in root.glob("conda-meta/python-3.*.json"):
        found = re.match(r"python-(\d+\.\d+\.\d+)-", meta.name)
        if found:
            return Version(found[1])
    if windows:
        names = (re.match(r"python3(\d{1,2})\.dll\Z", path.name, re.IGNORECASE) for path in root.glob("python3*.dll"))
        minor = next((found[1] for found in names if found), None)
        return Version(f"3.{minor}") if minor else None
    named = re.match(r"python(3\.\d+)\Z", site[0].parent.name)
    return Version(named[1]) if named else None


def _interpreter(root: Path, *, windows: bool) -> str | None:
    places = ("Scripts/python.exe", "python.exe") if windows else ("bin/python", "bin/python3")
    return next((str(root / place) for place in places if (root / place).exists()), None)


def _has_headers(root: Path, config: dict[str, str], *, windows: bool) -> bool:
    """Can extensions be compiled for it? An embedded Python has neither headers nor import libraries."""
    base = Path(config["home"]) if "home" in config else root
    if windows:
        home = base.parent if base.name.lower() == "scripts" else base
        return (home / "include" / "Python.h").is_file() or (home / "Include" / "Python.h").is_file()
    prefix = base.parent if base.name == "bin" else base
    return any(prefix.glob("include/python3*/Python.h"))
