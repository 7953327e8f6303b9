"""Ready-made torch: does that wheel exist for the system, the Python and the GPU, and does it stay?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import pins_torch
from rekindle.knowledge.gpu.capability import Capability, Runs, Target, runs
from rekindle.knowledge.logs import extension_homes
from rekindle.knowledge.torch import companions, wheel_platforms
from rekindle.knowledge.torch.releases import TorchRelease, torch_release, torch_releases
from rekindle.model.cuda_line import index_of, variant_of
from rekindle.review.packages import Install, Wanted
from rekindle.review.pythons import image_of, python_of, pythons_at
from rekindle.review.remark import Raised, raised
from rekindle.review.subject import Known, Subject, exact_version
from rekindle.review.trace import Invocation

_INDEX_BY_VARIABLE = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_NO_DEPS", "UV_CONSTRAINT", "UV_TORCH_BACKEND",
    "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX",
)  # fmt: skip
_KEEPS = ("--no-deps", "-c", "--constraint", "--no-index", "--target", "-t", "--prefix", "--torch-backend", "--dry-run")


def check(subject: Subject) -> Iterator[Raised]:
    yield from _wheels(subject)
    yield from _python(subject)
    yield from _musl(subject)
    yield from _replaced(subject)
    yield from _kernels(subject)


def _wheels(subject: Subject) -> Iterator[Raised]:
    """A ready-made torch: does that wheel exist, and does it serve the GPU?"""
    for found in subject.installs:
        torch = found.named("torch")
        if torch is None or found.tool == "conda" or found.verb != "install":
            continue
        name = variant_of(torch.requirement, found.index)
        if name is None:
            continue
        if name == "cpu":
            if subject.gpus and subject.builds:
                yield raised("torch-cpu-only", torch.line)
            continue
        exact = exact_version(torch.requirement)
        yield from _wheel(subject, torch, name, exact, found.item)
    yield from _ordinary(subject)


def _ordinary(subject: Subject) -> Iterator[Raised]:
    """`pip install torch` on Linux: the newest wheel of the ordinary index, which leaves older cards out."""
    for found in subject.installs if not subject.notes else ():
        torch = found.named("torch")
        if torch is None or found.tool == "conda" or found.verb != "install":
            continue
        plain = torch.source is None and torch.requirement == "" and not _kept(subject, found)
        if plain and subject.system(found.item) == "linux" and subject.torch_at() is None:
            python = next(iter(pythons_at(subject, found.item)), None) or python_of(subject)
            rows = [row for row in torch_releases() if python is None or str(python.version) in row.pythons_linux]
            usual = next((each for row in rows[-1:] for each in row.variants if each.index_default_linux), None)
            if usual is not None:
                yield from _wheel(subject, torch, usual.name, Version(rows[-1].newest), found.item, newest=True)
        return


def _wheel(
    subject: Subject, torch: Wanted, name: str, exact: Version | None, item: Invocation, *, newest: bool = False
) -> Iterator[Raised]:
    system = subject.system(item)
    try:
        releases = [torch_release(str(exact))] if exact is not None else list(torch_releases())
    except RekindleError:
        return
    rows = [(release, row) for release in releases if (row := release.variant(name)) is not None]
    if exact is not None and not rows:
        official = ", ".join(variant.name for variant in releases[0].variants)
        yield raised("torch-no-such-wheel", torch.line, torch=exact, variant=name, official=official)
        return
    for card in subject.gpus:
        lists = [row.targets(system) for _, row in rows]
        known = [targets for targets in lists if targets is not None]
        if not known or len(known) != len(lists):
            continue
        if any(_serves(targets, card) for targets in known):
            continue
        archs = ", ".join(sorted({str(target) for targets in known[-1:] for target in targets}))
        yield raised(
            "wheel-not-for-the-card", torch.line, torch=exact or "", variant=name, card=card, sm=card.sm, archs=archs,
            better=_better(card, system), note=", the newest one, which pip takes here," if newest else "",
        )  # fmt: skip


def _better(card: Capability, system: str) -> str:
    for release in reversed(torch_releases()):
        for variant in release.variants:
            targets = variant.targets(system)
            if targets and _serves(targets, card):
                return f". torch {release.newest} {variant.name} has code for it"
    return ""


def _serves(targets: Iterable[Target], card: Capability) -> bool:
    return any(runs(target, card) is not Runs.NO for target in targets)


def _python(subject: Subject) -> Iterator[Raised]:
    told: set[tuple[int, Version, Version]] = set()
    for row, torch, python, system, wheel in _met(subject):
        known = row.pythons(system)
        key = (python.line, python.version, torch)
        if not known or str(python.version) in known or key in told:
            continue
        told.add(key)
        yield raised(
            "python-not-supported", python.line, torch=torch, python=python.version, pythons=", ".join(known),
            wheel=_other_release(python.version, row, system) if wheel else "", source=row.source,
        )  # fmt: skip


def _met(subject: Subject) -> Iterator[tuple[TorchRelease, Version, Known, str, bool]]:
    """Where a release meets a Python: the two, the system, and whether pip has to find a wheel."""
    python = python_of(subject)
    step = next(iter(subject.torch_builds), None)
    release = subject.release_at(step.item if step else None)
    pinned = [(found, found.named("torch")) for found in subject.installs if found.tool != "conda"]
    exact = [(found, number) for found, item in pinned if item and (number := exact_version(item.requirement))]
    asked = any(each.named("torch") and exact_version(subject.requirement(each, "torch")) for each in subject.installs)
    if python is not None and release is not None and (step is not None or asked or subject.notes):
        yield (
            release[0],
            release[1].version,
            python,
            subject.system(step.item if step else None),
            step is None and bool(exact),
        )
    for found, number in exact:
        try:
            row = torch_release(str(number))
        except RekindleError:
            continue
        for each in pythons_at(subject, found.item) if found.verb == "install" else ():
            yield row, number, each, subject.system(found.item), True
    for build in subject.torch_builds:
        of_build = subject.release_at(build.item)
        if of_build is not None:
            for each in pythons_at(subject, build.item):
                yield of_build[0], of_build[1].version, each, subject.system(build.item), False


def _other_release(python: Version, row: TorchRelease, system: str) -> str:
    """What pip says, and the nearest release that has a wheel for this Python."""
    text = "; pip ends with: No matching distribution found"
    having = [each for each in torch_releases() if str(python) in each.pythons(system)]
    if not having:
        return text
    later = Version(having[0].minor) > Version(row.minor)
    near = min(having[0].patches, key=Version.parse) if later else having[-1].newest
    return f"{text}. torch {near} is the {'first' if later else 'last'} that has a wheel for Python {python}"


def _musl(subject: Subject) -> Iterator[Raised]:
    """A base image whose C library no wheel of torch is made for."""
    told: set[int] = set()
    for found in subject.installs:
        image = image_of(subject, found.item)
        wanted = next((item for item in found.wanted if item.source is None and _with_torch(item.name)), None)
        if image is None or wanted is None or found.tool == "conda" or found.verb not in ("install", "download"):
            continue
        name = next((part for part in re.split(r"[/:@_-]", image.name) if _is_musl(part)), None)
        if name is None or image.line in told:
            continue
        told.add(image.line)
        line = subject.document.line(image.line)
        right = re.sub(r"(python:[\w.]+)-alpine[\d.]*", r"\1-slim", line)
        yield raised(
            "musl-no-wheel", image.line, image=image.name, name=wanted.name, line_install=wanted.line,
            corrected=right if right != line else None, certain=False,
        )  # fmt: skip


def _is_musl(part: str) -> bool:
    found = wheel_platforms.find(part)
    return found is not None and found[0].libc == "musl"


def _with_torch(name: str) -> bool:
    return name == "torch" or pins_torch(name)


class _Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A torch that was chosen with its index."""

    version: str
    variant: str
    index: str
    found: Install
    line: int
    names: frozenset[str]


