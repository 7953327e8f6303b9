"""CUDA toolkits: what each can compile for, and which drivers run what it makes."""

import msgspec

from rekindle.core.errors import UnknownName
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided, observed
from rekindle.model.card import Capability, Target


class MinDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest driver a toolkit update was released for. None: NVIDIA names none (13.x on Windows)."""

    update: int
    linux: Version | None
    windows: Version | None


class Toolkit(Row, frozen=True, kw_only=True):
    version: Version
    targets: tuple[Target, ...]
    ptx_isa: Version | None
    min_drivers: tuple[MinDriver, ...]
    minor_floor_linux: Version | None
    minor_floor_windows: Version | None
    driver_branch: str | None = None
    note: str | None = None

    def compiles_for(self, capability: Capability) -> bool:
        """Can it make native code that runs on this card (its own target, or an earlier minor of the same major)?"""
        major, minor = capability.major, capability.minor
        return any(t.capability.major == major and t.capability.minor <= minor and not t.suffix for t in self.targets)

    def has_target(self, capability: Capability) -> bool:
        return any(target.capability == capability for target in self.plain)

    @property
    def plain(self) -> tuple[Target, ...]:
        return tuple(target for target in self.targets if not target.suffix)


@cached
def toolkits() -> tuple[Toolkit, ...]:
    rows = observed("toolkits", dict[str, tuple[Toolkit, ...]])["toolkits"]
    return tuple(sorted(rows, key=lambda toolkit: toolkit.version))


@cached
def toolkit(version: Version | str) -> Toolkit:
    """The toolkit of a version (`11.8`, `11.8.89`); an error that names the neighbours if the tables have none."""
    wanted = Version(version) if isinstance(version, str) else version
    for row in toolkits():
        if row.version == wanted.major_minor:
            return row
    newest = toolkits()[-1].version
    if wanted > newest:
        message = f"CUDA {wanted} is newer than Rekindle's data (latest: {newest})"
        raise UnknownName(message, hint="lay newer rows over them with `--knowledge DIR`, or name an older toolkit")
    if wanted.parts[0] < toolkits()[0].version.parts[0]:
        raise UnknownName(f"CUDA {wanted} is older than Rekindle's data", hint=f"{toolkits()[0].version} is the oldest")
    message = f"there is no CUDA {wanted}" + (" (12.7 was never released)" if str(wanted).startswith("12.7") else "")
    below = [row.version for row in toolkits() if row.version < wanted][-1:]
    near = [*below, *[row.version for row in toolkits() if row.version > wanted][:1]]
    alike = [row.version for row in toolkits() if str(wanted).startswith(str(row.version))]
    near = alike[-1:] or near
    known = ", ".join(str(row.version) for row in toolkits())
    raise UnknownName(message, hint=f"nearest: {' and '.join(map(str, near))}; known are {known}")


@cached
def first_toolkit_for(capability: Capability) -> Toolkit | None:
    return next((row for row in toolkits() if row.has_target(capability)), None)


class EarlyTarget(Row, frozen=True, kw_only=True):
    """An architecture and the first CUDA that compiled for it, where that is older than the tables of toolkits."""

    target: str
    cuda: Version


@cached
def early_target(capability: Capability) -> Version | None:
    rows = decided("early_targets", dict[str, tuple[EarlyTarget, ...]])["row"]
    return next((row.cuda for row in rows if row.target == capability.sm), None)


def last_toolkit_for(capability: Capability) -> Toolkit | None:
    """The last toolkit that compiles for a card; None when no toolkit of the tables does."""
    return next((row for row in reversed(toolkits()) if row.compiles_for(capability)), None)


@cached
def still_supported(capability: Capability) -> bool:
    """Does the newest toolkit of the tables still compile for it?"""
    return toolkits()[-1].compiles_for(capability)
