"""A torch by its release and its CUDA line, as pip spells it: `2.7.1+cu126`, `2.7.1+cpu`, `2.7.1`."""

from __future__ import annotations

import msgspec

from rekindle.model.cuda_line import CudaLine, index_of

CPU = "cpu"


class TorchPin(msgspec.Struct, frozen=True):
    release: str
    variant: str | None = None
    """`cu126` or `cpu`, or whatever else its builder calls it; None: it does not say."""

    @classmethod
    def parse(cls, version: str) -> TorchPin:
        release, _, variant = version.strip().removeprefix("v").partition("+")
        return cls(release, variant or None)

    @property
    def line(self) -> CudaLine | None:
        return CudaLine.parse(self.variant)

    @property
    def index(self) -> str | None:
        """PyTorch's own index of this variant; None of one that is not PyTorch's."""
        return index_of(self.variant) if self.variant and (self.variant == CPU or self.line) else None

    @property
    def spoken(self) -> str:
        """`torch 2.7.1+cu126`; `torch+cu126` where the release is empty."""
        return f"torch {self}" if self.release else f"torch{self}"

    def __str__(self) -> str:
        return f"{self.release}+{self.variant}" if self.variant else self.release
