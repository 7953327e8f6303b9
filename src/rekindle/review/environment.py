"""The environments that a script makes, over time: which torch each has after every command.

A command that installs changes one environment; what an unpinned name takes is what the index would take for that
Python, platform and line. Branches and the blocks of notes are alternatives: any of them may be what somebody runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec

from rekindle.compat import package as packages
from rekindle.compat.judgement import Clash
from rekindle.compat.torch_cuda import has_line, package_line, taken
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import asks_torch, needs_torch, pins_torch, script_rules
from rekindle.knowledge.torch.companions import PROJECTS
from rekindle.model.cuda_line import LINE, variant_of
from rekindle.model.platform import Platform
from rekindle.review.builds import kept
from rekindle.review.document import LISTS, Dialect
from rekindle.review.packages import (
    CONDAS,
    PROJECT_TOOLS,
    Install,
    Wanted,
    complete,
    exact_text,
    exact_version,
    excludes,
)
from rekindle.review.pythons import image_of, python_at, python_of
from rekindle.review.script_torch import ScriptTorch, by_conda, by_file, by_system, of_image
from rekindle.review.subject import Known, Subject
from rekindle.review.trace import APPTAINER, GIVEN, PIXI, Copied, Image, Invocation, last_part, started

_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL",
                    "UV_INDEX", "PIP_FIND_LINKS")  # fmt: skip


# Something of an index comes from outside.
_OPEN = re.compile(rf"[$%!]\{{?\(?\w|[{{<]|{GIVEN}")
# The Python package index, a mirror of it, or a page of files beside it.
_ORDINARY = re.compile(r"pypi|simple|\.(?:html|whl)\Z")
# What brings no torch with it.
_ALONE = re.compile(
    r"python|pip|setuptools|wheel|packaging|ninja|cmake|psutil|numpy|cython|pybind11|gxx|gcc|cuda[\w-]*"
)


class TorchReplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A command that changed the torch of an environment without being asked for this one."""

    before: ScriptTorch
    after: ScriptTorch
    found: Install
    wanted: Wanted
    left: tuple[str, ...] = ()
    """Companions that were made for the torch before, and stay."""


