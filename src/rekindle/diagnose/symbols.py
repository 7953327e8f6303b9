"""Whose the things are that a log misses: a linker's names, told from themselves, headers and libraries, by package."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.core.regex import re2
from rekindle.diagnose.facts import present
from rekindle.knowledge.cuda.library_packages import providers
from rekindle.knowledge.logs.extension_homes import package_of
from rekindle.model.platform import LINUX

_UNRESOLVED = re2.compile(r"LNK20(?:01|19)\b|undefined reference|undefined symbol")
# The first that fits decides. Libraries by the name that both linkers know them by; a group is that name.
_OWNERS: tuple[tuple[re2._Regexp, str], ...] = tuple(
    (re2.compile(pattern), library)
    for pattern, library in (
        (r"c10::cuda::|@cuda@c10@", "c10_cuda"),
        (r"\bTHP(?:Variable|Engine|Module|Stream)\w*|torch::PyWarning|torch::python", "torch_python"),
        (r"at::cuda::|@cuda@at@", "torch_cuda"),
        (r"\b(?:__imp_)?(cublasLt|cublas|cudnn|cusparse|cusolver|curand|cufft|nvrtc|nccl)[A-Z]\w+", ""),
        (r"\b(?:__imp_)?(?:__)?cuda[A-Z]\w+", "cudart"),
        (r"\b(?:__imp_)?cu(?:Init|Ctx|Device|Module|Mem|Launch|Stream|Event|Func|Driver)[A-Z]?\w*", "cuda"),
    )
)
# Names of torch's own libraries, where link.exe misses them.
_TORCH_OWN: tuple[tuple[re2._Regexp, str], ...] = (
    (re2.compile(r"LNK20(?:01|19)\b.*(?:\bc10::|@c10@@)"), "c10"),
    (re2.compile(r"LNK20(?:01|19)\b.*\b__imp_THC?[A-Z]\w+(?:Tensor|Storage)"), "ATen"),
    (re2.compile(r"LNK20(?:01|19)\b.*(?:\b(?:at|torch)::|@(?:at|torch)@@)"), "torch_cpu"),
)
# More packages than this are no answer.
_MOST_PACKAGES = 2


def values(said: str) -> dict[str, str]:
    """`symbol_library`, where the names tell it; `torch_import` for torch's own, which may be linked and not fit."""
    if not _UNRESOLVED.search(said):
        return {}
    for pattern, library in _OWNERS:
        if match := pattern.search(said):
            return {"symbol_library": library or match.group(1)}
    return next(({"torch_import": name} for pattern, name in _TORCH_OWN if pattern.search(said)), {})


def packages(fields: Mapping[str, str]) -> dict[str, str]:
    """The packages that bring the header or the library that is missing."""
    library, cuda = fields.get("library", ""), fields.get("library_cuda")
    names = list(dict.fromkeys(row.package for row in providers(library, LINUX))) if library else []
    return present(
        header_package=package_of(fields.get("header", ""), kind="header"),
        cmake_package=package_of(fields.get("package", ""), kind="cmake"),
        system_package=package_of(library, kind="system"),
        library_package=package_of(library, kind="library"),
        library_cuda_dotted=cuda and (cuda if "." in cuda else f"{cuda}.0"),
        library_pip=" or ".join(f"`{name}`" for name in names) if len(names) <= _MOST_PACKAGES else None,
    )


def plain_name(requirement: str) -> str:
    """`torch==2.1.0+cu121` is torch."""
    return re.split(r"[=<>!~\[; ]", requirement, maxsplit=1)[0].lower()
