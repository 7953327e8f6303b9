"""A driver as people write it: `550.54.14`, `R550`, `535.183.01 (CUDA 12.2)`, Windows' `31.0.15.3713`."""

from __future__ import annotations

import re

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.driver_cuda import DriverNeed
from rekindle.core.errors import UsageError
from rekindle.core.version import Version, typed
from rekindle.inputs import plain
from rekindle.knowledge.gpu.drivers import branch_of, meant, of_windows
from rekindle.model.driver import Driver

# As nvidia-smi shows it, with the CUDA beside it, as a branch (`R550`, `550.x`), or as a package (`nvidia-driver-535`).
_AROUND = (
    r"^(?:.*driver version:?)?\s*(?:game ready )?(?:nvidia[- ]?)?(?:(?:open|driver|dkms)[- ])*"
    r"(?:version:? )?(?:branch )?r? ?(?=v?\d)"
    r"|[ (,|]*cuda.*$|(?: dch|-server|-open| whql| grd| game ready)+$|(?<=\d)-\d+ubuntu\S*$|(?:\.x|\+)$"
)


class TypedDriver(msgspec.Struct, frozen=True, kw_only=True):
    driver: Driver
    note: str | None = None
    """How a bare branch, or one cut short, was read."""


def read_driver(text: str, counting: str = "linux") -> TypedDriver:
    """A bare branch means its newest release; so does the `580.00` that a Jetson's system reports."""
    shown = re.fullmatch(r"(?i)\W*cuda(?: version)?:? ?(\d{1,9})\.(\d)\W*", text.strip())
    if shown:
        hint = _of_cuda(int(shown[1]) * 1000 + int(shown[2]) * 10, counting)
        raise UsageError(f"`{text[:40]}` is not a driver version", hint=hint)
    said = re.sub(_AROUND, "", plain(text)).strip()
    number = of_windows(said)
    if number is not None:
        driver = Driver(Version(number), counting)
        return TypedDriver(driver=driver, note=f"driver {said}, as Windows counts, is NVIDIA's {number}")
    version = typed(said, "`--driver`", "550.54.14", said=text)
    if len(version.parts) > 4:
        raise UsageError(f"`{text[:40]}` is not a driver version", hint="write `--driver` like `550.54.14`")
    if version.major >= 1000 or version.major < 100:
        # `12.4` is the CUDA that nvidia-smi shows beside it.
        cuda = version.major if version.major >= 1000 else version.major * 1000 + version.minor * 10
        raise UsageError(f"`{text[:40]}` is not a driver version", hint=_of_cuda(cuda, counting))
    if any(version.parts[1:]):
        found = driver_cuda.whole(version, counting)
        note = f"driver {text} is taken as {found}" if found != version else None
        return TypedDriver(driver=Driver(found, counting), note=note)
    newest = meant(version, counting)
    note = f"driver {text} is taken as {newest}, the newest of branch R{version.major}" if newest != version else None
    return TypedDriver(driver=Driver(newest, counting), note=note)


def _of_cuda(number: int, counting: str) -> str:
    """PyTorch says `found version 11040` of a driver that ends with CUDA 11.4."""
    cuda = Version(f"{number // 1000}.{number % 1000 // 10}")
    need = driver_cuda.need(cuda, counting)
    if not isinstance(need, DriverNeed):
        return "`nvidia-smi` shows the driver's version, for example 550.54.14"
    branch = branch_of(need.full)
    return f"that is the driver's CUDA ({cuda}): `nvidia-smi` shows its own version; the branch is R{branch}"
