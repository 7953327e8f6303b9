"""Container images as a route: the official wheel of a line that somebody has put into an image, or NVIDIA's own build.

None was opened here. What an image holds is known from its tag and from the wheel of the same line, or from NVIDIA's
notes; so it is offered beside the others and never recommended.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rekindle.compat.container import serves
from rekindle.compat.driver_card import Window
from rekindle.core.command import Command
from rekindle.core.errors import UnknownName
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import projects
from rekindle.knowledge.torch.projects import ContainerImage
from rekindle.model.platform import LINUX
from rekindle.stack import offers, prebuilt
from rekindle.stack.driver import Driving, drive
from rekindle.stack.route import Missing, Route, lacks
from rekindle.stack.rules import Candidate, RouteKind
from rekindle.stack.situation import Situation, Wish

_TOOLKIT = Missing(
    what="container",
    need="Docker and the NVIDIA Container Toolkit",
    why="`--gpus all` hands the cards to the container; the driver stays outside",
    commands=(
        Command.page("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"),
    ),
)


def routes(situation: Situation, wish: Wish, window: Window) -> Iterator[Route]:
    """The images that should serve every card, for Linux on x86_64."""
    if situation.platform != LINUX or not situation.cards:
        return
    for image in projects.images():
        if not all(serves(image, each) for card in situation.cards for each in card.capabilities):
            continue
        # A release that was asked for is none of NVIDIA's own builds.
        if (wish.torch or wish.torchvision) and (image.variant is None or not wish.admits(image.torch or "")):
            continue
        if not wish.admits_cuda(image.cuda):
            continue
        route = _official(image, situation, wish, window) if image.variant else _nvidias(image, situation, window)
        if route is not None:
            yield route


def _official(image: ContainerImage, situation: Situation, wish: Wish, window: Window) -> Route | None:
    """The route of the wheel inside, if that one works here; the image brings the Python and the system."""
    free = msgspec.structs.replace(situation, python=None, glibc=None)
    for offer in offers.official_of(image.torch or "", situation.platform):
        if offer.variant != image.variant:
            continue
        route, _ = prebuilt.consider(offer, free, wish, window)
        if route is None:
            return None
        return _in_image(image, msgspec.structs.replace(route, python=None))
    return None


def _nvidias(image: ContainerImage, situation: Situation, window: Window) -> Route | None:
    candidate = Candidate(name=image.tag, route=RouteKind.CONTAINER, cuda=image.cuda)
    try:
        driving = drive(toolkits.toolkit(image.cuda), situation, window, candidate)
    except UnknownName:
        return None
    if not isinstance(driving, Driving):
        return None
    route = Route(
        route=RouteKind.CONTAINER,
        # `1.4.0a0` is no release: the summary names it.
        cuda=image.cuda,
        driver=driving.words(),
        driver_detail=driving.detail,
        driver_jit=driving.jit,
        evidence=Evidence.NOTES,
        lacks=lacks(situation),
    )
    return _in_image(image, route)


def _in_image(image: ContainerImage, route: Route) -> Route:
    return msgspec.structs.replace(
        route,
        route=RouteKind.CONTAINER,
        commands=(Command("docker", "run", "--rm", "-it", "--gpus", "all", image.tag),),
        requirements=(),
        hashes={},
        summary=f"{image.label} in the image {image.tag}",
        builder=image.tag,
        why=(f"known from {image.source}",),
        unverified=(f"the image {image.tag} was not opened", *route.unverified),
        evidence=Evidence.weakest([route.evidence, image.evidence]),
        missing=(_TOOLKIT,),
        consent=False,
        on_configured_index=False,
        location=None,
        index_url=None,
    )
