"""Which library is really missing: Windows names the file it was asked to load, not the one it did not find.

When the file that the log names is on this machine, its package is read (nothing is loaded or run) and the way to the
missing library is told.
"""

from __future__ import annotations

from pathlib import Path

from rekindle.core.errors import RekindleError

_MOST = 4


def really_missing(named: str) -> tuple[str, ...]:
    """`libomp140.x86_64.dll, wanted by torch_cpu.dll` and the like; empty when the files are not at hand."""
    path = Path(named)
    if not path.is_absolute() or not path.is_file():
        return ()
    from rekindle.wheels.closure.linkage import LoadTime
    from rekindle.wheels.inspect.inspection import inspect

    folder = path.parent.parent if path.parent.name.lower() in ("lib", "bin") else path.parent
    try:
        closure = inspect(folder).closure
    except (RekindleError, OSError):
        return ()
    if closure is None:
        return ()
    first = [
        item for item in closure.missing if path.name.lower() in {way.lower().rpartition("/")[2] for way in item.chain}
    ]
    chosen = first or [item for item in closure.missing if item.how is LoadTime.IMPORT] or list(closure.missing)
    return tuple(f"{item.library}, wanted by {item.wanted_by[0]}" for item in chosen[:_MOST] if item.wanted_by)
