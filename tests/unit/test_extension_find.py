"""Ready-made wheels: the right file, or that there is none, or that it could not be looked into. Never a wrong one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from rekindle.compat import extension_file
from rekindle.compat import package as packages
from rekindle.compat.judgement import Clash, Fits, Unknown
from rekindle.core.errors import NotFound
from rekindle.core.findings import State
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.extension import check, looking, question
from rekindle.extension import find as find_module
from rekindle.extension.candidates import IndexAnswer, on_index
from rekindle.extension.check import ServedCards, TorchLink, served_by
from rekindle.extension.find import ExtensionQuestion, FoundExtension, find
from rekindle.extension.looking import LookedInto
from rekindle.extension.question import TorchNamed
from rekindle.knowledge.builds import extension_files
from rekindle.machine import snapshot
from rekindle.machine.model import InstalledTorch
from rekindle.model.card import Capability, NamedCard
from rekindle.model.environment import Environment
from rekindle.model.platform import LINUX, Platform
from rekindle.stack.from_machine import situation_here
from rekindle.stack.programs import BesideTorch, for_program
from rekindle.stack.situation import situation_from_options
from support import small_wheels, torch_like
from support.command import rekindle_command
from support.dlls import dll

MACHINES = Path(__file__).parents[1] / "machines"
_FLASH = "https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3%2B"
_MJUN = "https://github.com/mjun0812/flash-attention-prebuild-wheels/releases/download/"
_SAGE = "https://github.com/woct0rdho/SageAttention/releases/download/v2.2.0-windows.post3/"

# Labelled from the projects' own release lists and build scripts, not from what the finder says:
# what the last word of the command ends with, or None where nothing ready-made fits.
LABELLED: tuple[tuple[str, str | None], ...] = (
    ("flash-attn 2.8.0+cu128 3.12 linux 8.9", f"{_FLASH}cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"),
    ("flash-attn 2.6.0+cu124 3.11 linux 8.6", f"{_FLASH}cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"),
    ("flash-attn 2.6.0+cu126 3.11 linux 8.6", f"{_FLASH}cu12torch2.6cxx11abiTRUE-cp311-cp311-linux_x86_64.whl"),
    (
        "flash-attn 2.8.0+cu128 3.12 windows 8.9",
        f"{_MJUN}v0.7.11/flash_attn-2.8.3%2Bcu128torch2.8-cp312-cp312-win_amd64.whl",
    ),
    ("flash-attn 2.8.0+cu126 3.12 linux 6.1", None),
    (
        "flash-attn 2.10.0+cu130 3.12 linux 9.0",
        f"{_MJUN}v0.9.0/flash_attn-2.8.3%2Bcu130torch2.10-cp312-cp312-linux_x86_64.whl",
    ),
    ("xformers 2.8.0+cu128 3.12 linux 8.6", "xformers==0.0.32.post2"),
    ("xformers 2.8.0+cu126 3.12 windows 8.6", "https://download.pytorch.org/whl/cu126"),
    ("xformers 2.7.1+cu118 3.11 windows 6.1", None),
    (
        "sageattention 2.8.0+cu128 3.13 windows 8.9",
        f"{_SAGE}sageattention-2.2.0%2Bcu128torch2.8.0.post3-cp39-abi3-win_amd64.whl",
    ),
    ("bitsandbytes 2.6.0+cu126 3.11 linux 6.1", "bitsandbytes==0.50.2"),
    ("bitsandbytes 2.8.0+cu128 3.11 linux 6.1", None),
    ("torch-scatter 2.8.0+cu128 3.12 windows 8.6", "https://data.pyg.org/whl/torch-2.8.0+cu128.html"),
    ("triton 2.7.1+cu128 3.11 windows 7.5", None),
    ("triton 2.6.0+cu126 3.11 windows 7.5", "triton-windows>=3.2,<3.3"),
    (
        "exllamav2 2.6.0+cu124 3.11 windows 8.6",
        "v0.3.2/exllamav2-0.3.2%2Bcu124.torch2.6.0-cp311-cp311-win_amd64.whl",
    ),
    ("exllamav2 2.6.0+cu124 3.14 linux 8.6", None),
    ("llama-cpp-python 2.6.0+cu124 3.12 linux 6.1", "https://abetlen.github.io/llama-cpp-python/whl/cu124"),
    (
        "mamba-ssm 2.10.0+cu130 3.13 linux 9.0",
        "v2.3.2.post1/mamba_ssm-2.3.2.post1%2Bcu13torch2.10cxx11abiTRUE-cp313-cp313-linux_x86_64.whl",
    ),
    ("mamba-ssm 2.10.0+cu130 3.13 windows 9.0", None),
    ("vllm 2.8.0+cu128 3.12 linux 6.1", None),
    ("nunchaku 2.7.1+cu128 3.11 windows 8.9", "v1.0.2/nunchaku-1.0.2%2Btorch2.7-cp311-cp311-win_amd64.whl"),
)


_P3D = "https://dl.fbaipublicfiles.com/pytorch3d/packaging/wheels/py310_cu121_pyt241/download.html"
# Names and lists that were missing: from the lists of mjun0812, k2 and pytorch3d, and `Requires-Dist` on the index.
MISSED: tuple[tuple[str, str | None], ...] = (
    ("flash-attn-3 2.9.1+cu128 3.12 linux 9.0", "v0.8.2/flash_attn_3-3.0.0%2Bcu128torch2.9gite2743ab-cp39-abi3-linux"),
    ("flash_attn_3 2.9.1+cu128 3.12 linux 8.9", None),
    ("flash-attn 2.4.1+cu124 3.11 windows 8.6", "v0.3.9/flash_attn-2.6.3%2Bcu124torch2.4-cp311-cp311-win_amd64.whl"),
    ("triton-windows 2.14.0+cu130 3.12 windows 8.6", "triton-windows>=3.8,<3.9"),
    ("gptqmodel 2.8.0+cu128 3.12 linux 8.6", "v5.8.0/gptqmodel-5.8.0%2Bcu128torch2.8-cp312-cp312-linux_x86_64.whl"),
    ("pytorch3d 2.4.1+cu121 3.10 linux 8.6", _P3D),
    ("k2 2.8.0+cu128 3.12 linux 8.6", "k2==1.24.4.dev20250807+cuda12.8.torch2.8.0"),
    ("nvidia-dali 2.8.0+cu128 3.12 linux 8.6", "nvidia-dali-cuda120==2.4.0"),
    ("nvidia-dali 2.9.0+cu130 3.12 linux 8.6", "nvidia-dali-cuda130==2.4.0"),
    ("sglang 2.9.1+cu128 3.12 linux 9.0", "sglang==0.5.10"),
    ("fbgemm-gpu 2.8.0+cu128 3.12 linux 8.0", "fbgemm-gpu==1.3.0"),
    ("transformer-engine 2.8.0+cu128 3.12 linux 9.0", "transformer-engine[core-cu12,pytorch]==2.20.2"),
    ("xformers 2.7.0+cu126 3.12 linux 6.1", "xformers==0.0.30"),
    (
        "torch-tensorrt 2.10.0+cu128 3.12 linux 8.6",
        "torch-tensorrt==2.10.0 --extra-index-url https://download.pytorch.org/whl/cu128",
    ),
)


@pytest.mark.parametrize(("text", "label"), MISSED)
def test_what_was_missed(text: str, label: str | None) -> None:
    found = _offline(text)
    assert (label in str(found.command)) if label else (found.wheels == () and found.exit_code == 5)


# A second round, labelled before the finder was asked: from `Requires-Dist` of the wheels on the index, the lists of
# nunchaku's and mjun0812's releases, and bitsandbytes' own table. The command has one of these in it.
MORE: tuple[tuple[str, str | None], ...] = (
    ("xformers 2.5.1+cu124 3.12 linux 8.6", "xformers==0.0.29.post1|xformers==0.0.28.post3"),
    ("xformers 2.6.0+cu124 3.12 linux 8.6", "xformers==0.0.29.post3"),
    ("xformers 2.7.0+cu126 3.12 linux 8.6", "xformers==0.0.30"),
    ("xformers 2.7.1+cu126 3.12 linux 8.6", "xformers==0.0.31.post1"),
    ("xformers 2.9.1+cu128 3.12 linux 8.6", "xformers==0.0.33.post2"),
    ("xformers 2.10.0+cu128 3.12 linux 8.6", "xformers==0.0.35|xformers==0.0.34"),
    ("xformers 2.10.0+cu128 3.12 windows 8.9", "xformers==0.0.35|xformers==0.0.34"),
    ("xformers 2.9.1+cu128 3.12 windows 8.9", "xformers==0.0.33.post2"),
    ("xformers 2.11.0+cu130 3.12 linux 9.0", "xformers==0.0.35"),
    ("vllm 2.6.0+cu124 3.12 linux 8.0", "vllm==0.8"),
    ("vllm 2.7.0+cu126 3.12 linux 8.0", "vllm==0.9"),
    ("vllm 2.7.1+cu126 3.12 linux 8.0", "vllm==0.10.1"),
    ("vllm 2.8.0+cu128 3.12 linux 8.0", "vllm==0.11.0"),
    ("vllm 2.9.1+cu128 3.12 linux 8.0", "vllm==0.16"),
    ("vllm 2.10.0+cu128 3.12 linux 8.0", "vllm==0.19"),
    ("vllm 2.10.0+cu128 3.12 linux 7.0", "vllm==0.19"),
    ("vllm 2.12.0+cu130 3.12 linux 8.0", None),
    ("vllm 2.13.0+cu130 3.12 linux 8.0", "vllm==0.32"),
    ("vllm 2.14.0+cu130 3.12 linux 8.0", "vllm==0.33"),
    ("vllm 2.8.0+cu128 3.12 windows 8.9", None),
    ("triton 2.9.1+cu128 3.12 linux 8.6", "triton>=3.5,<3.6"),
    ("triton 2.12.1+cu130 3.12 linux 8.6", "triton>=3.7,<3.8"),
    ("triton 2.14.0+cu130 3.12 linux 8.6", "triton>=3.8,<3.9"),
    ("triton 2.15.0+cu132 3.12 linux 8.6", "triton>=3.9,<3.10"),
    ("triton 2.11.0+cu126 3.12 linux 6.1", None),
    ("torchcodec 2.9.0+cu128 3.12 linux 8.6", "torchcodec==0.9"),
    ("torchcodec 2.10.0+cu128 3.12 linux 8.6", "torchcodec==0.10"),
    ("torchcodec 2.14.0+cu130 3.12 linux 8.6", "torchcodec==0.1"),
    ("torch-tensorrt 2.11.0+cu130 3.12 linux 9.0", "torch-tensorrt==2.11"),
    ("torchvision 2.9.1+cu128 3.12 linux 8.6", "torchvision==0.24.1"),
    (
        "torchvision 2.10.0+cu126 3.12 linux 6.1",
        "torchvision==0.25.0 --index-url https://download.pytorch.org/whl/cu126",
    ),
    ("bitsandbytes 2.11.0+cu130 3.12 windows 8.9", "bitsandbytes"),
    ("bitsandbytes 2.8.0+cu128 3.12 windows 6.1", None),
    ("nunchaku 2.8.0+cu128 3.12 linux 8.9", "torch2.8-cp312-cp312-linux_x86_64.whl"),
    ("nunchaku 2.9.1+cu128 3.13 windows 8.9", "torch2.9-cp313-cp313-win_amd64.whl"),
    ("nunchaku 2.8.0+cu128 3.12 linux 6.1", None),
    ("flash-attn 2.9.1+cu126 3.10 linux 8.6", f"{_MJUN}v0.9.0/flash_attn-2.8.3%2Bcu126torch2.9-cp310-cp310-linux"),
    ("flash-attn 2.8.0+cu129 3.10 linux 8.6", f"{_FLASH}cu12torch2.8cxx11abiTRUE-cp310-cp310-linux_x86_64.whl"),
    ("flash-attn 2.9.0+cu124 3.10 linux 8.0", f"{_MJUN}v0.5.4/flash_attn-2.8.3%2Bcu124torch2.9-cp310-cp310-linux"),
    ("flash-attn 2.15.0+cu132 3.12 linux 9.0", None),
)


# A third and a fourth round, labelled first from the projects' own pages, matrices and lists (kaolin, NATTEN, gsplat,
# exllamav3, triton-windows, SageAttention, mamba, bitsandbytes, xformers, mjun0812). A sixth word is the processor.
LATER: tuple[tuple[str, str | None], ...] = (
    ("kaolin 2.8.0+cu128 3.12 linux 8.6", "torch-2.8.0_cu128.html"),
    ("kaolin 2.5.1+cu124 3.10 windows 8.6", "torch-2.5.1_cu124.html"),
    ("kaolin 2.6.0+cu126 3.11 linux 7.5", "torch-2.6.0_cu126.html"),
    ("kaolin 2.10.0+cu128 3.12 linux 8.9", None),
    ("kaolin 2.7.1+cu128 3.12 linux 12.0", "torch-2.7.1_cu128.html"),
    ("natten 2.12.0+cu130 3.12 linux 9.0", "natten==0.21.6+torch2120cu130"),
    ("natten 2.11.0+cu128 3.12 linux 8.9", "natten==0.21.6+torch2110cu128"),
    ("natten 2.10.0+cu126 3.11 linux 8.6", "natten==0.21.6+torch2100cu126"),
    ("natten 2.11.0+cu130 3.12 windows 8.9", None),
    ("gsplat 2.4.0+cu121 3.10 linux 8.6", "docs.gsplat.studio/whl"),
    ("gsplat 2.0.1+cu118 3.10 windows 8.6", "docs.gsplat.studio/whl"),
    ("gsplat 2.9.1+cu128 3.12 linux 8.9", "cuda-wheels/cu128/torch2.9/gsplat"),
    ("exllamav3 2.9.1+cu128 3.13 windows 8.9", "exllamav3-1.4.1%2Bcu128.torch2.9.0-cp313-cp313-win_amd64.whl"),
    ("exllamav3 2.11.0+cu132 3.12 linux 12.0", "exllamav3-1.4.1%2Bcu132.torch2.11.0-cp312-cp312-linux_x86_64.whl"),
    ("exllamav3 2.11.0+cu128 3.11 linux 8.6", None),
    ("exllamav3 2.8.0+cu128 3.12 linux 7.5", None),
    ("triton 2.12.0+cu130 3.12 windows 8.9", "triton-windows>=3.7,<3.8"),
    ("triton 2.11.0+cu130 3.13 windows 12.0", "triton-windows>=3.6,<3.7"),
    ("triton 2.8.0+cu126 3.12 windows 6.1", None),
    ("sageattention 2.11.0+cu130 3.12 windows 8.9", "woct0rdho"),
    ("sageattention 2.8.0+cu129 3.12 windows 8.9", "woct0rdho"),
    ("sageattention 2.9.1+cu128 3.12 linux 7.5", None),
    ("mamba-ssm 2.9.1+cu128 3.12 linux 8.6", "cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64"),
    ("mamba-ssm 2.6.0+cu118 3.10 linux 8.6", "cu11torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64"),
    ("mamba-ssm 2.12.0+cu130 3.12 linux 9.0", None),
    ("nunchaku 2.8.0+cu126 3.11 linux 7.5", "torch2.8-cp311-cp311-linux_x86_64"),
    ("nunchaku 2.13.0+cu130 3.12 linux 8.9", None),
    ("autoawq-kernels 2.4.1+cu124 3.11 linux 7.0", None),
    ("spconv 2.5.1+cu124 3.12 windows 8.6", "spconv-cu124"),
    ("spconv 2.3.1+cu118 3.10 linux 6.1", "spconv-cu118"),
    ("spconv 2.8.0+cu128 3.14 linux 8.6", None),
    (
        "flash-attn 2.9.1+cu128 3.12 linux 9.0 aarch64",
        "v0.7.16/flash_attn-2.8.3%2Bcu128torch2.9-cp312-cp312-linux_aarch64",
    ),
    (
        "flash-attn 2.12.0+cu130 3.13 linux 9.0 aarch64",
        "v0.9.22/flash_attn-2.8.3%2Bcu130torch2.12-cp313-cp313-linux_aarch64",
    ),
    ("flash-attn 2.8.0+cu128 3.12 linux 9.0 aarch64", None),
    ("xformers 2.8.0+cu128 3.12 linux 6.1", None),
    ("bitsandbytes 2.1.2+cu118 3.10 windows 6.1", "bitsandbytes==0.45.5"),
    ("llama-cpp-python 2.5.1+cu125 3.12 windows 8.6", "llama-cpp-python/whl/cu124"),
    ("vllm 2.7.1+cu126 3.12 linux 6.1", "vllm-pascal==0.10.0"),
    ("torch-scatter 2.12.0+cu130 3.12 linux 8.9", "data.pyg.org/whl/torch-2.12.0+cu130.html"),
    ("dgl 2.4.0+cu124 3.11 linux 8.6", "data.dgl.ai/wheels/torch-2.4/cu124"),
    ("flash-attn 2.9.0+cu130 3.12 windows 12.0", "v0.9.28/flash_attn-2.8.3%2Bcu130torch2.9-cp312-cp312-win_amd64.whl"),
    ("flash-attn 2.11.0+cu128 3.14 windows 8.9", "v0.9.6/flash_attn-2.8.3%2Bcu128torch2.11-cp314-cp314-win_amd64.whl"),
    ("flash-attn 2.13.0+cu130 3.13 windows 8.9", "v0.9.52/flash_attn-2.8.3%2Bcu130torch2.13-cp313-cp313-win_amd64.whl"),
    (
        "flash-attn 2.12.0+cu132 3.14 linux 9.0",
        "v0.9.17/flash_attn-2.8.3%2Bcu132torch2.12-cp314-cp314-linux_x86_64.whl",
    ),
    ("flash-attn 2.13.0+cu130 3.12 linux 8.9", "v0.9.47/flash_attn-2.8.3%2Bcu130torch2.13-cp312-cp312"),
    ("exllamav2 2.9.0+cu128 3.12 windows 6.1", "exllamav2-0.3.2%2Bcu128.torch2.9.0-cp312-cp312-win_amd64.whl"),
    ("exllamav2 2.9.1+cu130 3.12 linux 8.9", None),
    ("causal-conv1d 2.10.0+cu130 3.13 linux 9.0", "cu13torch2.10cxx11abiTRUE-cp313-cp313-linux_x86_64.whl"),
    ("causal-conv1d 2.8.0+cu128 3.9 linux 8.6", None),
    ("bitsandbytes 2.9.1+cu130 3.12 linux 7.0", None),
    # The project's page says 5.0; its wheel 0.50.2 has code from 6.0 on, and a library for CUDA 13.2.
    ("bitsandbytes 2.6.0+cu124 3.11 windows 5.2", "bitsandbytes==0.47.0"),
    ("bitsandbytes 2.15.0+cu132 3.13 windows 12.0", "bitsandbytes==0.50.2"),
    ("bitsandbytes 2.8.0+cu129 3.12 linux 8.6", "bitsandbytes==0.50.2"),
    ("xformers 2.7.0+cu126 3.12 linux 6.1", "xformers==0.0.30"),
    ("xformers 2.5.1+cu124 3.12 windows 6.1", "xformers==0.0.28.post3|xformers==0.0.29.post1"),
    ("torch-cluster 2.5.1+cu124 3.11 linux 6.1", "data.pyg.org/whl/torch-2.5.0+cu124.html"),
    (
        "pyg-lib 2.13.0+cu126 3.12 linux 6.1",
        "pyg-lib==0.8.0 --only-binary pyg-lib -f https://data.pyg.org/whl/torch-2.13.0+cu126.html",
    ),
    ("pytorch3d 2.11.0+cu130 3.14 windows 8.9", "cuda-wheels/cu130/torch2.11/pytorch3d"),
    ("detectron2 1.10.0+cu113 3.9 linux 7.5", "detectron2/wheels/cu113/torch1.10"),
    ("mmcv 2.1.0+cu121 3.10 linux 8.6", "download.openmmlab.com/mmcv/dist/cu121/torch2.1.0"),
    ("tinycudann 2.8.0+cu128 3.12 linux 8.9", None),
    ("sageattention 2.10.0+cu130 3.14 windows 12.0", "woct0rdho"),
    # Where somebody who had not seen it found a wrong answer.
    ("bitsandbytes 2.8.0+cu126 3.11 linux 5.2", "bitsandbytes==0.47.0"),
    ("torchcodec 2.9.1+cu128 3.13 linux 8.9", "https://download.pytorch.org/whl/cu128"),
    ("spconv 2.8.0+cu128 3.13 linux 12.0", "spconv-cu126==2.3.8"),
    ("torch-scatter 2.12.0+cu132 3.13 linux 8.9", "https://data.pyg.org/whl/torch-2.12.0+cu132.html"),
    ("torch-scatter 2.12.0+cu132 3.13 windows 8.9", "cuda-wheels/cu132/torch2.12/torch-scatter"),
)


def _question(text: str) -> ExtensionQuestion:
    package, torch, python, system, card, *machine = text.split(" ")
    release, _, line = torch.partition("+")
    cards = (NamedCard(name="the card", capability=Capability.parse(card)),)
    return ExtensionQuestion(
        package=package,
        torch=release,
        line=line,
        python=python,
        platform=Platform(system, (*machine, "x86_64")[0]),
        cards=cards,
    )


def _no_index(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
    return IndexAnswer(place=None, reached=False)


def _unread(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
    return LookedInto(State.UNVERIFIED, "the file could not be read from here")


def _offline(text: str) -> FoundExtension:
    return find(_question(text), ask=_no_index, look=_unread)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("--os", "alpine"), "C library is musl"),
        (("--os", "centos7"), "torch 2.8.0+cu128 needs glibc 2.28 or newer; this system has 2.17"),
        (("--os", "windows 7"), "this is Windows 7"),
        (("--os", "windows", "--arch", "aarch64"), "this is Windows on ARM"),
        (("--gpu", "Jetson AGX Orin"), "a Jetson runs NVIDIA's wheels for its JetPack"),
    ],
)
def test_a_place_that_no_wheel_is_for_is_told_so(place: tuple[str, ...], said: str) -> None:
    """As `plan` tells it; a wheel for another C library or processor was proposed."""
    words = ("extension", "find", "flash-attn", "--torch", "2.8.0+cu128", "--python", "3.12")
    card = () if "--gpu" in place else ("--gpu", "RTX 3090")
    seen = rekindle_command(*words, *card, *place)
    assert (seen.code, said in " ".join(seen.out.split())) == (5, True), seen.out + seen.err


def test_the_glibc_of_a_file_is_held_against_the_system() -> None:
    place = situation_from_options(["RTX 3090"], system="centos7")
    asked = msgspec.structs.replace(_question("xformers 2.4.0+cu121 3.11 linux 8.6"), place=place)
    told = IndexAnswer(place="https://x/xformers-0.0.27.post2-cp311-cp311-manylinux_2_28_x86_64.whl", reached=True)
    found = find(asked, ask=lambda *_: told, look=_unread)
    assert not found.wheels
    assert any("needs glibc 2.28 or newer; this system has 2.17" in each for each in found.refused)


@pytest.mark.parametrize(("text", "expected"), LABELLED)
def test_the_labelled_questions(text: str, expected: str | None) -> None:
    found = _offline(text)
    if expected is None:
        assert (found.wheels, found.exit_code) == ((), 5)
        assert found.refused
    else:
        assert any(word.endswith(expected) for word in found.wheels[0].command.words)
        read = text.startswith("bitsandbytes 2.")
        assert (found.wheels[0].state, found.exit_code) == ((State.PASS, 0) if read else (State.UNVERIFIED, 9))
        assert found.command == found.wheels[0].command


@pytest.mark.parametrize(("text", "expected"), (*MORE, *LATER))
def test_the_second_round_of_labelled_questions(text: str, expected: str | None) -> None:
    """Never a wrong file; where the label names none, none is proposed."""
    found = _offline(text)
    if expected is None:
        assert (found.wheels, found.exit_code) == ((), 5)
    else:
        assert any(each in str(found.wheels[0].command) for each in expected.split("|"))
        assert found.exit_code == (0 if text.startswith("bitsandbytes 2.") else 9)


def test_a_card_without_any_code_is_told_what_to_use_instead() -> None:
    found = _offline("flash-attn 2.8.0+cu126 3.12 linux 6.1")
    assert found.command is None
    assert "begins with 8.0" in found.refused[0]
    assert found.instead is not None and "scaled_dot_product_attention" in found.instead


def test_a_line_with_code_for_the_card_is_named() -> None:
    found = _offline("bitsandbytes 2.8.0+cu128 3.11 linux 6.1")
    assert any(each.endswith("with torch 2.8.0+cu126") for each in found.refused)


def test_without_a_wheel_the_build_is_next_with_its_cost() -> None:
    found = _offline("xformers 2.7.1+cu118 3.11 windows 6.1")
    assert found.command is not None and found.command.words[:4] == ("rekindle", "extension", "build", "xformers")
    assert found.build_cost
    assert "2.7.1+cu126" in found.refused[0]


def test_what_was_looked_into_and_fits_is_found() -> None:
    def look(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
        return LookedInto(State.PASS, "it has code for sm_90")

    found = find(_question("flash-attn 2.8.0+cu128 3.12 linux 9.0"), ask=_no_index, look=look)
    assert [wheel.state for wheel in found.wheels] == [State.PASS]
    assert found.exit_code == 0


def test_a_file_that_lies_about_its_code_is_refused_for_the_next() -> None:
    def look(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
        bad = "Dao-AILab" in str(place)
        return LookedInto(State.FAIL, "does not serve sm_90") if bad else LookedInto(State.UNVERIFIED, "not read")

    found = find(_question("flash-attn 2.8.0+cu128 3.12 linux 9.0"), ask=_no_index, look=look)
    assert [wheel.by for wheel in found.wheels] == ["built by mjun0812"]
    assert "does not serve sm_90" in found.refused[0]


def test_a_release_without_code_for_the_card_is_not_proposed_from_another_place() -> None:
    """xformers of the index and of PyTorch's own index are one build."""

    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        return IndexAnswer(place=None if switch else "https://index/xformers-0.0.32.post2.whl", reached=not switch)

    def look(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
        return LookedInto(State.FAIL, "does not serve sm_61")

    found = find(_question("xformers 2.8.0+cu128 3.12 linux 6.1"), ask=ask, look=look)
    assert (found.wheels, found.exit_code) == ((), 5)


def test_which_torch_an_unknown_package_is_for_is_not_claimed() -> None:
    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        return IndexAnswer(place="https://index/some_ext-1.0-cp312-cp312-linux_x86_64.whl", reached=True)

    def look(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
        return LookedInto(State.PASS, "it has code for sm_90")

    found = find(_question("some-ext 2.8.0+cu128 3.12 linux 9.0"), ask=ask, look=look)
    assert (found.wheels[0].state, found.exit_code) == (State.UNVERIFIED, 9)


@pytest.mark.parametrize(
    ("question", "file"),
    [
        ("flash-attn 1.13.1+cu117 3.10 linux 8.0", "flash_attn-2.5.9.post1+cu118torch1.13cxx11abiFALSE-cp310"),
        ("flash-attn 2.0.1+cu117 3.8 linux 8.0", "flash_attn-2.6.3+cu118torch2.0cxx11abiFALSE-cp38"),
        ("flash-attn 2.1.2+cu121 3.8 linux 8.0", "flash_attn-2.6.3+cu123torch2.1cxx11abiFALSE-cp38"),
        ("flash-attn 2.1.2+cu121 3.10 linux 8.0", "flash_attn-2.7.3+cu12torch2.1cxx11abiFALSE-cp310"),
        ("flash-attn 2.3.1+cu118 3.12 linux 8.0", "flash_attn-2.7.3+cu11torch2.3cxx11abiFALSE-cp312"),
        ("flash-attn 2.3.1+cu121 3.12 linux 8.0", "flash_attn-2.7.4.post1+cu12torch2.3cxx11abiFALSE-cp312"),
        ("flash-attn 2.7.1+cu118 3.10 linux 8.0", "flash_attn-2.7.4.post1+cu118torch2.7-cp310"),
        ("causal-conv1d 2.5.1+cu118 3.9 linux 8.0", "causal_conv1d-1.5.4+cu11torch2.5cxx11abiFALSE-cp39"),
        ("causal-conv1d 2.0.1+cu118 3.10 linux 8.0", "causal_conv1d-1.4.0+cu118torch2.0cxx11abiFALSE-cp310"),
        ("mamba-ssm 2.4.1+cu121 3.9 linux 8.0", "mamba_ssm-2.3.0+cu12torch2.4cxx11abiFALSE-cp39"),
        ("mamba-ssm 2.2.2+cu121 3.8 linux 8.0", "mamba_ssm-2.2.2+cu122torch2.2cxx11abiFALSE-cp38"),
    ],
)
def test_last_years_torch_has_the_last_release_that_was_built_for_it(question: str, file: str) -> None:
    """Every release of a list is in its row: not only the newest."""
    found = find(_question(question), ask=_no_index, look=_unread)
    assert found.wheels[0].what.startswith(f"{file}-")


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("xformers 2.3.1+cu118 3.10 linux 6.0", "xformers==0.0.27 --index-url https://download.pytorch.org/whl/cu118"),
        ("xformers 2.5.1+cu121 3.11 windows 6.1", "0.0.29.post1 --index-url https://download.pytorch.org/whl/cu124"),
        ("flash-attn 2.4.1+cu121 3.11 windows 8.6", "flash_attn-2.6.3%2Bcu124torch2.4-cp311"),
        ("nunchaku 2.9.1+cu130 3.13 linux 12.0", "nunchaku-1.2.1%2Bcu13.0torch2.9-cp313"),
        ("nunchaku 2.6.0+cu124 3.11 windows 8.6", "nunchaku-1.0.1%2Btorch2.6-cp311"),
        ("mmcv 2.0.1+cu118 3.10 windows 7.5", "mmcv==2.2.0 --only-binary mmcv -f https://download.openmmlab.com"),
        ("kaolin 2.2.1+cu121 3.10 linux 8.6", "kaolin==0.17.0 -f https://nvidia-kaolin.s3.us-east-2.amazonaws.com"),
        ("natten 2.6.0+cu126 3.11 linux 8.0", "natten==0.17.5+torch260cu126"),
        ("dgl 2.4.0+cu124 3.11 linux 8.6", "dgl==2.4.0 -f https://data.dgl.ai/wheels/torch-2.4/cu124/repo.html"),
        ("k2 2.6.0+cu124 3.11 linux 8.6", "k2==1.24.4.dev20250715+cuda12.4.torch2.6.0"),
        ("auto-gptq 2.1.2+cu118 3.10 linux 8.6", "auto-gptq==0.6.0 --extra-index-url"),
        ("sageattention 2.10.0+cu130 3.13 windows 12.0", "cu130torch2.10.0andhigher.post6-cp310-abi3-win_amd64.whl"),
        ("sageattention 2.5.1+cu124 3.11 windows 8.6", "triton-windows>=3.1,<3.2"),
        ("pyg-lib 2.6.0+cu124 3.11 windows 8.6", "pyg-lib==0.5.0"),
        ("triton 2.2.2+cu121 3.10 linux 8.0", "triton==2.2.0"),
        ("torchcodec 2.9.1+cu128 3.13 windows 8.6", "torchcodec==0.9.*"),
    ],
)
def test_the_matrix_of_each_list(question: str, line: str) -> None:
    """What two rounds of questions found missing; a file of another line of the same CUDA major is said to be one."""
    found = find(_question(question), ask=_no_index, look=_unread)
    assert line in str(found.command)
    other = "within one CUDA major the runtimes are compatible" in found.wheels[0].why
    assert other == ("+cu121 3.11 windows" in question)


