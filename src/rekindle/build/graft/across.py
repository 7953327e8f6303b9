"""A GPU half by CUDA 12 in a wheel of CUDA 13, which has no code for Maxwell, Pascal and Volta and cannot be given any.

The driver serves both runtimes in one process: streams, events, memory and captures are the same for either. What is
exchanged with the half: NVIDIA's packages that it is linked with, and the library that knows NVRTC. The kept halves
stay with the runtime that they were compiled with. One structure that both look into has another layout:
`cudaDeviceProp`. The Python half asks for it by one name; that name is changed in it to one of a small library here,
which asks the kept halves' own runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import cudnn_serves, last_cudnn_of
from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.model.card import Capability
from rekindle.model.requirement import requirement

MAJORS = {13: 12}
"""The major of a base, and that of a GPU half that it can be given."""
BRIDGE = "torch_cuda_bridge"
SOURCE = "gen/bridge.cpp"
NVRTC, NVRTC_SOURCE = "caffe2_nvrtc", "aten/src/ATen/cuda/nvrtc_stub/ATenNVRTC.cpp"
DRIVER = ("libcuda.so.1", "lib64/stubs/libcuda.so")
"""No package has it, and the toolkit has something to link with in its place."""
BESIDE = "cudaDeviceProp"
"""What the bridge is for: it need not be the same."""
_ASKED, _BRIDGED = b"_ZN2at4cuda19getDevicePropertiesEa", b"_ZN2at4cuda19getDeviceProperty_BEa"
_TOOLKIT = "cuda-toolkit"
_COMPILED_FOR = ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt")
"""Beside the toolkit's: the GPU half is compiled with their headers and linked with their libraries."""
_KEPT, _KEPT_HEADERS = ("nvidia-cuda-runtime", "nvidia-cuda-cupti"), ("nvidia-cuda-crt", "nvidia-cuda-nvrtc")


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """The CUDA that the base was built with, that of the packages for the new half, and its cuDNN where the base's
    has no code for the cards."""

    base: Version
    packages: Version
    cudnn: Version | None = None

    def of(self, line: str) -> Iterator[str]:
        """The requirements that take the place of one of the base's."""
        asked = requirement(line)
        old, new = f"-cu{self.base.major}", f"-cu{self.packages.major}"
        marker = f"; {asked.marker}" if asked is not None and asked.marker else ""
        if asked is not None and asked.name == _TOOLKIT:
            extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
            yield f"{asked.name}{extras}=={self.packages}.*{marker}"
            yield from (f"{name}=={self.base}.*{marker}" for name in _KEPT)
        elif asked is not None and asked.name in [f"{name}{old}" for name in _COMPILED_FOR]:
            pinned = f"=={self.cudnn}" if self.cudnn and "cudnn" in asked.name else asked.specifier
            yield f"{asked.name.removesuffix(old)}{new}{pinned}{marker}"
        else:
            yield line

    def for_building(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The same, and the headers that the kept halves were compiled with."""
        headers = (f"{name}=={self.base}.*" for name in _KEPT_HEADERS)
        return (*(new for line in lines for new in self.of(line)), *headers)


def exchange(base: Version, requires: Sequence[str], toolkit: Version, cards: Sequence[Capability]) -> Exchange | None:
    """None where the toolkit is of the base's major: nothing is exchanged."""
    if toolkit.major == base.major:
        return None
    pins = {asked.name: asked.specifier for line in requires if (asked := requirement(line)) is not None}
    if MAJORS.get(base.major) != toolkit.major or _TOOLKIT not in pins:
        message = f"the base was built with CUDA {base}: a GPU half by CUDA {toolkit} would not fit"
        raise BadInput(message, hint=f"take a toolkit of CUDA {base.major}, or a base of another line")
    pinned = next((each.version for each in pins.get(f"nvidia-cudnn-cu{base.major}", ())), None)
    return Exchange(
        base=base.major_minor,
        packages=max(toolkit.major_minor, since("toolkit-packages")),
        cudnn=_cudnn(Version.find(pinned or ""), cards, toolkit.major),
    )


def _cudnn(pinned: Version | None, cards: Sequence[Capability], major: int) -> Version | None:
    if pinned is None or not any(isinstance(cudnn_serves(pinned, card, cuda_major=major), Clash) for card in cards):
        return None
    return last_cudnn_of(cards)


def bridge(headers: Path) -> str:
    """By the headers of the base's CUDA, which include each other as neighbours, whatever else is there."""
    return _SOURCE.replace("HEADER", (headers / "cuda_runtime_api.h").as_posix()).replace("NAME", _BRIDGED.decode())


def bridged(python_half: bytes, asked: Iterable[str], names: frozenset[str]) -> bytes:
    """The Python half with the other name, which the bridge has. It must ask for that structure nowhere else; the name
    may stand there twice, the second time for debuggers."""
    if _BRIDGED.decode() not in names:
        raise BadInput(f"the new `{BRIDGE}` lacks the name that it is for", hint="compile it again: `--from compile`")
    if [name for name in asked if "DeviceProp" in name] != [_ASKED.decode()]:
        message = "the base's Python half asks for the properties of a card in another way than is known"
        raise BadInput(message, hint="take a toolkit of the base's own CUDA major")
    return python_half.replace(b"\0" + _ASKED + b"\0", b"\0" + _BRIDGED + b"\0")


def with_cudnn(module: bytes, version: Version) -> bytes:
    """`torch.backends.cudnn` compares what is installed with what the Python half was compiled with; the GPU half is
    what uses it."""
    numbers = ", ".join(map(str, version.parts[:3]))
    made, count = re.subn(
        rb"(compile_version = )_cudnn\.getCompileVersion\(\)", rb"\1(" + numbers.encode() + rb")", module
    )
    if count != 1:
        message = "`torch.backends.cudnn` of the base compares its versions in another way than is known"
        raise BadInput(message, hint="take a toolkit of the base's own CUDA major")
    return made


_SOURCE = """\
#include "HEADER"

#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>

// The properties of a card as the kept halves know the structure, by the runtime that they were compiled with.
namespace {
void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error));
  }
}
struct Card {
  std::once_flag once;
  cudaDeviceProp properties;
};
std::deque<Card>& cards() {
  static std::deque<Card> all = [] {
    int count = 0;
    check(cudaGetDeviceCount(&count));
    return std::deque<Card>(count);
  }();
  return all;
}
} // namespace

cudaDeviceProp* rekindle_properties(signed char asked) __asm__("NAME");
cudaDeviceProp* rekindle_properties(signed char asked) {
  int device = asked;
  if (device == -1) {
    check(cudaGetDevice(&device));
  }
  Card& card = cards().at(device);
  std::call_once(card.once, [&] { check(cudaGetDeviceProperties(&card.properties, device)); });
  return &card.properties;
}
"""
