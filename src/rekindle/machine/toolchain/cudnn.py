"""cuDNN wherever it lies: inside a toolkit, in a folder of its own, from the distribution, conda or pip; and the torch
that is installed. Both are read from their files, GPU code included, and never loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from rekindle import __version__
from rekindle.core import codec
from rekindle.core.errors import RekindleError
from rekindle.core.kept import keep, kept_file, stamp_of
from rekindle.core.paths import cache_folder
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.knowledge.cuda.libraries import cudnn_parts
from rekindle.knowledge.gpu.gpu_code import GpuCode
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundCudnn, FoundPython, FoundTorch
from rekindle.model.card import Target

_VARIABLES = ("CUDNN_ROOT", "CUDNN_PATH", "CUDNN_HOME", "CUDNN_ROOT_DIR")
_CUDA_FOLDER = late(r"\d+\.\d+")
_DEFINED = late(r"^[ \t]*#\s*define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d{1,4})\b", re.MULTILINE)
_LIBRARY = late(
    r"(?:lib)?(cudnn(?:_[a-z_]+?)?)(?:64_(\d{1,9})\.dll|\.so(?:\.(\d{1,9})(?:\.[\d.]*)?)?|64_\d+\.lib)\Z", re.IGNORECASE
)


def probe(run: Run, site_packages: tuple[str, ...] = ()) -> tuple[FoundCudnn, ...]:
    found: dict[str, FoundCudnn] = {}
    for root, how in places(run, site_packages):
        seen = look(run, root, how)
        if seen is None:
            continue
        key = run.paths.normcase(run.real(seen.header or seen.root))
        ways = (*(found[key].found_by if key in found else ()), how)
        found[key] = msgspec.structs.replace(found.get(key, seen), found_by=tuple(dict.fromkeys(ways)))
    return tuple(found.values())


def places(run: Run, site_packages: tuple[str, ...]) -> list[tuple[str, str]]:
    from rekindle.machine.toolchain import toolkits  # audit reads a torch by this module, and no toolkit

    found: list[tuple[str, str]] = []
    found += [(value, name) for name in _VARIABLES if (value := run.env(name))]
    include = run.env("CUDNN_INCLUDE_DIR") or run.env("CUDNN_INCLUDE_PATH")
    if include:
        found.append((run.parent(include.rstrip("\\/")), "CUDNN_INCLUDE_DIR"))
    found += toolkits.roots(run)
    if run.windows:
        files = run.env("ProgramW6432") or run.env("ProgramFiles") or "C:\\Program Files"
        base = run.join(files, "NVIDIA", "CUDNN")
        found += [(run.join(base, name), "program files") for name in run.names(base)]
    else:
        found += [("/usr", "distro"), ("/usr/local", "/usr/local")]
    found += [(run.join(folder, "nvidia", "cudnn"), "pip") for folder in site_packages]
    found += [(root, toolkits.PRIVATE) for root in toolkits.private_roots(run, "cudnn")]
    return list(dict.fromkeys(found))


def look(run: Run, root: str, how: str) -> FoundCudnn | None:
    """The cuDNN under this folder, if there is one; the parts of a whole one that are not."""
    header, version = _header(run, root)
    libraries, folder = _libraries(run, root)
    if not libraries and version is None:
        return None
    majors = {match[2] or match[3] for name in libraries if (match := _LIBRARY.match(name)) and (match[2] or match[3])}
    if version is None and len(majors) == 1:
        version = Version(majors.pop())
    parts = {match[1].lower() for name in libraries if (match := _LIBRARY.match(name))}
    expected = cudnn_parts(version.major) if version else ()
    absent = tuple(part for part in expected if part not in parts)
    if header is None:
        absent = ("cudnn_version.h", *absent) if how != "pip" else absent
    return FoundCudnn(
        root=root,
        version=version,
        header=header,
        libraries=libraries,
        folder=folder,
        missing=absent,
        targets=_targets(run, folder, libraries),
        found_by=(how,),
    )


def _targets(run: Run, folder: str | None, libraries: tuple[str, ...]) -> tuple[Target, ...]:
    """The code of `cudnn_ops`, the part that every use needs, stands for the whole; 7 and before have one library."""
    wanted = [name for name in libraries if re.match(r"(lib)?cudnn_ops(_infer)?[.6]", name, re.IGNORECASE)] or [
        name for name in libraries if re.match(r"(lib)?cudnn(64_7\.dll|\.so\.7)", name, re.IGNORECASE)
    ]
    code = code_of(run, run.join(folder, wanted[-1])) if folder and wanted else None
    return targets_of((code,)) if code else ()


def parse_header(text: str) -> Version:
    """The version that `cudnn_version.h` (or the `cudnn.h` of 7 and before) defines."""
    numbers = dict(_DEFINED.findall(text))
    if set(numbers) != {"MAJOR", "MINOR", "PATCHLEVEL"}:
        raise CouldNotRead("the header of cuDNN defines no version")
    return Version(".".join(str(int(numbers[name])) for name in ("MAJOR", "MINOR", "PATCHLEVEL")))


def _header(run: Run, root: str) -> tuple[str | None, Version | None]:
    folders = [run.join(root, "include")]
    if run.windows:
        # From 9 on the installer has a folder per CUDA: include\12.6\cudnn_version.h
        folders += [run.join(folders[0], name) for name in run.names(folders[0], _CUDA_FOLDER)]
    elif root == "/usr":
        folders += [f"/usr/include/{run.arch}-linux-gnu"]
    else:
        folders += [run.join(root, "targets", name, "include") for name in run.names(run.join(root, "targets"))]
    for folder in folders:
        for name in ("cudnn_version.h", "cudnn_version_v9.h", "cudnn_version_v8.h", "cudnn.h"):
            path = run.join(folder, name)
            text = run.text(path) if run.exists(path) else None
            if text is None:
                continue
            try:
                return path, parse_header(text)
            except CouldNotRead:
                continue
    return None, None


def _libraries(run: Run, root: str) -> tuple[tuple[str, ...], str | None]:
    if run.windows:
        folders = [run.join(root, "bin"), run.join(root, "bin", "x64")]
        folders += [run.join(folders[0], name) for name in run.names(folders[0], _CUDA_FOLDER)]
    elif root == "/usr":
        folders = [f"/usr/lib/{run.arch}-linux-gnu", "/usr/lib64"]
    else:
        folders = [run.join(root, "lib64"), run.join(root, "lib")]
        folders += [run.join(root, "targets", name, "lib") for name in run.names(run.join(root, "targets"))]
    for folder in folders:
        seen = [name for name in run.names(folder, _LIBRARY) if not name.lower().endswith(".lib")]
        if seen:
            return tuple(sorted(seen)), folder
    return (), None


def code_of(run: Run, path: str) -> GpuCode | None:
    """The GPU code of one file; None when it could not be read, or was not recorded."""
    found = run.told(f"gpu code of {path}", lambda: _ask_code(path), dict)
    if found is None:
        return None
    try:
        return codec.from_builtins(found, GpuCode)
    except RekindleError:
        return None


def targets_of(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    every = [group for code in codes for group in (*code.groups, *code.aside_groups)]
    return tuple(sorted({target for group in every for target in group.targets}))


def partial_targets(codes: tuple[GpuCode, ...]) -> tuple[Target, ...]:
    """Targets that some containers lack, among those that hold code for more than one architecture."""
    lacking: set[Target] = set()
    for code in codes:
        spanning = [g for g in code.groups if len({target.capability.major for target in g.targets}) > 1] or code.groups
        every = {target for group in spanning for target in group.targets}
        lacking |= {target for target in every if not all(target in group.targets for group in spanning)}
    return tuple(sorted(lacking))


class _KeptCode(msgspec.Struct, frozen=True):
    reader: str
    path: str
    stamp: int
    size: int
    code: GpuCode


def _ask_code(path: str) -> Any:
    """Kept: a library of torch has thousands of entries, and each is looked into."""
    from rekindle.formats import binary
    from rekindle.formats.access import File

    kept = kept_file(cache_folder("code"), path, "code")
    try:
        status = Path(path).stat()
        known = codec.kept(kept, _KeptCode)
        same = (__version__, path, stamp_of(status), status.st_size)
        if known is None or (known.reader, known.path, known.stamp, known.size) != same:
            with File(Path(path)) as file:
                known = _KeptCode(*same, binary.read(file).code)
            keep(kept, known)
        return codec.to_builtins(known.code)
    except (RekindleError, OSError):
        return None


_TORCH_VERSION = late(r"^__version__(?:\s*:\s*\w+)?\s*=\s*['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)
_CUDA = late(r"^cuda(?:\s*:[^=\n]*)?\s*=\s*(?:['\"](\d{1,3}(?:\.\d{1,3}){1,2})['\"]|(None))", re.MULTILINE)

_KERNELS = late(r"libtorch_cuda(_cu|_cpp|_linalg)?\.so|torch_cuda(_cu|_cpp|_linalg)?\.dll", re.IGNORECASE)


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
                targets=targets_of(code),
                partial=partial_targets(code),
                python=python.path if python else None,
            )
    return None


def _code(run: Run, root: str) -> tuple[GpuCode, ...]:
    """The libraries that hold torch's kernels: one, or since 1.13 on some systems two or three."""
    folder = run.join(root, "lib")
    found = [code_of(run, run.join(folder, name)) for name in run.names(folder, _KERNELS)]
    return tuple(code for code in found if code and code.containers)


def parse_torch_version(text: str) -> tuple[str, Version | None]:
    """Version and CUDA from `torch/version.py`; CUDA is None for a CPU build."""
    version, cuda = _TORCH_VERSION.search(text), _CUDA.search(text)
    if not version or not cuda:
        raise CouldNotRead("torch/version.py does not say what it is")
    return version[1], Version(cuda[1]) if cuda[1] else None
