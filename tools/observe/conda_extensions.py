"""Regenerates `torch/conda_extensions.json` from clones of conda-forge's feedstocks of packages built on PyTorch.

    python -m tools.observe.conda_extensions FOLDER

Each folder in FOLDER that holds a feedstock is read: the version of its recipe, and the variants that it builds on its
main branch (`.ci_support`). Nothing was read off the packages themselves, so the evidence is `script`. A recipe that
does not say for which PyTorch it is built has no row; no Pythons: one file serves all.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.observe import table
from tools.observe.conda_forge import PLATFORMS, git, lists, minor

_VERSION = re.compile(r'^\s*(?:\{% set version = |version: )"?(\d[\w.]*)"?', re.MULTILINE)
_NAME = re.compile(r"conda-forge/([\w.-]+)-feedstock")
_OURS = {"nvidia-apex": "apex", "tiny-cuda-nn": "tinycudann"}
"""What pip's world calls it, where that is another name; `pytorch_scatter` is torch-scatter."""
_LISTS = re.compile(r'TORCH_CUDA_ARCH_LIST\s*[=:]\s*"?([\d.]+(?:;[\d.]+)*(?:\+PTX)?)')


def observe(folder: str) -> dict[str, list[dict[str, object]]]:
    found = [row for clone in sorted(Path(folder).iterdir()) for row in _of(clone)]
    if not found:
        raise SystemExit(f"`{folder}` holds no clone of a feedstock")
    return {"packages": found}


def _of(clone: Path) -> list[dict[str, object]]:
    able = (each for each in (clone, clone / "repo") if (each / "HEAD").exists() or (each / ".git").exists())
    place = next(map(str, able), "")
    listed = git(place, "ls-tree", "-r", "--name-only", "HEAD").split("\n") if place else []
    recipe = next((name for name in listed if name in ("recipe/recipe.yaml", "recipe/meta.yaml")), None)
    if recipe is None:
        return []
    text = git(place, "show", f"HEAD:{recipe}")
    version, named = _VERSION.search(text), _NAME.search(git(place, "show", "HEAD:README.md"))
    if version is None or named is None:
        raise SystemExit(f"`{place}` says no version, or not whose feedstock it is")
    commit = git(place, "rev-parse", "--short=12", "HEAD").strip()
    variants: dict[tuple[str, str], list[dict[str, list[str]]]] = {}
    for name in listed:
        platform = next((key for key in PLATFORMS if name.startswith(f".ci_support/{key}_")), None)
        variant = lists(git(place, "show", f"HEAD:{name}")) if platform else {}
        cuda = variant.get("cuda_compiler_version", ["None"])[0]
        if platform and cuda != "None" and variant.get("arm_variant_type") != ["tegra"]:
            variants.setdefault(PLATFORMS[platform], []).append(variant)
    named_lists = _LISTS.findall(text)
    return [
        {
            "package": _OURS.get(named[1], named[1].replace("pytorch_", "torch-").replace("_", "-")),
            "name": named[1],
            "version": version[1],
            "system": system,
            "machine": machine,
            "torch": torch,
            "cuda": _all(each, "cuda_compiler_version"),
            "pythons": [] if each[0].get("is_python_min") else _all(each, "python"),
            "arch_list": named_lists[0] if len(set(named_lists)) == 1 else None,
            "source": f"conda-forge/{named[1]}-feedstock {commit}: {recipe} and .ci_support",
            "observed_at": table.today(),
            "evidence": "script",
        }
        for (system, machine), each in variants.items()
        if (torch := _all(each, "pytorch") or _all(each, "libtorch"))
    ]


def _all(variants: list[dict[str, list[str]]], key: str) -> list[str]:
    told = {text.split(".*")[0] for variant in variants for text in variant.get(key, [])}
    return sorted(told, key=lambda text: (int(text.split(".")[0]), minor(text)))


if __name__ == "__main__":
    table.write("conda_extensions", observe(sys.argv[1]))
