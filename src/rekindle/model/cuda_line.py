"""A CUDA line of PyTorch: the `cu126` of `2.7.1+cu126` and of its index."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.pattern import late
from rekindle.core.version import Version

# Two digits are a CUDA before 10; the `cu12` of `nvidia-cudnn-cu12` is no line but a whole major version.
LINE = r"cu(?:[6-9]\d|1\d\d)"
_VARIANT = rf"(?:{LINE}|cpu)\b"
_INDEX = rf"/whl/(nightly/|test/)?({LINE}|cpu)\b"

# `cuda-12.4`, `cuda/12.4`, `CUDA\\v12.4`, `cuda-toolkit-12-6`, `cuda:12.4`, `cu12.4`; `cuda124`, `cu92`; `cuda12`.
_NAMED = late(
    r"(?i)(?<![a-z])cu(?:da)?(?:[-_/]?(?:toolkit|nvcc|compiler)\b)?(?:[-_/\\@:]+v?)?"
    r"(?:(\d{1,2})[.-](\d{1,2})(?!\d)|(1\d|[6-9])(\d)(?!\d)|(1\d)(?![\d]))"
)


class CudaLine(msgspec.Struct, frozen=True):
    cuda: Version

    @classmethod
    def parse(cls, text: str | None) -> CudaLine | None:
        """`cu92` is CUDA 9.2, `cu130` is 13.0; None for what is no line."""
        return cls(Version(f"{text[2:-1]}.{text[-1]}")) if text and re.fullmatch(LINE, text) else None

    @property
    def name(self) -> str:
        return f"cu{self.cuda.major}{self.cuda.minor}"


def index_of(variant: str) -> str:
    """PyTorch's own index of `cu126` or `cpu`."""
    return f"https://download.pytorch.org/whl/{variant}"


def variant_of(requirement: str | None, address: str | None) -> str | None:
    """The `cu126` or `cpu` of `==2.7.1+cu126`, else of the index; None of nightlies and of no index of PyTorch's."""
    index = re.search(_INDEX, address or "")
    if index and index[1]:
        return None
    local = re.match(_VARIANT, (requirement or "").partition("+")[2])
    return local[0] if local else index[2] if index else None


def cuda_in(name: str, *, least: int = 1) -> Version | None:
    """The CUDA in the name of a file, package, image or build: `12.4`, or `12` if one number is enough."""
    for found in _NAMED.finditer(name):
        numbers = [each for each in found.groups() if each]
        if len(numbers) >= least:
            return Version(".".join(numbers))
    return None
