"""Which Python counts when none is named: one order, for the machine's probes and for every verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def in_order(
    variable: Callable[[str], str | None],
    join: Callable[..., str],
    on_path: Callable[[], Sequence[str]],
    own: Callable[[], str | None],
    *,
    windows: bool,
) -> list[str]:
    """Interpreters in the order of what a build would use: the active environment's, PATH's, Rekindle's own."""
    name = "python.exe" if windows else "python"
    found: list[str] = []
    venv, conda = variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")
    if venv:
        found.append(join(venv, "Scripts" if windows else "bin", name))
    if conda:
        found.append(join(conda, name) if windows else join(conda, "bin", name))
    found += on_path()
    mine = own()
    return list(dict.fromkeys([*found, mine] if mine else found))
