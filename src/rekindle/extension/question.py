"""For which torch, Python and system a wheel is looked for: what was typed, else what is in the environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rekindle.audit.audit import installed_torch
from rekindle.audit.cards import cards_of
from rekindle.compat.extension_file import needs_torch
from rekindle.compat.extension_torch import official_abi
from rekindle.compat.torch_cuda import ordinary_line
from rekindle.core.command import Command, pip, rekindle
from rekindle.core.errors import NoRoute, NotFound, RekindleError, UsageError
from rekindle.core.version import Version
from rekindle.extension.check import ForTorch
from rekindle.inputs.package import read_extension
from rekindle.inputs.torch import with_cuda
from rekindle.knowledge.builds.extension_files import AskedFile
from rekindle.knowledge.torch.releases import torch_release
from rekindle.machine import snapshot
from rekindle.machine.model import InstalledTorch
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.card import NamedCard
from rekindle.model.cuda_line import CudaLine
from rekindle.model.environment import Environment
from rekindle.model.platform import LINUX, Platform
from rekindle.model.torch_pin import TorchPin
from rekindle.stack.from_machine import situation_here, situation_of
from rekindle.stack.resolver import resolve
from rekindle.stack.route import Route, Stack
from rekindle.stack.situation import Situation, Wish
from rekindle.wheels.inspect.inspection import inspect


class ExtensionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`environment` and `installed` where the question is about a torch that is there."""

    package: str
    torch: str
    line: str | None
    python: str
    platform: Platform
    cards: tuple[NamedCard, ...] = ()
    place: Situation | None = None
    """The computer, as far as it is known."""
    environment: Environment | None = None
    installed: InstalledTorch | None = None
    cxx_abi: str | None = None
    """The C++ ABI of the torch that is installed; None: that of PyTorch's own wheels is meant."""
    note: str | None = None
    """What was taken for granted."""

    @property
    def system(self) -> str:
        return self.platform.system

    @property
    def pin(self) -> TorchPin:
        return TorchPin(self.torch, self.line)

    @property
    def asked(self) -> AskedFile:
        return AskedFile(torch=self.pin, python=self.python, platform=self.platform)

    @property
    def cuda(self) -> Version | None:
        return self.pin.line.cuda if self.pin.line else None

    @property
    def beside(self) -> ForTorch:
        """The torch that a file is held against: that of PyTorch's own wheels where none is installed."""
        own = self.platform == LINUX
        abi = self.cxx_abi or (official_abi(Version(self.torch), self.line) if own else None)
        version, cuda = (self.installed.version, self.installed.cuda) if self.installed else (self.torch, self.cuda)
        return ForTorch(version, cuda, abi, self.installed)

    def pip_install(self, *words: str) -> Command:
        if self.environment is not None:
            return self.environment.pip_command("install", *words)
        return pip("install", *words, system=self.system)


class TorchNamed(msgspec.Struct, frozen=True, kw_only=True):
    """A torch as it was typed, of whatever computer: each of them may be left out."""

    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    os: str | None = None
    arch: str | None = None


