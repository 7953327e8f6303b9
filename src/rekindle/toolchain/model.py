"""What is asked for, what it is made of, and what is there: the values of this room; and what a provider of parts is.

    find(wanted, place, settings)      parts with size and SHA-256, or why there are none
    fetch(parts, folder, settings)     archives into an empty or half-filled folder, going on there
    GROUP                              how many small parts are best fetched by one call

The hash is checked by the caller, before anything is unpacked.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.texts import HashText, InsideText
from rekindle.core.untrusted import PlainFileName, Sha256, checked
from rekindle.core.version import Version, typed
from rekindle.inputs import plain
from rekindle.inputs.versions import read_cudnn, spelled_cuda
from rekindle.model.platform import PlainWord, Platform

TOOLS = ("cuda", "cudnn", "gcc", "mkl", "nccl", "openblas")
KIT_SCHEMA = "rekindle.toolchain-kit/1"


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`cuda==11.8`: a tool and as much of its version as matters."""

    name: str
    version: Version | None = None

    @classmethod
    def parse(cls, text: str) -> ToolSpec:
        match = re.fullmatch(r"([a-z]+)\s*(?:(?:==|@|=)\s*(.+))?", plain(text))
        if not match or match[1] not in TOOLS:
            message = f"`{text[:60]}` is not a tool that can be installed"
            raise UsageError(message, hint=f"write it like `cuda==11.8`; known are {', '.join(TOOLS)}")
        if match[2] is None:
            return cls(name=match[1])
        version = spelled_cuda(match[2]) if match[1] == "cuda" else typed(match[2], "the version", "11.8")
        if match[1] == "cudnn":
            version = read_cudnn(str(version)) or version
        return cls(name=match[1], version=version)

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name

    def fits(self, name: str, version: Version, release: Version | None = None) -> bool:
        """By the tool's own number (nvcc's 13.0.88) or by that of the release it came with (13.0.2)."""
        if self.name != name:
            return False
        known = [each for each in (version, release) if each is not None]
        return self.version is None or any(each.starts_with(self.version) for each in known)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One archive. `origin` says to its provider which one it is, and to a person where it comes from."""

    name: str
    version: str
    file: PlainFileName
    size: int
    sha256: Sha256
    origin: str
    licence: str = ""


def licences_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """Whose terms hold for these parts, each once."""
    return tuple(dict.fromkeys(part.licence for part in parts if part.licence))


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tool, offered or there."""

    provider: str
    name: PlainWord
    version: Version
    release: Version | None = None
    """The number of the release it came with, where that is another: nvcc 13.0.88 is of CUDA 13.0.2."""
    variant: PlainWord = ""
    """The CUDA that a cuDNN or NCCL is made for, `cu11`: two of one version can lie side by side."""
    place: Platform
    full: bool = False
    unverified: tuple[str, ...] = ()
    """What nobody has tried."""
    gone: tuple[str, ...] = ()
    """Parts of a whole tool that this provider does not have."""


class Offering(_Tool, frozen=True, kw_only=True):
    """What a provider has: the parts of one tool. `layout` says how they are put together."""

    layout: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def licences(self) -> tuple[str, ...]:
        return licences_of(self.parts)


class KitFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a kit, or a link where `link` is set."""

    path: InsideText
    sha256: HashText = ""
    size: int = 0
    executable: bool = False
    link: str | None = None


class Kit(_Tool, frozen=True, kw_only=True):
    """One tool that is there, as its own record says. `root` is where it was found."""

    schema: str = KIT_SCHEMA
    layout: str | None = None
    """How its parts were put together; None for a folder of the user's."""
    parts: tuple[Part, ...] = ()
    files: tuple[KitFile, ...] = ()
    made: tuple[str, ...] = ()
    """Link names that no part brought and that were made."""
    missing: tuple[str, ...] = ()
    """What a whole tool has and this one lacks."""
    adopted: str | None = None
    """The folder of somebody else's that is used as it is."""
    made_at: str = ""

    @property
    def id(self) -> PlainFileName:
        return kit_id(self)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """Over every path and its contents: two kits with the same one hold the same files."""
        lines = sorted(f"{file.path}\0{file.link or file.sha256}\0{int(file.executable)}" for file in self.files)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def kit_id(kit: Kit | Offering) -> PlainFileName:
    """The folder's name: short, without spaces."""
    words = [kit.name, str(kit.version), kit.variant]
    words += [kit.place.system, kit.place.arch] if kit.place != Platform.here() else []
    words += ["full"] if kit.full else []
    return checked(PlainFileName, "-".join(filter(None, words)), "the list of a kit's files")


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every provider."""

    state: Path
    """Where a provider may keep lists and the like."""
    full: bool = False
    offline: bool = False
    source: Path | None = None
    """A folder of archives, or an archive, that the user has."""
    mirror: str | None = None
    """An address to ask instead of the provider's own."""
    cuda: Version | None = None
    """The CUDA that a cuDNN or NCCL must be made for."""


class FoundOffering(msgspec.Struct, frozen=True, kw_only=True):
    """An offering, or the reason why there is none."""

    offering: Offering | None = None
    why: str = ""
    silent: bool = False
    """Nobody answered: asking for another version would not help."""


def offered(provider: str, wanted: ToolSpec, place: Platform, settings: ProviderSettings, **more: Any) -> FoundOffering:
    """What a provider has of what was wanted."""
    made = Offering(provider=provider, name=wanted.name, place=place, full=settings.full, **more)
    return FoundOffering(offering=made)


class Provider(Protocol):
    NAME: str
    GROUP: int

    def find(self, wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering: ...

    def fetch(self, parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]: ...


NAMES = ("index", "debian", "redistrib", "conda", "folder")


def providers() -> tuple[Provider, ...]:
    return tuple(provider(name) for name in NAMES)


def provider(name: str) -> Provider:
    if name not in NAMES:
        raise UnknownName(f"unknown provider `{name[:40]}`", hint=f"known are {', '.join(NAMES)}")
    found: Provider = importlib.import_module(f"rekindle.toolchain.providers.{name}")
    return found
