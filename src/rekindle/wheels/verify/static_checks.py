"""The checks of `verify` that only read: the file and its RECORD, tags, closure, coverage.

And what an imported torch says of itself, against what was read.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name

from rekindle.core.errors import BadInput
from rekindle.core.findings import Finding, Fix, State, failed, passed, unverified, warned, worst
from rekindle.core.untrusted import printable
from rekindle.core.version import Version
from rekindle.formats import package
from rekindle.formats.package import Package, Wheel
from rekindle.formats.zip_writer import spelled
from rekindle.inputs.torch import TypedTorch
from rekindle.inputs.versions import read_cudnn
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.torch.torch_wheels import least_glibc
from rekindle.model.wheel import read_name, tagged_glibc
from rekindle.wheels.closure import linkage
from rekindle.wheels.closure.walk import requirement_name
from rekindle.wheels.inspect.identity import read_torch, wheel_beside
from rekindle.wheels.inspect.inspection import Inspection, Reading, inspect_package, read_whole
from rekindle.wheels.inspect.integrity import UNLISTED

_TAG = re.compile(r"[\w.]+-[\w.]+-[\w.]+", re.ASCII)
_MOST_SHORT = 100
"""Dots in all tags: a short form stands for every mix of its parts."""


class OpenedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What is verified, opened: a wheel, or the torch folder of an environment."""

    path: Path
    package: Package
    inspection: Inspection
    reading: Reading


@contextlib.contextmanager
def opened(
    path: Path, cards: Sequence[str] = (), against: Path | None = None, reading: Reading | None = None
) -> Iterator[OpenedSubject]:
    """An extension is read against the torch that is named, or that lies beside it and fits. `reading`: of this very
    file, where it was read before.
    """
    with package.open_package(path) as found:
        if against is None and path.suffix == ".whl":
            requires = package.headers(found, "METADATA").get("Requires-Dist", [])
            if any(requirement_name(line) == "torch" for line in requires):
                against = wheel_beside(path, requires, package.headers(found, "WHEEL").get("Tag", []))
        reading = reading or read_whole(found)
        known = inspect_package(found, reading, cards=cards, against=read_torch(against) if against else None)
        yield OpenedSubject(path=path, package=found, inspection=known, reading=reading)


def is_torch(subject: OpenedSubject) -> bool:
    """Is it torch itself, under whatever name, and not something that is loaded with it?"""
    return subject.inspection.is_torch or "torch/version.py" in subject.package.files


def modules(subject: OpenedSubject) -> tuple[str, ...]:
    """What a wheel brings to import: its packages, and modules that lie at the top."""
    found = set()
    for name in subject.package.files:
        top, _, rest = name.partition("/")
        stem = re.sub(r"(\.(cpython|cp|abi)[^.]*)?\.(py|so|pyd)$", "", top)
        if (rest == "__init__.py" and top.isidentifier()) or (not rest and stem != top and stem.isidentifier()):
            found.add(stem)
    return tuple(sorted(found))


def file(subject: OpenedSubject, cards: Sequence[str]) -> Finding:
    findings = subject.inspection.findings
    wrong = [item for item in findings if item.id in ("header", "names", "metadata") and item.state is State.FAIL]
    if wrong:
        return msgspec.structs.replace(wrong[0], id="file")
    damaged = _damaged(subject)
    if damaged:
        return damaged
    odd = [item for item in findings if item.id in ("startup", "names")]
    if odd:
        return msgspec.structs.replace(odd[0], id="file")
    size = subject.inspection.size / 1e6
    return passed("file", f"{len(subject.package.files)} files, {size:.0f} MB")


def _damaged(subject: OpenedSubject) -> Finding | None:
    """Members that RECORD gives no hash for are read here: an installer unpacks them, too, and stops at a wrong CRC."""
    if not isinstance(subject.package, Wheel):
        return None
    hashed = {entry.path for entry in package.record(subject.package) or [] if entry.digest}
    archive = subject.package.archive
    for name, member in archive.members.items():
        if name in hashed:
            continue
        try:
            for _ in archive.chunks(member):
                pass
        except BadInput as error:
            return failed(
                "file",
                error.message,
                why="pip stops in the middle of installing it",
                fix="download or build the wheel again",
            )
    return None


