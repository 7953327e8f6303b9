"""Regenerates `torch/architecture_lists.json`: what TORCH_CUDA_ARCH_LIST may hold, by release.

    python -m tools.observe architecture_lists CLONE

CLONE is a clone of pytorch/pytorch with its tags. Two programs read the list: an extension's build
(`torch/utils/cpp_extension.py`, which refuses every number that is not in its own list) and PyTorch's own build
(`select_compute_arch.cmake`). Each knows its own names of architectures.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from tools.observe import table
from tools.observe.pytorch_tree import git, tag_of

_NAMES = re.compile(r"named_arches = collections\.OrderedDict\(\[(.*?)\]\)", re.DOTALL)
_LIST = re.compile(r"supported_arches = \[(.*?)\]", re.DOTALL)
_CMAKE = re.compile(r"arch_name\} STREQUAL \"(\w[\w+]*)\"\)\s*set\(arch_bin ([\d. ]+)\)")
_EXTENSION = "torch/utils/cpp_extension.py"
_BUILD = "cmake/Modules_CUDA_fix/upstream/FindCUDA/select_compute_arch.cmake"


def observe(clone: str) -> dict[str, list[dict[str, Any]]]:
    rows = []
    for minor in [row["minor"] for row in table.read("torch_releases")["releases"]]:
        tag = tag_of(minor)
        text = git(clone, "show", f"{tag}:{_EXTENSION}")
        names, listed = _NAMES.search(text), _LIST.search(text)
        if names is None or listed is None:
            continue
        row = {
            "minor": minor,
            "extension": re.findall(r"'([^']+)'", listed[1]),
            "extension_names": dict(re.findall(r"\(\s*'([^']+)',\s*'([^']+)'\s*\)", names[1])),
            "build_names": build_names(git(clone, "show", f"{tag}:{_BUILD}")),
        }
        source = f"pytorch/pytorch {tag}: {_EXTENSION}, {_BUILD}"
        rows.append(row | {"source": source, "observed_at": table.today(), "evidence": "script"})
    print("releases read:", *(row["minor"] for row in rows), file=sys.stderr)
    return {"releases": rows}


def build_names(text: str) -> dict[str, str]:
    """Name -> numbers, as CMake sets them. A name brings PTX only where `+PTX` stands behind it."""
    found = {}
    for name, binary in _CMAKE.findall(text):
        found[name] = ";".join(dict.fromkeys(binary.split()))
    return found
