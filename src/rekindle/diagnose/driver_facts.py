"""What the tables say of the driver that a log names, or that a CUDA of it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from rekindle.compat import driver_card, driver_cuda, torch_cuda
from rekindle.compat.driver_cuda import DriverNeed
from rekindle.compat.judgement import holds
from rekindle.core.version import Version
from rekindle.diagnose.facts import Facts, present
from rekindle.knowledge.gpu import drivers
from rekindle.knowledge.torch import releases
from rekindle.knowledge.torch.wheel_platforms import linux_systems
from rekindle.model.cuda_line import CudaLine, index_of
from rekindle.model.driver import Driver
from rekindle.stack import coverage


def values(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    found = _least(fields.get("needs_cuda"), facts) | _of_branch(fields, facts)
    return found | _runs(facts) | _enough(facts) | _said(fields.get("driver_cuda", ""), facts) | _installed(facts)


def _installed(facts: Facts) -> dict[str, str]:
    """How the distribution installs the driver of the card, and builds its module anew."""
    distribution = facts.distribution or "ubuntu"
    system = next((row for row in linux_systems() if row.id == distribution), None)
    last = driver_card.window(min(facts.gpus), "linux").last if facts.gpus else None
    packaged = drivers.packages(last, "linux", distribution) if last else ()
    own = packaged[0].install[0] if packaged else system and system.driver
    return present(driver_install=own, module_build=system and system.module)


def known(fields: Mapping[str, str], facts: Facts) -> Facts:
    """With the oldest driver that says so where torch only said its CUDA: what runs on it runs on the real one."""
    cuda = _cuda_of(fields.get("driver_cuda", ""))
    least = _need(cuda, facts.counting) if not facts.driver else None
    return msgspec.structs.replace(facts, driver=str(least.full)) if least is not None else facts


def _of_branch(fields: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """The driver in words, and whether a newer branch still has the card."""
    named, cuda = version_of(facts.driver), _cuda_of(fields.get("driver_cuda", ""))
    driver = named or version_of(known(fields, facts).driver)
    if driver is None:
        return {}
    branch = drivers.branch_of(driver)
    words = f"The driver {driver}" if named else f"The driver, which runs CUDA {cuda} at most (branch R{branch}),"
    last = driver_card.window(min(facts.gpus), facts.counting).last if facts.gpus else None
    if last is None:
        return {"driver_words": words}
    where = "newer_branch" if last > branch else "branch_is_last" if last == branch else "branch_beyond"
    return {"driver_words": words, where: str(last)}


def version_of(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except ValueError:
        return None


def _cuda_of(number: str) -> str | None:
    """`11040` is CUDA 11.4."""
    if not re.fullmatch("[1-9][0-9]{4,5}", number):
        return None
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _least(asked: str | None, facts: Facts) -> dict[str, str]:
    """The drivers for the CUDA that a container asks for (its host may be Windows with WSL), for the toolkit's, and
    for that which torch brings: minor-version compatibility is enough for it."""
    line = CudaLine.parse(facts.variant)
    brought = str(line.cuda) if line else None
    (host, pc), (linux, windows), (own, own_pc) = (
        (_need(cuda, "linux"), _need(cuda, "windows")) for cuda in (asked, facts.cuda, brought)
    )
    return present(
        needs_driver=host and host.full,
        needs_driver_windows=host and (pc or host).full,
        cuda_driver_linux=linux and linux.full,
        cuda_driver_windows=windows and windows.full,
        variant_cuda=own and own_pc and brought,
        variant_driver_linux=own and own_pc and own.floor,
        variant_driver_windows=own and own_pc and own_pc.floor,
    )


def _need(cuda: str | None, counting: str) -> DriverNeed | None:
    version = version_of(cuda)
    found = driver_cuda.need(version, counting) if version else None
    return found if isinstance(found, DriverNeed) else None


def _runs(facts: Facts) -> dict[str, str]:
    """The newest CUDA that the driver runs fully, where it is not newer than the tables."""
    driver = version_of(facts.driver)
    if driver is None or driver_cuda.is_newer_than_tables(driver):
        return {}
    newest = driver_cuda.newest_full(Driver(driver, facts.counting))
    major = newest.major if newest and "cupy-cuda1" in (facts.cuda_package or "") else None
    return present(driver_runs=newest, cupy_fits=major and major > 10 and f"cupy-cuda{major}x")


def _enough(facts: Facts) -> dict[str, str]:
    """The CUDA of torch where the driver that is named runs it: then that is not the one that was met."""
    line, driver = CudaLine.parse(facts.variant), version_of(facts.driver)
    if line is None or driver is None or holds(driver_cuda.runs(Driver(driver, facts.counting), line.cuda)) is not True:
        return {}
    return {"driver_enough": str(line.cuda)}


def _said(number: str, facts: Facts) -> dict[str, str]:
    """`found version 11040` is CUDA 11.4: the lines of that major that its oldest driver runs."""
    cuda, driver = _cuda_of(number), version_of(known({"driver_cuda": number}, facts).driver)
    if cuda is None or driver is None:
        return {}
    major = cuda.partition(".")[0]
    every = {each.name: each.cuda for release in releases.torch_releases() for each in release.variants}
    there = Driver(driver, facts.counting)
    run = [name for name, each in every.items() if each.major == int(major) and holds(driver_cuda.runs(there, each))]
    lines = {name: _newest_of(name, facts) for name in run}
    torch, name = max(((Version(torch), name) for name, torch in lines.items() if torch), default=(None, ""))
    story = f"the newest{f' for Python {facts.python}' if facts.python else ''} is torch {torch} of "
    story += f"`--index-url {index_of(name)}`"
    return present(driver_said=cuda, driver_said_major=major, driver_lines=torch and story)


def _newest_of(line: str, facts: Facts) -> str | None:
    """The newest torch of a line that has wheels for the Python of the log, and code for its card."""
    return torch_cuda.taken(
        lambda torch: not _lacks(torch, line, facts), line=line, python=facts.python, system=facts.os or "linux"
    )


def _lacks(torch: object, variant: str, facts: Facts) -> bool:
    """Whether that build is known to have no code for the card of the log."""
    return bool(facts.gpus) and coverage.torch_lacks(str(torch), variant, facts.os, min(facts.gpus)) is True
