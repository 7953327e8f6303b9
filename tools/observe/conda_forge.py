"""Regenerates `torch/conda_forge.json` from a clone of conda-forge's feedstock of PyTorch.

    python -m tools.observe.conda_forge CLONE

Read from the recipe of each release branch: the variants it builds (`.ci_support`) and the architecture list that its
build script sets for each CUDA. Nothing was read off the packages themselves, so the evidence is `script`.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tools.observe import table

BRANCHES = ("v2.4.x", "v2.5.x", "v2.6.x", "v2.7.x", "v2.8.x", "v2.9.x", "v2.10.x", "v2.11.x", "v2.12.x", "main")
PLATFORMS = {"win_64": ("windows", "x86_64"), "linux_64": ("linux", "x86_64"), "linux_aarch64": ("linux", "aarch64")}


def observe(clone: str) -> dict[str, list[dict[str, object]]]:
    rows: dict[tuple[str, ...], dict[str, object]] = {}
    for branch in BRANCHES:
        torch = re.search(r'set version = "([\d.]+)"', git(clone, "show", f"{branch}:recipe/meta.yaml"))
        commit = git(clone, "rev-parse", "--short=12", branch).strip()
        for name in git(clone, "ls-tree", "--name-only", branch, ".ci_support/").split():
            platform = next((key for key in PLATFORMS if name.startswith(f".ci_support/{key}_")), None)
            if platform is None or torch is None:
                continue
            variant = lists(git(clone, "show", f"{branch}:{name}"))
            cuda = variant.get("cuda_compiler_version", ["None"])[0]
            if cuda == "None" or variant.get("arm_variant_type") == ["tegra"]:
                continue
            system, machine = PLATFORMS[platform]
            rows[torch[1], system, machine, cuda] = {
                "torch": torch[1],
                "system": system,
                "machine": machine,
                "cuda": cuda,
                "arch_list": _arch_list(clone, branch, system, machine, cuda),
                "cudnn": variant.get("cudnn", [None])[0],
                "pythons": sorted((text.split(".*")[0] for text in variant.get("python", [])), key=minor),
                "glibc": _glibc(variant, cuda) if system == "linux" else None,
                "source": f"conda-forge/pytorch-cpu-feedstock {commit}: .ci_support and the build script",
                "observed_at": table.today(),
                "evidence": "script",
            }
    return {"builds": list(rows.values())}


def _glibc(variant: dict[str, list[str]], cuda: str) -> str | None:
    """Its own, or that of CUDA's libraries: libcurand-feedstock and libcublas-feedstock ask for 2.28 from 12.9 on."""
    own = variant.get("c_stdlib_version", [None])[0]
    return "2.28" if own == "2.17" and tuple(map(int, cuda.split("."))) >= (12, 9) else own


def _arch_list(clone: str, branch: str, system: str, machine: str, cuda: str) -> str:
    """The list that the build script sets for this CUDA major, told by the oldest card it begins with."""
    script = "recipe/bld.bat" if system == "windows" else "recipe/build.sh"
    lists = re.findall(r'TORCH_CUDA_ARCH_LIST="?([\d.;+PTX]+)"', git(clone, "show", f"{branch}:{script}"))
    oldest = {"11": "3.5", "12": "5.0", "13": "7.5"}[cuda.split(".", maxsplit=1)[0]]
    of_major = [text for text in lists if text.startswith(oldest) and len(text.split(";")) > 6]
    of_machine = [text for text in of_major if ("8.7" in text) == (machine == "aarch64")]
    return (of_machine or of_major)[-1]


def lists(text: str) -> dict[str, list[str]]:
    """The flat lists of a variant file: `key:` and the `- value` lines under it."""
    found: dict[str, list[str]] = {}
    key = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith((" ", "-")):
            key = line[:-1]
            found[key] = []
        elif line.startswith("- ") and key:
            found[key].append(line[2:].strip().strip("'\""))
        elif not line.startswith(" "):
            key = ""
    return found


def minor(text: str) -> int:
    return int(text.split(".")[1])


def git(clone: str, *words: str) -> str:
    return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    table.write("conda_forge", observe(sys.argv[1]))
