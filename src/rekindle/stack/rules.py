"""Rules are rows: what each says is in `builds/rules.toml`; a broken one becomes a `Rejection` with its source."""

from __future__ import annotations

from enum import Enum

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import Evidence, Row, cached, decided


class RouteKind(str, Enum):
    """The routes, cheapest first."""

    INSTALLED = "installed"
    OFFICIAL_WHEEL = "official-wheel"
    NVIDIA_WHEEL = "nvidia-wheel"
    """NVIDIA's own, for a Jetson's JetPack."""
    CONDA_FORGE = "conda-forge"
    SHELF = "shelf"
    COMMUNITY = "community"
    CPU_WHEEL = "cpu-wheel"
    """PyTorch without a GPU, beside a card that computes little."""
    SOURCE_BUILD = "source-build"
    WSL = "wsl"
    CONTAINER = "container"
    """An image that somebody publishes. Offered, and never recommended: Rekindle has not looked inside."""
    NONE = "none"

    @property
    def tier(self) -> int:
        return list(RouteKind).index(self)

    @property
    def ready_made(self) -> bool:
        """Nothing has to be compiled."""
        return self.tier < RouteKind.SOURCE_BUILD.tier

    @property
    def by_pip(self) -> bool:
        """`rekindle install` brings it with pip or uv."""
        return self in (RouteKind.OFFICIAL_WHEEL, RouteKind.NVIDIA_WHEEL, RouteKind.SHELF, RouteKind.CPU_WHEEL)


class Effect(str, Enum):
    """What a broken rule does to a candidate: it is out, it works and loses something, it works after a change."""

    REJECTS = "rejects"
    COSTS = "costs"
    CHANGES = "changes"


class Rule(Row, frozen=True, kw_only=True):
    id: str
    kind: Effect
    sentence: str
    instead: str = ""
    """What to do about it, where it is the place that is in the way."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What was considered. A toolkit alone has no `torch`, a release alone no `cuda`."""

    name: str
    route: RouteKind | None = None
    torch: str | None = None
    cuda: Version | None = None
    python: str | None = None

    @property
    def is_any(self) -> bool:
        """Whatever PyTorch is chosen: the cards and their driver themselves are in the way."""
        return self.route is None and self.torch is None and self.cuda is None


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a candidate is out (`kind` rejects) or what it costs (`kind` costs)."""

    candidate: Candidate
    rule: str
    kind: Effect
    sentence: str
    source: str
    evidence: Evidence


@cached
def _rules() -> dict[str, Rule]:
    return {rule.id: rule for rule in decided("rules", dict[str, tuple[Rule, ...]])["rules"]}


def rule(id: str) -> Rule:
    return _rules()[id]


def rules() -> tuple[Rule, ...]:
    return tuple(_rules().values())


def broken(rule: str, candidate: Candidate, *, row: Row | None = None, **values: object) -> Rejection:
    """The rejection of `candidate` by `rule`. `row` is the table row it stands on, which knows its source best."""
    found = _rules()[rule]
    return Rejection(
        candidate=candidate,
        rule=rule,
        kind=found.kind,
        sentence=found.sentence.format(**values),
        source=f"{found.source} ({row.source})" if row and row.source not in found.source else found.source,
        evidence=row.evidence if row else found.evidence,
    )
