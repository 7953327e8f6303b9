"""The wheels on the user's own shelf, as offers for the resolver."""

from __future__ import annotations

from pathlib import Path

from rekindle.core import console
from rekindle.core.errors import UsageError
from rekindle.core.paths import shelf_folder
from rekindle.stack.offers import Offer


def on_shelf(folder: Path | None = None) -> tuple[Offer, ...]:
    """The torch wheels of a shelf; of the default one, if there is any, when none is named."""
    where = folder or shelf_folder()
    if where.exists() and not where.is_dir():
        raise UsageError(f"`{where}` is a file, not a shelf", hint="`--shelf` takes a folder")
    if not where.is_dir():
        return ()
    from rekindle.wheels.shelf import shelf

    found = shelf.offers(where)
    for file, why in found.set_aside.items():
        console.say(f"not considered: `{console.clean(file)}` on the shelf: {console.clean(why)}")
    return found.offers
