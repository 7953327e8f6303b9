"""Which CUDA toolkits PyTorch itself compiles a release with: for its wheels, or only in its tests.

What upstream compiles is the better-tested choice: a newer toolkit that the build files merely admit comes after it.
"""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, observed


class UpstreamBuild(Row, frozen=True, kw_only=True):
    """`purpose`: `wheel` for the published wheels, `test` for a build that upstream's tests compile and throw away."""

    minor: str
    cuda: Version
    purpose: str


@cached
def _builds() -> dict[str, tuple[UpstreamBuild, ...]]:
    found: dict[str, list[UpstreamBuild]] = {}
    for row in observed("upstream_builds", dict[str, tuple[UpstreamBuild, ...]])["builds"]:
        found.setdefault(row.minor, []).append(row)
    return {minor: tuple(sorted(rows, key=lambda row: row.cuda)) for minor, rows in found.items()}


def upstream_builds(torch: str) -> tuple[UpstreamBuild, ...]:
    """Oldest toolkit first; empty when the tables know nothing of this release."""
    return _builds().get(str(Version(torch.partition("+")[0]).major_minor), ())


def upstream_build(torch: str, cuda: Version) -> UpstreamBuild | None:
    """How upstream compiles this release with this toolkit; None: it is not known to."""
    rows = [row for row in upstream_builds(torch) if row.cuda == cuda.major_minor]
    return next((row for row in rows if row.purpose == "wheel"), rows[0] if rows else None)
