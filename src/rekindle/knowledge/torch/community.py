"""Wheels that people built and share: listed with who built them, and never recommended silently."""

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Target
from rekindle.knowledge.tables import Row, cached, decided


class CommunityWheel(Row, frozen=True, kw_only=True):
    """`sha256` None: the file has not been opened by us."""

    id: str
    builder: str
    page: str
    torch: str
    python: str
    system: str
    cuda: Version
    targets: tuple[Target, ...]
    blas: str | None = None
    cpu_floor: str | None = None
    sha256: str | None = None
    note: str | None = None


@cached
def community_wheels() -> tuple[CommunityWheel, ...]:
    return decided("community_wheels", dict[str, tuple[CommunityWheel, ...]])["wheels"]
