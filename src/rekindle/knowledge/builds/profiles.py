"""Which options a build switches on and off, per profile and by the cards, toolkit and system it is for."""

from collections.abc import Collection, Iterable

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, rows
from rekindle.model.card import Capability


class ProfileOption(Row, frozen=True, kw_only=True):
    """`profile` is `*` for a rule that holds in every profile. All conditions that are given must hold.

    `all_below`: every architecture of the build is older; `any_below`: at least one is.
    """

    profile: str
    name: str
    value: str
    why: str
    system: str | None = None
    arch: str | None = None
    compilers: tuple[str, ...] | None = None
    cuda: bool | None = None
    cudnn: bool | None = None
    mkl: bool | None = None
    cuda_below: Version | None = None
    all_below: Capability | None = None
    any_below: Capability | None = None
    targets_from: int | None = None
    """The build is for at least so many architectures."""
    first: str | None = None
    last: str | None = None


_settings = rows("profiles.toml", "settings", ProfileOption)


def settings(profile: str) -> tuple[ProfileOption, ...]:
    """The rows of a profile in order; a later row of the same name replaces an earlier one."""
    return tuple(row for row in _settings() if row.profile in ("*", profile))


def serves(option: str, cards: Iterable[Capability]) -> bool:
    """Whether what this option brings has kernels for one of the cards, in the newest releases."""
    floors = [row.all_below for row in _settings() if row.name == option and row.all_below and row.last is None]
    return max(cards) >= max(floors, default=Capability(0, 0))


def cpu_level(profile: str, arch: str) -> str | None:
    """The least processor that a build of this profile runs on: `avx`, or the x86-64 level `v1`. None on ARM."""
    if arch != "x86_64":
        return None
    return "avx" if profile == "fast" else "v1"


def for_processor(flags: Collection[str] | None) -> str:
    """The profile that a processor can run: `fast` asks for AVX. None: its instructions are not known."""
    return "compat" if flags is not None and "avx" not in flags else "fast"
