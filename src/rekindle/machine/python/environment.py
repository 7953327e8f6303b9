"""The one finder of Python environments. They are read from their files; an interpreter is asked only where it must be.

The folder alone tells nearly everything: `pyvenv.cfg`, `conda-meta`, `python311._pth`, `lib/python3.11`. So a Windows
environment on a mounted disk, or a ComfyUI portable folder, is read like the one that is active here, and nothing in
a folder that was named is run. Only a `python` that says nothing by its place (a shim) is asked, and not even that one
by commands that only read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rekindle.core import files, paths
from rekindle.core.errors import NotFound
from rekindle.core.programs import may_run, which
from rekindle.core.untrusted import on_another_computer
from rekindle.core.version import Version
from rekindle.machine.python.interpreters import in_order
from rekindle.model.environment import Environment


def find(where: Path | None = None) -> Environment:
    """The environment in a folder or of an interpreter; without one, the one that a build would use here.

    That is the active one (`VIRTUAL_ENV`, then `CONDA_PREFIX`), else that of the first `python` on PATH, else the one
    that runs Rekindle.
    """
    if where is None:
        return _active()
    if not where.exists():
        raise NotFound.path(where, "file or folder")
    root = _root(where)
    found = _read_first(root) if where.is_dir() else _of_program(where)
    if found is not None:
        return found
    message = f"{files.not_a(where, 'a Python environment')}: it has no site-packages"
    hint = "name a venv or conda environment, its python or a ComfyUI portable folder; `rekindle inspect` reads wheels"
    raise NotFound(message, hint=hint)


def beside() -> Environment | None:
    """The Python that the application in the current folder brings along, where no other than Rekindle's own is active.

    It is read, not run.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    own = os.path.realpath(sys.prefix)
    if active and os.path.realpath(active) != own:
        return None
    found = next((found for name in paths.BROUGHT_PYTHONS if (found := _read(Path.cwd() / name))), None)
    # uv makes one without a pip, and finds it under this name.
    serves = found is not None and (found.pip is not None or (found.kind, Path(found.root).name) == ("venv", ".venv"))
    usable = found is not None and serves and found.here and found.interpreter is not None
    return found if usable and found is not None and os.path.realpath(found.root) != own else None


def python_has_headers(interpreter: Path) -> bool:
    """Can extensions be compiled with this interpreter?"""
    try:
        return find(interpreter).has_headers
    except NotFound:
        return False


def _active() -> Environment:
    def on_path() -> list[str]:
        found = [which("python"), None if os.name == "nt" else which("python3")]
        # Windows puts a stub for its Store there that is no Python.
        return [hit for hit in found if hit and "windowsapps" not in hit.lower()]

    join = os.path.join
    for text in in_order(os.environ.get, join, on_path, lambda: sys.executable, windows=os.name == "nt"):
        interpreter = Path(text)
        if interpreter.is_file():
            found = _of_program(interpreter)
            if found is not None:
                return found
            if not may_run():
                message = f"`{interpreter}` does not say by its place which environment it is, and nothing is run here"
                raise NotFound(message, hint="name the folder of the environment")
    raise NotFound("there is no Python environment here", hint="activate one, or name its folder")


def _root(where: Path) -> Path:
    if where.is_dir():
        return _tidy(where)
    folder = _tidy(where.parent)
    return folder.parent if folder.name.lower() in ("bin", "scripts") else folder


def _tidy(folder: Path) -> Path:
    """The full path, without `..`: what is before one may be a link, so that the file system is asked."""
    return folder.resolve() if ".." in folder.parts else folder.absolute()


def _read_first(root: Path) -> Environment | None:
    candidates = (root, *(root / name for name in paths.BROUGHT_PYTHONS))
    return next((found for candidate in candidates if (found := _read(candidate))), None)


def _of_program(interpreter: Path) -> Environment | None:
    """By its place; by the place that a link leads to, unless it is a venv's; by its own word."""
    root, real = _root(interpreter), interpreter.resolve()
    linked = None if (root / "pyvenv.cfg").is_file() or real == interpreter.absolute() else _read_first(_root(real))
    return _read_first(root) or linked or _asked(interpreter)


def torch_of(environment: Environment) -> Path | None:
    """The folder of the torch that is installed there."""
    places = (Path(folder) / "torch" for folder in environment.site_packages)
    return next((place for place in places if (place / "version.py").is_file()), None)


