"""The wheels on the user's own shelf, as offers for the resolver."""

from __future__ import annotations

from pathlib import Path

from rekindle.core.errors import UnknownName
from rekindle.core.paths import shelf_folder
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.torch import releases
from rekindle.stack.offers import Offer


def on_shelf(folder: Path | None = None) -> tuple[Offer, ...]:
    """The torch wheels of a shelf; of the default one, if there is any, when none is named."""
    where = folder or shelf_folder()
    if not where.is_dir():
        return ()
    from rekindle.wheels.shelf import shelf

    return tuple(offer for offer in shelf.offers(where) if _known(offer))


def _known(offer: Offer) -> bool:
    """A release or toolkit that is newer than the tables cannot be judged."""
    try:
        releases.torch_release(offer.torch)
        toolkits.toolkit(offer.cuda)
    except UnknownName:
        return False
    return True
