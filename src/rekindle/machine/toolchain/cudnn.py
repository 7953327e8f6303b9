"""cuDNN wherever it lies: inside a toolkit, in a folder of its own, from the distribution, conda or pip."""

from __future__ import annotations

import re

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.cuda.libraries import cudnn_parts
from rekindle.knowledge.gpu.capability import Target
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundCudnn
from rekindle.machine.toolchain import gpu_code, toolkits

_VARIABLES = ("CUDNN_ROOT", "CUDNN_PATH", "CUDNN_HOME", "CUDNN_ROOT_DIR")
_CUDA_FOLDER = re.compile(r"\d+\.\d+")
_DEFINED = re.compile(r"^[ \t]*#\s*define\s+CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d{1,4})\b", re.MULTILINE)
_LIBRARY = re.compile(
    r"(?:lib)?(cudnn(?:_[a-z_]+?)?)(?:64_(\d+)\.dll|\.so(?:\.(\d+)(?:\.[\d.]*)?)?|64_\d+\.lib)\Z", re.IGNORECASE
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
    code = gpu_code.of(run, run.join(folder, wanted[-1])) if folder and wanted else None
    return gpu_code.targets((code,)) if code else ()


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
