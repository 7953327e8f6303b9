"""What a package is: its torch, CUDA, cuDNN, Python, NumPy and C++ ABI, BLAS, and the oldest system it loads on.

Read from the metadata where it says so and from the binaries where it does not. What neither tells stays None. The
label of a wheel variant (PEP 817) is held against the file name and the GPU code; an extension against what the torch
that it would be loaded with says of itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version as PackageVersion

from rekindle.compat.extension_torch import same_abi, same_cuda
from rekindle.compat.judgement import Clash
from rekindle.compat.variant import judged
from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.programs import reads_only
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.binary import Binary, codes, is_binary
from rekindle.formats.package import Package
from rekindle.knowledge.gpu.gpu_code import GpuCode, sums
from rekindle.machine.python.environment import find, torch_of
from rekindle.model.cuda_line import CudaLine
from rekindle.model.requirement import holds, place, requirement
from rekindle.model.wheel import WheelIdentity, WheelVariant, read_name
from rekindle.wheels.closure.walk import TorchLibraries, is_torch_symbol, requirement_name, torch_libraries

_ASSIGNED = re.compile(r"^(\w{1,60})(?:\s{0,9}:[^=\n]{1,99})?\s{0,9}=\s{0,9}['\"]([^'\"\n]*)['\"]", re.MULTILINE)
_CUDNN_PIN = re.compile(r"nvidia[-_]cudnn[-_]cu\d+\s*\(?==\s*([\d.]+)")
_TORCH_PIN = re.compile(r"torch\s{0,9}\(?\s{0,9}===?\s{0,9}(\d[\w.+!]{0,60})\s{0,9}\)?\s{0,9}(?:;|\Z)")
_CUDNN_FILE = re.compile(r"(?:libcudnn\.so\.|cudnn64_)(\d{1,9})")
_EXTENSION = re.compile(r"\.(?:cpython-|cp)(\d)(\d{1,9})[-.]")
# NumPy 2's headers look for the C API under its new name first; NumPy 1's know only the old one.
_NUMPY_2, _NUMPY_1 = "numpy._core._multiarray_umath", "numpy.core._multiarray_umath"
# `std::string` of the older ABI in an argument list: `…ERKSs`, `…SsE`.
_OLD_STRING = re.compile(r"(?:RK|R|P|PK|E|v|i|j|b|m)Ss")
_MKL, _OPENBLAS = "Intel(R) oneAPI Math Kernel Library", "OpenBLAS"


class Identity(WheelIdentity, frozen=True, kw_only=True):
    """A wheel's identity with what only its binaries tell. `python` and `platform` are those of its first tag."""

    python: str | None = None
    platform: str | None = None
    numpy_abi: tuple[int, ...] | None = None
    blas: str | None = None
    glibcxx: Version | None = None
    requires: tuple[str, ...] = ()
    is_torch_package: bool = False
    """It is torch, or brings a `torch` folder under another name; `torch` is then its own version."""


def identify(found: Package, binaries: Sequence[Binary]) -> Identity:
    metadata = package.headers(found, "METADATA")
    wheel = package.headers(found, "WHEEL")
    tags = wheel.get("Tag", [])
    project = next(iter(metadata.get("Name", [])), None)
    version = next(iter(metadata.get("Version", [])), None)
    facts = version_file(found)
    own = facts.get("__version__") or (version if project == "torch" else None)
    python, platform = _tag(tags)
    requires = tuple(line for line in metadata.get("Requires-Dist", []) if _applies(line, platform))
    read = of_binaries(binaries)
    return msgspec.structs.replace(
        read,
        cpu=read.cpu or _labelled_cpu(version),
        project=project,
        version=version,
        build=next(iter(wheel.get("Build", [])), None),
        tags=tuple(sorted({tag for tag in tags if tag.count("-") == 2})),
        torch=own or _pinned_torch(requires),
        is_torch_package=own is not None,
        cuda=Version.find(facts.get("cuda", "")),
        cudnn=_cudnn(requires, binaries),
        python=python or _python(found),
        platform=platform,
        requires=requires,
        variant=read_variant(found),
    )


