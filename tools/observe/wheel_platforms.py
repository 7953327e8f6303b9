"""Regenerates `torch/wheel_platforms.json`: the platform tag of the Linux wheel of each PyTorch release.

Read from the file names that the package index offers for the last patch of every minor release. The tag is what pip
goes by: `manylinux_2_28` is refused on a system with an older glibc.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile

from tools.observe import index, table

TAGS = (
    "manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28",
    "manylinux_2_31", "manylinux_2_34", "manylinux_2_35",
)  # fmt: skip
GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def observe() -> dict[str, list[dict[str, object]]]:
    rows: list[dict[str, object]] = []
    for release in table.read("torch_releases")["releases"]:
        version = max(release["patches"], key=lambda text: [int(part) for part in text.split(".")])
        for machine in ("x86_64", "aarch64"):
            found = _wheel(version, machine, "3.9" if version < "2" else "3.11")
            if found is None:
                continue
            name, requires = found
            if "+cpu" in name or "%2Bcpu" in name:  # a wheel of a local folder that pip is told to look into
                continue
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


def _wheel(version: str, machine: str, python: str) -> tuple[str, list[str]] | None:
    index.reach(f"torch {version}")
    platforms = [word for tag in TAGS for word in ("--platform", f"{tag}_{machine}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [*index.PIP, "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
        command += ["--target", folder, "--only-binary=:all:", "--python-version", python, *platforms]
        done = subprocess.run([*command, f"torch=={version}"], capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        return None
    item = json.loads(done.stdout)["install"][0]
    return item["download_info"]["url"].rsplit("/", 1)[-1], item["metadata"].get("requires_dist", [])


def _cuda(requires: list[str], machine: str) -> bool:
    """Does the wheel for this machine bring CUDA libraries along? (Before 2.0 they were inside, on x86_64.)"""
    wanted = [text for text in requires if text.startswith(("nvidia-", "cuda-"))]
    if not wanted:
        return machine == "x86_64"
    return any('platform_machine == "x86_64"' not in text or machine == "x86_64" for text in wanted)


if __name__ == "__main__":
    table.write("wheel_platforms", observe())
