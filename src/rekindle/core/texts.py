"""Texts of records and manifests that have a form: what has another one is refused while it is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rekindle.core.untrusted import ProjectName

Dotted = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,6}(?:\.[0-9]{1,8}){0,4}\Z")]
"""Numbers with dots between them, as CUDA, cuDNN and compilers are counted. Texts once they are read, as are these:"""
SystemName = Annotated[str, msgspec.Meta(pattern=r"\A(?:linux|windows)\Z")]
_ARCH = r"[0-9]{1,2}\.[0-9][af]?(?:\+PTX)?"
ArchList = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_ARCH}(?:[;, ]+{_ARCH})*[;, ]*)?\Z", max_length=4096)]
"""`5.0;8.6+PTX`, as `TORCH_CUDA_ARCH_LIST` says which GPUs a build is for."""


PackageText = Annotated[str, msgspec.Meta(pattern=rf"\A{ProjectName.SHAPE}\Z")]
"""Also of keys: where msgspec converts plain values, it makes none of the checked types of them."""
HashText = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{64})?\Z")]
InsideText = Annotated[str, msgspec.Meta(pattern=r"\A(?!(?:.*/)?\.\.(?:/|$))[^/\\\x00][^\\\x00]*\Z", max_length=4096)]