def _labelled_cpu(version: str | None) -> str | None:
    """`v1` of `1.12.1+cu114.sm35.x86v1`: what a build says of itself where its files hold no note."""
    match = re.search(r"\bx86(v[1-4])\b", (version or "").partition("+")[2])
    return match[1] if match else None


def of_binaries(binaries: Sequence[Binary]) -> Identity:
    return Identity(
        numpy_abi=_numpy(binaries),
        cxx_abi=_cxx_abi(binaries),
        blas=_blas(binaries),
        cudnn=_cudnn((), binaries),
        glibc=floor(binaries, "GLIBC"),
        glibcxx=floor(binaries, "GLIBCXX"),
        targets=sums(codes(binaries)),
        cpu=max((found.elf.isa for found in binaries if found.elf and found.elf.isa), default=None),
    )


def wanted_texts(name: str) -> tuple[str, ...]:
    last = name.rpartition("/")[2]
    if last.startswith(("libtorch_python", "torch_python")):
        return (_NUMPY_1, _NUMPY_2)
    return (_MKL, _OPENBLAS) if last == "torch_cpu.dll" else ()


def version_file(found: Package) -> dict[str, str]:
    path = "torch/version.py"
    if path not in found.files:
        return {}
    text = found.read(path, limit=1 << 20).decode("utf-8", "replace")
    return dict(_ASSIGNED.findall(text))


def _applies(line: str, platform: str | None) -> bool:
    """Does a requirement hold on the platform of the wheel? The Windows wheels of torch also list what Linux needs."""
    asked = requirement(line) if platform is not None and ";" in line else None
    if asked is None or platform is None:
        return True
    machine = "AMD64" if platform == "win_amd64" else "aarch64" if "aarch64" in platform else "x86_64"
    return holds(asked, place(platform.startswith("win"), platform_machine=machine))


def _pinned_torch(requires: Sequence[str]) -> str | None:
    """The torch that an extension was built for, where it pins exactly one."""
    pins = (match for line in requires if (match := _TORCH_PIN.match(line)))
    return next((match[1] for match in pins), None)


def _tag(tags: Sequence[str]) -> tuple[str | None, str | None]:
    if not tags:
        return None, None
    parts = tags[0].split("-")
    return parts[0], "-".join(parts[2:]) or None


def _python(found: Package) -> str | None:
    names = (match for name in found.files if (match := _EXTENSION.search(name)))
    return next((f"cp{match[1]}{match[2]}" for match in names), None)


def _cudnn(requires: Sequence[str], binaries: Sequence[Binary]) -> str | None:
    """The pinned package's version, else that of the library inside, else the major that is linked."""
    for line in requires:
        match = _CUDNN_PIN.search(line)
        if match:
            return match[1]
    for found in binaries:
        if found.pe and _CUDNN_FILE.match(found.file) and found.pe.file_version:
            return found.pe.file_version
    linked = (name for found in binaries for name in _links(found))
    return next((match[1] for name in linked if (match := _CUDNN_FILE.match(name))), None)


def _links(found: Binary) -> tuple[str, ...]:
    if found.elf:
        return found.elf.needed
    return (*found.pe.imports, *found.pe.delayed) if found.pe else ()


def _numpy(binaries: Sequence[Binary]) -> tuple[int, ...] | None:
    texts = {text for found in binaries for text in found.texts}
    if _NUMPY_2 in texts:
        return (1, 2)
    return (1,) if _NUMPY_1 in texts else None


def _cxx_abi(binaries: Sequence[Binary]) -> str | None:
    """`cxx11` or `pre-cxx11` on Linux: do the names speak of the newer std::string? MSVC has one ABI since 2015."""
    for found in binaries:
        if found.pe and any(name.lower().startswith("msvcp140") for name in found.pe.imports):
            return "msvc-140"
    for found in binaries:
        if found.symbols and found.file == "libc10.so":
            # Its own functions: templates of the standard library are there in both spellings.
            return _spelled_with([name for name in found.symbols.defined if is_torch_symbol(name)])
    # An extension: what it asks of torch is spelled with one std::string or the other.
    asked = {name for found in binaries if found.symbols for name in found.symbols.undefined if is_torch_symbol(name)}
    return _spelled_with(asked)


