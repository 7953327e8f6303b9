"""A line every few seconds of something that takes minutes, so that nobody takes silence for the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PULSE = 5.0


class Pulse:
    """While it is entered, says what `line` answers; it is given the seconds that have passed."""

    def __init__(self, line: Callable[[float], str], say: Callable[[str], None]) -> None:
        self._line, self._say = line, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._stop.wait(PULSE):
            self._say(self._line(time.monotonic() - self._begun))