class ScriptEnvironments:
    """`final`: what each environment ends with, one entry for each alternative."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.replaced: list[TorchReplaced] = []
        self.every: list[ScriptTorch] = []
        self._states: dict[tuple[int, str], list[ScriptTorch]] = {}
        self._seen: dict[int, tuple[ScriptTorch, ...]] = {}
        self._packages: dict[tuple[int, str], set[str]] = {}
        self._active: dict[int, str] = {}
        self._new: set[tuple[int, str]] = set()
        self._empty: set[int] = set()
        self._walk()

    @cached_property
    def final(self) -> list[list[ScriptTorch]]:
        if self.subject.notes and self._states:
            # Notes show several ways: each is an alternative of one environment.
            return [[torch for state in self._states.values() for torch in state]]
        # So are the rows of a matrix.
        ends: dict[tuple[object, str], list[ScriptTorch]] = {}
        for (scope, name), state in self._states.items():
            label = self.subject.trace.scopes[scope].label
            ends.setdefault((label if label.endswith(" row") else scope, name), []).extend(state)
        return [state for state in ends.values() if state]

    def release(self) -> Known | None:
        """The torch that the environments end with, where all of them have one, and where it is asked for."""
        found = {torch.version: torch.line for state in self.final for torch in state}
        version, line = next(iter(found.items()), (None, 0))
        return Known(Version(version), line) if version and len(found) == 1 else None

    def at(self, item: Invocation) -> tuple[ScriptTorch, ...]:
        """What the environment of a command has when it starts."""
        return self._seen.get(item.order, ())

    def empty(self, item: Invocation) -> bool:
        """The script made the environment of this command, and everything it put there was read: no torch is in it."""
        return item.order in self._empty and not self.at(item)

    # --- the walk -------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        trace = self.subject.trace
        points: list[Image | Invocation | Copied] = [*trace.images, *trace.invocations, *trace.copies]
        for point in sorted(points, key=lambda each: each.order):
            if isinstance(point, Copied):
                origin = {scope.number for scope in trace.scopes[point.origin].chain()}
                own = [(name, state) for (scope, name), state in self._states.items() if scope in origin]
                self._states |= {(point.scope, name): state for name, state in own}
                continue
            image = point if isinstance(point, Image) else started(point)
            torch = of_image(image) if image is not None else None
            if torch is not None:
                inside = isinstance(point, Image) or point.program in APPTAINER
                self._states[(point.scope, "" if inside else str(torch.name))] = [torch]
                # PyTorch's own images have it beside torch.
                self._packages[(point.scope, "")] = {"torchvision"} if image is not None and image.pytorchs else set()
            if isinstance(point, Invocation):
                self._command(point)
        self.replaced = [each for each in self.replaced if not self._set_anew(each)]

    def _set_anew(self, change: TorchReplaced) -> bool:
        """The script itself names a torch again, and between the two it only installs."""
        subject, item = self.subject, change.found.item
        later = [each for each in subject.installs if each.item.order > item.order]
        names = (each.item for each in later if each.torch is not None)
        anew = next((each for each in names if subject.stage(each.scope) == subject.stage(item.scope)), None)
        if anew is None or anew.conditional or subject.notes or pins_torch(change.wanted.name):
            return False
        between = {each.order for each in subject.trace.invocations if item.order < each.order < anew.order}
        return between <= {each.item.order for each in later}

    def _command(self, item: Invocation) -> None:
        stage = self.subject.stage(item.scope)
        into = entered(item)
        if into is not None:
            self._active[stage] = into
        name = self._name(item, None)
        before = self._state(item, name)
        self._seen[item.order] = tuple(before)
        self._empty |= {item.order} if (stage, name) in self._new else set()
        if (new := made(item)) and not item.has("--system-site-packages", "--clone"):
            self._new.add((stage, last_part(new)))
        if any(re.search(r"(?<!/conda)(?<!/mamba)\.sh\Z", word.text) for word in item.words):
            self._new.clear()
        packaged = by_system(item)
        if packaged is not None:
            self.every.append(packaged)
            self._states[(stage, self._name(item, None))] = [packaged]
        for found in self.subject.installed_by(item):
            name = self._name(item, found)
            before = self._state(item, name)
            there = self._packages.setdefault((stage, name), set())
            if not all(_ALONE.fullmatch(each.name) for each in found.wanted) or found.lists or found.verb == "sync":
                self._new.discard((stage, name))
            if self.subject.notes and found.torch is None and before:
                self._states[(stage, name)] = self._followed(found, before, there)
                continue
            either = item.conditional or self.subject.notes or not item.reached
            # What another branch installs, this one does not have; nor does what the same lines put there stay.
            own = [torch for torch in before if self.subject.follows(torch.line, found.item.line)]
            sure = own or [torch for torch in before if not torch.branch] if either else before
            before = [torch for torch in before if torch not in own]
            after = self._after(found, sure, there)
            if after is None:
                continue
            after = [msgspec.structs.replace(torch, branch=either) for torch in after]
            self.every += after
            self._states[(stage, name)] = [*before, *after] if either else after

    def _followed(self, found: Install, before: list[ScriptTorch], there: set[str]) -> list[ScriptTorch]:
        """Notes show several ways to a torch; a package that comes behind them does to each what it does."""
        mark, after = len(self.replaced), []
        for torch in before:
            changed = self._after(found, [torch], set(there))
            after += [torch] if changed is None else [msgspec.structs.replace(each, branch=True) for each in changed]
        if len(self.replaced) - mark < len(before):
            del self.replaced[mark:]  # one of the ways stays as it was
        self.every += [torch for torch in after if torch not in before]
        there |= {each.name for each in found.wanted}
        return after

    def _state(self, item: Invocation, name: str) -> list[ScriptTorch]:
        for scope in self.subject.trace.scopes[self.subject.stage(item.scope)].chain():
            # A new environment begins empty; only conda's own base and images have something in it.
            if (scope.number, name) in self._states:
                return list(self._states[(scope.number, name)])
        return []

    def _name(self, item: Invocation, found: Install | None) -> str:
        """The environment that a command works in, by the last part of its path; empty for the one that is there."""
        if found is not None and found.environment:
            return last_part(found.environment)
        folder = re.match(r"(.*[\\/])?([^\\/]+)[\\/](?:bin|Scripts)[\\/][^\\/]+$", item.words[0].text.strip("\"'"))
        if folder and not _BASE.fullmatch(folder[2]):
            return last_part(folder[2])
        return self._active.get(self.subject.stage(item.scope), "")

    def resolved_at_once(self, found: Install) -> bool:
        """pixi resolves conda's packages and pip's as one: the torch of another row stays."""
        return self._name(found.item, found) == PIXI

    # --- what a command leaves ------------------------------------------------------------------------------------

    def _after(self, found: Install, before: list[ScriptTorch], there: set[str]) -> list[ScriptTorch] | None:
        """The torch of the environment behind this command; None: as it was. `there` are the packages it has."""
        if found.verb in ("wheel", "download") or found.has("--dry-run"):
            return None
        if found.verb == "uninstall":
            return [] if found.torch is not None else None
        if found.torch is None and not any(needs_torch(each.name) for each in found.wanted):
            return None
        new = found if _upgrades(found) or found.tool == "conda" else msgspec.structs.replace(
            found, wanted=tuple(each for each in found.wanted if each.name not in there or each.name == "torch")
        )  # fmt: skip
        names, mark = {each.name for each in found.wanted}, len(self.replaced)
        left = tuple(sorted((there & {*PROJECTS}) - names))
        there |= names
        torch = self._taken(new, before, self._python(found.item))
        self.replaced[mark:] = [msgspec.structs.replace(each, left=left) for each in self.replaced[mark:]]
        return [torch] if torch is not None else None

    def _python(self, item: Invocation) -> str | None:
        told = self.subject.asked.place.python if self.subject.asked.place else None
        known = python_at(self.subject, item) or python_of(self.subject, item)
        image = image_of(self.subject, item) if known is None else None
        return str(known) if known else told or (self.subject.system_python(image) if image is not None else None)

    def _taken(self, found: Install, before: list[ScriptTorch], python: str | None) -> ScriptTorch | None:
        subject, item = self.subject, found.item
        system = subject.system(item)
        wanted = [each for each in found.wanted if each.applies(system, python)]
        asks = next((each for each in reversed(wanted) if found.torch and each.name == found.torch.name), None)
        image = image_of(subject, item)
        base = ScriptTorch(
            line=asks.line if asks else item.line, order=item.order, version=None, system=system, python=python,
            glibc=subject.glibc(image) if image is not None else None,
        )  # fmt: skip
        if found.tool == "conda":
            return by_conda(found, asks, base)
        if asks is not None and asks.wheel is not None:
            return by_file(asks.wheel, base)
        # The package that brings a torch although none is named: what fixes it, wherever it stands.
        every = list(self._bringers(found, wanted, before)) if not (asks or found.has("--no-deps")) else []
        fixes = (each for each in every if exact_version(self._requirement(each, [])) is not None)
        bringer = asks or next(fixes, every[0] if every else None)
        if bringer is None:
            return None
        if asks is not None and asks.source is not None:
            return msgspec.structs.replace(base, kind="other", question="what is built from its source is not known")
        base = msgspec.structs.replace(base, line=bringer.line, by=bringer.name)
        if found.has("--no-index"):
            words = "which torch is taken: `--no-index` leaves the wheels of the machine"
            return msgspec.structs.replace(base, question=words)
        requirement = self._requirement(bringer, before)
        limit = self._pinned(found, wanted, bringer)
        unread = self._unread(found)
        if unread and not limit and exact_version(requirement) is None:
            words = f"which torch is taken: what `{unread[:60]}` says is not known"
            return None if before else msgspec.structs.replace(base, question=words)
        upgrade = _upgrades(found)
        if requirement is None:
            # Which line it is may stand there although the release comes from outside: `torch==$X+cpu`.
            local = variant_of(bringer.raw.strip("\"'"), None) if bringer.name == "torch" else None
            words = f"which torch `{bringer.raw.strip()[:60]}` is"
            return msgspec.structs.replace(base, variant=local, question=words)
        requirement = ",".join(part for part in (requirement, limit) if part)
        here = before[-1] if before else None
        stays = not upgrade and exact_version(requirement) is None
        if here is not None and here.version is None and stays and not (here.of_nvidia and pins_torch(bringer.name)):
            return None  # whichever is there
        if here is not None and here.of_module and stays and not here.alone:
            return None  # its companions may be in it
        satisfied = here is not None and here.version and not excludes(requirement, here.version)
        local = variant_of(requirement, None)
        if satisfied and not (upgrade and bringer.name == "torch") and local in (None, here.variant if here else None):
            return None
        torch = self._from_index(found, requirement, base)
        if torch.version is None and here is not None and bringer.name != "torch":
            return None  # there is nothing newer than what is there
        asked = bringer.name == "torch" and bringer.requirement
        if here is not None and item.reached and not here.same(torch) and (not asked or here.of_nvidia):
            self.replaced.append(TorchReplaced(before=here, after=torch, found=found, wanted=bringer))
            if here.of_module:
                words = f"whether Python takes {torch.spoken} or the one of the module `{str(here.name)[:60]}`"
                return msgspec.structs.replace(torch, kind="other", question=words)
        return torch

    def _pinned(self, found: Install, wanted: Sequence[Wanted], bringer: Wanted) -> str:
        """What else decides in the same command: constraints, and packages that go with one torch."""
        again = [each.requirement or "" for each in wanted if each.name == bringer.name and each is not bringer]
        limits = [found.limits.get("torch", ""), *(again if bringer.name == "torch" else ())]
        for each in wanted if exact_version(self._requirement(bringer, [])) is None else ():
            bound = pins_torch(each.name) or asks_torch(each.name)
            if each is not bringer and bound and each.requirement and each.source is None:
                own = self._requirement(each, []) or ""
                # Of a range, an older release goes with an older torch.
                own = own if exact_version(each.requirement) else own.replace("==", "<=")
                limits += [own] if own.startswith(("==", "<=")) else []
        return ",".join(each for each in limits if each)

    def _unread(self, found: Install) -> str | None:
        """A list of requirements or constraints that nobody could read."""
        lists = [name for name in (*found.lists, *found.constraints) if not name.endswith((".yml", ".yaml"))]
        for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
            value = self.subject.visible(name, found.item)
            lists += [value.text] if value is not None else []
        return next((each for each in lists if not self.subject.lies_beside(each, found.item)), None)

    def _bringers(self, found: Install, wanted: Sequence[Wanted], before: list[ScriptTorch]) -> Iterator[Wanted]:
        # conda's half of an environment and pip's are resolved one after the other.
        project = len(self.subject.installed_by(found.item)) > 1  # what a project asks for beside what it is told
        joint = bool(before) and (project or self.subject.document.dialect in {*LISTS} - {Dialect.ENVIRONMENT})
        for each in wanted:
            if each.source is not None or each.wheel is not None:
                continue
            if joint and (exact_version(each.requirement) is None or self.resolved_at_once(found)):
                continue  # one resolution for the whole list, and torch is in it
            # pip takes its newest release, and another torch for it; where torch is limited, an older release instead.
            asks = _asks(each) if before and not found.limits.get("torch") else None
            other = asks and before[-1].version and excludes(asks, before[-1].version)
            if other or pins_torch(each.name) or (not before and needs_torch(each.name)):
                yield each

    def _requirement(self, bringer: Wanted, before: list[ScriptTorch]) -> str | None:
        """The versions of torch that are asked for; None where nobody knows."""
        if bringer.name == "torch":
            return bringer.requirement
        if bringer.requirement is None:
            return None
        if pins_torch(bringer.name) and bringer.requirement:
            rows = packages.made_for(bringer.name, exact_text(bringer.requirement) or bringer.requirement)
            return f"=={rows[-1]}" if rows else None
        if pins_torch(bringer.name) and not bringer.requirement and before and before[-1].version:
            return ">" + before[-1].version  # its newest release asks for the newest torch
        return _asks(bringer) or ""

    def _from_index(self, found: Install, requirement: str, base: ScriptTorch) -> ScriptTorch:
        """What pip or uv takes: from PyTorch's index of a line, else from the ordinary one."""
        index, strict = self._index(found)
        nightly = bool(index and re.search(r"/whl/(?:nightly|test)/", index))
        local = variant_of(requirement, None)
        line = local or found.backend or variant_of(None, index)
        if line == "auto":
            line = None
        plain = re.sub(r"\+[\w.]+", "", requirement)
        exact = exact_version(plain)
        if other := re.search(r"\b(rocm[\d.]*|xpu)\b", f"{requirement} {index or ''}"):
            return msgspec.structs.replace(base, version=str(exact) if exact else None, variant=other[1], index=index)
        if nightly:
            cuda = re.search(LINE, index or "")
            words = "what is in a nightly build is not in the tables"
            return msgspec.structs.replace(
                base, version=None, variant=cuda[0] if cuda else None, kind="other", question=words, index=index
            )
        loose = None if index or line else next((word for word in found.item.words if word.loose), None)
        if loose is not None:
            words = f"what `{loose.raw[:60]}` adds to this command"
            version = str(exact) if exact else None
            return msgspec.structs.replace(base, version=version, kind="other", question=words)
        if index and line is None and (_OPEN.search(index) or (strict and not _ORDINARY.search(index))):
            words = f"what the index {index[:60]} has is not known"
            version = str(exact) if exact else None
            return msgspec.structs.replace(base, version=version, kind="other", question=words, index=index)
        # pip takes the highest number of all its indexes; a local part (+cu118) decides between equal numbers.
        merged = line is not None and local is None and found.backend is None and not strict
        version = str(exact) if exact and len(exact.parts) > 2 else None
        own = None if merged else line
        # A torch that no wheel is for is named all the same: first for another Python, then on another line.
        others = ((own, None), *(() if local else ((None, base.python),))) if base.by == "torch" else ()
        day = re.search(r"--exclude-newer[= ](\d{4}-\d\d-\d\d)", " ".join(found.item.arguments))
        for asked, python in ((own, base.python), *others):
            version = version or taken(
                lambda patch: not excludes(plain, patch),
                line=asked, python=python, system=base.system, until=day[1] if day else None,
            )  # fmt: skip
        if version is None and exact is not None:
            version = complete(str(exact))
        if version is None:
            return msgspec.structs.replace(base, question=f"no release of torch is `{requirement[:40]}`")
        if line is not None and merged and isinstance(has_line(version, line), Clash):
            line = None
        if found.backend == "auto":
            return msgspec.structs.replace(
                base, version=version, pinned=exact is not None, kind="any",
                question="which line `--torch-backend auto` takes depends on the machine",
            )  # fmt: skip
        if line is None:
            line = package_line(version, Platform(base.system, self.subject.machine))
        return msgspec.structs.replace(base, version=version, variant=line, pinned=exact is not None, index=index)

    def has_no_index(self, found: Install) -> bool:
        """Only the Python package index is asked, as far as the script says."""
        names = (*_INDEX_VARIABLES, "PIP_CONFIG_FILE")
        told = self.subject.says(r"pip3? config set|pip\.conf|pip\.ini|extra-index-url|find-links")
        if told or any(self.subject.visible(name, found.item) is not None for name in names):
            return False
        return not (found.index or found.find or found.backend or found.lists or found.has("--no-index"))

    def _index(self, found: Install) -> tuple[str | None, bool]:
        """The index that counts for torch, and whether it is the only one."""
        if found.index is not None:
            return found.index, found.tool == "uv" or found.has("-i", "--index-url", "--default-index", "--index")
        for name in _INDEX_VARIABLES:
            value = self.subject.visible(name, found.item)
            if value is not None and "pytorch.org" in value.text:
                return value.text, "EXTRA" not in name and "FIND" not in name
        return None, False