def of(name: str, said: TorchNamed, *, place: Path | None = None, gpus: Sequence[str] = ()) -> ExtensionQuestion:
    """A torch that is named is a question about it; without one, the one that is installed is meant.

    With cards and the rest of `said` alone it is the one that `plan` takes.
    """
    name = read_extension(name)
    option = next((option for option, value in msgspec.structs.asdict(said).items() if value is not None), None)
    if option is None:
        environment, where = find_environment(place), situation_of(snapshot.here(), gpus=gpus)
        if installed_torch(environment) is None and where.cards and not needs_torch(name, environment.os):
            best = resolve(where, Wish(extensions=(name,))).recommended
            if best.torch is not None and best.cuda is not None:
                return beside(name, best, environment, where)
        return in_environment(name, environment, where, gpus)
    if place is not None:
        raise UsageError(f"`--env` cannot be combined with `--{option}`", hint="leave out one of them")
    if said.torch is None and not gpus:
        hint = "or `--gpu`: then the torch that `rekindle plan` takes for that card is meant"
        raise UsageError(f"`--{option}` needs `--torch`", hint=hint)
    typed, version = with_cuda(said.torch, said.cuda)
    where = situation_here(gpus=gpus, system=said.os, machine=said.arch, python=said.python)
    notes = [where.arch_note] if where.arch_note else []
    python = said.python or (find_environment(None).version if said.torch else None)
    known = said.torch is not None and version is not None and python is not None
    wish = Wish(torch=typed.wanted, cuda=version, extensions=(name,) if said.torch is None else ())
    planned = None if known else resolve(where, wish).recommended
    if planned and wish.extensions and (planned.torch is None or planned.change is not None):
        wish = msgspec.structs.replace(wish, extensions=())
        planned = resolve(where, wish).recommended
    if planned is None or said.torch is not None:
        release = typed.release
        line = CudaLine(version).name if version else _usual(release, where, planned)
        if version is None:
            notes.append(f"which CUDA your torch has was not said, so {line} is taken: `--cuda` names another")
    elif planned.torch is None or planned.cuda is None:
        raise NoRoute(planned.summary, hint="`rekindle plan` says more; `--torch` names a torch")
    else:
        release, line, python = str(planned.torch), CudaLine(planned.cuda).name, python or str(planned.python)
        options = {"gpu": gpus, "os": [said.os], "arch": [said.arch], "python": [said.python], "with": wish.extensions}
        words = [
            word for option, values in options.items() for each in values if each for word in (f"--{option}", each)
        ]
        taken = str(TorchPin(release, line)) + f" with Python {planned.python}" * (python != str(planned.python))
        notes.append(f"{taken} is what `{rekindle('plan', *words)}` takes: `--torch` names another")
    if where.system == "windows":
        notes.append("`--env FOLDER` instead of `--torch` answers for the Python of a portable folder (ComfyUI)")
    return ExtensionQuestion(
        package=name,
        torch=release,
        line=line,
        python=python or (planned.python if planned else None) or "",
        platform=where.platform,
        place=where,
        cards=cards_of(gpus, where),
        note="; ".join(notes) or None,
    )


def _usual(torch: str, where: Situation, planned: Route | None) -> str:
    """The CUDA line that pip brings; where that is none, the one that is planned, else the newest."""
    release = torch_release(torch)
    usual = ordinary_line(release, where.platform)
    if CudaLine.parse(usual):
        return usual
    if planned and str(planned.torch) == torch and planned.cuda:
        return CudaLine(planned.cuda).name
    return max(release.variants, key=lambda each: each.cuda or Version("0")).name


def in_environment(
    name: str, environment: Environment, where: Situation, gpus: Sequence[str] = ()
) -> ExtensionQuestion:
    """With the torch that is there."""
    found = installed_torch(environment)
    number = Version.find(found.version) if found else None
    if found is None or number is None or environment.version is None:
        hint = "name one: `--torch 2.8.0+cu128 --python 3.12`, or another environment with `--env DIR`; "
        hint += f"`{rekindle('plan', '--gpu', 'NAME', '--with', name)}` chooses a PyTorch that has one"
        raise NotFound(f"there is no torch in `{environment.root}`", hint=hint)
    if found.cuda is None:
        message = f"torch {found.version} in `{environment.root}` is a build without CUDA"
        raise NotFound(message, hint="install one with CUDA first (`rekindle install`), or ask for another: `--torch`")
    return ExtensionQuestion(
        package=name,
        torch=str(number),
        line=CudaLine(found.cuda).name,
        python=environment.version,
        platform=Platform(environment.os, where.arch),
        place=where if where.system == environment.os else None,
        cards=cards_of(gpus, where),
        environment=environment,
        installed=found,
        cxx_abi=_cxx_abi(Path(found.root) / "lib" / "libc10.so"),
    )


def beside(name: str, stack: Stack, environment: Environment, where: Situation) -> ExtensionQuestion:
    """With a torch that will be installed there."""
    return ExtensionQuestion(
        package=name,
        torch=str(stack.torch),
        line=CudaLine(stack.cuda).name if stack.cuda else None,
        python=environment.version or "",
        platform=Platform(environment.os, where.arch),
        place=where,
        cards=cards_of((), where),
        environment=environment,
    )


def _cxx_abi(library: Path) -> str | None:
    """Whether torch was compiled with the newer std::string: one that is not PyTorch's own may differ from theirs."""
    if not library.is_file():
        return None
    try:
        return inspect(library).cxx_abi
    except RekindleError:
        return None
