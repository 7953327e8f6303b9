"""Regenerates `cuda/dlls.json`: which wheel of the index holds a Windows DLL.

    python -m tools.observe dlls

Only the directory at the end of each wheel is read. Of each version of a package the wheel that the index lists last is
taken: those for other Pythons hold the same libraries. A file on the index never changes, so a wheel that the table has
is not read again; delete the table to read them all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

_DLL = re.compile(r"(?i)\.dll$")


def observe() -> dict[str, list[dict[str, Any]]]:
    current = table.read("dlls")["wheels"] if table.place("dlls").exists() else []
    known = {row["wheel"]: row for row in current}
    packages = sorted({*PACKAGES, *(row["package"] for row in current)})
    with ThreadPoolExecutor(4) as pool:
        jobs = [job for wanted in pool.map(lambda package: _wanted(package, known), packages) for job in wanted]
        rows = [row for row in pool.map(lambda job: _kept(known, job) or _row(*job), jobs) if row]
    return {"wheels": sorted(rows, key=lambda row: (row["package"], Version(row["version"]), row["wheel"]))}


PACKAGES = (
    *("intel-openmp", "mkl", "tbb", "umf", "tcmlib", "msvc-runtime"),
    *(f"nvidia-{name}-cu11" for name in ("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse")),
    *(f"nvidia-{name}-cu12" for name in ("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvjitlink")),
    *(f"nvidia-cuda-{name}-{line}" for line in ("cu11", "cu12") for name in ("cupti", "nvrtc", "runtime", "nvcc")),
    *(f"nvidia-{name}" for name in ("cublas", "cufft", "curand", "cusolver", "cusparse", "nvjitlink", "nvfatbin")),
    *("nvidia-cusparselt-cu12", "nvidia-cusparselt-cu13", "nvidia-nvfatbin-cu12"),
    *("cupy-cuda117", "cupy-cuda11x", "cupy-cuda12x", "torch"),
    *("nvidia-cuda-cupti", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-cudnn-cu13"),
)


Job = tuple[str, str, str, bool, tuple[str, ...]]
"""Package, wheel, address, whether it was withdrawn, and the Pythons that the version has wheels for."""


def _wanted(package: str, known: Container[str]) -> list[Job]:
    """One wheel for Windows of each version: that of the table, so that one for a newer Python changes nothing."""
    found: dict[Version, tuple[str, str, bool]] = {}
    pythons: dict[Version, set[str]] = {}
    for name, url, yanked in web.wheels(package):
        _, version, _, tags = parse_wheel_filename(name)
        fitting = [tag for tag in tags if tag.platform == "win_amd64"]
        pythons.setdefault(version, set()).update(tag.interpreter for tag in fitting)
        if fitting and found.get(version, ("", "", False))[0] not in known:
            found[version] = (name, url, yanked)
    return [(package, *job, _of_pythons(pythons[version])) for version, job in found.items()]


def _of_pythons(tags: set[str]) -> tuple[str, ...]:
    """The CPythons in order; none where a wheel is for all of them."""
    own = sorted((tag for tag in tags if re.fullmatch(r"cp\d+", tag)), key=lambda tag: (len(tag), tag))
    return () if any(tag.startswith("py") for tag in tags) else tuple(own)


def _kept(known: dict[str, dict[str, Any]], job: Job) -> dict[str, Any] | None:
    """The row of a wheel that was read before; only whether it was withdrawn can change."""
    row = known.get(job[1])
    return {**row, "yanked": job[3], **_pythons(job[4])} if row and "files" in row else None


def _pythons(tags: tuple[str, ...]) -> dict[str, list[str]]:
    return {"pythons": list(tags)} if tags else {}


def _row(package: str, name: str, url: str, yanked: bool, pythons: tuple[str, ...]) -> dict[str, Any] | None:
    archive = web.archive(url)
    files = {
        path: [member.size, f"{member.crc:08x}"]
        for path, member in sorted(archive.members.items())
        if _DLL.search(path) and not _left_out(package, path)
    }
    if not files:
        return None
    print(name, len(files), file=sys.stderr, flush=True)
    return {
        "wheel": name,
        "package": package,
        "version": str(parse_wheel_filename(name)[1]),
        "size": archive.source.size,
        "yanked": yanked,
        "files": files,
        **_pythons(pythons),
        "source": "listing of the win_amd64 wheel",
        "observed_at": table.today(),
        "evidence": "binary",
    }


def _left_out(package: str, path: str) -> bool:
    """Of CuPy only NVIDIA's own library counts, of torch what it brings from others; nothing for OpenCL."""
    name = path.rpartition("/")[2].lower()
    if package == "torch":
        return not name.startswith(("libiomp", "uv."))
    return "opencl" in name or (package.startswith("cupy") and "/.data/" not in path)
