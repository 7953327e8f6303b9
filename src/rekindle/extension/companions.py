"""torchvision and torchaudio for a torch of one's own.

Each release of them is built for one release of torch, and neither has an sdist: the version comes from the table of
what belongs together, the source from the project's repository at that tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from rekindle.build.configure.environment import Action, VariableChange
from rekindle.core.errors import UnknownName, UsageError
from rekindle.core.findings import Finding, State
from rekindle.knowledge.builds import extension_builds
from rekindle.knowledge.builds.extension_builds import Project
from rekindle.knowledge.torch.companions import version_for
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.source import checkout
from rekindle.source.origin import Mirrors, Network, Origin


class NamedCompanion(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two at the version that will be built. `belongs` None: the tables do not know the pair."""

    project: Project
    version: str
    belongs: bool | None
    torch: str

    @property
    def requirement(self) -> str:
        return f"{self.project.name}=={self.version}"


def named(requirement: str, torch: str) -> NamedCompanion | None:
    """What `torchvision` or `torchaudio==2.0.2` means for this torch; None for any other project."""
    match = re.fullmatch(r"\s*([A-Za-z0-9][\w.-]*?)\s*(?:==\s*([\w.+]+))?\s*", requirement)
    project = extension_builds.project(match[1]) if match else None
    if match is None or project is None:
        return None
    expected = _expected(project.name, torch)
    asked = match[2]
    if asked is None and expected is None:
        message = f"Rekindle's data does not say which {project.name} belongs to torch {torch}"
        raise UsageError(message, hint=f"name its version: `rekindle extension build {project.name}==X.Y.Z`")
    version = (asked or expected or "").partition("+")[0]
    return NamedCompanion(
        project=project, version=version, belongs=None if expected is None else version == expected, torch=torch
    )


def finding(this: NamedCompanion) -> Finding:
    name, version = this.project.name, this.version
    if this.belongs is None:
        found = f"Rekindle's data does not say whether {name} {version} belongs to torch {this.torch}"
        return Finding(id="extension.pair", state=State.UNVERIFIED, found=found)
    if this.belongs:
        return Finding(
            id="extension.pair",
            state=State.PASS,
            found=f"{name} {version} is the release for torch {this.torch}",
        )
    expected = _expected(name, this.torch)
    return Finding(
        id="extension.pair",
        state=State.WARN,
        found=f"{name} {version} is not the release for torch {this.torch}: that is {expected}",
        why="it is written for the interface of another torch: it may not compile, and operators may be missing",
    )


def changes(this: NamedCompanion) -> tuple[VariableChange, ...]:
    """What its build must be told besides what the table says, each with the reason."""
    plain = this.torch.partition("+")[0]
    return (
        VariableChange(name="BUILD_VERSION", action=Action.SET, value=this.version, why="the plain version, no commit"),
        VariableChange(
            name="PYTORCH_VERSION",
            action=Action.SET,
            value=plain,
            why="the wheel then requires this torch, and pip does not replace it",
        ),
    )


def told(requirement: str, arch_list: str) -> tuple[VariableChange, ...]:
    """What the table says that the build of a requirement (`flash-attn==2.8.3`) reads."""
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
    pinned = re.search(r"==\s*(\d+(?:\.\d+)*)", requirement)
    if match is None:
        return ()
    rows = extension_builds.settings(match[1], pinned[1] if pinned else None)
    targets = parse_arch_list(arch_list)
    return tuple(VariableChange(name=row.name, action=Action.SET, value=row.told(targets), why=row.why) for row in rows)


def bring(this: NamedCompanion, root: Path, mirror: Path | None, tell: Callable[[str], None]) -> Path:
    """Its source at the tag of the version, from the network or from a folder of mirrors."""
    origin: Origin = Mirrors(mirror) if mirror else Network()
    project = this.project
    tell(f"fetching {project.repository} at v{this.version}")
    wanted = checkout.WantedTree(release=this.version, url=project.repository, without=project.without)
    checkout.assemble(root, wanted, origin)
    return root


def _expected(name: str, torch: str) -> str | None:
    try:
        return version_for(name, torch)
    except UnknownName:
        return None
