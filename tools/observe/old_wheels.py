"""Regenerates `torch/old_wheels.json`: the GPU code inside the Linux wheels of torch 1.0 to 1.9 of the package index.

    python -m tools.observe old_wheels

Releases before 1.10 are in no other table: PyTorch's scripts of that time are gone. The wheels are read by ranges; only
the compiled files come over, which is most of each. Targets are counted per container, as in `torch_wheels`: a
container holds one kernel file, and the code that some of them have for a card says nothing about the others. A file on
the index never changes, so a wheel that the table has a row of is not opened again; delete the table to open them all.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from rekindle.formats.archive import Archive
from rekindle.formats.binary import codes, is_binary
from rekindle.formats.package import Wheel
from rekindle.formats.remote import Remote
from rekindle.knowledge.gpu import capabilities
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from tools.observe import table, web
from tools.observe.library_code import covers

SOURCE = "fatbin headers of every library in the wheel of the package index, read by ranges"
# The wheels of that time bring the runtime with a name of their own: `libcudart-1b201d85.so.10.0`.
_RUNTIME = re.compile(r"/libcudart-[0-9a-f]+\.so\.(\d+\.\d+)")
_FIRST, _BEFORE = Version("1.0"), Version("1.10")


def observe() -> dict[str, list[dict[str, Any]]]:
    listed, rows = web.wheels("torch"), []
    known = (
        {one["wheel"]: one for one in table.read("old_wheels")["wheels"]} if table.place("old_wheels").exists() else {}
    )
    every = {str(capability) for capability in capabilities.known()}
    for name, url in wanted(listed):
        if name in known and set(known[name]["coverage"]) == every:
            rows.append(known[name] | {"pythons": pythons(name, listed)})
            continue
        print(f"reading {name}", file=sys.stderr, flush=True)
        web.reach(url)
        # Without the tape: a wheel's ranges are as large as the wheel.
        rows.append(row(name, Archive(Remote(url), headers=False), pythons(name, listed)))
    return {"wheels": rows}


def wanted(listed: list[tuple[str, str, bool]]) -> list[tuple[str, str]]:
    """The last patch of every minor release, for its newest Python on Linux x86_64."""
    best: dict[tuple[int, ...], tuple[tuple[Version, int], str, str]] = {}
    for name, url, withdrawn in listed:
        _, version, _, tags = parse_wheel_filename(name)
        if withdrawn or version.local or version.pre or not _FIRST <= version < _BEFORE or not _is_linux(tags):
            continue
        rank = (version, max(_python(tag) for tag in tags))
        best[version.release[:2]] = max(best.get(version.release[:2], (rank, name, url)), (rank, name, url))
    return [(name, url) for _, (_, name, url) in sorted(best.items())]


def pythons(name: str, listed: list[tuple[str, str, bool]]) -> list[str]:
    """Every Python 3 that the same release has a Linux wheel for."""
    version = parse_wheel_filename(name)[1]
    same = [parse_wheel_filename(other)[3] for other, _, bad in listed if not bad and f"torch-{version}-" in other]
    found = {_python(tag) for tags in same if _is_linux(tags) for tag in tags}
    return [f"3.{minor}" for minor in sorted(found) if minor >= 0]


def row(name: str, archive: Archive, found_pythons: list[str]) -> dict[str, Any]:
    package = Wheel(archive)
    # Everything else in a wheel is read member by member, each one a request.
    package.files = {each: size for each, size in package.files.items() if is_binary(each) or ".dist-info/" in each}
    binaries = read_binaries(package)
    code = codes(binaries)
    known = identity.identify(package, binaries)
    runtime = next((match[1] for each in archive.members if (match := _RUNTIME.search(each))), None)
    return {
        "version": str(parse_wheel_filename(name)[1]),
        "wheel": name,
        "system": "linux",
        "machine": "x86_64",
        "pythons": found_pythons,
        "cuda": str(known.cuda) if known.cuda else runtime,
        "glibc": known.glibc and str(known.glibc),
        "gpu_code": table.gpu_code(code),
        "coverage": {str(c): covers(code, c).value for c in capabilities.known()},
        "source": SOURCE,
        "observed_at": table.today(),
        "evidence": "binary",
    }


def _is_linux(tags: frozenset[Tag]) -> bool:
    return any("linux" in tag.platform and tag.platform.endswith("x86_64") for tag in tags)


def _python(tag: Tag) -> int:
    """The minor version of Python 3 that a tag names; -1 for Python 2."""
    return int(tag.interpreter[3:]) if tag.interpreter.startswith("cp3") and tag.interpreter[3:].isdigit() else -1
