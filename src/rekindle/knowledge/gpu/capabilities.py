"""What each compute capability can and cannot do: its span of toolkits, drivers and cuDNN, and what will not work.

Also how fast it is by its data sheet, and how to use a card of it, whatever PyTorch is installed.
"""

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.tables import NamedRow, Row, cached, decided, rows
from rekindle.model.card import Capability


class CapabilityFacts(Row, frozen=True, kw_only=True):
    """`last_…` None means: not ended yet."""

    capability: Capability
    first_cuda: Version
    first_driver_linux: Version | None = None
    """Named by its release notes, where that is before the driver of `first_cuda`."""
    torch: str
    lacks: tuple[str, ...]
    last_cuda: Version | None = None
    last_driver_branch: str | None = None
    boards_only: bool = False
    """Of a chip that is sold on boards with an Arm processor only: its code is promised to no other card."""


class CardNeed(NamedRow, frozen=True, kw_only=True):
    """Something a program may ask of a card, and the first capability that has it."""

    name: str
    floor: Capability
    asked: bool = True
    """A person may ask for it (`--needs`)."""
    torch: Version | None = None
    """The first release that has it, where not all have."""


class _Limits(msgspec.Struct, frozen=True):
    limits: dict[str, str]


_need = rows("capabilities.toml", "need", CardNeed)
_capability = rows("capabilities.toml", "capability", CapabilityFacts)


@cached
def _rows() -> dict[Capability, CapabilityFacts]:
    words = decided("capabilities", _Limits).limits
    spelled = (msgspec.structs.replace(row, lacks=tuple(words[each] for each in row.lacks)) for row in _capability())
    return {row.capability: row for row in spelled}


def facts(capability: Capability) -> CapabilityFacts | None:
    """None: a capability that the tables do not know."""
    return _rows().get(capability)


def on_boards_only(capability: Capability) -> bool:
    """Also of a capability that no card that is known has."""
    row = facts(capability)
    return row is None or row.boards_only


def known() -> tuple[Capability, ...]:
    return tuple(sorted(_rows()))


def needs() -> tuple[CardNeed, ...]:
    """What can be asked for."""
    return tuple(row for row in _need() if row.asked)


@cached
def need(id: str) -> CardNeed:
    return next(row for row in _need() if row.id == id)


class Throughput(Row, frozen=True, kw_only=True):
    """`fp16` None: no faster than single precision, or not said."""

    capability: Capability
    fp32: int
    fp16: int | None = None

    def nominal(self, multiprocessors: int, megahertz: float) -> tuple[float, float | None]:
        """TFLOPS in single and in half precision; one multiply-add is two operations."""
        unit = 2 * multiprocessors * megahertz * 1e6 / 1e12
        return self.fp32 * unit, self.fp16 * unit if self.fp16 else None


@cached
def _throughputs() -> dict[Capability, Throughput]:
    return {row.capability: row for row in decided("throughput", dict[str, tuple[Throughput, ...]])["rates"]}


def throughput(capability: Capability) -> Throughput | None:
    """None: a capability that the table does not have."""
    return _throughputs().get(capability)


class CardAdvice(NamedRow, frozen=True, kw_only=True):
    """For the cards from capability `first` to `last`. `instead`: what to take where PyTorch is the wrong answer."""

    first: Capability
    last: Capability
    type: str
    attention: str
    bf16: str
    benchmark: str
    comfyui: str
    """The flags that a program wants, by its name in `programs.toml` where it has one."""
    a1111: str
    instead: str | None = None

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text, in the order they are shown."""
        rows = [
            ("compute in", self.type),
            ("attention", self.attention),
            ("bfloat16", self.bf16),
            ("cuDNN", self.benchmark),
            ("ComfyUI", self.comfyui),
            ("A1111", self.a1111),
        ]
        return (*rows, ("not PyTorch", self.instead)) if self.instead else tuple(rows)


@cached
def advice(capability: Capability) -> CardAdvice | None:
    """None: a card that no PyTorch runs on, or one newer than the data."""
    rows = decided("advice", dict[str, tuple[CardAdvice, ...]])["advice"]
    return next((row for row in rows if row.first <= capability <= row.last), None)


_WARP = 32
# Registers are given out per warp, 256 at a time, from compute capability 3.0 on.
_REGISTER_UNIT = 256


class LaunchLimits(Row, frozen=True, kw_only=True):
    """`card` is a real card of that capability with its number of multiprocessors; sizes are in bytes."""

    capability: Capability
    card: str
    multiprocessors: int
    threads_per_block: int
    registers_per_thread: int
    registers_per_block: int
    registers_per_multiprocessor: int
    shared_per_block: int
    shared_per_multiprocessor: int

    def largest_block(self, registers: int) -> int:
        """How many threads a block of a kernel with that many registers per thread may have."""
        per_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        warps = self.registers_per_block // per_warp if per_warp else self.threads_per_block // _WARP
        return min(self.threads_per_block, warps * _WARP)


_launch_limits = rows("launch_limits.toml", "limits", LaunchLimits)


def launch_limits(capability: Capability) -> LaunchLimits | None:
    """None: a capability that the table does not have."""
    return next((row for row in _launch_limits() if row.capability == capability), None)


class OwnKernels(Row, frozen=True, kw_only=True):
    """From this release of torch on, PTX below `least` is no code for that card."""

    card: Capability
    first: Version
    least: Capability


own_kernels = rows("launch_limits.toml", "own_kernels", OwnKernels)
