"""NVIDIA's wheels of the Python index: a whole toolkit from 13.0 on, cuDNN and NCCL of every CUDA, Intel's MKL.

pip asks and downloads, so that a mirror, proxy, certificates and credentials hold that the user has set for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec

from rekindle.compat.library_card import named_cudnn
from rekindle.core import fetch as fetching
from rekindle.core import files, python
from rekindle.core.errors import FetchFailed, NotFound
from rekindle.core.run import Result, call
from rekindle.core.untrusted import PipRequirement, PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.knowledge.cuda import library_packages
from rekindle.knowledge.cuda.toolchains import IndexSet, index_sets
from rekindle.model.platform import Platform
from rekindle.toolchain.model import FoundOffering, Part, ProviderSettings, ToolSpec, offered

NAME = "index"
GROUP = 1


def find(wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
    row = next((row for row in index_sets() if row.tool == wanted.name and row.serves(wanted.version)), None)
    if row is None:
        return FoundOffering(why=f"the Python index has no complete {wanted}")
    try:
        pins, release = _pins(row, wanted, place, settings)
    except NotFound as none:
        return FoundOffering(why=none.message)
    try:
        parts, absent = _ask(pins, place)
    except FetchFailed as error:
        return FoundOffering(why=error.message, silent=True)
    leading = next((part for part in parts if re.fullmatch(row.main, part.name)), None)
    if leading is None:
        return FoundOffering(why=f"the index has no {pins[0]} for {place.system} on {place.arch}")
    return offered(
        NAME,
        wanted,
        place,
        settings,
        version=Version.find(leading.version) or row.first,
        release=release,
        variant=_variant(row, settings),
        layout=row.layout,
        parts=tuple(msgspec.structs.replace(part, licence=row.licence) for part in parts),
        gone=tuple(absent),
    )


def fetch(parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
    """Download one wheel. pip has no half a wheel: what it has begun, it begins again."""
    (part,) = parts
    named = re.fullmatch(r"index:([A-Za-z0-9][\w.-]*)==([\w.+!-]+)", part.origin, re.ASCII)
    if named is None or part.file.count("-") < 4:
        raise FetchFailed(f"`{part.origin[:100]}` names no package of an index", hint="the manifest was changed")
    name, version = named.groups()
    words = ["download", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    said = _pip(*words, *python.for_wheel(part.file), f"{name}=={version}", timeout=3600)
    found = folder / part.file
    if not said.ok or not found.is_file():
        tail = (said.err.strip() or "pip said nothing").splitlines()[-1]
        message = f"pip could not download `{name}=={version}`: {fetching.setting_behind(said.err + said.out) or tail}"
        raise FetchFailed(message, hint="check pip's index and proxy, then rerun the command")
    return [found]


def _pins(
    row: IndexSet, wanted: ToolSpec, place: Platform, settings: ProviderSettings
) -> tuple[list[str], Version | None]:
    """What pip is asked for, the package that names the version first, and the toolkit's own release number."""
    if wanted.name == "cuda":
        release, components = _toolkit(wanted)
        names = [name for name in (components if settings.full else row.components) if name in components]
        names = [name for name in names if place.system == "linux" or name not in row.linux_only]
        return [pin for name in names for pin in components[name]], release
    number = f"=={wanted.version}.*" if wanted.version else ""
    if wanted.name == "cudnn" and wanted.version:
        known = named_cudnn(wanted.version)
        if known is not None:
            number = f"=={known}.*" if len(wanted.version.parts) < 4 else f"=={wanted.version}"
    return [f"{package}{number if not count else ''}" for count, package in enumerate(_packages(row, settings))], None


def _variant(row: IndexSet, settings: ProviderSettings) -> str:
    one = any("{cuda}" in package for package in row.packages)
    return f"cu{settings.cuda.major}" if one and settings.cuda else ""


def _packages(row: IndexSet, settings: ProviderSettings) -> list[str]:
    """`nvidia-cudnn-cu{cuda}`: which CUDA it is for must be known."""
    if any("{cuda}" in package for package in row.packages) and settings.cuda is None:
        message = f"{row.tool} of the index is made for one CUDA: say for which with `--cuda`"
        raise NotFound(message)
    major = settings.cuda.major if settings.cuda else 0
    return [package.format(cuda=major) for package in row.packages]


def _toolkit(wanted: ToolSpec) -> tuple[Version, dict[str, tuple[PipRequirement, ...]]]:
    """The newest published release of a toolkit that fits."""
    fitting = [
        (version, row.components)
        for row in library_packages.toolkit_releases()
        if (version := Version.find(row.version))
        and re.fullmatch(r"[\d.]+", row.version)
        and (wanted.version is None or version.starts_with(wanted.version))
    ]
    if not fitting:
        # Also by nvcc's own number, 13.0.88.
        for row in library_packages.toolkit_releases():
            nvcc = " ".join(row.components.get("nvcc", ()))
            if wanted.version and f"=={wanted.version}." in nvcc + ".":
                return Version.find(row.version) or wanted.version, row.components
        raise NotFound(f"CUDA {wanted.version} is not among the releases of the index")
    return max(fitting, key=lambda each: each[0])


def _ask(pins: list[str], place: Platform) -> tuple[list[Part], list[str]]:
    """What pip would take for each pin; and those that are not there for this platform."""
    found = _report(pins, place)
    if found is not None:
        return found, []
    parts: list[Part] = []
    absent: list[str] = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(lambda pin: _report([pin], place), pins))
    for pin, one in zip(pins, answers, strict=True):
        parts += one or []
        absent += [] if one else [f"{pin} (not in the index for {place.system} on {place.arch})"]
    return parts, absent


def _report(pins: list[str], place: Platform) -> list[Part] | None:
    with files.scratch("index") as empty:
        words = ["install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
        words += ["--target", str(empty), "--only-binary=:all:", *python.for_system(place.system, place.arch)]
        said = _pip(*words, *pins, timeout=900)
    if not said.ok:
        if "connection broken by" in said.err:
            # As pip says it of every try: to ask for each package apart would only take longer.
            reason = fetching.setting_behind(said.err) or "pip cannot reach it"
            raise FetchFailed(f"the Python index does not answer: {reason}", hint="check pip's index and proxy")
        return None
    wheels = python.pip_report(said.out)
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            return list(pool.map(_part, wheels))
    except (ValueError, TypeError) as error:
        raise FetchFailed("pip's report could not be read", hint="update pip: `pip install -U pip`") from error


def _part(wheel: python.PipWheel) -> Part:
    return Part(
        name=wheel.name,
        version=wheel.version,
        file=PlainFileName(wheel.file),
        size=_size(wheel.url),
        sha256=Sha256(wheel.sha256 or ""),
        origin=f"index:{wheel.name}=={wheel.version}",
    )


def _size(address: str) -> int:
    """0 where the index does not tell: the size is shown to a person, and steers nothing."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        path = Path(url2pathname(parts.path))
        return path.stat().st_size if path.is_file() else 0
    return (fetching.stated_size(address) or 0) if parts.scheme in ("http", "https") else 0


def _pip(*words: str, timeout: float) -> Result:
    return call(python.pip(sys.executable, *words), timeout=timeout)
