"""Regular expressions that are compiled when they are first asked: most runs ask few of those that a module holds."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Late:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._said = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Looked up once: from then on what is asked for is an attribute like any other."""
        value = getattr(re.compile(*self._said), name)
        setattr(self, name, value)
        return value


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))
