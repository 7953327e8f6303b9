"""The wheel that keeps its CPU and Python halves: what it says of itself, and what is taken out of it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rekindle.build.graft import across, platforms
from rekindle.build.graft.across import Exchange
from rekindle.build.graft.platforms import Linkage
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, UsageError
from rekindle.core.paths import sha256_of
from rekindle.core.untrusted import Commit, Sha256
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.torch.releases import full_version, parse_arch_list
from rekindle.model.requirement import requirement
from rekindle.model.torch_pin import TorchPin
from rekindle.model.wheel import python_of
from rekindle.wheels.inspect import identity

if TYPE_CHECKING:
    from rekindle.build.configure.request import BuildFile

_STAMP = "base.json"
_HOPPERS = ("-DUSE_MSLK", "-DUSE_FBGEMM_GENAI")
"""Kernels for Hopper and newer, out of a library that the wheel has inside without its headers."""
_DEFINITIONS = re.compile(
    r'set_target_properties\((torch_cpu|torch_cuda) PROPERTIES\s+INTERFACE_COMPILE_DEFINITIONS "([^"]*)"'
)


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """`torch` is the release without its local part; `requires` what it needs on its own platform. `exchange` is
    what a GPU half of another CUDA major has to have in place of that."""

    wheel: str
    sha256: Sha256
    torch: str
    commit: str
    cuda: Version
    python: str
    system: str
    arch: str
    cxx_abi: str
    requires: tuple[str, ...] = ()
    exchange: Exchange | None = None

    @property
    def installed(self) -> tuple[str, ...]:
        """What is compiled and linked with."""
        return self.exchange.for_building(self.requires) if self.exchange else self.requires

    def pin(self, word: str) -> str | None:
        """The version of NVIDIA's package whose name holds `word`."""
        for line in self.installed:
            asked = requirement(line)
            if asked is not None and asked.name.startswith("nvidia-") and word in asked.name:
                return next((each.version for each in asked.specifier if each.operator == "=="), None)
        return None


@contextlib.contextmanager
def held(path: Path, sha256: Sha256 | None) -> Iterator[tuple[package.Wheel, Sha256]]:
    """A wheel and its hash: open all the while, so another file that takes its name is not read instead."""
    with File(path) as file:
        found = sha256_of(file.fileno())
        if sha256 is not None and found != sha256:
            message = f"`{path.name}` is not the base of the plan: its SHA-256 is {found[:12]}…, not {sha256[:12]}…"
            raise BadInput(message, hint="download the plan's wheel again, or make a plan for this one")
        yield package.Wheel(Archive(file)), found


def read(path: Path, *, sha256: Sha256 | None = None) -> Base:
    """What the wheel is, or why it cannot be a base. `sha256` is what the plan pins."""
    with held(path, sha256) as (found, found_hash):
        known = identity.identify(found, identity.read_binaries(found))
        facts = identity.version_file(found)
    cuda = known.cuda
    if known.project != "torch" or known.torch is None or known.platform is None:
        raise BadInput(f"`{path.name}` is no PyTorch wheel", hint="name an official wheel of torch")
    if cuda is None:
        message = f"`{path.name}` is a PyTorch without CUDA: it has no GPU half to replace"
        raise BadInput(message, hint="name the official wheel of the same release with a CUDA line, like +cu118")
    try:
        commit = Commit(facts.get("git_version", ""))
    except ValueError as error:
        message = f"`{path.name}` does not say which commit it was built from"
        raise BadInput(message, hint="name an official wheel: its GPU half must come from the same source") from error
    python = python_of(known.python or "")
    if known.cxx_abi is None or python is None:
        raise BadInput(f"the C++ ABI or the Python of `{path.name}` is not known", hint="name an official wheel")
    arch = "aarch64" if known.platform.endswith("aarch64") else "x86_64"
    windows = known.platform.startswith("win")
    return Base(
        wheel=str(path),
        sha256=found_hash,
        torch=TorchPin.parse(known.torch).release,
        commit=commit,
        cuda=cuda,
        python=python,
        system="windows" if windows else "linux",
        arch=arch,
        cxx_abi=known.cxx_abi,
        requires=(*_plain(known.requires), *(_headers(path, cuda, known.cudnn) if windows else ())),
    )