def test_a_list_that_cannot_be_read_gives_no_line_without_a_release() -> None:
    found = find(_question("torch-scatter 1.13.1+cu117 3.10 linux 8.0"), ask=_no_index, look=_unread)
    assert "--only-binary" in str(found.command)
    found = find(_question("dgl 2.1.2+cu121 3.10 linux 8.0"), ask=_no_index, look=_unread)
    assert (found.command, found.exit_code) == (None, 9)
    assert "data.dgl.ai" in found.wheels[0].why and "which release" in found.wheels[0].why


def test_a_project_without_wheels_for_windows_has_none_in_a_file_for_every_system() -> None:
    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        return IndexAnswer(place="https://index/transformer_engine-2.20.2-py3-none-any.whl", reached=True)

    found = find(_question("transformer-engine 2.9.1+cu128 3.12 windows 8.9"), ask=ask, look=_unread)
    assert (found.wheels, found.command, found.exit_code) == ((), None, 5)
    assert "Windows" in " ".join(found.refused)


def test_a_large_file_is_judged_by_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's 400 MB were fetched twice for one answer."""
    monkeypatch.setattr(looking.fetch, "content_length", lambda _: 400 << 20)
    monkeypatch.setattr(looking, "served_by", lambda *_: pytest.fail("its code was read"))
    monkeypatch.setattr(looking, "link_to", lambda *_, most: TorchLink(None, pinned=most == 8 << 20))
    seen = looking.look_into("https://index/vllm.whl", _question("vllm 2.10.0+cu128 3.12 linux 8.6"), False)
    assert (seen.state, seen.bound) == (State.UNVERIFIED, True)
    assert "400 MiB" in seen.said
    seen = looking.look_into("https://index/vllm.whl", _question("vllm 2.5.1+cu118 3.12 linux 8.6"), False)
    assert (seen.state, seen.said.endswith("for cu124")) == (State.FAIL, True)


