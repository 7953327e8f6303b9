"""The small files that make packages a toolkit: nvcc's profile, a compiler's wrappers. Every path in them is relative.

Debian's nvcc.profile names folders of `/usr`; ours is the one that a toolkit has which lies in one folder, with its own
programs before everything on PATH. GCC finds its own parts by where it lies, but not its headers, its C library and
the libraries that it loads: a wrapper tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rekindle.core.files import read_bytes
from rekindle.toolchain import driver_stub
from rekindle.toolchain.model import KitFile, Offering
from rekindle.toolchain.store import Store

PROFILE = """\
TOP                 = $(_HERE_)/..
NVVMIR_LIBRARY_DIR  = $(TOP)/nvvm/libdevice
PATH               += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES           += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES          =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
CUDAFE_FLAGS       +=
PTXAS_FLAGS        +=
"""

_COMPILER = """\
#!/bin/sh
here=${{0%/*}}/..
LD_LIBRARY_PATH=$here/tools${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$here/usr/bin/{program}" --sysroot="$here" -B"$here/usr/bin/"{libraries} "$@"
"""

_PROGRAM = """\
#!/bin/sh
here=${{0%/*}}/..
LD_LIBRARY_PATH=$here/tools${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$here/usr/bin/{program}" "$@"
"""

# A library of the system asks for others of the system (OpenBLAS for Fortran's), which the linker must find as well: a
# program that CMake tries does not link otherwise, and the library counts as missing.
_SYSTEM_LIBRARIES = " -Wl,-rpath-link,/lib/{triplet}:/usr/lib/{triplet}:/usr/lib64"

_DRIVER = re.compile(r"usr/bin/([a-z0-9_]+-linux-gnu)-(gcc|g\+\+|cpp)-(\d+)\Z")
_BINUTILS = re.compile(
    r"usr/bin/[a-z0-9_]+-linux-gnu-(ar|as|ld|ld\.bfd|ld\.gold|nm|objcopy|objdump|ranlib|readelf|size|strings|strip)\Z"
)


def written(store: Store, offering: Offering, files: dict[str, KitFile]) -> Iterable[KitFile]:
    """The files that this kind of kit needs and no package has."""
    # NVIDIA's own profile looks below `targets`, which only its installer makes.
    if offering.layout in ("debian-cuda", "redistrib", "conda") and "bin/nvcc" in files:
        yield _file(store, "bin/nvcc.profile", PROFILE, executable=False)
    if offering.name == "gcc":
        yield from _wrappers(store, files)
    if offering.name == "cuda" and offering.place.system == "linux":
        yield from _either_lib(files)
        yield from _driver_to_link(store, offering.place.arch, files)
    if offering.name == "openblas" and offering.place.system == "linux":
        yield from _with_fortran(store, files)
    if offering.layout == "debian-gcc":
        yield from (
            KitFile(path=name, link=f"usr/{name}")
            for name in ("lib", "lib64")
            if any(path.startswith(f"usr/{name}/") for path in files)
        )


def _wrappers(store: Store, files: dict[str, KitFile]) -> Iterable[KitFile]:
    for path in sorted(files):
        program = path.rpartition("/")[2]
        if match := _DRIVER.match(path):
            triplet, name, version = match.groups()
            libraries = "" if name == "cpp" else _SYSTEM_LIBRARIES.format(triplet=triplet)
            text = _COMPILER.format(program=program, libraries=libraries)
            yield _file(store, f"bin/{name}-{version}", text, executable=True)
            yield KitFile(path=f"bin/{name}", link=f"{name}-{version}")
            other = {"gcc": "cc", "g++": "c++"}.get(name)
            if other:
                yield KitFile(path=f"bin/{other}", link=f"{name}-{version}")
        elif match := _BINUTILS.match(path):
            yield _file(store, f"bin/{match[1]}", _PROGRAM.format(program=program), executable=True)


def _with_fortran(store: Store, files: dict[str, KitFile]) -> Iterable[KitFile]:
    """Debian's OpenBLAS asks for Fortran's library without saying where it is: the link name says both.

    A compiler with a sysroot does not find it beside OpenBLAS, and every program that CMake tries fails to link.
    """
    fortran = [name for name in ("libgfortran.so.5", "libquadmath.so.0") if f"lib/{name}" in files]
    if "lib/libopenblas.so.0" in files and fortran:
        text = f"/* GNU ld script */\nINPUT ( libopenblas.so.0 {' '.join(fortran)} )\n"
        yield _file(store, "lib/libopenblas.so", text, executable=False)


def _either_lib(files: dict[str, KitFile]) -> Iterable[KitFile]:
    """Some look into `lib64`, some into `lib`: both names lead to the same folder."""
    have = {name for name in ("lib", "lib64") if any(path.startswith(f"{name}/") for path in files)}
    if have == {"lib"}:
        yield KitFile(path="lib64", link="lib")
    elif have == {"lib64"}:
        yield KitFile(path="lib", link="lib64")


def _driver_to_link(store: Store, arch: str, files: dict[str, KitFile]) -> Iterable[KitFile]:
    """The driver's library as one links against it, where no package has it."""
    headers = [files[path] for path in driver_stub.HEADERS if path in files and not files[path].link]
    if not headers or not driver_stub.knows(arch) or any(path.endswith("/libcuda.so") for path in files):
        return
    objects = [store.object(header.sha256, executable=header.executable) for header in headers]
    functions = driver_stub.names("\n".join(read_bytes(path).decode("utf-8", "replace") for path in objects))
    if functions:
        folder = "lib64" if any(path.startswith("lib64/") for path in files) else "lib"
        sha256, size = store.keep([driver_stub.library(functions, arch)], executable=False)
        yield KitFile(path=f"{folder}/stubs/libcuda.so", sha256=sha256, size=size)


def _file(store: Store, path: str, text: str, *, executable: bool) -> KitFile:
    sha256, size = store.keep([text.encode()], executable=executable)
    return KitFile(path=path, sha256=sha256, size=size, executable=executable)