def _spelled_with(names: Collection[str]) -> str | None:
    """Which std::string these functions take; None when none of them takes one."""
    if any(_OLD_STRING.search(name) for name in names):
        return "pre-cxx11"
    return "cxx11" if any("__cxx11" in name for name in names) else None


def _blas(binaries: Sequence[Binary]) -> str | None:
    for found in binaries:
        links = [name.lower() for name in _links(found)]
        if any("mkl_" in name for name in links):
            return "mkl"
        if any("openblas" in name for name in links):
            return "openblas"
        if _MKL in found.texts:
            return "mkl (static)"
        if _OPENBLAS in found.texts:
            return "openblas (static)"
        if found.symbols and found.file == "libtorch_cpu.so":
            if any(name.startswith("mkl_blas_") for name in found.symbols.defined):
                return "mkl (static)"
            if any(name.startswith("openblas_") for name in found.symbols.defined):
                return "openblas (static)"
    return None


def floor(binaries: Sequence[Binary], family: str) -> Version | None:
    return max([floor for found in binaries if found.elf and (floor := found.elf.floor(family))], default=None)


def read_binaries(found: Package, *, units: bool = False) -> list[Binary]:
    return [
        found.binary(name, symbols=True, texts=wanted_texts(name), units=units)
        for name in found.files
        if is_binary(name)
    ]


def cuda_linked(binaries: Sequence[Binary]) -> Version | None:
    """The major version of CUDA, from the names of its libraries that are linked; libcusolver.so.11 is of 12, too."""
    for found in binaries:
        for name in _links(found):
            match = re.match(r"(?:libcudart\.so\.|libcublas\.so\.|cudart64_|cublas64_)(\d\d)", name.lower())
            if match:
                return Version(f"{match[1]}.0")
    return None


VARIANT_SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"
VARIANT_FILE = "variant.json"
_LARGEST = 1 << 20
_WHY = "an installer takes a variant by its label alone: it would take this one where it cannot run"
_FIX = "`rekindle repair --variant` labels it by what is in it"


