"""The catalogue of patches: what each cures, which trees need it, and the edits themselves.

A patch is one file under `torch/patches/`. A plan names patches by id and hash; this module answers which ones a
stack needs, without touching a source tree. `rekindle.source` carries the edits out.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from enum import Enum

import msgspec

from rekindle.core import untrusted
from rekindle.core.errors import BadInput, UnknownName, did_you_mean
from rekindle.core.untrusted import InsidePath
from rekindle.core.version import Version
from rekindle.knowledge import tables

_OPERATORS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}


class Bounds:
    """A span of versions as it is written: `>=1.10,<2.6`."""

    __slots__ = ("_tests", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._tests: list[tuple[Callable[[Version, Version], bool], Version]] = []
        for part in text.split(","):
            sign = next((sign for sign in _OPERATORS if part.strip().startswith(sign)), None)
            if sign is None:
                raise ValueError(f"`{text}` is not a span of versions like `>=1.10,<2.6`")
            self._tests.append((_OPERATORS[sign], Version(part.strip().removeprefix(sign).strip())))

    @classmethod
    def parse(cls, text: str) -> Bounds:
        return cls(text)

    def __contains__(self, version: Version) -> bool:
        return all(holds(version, bound) for holds, bound in self._tests)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Bounds({self.text!r})"


class PatchSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree will be built with, as far as it is known. None is "not known"."""

    torch: Version
    os: str | None = None
    arch: str | None = None
    compiler: str | None = None
    compiler_version: Version | None = None
    cmake: Version | None = None
    setuptools: Version | None = None
    cuda: Version | None = None
    python: Version | None = None
    targets: tuple[str, ...] | None = None


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions of a patch; all that are given must hold."""

    torch: Bounds
    os: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    compiler_version: Bounds | None = None
    cmake: Bounds | None = None
    setuptools: Bounds | None = None
    cuda: Bounds | None = None
    python: Bounds | None = None
    capability: Bounds | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In `file`, the text `before` stands exactly `count` times and becomes `after`.

    `fixed` is text that shows that this tree needs the edit no more. `torch` narrows the edit to some of the patch's
    releases, where the text differs between them.
    """

    file: str
    before: str
    after: str
    count: int = 1
    fixed: str | None = None
    torch: Bounds | None = None


class CMakeMinimum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Raise every version below `floor` that a CMake file of the tree asks for.

    `fixed_in` holds `fixed` when the release deals with it itself.
    """

    floor: Version
    fixed_in: str
    fixed: str


class Patch(tables.NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`unverified` says why nobody could establish that it is right; such a patch is never applied unasked.

    `variables` and `options` are the ways to the same end without an edit; a patch that has only those edits nothing.
    With `presume`, a condition that is not known counts as met: the patch is harmless where it is not needed, and a
    build that stops for want of it is not.
    """

    title: str
    symptom: str
    cause: str
    upstream: tuple[str, ...]
    when: When
    edit: tuple[Edit, ...] = ()
    cmake_minimum: CMakeMinimum | None = None
    options: dict[str, str] = msgspec.field(default_factory=dict)
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    alternative: str = ""
    presume: bool = True
    unverified: str = ""

    @property
    def hash(self) -> str:
        """SHA-256 of what the patch does and when; its prose may be improved without changing a plan."""
        core = {"id": self.id, "when": self.when, "edit": self.edit, "cmake_minimum": self.cmake_minimum}
        spelled = msgspec.json.encode([core, self.options], enc_hook=str, order="sorted")
        return hashlib.sha256(spelled).hexdigest()

    @property
    def edits(self) -> bool:
        return bool(self.edit) or self.cmake_minimum is not None


class Need(str, Enum):
    """Whether a stack needs a patch. ASKED is: only when named, because it is not for everyone or not verified."""

    YES = "yes"
    NO = "no"
    ASKED = "asked"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    patch: Patch
    need: Need
    reason: str


def patches() -> tuple[Patch, ...]:
    """The whole catalogue, by id."""
    return _catalogue()


