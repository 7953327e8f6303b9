"""Build options: a profile's, then what the cards and the toolkit decide, then a person's own; each held against the
options that this release really has.

A name that the release does not know is an error with the nearest real one; one that is known to do nothing is passed
on with a warning that says why. Where a value can only reach CMake on its command line (`setup.py` hands on USE_*,
BUILD_*, CMAKE_* and a fixed list, nothing else), `via` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from rekindle.build.configure.request import BuildRequest
from rekindle.core import codec
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.findings import Finding, Fix, warned
from rekindle.core.version import Version
from rekindle.knowledge.builds.profiles import ProfileOption, settings
from rekindle.knowledge.torch import options as known
from rekindle.knowledge.torch.releases import torch_release

_CBLAS_DOT = "BLAS_USE_CBLAS_DOT"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\Z")
_FORWARDED = ("USE_", "BUILD_", "CMAKE_")
_ON, _OFF = frozenset({"ON", "1", "TRUE", "YES", "Y"}), frozenset({"OFF", "0", "FALSE", "NO", "N", ""})
# Variables the environment carries on purpose; `rekindle env` shows them with their own reasons.
_OURS = frozenset({"TORCH_CUDA_ARCH_LIST", "TORCH_NVCC_FLAGS", "PYTORCH_BUILD_VERSION", "PYTORCH_BUILD_NUMBER"})


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """One option with its value. `origin` is `profile`, `rule` or `user`; `via` is `environment` or `cmake`."""

    name: str
    value: str
    origin: str
    via: str
    why: str = ""

    @property
    def environment_value(self) -> str:
        """PyTorch's setup.py takes several spellings of USE_* for yes and no; `1` and `0` serve all."""
        return {True: "1", False: "0", None: self.value}[switch(self.value)]

    @property
    def cmake_value(self) -> str:
        return {True: "ON", False: "OFF", None: self.value}[switch(self.value)]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    resolved: tuple[Resolved, ...]
    findings: tuple[Finding, ...] = ()

    def value(self, name: str) -> str | None:
        return next((each.value for each in self.resolved if each.name == name), None)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a release, for `rekindle env --options`."""

    name: str
    kind: str
    default: str | None
    condition: str | None
    first: str
    last: str
    effect: str | None = None


def resolve(
    request: BuildRequest, overrides: Mapping[str, str] | None = None, *, allow_unknown: bool = False
) -> Options:
    """The options of this build. `overrides` (`-D`) beat the file's, which beat the rules, which beat the profile."""
    asked = {**request.options, **(overrides or {})}
    for name in asked:
        if not _NAME.match(name):
            raise UsageError(f"`{name[:60]}` is not the name of an option", hint="write `-D NAME=VALUE`")
    if not request.torch:
        own = tuple(Resolved(name=n, value=v, origin="user", via="cmake", why="asked for") for n, v in asked.items())
        return Options(resolved=own)
    minor = torch_release(request.torch).minor
    found: dict[str, Resolved] = {}
    for setting in settings(request.profile):
        if _applies(setting, request) and known.exists(setting.name, minor):
            origin = "rule" if setting.profile == "*" else "profile"
            found[setting.name] = _resolved(setting.name, setting.value, origin, setting.why, minor)
    findings: list[Finding] = []
    for name, value in asked.items():
        findings += _judged(name, value, minor, allow_unknown=allow_unknown)
        found[name] = _resolved(name, value, "user", "asked for", minor)
    # PyTorch asks this of the library only where it chooses one itself (FindBLAS), not where OpenBLAS is named.
    if (request.system == "linux" and uses_openblas(found.values())) and _CBLAS_DOT not in found:
        why = "without it dot products of complex vectors are 0: OpenBLAS returns them as GNU Fortran does, not as MKL"
        found[_CBLAS_DOT] = Resolved(name=_CBLAS_DOT, value="ON", origin="rule", via="cmake", why=why)
    return Options(resolved=tuple(found[name] for name in sorted(found)), findings=tuple(findings))


def uses_openblas(resolved: Iterable[Resolved]) -> bool:
    return any(each.name == "BLAS" and each.value.lower() == "openblas" for each in resolved)


def describe(torch: str) -> tuple[Described, ...]:
    """Every option and variable that a release reads."""
    minor = Version(torch_release(torch).minor)
    rows = []
    for option in known.options().values():
        run = option.at(minor)
        if run is not None:
            verdict = known.verdicts().get(option.name)
            first, last, effect = option.ranges[0].first, option.ranges[-1].last, verdict.detail if verdict else None
            rows.append(
                codec.like(Described, run, name=option.name, kind=option.kind, first=first, last=last, effect=effect)
            )
    return tuple(sorted(rows, key=lambda row: row.name))


def switch(value: str) -> bool | None:
    """A CMake truth value; None for anything else, such as a path or a number other than 0 and 1."""
    upper = value.strip().upper()
    return True if upper in _ON else False if upper in _OFF else None


