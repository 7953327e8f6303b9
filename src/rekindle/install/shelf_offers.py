"""The wheels on the user's own shelf, as offers for the resolver."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_data_dir

from rekindle.core.errors import UnknownName
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.torch import releases
from rekindle.stack.offers import Offer


def on_shelf(folder: Path | None = None) -> tuple[Offer, ...]:
    """The torch wheels of a shelf; of the default one, if there is any, when none is named."""
    named = os.environ.get("REKINDLE_SHELF")
    where = folder or (Path(named) if named else Path(user_data_dir("rekindle", appauthor=False)) / "shelf")
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