def _headers(path: Path, cuda: Version, cudnn: str | None) -> tuple[str, ...]:
    """A wheel for Windows has NVIDIA's libraries inside, without their headers: these come from NVIDIA's packages."""
    version = Version.find(cudnn or "")
    least = since("cudnn-packages-windows")
    if version is None or version < least:
        message = f"`{path.name}` does not have a cuDNN of {least} or newer, whose headers could be brought"
        raise BadInput(message, hint="take the official Windows wheel of PyTorch 2.4 or newer")
    line = f"-cu{cuda.major}"
    runtime = f"nvidia-cuda-runtime{line if cuda.major < 13 else ''}"
    return (f"{runtime}=={cuda.major_minor}.*", f"nvidia-cudnn{line}=={version}")


def _plain(lines: Sequence[str]) -> tuple[str, ...]:
    """As pip takes them on a command line, without markers. What belongs to an extra is left out, and Triton, which
    would bring another torch and is not needed to import one."""
    kept = []
    for line in lines:
        asked = requirement(line)
        if asked is not None and asked.name != "triton" and (asked.marker is None or "extra" not in str(asked.marker)):
            extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
            kept.append(f"{asked.name}{extras}{asked.specifier}")
    return tuple(kept)


def on_base(wanted: BuildFile, base: Base) -> BuildFile:
    """What the base decides: release, commit, Python and platform. A plan that says otherwise is for another wheel."""
    for what, said, own in (
        ("PyTorch", wanted.torch and full_version(wanted.torch), base.torch),
        ("commit", wanted.commit, base.commit),
        ("Python", wanted.python if wanted.python and wanted.python[0].isdigit() else None, base.python),
    ):
        if said is not None and said != own:
            message = f"the base `{Path(base.wheel).name}` has {what} {own}, the plan {said}"
            raise BadInput(message, hint="name the base that the plan was made for")
    first = since("graft-known")
    if Version(base.torch).major_minor < first:
        message = f"PyTorch {base.torch} is older than {first}, the first whose GPU half can be built alone"
        raise UsageError(message, hint="leave `--graft` out: `rekindle build` compiles all of it")
    if wanted.cuda is not None:
        for_toolkit(base, wanted.cuda, wanted.arch_list)
    return msgspec.structs.replace(
        wanted, torch=base.torch, commit=base.commit, python=wanted.python or base.python, system=base.system,
        arch=base.arch, backend="graft", cudnn=None, options={}, requires=(), wheels={},
    )  # fmt: skip


def for_toolkit(base: Base, cuda: Version, arch_list: str) -> Base:
    """With what a GPU half by that toolkit needs; refused where no such half could fit."""
    cards = [target.capability for target in parse_arch_list(arch_list)]
    found = across.exchange(base.cuda, base.requires, cuda, cards)
    return msgspec.structs.replace(base, exchange=found)


class UnpackedBase(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` are those that the CPU half was compiled with; `definitions` what its users must define."""

    sha256: Sha256
    flags: tuple[str, ...]
    definitions: tuple[str, ...]


def unpack(base: Base, folder: Path) -> UnpackedBase:
    """The complete wheel under `folder`, once: it is compiled against, linked with, and asked later."""
    stamp = folder / _STAMP
    if stamp.is_file():
        kept = codec.from_json(stamp.read_bytes(), UnpackedBase)
        if kept.sha256 == base.sha256:
            return kept
    if folder.exists():
        shutil.rmtree(folder)
    with held(Path(base.wheel), base.sha256) as (wheel, _):
        package.unpack(wheel.archive, folder)
    made = UnpackedBase(
        sha256=base.sha256, flags=_flags(folder, platforms.of(base.system)), definitions=_definitions(folder)
    )
    files.write_text(stamp, codec.to_json(made) + "\n")
    return made


def libraries(folder: Path) -> Path:
    return folder / "torch" / "lib"


def _flags(folder: Path, platform: Linkage) -> tuple[str, ...]:
    """PyTorch keeps the flags of its compiler inside the CPU half (`torch.__config__.show()` prints them)."""
    path = libraries(folder) / platform.library.format("torch_cpu")
    found = platform.said.findall(path.read_bytes())
    if not found:
        message = f"`{path.name}` of the base does not say how it was compiled"
        raise BadInput(message, hint="name an official wheel")
    words = re.sub(r"(?<!\S)/D", "-D", max(found, key=len).decode("ascii", "replace")).split()
    return tuple(word for word in words if word.startswith(platform.kept) and word not in _HOPPERS)


def _definitions(folder: Path) -> tuple[str, ...]:
    path = folder / "torch" / "share" / "cmake" / "Caffe2" / "Caffe2Targets.cmake"
    if not path.is_file():
        return ()
    text = path.read_text(encoding="utf-8", errors="replace")
    words = [word for _, line in _DEFINITIONS.findall(text) for word in line.split(";")]
    return tuple(dict.fromkeys(word for word in words if re.fullmatch(r"\w+(=\w+)?", word)))
