"""What a build is made with, as people write it: a CUDA, an MSVC toolset."""

from __future__ import annotations

import re

from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.model.cuda_line import CudaLine


def read_cuda(text: str) -> Version:
    """`12.6`, `12`, `cu126`, `cu92`, `CUDA 12.4`."""
    plain = re.sub(r"^cuda[ =-]*(?=v?\d)", "", text.strip().lower())
    line = CudaLine.parse(plain)
    # As NVIDIA's packages are called: `cu12` is any 12.x.
    return line.cuda if line else typed(re.sub(r"^cu(?=1\d$)", "", plain), "`--cuda`", "12.6")


def read_toolset(text: str) -> Version:
    """`14.29`, `14.29.30133`, `MSVC 14.39`."""
    plain = re.sub(r"^msvc[ -]*", "", text.strip().lower())
    if re.fullmatch(r"v?14\d", plain):
        message = f"`{plain}` is Visual Studio's word for several toolsets"
        raise UsageError(message, hint="write `--toolset` like `14.39`")
    return typed(plain, "`--toolset`", "14.39")
