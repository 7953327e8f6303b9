"""A hook of mkdocs: the picker as a part of the docs.

    rekindle site -o site && REKINDLE_SITE=site mkdocs build

copies the site to `picker/` of the docs, where the front page links to it. Without REKINDLE_SITE the front page shows
the picker's picture only.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

_WITHOUT = '<a href="picker/index.html">'


def on_post_build(config: Any) -> None:
    """After everything is written: the picker beside it, or no link to what is not there."""
    front = Path(config["site_dir"]) / "index.html"
    made = os.environ.get("REKINDLE_SITE")
    if made:
        shutil.copytree(made, front.parent / "picker", dirs_exist_ok=True)
        return
    text = front.read_text(encoding="utf-8")
    front.write_text(text.replace(_WITHOUT, "<a>"), encoding="utf-8", newline="\n")