def patch(id: str) -> Patch:
    found = next((one for one in patches() if one.id == id), None)
    if found is None:
        near = did_you_mean(id, (one.id for one in patches()))
        raise UnknownName(f"there is no patch `{id[:60]}`", hint=f"{near}`rekindle patch ROOT --list` names them")
    return found


def judged(setting: PatchSetting) -> tuple[Judgement, ...]:
    """Every patch with whether this stack needs it, and why or why not."""
    return tuple(judge(one, setting) for one in patches())


def needed(setting: PatchSetting) -> tuple[Patch, ...]:
    """The patches to name in a plan for this stack."""
    return tuple(one.patch for one in judged(setting) if one.need is Need.YES)


def judge(patch: Patch, setting: PatchSetting) -> Judgement:
    refusal = _refusal(patch.when, setting)
    if refusal:
        return Judgement(patch=patch, need=Need.NO, reason=refusal)
    if patch.unverified:
        return Judgement(patch=patch, need=Need.ASKED, reason=f"unverified: {patch.unverified}")
    unknown = _unknown(patch.when, setting)
    if unknown and not patch.presume:
        return Judgement(patch=patch, need=Need.ASKED, reason=f"only with {' and '.join(unknown)}, which was not said")
    reason = f"PyTorch {patch.when.torch}" + (f"; in case of {', '.join(unknown)}" if unknown else "")
    return Judgement(patch=patch, need=Need.YES, reason=reason)


def _refusal(when: When, setting: PatchSetting) -> str:
    """The first condition that does not hold, in words. What is not known refuses nothing."""
    if setting.torch not in when.torch:
        return f"for PyTorch {when.torch}; this is {setting.torch}"
    names = (("os", when.os), ("arch", when.arch), ("compiler", when.compiler))
    for name, allowed in names:
        actual = getattr(setting, name)
        if allowed and actual is not None and actual not in allowed:
            return f"for {', '.join(allowed)}; this is {actual}"
    spans = (
        ("CMake", when.cmake, setting.cmake), ("setuptools", when.setuptools, setting.setuptools),
        ("CUDA", when.cuda, setting.cuda), ("Python", when.python, setting.python),
        ("that compiler", when.compiler_version, setting.compiler_version),
    )  # fmt: skip
    for label, bounds, version in spans:
        if bounds is not None and version is not None and version not in bounds:
            return f"for {label} {bounds}; this is {version}"
    if when.capability is not None and setting.targets is not None:
        known = [found for target in setting.targets if (found := Version.find(target)) is not None]
        if known and not any(one in when.capability for one in known):
            return f"for compute capability {when.capability}; the list is {';'.join(setting.targets)}"
    return ""


def _unknown(when: When, setting: PatchSetting) -> list[str]:
    """The conditions that could not be held against anything."""
    return [
        label
        for label, wanted, actual in (
            (f"CMake {when.cmake}", when.cmake, setting.cmake),
            (f"setuptools {when.setuptools}", when.setuptools, setting.setuptools),
            (f"CUDA {when.cuda}", when.cuda, setting.cuda),
            (f"Python {when.python}", when.python, setting.python),
            (" or ".join(when.compiler), when.compiler, setting.compiler),
        )
        if wanted and actual is None
    ]


@tables.cached
def _catalogue() -> tuple[Patch, ...]:
    found = []
    for name in tables.names("torch/patches"):
        one = tables.decided(f"torch/patches/{name}", Patch)
        if one.id != name:
            message = f"the patch file `{name}.toml` calls itself `{one.id}`"
            raise BadInput(message, hint="give the file the name of its id")
        for edit in one.edit:
            _check_path(name, edit.file)
        if one.cmake_minimum is not None:
            _check_path(name, one.cmake_minimum.fixed_in)
        found.append(one)
    return tuple(found)


def _check_path(patch: str, path: str) -> None:
    """A patch names files inside the tree, and nothing else on the machine."""
    untrusted.checked(InsidePath, path, f"the patch `{patch}`")