def test_a_release_for_another_torch_is_refused_for_that_reason() -> None:
    """triton-windows for torch 2.15 was refused for GPU code of a helper in it."""

    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        return IndexAnswer(place="https://index/triton_windows-3.8.0.post29-cp312-cp312-win_amd64.whl", reached=True)

    found = find(_question("triton-windows 2.15.0+cu130 3.12 windows 8.6"), ask=ask, look=_unread)
    assert found.wheels == () and "on the index is for torch 2.14" in found.refused[0]
    found = find(_question("sageattention 2.15.0+cu130 3.12 windows 8.6"), ask=_no_index, look=_unread)
    assert found.wheels == () and "no ready-made wheel of triton-windows is known" in " ".join(found.refused)


def test_every_pattern_says_no_other_torch_than_its_row() -> None:
    """Each name that the table can make is judged by its own words: none is refused, none says another CUDA."""
    made = 0
    for row in extension_files._each():
        for build in row.builds if row.name else ():
            torch, line = row.parts(build)
            assert torch is not None and line is not None
            full = line if len(line) > 4 else f"{line}8"
            question = ExtensionQuestion(
                package=row.package, torch=str(torch), line=full, python=row.pythons[0],
                platform=Platform(row.systems[0], row.machines[0]),
            )  # fmt: skip
            assert extension_file.file_address(row, question.asked) is not None, (row.id, build)
            made += 1
    assert made > 100