def record(subject: OpenedSubject, cards: Sequence[str]) -> Finding:
    """Every file against its hash in RECORD, not its size alone."""
    listed = next((item for item in subject.inspection.findings if item.id == "record"), None)
    if listed is None:
        return unverified("record", "there is no RECORD file")
    if listed.state is State.FAIL:
        return listed
    entries = package.record(subject.package) or []
    wrong, bare, checked = [], [], 0
    for entry in entries:
        kind, _, wanted = entry.digest.partition("=")
        if entry.path not in subject.package.files:
            continue
        if not wanted:
            bare += [] if entry.path.endswith((*UNLISTED, ".pyc")) else [entry.path]
            continue
        checked += 1
        try:
            if kind not in ("sha256", "sha384", "sha512") or _digest(subject, entry.path, kind) != wanted:
                wrong.append(entry.path)
        except BadInput:
            wrong.append(entry.path)
    if wrong:
        shown = ", ".join(f"`{name}`" for name in wrong[:3]) + (", …" if len(wrong) > 3 else "")
        return failed(
            "record",
            f"{len(wrong)} files do not match RECORD: {shown}",
            why="the file was damaged or changed after it was built",
            fix="download or build it again; after a change by hand pack it with `rekindle repair --pack`",
        )
    if listed.state is not State.PASS:
        return listed
    if bare:
        text = (
            f"RECORD has no hash for {len(bare)} files, `{printable(bare[0])}` first: nothing says that they are whole"
        )
        return unverified("record", text, fix="build the wheel again, or pack it with `rekindle repair --pack`")
    return passed("record", f"{checked} files match RECORD")


def tags(subject: OpenedSubject, cards: Sequence[str]) -> Finding:
    """File name, METADATA, WHEEL, extension modules and libraries must all speak of the same Python and platform."""
    fields, meta = package.headers(subject.package, "WHEEL"), package.headers(subject.package, "METADATA")
    problems, odd = [], ""
    stated = set(fields.get("Tag", []))
    if not stated:
        return unverified("tags", "there is no WHEEL file with tags")
    endless = sum(tag.count(".") for tag in stated) > _MOST_SHORT
    invalid = sorted(tag for tag in stated if not _TAG.fullmatch(tag) or (endless and "." in tag))
    if invalid:
        return failed(
            "tags",
            f"WHEEL has an invalid tag, `{printable(invalid[0])}`",
            why="pip cannot tell where the wheel may be installed",
            fix="build the wheel again",
        )
    name, version = (meta.get(key, [""])[0] for key in ("Name", "Version"))
    if subject.package.kind == "wheel":
        try:
            project, number, tagged, *_ = read_name(subject.path.name)
        except InvalidWheelFilename as error:
            return failed(
                "tags",
                f"the file name is not that of a wheel: {error}",
                why="pip refuses it",
                fix="rename it to the name it was built under",
            )
        if (said := {str(tag) for tag in tagged}) != stated:
            odd = f"the file name says {_some(said)}, WHEEL says {_some(stated)}"
            problems += [] if _alike(said, stated) else [odd]
            stated = said  # what pip goes by
        if project != canonicalize_name(name) or number != version:
            problems.append(f"the file name says {project} {number}, METADATA says {name} {version}")
    promised = [item for item in subject.inspection.findings if item.id == "variant"]
    problems += [item.found for item in promised if item.state is State.FAIL]
    problems += _python_problems(subject, stated)
    problems += _platform_problems(subject, stated)
    if problems:
        return failed(
            "tags",
            "; ".join(problems),
            why="pip takes a wheel by its tags: it would take this one where it cannot load",
            fix="build it again for the Python and system it is meant for",
        )
    open_question = next((item for item in promised if item.state is State.UNVERIFIED), None)
    if open_question:
        return unverified("tags", open_question.found)
    if odd:
        return warned("tags", odd, why="pip goes by the file name, and its libraries fit that")
    return passed("tags", f"{name} {version}, {_some(stated)}; its libraries match")


