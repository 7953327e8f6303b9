"""The torch that is installed for the target Python, read from its files and never imported."""

from __future__ import annotations

import re

from rekindle.core.version import Version
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundPython, FoundTorch
from rekindle.machine.toolchain import gpu_code

_VERSION = re.compile(r"^__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda(?:\s*:[^=\n]*)?\s*=\s*(?:['\"](\d{1,3}(?:\.\d{1,3}){1,2})['\"]|(None))", re.MULTILINE)

_KERNELS = re.compile(r"libtorch_cuda(_cu|_cpp|_linalg)?\.so|torch_cuda(_cu|_cpp|_linalg)?\.dll", re.IGNORECASE)


def probe(run: Run, python: FoundPython | None) -> FoundTorch | None:
    for folder in python.site_packages if python else ():
        root = run.join(folder, "torch")
        path = run.join(root, "version.py")
        text = run.text(path) if run.exists(path) else None
        if text is not None:
            version, cuda = parse(text)
            code = _code(run, root) if cuda else ()
            return FoundTorch(
                version=version,
                root=root,
                cuda=cuda,
                code=code,
                targets=gpu_code.targets(code),
                partial=gpu_code.partial(code),
                python=python.path if python else None,
            )
    return None


def _code(run: Run, root: str) -> tuple[GpuCode, ...]:
    """The libraries that hold torch's kernels: one, or since 1.13 on some systems two or three."""
    folder = run.join(root, "lib")
    found = [gpu_code.of(run, run.join(folder, name)) for name in run.names(folder, _KERNELS)]
    return tuple(code for code in found if code and code.containers)


def parse(text: str) -> tuple[str, Version | None]:
    """Version and CUDA from `torch/version.py`; CUDA is None for a CPU build."""
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    if not version or not cuda:
        raise CouldNotRead("torch/version.py does not say what it is")
    return version[1], Version(cuda[1]) if cuda[1] else None
