"""Regenerates `torch/wheel_platforms.json`: the platform tag of the Linux wheel of each PyTorch release.

Read from the file names that the package index offers for the last patch of every minor release. The tag is what pip
goes by: `manylinux_2_28` is refused on a system with an older glibc.
"""

from __future__ import annotations

import re

from packaging.utils import parse_wheel_filename

from tools.observe import table, web

GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def observe() -> dict[str, list[dict[str, object]]]:
    rows: list[dict[str, object]] = []
    listed = web.wheels("torch")
    for release in table.read("torch_releases")["releases"]:
        version = max(release["patches"], key=lambda text: [int(part) for part in text.split(".")])
        for machine in ("x86_64", "aarch64"):
            found = _wheel(listed, version, machine)
            if found is None:
                continue
            name, requires = found
            tag = name.rsplit("-", 1)[-1].removesuffix(f"_{machine}.whl").split(".")[-1].removesuffix(f"_{machine}")
            rows.append(
                {
                    "minor": release["minor"],
                    "torch": version,
                    "machine": machine,
                    "tag": tag,
                    "glibc": GLIBC.get(tag) or re.sub(r"manylinux_(\d+)_(\d+)", r"\1.\2", tag),
                    "cuda": _cuda(requires, machine),
                    "source": f"{name} and its metadata on the package index",
                    "observed_at": table.today(),
                    "evidence": "binary",
                }
            )
    return {"wheels": rows}


def _wheel(listed: list[tuple[str, str, bool]], version: str, machine: str) -> tuple[str, list[str]] | None:
    """A wheel of this release, and what it requires: that for CPython 3.11, else for the newest Python it has."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for name, url, _ in listed:
        _, told, _, tags = parse_wheel_filename(name)
        if str(told) == version and any(re.fullmatch(rf"manylinux.*_{machine}", tag.platform) for tag in tags):
            python = re.search(r"-cp(\d)(\d+)-", name)
            found[(int(python[1]), int(python[2])) if python else (0, 0)] = (name, url)
    if not found:
        return None
    name, url = found.get((3, 11)) or found[max(found)]
    archive = web.archive(url)
    place = next(path for path in archive.members if re.fullmatch(r"[^/]+\.dist-info/METADATA", path))
    return name, re.findall(r"^Requires-Dist: (.*)$", archive.read(place).decode("utf-8"), re.MULTILINE)


def _cuda(requires: list[str], machine: str) -> bool:
    """Does the wheel for this machine bring CUDA libraries along? (Before 2.0 they were inside, on x86_64.)"""
    wanted = [text.replace("'", '"') for text in requires if text.startswith(("nvidia-", "cuda-"))]
    if not wanted:
        return machine == "x86_64"
    return any('platform_machine == "x86_64"' not in text or machine == "x86_64" for text in wanted)


if __name__ == "__main__":
    table.write("wheel_platforms", observe())
