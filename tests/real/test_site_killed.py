"""The site, killed while it is written: the next run leaves the pages of an undisturbed one, and nothing else."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from rekindle.web import site
from support.crashes import ends_the_same


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="a copy of this process is made to die")
def test_killed_at_any_moment_the_site_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list(site.answered(only=["Tesla K80"]))  # these take most of the time, and write nothing
    monkeypatch.setattr(site, "answered", lambda **_: iter(known))
    monkeypatch.setattr(site, "grid", cache(site.grid))
    ends_the_same(tmp_path / "root", lambda root: ["site", "-o", str(root / "site"), "--gpu", "Tesla K80"])
