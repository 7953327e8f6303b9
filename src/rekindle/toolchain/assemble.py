"""Packages to a kit: every member hashed into the store as it comes out, links mended, small files written.

Nothing in a package is run: no installer, no maintainer script.

A layout is a list of rules, the first that matches counts: where a member of that name goes, or that it is left out.
Links are followed through the same rules, so that a link between two packages still leads to its file.
"""

from __future__ import annotations

import posixpath
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from rekindle.core import codec, untrusted
from rekindle.core.console import plural
from rekindle.core.disk import size_of
from rekindle.core.errors import BadInput, UnknownName
from rekindle.core.files import read_bytes
from rekindle.formats import unpacking as packages
from rekindle.model.platform import Platform
from rekindle.toolchain import driver_stub
from rekindle.toolchain.model import Kit, KitFile, Offering
from rekindle.toolchain.store import Store

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
    place: Platform
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

_DRIVER = re.compile(r"usr/bin/([a-z0-9_]+-linux-gnu)-(gcc|g\+\+|cpp)-(\d{1,9})\Z")
_BINUTILS = re.compile(
    r"usr/bin/[a-z0-9_]+-linux-gnu-(ar|as|ld|ld\.bfd|ld\.gold|nm|objcopy|objdump|ranlib|readelf|size|strings|strip)\Z"
)


def written(store: Store, offering: Offering, files: dict[str, KitFile]) -> Iterable[KitFile]:
    """The files that this kind of kit needs and no package has.

    Debian's nvcc.profile names folders of `/usr`; ours is the one that a toolkit has which lies in one folder, with its
    own programs before everything on PATH. GCC finds its own parts by where it lies, but not its headers, its C library
    and the libraries that it loads: a wrapper tells it.
    """
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
            if other := {"gcc": "cc", "g++": "c++"}.get(name):
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
    have = [name for name in ("lib", "lib64") if any(path.startswith(f"{name}/") for path in files)]
    if len(have) == 1:
        yield KitFile(path="lib64" if have == ["lib"] else "lib", link=have[0])


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


_SHARED = re.compile(r"(?P<stem>lib[^/]+?\.so)\.[\d.]+\Z")
_HOPS = 16


def assemble(
    store: Store, offering: Offering, archives: Iterable[Path], *, say: Callable[[str], None] = lambda _: None
) -> Kit:
    """Unpack the archives into the store, and tell what the kit is made of. It is not published yet."""
    layout = Layout(id=offering.layout, place=offering.place, full=offering.full)
    files: dict[str, KitFile] = {}
    ordered = list(archives)
    say(f"unpacking {plural(len(ordered), 'archive')}")
    done: list[int] = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        # The largest first, so that it is not the last one alone; added in order, so that a clash is always the same.
        largest = sorted(ordered, key=lambda path: -path.stat().st_size)
        jobs = {path: pool.submit(_unpacked, store, layout, path, done) for path in largest}
        with Pulse(unpacking(done, jobs.values()), say):
            for archive in ordered:
                for file in jobs[archive].result():
                    _add(files, file, archive.name)
    say(f"unpacked {plural(len(files), 'file')}, {sum(done) / 1e6:,.0f} MB")
    for file in written(store, offering, files):
        files[file.path] = file
    if clash := untrusted.conflict(files):
        message = f"the archives hold `{clash[1]}` below `{clash[0]}`, which is no folder"
        raise BadInput(message, hint="do not use them; nothing of them was installed")
    made = _link_names(files)
    dangling = _without_dangling(files)
    return codec.like(
        Kit,
        offering,
        files=tuple(files[path] for path in sorted(files)),
        made=tuple(made),
        missing=(*offering.gone, *_absent(dangling, full=offering.full)),
        made_at=time.strftime("%Y-%m-%d"),
    )


