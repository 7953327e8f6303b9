"""The patches of a build: the plan's, or those that the tools of this build call for."""

from __future__ import annotations

from pathlib import Path

from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tools
from rekindle.core.version import Version
from rekindle.knowledge.torch import patches as catalogue
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.source import patches


def setting(request: BuildRequest, tools: Tools) -> PatchSetting:
    return PatchSetting(
        torch=request.release or Version("0"),
        os=request.system,
        arch=request.arch,
        compiler="msvc" if request.compiler.kind == "cl" else request.compiler.kind,
        compiler_version=tools.cxx.version,
        cmake=tools.cmake.version,
        cuda=request.cuda.version if request.cuda else None,
        python=request.python_version,
        targets=tuple(request.arch_list.split(";")),
    )


def wanted(request: BuildRequest, tools: Tools) -> dict[str, str]:
    """The patches to make, each with the hash of what it does."""
    if not request.torch:
        return {}
    if request.patches is not None:
        found = [catalogue.patch(id) for id in request.patches]
    else:
        found = list(catalogue.needed(setting(request, tools)))
    return {patch.id: patch.hash for patch in found}


def bring_to(root: Path, request: BuildRequest, tools: Tools, before: tuple[str, ...]) -> tuple[str, ...]:
    """The tree with exactly the wanted patches; `before` are those of the last time. The files that changed."""
    now = wanted(request, tools)
    chosen = setting(request, tools)
    changed: tuple[str, ...] = ()
    if set(before) - set(now):
        changed = patches.undo(root, chosen).changed
    if now:
        changed += patches.apply(root, chosen, only=tuple(now)).changed
    return changed
