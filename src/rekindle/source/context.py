"""What a tree will be built with, from what was said and what this system makes likely."""

from __future__ import annotations

from pathlib import Path

from rekindle.core import paths
from rekindle.core.version import Version, typed
from rekindle.knowledge.torch.patches import PatchSetting
from rekindle.source import tree


def of(
    root: Path,
    *,
    torch: str | None = None,
    system: str | None = None,
    compiler: str | None = None,
    cmake: str | None = None,
    setuptools: str | None = None,
    cuda: str | None = None,
) -> PatchSetting:
    """The tools that are on this machine now may not be those of the build, so only what was said counts for them."""
    system = system or paths.system()
    return PatchSetting(
        torch=tree.release(root, torch),
        os=system,
        arch=paths.architecture(),
        compiler=compiler or ("msvc" if system == "windows" else "gcc"),
        cmake=_version("--cmake", cmake),
        setuptools=_version("--setuptools", setuptools),
        cuda=_version("--cuda", cuda),
    )


def _version(option: str, text: str | None) -> Version | None:
    return typed(text, f"`{option}`", "4.0") if text is not None else None
