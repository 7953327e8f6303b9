"""The torch that is installed, and the GPU code in its libraries and cuDNN's. Read from files, nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundPython, FoundTorch


def of(run: Run, path: str) -> GpuCode | None:
    """The GPU code of one file; None when it could not be read, or was not recorded."""
    found = run.ask(f"gpu code of {path}", lambda: _ask(path))
    if not isinstance(found, dict):
        return None
    try:
        return codec.from_builtins(found, GpuCode)
    except RekindleError:
        return None


def targets(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    every = [group for code in codes for group in (*code.groups, *code.aside_groups)]
    return tuple(sorted({target for group in every for target in group.targets}))


def partial(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    """Targets that some containers lack, among those that hold code for more than one architecture."""
    lacking: set[Target] = set()
    for code in codes:
        spanning = [g for g in code.groups if len({target.capability.major for target in g.targets}) > 1] or code.groups
        every = {target for group in spanning for target in group.targets}
        lacking |= {target for target in every if not all(target in group.targets for group in spanning)}
    return tuple(sorted(lacking))


def _ask(path: str) -> Any:
    from rekindle.formats import binary
    from rekindle.formats.access import File

    try:
        with File(Path(path)) as file:
            return codec.to_builtins(binary.read(file).code)
    except (RekindleError, OSError):
        return None


_TORCH_VERSION = re.compile(r"^__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda(?:\s*:[^=\n]*)?\s*=\s*(?:['\"](\d{1,3}(?:\.\d{1,3}){1,2})['\"]|(None))", re.MULTILINE)

_KERNELS = re.compile(r"libtorch_cuda(_cu|_cpp|_linalg)?\.so|torch_cuda(_cu|_cpp|_linalg)?\.dll", re.IGNORECASE)


def installed_torch(run: Run, python: FoundPython | None) -> FoundTorch | None:
    for folder in python.site_packages if python else ():
        root = run.join(folder, "torch")
        path = run.join(root, "version.py")
        text = run.text(path) if run.exists(path) else None
        if text is not None:
            version, cuda = parse_torch_version(text)
            code = _code(run, root) if cuda else ()
            return FoundTorch(
                version=version,
                root=root,
                cuda=cuda,
                code=code,
                targets=targets(code),
                partial=partial(code),
                python=python.path if python else None,
            )
    return None


def _code(run: Run, root: str) -> tuple[GpuCode, ...]:
    """The libraries that hold torch's kernels: one, or since 1.13 on some systems two or three."""
    folder = run.join(root, "lib")
    found = [of(run, run.join(folder, name)) for name in run.names(folder, _KERNELS)]
    return tuple(code for code in found if code and code.containers)


def parse_torch_version(text: str) -> tuple[str, Version | None]:
    """Version and CUDA from `torch/version.py`; CUDA is None for a CPU build."""
    version, cuda = _TORCH_VERSION.search(text), _CUDA.search(text)
    if not version or not cuda:
        raise CouldNotRead("torch/version.py does not say what it is")
    return version[1], Version(cuda[1]) if cuda[1] else None
