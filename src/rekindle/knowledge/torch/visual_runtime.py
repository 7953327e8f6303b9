"""What `import torch` needs of the Visual C++ Redistributable on Windows, by release."""

from __future__ import annotations

from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, decided


class RuntimeLibrary(Row, frozen=True, kw_only=True):
    """A library in System32 that wheels from `from_torch` on import."""

    name: str
    from_torch: Version
    imported_by: str


@cached
def runtime_libraries() -> tuple[RuntimeLibrary, ...]:
    return decided("visual_runtime", dict[str, tuple[RuntimeLibrary, ...]])["library"]


def needed_by(torch: Version | None) -> tuple[RuntimeLibrary, ...]:
    """What this release imports; without one, what any release does."""
    return tuple(row for row in runtime_libraries() if torch is None or torch >= row.from_torch)
