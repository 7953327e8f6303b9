"""sccache or ccache in front of the compilers: when asked for, or when one is there."""

from __future__ import annotations

from collections.abc import Mapping

from rekindle.build.tools import which
from rekindle.errors import MissingTool

_KNOWN = ("sccache", "ccache")


def find_launcher(asked: str | None, environ: Mapping[str, str]) -> str | None:
    """The launcher's path. `none` switches it off; nothing asked takes what is there, or does without."""
    if asked == "none":
        return None
    names = _KNOWN if asked is None or "://" in asked else (asked,)
    for name in names:
        found = name if {"/", "\\"} & set(name) else which(name, environ)
        if found:
            return found
    if asked is None:
        return None
    message = f"`{asked if '://' not in asked else 'sccache'}` is not on PATH"
    raise MissingTool(message, hint="install it, or leave `--cache` out")
