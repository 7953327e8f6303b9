"""What an output of Ninja is: the object of which source, of which target, in which language; or a link.

CMake calls the object of `aten/src/ATen/core/Tensor.cpp` in the target `torch_cpu` of the folder `caffe2`
`caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/core/Tensor.cpp.o`. Named by its source it is the same file in every
build, whatever the build's folder.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache

import msgspec

_OBJECT = re.compile(r"(?:(?P<folder>.*?)/)?CMakeFiles/(?P<target>[^/]+)\.dir/(?P<source>.+?)(?:\.o|\.obj)$")
_PLAIN_OBJECT = re.compile(r"(?P<source>.+)\.(?:o|obj)$")
_LINKED = re.compile(r"\.(?:so(?:\.[\d.]+)?|a|dll|lib|exe|pyd|dylib)$")
_LANGUAGES = {"cu": "cuda", "c": "c", "s": "c", "asm": "c"}


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `cxx`, `c`, `cuda`, `link` or `other`; `source` stands for the name of what is no object."""

    name: str
    kind: str
    source: str
    target: str = ""

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.source)

    @property
    def file(self) -> str:
        return posixpath.basename(self.source)

    @property
    def key(self) -> str:
        """The name under which its weight is kept."""
        return f"{self.target}:{self.source}" if self.target else self.source


@lru_cache(maxsize=65536)
def read(name: str) -> Output:
    path = name.replace("\\", "/")
    found = _OBJECT.match(path) or _PLAIN_OBJECT.match(path)
    if found:
        parts = found.groupdict()
        inner = "/".join(".." if part == "__" else part for part in parts["source"].split("/"))
        source = posixpath.normpath(posixpath.join(parts.get("folder") or "", inner))
        # A source outside the project's own folder: where that folder lies is another matter in every build.
        source = source.removeprefix("/")
        while source.startswith("../"):
            source = source[3:]
        return Output(name=name, kind=_language(source), source=source, target=parts.get("target") or "")
    kind = "link" if _LINKED.search(path) else "other"
    return Output(name=name, kind=kind, source=path)


def _language(source: str) -> str:
    return _LANGUAGES.get(source.rpartition(".")[2].lower(), "cxx")
