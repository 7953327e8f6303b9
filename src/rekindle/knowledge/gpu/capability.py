"""The one rule of which code runs on which card.

- A cubin (`sm_XY`) runs on cards of the same major capability whose minor is equal or higher.
- PTX (`compute_XY`) is compiled by the driver for any equal or newer card, if the driver knows that PTX version.
- A target with `a` runs on exactly that capability and nothing else; one with `f` on its family
  (`gpu/families.toml`), cubin or PTX alike.
Source: CUDA C++ Programming Guide, "Binary compatibility", "PTX compatibility", "Family-specific features".
"""

from __future__ import annotations

from enum import Enum

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, decided
from rekindle.model.card import Capability, Target


class Runs(str, Enum):
    """How code runs on a card. JIT_UNVERIFIED: only by JIT, and it is not known whether the driver knows that PTX."""

    NATIVE = "native"
    JIT = "jit"
    JIT_UNVERIFIED = "jit-unverified"
    NO = "no"


class Coverage(str, Enum):
    """How far a library's GPU code serves a card. PARTIAL never counts as served."""

    SERVES = "SERVES"
    PARTIAL = "PARTIAL"
    NO = "NO"


class Family(Row, frozen=True, kw_only=True):
    """The capabilities that an `f` target of `base` runs on."""

    base: Capability
    members: tuple[Capability, ...]


def runs(
    target: Target,
    card: Capability,
    *,
    ptx_isa: Version | None = None,
    driver_ptx: Version | None = None,
) -> Runs:
    """Does code for `target` run on `card`?

    `ptx_isa` is the version the PTX is written in, `driver_ptx` the newest one the driver knows.
    """
    if not _fits(target, card):
        return Runs.NO
    if not target.ptx:
        return Runs.NATIVE
    if ptx_isa is None or driver_ptx is None:
        return Runs.JIT_UNVERIFIED
    return Runs.JIT if ptx_isa <= driver_ptx else Runs.NO


def _fits(target: Target, card: Capability) -> bool:
    if target.suffix == "a":
        return target.capability == card
    if target.suffix == "f":
        return card in family_members(target.capability)
    return target.capability <= card and (target.ptx or target.capability.major == card.major)


def family_members(base: Capability) -> tuple[Capability, ...]:
    """The capabilities in the family of `base`; only itself when the tables do not know one."""
    families = decided("families", dict[str, tuple[Family, ...]])["family"]
    return next((family.members for family in families if family.base == base), (base,))
