"""From the members of packages to one tree: `bin`, `include`, `lib64`, `nvvm`, whoever packed them.

A layout is a list of rules, the first that matches counts: where a member of that name goes, or that it is left out.
Links are followed through the same rules, so that a link between two packages still leads to its file.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache

import msgspec

from rekindle.core.errors import UnknownName
from rekindle.toolchain.model import KitPlatform

_TRIPLET = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
# What a link of PyTorch or of an extension asks for; the other archives are static twins of the shared libraries.
_STATIC_NEEDED = r"lib64/lib(cudart_static|cudadevrt|culibos|cufilt|nvptxcompiler_static)\.a"
_LICENCES = (
    (r"usr/share/doc/([^/]+)/copyright", r"licences/\1"),
    (r"[^/]+\.dist-info/(?:licenses/)?(?:.*/)?([^/]*LICEN[CS]E[^/]*)", r"licences/\1"),
)

_RULES: dict[str, tuple[tuple[str, str | None], ...]] = {
    "debian-cuda": (
        # Scripts that start the program of the same name in a folder of /usr/lib.
        (r"usr/bin/(nvcc|nvprof|gcc|g\+\+)", None),
        (r"usr/lib/nvidia-cuda-toolkit/bin/(gcc|g\+\+|nvcc\.profile)", None),
        (r"usr/lib/nvidia-cuda-toolkit/bin/cicc", "nvvm/bin/cicc"),
        (r"usr/lib/nvidia-cuda-toolkit/libdevice/(.+)", r"nvvm/libdevice/\1"),
        (r"usr/lib/nvidia-cuda-toolkit/bin/(.+)", r"bin/\1"),
        (r"usr/bin/(.+)", r"bin/\1"),
        (r"usr/include/(.+)", r"include/\1"),
        (r"usr/lib/{triplet}/cuda-gdb/.+", None),
        (r"usr/lib/{triplet}/(pkgconfig|cmake)/.+", None),
        (r"usr/lib/{triplet}/(.+)", r"lib64/\1"),
        # Debian keeps CUB's and Thrust's CMake files among the architecture-independent ones.
        (r"usr/lib/cmake/(.+)", r"lib64/cmake/\1"),
        (r".+", None),
    ),
    "debian-gcc": (
        (r"usr/share/.+", None),
        (r"usr/(?:lib|lib64)/debug/.+", None),
        (r"usr/lib/{triplet}/gconv/.+", None),
        # The libraries that the compiler itself loads go apart: they must not be found by what it compiles.
        (
            r"(?:usr/)?lib/{triplet}/(lib(?:isl|mpc|mpfr|gmp|z|zstd|bfd|opcodes|ctf|ctf-nobfd|jansson|sframe)[-.].*)",
            r"tools/\1",
        ),
        (r"(lib|lib64)/(.+)", r"usr/\1/\2"),
        (r"usr/(.+)", r"usr/\1"),
        (r".+", None),
    ),
    "debian-library": (
        # Debian's alternatives, which only an installation makes, lead from the plain names into these folders.
        (r"usr/include/(?:{triplet}/)?(?:openblas-[a-z]+/)?(.+)", r"include/\1"),
        (r"(?:usr/)?lib/{triplet}/(?:openblas-[a-z]+/)?(.+)", r"lib/\1"),
        (r".+", None),
    ),
    "wheel": (
        (r"nvidia/cu\d+/(.+)", r"\1"),
        (r"nvidia/[a-z_]+/(include|lib|lib64|bin|nvvm)/(.+)", r"\1/\2"),
        (r"[^/]+\.data/data/(?:Library/)?(include|lib|bin)/(.+)", r"\1/\2"),
        (r".+", None),
    ),
    "redistrib": (
        (r"[^/]+/(LICENSE[^/]*)", r"licences/\1"),
        (r"[^/]+/(.+)", r"\1"),
        (r".+", None),
    ),
    "conda": (
        (r"info/.+", None),
        (r"Library/(.+)", r"\1"),
        # NVIDIA's packages for cross compiling have the files below `targets`, with links to them above.
        (r"targets/[^/]+-linux/(include|lib)/(.+)", r"\1/\2"),
        (r"(.+)", r"\1"),
    ),
    "folder": ((r"(.+)", r"\1"),),
}  # fmt: skip


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    place: KitPlatform
    full: bool = False

    def target(self, name: str) -> str | None:
        """Where a member goes; None: it is left out."""
        for pattern, to in _compiled(self.id, self.place.arch):
            match = pattern.fullmatch(name)
            if match:
                place = match.expand(to) if to is not None else None
                return place if place and (self.full or self.needed(place)) else None
        return None

    def needed(self, path: str) -> bool:
        """Does a build use it? Without `--full` the rest is left out: most of a toolkit is static libraries."""
        if self.id == "debian-gcc":
            return True
        if re.fullmatch(r"lib(64)?/.+\.a", path):
            return bool(re.fullmatch(_STATIC_NEEDED.replace("lib64", "lib(?:64)?"), path))
        if re.fullmatch(r"lib/x64/.+_static\.lib", path):
            return path.endswith(("/cudart_static.lib", "/cudadevrt_static.lib"))
        return not re.match(r"(doc|docs|samples|nsight[^/]*|libnvvp|share/doc|share/man)/", path, re.IGNORECASE)

    def link(self, name: str, link: str) -> str | None:
        """What the link at `name` must say in the new tree; None where it would lead out of it."""
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        placed, to = self.target(name), self.target(meant)
        if placed is None or to is None:
            return None
        return posixpath.relpath(to, posixpath.dirname(placed) or ".")


@lru_cache(maxsize=64)
def _compiled(layout: str, arch: str) -> tuple[tuple[re.Pattern[str], str | None], ...]:
    triplet = _TRIPLET.get(arch, f"{arch}-linux-gnu")
    return tuple(
        (re.compile(pattern.replace("{triplet}", re.escape(triplet))), to)
        for pattern, to in (*_LICENCES, *rules(layout))
    )


def rules(layout: str) -> tuple[tuple[str, str | None], ...]:
    try:
        return _RULES[layout]
    except KeyError:
        raise UnknownName(f"unknown layout `{layout}`", hint="this is a fault of the table `toolchains`") from None
