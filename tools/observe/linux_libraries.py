"""Regenerates `cuda/linux_libraries.json`: which package of the index holds a Linux library, for which processor.

Only the directory at the end of each wheel is read (two requests for ranges), never the wheel. Of NVIDIA's packages all
versions that belong to a CUDA toolkit of the tables are listed, of cuDNN and NCCL every one, of MKL the last of each
year. Where a version has several wheels for one processor, the last build with the newest tag counts.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urljoin

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web
from tools.observe.web import Links

COMPONENTS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse", "nvfatbin", "nvjitlink", "nvjpeg",
    "nvrtc", "nvtx",
)  # fmt: skip
# Their versions are their own, not those of a toolkit.
WHOLE = (
    "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu11", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "nvidia-cusparselt-cu12", "nvidia-cusparselt-cu13", "mkl", "intel-openmp",
)  # fmt: skip
YEARLY = ("mkl", "intel-openmp")
LIBRARY = re.compile(r"/lib(?!omptarget|ompdevice|OpenCL)[^/]+\.so(\.[\d.]+)?$")
MACHINE = re.compile(r"linux.*_(x86_64|aarch64)$")


def observe(names: list[str]) -> dict[str, list[dict[str, Any]]]:
    wanted = _wanted()
    links = [link for name in sorted(wanted) if not names or name in names for link in _chosen(name, wanted[name])]
    with ThreadPoolExecutor(4) as pool:
        rows = [row for row in pool.map(_row, links) if row]
    return {"wheels": sorted(rows, key=lambda row: (row["package"], row["wheel"]))}


def _wanted() -> dict[str, set[str] | None]:
    """The packages, and which versions of them; None for all."""
    found: dict[str, set[str] | None] = dict.fromkeys(WHOLE)
    for toolkit in table.read("toolkit_packages")["toolkits"]:
        for component in COMPONENTS:
            for pin in toolkit["components"].get(component, []):
                exact = re.fullmatch(r"([\w-]+)==([\w.*]+)", pin)
                if exact is None:  # `nvidia-nvjitlink-cu12<13,>=12.8.93` names no version
                    continue
                package, version = exact[1], exact[2]
                if package.endswith("-cu11"):
                    found[package] = None
                else:
                    versions = found.setdefault(package, set())
                    if versions is not None and "rc" not in version:
                        versions.add(version.removesuffix(".*"))
    return found


def _chosen(package: str, versions: set[str] | None) -> list[tuple[str, str, str, str, bool]]:
    found: dict[tuple[str, str], tuple[str, str, str, str, bool]] = {}
    for link in sorted(_links(package, versions), key=lambda link: (Version(link[1]), _order(link[2]))):
        machine = next(match[1] for tag in parse_wheel_filename(link[2])[3] if (match := MACHINE.search(tag.platform)))
        found[link[1].split(".")[0] if package in YEARLY else link[1], machine] = link
    return list(found.values())


def _order(name: str) -> tuple[object, ...]:
    """manylinux1 < manylinux2014 < manylinux_2_28; then the build number."""
    parsed = parse_wheel_filename(name)
    tag = max(tag.platform for tag in parsed[3])
    return "_2_" in tag, tag, parsed[2]


def _links(package: str, versions: set[str] | None) -> list[tuple[str, str, str, str, bool]]:
    """Package, version, file name, address and whether it was withdrawn, of each Linux wheel."""
    page = f"{web.index_url()}/{package}/"
    reader = Links()
    reader.feed(web.page(page).decode())
    found = []
    for href, yanked in reader.found:
        name = href.rpartition("/")[2]
        try:
            version, tags = (parsed := parse_wheel_filename(name))[1], parsed[3]
        except InvalidWheelFilename:
            continue
        fits = versions is None or any(f"{version}.".startswith(f"{one}.") for one in versions)
        if fits and any(MACHINE.search(tag.platform) for tag in tags):
            found.append((package, str(version), name, urljoin(page, href), yanked))
    return found


def _row(link: tuple[str, str, str, str, bool]) -> dict[str, Any] | None:
    package, version, name, url, yanked = link
    archive = web.archive(url)
    files = {
        path: [member.size, f"{member.crc:08x}"]
        for path, member in sorted(archive.members.items())
        if LIBRARY.search(f"/{path}") and "/stubs/" not in path and member.size > 1000
    }
    if not files:
        return None
    print(name, len(files), file=sys.stderr)
    return {
        "wheel": name,
        "package": package,
        "version": version,
        "size": archive.source.size,
        "yanked": yanked,
        "files": files,
        "source": "listing of the Linux wheel",
        "observed_at": table.today(),
        "evidence": "binary",
    }


if __name__ == "__main__":
    table.write("linux_libraries", observe(sys.argv[1:]))