def test_the_verb_answers_by_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "_ask", _no_index)
    monkeypatch.setattr(find_module, "look_into", _unread)
    words = ("--torch", "2.8.0+cu128", "--python", "3.12", "--os", "linux", "--gpu", "RTX 4090")
    seen = rekindle_command("extension", "find", "flash-attn", *words, "--json")
    assert seen.code == 9
    assert seen.json()["wheels"][0]["what"].endswith("cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")
    text = rekindle_command("extension", "find", "flash_attn", *words)
    heading, command = text.out.split("\n\n")[:2]
    assert command.startswith("  pip install https://") and max(map(len, heading.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cuda", "12.8"), "needs `--torch`"),
        (("--torch", "2.8.0+cu128", "--env", "."), "cannot be combined with"),
    ],
)
def test_half_a_question_is_refused(words: tuple[str, ...], said: str) -> None:
    seen = rekindle_command("extension", "find", "xformers", *words)
    assert seen.code == 2
    assert said in seen.err


def test_cards_and_a_system_mean_the_torch_that_plan_takes() -> None:
    """Somebody else's card: which torch goes with it is what they do not know."""
    words = ("--gpu", "RTX 5090", "--os", "windows", "--python", "3.13")
    planned = rekindle_command("plan", *words, "--with", "flash-attn", "--json").json()["recommended"]
    answer = rekindle_command("extension", "find", "flash-attn", *words, "--json").json()
    assert f"{answer['torch']}+{answer['cuda']}" == f"{planned['torch']}+{planned['variant']}"
    assert answer["python"] == "3.13" and "--python 3.13 --with flash-attn`" in answer["note"]
    named = rekindle_command("extension", "find", "flash-attn", "--torch", planned["torch"], *words, "--json").json()
    assert named["cuda"] == planned["variant"]