def _asks(wanted: Wanted) -> str | None:
    """The torch that a package asks for: the release that is named, or the newest that a range admits."""
    asked = packages.asked_by(wanted.name, exact_text(wanted.requirement) or wanted.requirement or "")
    return asked.torch if asked is not None and asked.sure else None


def _upgrades(found: Install) -> bool:
    """What is there does not count: it is told so, or a project's own tool resolves its list alone."""
    project = found.item.program in PROJECT_TOOLS or found.item.arguments[:1] == ("add",)
    return project or found.has("-U", "--upgrade", "--force-reinstall", "--upgrade-package", "-P")


_BASE = re.compile(r"usr|local|(?:ana|mini)?conda\d?|miniforge\d?|mambaforge")


def entered(item: Invocation) -> str | None:
    """The environment that is entered; empty when one is left."""
    words = [word.text.strip("\"'") for word in item.words]
    if "deactivate" in words[:2]:
        return ""
    if item.program in CONDAS and words[1:2] == ["activate"]:
        return last_part(words[2]) if len(words) > 2 else ""
    paths = [word for word in words if re.search(r"[\\/](?:bin|Scripts)[\\/][Aa]ctivate(?:\.\w+)?$", word)]
    if paths:
        # conda's own script takes the name of an environment; without one it enters the base.
        name = last_part(re.split(r"[\\/](?:bin|Scripts)[\\/]", paths[0])[0])
        after = words[words.index(paths[0]) + 1 :][:1]
        return (last_part(after[0]) if after else "") if _BASE.fullmatch(name) else name
    at = next((index for index, word in enumerate(words) if word == "activate"), None)
    if at is not None and item.program in ("source", ".", "activate", "call", "activate.bat"):
        return last_part(words[at + 1]) if at + 1 < len(words) else ""
    return None


