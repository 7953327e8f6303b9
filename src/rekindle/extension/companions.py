"""torchvision and torchaudio for a torch of one's own.

Each release of them is built for one release of torch, and neither has an sdist: the version comes from the table of
what belongs together, the source from the project's repository at that tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure.environment import VariableChange, set_to
from rekindle.compat.companion import release_for
from rekindle.core.errors import UsageError
from rekindle.core.findings import Finding, failed, passed, unverified, warned
from rekindle.knowledge.builds import extension_builds
from rekindle.knowledge.builds.extension_builds import Project
from rekindle.knowledge.torch.releases import parse_arch_list
from rekindle.model.card import NamedCard
from rekindle.model.torch_pin import TorchPin
from rekindle.source import checkout
from rekindle.source.git import Mirrors, Network, Origin


class NamedCompanion(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two at the version that will be built. `belongs` None: the tables do not know the pair."""

    project: Project
    version: str
    belongs: bool | None
    torch: str

    @property
    def requirement(self) -> str:
        return f"{self.project.name}=={self.version}"


def companion_from_requirement(requirement: str, torch: str) -> NamedCompanion | None:
    """What `torchvision` or `torchaudio==2.0.2` means for this torch; None for any other project."""
    match = re.fullmatch(r"\s*([A-Za-z0-9][\w.-]*?)\s*(?:==\s*([\w.+]+))?\s*", requirement)
    project = extension_builds.project(match[1]) if match else None
    if match is None or project is None:
        return None
    expected = release_for(project.name, torch)
    asked = match[2]
    if asked is None and expected is None:
        message = f"Rekindle's data does not say which {project.name} belongs to torch {torch}"
        raise UsageError(message, hint=f"name its version: `rekindle extension build {project.name}==X.Y.Z`")
    version = TorchPin.parse(asked or expected or "").release
    return NamedCompanion(
        project=project, version=version, belongs=None if expected is None else version == expected, torch=torch
    )


def finding(this: NamedCompanion) -> Finding:
    name, version = this.project.name, this.version
    if this.belongs is None:
        found = f"Rekindle's data does not say whether {name} {version} belongs to torch {this.torch}"
        return unverified("extension.pair", found)
    if this.belongs:
        return passed("extension.pair", f"{name} {version} is the release for torch {this.torch}")
    expected = release_for(name, this.torch)
    return warned(
        "extension.pair",
        f"{name} {version} is not the release for torch {this.torch}: that is {expected}",
        why="it is written for the interface of another torch: it may not compile, and operators may be missing",
    )


def changes(this: NamedCompanion) -> tuple[VariableChange, ...]:
    """What its build must be told besides what the table says, each with the reason."""
    plain = TorchPin.parse(this.torch).release
    return (
        set_to("BUILD_VERSION", this.version, "the plain version, no commit"),
        set_to("PYTORCH_VERSION", plain, "the wheel then requires this torch, and pip does not replace it"),
    )


def build_variables(requirement: str, arch_list: str) -> tuple[VariableChange, ...]:
    """What the table says that the build of a requirement (`flash-attn==2.8.3`) reads."""
    rows = extension_builds.settings(*_name_and_version(requirement))
    targets = parse_arch_list(arch_list)
    return tuple(set_to(row.name, row.told(targets), row.why) for row in rows)


def refused(requirement: str, cards: Sequence[NamedCard]) -> Finding | None:
    """Why no build of this requirement can serve these cards, known before the first compiler starts; None: it may."""
    name, version = _name_and_version(requirement)
    own = extension_builds.own_targets(name, version)
    if own is None:
        return None
    left_out = [card for card in cards if not own.serves(card.capability)]
    if left_out:
        names = ", ".join(f"{card.name} ({card.capability.sm})" for card in left_out)
        listed = ", ".join(str(target) for target in own.targets)
        return failed(
            "extension.targets",
            f"{requirement} has no code for {names}: its own build compiles for {listed} only",
            why="its setup.py has that list in it and does not look at TORCH_CUDA_ARCH_LIST",
            fix=f"{_older(name, cards)}edit the list in its setup.py and build the folder",
        )
    if not own.sources:
        return failed(
            "extension.targets",
            f"the sdist of {requirement} has no CUDA files in it: there is nothing to compile",
            fix="take a later version, or build the folder of its repository at that tag",
        )
    return None


def _older(name: str, cards: Sequence[NamedCard]) -> str:
    """Which versions serve all the cards, as the beginning of an advice; empty when none does."""
    row = extension_builds.newest_serving(name, [card.capability for card in cards])
    if row is None or row.before is None:
        return ""
    since = f">={row.since}," if row.since else ""
    return f"take `{name}{since}<{row.before}`, or "


def _name_and_version(requirement: str) -> tuple[str, str | None]:
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
    pinned = re.search(r"==\s*(\d{1,9}(?:\.\d{1,9}){0,7})", requirement)
    return match[1] if match else "", pinned[1] if pinned else None


def bring(
    this: NamedCompanion, root: Path, mirror: Path | None, tell: Callable[[str], None]
) -> tuple[Path, list[Finding]]:
    """Its source at the tag of the version, from the network or from a folder of mirrors."""
    origin: Origin = Mirrors(mirror) if mirror else Network()
    project = this.project
    tell(f"fetching {project.repository} at v{this.version}")
    wanted = checkout.WantedTree(release=this.version, url=project.repository, without=project.without)
    tree = checkout.assemble(root, wanted, origin)
    believed = f"v{this.version} is {tree.commit[:12]} in `{mirror}`; whether that is the release is not known"
    return root, [unverified("extension.source", believed)] if tree.checked is None else []
