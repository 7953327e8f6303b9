"""Container images as a route: offered by what their tag and NVIDIA's notes say, never recommended."""

from __future__ import annotations

from rekindle.api import plan
from rekindle.compat.container import serves
from rekindle.knowledge.tables import Evidence
from rekindle.knowledge.torch import projects
from rekindle.model.card import Capability
from rekindle.stack.route import Route
from rekindle.stack.rules import RouteKind


def images(gpu: str, system: str = "linux", **wish: str) -> dict[str, Route]:
    found = plan(gpus=[gpu], os=system, **wish)  # type: ignore[arg-type]
    assert found.recommended.route is not RouteKind.CONTAINER
    return {str(route.builder): route for route in found.routes if route.route is RouteKind.CONTAINER}


def test_a_pascal_card_gets_the_images_of_cuda_11_and_12_6() -> None:
    found = images("GTX 1080 Ti")
    route = found["pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"]
    assert route.commands == ("docker run --rm -it --gpus all pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime",)
    assert (route.torch, str(route.cuda), route.consent, route.requirements) == ("2.7.1", "12.6", False, ())
    assert "was not opened" in route.unverified[0]
    assert route.driver
    # 12.8 and newer have no code for it, in an image no more than in a wheel; CUDA 13.1 cannot even compile it.
    assert "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime" not in found
    assert "nvcr.io/nvidia/pytorch:25.12-py3" not in found


def test_what_only_notes_say_is_said_to_be_notes() -> None:
    route = images("GTX 1080 Ti")["nvcr.io/nvidia/pytorch:20.06-py3"]
    assert route.evidence is Evidence.NOTES
    assert "NVIDIA's own" in route.summary


def test_a_kepler_card_gets_none_and_the_newest_card_no_old_cuda() -> None:
    assert images("Tesla K40c") == {}
    assert all("cuda10" not in tag and ":19." not in tag and ":20." not in tag for tag in images("RTX 5090"))


def test_a_driver_that_cannot_run_it_and_windows_rule_it_out() -> None:
    assert "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime" not in images("GTX 1080 Ti", driver="470.57.02")
    assert images("GTX 1080 Ti", "windows") == {}


def test_a_wish_holds_for_images_too() -> None:
    assert set(images("GTX 1080 Ti", torch="2.6.0")) == {"pytorch/pytorch:2.6.0-cuda12.6-cudnn9-runtime"}


def test_every_image_says_where_it_is_known_from() -> None:
    for image in projects.images():
        assert image.source
        known = image.variant is not None or image.oldest is not None
        # Of some only the CUDA is known: `review` asks it, and `plan` offers none of them.
        assert serves(image, Capability(8, 6)) is (known and image.cuda.major >= 11), image.tag