def _unpacked(store: Store, layout: Layout, archive: Path, done: list[int]) -> list[KitFile]:
    """The members that belong into the kit, each in the store; `done` grows by the sizes of what comes out."""
    found = []
    for entry in packages.entries(archive):
        path = layout.target(entry.name)
        if path is None:
            continue
        if entry.link is not None:
            link = layout.link(entry.name, entry.link)
            if link is not None and posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) != path:
                found.append(KitFile(path=path, link=link))
            continue
        executable = entry.executable or path.startswith(("bin/", "nvvm/bin/"))
        sha256, size = store.keep(_counted(entry.data, done), executable=executable)
        found.append(KitFile(path=path, sha256=sha256, size=size, executable=executable))
    return found


def _counted(data: Iterable[bytes], done: list[int]) -> Iterable[bytes]:
    """Piece by piece: a library of 600 MB is one member, and takes a minute."""
    for piece in data:
        done.append(len(piece))
        yield piece


def _add(files: dict[str, KitFile], file: KitFile, archive: str) -> None:
    """Two packages may bring the same file, but not two files of one name. Licences are the exception."""
    known = files.get(file.path)
    if known is not None and (known.sha256, known.link) != (file.sha256, file.link):
        if not file.path.startswith("licences/"):
            message = f"`{archive}` brings another `{file.path}` than a part before it"
            raise BadInput(message, hint="the parts do not belong together; report it")
        name = f"{file.path}-{archive.partition('-')[0].partition('_')[0]}-{file.sha256[:6]}"
        file = KitFile(path=name, sha256=file.sha256, size=file.size)
    files[file.path] = file


def _link_names(files: dict[str, KitFile]) -> list[str]:
    """`libcudart.so` for `libcudart.so.13`: what a linker asks for and a wheel does not hold."""
    made = []
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        match = _SHARED.fullmatch(name)
        if not match or not folder.startswith(("lib", "nvvm/lib")):
            continue
        wanted = f"{folder}/{match['stem']}"
        if wanted not in files:
            files[wanted] = KitFile(path=wanted, link=name)
            made.append(wanted)
    return made


def _without_dangling(files: dict[str, KitFile]) -> list[str]:
    """Links that lead to nothing here are taken out, and named."""
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents[:-1]}
    gone = [path for path, file in files.items() if file.link is not None and not _leads(files, folders, path)]
    for path in gone:
        del files[path]
    return sorted(gone)


def _absent(paths: Sequence[str], *, full: bool) -> Sequence[str]:
    """Links without their files: truly not there, or left out on purpose."""
    names = [path.rpartition("/")[2] for path in paths]
    if full or not names:
        return names
    return (f"{', '.join(names)}: left out with what a build of PyTorch does not need; `--full` may bring them",)


def _leads(files: dict[str, KitFile], folders: set[str], path: str) -> bool:
    for _ in range(_HOPS):
        file = files.get(path)
        if file is None:
            return path in folders
        if file.link is None:
            return True
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), file.link))
    return False


PULSE = 5.0


Line = Callable[[float], str]
"""What to say after so many seconds."""


class Pulse:
    """Says the line of the moment, again and again, while it is entered."""

    def __init__(self, line: Line, say: Callable[[str], None]) -> None:
        self._line, self._say = line, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._stop.wait(PULSE):
            self._say(self._line(time.monotonic() - self._begun))


def fetching(folder: Path, total: int, kept: int = 0) -> Line:
    """How much of the total there is, and how fast it comes; `kept` bytes of it were there from an earlier run."""
    had = size_of(folder)

    def line(passed: float) -> str:
        come = max(size_of(folder) - had, 0)
        speed = come / passed
        left = f", {max(total - kept - come, 0) / speed:,.0f} s left" if speed > 1e5 else ""
        return f"fetched {(kept + come) / 1e6:,.0f} of {total / 1e6:,.0f} MB, {speed / 1e6:,.1f} MB/s{left}"

    return line


def unpacking(sizes: Sequence[int], jobs: Collection[Future[Any]]) -> Line:
    """How many archives are unpacked, one for each job, and how much came out; `sizes` grows meanwhile."""

    def line(_: float) -> str:
        done = sum(job.done() for job in jobs)
        return f"unpacked {done} of {plural(len(jobs), 'archive')}, {sum(tuple(sizes)) / 1e6:,.0f} MB"

    return line