def closure(subject: OpenedSubject, cards: Sequence[str]) -> Finding:
    found = subject.inspection.closure
    if found is None:
        return passed("closure", "no compiled libraries")
    findings = [*linkage.findings(found), *(item for item in subject.inspection.findings if item.id == "closure.fit")]
    state = worst(findings)
    if state is State.PASS:
        text = f"all {found.links} library links resolve"
        if found.brought and found.against:
            text += f", {len(found.brought)} of them to {found.against}"
        return Finding(id="closure", state=state, found=text)
    bad = [item for item in findings if item.state is state]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return Finding(id="closure", state=state, found=bad[0].found + more, why=bad[0].why, fix=bad[0].fix)


def coverage(subject: OpenedSubject, cards: Sequence[str]) -> Finding:
    if not cards:
        none = "this machine has none" if subject.inspection.gpu_code else "there is no GPU code in it"
        text = f"no GPU was named, and {none}"
        return unverified("coverage", text, fix=Fix(text='name it with `--gpu`, such as `--gpu "Tesla K40c"`'))
    if not subject.inspection.gpu_code:
        return failed(
            "coverage", "no GPU code: this is a CPU build", fix="`rekindle plan` names a build that serves the card"
        )
    asked = [card for card in subject.inspection.cards if card.query in cards]
    worst_card = max(asked, key=lambda card: list(Coverage).index(card.coverage))
    served = ", ".join(f"{card.name} ({card.capability}) {card.coverage.value}" for card in asked)
    if worst_card.coverage is not Coverage.SERVES:
        why = "the first kernel without code for the card ends with `no kernel image is available`"
        return failed("coverage", served, why=why, fix="`rekindle plan` names a build that serves the card")
    if any(card.by_jit for card in asked):
        why = "the driver compiles kernels at first use: minutes of waiting, and only if it knows this PTX"
        return warned("coverage", f"{served}, in part by JIT", why=why)
    return passed("coverage", served)


CHECKS: Mapping[str, Callable[[OpenedSubject, Sequence[str]], Finding]] = {
    "file": file,
    "record": record,
    "tags": tags,
    "closure": closure,
    "coverage": coverage,
}


def version_finding(subject: OpenedSubject, facts: Mapping[str, Any], torch: str | None, cuda: str | None) -> Finding:
    """torch's own word against its metadata, and against what was asked for."""
    problems = []
    said, built = str(facts["version"]), facts.get("cuda")
    if subject.inspection.torch and said != subject.inspection.torch:
        problems.append(f"torch says it is {said}, its files say {subject.inspection.torch}")
    if torch and not TypedTorch(wanted=torch).admits(said):
        problems.append(f"torch {torch} was asked for, this is {said}")
    if cuda and (not built or not Version.parse(str(built)).starts_with(Version.parse(cuda))):
        problems.append(f"CUDA {cuda} was asked for, this is built with {built or 'none'}")
    if problems:
        return failed("version", "; ".join(problems))
    return passed("version", f"torch {said}, CUDA {built or 'none'}, Python {facts['python']}")


