"""The torch that is installed for the target Python, read from its files and never imported."""

from __future__ import annotations

import re

from rekindle.machine.model import FoundPython, FoundTorch
from rekindle.machine.run import CouldNotRead, Run
from rekindle.version import Version

_VERSION = re.compile(r"^__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda(?:\s*:[^=\n]*)?\s*=\s*(?:['\"](\d{1,3}(?:\.\d{1,3}){1,2})['\"]|(None))", re.MULTILINE)


def probe(run: Run, python: FoundPython | None) -> FoundTorch | None:
    for folder in python.site_packages if python else ():
        root = run.join(folder, "torch")
        path = run.join(root, "version.py")
        text = run.text(path) if run.exists(path) else None
        if text is not None:
            version, cuda = parse(text)
            return FoundTorch(version=version, root=root, cuda=cuda, python=python.path if python else None)
    return None


def parse(text: str) -> tuple[str, Version | None]:
    """Version and CUDA from `torch/version.py`; CUDA is None for a CPU build."""
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    if not version or not cuda:
        raise CouldNotRead("torch/version.py does not say what it is")
    return version[1], Version(cuda[1]) if cuda[1] else None
