"""What the tables say of the driver that a log names, or that a CUDA of it needs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rekindle.compat import driver_card, driver_cuda, torch_cuda
from rekindle.compat.driver_cuda import DriverNeed
from rekindle.core.version import Version
from rekindle.diagnose import coverage
from rekindle.diagnose.architectures import toolkit
from rekindle.diagnose.facts import Facts, present
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.torch import releases
from rekindle.model.cuda_line import CudaLine, index_of
from rekindle.model.driver import Driver


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    found = _asked(fields) | _of_toolkit(facts) | _of_torch(facts) | _of_branch(fields, facts)
    return found | _runs(facts) | _said(fields.get("driver_cuda", ""), facts)


def known(fields: Mapping[str, str], facts: Facts) -> Facts:
    """With the oldest driver that says so where torch only said its CUDA: what runs on it runs on the real one."""
    cuda = _cuda_of(fields.get("driver_cuda", ""))
    row = toolkit(cuda) if cuda and not facts.driver else None
    least = _need(row, facts.os or "linux")
    return msgspec.structs.replace(facts, driver=str(least.full)) if least is not None else facts


def _of_branch(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """The driver in words, and whether a newer branch still has the card."""
    named, cuda = version_of(facts.driver), _cuda_of(fields.get("driver_cuda", ""))
    driver = named or version_of(known(fields, facts).driver)
    if driver is None:
        return {}
    branch = drivers.branch_of(driver)
    words = f"The driver {driver}" if named else f"The driver, which runs CUDA {cuda} at most (branch R{branch}),"
    last = driver_card.window(min(facts.gpus), facts.os or "linux").last if facts.gpus else None
    if last is None:
        return {"driver_words": words}
    return {"driver_words": words, "newer_branch" if last > branch else "branch_is_last": str(last)}


def version_of(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except ValueError:
        return None


def _cuda_of(number: str) -> str | None:
    """`11040` is CUDA 11.4."""
    if not number.isdigit() or int(number) < 10000:
        return None
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _asked(fields: Mapping[str, str]) -> dict[str, str]:
    """A container asks for a CUDA: the driver of its host, which may be Windows with WSL."""
    row = toolkit(fields["needs_cuda"]) if "needs_cuda" in fields else None
    linux, windows = _need(row, "linux"), _need(row, "windows")
    if linux is None:
        return {}
    return {"needs_driver": str(linux.full), "needs_driver_windows": str((windows or linux).full)}


def _of_toolkit(facts: Facts) -> dict[str, str]:
    row = toolkit(facts.cuda) if facts.cuda else None
    linux, windows = _need(row, "linux"), _need(row, "windows")
    if linux is None or windows is None:
        return {}
    return {"cuda_driver_linux": str(linux.full), "cuda_driver_windows": str(windows.full)}


def _of_torch(facts: Facts) -> dict[str, str]:
    """The least driver for the CUDA that torch brings: minor-version compatibility is enough for it."""
    line = CudaLine.parse(facts.variant)
    row = toolkit(str(line.cuda)) if line else None
    linux, windows = _need(row, "linux"), _need(row, "windows")
    if row is None or linux is None or windows is None:
        return {}
    return {
        "variant_cuda": str(row.version),
        "variant_driver_linux": str(linux.floor),
        "variant_driver_windows": str(windows.floor),
    }


def _need(row: Toolkit | None, system: str) -> DriverNeed | None:
    found = driver_cuda.need(row.version, system) if row else None
    return found if isinstance(found, DriverNeed) else None


def _runs(facts: Facts) -> dict[str, str]:
    """The newest CUDA that the driver runs fully, where it is not newer than the tables."""
    driver = version_of(facts.driver)
    if driver is None or driver_cuda.is_newer_than_tables(driver):
        return {}
    newest = driver_cuda.newest_full(Driver(driver, facts.os or "linux"))
    return present(driver_runs=newest)


def _said(number: str, facts: Facts) -> dict[str, str]:
    """`found version 11040` is CUDA 11.4. Every CUDA of that major runs on it, by minor-version compatibility."""
    cuda = _cuda_of(number)
    if cuda is None:
        return {}
    major = cuda.partition(".")[0]
    every = {each.name: each.cuda for release in releases.torch_releases() for each in release.variants}
    lines = {name: _newest_of(name, facts) for name, each in every.items() if each.major == int(major)}
    found = [(Version(torch), name) for name, torch in lines.items() if torch]
    if not found:
        return {}
    torch, name = max(found)
    return {
        "driver_said": cuda,
        "driver_said_major": major,
        "driver_lines": f"the newest{f' for Python {facts.python}' if facts.python else ''} is torch {torch} of "
        f"`--index-url {index_of(name)}`",
    }


def _newest_of(line: str, facts: Facts) -> str | None:
    """The newest torch of a line that has wheels for the Python of the log, and code for its card."""
    return torch_cuda.taken(
        lambda torch: not _lacks(torch, line, facts), line=line, python=facts.python, system=facts.os or "linux"
    )


def _lacks(torch: object, variant: str, facts: Facts) -> bool:
    """Whether that build is known to have no code for the card of the log."""
    return bool(facts.gpus) and coverage.torch_lacks(str(torch), variant, facts.os, min(facts.gpus)) is True
