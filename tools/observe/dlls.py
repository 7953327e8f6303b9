"""Regenerates `cuda/dlls.json`: which wheel of the index holds a Windows DLL.

    python -m tools.observe dlls

Only the directory at the end of each wheel is read. Listed are the versions that the table has, and every newer one of
the same packages: a wheel that an older build was made with stays a provider.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

_DLL = re.compile(r"(?i)\.dll$")


def observe() -> dict[str, list[dict[str, Any]]]:
    known = table.read("dlls")["wheels"] if table.place("dlls").exists() else []
    packages = sorted({row["package"] for row in known}) or list(PACKAGES)
    jobs = [job for package in packages for job in _wanted(package, known)]
    with ThreadPoolExecutor(4) as pool:
        rows = [row for row in pool.map(lambda job: _row(*job), jobs) if row]
    return {"wheels": sorted(rows, key=lambda row: (row["package"], Version(row["version"]), row["wheel"]))}


PACKAGES = (
    *("intel-openmp", "mkl", "tbb", "umf", "tcmlib", "msvc-runtime"),
    *(f"nvidia-{name}-cu11" for name in ("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse")),
    *(f"nvidia-{name}-cu12" for name in ("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvjitlink")),
    *(f"nvidia-cuda-{name}-{line}" for line in ("cu11", "cu12") for name in ("cupti", "nvrtc", "runtime", "nvcc")),
    *(f"nvidia-{name}" for name in ("cublas", "cufft", "curand", "cusolver", "cusparse", "nvjitlink", "nvfatbin")),
    *("nvidia-cuda-cupti", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-cudnn-cu13"),
)


def _wanted(package: str, known: list[dict[str, Any]]) -> list[tuple[str, str, str, bool]]:
    """Wheels to list: those of the table, and one of each version that is newer than all of them."""
    own = {row["wheel"] for row in known if row["package"] == package}
    newest = max((Version(row["version"]) for row in known if row["package"] == package), default=Version("0"))
    found: dict[str, tuple[str, str, str, bool]] = {}
    for name, url, yanked in web.wheels(package):
        _, version, _, tags = parse_wheel_filename(name)
        if name in own:
            found[name] = (package, name, url, yanked)
        elif version > newest and any(tag.platform == "win_amd64" for tag in tags):
            found[str(version)] = (package, name, url, yanked)
    return list(found.values())


def _row(package: str, name: str, url: str, yanked: bool) -> dict[str, Any] | None:
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