class VariantFile(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`variant.json` of one wheel, and `NAME-VERSION-variants.json` of an index, which has several `variants`."""

    schema: str = msgspec.field(name="$schema", default=VARIANT_SCHEMA)
    default_priorities: dict[str, tuple[str, ...]] = {}
    providers: dict[str, dict[str, Any]] = {}
    variants: dict[str, dict[str, dict[str, tuple[str, ...]]]]


def read_variant(found: Package) -> WheelVariant | None:
    """None where there is no label, or none that can be read."""
    try:
        return _read_variant(found)
    except BadInput:
        return None


def _read_variant(found: Package) -> WheelVariant | None:
    path = f"{package.dist_info(found)}/{VARIANT_FILE}"
    if path not in found.files:
        return None
    said = codec.from_json(found.read(path, limit=_LARGEST), VariantFile, name=path)
    if len(said.variants) != 1:
        raise BadInput(f"`{path}` describes {len(said.variants)} variants, not one", hint=_FIX)
    label, properties = next(iter(said.variants.items()))
    spaces = said.default_priorities.get("namespace", ())
    return WheelVariant(label=label, properties=properties, providers=said.providers, namespaces=spaces)


def variant_findings(
    found: Package, variant: WheelVariant | None, codes: Sequence[GpuCode], cuda: Version | None
) -> list[Finding]:
    stated = _stated_label(found)
    if variant is None and stated is None:
        try:
            _read_variant(found)
        except BadInput as error:
            return [failed("variant", str(error), why=_WHY, fix=_FIX)]
        return []
    if variant is None or (found.kind == "wheel" and stated != variant.label):
        inside = f"`{variant.label}`" if variant else "no variant that can be read"
        text = f"the file name says the variant `{stated}`, {VARIANT_FILE} says {inside}"
        return [failed("variant", text, why=_WHY, fix=_FIX)]
    wrong = [
        failed("variant", answer.sentence, why=_WHY, fix=_FIX)
        if isinstance(answer, Clash)
        else unverified("variant", str(getattr(answer, "missing", "")))
        for answer in judged(variant, codes, cuda)
    ]
    return wrong or [passed("variant", f"what the label `{variant.label}` promises is in it")]


def _stated_label(found: Package) -> str | None:
    from packaging.utils import InvalidWheelFilename

    try:
        return read_name(found.name.rpartition("/")[2]).label if found.kind == "wheel" else None
    except InvalidWheelFilename:
        return None


@reads_only()
def read_torch(where: Path) -> TorchLibraries:
    """The torch of a wheel, of a `torch` folder, or of an environment (its folder or its python)."""
    named = where.suffix == ".whl" or where.name == "torch"
    place = where if named else torch_of(find(where))
    if place is None:
        raise _no_torch(where)
    with package.open_package(place) as found:
        binaries = read_binaries(found)
        known = identify(found, binaries)
    if known.torch is None or not known.is_torch_package:
        raise _no_torch(where)
    return torch_libraries(
        f"torch {known.torch}",
        binaries,
        version=known.torch,
        cuda=known.cuda,
        cxx_abi=known.cxx_abi,
        requires=known.requires,
    )


def _no_torch(where: Path) -> BadInput:
    message = f"`{where}` has no torch to check against"
    return BadInput(message, hint="name a torch wheel, or an environment that has torch")


def wheel_beside(wheel: Path, requires: Sequence[str], tags: Sequence[str]) -> Path | None:
    """A torch wheel in the same folder that this extension's requirement and platform admit."""
    platforms = {tag.split("-")[-1] for tag in tags}
    for path in sorted(wheel.parent.glob("torch-*.whl"), reverse=True):
        parts = path.stem.split("-")
        if len(parts) >= 5 and admits(requires, parts[1]) and platforms & set(parts[-1].split(".")):
            return path
    return None


def fit_findings(known: Identity, torch: TorchLibraries, binaries: Sequence[Binary]) -> list[Finding]:
    """What the two say of themselves and does not go together. Nothing: as far as that goes, they fit."""
    found: list[str] = []
    wanted = torch_line(known.requires)
    if not admits(known.requires, torch.version):
        found.append(f"it requires `{wanted}`, and this is {torch.version}")
    machine = next((each.machine for each in binaries if each.machine), None)
    system = "windows" if any(each.pe for each in binaries) else "linux"
    if (system, machine) != (torch.system, torch.machine) and machine is not None:
        found.append(f"it is for {system} on {machine}, torch for {torch.system} on {torch.machine}")
    stated = cuda_of(known)
    judged = [same_abi("it", known.cxx_abi, torch.cxx_abi), *([same_cuda("it", stated, torch.cuda)] if stated else [])]
    found += [answer.sentence for answer in judged if isinstance(answer, Clash)]
    return [
        failed(
            "closure.fit",
            f"it does not fit {torch.label}: {text}",
            why="an extension works only with the torch, the CUDA and the C++ ABI that it was built for",
            fix="install its build for this torch, or build it: `rekindle extension find`, `build`",
        )
        for text in found
    ]


def cuda_of(known: WheelIdentity) -> Version | None:
    """The CUDA that a package says it was built with: in its version (`+cu118`), or as torch says it."""
    if known.cuda is not None:
        return known.cuda
    words = (known.version or "").partition("+")[2].replace("-", ".").split(".")
    return next((line.cuda for line in map(CudaLine.parse, words) if line), None)


def torch_line(requires: Sequence[str]) -> str | None:
    """What it says of the torch that it needs."""
    return next((line for line in requires if requirement_name(line) == "torch"), None)


def admits(requires: Sequence[str], version: str) -> bool:
    """May it be installed beside this torch, by its own requirement?"""
    asked = requirement(torch_line(requires) or "")
    try:
        return asked is None or asked.specifier.contains(PackageVersion(version), prereleases=True)
    except ValueError:
        return True