def made(item: Invocation) -> str | None:
    """The environment that a command makes, as it is written; empty where a file names it."""
    words = item.arguments
    conda = item.program in CONDAS
    if conda and "create" in words:
        named = ("-n", "--name", "-p", "--prefix")
        return next((after for word, after in pairwise(words) if word in named), "")
    if item.module in ("venv", "virtualenv"):
        words = words[words.index("-m") + 2 :]
    elif item.program == "uv" and words[:1] == ("venv",):
        words = words[1:]
    elif item.program not in ("virtualenv", "mkvirtualenv"):
        return None
    given = [word for before, word in pairwise(("", *words)) if before not in ("-p", "--python", "--prompt")]
    rest = [word for word in given if not word.startswith("-")]
    return rest[-1] if rest else ".venv" if item.program == "uv" else None


@kept
def environments_of(subject: Subject) -> ScriptEnvironments:
    return ScriptEnvironments(subject)


def comes_alone(change: TorchReplaced) -> bool:
    """What asks for no companion of the torch that it takes."""
    return any(change.wanted.name in row.packages for row in script_rules().torch_alone)


def broken_by(subject: Subject, change: TorchReplaced) -> list[str]:
    """What was made for the torch before, is not made again, and does not load with the torch after."""
    before, after, order = change.before, change.after, change.found.item.order
    if not (before.version and after.version) or subject.notes:
        return []
    if Version(before.version).major_minor == Version(after.version).major_minor:
        return []
    stage = subject.stage(change.found.item.scope)
    again = {each.name for found in subject.installs if found.item.order > order for each in found.wanted}
    built = [
        step.name
        for step in subject.builds
        if step.what == "extension" and step.certain and before.order < step.item.order < order
        if subject.stage(step.item.scope) == stage and not (step.item.conditional or step.isolated)
    ]
    # What asks for a companion as well brings one that fits.
    made = [*(change.left if comes_alone(change) else ()), *built]
    return [] if "torch" in again else [name for name in dict.fromkeys(made) if name and name not in again]
