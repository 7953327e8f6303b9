"""The key of each table: the fields that tell one row from every other.

An overlay replaces the row with the same key and adds the others; a script in `tools/observe/` compares old and new
rows by it. A table's name is its path below `knowledge/` without the ending, a list's name is the one in the file. A
file in a folder that holds one file per entry goes by the folder's name and `*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Key = tuple[str, ...]

_PROFILE_CONDITIONS = (
    *("profile", "name", "system", "arch", "compilers", "cuda", "cudnn", "mkl", "cuda_below", "all_below"),
    *("any_below", "targets_from", "first", "last"),
)

KEYS: dict[str, dict[str, Key]] = {
    "builds/checks": {"known_bad": ("program", "versions", "os")},
    "builds/extension_builds": {
        "project": ("name",),
        "setting": ("project", "name", "since", "before"),
        "own_targets": ("project", "since", "before"),
    },
    "builds/profiles": {"settings": _PROFILE_CONDITIONS},
    "builds/programs": {
        "release": ("program", "version", "systems", "machine", "evidence"),
        "portable": ("program", "system", "first"),
    },
    "builds/review": {
        "pin": ("package", "versions", "system"),
        "least_python": ("package",),
        "switch": ("name",),
        "renamed": ("old",),
        "pins_torch": ("packages",),
        "needs_torch": ("packages",),
        "asks_torch": ("package",),
        "on_index": ("packages",),
        "numpy_one": ("packages",),
        "numpy_any": ("packages",),
        "numpy_two": ("packages",),
        "torch_alone": ("packages",),
        "cuda_default": ("programs", "from_cuda"),
        "cog_torch": ("first",),
        "image_installer": ("name",),
        "image_lacks": ("image",),
        "line": ("rule", "pattern"),
        "extension": ("name",),
        "outside": ("name",),
        "submodules": ("repository",),
    },
    "builds/sweeps": {"sweeps": ("torch", "cuda", "capability")},
    "cuda/c_libraries": {"limit": ("glibc", "cuda_before")},
    "cuda/cudnn": {"releases": ("version",), "families": ("first", "last", "cuda")},
    "cuda/cudnn_parts": {"parts": ("major",)},
    "cuda/dlls": {"wheels": ("wheel",)},
    "cuda/early_targets": {"row": ("target",)},
    "cuda/host_compilers": {"cuda": ("cuda",), "toolsets": ("toolset",), "stl": ("first_toolset",)},
    "cuda/library_hashes": {"wheels": ("wheel",)},
    "cuda/linux_libraries": {"wheels": ("wheel",)},
    "cuda/mathlibs": {"libraries": ("package", "version", "library")},
    "cuda/redistrib_lists": {"lists": ("product", "release")},
    "cuda/system_symbols": {"libraries": ("name",)},
    "cuda/toolchains": {"msvc": ("toolset",)},
    "cuda/toolkit_packages": {"toolkits": ("version",)},
    "cuda/toolkits": {"toolkits": ("version",)},
    "gpu/capabilities": {"capability": ("capability",)},
    "gpu/chips": {"chips": ("name",)},
    "gpu/driver_branches": {"branches": ("name",), "newest": ("branch",)},
    "gpu/driver_lists": {"cards": ("pci_id",)},
    "gpu/families": {"family": ("base",)},
    "gpu/jetson": {"board": ("chip",), "jetpack": ("version",), "l4t": ("jetpack",), "release": ("l4t",)},
    "gpu/names": {"alias": ("said",)},
    "gpu/gpus": {"gpus": ("name", "capability", "chip")},
    "gpu/launch_limits": {"limits": ("capability",), "own_kernels": ("card", "first")},
    "gpu/throughput": {"rates": ("capability",)},
    "logs/extension_homes": {"home": ("package",), "wheel": ("package", "version")},
    "logs/import_names": {"row": ("name",)},
    "logs/log_lines": {"row": ("kind", "tool", "match"), "word": ("means",), "fact": ("name",)},
    "logs/python_names": {"row": ("package", "name")},
    "logs/system_packages": {"row": ("package", "kind")},
    "torch/aarch64_lines": {"line": ("minor", "variant")},
    "torch/companions": {"companions": ("project", "version", "line", "system", "machine")},
    "torch/conda_extensions": {"packages": ("package", "system", "machine")},
    "torch/conda_forge": {"builds": ("torch", "system", "machine", "cuda")},
    "torch/architecture_lists": {"releases": ("minor",)},
    "torch/early_releases": {"release": ("below",), "line": ("below", "cudas")},
    "torch/old_lines": {"line": ("torch", "variant", "system")},
    "torch/field_reports": {"reports": ("report", "card")},
    "torch/old_wheels": {"wheels": ("wheel",)},
    "torch/option_parents": {"parent": ("name",)},
    "torch/option_verdicts": {"verdicts": ("name",)},
    "torch/patches/*": {},
    "torch/printed_lists": {"report": ("torch", "variant", "system")},
    "torch/projects": {"image": ("tag",), "image_python": ("first",)},
    "torch/setup_py": {"forwarded": ("name",), "requirements": ("name", "first", "last", "mkl")},
    "torch/source": {"size": ("torch",)},
    "torch/torch_options": {"options": ("name",)},
    "torch/torch_releases": {"releases": ("minor",)},
    "torch/torch_wheels": {"wheels": ("wheel",)},
    "torch/torch_wheels_aarch64": {"wheels": ("wheel",)},
    "torch/upstream_builds": {"builds": ("minor", "cuda")},
    "torch/triton_targets": {"row": ("target",)},
    "torch/line_platforms": {"wheels": ("minor", "machine", "line")},
    "torch/variant_providers": {"provider": ("name",)},
    "torch/visual_runtime": {"library": ("name",)},
    "torch/wheel_platforms": {"wheels": ("minor", "machine")},
}
"""Rows that have an `id` are told apart by it. Another list that is not named here is replaced as a whole."""


def of_table(relative: str, table: Mapping[str, Any]) -> dict[str, Key]:
    """The keys of the lists in a file, from its path below `knowledge/`: `gpu/gpus.json`."""
    stem = relative.rpartition(".")[0]
    named = {name: ("id",) for name, rows in table.items() if isinstance(rows, list) and _have_ids(rows)}
    return {**named, **(KEYS.get(stem) or KEYS.get(f"{stem.rpartition('/')[0]}/*") or {})}


def _have_ids(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, dict) and "id" in row for row in rows)


def value(row: Mapping[str, Any], key: Key) -> tuple[Any, ...]:
    """What tells this row from the others; a list counts by its members, a field that is not there as None."""
    return tuple(_hashable(row.get(field)) for field in key)


def words(row: Mapping[str, Any], key: Key) -> str:
    """The key as a person reads it: `name GT 730, capability 3.5`."""
    return ", ".join(f"{field} {row[field]}" for field in key if row.get(field) is not None)


def _hashable(part: Any) -> Any:
    return tuple(_hashable(one) for one in part) if isinstance(part, list) else part
