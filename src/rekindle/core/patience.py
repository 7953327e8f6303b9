"""The last resort against a text that was made to keep its reader busy: processor time, not the clock.

Every reader is bounded by what it counts; here ends the pattern or the loop that nobody has thought of. No real file
takes a tenth of what is given to it.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rekindle.core.errors import BadInput

_SECONDS, _EACH, _BYTES_PER_SECOND = 20.0, 2.0, 250_000
_PACKED = 20
"""A packed log is read as one of so many times its size."""


@contextlib.contextmanager
def patience(paths: Iterable[Path], *, seconds: float = _SECONDS) -> Iterator[None]:
    """For plain files, whose size is known, in the main thread: only there a signal is heard."""
    named = [path for path in paths if path.is_file()]
    size = sum(path.stat().st_size * (_PACKED if path.suffix == ".gz" else 1) for path in named)
    limit = seconds + _EACH * (len(named) - 1) + size / _BYTES_PER_SECOND
    if not named or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        message = f"`{', '.join(path.name for path in named)}` keeps its reader busy for more than {limit:.0f} s"
        raise BadInput(message, hint="no real file of its size does: look at it yourself; nothing in it was run")

    with _watched(stop, limit):
        yield


if sys.platform == "win32":

    @contextlib.contextmanager
    def _watched(stop: Callable[[int, Any], None], limit: float) -> Iterator[None]:
        """There is no such timer. A pattern that runs away holds the watching thread up as well, and ends late."""
        before, done = signal.signal(signal.SIGABRT, stop), threading.Event()
        threading.Thread(target=_watch, args=(done, time.process_time() + limit), daemon=True).start()
        try:
            yield
        finally:
            done.set()
            signal.signal(signal.SIGABRT, before)

    def _watch(done: threading.Event, until: float) -> None:
        while not done.wait(0.5):
            if time.process_time() > until:
                _thread.interrupt_main(signal.SIGABRT)

else:

    @contextlib.contextmanager
    def _watched(stop: Callable[[int, Any], None], limit: float) -> Iterator[None]:
        """A handler on the way may swallow the error of a part that it can do without: it comes every second."""
        before = signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, limit, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
