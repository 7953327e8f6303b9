"""The compatibility matrix of a card: every release, which wheels have its code, and what a source build would take."""

from __future__ import annotations

import msgspec

from rekindle.compat import driver_card
from rekindle.compat.torch_python import spread
from rekindle.core import codec
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import releases
from rekindle.knowledge.torch.releases import TorchRelease
from rekindle.stack import offers, prebuilt, source_build
from rekindle.stack.driver import Driving, cards_driven, window_of
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Situation, Wish


class MatrixWheel(msgspec.Struct, frozen=True, kw_only=True):
    """A ready-made build with code for the cards, and what it loses."""

    name: str
    route: RouteKind
    cuda: Version
    cudnn: Version | None
    loses: tuple[str, ...]
    evidence: Evidence


class MatrixRow(msgspec.Struct, frozen=True, kw_only=True):
    torch: str
    pythons: tuple[str, ...]
    wheels: tuple[MatrixWheel, ...]
    source_cuda: tuple[Version, ...]
    """The toolkits a source build for these cards can use."""
    source_cudnn: Version | None
    min_cmake: Version
    setuptools: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle plan --list`."""

    schema: str = "rekindle.matrix/1"
    situation: Situation
    rows: tuple[MatrixRow, ...]
    notes: tuple[str, ...] = ()


def matrix(situation: Situation, wish: Wish) -> Matrix:
    """Every release against these cards, newest first."""
    window = window_of(situation)
    # A list is for choosing from, and a driver can be installed afterwards.
    asked, situation = situation, msgspec.structs.replace(situation, no_driver=False)
    against = cards_driven(situation, window)
    if against or not situation.cards:
        return Matrix(situation=situation, rows=(), notes=tuple(each.sentence for each in against))
    usable, _ = source_build.usable_toolkits(situation, window, wish)
    ready: dict[str, list[MatrixWheel]] = {}
    place = situation.platform
    for offer in (*offers.official(place), *offers.conda(place), *offers.community(place)):
        route, _ = prebuilt.consider(offer, situation, wish, window)
        if route is not None:
            name = offer.variant or f"{offer.route.value} {offer.cuda}"
            wheel = codec.like(MatrixWheel, offer, name=name, loses=route.loses)
            ready.setdefault(offer.torch, []).append(wheel)
    rows = [
        _row(release, tuple(ready.get(release.newest, ())), usable, situation, wish)
        for release in reversed(releases.torch_releases())
        if wish.admits(release.newest)
    ]
    return Matrix(situation=asked, rows=tuple(rows), notes=(driver_card.ABSENT,) if asked.no_driver else ())


def _row(
    release: TorchRelease,
    wheels: tuple[MatrixWheel, ...],
    usable: list[tuple[Toolkit, Driving]],
    situation: Situation,
    wish: Wish,
) -> MatrixRow:
    fitting = [
        toolkit for toolkit, _ in usable if source_build.builds(release, release.newest, toolkit, situation, wish)
    ]
    best = fitting[-1] if fitting else None
    return MatrixRow(
        torch=release.newest,
        pythons=release.pythons(situation.system),
        wheels=wheels,
        source_cuda=tuple(toolkit.version for toolkit in fitting),
        source_cudnn=source_build.choose_cudnn(release, release.newest, best, situation) if best else None,
        min_cmake=release.min_cmake,
        setuptools=release.setuptools,
    )


def spoken_wheels(row: MatrixRow) -> str:
    """`cu118, cu126`; what loses something is marked."""
    return ", ".join(f"{wheel.name}{' (-)' if wheel.loses else ''}" for wheel in row.wheels) or "-"


def spoken_source(row: MatrixRow) -> str:
    return spread([str(version) for version in row.source_cuda]) if row.source_cuda else "-"


def spoken_pythons(row: MatrixRow) -> str:
    return spread(row.pythons)