def config_finding(subject: OpenedSubject, facts: Mapping[str, Any]) -> Finding:
    """`torch.__config__` against the files: CUDA, cuDNN, and the targets that nvcc was told against those inside."""
    text = str(facts.get("config", ""))
    if not text:
        return unverified("config", "torch has no build information")
    problems = []
    runtime = re.search(r"CUDA Runtime (\d{1,9}\.\d{1,9})", text)
    if runtime and facts.get("cuda") and not str(facts["cuda"]).startswith(runtime[1]):
        problems.append(f"it says it was built for CUDA {facts['cuda']} and runs CUDA {runtime[1]}")
    told = {f"sm_{found}" for found in re.findall(r"code=sm_(\d{1,9}[af]?)", text)}
    inside = {name for name in subject.inspection.targets if name.startswith("sm_")}
    if told and inside and not told <= inside:
        problems.append(f"nvcc was told {_some(told - inside)}, of which there is nothing inside")
    if problems:
        return failed("config", "; ".join(problems))
    blas = re.search(r"BLAS_INFO=(\w+)", text)
    cudnn = re.search(r"CuDNN (\d{1,9}(?:\.\d{1,9}){0,7})", text)
    named = (("CUDA", runtime and runtime[1]), ("cuDNN", cudnn and read_cudnn(cudnn[1])), ("BLAS", blas and blas[1]))
    parts = [f"{name} {value}" for name, value in named if value]
    said = ", ".join(parts) or "nothing of CUDA"
    return passed("config", f"the build configuration matches the files: {said}")


def _digest(subject: OpenedSubject, name: str, kind: str) -> str:
    if kind == "sha256" and name in subject.reading.digests:
        return spelled(subject.reading.digests[name]).partition("=")[2]
    sha = hashlib.new(kind)
    if isinstance(subject.package, Wheel):
        for data in subject.package.archive.chunks(subject.package.archive.member(name)):
            sha.update(data)
    else:
        root = subject.path.parent if (subject.path.parent / name).exists() else subject.path
        with (root / name).open("rb") as stream:
            while data := stream.read(1 << 20):
                sha.update(data)
    return spelled(sha.digest()).partition("=")[2]


def _python_problems(subject: OpenedSubject, stated: set[str]) -> list[str]:
    pythons = {tag.split("-")[0] for tag in stated}
    named = {
        f"cp{match[1]}"
        for name in subject.package.files
        if (match := re.search(r"\.(?:cpython-|cp)(\d{2,3})(?:-[\w-]+)?\.(?:so|pyd)$", name))
    }
    free = {python for python in pythons if not python.startswith("cp")}
    if named and not free and not named & pythons:
        return [f"its modules are for {_some(named)}, its tags say {_some(pythons)}"]
    return []


def _platform_problems(subject: OpenedSubject, stated: set[str]) -> list[str]:
    from packaging.tags import parse_tag

    from rekindle.wheels.tags import machine_of

    parsed = {tag for text in stated for tag in parse_tag(text)}
    made = machine_of(parsed)
    problems = []
    links = subject.inspection.closure
    if made and links and links.system != {"pe": "windows", "elf": "linux"}[made[0]]:
        problems.append(f"its libraries are for {links.system}, its tags say {_some(stated)}")
    machines = {each.machine for each in subject.reading.binaries if each.machine}
    if made and machines - {made[1]}:
        problems.append(f"its libraries are for {_some(machines - {made[1]})}, its tags say {_some(stated)}")
    if machines and all(tag.platform == "any" for tag in parsed):
        problems.append(f"its libraries are for {_some(machines)}, its tags promise any system")
    floors = [floor for tag in parsed if (floor := tagged_glibc(tag.platform))]
    glibc = subject.inspection.glibc
    if floors and glibc and glibc > max(*floors, least_glibc()):
        problems.append(f"its libraries need glibc {glibc}, its tag promises {max(floors)}")
    return problems


_LINUX = re.compile(r"-(?:many)?linux[0-9_]*?_?(?=[a-z])")


def _alike(said: set[str], stated: set[str]) -> bool:
    """Old wheels were called `manylinux1_x86_64` after they were built as `linux_x86_64`: it is one system."""
    one, other = ({_LINUX.sub("-linux_", tag) for tag in each} for each in (said, stated))
    return one == other


def _some(words: Any) -> str:
    listed = sorted(set(words))
    return ", ".join(listed[:3]) + (" …" if len(listed) > 3 else "")
