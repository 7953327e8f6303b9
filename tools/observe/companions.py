"""Regenerates `torch/companions.json`: which torchvision and torchaudio can be had for which torch.

    python -m tools.observe companions

One row for each project, version, CUDA line and platform, with the Pythons it has wheels for. Read from the package
index: the file names, and in one wheel per version and platform METADATA (the torch it wants), `version.py` (the CUDA
it was built with) and the symbols of its libraries (none of torch's C++ symbols: it uses torch's stable interface and
serves newer releases too). The other CUDA lines are on PyTorch's own index, which lists them for the torch that the
project was built with; what only follows from that rule is marked `notes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from rekindle.formats import elf
from rekindle.formats.access import Buffer
from rekindle.formats.archive import Archive
from tools.observe import table, web

PROJECTS = ("torchvision", "torchaudio")
PYTHONS = [f"3.{minor}" for minor in range(6, 16)]
PLATFORM = re.compile(r"(?:(?:many)?linux.*_(x86_64|aarch64)|(win)_amd64)$")
READ = "file names on the package index; METADATA, version.py and symbols of {wheel}"
RULE = (
    "published for each CUDA line of the torch it was built with: PyTorch's page of previous versions says so up to "
    "2.9.1; the Pythons are those of the package index"
)
# What upstream's own check at import compares: torchvision the major CUDA version, torchaudio major and minor.
CUDA_CHECK = {"torchvision": "major", "torchaudio": "minor"}


def observe() -> dict[str, list[dict[str, Any]]]:
    jobs = [(project, version, wheels) for project in PROJECTS for version, wheels in _versions(project).items()]
    with ThreadPoolExecutor(4) as pool:
        found = [row for rows in pool.map(lambda job: list(_rows(*job)), jobs) for row in rows]
    return {"companions": sorted(found, key=_order)}


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["project"], Version(row["version"]), row["system"], row["machine"], row["line"]


def _versions(project: str) -> dict[str, list[tuple[str, str]]]:
    """Wheels (name, address) by version, of those that a torch of the tables can want."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, url, yanked in web.wheels(project):
        version = parse_wheel_filename(name)[1]
        if not yanked and version >= Version("0.2.2"):
            found.setdefault(str(version), []).append((name, url))
    return found


def _rows(project: str, version: str, wheels: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    platforms: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, url in wheels:
        match = next((found for tag in parse_wheel_filename(name)[3] if (found := PLATFORM.search(tag.platform))), None)
        if match:
            platforms.setdefault(("windows", "x86_64") if match[2] else ("linux", match[1]), []).append((name, url))
    reads = {place: _read(project, version, own) for place, own in sorted(platforms.items())}
    # Some wheels for aarch64 want any torch; those of the same version for x86_64 say which.
    torch = next((read["torch"] for read in reads.values() if read["torch"]), None)
    print(project, version, "torch", torch, file=sys.stderr)
    for (system, machine), read in reads.items() if torch else ():
        common = {"project": project, "version": version, "system": system, "machine": machine, **read, "torch": torch}
        yield common | _sourced(READ.format(wheel=platforms[system, machine][0][0]), "binary")
        for line in _lines(torch, read["line"]) if machine == "x86_64" else ():
            yield common | {"line": line} | _sourced(RULE, "notes")


def _read(project: str, version: str, wheels: list[tuple[str, str]]) -> dict[str, Any]:
    """What the wheels of one platform say."""
    archive = web.archive(wheels[-1][1])
    texts = {name: archive.read(name).decode("utf-8") for name in _texts(archive, project)}
    metadata = next((text for name, text in texts.items() if name.endswith("METADATA")), "")
    said = re.search(r"__version__ = '[^'+]*\+(\w+)'", texts.get(f"{project}/version.py", ""))
    line = said[1] if said else _line_of_libraries(archive)
    wanted = re.search(r"^Requires-Dist: torch ?\(?(==|>=) ?([\d.]+?)(?:\.post\d+)?\)?\s*$", metadata, re.MULTILINE)
    exact = wanted is not None and wanted[1] == "=="
    return {
        "torch": _torch(version, wanted, line),
        "torch_floor": wanted[2] if wanted and wanted[1] == ">=" else None,
        "stable": not exact and not _uses_cxx(archive),
        "line": line,
        "cuda_check": CUDA_CHECK[project],
        "pythons": _pythons(wheels, metadata),
    }


def _torch(version: str, wanted: re.Match[str] | None, line: str) -> str | None:
    """The torch it was built with: the one it names; else the newest whose wheel of the index has the same CUDA."""
    if wanted and wanted[1] == "==":
        return wanted[2]
    releases = table.read("torch_releases")["releases"]
    patches = {patch: row for row in releases for patch in row["patches"]}
    if wanted is None:
        return version if version in patches else None
    floor = Version(wanted[2])
    fitting = [
        patch
        for patch, row in patches.items()
        if Version(patch) >= floor
        and any(variant["index_default_linux"] and variant["name"] == line for variant in row["variants"])
    ]
    return max(fitting, key=Version, default=None)


def _lines(torch: str, own: str) -> list[str]:
    for row in table.read("torch_releases")["releases"]:
        if torch in row["patches"]:
            return [variant["name"] for variant in row["variants"] if variant["name"] != own]
    return []


def _texts(archive: Archive, project: str) -> list[str]:
    wanted = re.compile(rf"[^/]+\.dist-info/METADATA|{project}/version\.py")
    return [name for name in archive.members if wanted.fullmatch(name)]


def _uses_cxx(archive: Archive) -> bool:
    """Whether a library of it asks for C++ symbols of torch's, which change with every release."""
    for name, member in archive.members.items():
        if re.search(r"(torchaudio|torchvision)/.*\.so$", name) and member.size > 1000:
            wanted = elf.symbols(Buffer(archive.read(name), name)).undefined
            if any(re.match(r"_ZN?K?(2at|3c10|5torch)", symbol) for symbol in wanted):
                return True
        if re.search(r"(torchaudio|torchvision)/.*\.pyd$", name):
            data = archive.read(name)
            if re.search(rb"\?\w*@?@?(at|c10|torch)@@", data):
                return True
    return False


def _line_of_libraries(archive: Archive) -> str:
    """Old wheels name no CUDA in `version.py`: `cpu` unless a library asks for cudart."""
    for name, member in archive.members.items():
        if re.search(r"(torchaudio|torchvision)/.*\.so$", name) and member.size > 1000:
            needed = elf.read(Buffer(archive.read(name), name)).needed
            match = next((m for one in needed if (m := re.search(r"libcudart.*?\.so\.(\d+)\.(\d+)", one))), None)
            if match:
                return f"cu{match[1]}{match[2]}"
    return "cpu"


def _pythons(wheels: list[tuple[str, str]], metadata: str) -> list[str]:
    tags = {tag.interpreter for name, _ in wheels for tag in parse_wheel_filename(name)[3]}
    if "py3" in tags:
        said = re.search(r"^Requires-Python: (.+)$", metadata, re.MULTILINE)
        allowed = SpecifierSet(said[1].strip() if said else "")
        return [python for python in PYTHONS if any(f"{python}.{patch}" in allowed for patch in range(8))]
    return [python for python in PYTHONS if f"cp{python.replace('.', '')}" in tags]


def _sourced(source: str, evidence: str) -> dict[str, str]:
    return {"source": source, "observed_at": table.today(), "evidence": evidence}


if __name__ == "__main__":
    table.write("companions", observe())
