"""How far the CUDA files of a release compile for an old card: what a sweep of all of them found."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, observed


class Sweep(Row, frozen=True, kw_only=True):
    """Each file was compiled on its own for one architecture; nothing was linked or run."""

    torch: str
    cuda: Version
    capability: Capability
    platform: str
    files: int
    compiled: int
    refused: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    """Files that compile, with kernels that the source leaves empty for this card: they would run and do nothing."""

    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """What each file took, to PTX and through ptxas, one at a time on a shared machine: proportions, not speeds."""

    @property
    def whole(self) -> bool:
        return self.compiled == self.files

    @property
    def unverified(self) -> int:
        """Files that were not reached."""
        return self.files - self.compiled - len(self.refused)

    @property
    def _where(self) -> str:
        """`linux, g++ 11` in words: what a compiler said on one system is not said for another."""
        system, _, compiler = self.platform.partition(", ")
        return f"{system.capitalize()} with {compiler}" if compiler else system.capitalize()

    @property
    def sentence(self) -> str:
        tried = self.compiled + len(self.refused)
        of = f"{self.files} CUDA files" if not self.unverified else f"{tried} CUDA files tried (of {self.files})"
        text = (
            f"{self.compiled} of {of} compile for {self.capability} with CUDA {self.cuda} (measured on {self._where})"
        )
        if self.refused:
            text += f", {len(self.refused)} do not"
        if self.dropped:
            text += f", {len(self.dropped)} leave kernels empty for it"
        return text


@cached
def sweeps() -> tuple[Sweep, ...]:
    return observed("sweeps", dict[str, tuple[Sweep, ...]])["sweeps"]


def sweep(torch: str, cuda: Version, capability: Capability) -> Sweep | None:
    """What was found for this release, toolkit and card; None: nobody swept it."""
    wanted = (torch.partition("+")[0], cuda.major_minor, capability)
    return next((row for row in sweeps() if (row.torch, row.cuda, row.capability) == wanted), None)


def seen(torch: str, cuda: Version, capability: Capability) -> str | None:
    """What is known of this release on such a card, in words; also of its development tree, or another toolkit."""
    exact = sweep(torch, cuda, capability)
    if exact is not None:
        return exact.sentence
    release = torch.partition("+")[0]
    near = [row for row in sweeps() if row.capability == capability and row.cuda.major == cuda.major]
    row = next((row for row in near if row.torch == release or row.torch.startswith(f"{release}a")), None)
    if row is None:
        return None
    return f"of {row.torch}: {row.sentence}" if row.torch != release else row.sentence