def _replaced(subject: Subject) -> Iterator[Raised]:
    """A later command that lets pip choose torch anew, from the ordinary index."""
    if subject.notes:
        return
    chosen: _Chosen | None = None
    for item in subject.trace.invocations:
        found = subject.install(item)
        if found is None:
            chosen = None if _other_environment(item) else chosen
            continue
        if found.tool == "conda" or found.verb == "uninstall":
            chosen = None if found.tool == "conda" or found.named("torch") else chosen
            continue
        if found.verb != "install":
            continue
        here = _chosen(found)
        if here is not None:
            chosen = here
            continue
        if chosen is None or not _same_place(subject, chosen.found.item, item) or _kept(subject, found):
            continue
        wanted = next((each for each in found.wanted if _takes_other(each, found, chosen)), None)
        if wanted is not None:
            yield _replacement(subject, chosen, found, wanted)
            chosen = None
        else:
            names = chosen.names | {each.name for each in found.wanted}
            chosen = msgspec.structs.replace(chosen, names=names)


def _chosen(found: Install) -> _Chosen | None:
    torch = found.named("torch")
    exact = exact_version(torch.requirement) if torch is not None else None
    variant = variant_of(torch.requirement, found.index) if torch is not None else None
    if torch is None or exact is None or variant in (None, "cpu") or found.item.conditional:
        return None
    return _Chosen(
        version=str(exact), variant=str(variant), index=found.index or "", found=found, line=torch.line,
        names=frozenset(each.name for each in found.wanted),
    )  # fmt: skip