def test_what_its_files_are_for_is_said_once_and_of_this_torch_alone() -> None:
    said = _offline("bitsandbytes 2.15.0+cu140 3.12 linux 9.0").refused[0]
    assert "2.4+cu118 and later, 2.4+cu121 and later" in said and said.count("2.4+cu128") == 1
    assert "2.1.0" not in _offline("flash-attn 2.10.0+cu118 3.12 linux 9.0").refused[0]


def test_the_cuda_that_is_not_said_is_the_one_pip_brings() -> None:
    words = ("--torch", "2.8.0", "--python", "3.12", "--os", "linux", "--gpu", "sm_35", "--json")
    answer = rekindle_command("extension", "find", "flash-attn", *words).json()
    assert answer["cuda"] == "cu128"
    assert "was not said" in answer["note"]


def test_a_torch_without_cuda_is_no_question_for_a_wheel(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.8.0+cpu'\ncuda = None\n", encoding="utf-8")
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.4\n", encoding="utf-8")
    seen = rekindle_command("extension", "find", "xformers", "--env", str(tmp_path), "--gpu", "sm_86")
    assert "without CUDA" in seen.err
    assert seen.code == 14


@pytest.mark.parametrize(
    ("abi", "said"), [("cxx11", "cxx11abiTRUE"), ("pre-cxx11", "cxx11abiFALSE"), (None, "cxx11abiFALSE")]
)
def test_the_abi_of_the_torch_that_is_there_counts(abi: str | None, said: str) -> None:
    """conda-forge's torch 2.5 has the newer one, PyTorch's own wheel the older."""
    question = msgspec.structs.replace(_question("flash-attn 2.5.1+cu124 3.12 linux 8.6"), cxx_abi=abi)
    assert said in find(question, ask=_no_index, look=_unread).wheels[0].what


@pytest.mark.parametrize(("pure", "state"), [(True, State.PASS), (False, State.FAIL)])
def test_code_that_a_compiler_brings_along_is_not_what_runs(
    pure: bool, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """triton-windows has GPU code in a helper, and none for the card that it compiles for."""
    monkeypatch.setattr(looking, "_large", lambda _: None)
    monkeypatch.setattr(looking, "served_by", lambda *_: ServedCards({"sm_80": 1}, ["does not serve"], False))
    monkeypatch.setattr(looking, "link_to", lambda *_, **__: TorchLink(None, compiled=True))
    question = _question("triton 2.6.0+cu126 3.11 windows 7.5")
    assert find_module.look_into("https://index/triton.whl", question, pure).state is state


def test_torch_itself_is_a_question_for_plan() -> None:
    seen = rekindle_command("extension", "find", "torch", "--torch", "2.8.0")
    assert (seen.code, "rekindle plan" in seen.err) == (2, True)


def test_the_torch_of_an_environment_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "_ask", _no_index)
    monkeypatch.setattr(find_module, "look_into", _unread)
    monkeypatch.setattr("rekindle.core.paths.architecture", lambda: "x86_64")
    site = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.8.0+cu128'\ncuda = '12.8'\n", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.12.4\n", encoding="utf-8")
    where = str(tmp_path / "env")
    answer = rekindle_command("extension", "find", "xformers", "--env", where, "--gpu", "sm_86", "--json").json()
    assert (answer["torch"], answer["cuda"], answer["python"]) == ("2.8.0", "cu128", "3.12")
    assert "xformers==0.0.32.post2" in answer["wheels"][0]["command"]


def test_a_question_without_a_card_never_passes(tmp_path: Path) -> None:
    question = msgspec.structs.replace(_question("some-ext 2.8.0+cu128 3.12 linux 9.0"), cards=())
    missing = find_module.look_into(tmp_path / "missing.whl", question, False)
    assert missing.state is State.UNVERIFIED
    assert missing.said.startswith("its GPU code was not looked at, for the file could not be read: no such file")


def _seen(folder: Path, libraries: Mapping[str, tuple[tuple[str | bytes, ...], ...]], metadata: str = "") -> Path:
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    folder.mkdir(exist_ok=True)
    return torch_like.wheel(folder, libraries=libraries, version="1.0", tag=tag, project="some_ext", metadata=metadata)


def _at(place: Path) -> find_module.Asker:
    return lambda requirement, switch, question: IndexAnswer(place=place, reached=True)


def test_a_wheel_that_requires_another_torch_is_refused_for_that(tmp_path: Path) -> None:
    wheel = _seen(tmp_path, {"some_ext/code.so": (("sm_90",),)}, "Requires-Dist: torch==2.14.0\n")
    found = find(_question("some-ext 2.8.0+cu128 3.12 linux 9.0"), ask=_at(wheel))
    assert found.wheels == ()
    assert "it requires `torch==2.14.0`, and this is 2.8.0" in found.refused[0]


def test_what_is_not_linked_to_torch_does_not_say_which_torch_it_is_for(tmp_path: Path) -> None:
    """triton 3.9 was proposed for a torch that pins 3.6: nothing in it speaks of torch."""
    wheel = _seen(tmp_path / "wheel", {"some_ext/code.so": (("sm_90",),)})
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    installed = InstalledTorch(version="2.8.0+cu128", cuda=Version("12.8"), root=str(tmp_path / "torch"))
    question = msgspec.structs.replace(_question("some-ext 2.8.0+cu128 3.12 linux 9.0"), installed=installed)
    found = find(question, ask=_at(wheel))
    assert [each.state for each in found.wheels] == [State.UNVERIFIED]


def test_nothing_compiled_is_no_lack_of_gpu_code(tmp_path: Path) -> None:
    found = find(_question("some-ext 2.8.0+cu128 3.12 linux 9.0"), ask=_at(_seen(tmp_path, {})))
    assert (found.wheels[0].state, "no compiled library" in found.wheels[0].why) == (State.UNVERIFIED, True)


def test_of_a_library_for_each_cuda_only_that_of_torch_is_held_against_it() -> None:
    names = ["x/libx_cuda118.so", "x/libx_cuda128.so", "x/helper.so"]
    assert check._for_line(names, Version("12.8")) == ["x/libx_cuda128.so", "x/helper.so"]
    assert check._for_line(names[:1], Version("12.8")) == names[:1]


def test_a_machine_that_no_row_is_for_is_asked_on_the_index() -> None:
    question = msgspec.structs.replace(
        _question("xformers 2.8.0+cu128 3.12 linux 9.0"), platform=Platform("linux", "aarch64")
    )
    asked: list[str] = []

    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        asked.append(requirement)
        return IndexAnswer(place=None, reached=True)

    found = find(question, ask=ask, look=_unread)
    assert (found.wheels, asked) == ((), ["xformers==0.0.32.post2"])
    assert not any("only" in said for said in found.refused)


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("triton 2.11.0+cu130 3.12 linux 9.0", "triton>=3.6,<3.7"),
        ("vllm 2.11.0+cu130 3.12 linux 9.0", "vllm==0.26.*"),
        ("torchcodec 2.12.0+cu130 3.12 linux 9.0", "torchcodec==0.17.*"),
        ("torchvision 2.11.0+cu130 3.12 linux 9.0", "torchvision==0.26.0"),
    ],
)
def test_the_release_that_belongs_to_a_torch_is_asked_for(text: str, requirement: str) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        asked.append((requirement, *switch))
        return IndexAnswer(place=None, reached=False)

    assert find(_question(text), ask=ask, look=_unread).exit_code == 9
    assert asked[0] == (requirement,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("triton 2.8.0+cu126 3.12 linux 6.1", "triton-pascal==3.4.0"),
        ("vllm 2.7.1+cu126 3.12 linux 6.1", "vllm-pascal==0.10.0"),
        ("torch-scatter 2.13.0+cu130 3.12 windows 8.9", "cuda-wheels/cu130/torch2.13/torch-scatter/"),
        ("llama-cpp-python 2.0.1+cu117 3.8 windows 6.1", "llama-cpp-python-cuBLAS-wheels/AVX2/cu117"),
        ("bitsandbytes 1.13.1+cu117 3.10 windows 6.1", "bitsandbytes==0.41.2.post2"),
    ],
)
def test_the_shelves_of_others_come_with_their_age_and_a_warning(text: str, said: str) -> None:
    found = _offline(text)
    assert said in str(found.command) and found.exit_code == 9
    assert found.wheels[0].observed_at and "look into it before you trust it" in found.wheels[0].why


