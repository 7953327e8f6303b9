"""Is there a ready-made wheel of an extension for this torch, Python and system, with code for the cards?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rekindle.compat import toolkit_card, wheel_platform
from rekindle.compat.extension_torch import ABIS
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown
from rekindle.core.version import Version
from rekindle.knowledge.builds import extension_files, programs
from rekindle.knowledge.builds.extension_files import AskedFile, ExtensionFile
from rekindle.knowledge.logs import extension_homes
from rekindle.knowledge.torch import companions
from rekindle.model.card import NamedCard
from rekindle.model.cuda_line import CudaLine
from rekindle.model.requirement import canonical_name
from rekindle.model.torch_pin import CPU

_PLATFORMS = {"linux": "linux_x86_64", "windows": "win_amd64"}


def known_as(package: str, system: str) -> str:
    """The name that the tables know a package by, however it was written."""
    name = canonical_name(package)
    name = canonical_name("triton-windows") if name == "triton" and system == "windows" else name
    # TensorRT is a program, and the folder of torch-tensorrt's repository.
    home = extension_homes.home(name) if programs.known(name) else extension_homes.home_of_folder(name)
    return canonical_name(home.package) if home else name


def needs_torch(package: str, system: str) -> bool:
    """False where every file that is known is for some CUDA, whatever torch is beside it."""
    name = known_as(package, system)
    rows = extension_files.files(name)
    free = bool(rows) and all(row.parts(build)[0] is None for row in rows for build in row.builds)
    return not free and not programs.free_of_torch(name)


def ready_made(package: str, asked: AskedFile, cards: Sequence[NamedCard], glibc: Version | None = None) -> Judgement:
    """By the tables: Unknown where they name no file of the package."""
    name = known_as(package, asked.platform.system)
    if name in companions.PROJECTS:
        return _companion(name, asked)
    rows = extension_files.files(name)
    if not rows:
        return Unknown(missing=f"which ready-made wheels of {name} there are")
    near = extension_files.nearest(name, asked)
    if any(isinstance(serves(row, near, cards, glibc), Fits) for row in extension_files.fitting(name, near)):
        return Fits()
    return Clash(sentence=f"no ready-made wheel of {name} is known for torch {asked.torch}", source=rows[0].source)


def _companion(name: str, asked: AskedFile) -> Judgement:
    line = asked.torch.variant or CPU
    row = companions.companion(name, asked.torch.release, asked.platform, line=line, python=asked.python)
    if row or companions.without_gpu_code(name, asked.torch.release, asked.platform, python=asked.python):
        return Fits()
    sentence = f"no {name} of {line} is known for torch {asked.torch.release}"
    return Clash(sentence=sentence, source="the torch that each release of it was built with")


class ChosenFile(NamedTuple):
    """What pip is told to install, and who built it."""

    words: tuple[str, ...]
    by: str
    stranger: bool = False
    """Others than its makers."""


def chosen(package: str, asked: AskedFile, cards: Sequence[NamedCard]) -> ChosenFile | None:
    """The first file that fits, by the tables; None where they do not name one."""
    name = known_as(package, asked.platform.system)
    asked = extension_files.nearest(name, asked)
    for row in extension_files.fitting(name, asked):
        if isinstance(serves(row, asked, cards, None), Fits):
            address = file_address(row, asked) if row.name else None
            words = (address,) if address else () if row.name else index_words(row, asked)
            if words:
                return ChosenFile((*words, *words_beside(row, asked, cards)), made_by(row), row.by is not None)
    return None


def words_beside(row: ExtensionFile, asked: AskedFile, cards: Sequence[NamedCard]) -> tuple[str, ...]:
    """What pip is told besides, for the packages that a row needs."""
    files = [chosen(each, asked, cards) for each in row.needs]
    return tuple(word for file in files if file for word in file.words)


def serves(row: ExtensionFile, asked: AskedFile, cards: Sequence[NamedCard], glibc: Version | None) -> Judgement:
    """Does what a row names load on the system, has it code for the cards, and is there what it needs?"""
    loaded = wheel_platform.loads(row.requirement, row.glibc, glibc)
    beside = (ready_made(each, asked, cards, glibc) for each in row.needs)
    lacking = next((each for each in (loaded, *beside) if isinstance(each, Clash)), None)
    if lacking is not None:
        return lacking
    _, line = row.parts(row.build_for(asked.torch) or "")
    own = CudaLine.parse(line)
    cuda = row.toolkit or (own.cuda if own else None)
    for card in cards:
        served = row.serves(card.capability)
        if served is False:
            sentence = f"{row.requirement} {made_by(row)} has no code for {card.name} ({card.capability.sm})"
            return Clash(sentence=sentence, source=row.source)
        if served is None and cuda is not None and not row.pure:
            judged = toolkit_card.compiles(cuda, card.capability, card.name)
            if isinstance(judged, Clash):
                return Clash(sentence=f"{row.requirement} {made_by(row)}: {judged.sentence}", source=row.source)
    return Fits()


def made_by(row: ExtensionFile) -> str:
    return f"built by {row.by}" if row.by else "built by the project itself" if row.name else "on the index"


def file_address(row: ExtensionFile, asked: AskedFile, cxx_abi: str | None = None) -> str | None:
    """Where the file of a row lies; None where none goes with this torch."""
    name = _file_name(row, asked, cxx_abi)
    if name is None or row.address is None:
        return None
    return row.address.format(version=row.version, name=name.replace("+", "%2B"))


def index_words(row: ExtensionFile, asked: AskedFile) -> tuple[str, ...]:
    """What pip is told, where it finds the file itself: the requirement, and the options of its list."""
    fields = _fields(row, asked)
    return (row.requirement.format(**fields), *(row.switch or "").format(**fields).split())


def _fields(row: ExtensionFile, asked: AskedFile) -> dict[str, str]:
    """What the patterns of a row are filled in with."""
    torch, _ = row.parts(row.build_for(asked.torch) or "")
    minor, line = str(Version(asked.torch.release).major_minor), asked.torch.variant or ""
    cuda = CudaLine.parse(line)
    python = asked.python.replace(".", "")
    return {
        "package": row.package,
        "version": row.version,
        "torch": str(torch or asked.torch.release),
        "minor": minor,
        "digits": minor.replace(".", ""),
        "patch": asked.torch.release.replace(".", ""),
        "line": line,
        "major": line[2:4],
        "cuda": str(cuda.cuda) if cuda else "",
        "python": f"cp{python}",
        "py": f"py{python}",
        "platform": _PLATFORMS[asked.platform.system],
    }


def _file_name(row: ExtensionFile, asked: AskedFile, cxx_abi: str | None) -> str | None:
    """The name by the row's pattern, with the C++ ABI of the torch; None where none goes with it."""
    fields = _fields(row, asked)
    own = [word for word, abi in ABIS.items() if cxx_abi in (None, abi)]
    for abi in own:
        name = (row.name or "").format(abi=abi, **fields)
        built = wheel_platform.built_for(name)
        built = msgspec.structs.replace(built, cxx_abi=None) if len(own) == 1 else built
        judged = wheel_platform.goes_with(
            built,
            torch=asked.torch.release,
            line=asked.torch.variant,
            python=asked.python,
            system=asked.platform.system,
        )
        if not isinstance(judged, Clash):
            return name
    return None