def _other_environment(item: Invocation) -> bool:
    """From here on another Python may be meant."""
    text = " ".join(word.text for word in item.words)
    return bool(re.search(r"\bactivate\b|-m (?:venv|virtualenv)\b|^virtualenv\b|^uv venv\b|^pip3? config\b", text))


def _same_place(subject: Subject, before: Invocation, after: Invocation) -> bool:
    """Both run in one stage, job or script, by the same Python."""
    scope = subject.trace.scopes[before.scope]
    stage = scope.parent if scope.parent is not None and re.match(r"run |step", scope.label) else scope
    folders = {re.sub(r"[^\\/]*$", "", item.words[0].text) for item in (before, after)}
    return len(folders) == 1 and subject.sees(stage.number, after)


def _kept(subject: Subject, found: Install) -> bool:
    """An index, a constraint or a file of requirements decides, or nothing else is installed."""
    words = found.item.arguments
    if found.index is not None or found.files or found.binary or found.item.conditional:
        return True
    if any(word.partition("=")[0] in _KEEPS or re.match(r"-c\S", word) for word in words):
        return True
    torch = found.named("torch")
    if torch is not None and torch.requirement:
        return True
    return any(subject.visible(name, found.item) is not None for name in _INDEX_BY_VARIABLE)


def _takes_other(wanted: Wanted, found: Install, chosen: _Chosen) -> bool:
    """Whether this asks for a torch other than the one that is there."""
    upgrade = found.item.has("-U", "--upgrade", "--force-reinstall", "--upgrade-package", "-P")
    if wanted.source is not None or wanted.requirement is None or (wanted.name in chosen.names and not upgrade):
        return False
    if wanted.name == "torch":
        return upgrade
    if not pins_torch(wanted.name):
        return False
    if not wanted.requirement:
        return True
    exact = re.fullmatch(r"===?([\w.]+)", wanted.requirement)
    row = next((row for row in extension_homes.wheels(wanted.name) if exact and row.version == exact[1]), None)
    return row is not None and not row.serves(chosen.version)