def _asked(interpreter: Path) -> Environment | None:
    """What an interpreter says of itself: a shim, or a program whose folders lie elsewhere."""
    from rekindle.machine.host import Host
    from rekindle.machine.python import interpreters

    said = interpreters.ask(Host(), str(interpreter.absolute()))
    if said.version is None or said.prefix is None or not said.site_packages:
        return None
    config = venv_config(Path(said.prefix))
    return Environment(
        root=said.prefix,
        os=paths.system(),
        kind=said.kind,
        python=said.version,
        site_packages=said.site_packages,
        interpreter=str(interpreter.absolute()),
        has_headers=_has_headers(Path(said.prefix), config, windows=os.name == "nt"),
        pip=_pip(map(Path, said.site_packages)),
    )


def _pip(site: Iterable[Path]) -> str | None:
    found = [path for folder in site for path in sorted(folder.glob("pip-*.dist-info"))]
    return found[-1].name.removeprefix("pip-").removesuffix(".dist-info") if found else None


def _read(root: Path) -> Environment | None:
    windows = (root / "Lib" / "site-packages").is_dir() and not any(root.glob("lib/python3*/site-packages"))
    site = [root / "Lib" / "site-packages"] if windows else _linux_site(root)
    if not site:
        return None
    config = venv_config(root)
    return Environment(
        root=str(root),
        os="windows" if windows else "linux",
        kind=_kind(root, config),
        python=_version(root, config, site, windows=windows),
        site_packages=tuple(str(folder) for folder in (*site, *_systems_site(config, windows=windows))),
        interpreter=_interpreter(root, windows=windows),
        has_headers=_has_headers(root, config, windows=windows),
        pip=_pip(site),
    )


def _linux_site(root: Path) -> list[Path]:
    # The last two are Debian's own Python: packages of the system, and what pip put beside them.
    patterns = ["lib/python3*/site-packages", "lib64/python3*/site-packages"]
    patterns += ["lib/python3/dist-packages", "local/lib/python3*/dist-packages"]
    found = [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_dir()]
    distinct = {path.resolve(): path for path in reversed(found)}
    return list(reversed(distinct.values()))


def _systems_site(config: dict[str, str], *, windows: bool) -> list[Path]:
    """What a venv made with `--system-site-packages` sees besides its own: a distribution's torch is there."""
    if config.get("include-system-site-packages", "").lower() != "true" or not config.get("home"):
        return []
    home = Path(config["home"])
    if windows:
        folder = home / "Lib" / "site-packages"
        return [folder] if folder.is_dir() else []
    return _linux_site(home.parent if home.name == "bin" else home)


def venv_config(root: Path) -> dict[str, str]:
    """What `pyvenv.cfg` says; nothing where there is none. Only that of the active one may name another computer."""
    try:
        text = files.plain_text(root / "pyvenv.cfg", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    found = {key.strip().lower(): value.strip() for key, _, value in pairs}
    active = os.environ.get("VIRTUAL_ENV")
    if on_another_computer(found.get("home", "")) and not (active and os.path.realpath(active) == str(root.resolve())):
        del found["home"]
    return found


def _kind(root: Path, config: dict[str, str]) -> str:
    if config:
        return "venv"
    if (root / "conda-meta").is_dir():
        return "conda"
    return "embedded" if any(root.glob("python3*._pth")) else "system"


def _version(root: Path, config: dict[str, str], site: list[Path], *, windows: bool) -> Version | None:
    said = re.match(r"\d{1,9}\.\d{1,9}(?:\.\d{1,9})?(?!\d)", config.get("version_info") or config.get("version") or "")
    if said:
        return Version(said[0])
    for meta in root.glob("conda-meta/python-3.*.json"):
        found = re.match(r"python-(\d{1,9}\.\d{1,9}\.\d{1,9})-", meta.name)
        if found:
            return Version(found[1])
    if windows:
        names = (re.match(r"python3(\d{1,2})\.dll\Z", path.name, re.IGNORECASE) for path in root.glob("python3*.dll"))
        minor = next((found[1] for found in names if found), None)
        return Version(f"3.{minor}") if minor else None
    # Debian's folder is `python3` for every version; there the program's real name says which.
    program = (root / "bin" / "python3").resolve().name
    named = re.match(r"python(3\.\d{1,9})\Z", site[0].parent.name) or re.match(r"python(3\.\d{1,9})\Z", program)
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