def test_the_own_list_of_a_project_comes_before_a_shelf() -> None:
    found = _offline("torch-scatter 2.8.0+cu128 3.12 windows 8.6")
    assert ["data.pyg.org" in str(each.address) for each in found.wheels] == [True, False]


def test_a_list_that_was_read_and_has_no_wheel_is_not_proposed() -> None:
    """It was said that the list could not be read, and pip would have built from source."""
    found = find(_question("torch-scatter 2.8.0+cu128 3.14 linux 8.6"), ask=_empty_index, look=_unread)
    assert not found.wheels and any("at https://data.pyg.org" in each for each in found.refused)


def _empty_index(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
    return IndexAnswer(place=None, reached=True)


def test_an_old_system_is_not_offered_what_it_cannot_load() -> None:
    place = situation_from_options(["RTX 4090"], system="ubuntu 20.04")
    asked = msgspec.structs.replace(_question("nvdiffrast 2.8.0+cu128 3.12 linux 8.9"), place=place)
    found = find(asked, ask=_no_index, look=_unread)
    assert not found.wheels and any("glibc 2.34" in each for each in found.refused)


def test_an_environment_without_pip_is_asked_for_by_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was said that the index has no wheel, because the environment has no pip."""
    called: list[list[str]] = []
    monkeypatch.setattr("rekindle.core.run.call", lambda words, **more: called.append(words) or Result(args=(), code=1))
    there = Environment(
        root=str(tmp_path), os="linux", kind="venv", python=Version("3.12.1"), site_packages=(str(tmp_path),),
        interpreter="/there/python", has_headers=True, pip=None,
    )  # fmt: skip
    on_index("xformers", (), environment=there, python="3.12", place=LINUX)
    assert called[0][0] != "/there/python" and "--python-version" in called[0]


def test_not_known_and_none_differ() -> None:
    old = Capability(3, 5)
    assert isinstance(packages.runs_on("torch-scatter", None, old), Fits)
    assert isinstance(packages.runs_on("exllamav3", None, old), Clash)
    assert isinstance(packages.runs_on("torchao", None, old), Unknown)


@pytest.mark.parametrize("card", ["GTX 1060", "RTX 5090", "Tesla K80", "V100"])
@pytest.mark.parametrize("name", ["onnxruntime-gpu", "cupy", "cupy-cuda12x", "tensorrt", "jax"])
def test_what_is_bound_to_no_torch_is_what_plan_says_of_it(name: str, card: str) -> None:
    """It once took the newest on the index, and that has no code for the card."""
    place = situation_here(gpus=(card,), system="linux", machine="x86_64", python="3.11")
    asked = question.of(name, TorchNamed(torch="2.7.1+cu126", os="linux", arch="x86_64", python="3.11"), gpus=(card,))
    beside = BesideTorch("3.11", Version("12.6"))
    found, planned = find(asked, ask=_no_index, look=_unread), for_program(name, place, beside)
    assert [each.words for each in found.wheels] == ([planned.requirements] if planned.version else [])
    assert (found.exit_code == 0) == (planned.version is not None and planned.evidence.confirmed)
    assert name != "cupy-cuda12x" or all("12x" in word for each in found.wheels for word in each.words)


def test_python_beside_kernels_for_other_cards_is_not_refused() -> None:
    """torchao's libraries are for 9.0a and 10.0, and most of it is Python."""
    found = _offline("torchao 2.9.1+cu128 3.11 linux 8.6")
    assert found.wheels[0].words == ("torchao==0.15.0",)


@pytest.mark.parametrize(("name", "said"), [("llama-cpp-python", "whl/cu124"), ("onnxruntime-gpu", "onnxruntime-gpu")])
def test_what_needs_no_torch_is_found_where_there_is_none(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "here", lambda: snapshot.load(MACHINES / "mixed-linux.json"))
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("version = 3.11.7\n", encoding="utf-8")
    asked = question.of(name, TorchNamed(), place=tmp_path, gpus=("GTX 1060",))
    assert said in str(find(asked, ask=_no_index, look=_unread).command)
    with pytest.raises(NotFound, match="there is no torch in"):
        question.of("flash-attn", TorchNamed(), place=tmp_path, gpus=("GTX 1060",))


@pytest.mark.parametrize(("file", "words"), [("0.3.1.dev5", ()), ("0.16.5", (("deepspeed==0.16.5",),))])
def test_what_the_index_has_is_named_by_its_release_and_a_forerunner_is_no_answer(
    file: str, words: tuple[tuple[str, ...], ...]
) -> None:
    """pip took the one file that any Python may have, years old; the line printed would have built a newer one."""
    there = IndexAnswer(place=f"https://x.example/deepspeed-{file}-py3-none-any.whl", reached=True)
    free = LookedInto(State.UNVERIFIED, "it has no compiled library", free=True)
    found = find(_question("deepspeed 2.8.0+cu128 3.13 windows 8.9"), ask=lambda *_: there, look=lambda *_: free)
    assert tuple(each.words for each in found.wheels) == words
    assert bool(words) or any("but 0.3.1.dev5" in each for each in found.refused)


_ONNX = "onnxruntime-gpu[cuda,cudnn]=="


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("onnxruntime-gpu 2.8.0+cu128 3.12 linux 8.6", f"{_ONNX}1.26.0"),
        ("onnxruntime-gpu 2.8.0+cu128 3.10 linux 8.6", f"{_ONNX}1.23.2"),
        ("onnxruntime-gpu 2.9.0+cu130 3.12 windows 8.6", f"{_ONNX}1.31.1"),
        ("jax 2.11.0+cu130 3.12 linux 8.6", "jax[cuda13]==0.12.0.1"),
        ("jax 2.11.0+cu130 3.11 linux 8.6", "jax[cuda13]==0.9.2"),
        ("jax 2.11.0+cu130 3.10 linux 8.6", None),
        ("cupy 2.8.0+cu128 3.9 windows 8.6", "cupy-cuda12x==13.6.0"),
        ("cupy-cuda13x 2.9.0+cu130 3.9 linux 8.6", None),
    ],
)
def test_a_program_goes_with_the_cuda_and_the_python_of_the_torch_beside_it(text: str, words: str | None) -> None:
    """The newest was named, with another CUDA in it or without a file for that Python."""
    asked = _question(text)
    place = situation_here(gpus=("RTX 3090",), system=asked.system, machine="x86_64", python=asked.python)
    found = find(msgspec.structs.replace(asked, place=place), ask=_no_index, look=_unread)
    assert [word for each in found.wheels for word in each.words] == ([words] if words else [])
    assert words or "in an environment of its own: `rekindle plan --for" in (found.instead or "")