def _replacement(subject: Subject, chosen: _Chosen, found: Install, wanted: Wanted) -> Raised:
    newest = torch_releases()[-1]
    usual = next((row for row in newest.variants if row.index_default_linux), None)
    system = subject.system(found.item)
    lost = ""
    if system == "windows":
        lost = ", which has no CUDA on Windows"
    elif usual is not None and not wanted.requirement:
        targets = usual.targets(system) or ()
        cards = [card for card in subject.gpus if targets and not _serves(targets, card)]
        lost = f", now {newest.newest} for CUDA {usual.cuda}"
        if cards:
            lost += f", which has no code for a GPU of capability {' or '.join(str(card) for card in cards)}"
        return _told(chosen, wanted, lost, fails=bool(cards))
    return _told(chosen, wanted, lost, fails=system == "windows" and bool(subject.gpus))


def _fitting(name: str, torch: str) -> str | None:
    """The release of a package that was made for this torch."""
    try:
        known = companions.version_for(name, torch) if name in ("torchvision", "torchaudio") else None
    except RekindleError:
        return None
    row = extension_homes.wheel_for(name, torch)
    return known or (row.version if row is not None and not row.and_later else None)


def _told(chosen: _Chosen, wanted: Wanted, lost: str, *, fails: bool) -> Raised:
    index = chosen.index or index_of(chosen.variant)
    fitting = _fitting(wanted.name, chosen.version)
    if wanted.name == "torch":
        again = f"leave this line out, or add --index-url {index}"
    elif fitting is not None:
        again = f"install {wanted.name}=={fitting} in the command of line {chosen.line} (--index-url {index})"
    else:
        again = f"take the {wanted.name} made for this torch, or a constraint (-c FILE with torch=={chosen.version})"
    how = "has neither a pin nor an index here, and asks for a torch of its own"
    if wanted.name == "torch":
        how = "has neither a pin nor an index here"
    elif wanted.requirement:
        how = f"{wanted.requirement.lstrip('=')} was made for another torch"
    return raised(
        "torch-replaced-not-for-the-card" if fails else "torch-replaced", wanted.line, name=wanted.name, how=how,
        other="that one" if wanted.requirement else "the newest one", torch=f"{chosen.version}+{chosen.variant}",
        line_torch=chosen.line, lost=lost, again=again,
    )  # fmt: skip


def _kernels(subject: Subject) -> Iterator[Raised]:
    """A package no build of which has code for the card: neither a wheel nor an own compile helps."""
    named = {
        (wanted.line, wanted.name): wanted.requirement
        for found in subject.installs
        if found.verb in ("install", "wheel", "create")
        for wanted in found.wanted
        if wanted.source is None
    }
    for step in subject.builds:
        rocm = any(re.search(r"\bgfx\d", own.value) for own in step.item.prefix)
        if step.what != "torch" and not rocm:
            named.setdefault((step.line, step.name), _tag(subject, step.item))
    for (line, name), requirement in named.items():
        yield from _kernel(subject, line, name, requirement)


def _tag(subject: Subject, item: Invocation) -> str | None:
    """The release that was checked out last before a build, as a requirement."""
    words = [word for each in subject.trace.ran("git") if each.order < item.order for word in each.arguments]
    tags = [match[1] for word in words if (match := re.fullmatch(r"(?:tags/)?v?(\d+(?:\.\d+)+)", word))]
    return f"=={tags[-1]}" if tags else None


def _kernel(subject: Subject, line: int, name: str, requirement: str | None) -> Iterator[Raised]:
    row = extension_homes.home_of_folder(name)
    exact = exact_version(requirement)
    if row is None or row.begins is None:
        return
    below = re.search(r"<\s*(\d+(?:\.\d+)*)", requirement or "")
    since = row.begins_since
    if since is not None and ((exact is not None and exact < since) or (below and Version(below[1]) <= since)):
        return  # an older release, which may have begun earlier
    for card in subject.gpus:
        if card < row.begins:
            yield raised(
                "kernels-not-for-the-card", line, name=row.package, card=card, sm=card.sm, begins=row.begins,
                instead=f". Instead: {row.instead}" if row.instead else "", source=row.source,
            )  # fmt: skip