def parse(pairs: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` or `NAME:TYPE=VALUE`, as after CMake's own -D."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            message = f"`-D {pair[:60]}` has no value"
            raise UsageError(message, hint="write `-D NAME=VALUE`, for example `-D USE_KINETO=0`")
        found[name.partition(":")[0]] = value
    return found


def _applies(setting: ProfileOption, request: BuildRequest) -> bool:
    release, cuda = Version(torch_release(str(request.torch)).minor), request.cuda.version if request.cuda else None
    capabilities = [target.capability for target in request.gpu_targets]
    tests = [
        setting.system is None or setting.system == request.system,
        setting.arch is None or setting.arch == request.arch,
        setting.compilers is None or request.compiler.kind in setting.compilers,
        setting.cuda is None or setting.cuda == (cuda is not None),
        setting.cudnn is None or setting.cudnn == (request.cudnn is not None),
        setting.mkl is None or setting.mkl == (request.mkl is not None or request.pip_mkl),
        setting.cuda_below is None or (cuda is not None and cuda.major_minor < setting.cuda_below),
        setting.all_below is None or (bool(capabilities) and max(capabilities) < setting.all_below),
        setting.any_below is None or (bool(capabilities) and min(capabilities) < setting.any_below),
        setting.targets_from is None or len(request.gpu_targets) >= setting.targets_from,
        setting.first is None or Version(setting.first) <= release,
        setting.last is None or release <= Version(setting.last),
    ]
    return all(tests)


def _resolved(name: str, value: str, origin: str, why: str, minor: str) -> Resolved:
    return Resolved(name=name, value=value, origin=origin, via=_via(name, minor), why=why)


def _via(name: str, minor: str) -> str:
    """Through 2.13 `setup.py` hands on some variables; from 2.14 everything is a -D."""
    if torch_release(minor).backend != "setup.py":
        return "cmake"
    return "environment" if name.startswith(_FORWARDED) or name in known.forwarded() else "cmake"


def _judged(name: str, value: str, minor: str, *, allow_unknown: bool) -> list[Finding]:
    verdict = known.verdicts().get(name)
    exists = known.exists(name, minor)
    if name in _OURS:
        message = f"`{name}` is computed from the plan"
        raise UsageError(message, hint="change the plan's architectures or version instead of the option")
    if verdict and (verdict.verdict == "no-effect" or (verdict.verdict in ("never-existed", "limited") and not exists)):
        if verdict.verdict != "no-effect" and not allow_unknown:
            instead = f"instead: {verdict.instead}" if verdict.instead else "leave it out"
            message = f"PyTorch {minor} has no option `{name}`: {verdict.detail}"
            raise UnknownName(message, hint=f"{instead}; `--allow-unknown` passes it on all the same")
        fix = Fix(text=f"instead: {verdict.instead}" if verdict.instead else "leave it out")
        text = f"`{name}={value}` does nothing in PyTorch {minor}"
        return [warned("option-no-effect", text, why=verdict.detail, fix=fix, source=verdict.source)]
    if exists or name.startswith("CMAKE_"):
        return _arch_flag(name, value)
    near = known.nearest(name, minor)
    if not allow_unknown:
        message = f"PyTorch {minor} has no option `{name}`"
        hint = f"the nearest is `{near[0]}`" if near else f"`rekindle env --options --torch {minor}` lists them"
        raise UnknownName(message, hint=f"{hint}; `--allow-unknown` passes it on all the same")
    text = f"`{name}` is passed on, but PyTorch {minor} has no such option"
    return [warned("option-unknown", text)]


def _arch_flag(name: str, value: str) -> list[Finding]:
    """MSVC has no /arch:SSE4.1: the switch is ignored with warning D9002."""
    if name in ("CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS") and re.search(r"[/-]arch:SSE(3|4)", value, re.IGNORECASE):
        message = f"`{value}` in `{name}`: MSVC has no such switch"
        raise UsageError(
            message, hint="the compiler's floor on x64 is SSE2 already; the `compat` profile asks for no more"
        )
    return []


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the request."""

    overrides: dict[str, str] = {}
    allow_unknown: bool = False
    until: str | None = None
    start: str | None = None
    clean: bool = False
    jobs: int | None = None
    """A fixed number of compiles at a time, for a Ninja that takes no job tokens."""
    ceiling: int | None = None
    """The most at a time where the governor decides; None: one per core."""
    work: str | None = None
    bundle: str | None = None
    """The folder of `rekindle plan --bundle`, instead of a package index."""
    gpu: bool = False
    launcher: str | None = None
    cache_place: dict[str, str] = {}
    auto_fix: bool = False
    """Fixes that need no decision are made without asking."""
    force: bool = False
    """Go on although a check of the machine failed."""
    again: str = "rekindle build"
    """The command that goes on with this build."""