def _linked(folder: Path, *needed: str, metadata: str = "") -> Path:
    """A wheel for Windows with a module that imports these."""
    dll(folder / "code.pyd", imports=needed)
    info = "some_ext-1.0.dist-info"
    files = {
        "some_ext/code.pyd": (folder / "code.pyd").read_bytes(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: some-ext\nVersion: 1.0\n{metadata}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nTag: cp312-cp312-win_amd64\n",
    }
    return small_wheels.make(folder, files, name="some_ext-1.0-cp312-cp312-win_amd64.whl")


@pytest.mark.parametrize(("line", "fits"), [("cu128", True), ("cu118", False), ("cu130", False)])
def test_the_cuda_that_a_file_is_linked_to_is_that_of_torch(line: str, fits: bool, tmp_path: Path) -> None:
    """Only a torch that was installed was asked; one that was named was offered the runtime of another CUDA."""
    wheel = _linked(tmp_path, "c10.dll", "cudart64_12.dll", metadata="Requires-Dist: torch==2.7.0\n")
    found = find(_question(f"some-ext 2.7.0+{line} 3.12 windows 8.6"), ask=_at(wheel))
    assert bool(found.wheels) is fits
    assert fits or "code.pyd uses CUDA 12, and torch is built for CUDA" in found.refused[0]


@pytest.mark.parametrize(
    ("needed", "metadata", "line"),
    [
        (("c10.dll", "cudart64_12.dll"), "", False),
        (("c10.dll", "cudart64_12.dll"), "Requires-Dist: torch==2.7.0\n", True),
        (("cudart64_12.dll",), "", True),
    ],
)
def test_without_a_word_of_its_torch_there_is_no_line_to_install_it(
    needed: tuple[str, ...], metadata: str, line: bool, tmp_path: Path
) -> None:
    wheel = _linked(tmp_path, *needed, metadata=metadata)
    found = find(_question("some-ext 2.7.0+cu128 3.12 windows 8.6"), ask=_at(wheel))
    assert (found.exit_code, bool(found.command), bool(found.wheels[0].words)) == (9, line, line)
    assert line or "which torch it was compiled for is not known" in found.wheels[0].why


@pytest.mark.parametrize(
    ("text", "abi", "fits"),
    [
        ("some-ext 2.8.0+cu128 3.12 linux 9.0", "pre-cxx11", False),
        ("some-ext 2.8.0+cu128 3.12 linux 9.0", "cxx11", True),
        ("some-ext 2.6.0+cu124 3.12 linux 9.0", "cxx11", False),
    ],
)
def test_the_cxx_abi_of_a_file_is_that_of_torch(
    text: str, abi: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """autoawq-kernels with the older one was offered for torch 2.8, sgl-kernel with the newer for 2.6.0+cu124."""
    monkeypatch.setattr(looking, "_large", lambda _: None)
    monkeypatch.setattr(looking, "served_by", lambda *_: ServedCards({"sm_90": 1}, [], False, abi))
    monkeypatch.setattr(looking, "link_to", lambda *_, **__: TorchLink(None, compiled=True, torch=True))
    seen = find_module.look_into("https://index/some_ext.whl", _question(text), False)
    assert (seen.state is not State.FAIL, "C++ ABI" in seen.said) == (fits, not fits)


@pytest.mark.parametrize(
    ("switch", "words", "variable"),
    [
        (("-f", "https://x.example/list.html"), ["--no-index"], "PIP_FIND_LINKS"),
        (
            ("--extra-index-url", "https://x.example/whl"),
            ["--index-url", "https://x.example/whl"],
            "PIP_EXTRA_INDEX_URL",
        ),
    ],
)
def test_a_list_is_asked_alone(
    switch: tuple[str, ...], words: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip fell back to the index where a list could not be read, and its file was taken for the list's."""
    called: list[tuple[list[str], Mapping[str, str]]] = []

    def call(args: list[str], *, env: Mapping[str, str], timeout: float) -> Result:
        called.append((args, env))
        return Result(args=(), code=1, err="WARNING: Retrying (Retry(total=4")

    monkeypatch.setattr("rekindle.core.run.call", call)
    told = on_index("dgl", switch, environment=None, python="3.11", place=LINUX)
    asked, env = called[0]
    assert (told.reached, env[variable]) == (False, switch[1])
    assert all(word in asked for word in words) and "--extra-index-url" not in asked


def test_a_name_outside_the_tables_is_no_verdict() -> None:
    """`FAIL` and exit code 5 read as though nobody had built it."""
    found = find(_question("nosuch-xyz 2.8.0+cu128 3.12 linux 9.0"), ask=_empty_index, look=_unread)
    assert (found.exit_code, {each.state for each in found.findings}) == (9, {State.UNVERIFIED})
    assert "not in the tables: only the index was asked" in found.refused[-1]


def test_a_part_of_the_kernels_is_not_none_of_them(tmp_path: Path) -> None:
    """It was said of a library that it does not serve sm_86 because it has sm_86."""
    libraries = {"some_ext/code.so": (("sm_86",), ("sm_90",))}
    cards = (NamedCard(name="the card", capability=Capability(8, 6)),)
    assert "has it in a part of its kernels only" in served_by(_seen(tmp_path, libraries), cards).lacks[0]


def test_one_torch_is_no_range() -> None:
    assert "for torch 2.7.1, not" in " ".join(_offline("vllm 2.12.0+cu130 3.12 linux 8.0").refused)


def test_what_others_built_for_a_card_is_named_by_plan_too() -> None:
    """`extension find vllm` named vllm-pascal where `plan --for vllm` knew of nothing."""
    place = situation_here(gpus=("GTX 1080 Ti",), system="linux", machine="x86_64", python="3.12")
    notes = " ".join(for_program("vllm", place).notes)
    assert "vllm-pascal==0.10.0" in notes and "rekindle extension find vllm" in notes


def test_what_a_file_without_code_brings_has_to_fit_as_well() -> None:
    """autoawq asks for triton, which Windows has none of; torchrec for an fbgemm-gpu of one torch."""
    link = TorchLink(None, asks=("numpy", "triton", 'uvloop; platform_system == "Linux"'))
    assert link.brings("windows").startswith("it asks for triton, which has to fit as well: `")
    assert link._replace(compiled=True).brings("windows") == ""
    assert TorchLink(None, asks=('triton; platform_system == "Linux"',)).brings("windows") == ""


def test_a_torch_before_the_tables_is_asked_for_too() -> None:
    """`1.9.1` ended with "wheels for Linux and Windows alone are known", on Linux."""
    found = find(_question("detectron2 1.9.1+cu111 3.8 linux 8.6"), ask=_no_index, look=_unread)
    assert found.torch == "1.9.1"


def test_a_package_without_gpu_code_of_its_own_is_not_refused_for_it() -> None:
    """torchtext and sglang "have no GPU code": the one needs none, the other takes it from another package."""
    asked: list[bool] = []

    def look(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
        asked.append(pure)
        return LookedInto(State.PASS, "looked at", bound=True)

    def there(requirement: str, switch: Sequence[str], question: ExtensionQuestion) -> IndexAnswer:
        return IndexAnswer(place="https://x/torchtext-0.18.0-cp312-cp312-win_amd64.whl", reached=True)

    find(_question("torchtext 2.3.1+cu121 3.12 windows 8.6"), ask=there, look=look)
    assert asked == [True]


def test_what_conda_forge_builds_is_named_where_no_wheel_fits() -> None:
    """For its own PyTorch, with a card that both have code for; of a package that it does not build nothing is said."""

    def way(package: str, gpu: str, system: str = "linux") -> str | None:
        said = TorchNamed(torch="2.7.1", cuda="12.6", python="3.11", os=system)
        asked = question.of(package, said, gpus=(gpu,))
        return find(asked, ask=lambda *_: IndexAnswer(place=None, reached=True), look=_unread).instead

    made = way("tinycudann", "Tesla V100")
    assert made is not None
    assert "tiny-cuda-nn=2.0" in made and "pytorch=2.12." in made and "cuda-version=12.9" in made
    assert way("tinycudann", "Tesla K80") is None
    assert way("tinycudann", "RTX 3090", "windows") is None
    assert way("apex", "GTX 1080 Ti") is not None
    assert way("nvdiffrast", "Tesla V100") is None


def _unread(place: str | Path, question: ExtensionQuestion, pure: bool) -> LookedInto:
    return LookedInto(State.UNVERIFIED, "it was not read")


def test_another_torch_for_the_card_is_one_command_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-eight builds of torch were listed, and hours of compiling were the only line to type."""
    monkeypatch.setattr(find_module, "look_into", _unread)
    words = ("extension", "find", "xformers", "--torch", "2.7.1", "--python", "3.12", "--os", "windows")
    seen = rekindle_command(*words, "--gpu", "GTX 1060")
    said = " ".join(seen.out.split())
    assert "and older: `" in said and 'plan --gpu "GeForce GTX 1060" --os windows --with xformers` takes one' in said
    assert "2.1.1+cu118" not in said
    assert max(len(line) for line in seen.out.splitlines() if "`" not in line and "rekindle" not in line) <= 80
