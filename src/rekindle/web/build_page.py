"""The page of a build: written into its folder when a run ends, and served while it runs if that is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.build.progress.watch import Now
from rekindle.core import codec, files
from rekindle.core.errors import RekindleError
from rekindle.web import report, timeline

if TYPE_CHECKING:
    from rekindle.web.live import LiveServer

REPORT = "report.html"
TRACE = "trace.json"


class BuildPage:
    """Listens to a build. `serve` is the host and port of the live page; None: there is none."""

    def __init__(self, tell: Callable[[str], None], serve: tuple[str, int] | None = None) -> None:
        self._tell = tell
        self._serve = serve
        self._folder: Path | None = None
        self._server: LiveServer | None = None
        self._now: Callable[[Now], None] | None = None

    def began(self, folder: Path, title: str) -> None:
        self._folder = folder
        if self._serve is None:
            return
        from rekindle.web.guard import bind
        from rekindle.web.live import LiveBuild, LiveServer

        place, opened = bind(*self._serve)
        build = LiveBuild(folder, title)
        self._now = build.now
        self._server = LiveServer(build, place, opened)
        self._server.start()
        self._tell(f"watch it at {place.address}")

    def now(self, moment: Now) -> None:
        if self._now is not None:
            self._now(moment)

    def ended(self, outcome: str) -> None:
        if self._folder is not None:
            # A build that ended before Ninja ran has nothing to draw; its record says what there is.
            with contextlib.suppress(RekindleError, OSError):
                found = report.build_report(self._folder)
                files.write_text(self._folder / REPORT, report.html(found))
                files.write_text(self._folder / TRACE, codec.to_json(timeline.trace(found.timeline), indent=0))
                self._tell(f"wrote `{self._folder / REPORT}`; open it in a browser")
        if self._server is not None:
            self._server.stop(outcome)
