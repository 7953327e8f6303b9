"""How far the CUDA files of a release compile for an old card: what a sweep of all of them found."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from rekindle.core.console import plural
from rekindle.core.version import Version
from rekindle.knowledge.tables import Row, cached, rows
from rekindle.model.card import Capability
from rekindle.model.torch_pin import TorchPin

_ENOUGH = 100
"""Files that a sweep must have timed before its times weigh in an estimate."""


class Sweep(Row, frozen=True, kw_only=True):
    """Each file was compiled on its own for one architecture; nothing was linked or run."""

    torch: str
    cuda: Version
    capability: Capability
    platform: str
    files: int
    compiled: int
    refused: tuple[str, ...]
    dropped: tuple[str, ...] | None = None
    """Files that compile, with kernels that the source leaves empty for this card: they would run and do nothing.

    None: nobody counted them.
    """

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
            text += f", {plural(len(self.dropped), 'file')} with kernels left empty for it"
        return text


sweeps = rows("sweeps.json", "sweeps", Sweep)


def sweep(torch: str, cuda: Version, capability: Capability) -> Sweep | None:
    """What was found for this release, toolkit and card; None: nobody swept it."""
    wanted = (TorchPin.parse(torch).release, cuda.major_minor, capability)
    return next((row for row in sweeps() if (row.torch, row.cuda, row.capability) == wanted), None)


def nearest(torch: str, cuda: Version, capability: Capability) -> Sweep | None:
    """The sweep that says most of this release on such a card.

    Failing the very one: of its development tree, with another toolkit of the same major, or for a card of the same
    generation whose code this one runs.
    """
    exact = sweep(torch, cuda, capability)
    if exact is not None:
        return exact
    release = TorchPin.parse(torch).release
    near = [
        row
        for row in sweeps()
        if (row.torch == release or row.torch.startswith(f"{release}a"))
        and row.cuda.major == cuda.major
        and row.capability.major == capability.major
        and row.capability <= capability
    ]
    return max(near, key=lambda row: (row.capability, row.torch == release), default=None)


def seen(torch: str, cuda: Version, capability: Capability) -> str | None:
    """What is known of this release on such a card, in words."""
    row = nearest(torch, cuda, capability)
    if row is None:
        return None
    text = row.sentence if row.torch == TorchPin.parse(torch).release else f"of {row.torch}: {row.sentence}"
    return text if row.capability == capability else f"{text}; {capability} runs the code of {row.capability} too"


@cached
def file_seconds() -> dict[str, dict[str, float]]:
    """Seconds of each CUDA file by release: the mean over the cards that a whole sweep was run for."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sweeps():
        if len(row.seconds) >= _ENOUGH:
            for file, seconds in row.seconds.items():
                found[row.torch][file].append(seconds)
    return {torch: {file: sum(each) / len(each) for file, each in files.items()} for torch, files in found.items()}
