"""The conditions under which a step of a fix is shown: what the signature data calls `needs`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.compat.feature_card import has
from rekindle.diagnose import architectures, card_conditions, compiler_conditions, coverage, package_conditions
from rekindle.diagnose.facts import Facts
from rekindle.diagnose.package_conditions import bitsandbytes
from rekindle.knowledge.gpu.capability import Capability

# Triton 3 begins with Volta; every card below is too old for it, every other that it does not know is too new.
# Headers and libraries that come with the development packages of CUDA's libraries, not with nvcc.
_LIBRARY_HEADER = re.compile(
    r"\b(?:cusparse|cublas|cusolver|curand|cufft|nvrtc|npp|nvjpeg|cupti|cufile)\w*(?:\.h|\.lib)|-lcu"
)
_SPECIFIC = re.compile(r"'sm_\d{3}a' is not defined")
_TORCH_FAMILY = frozenset({"torch", "torchvision", "torchaudio"})

# fmt: off
CONDITIONS = card_conditions.CONDITIONS | compiler_conditions.CONDITIONS | package_conditions.CONDITIONS | frozenset({
    "amd", "an_extension", "arch_enough", "arch_too_old", "at_build_time", "at_run_time", "bitsandbytes", "card_is_new",
    "card_is_old", "card_known", "card_not_old", "card_open", "card_unknown", "cmake_architectures", "cublas",
    "cublas_open", "cufft", "deepspeed", "docker", "driver_open", "fbgemm", "glibc_itself", "importing_torch",
    "library_header", "libstdcxx",
    "libuv", "libuv_build", "linking_cuda", "linking_toolkit", "mac", "nccl_clone", "no_cudnn", "no_docker", "no_ssl",
    "not_amd", "not_cublas", "not_importing_torch", "not_mac", "not_nvrtc", "not_test_library", "not_wsl",
    "nvidia_package",
    "nvrtc_elsewhere", "nvrtc_in_torch", "nvrtc_open", "other_package", "ownerless", "package_unknown",
    "plain_network", "proxy", "python_32_bit", "runtime_header", "shm", "some_cudnn", "test_library", "tls",
    "toolkit_open", "torch_in_log", "torch_itself", "torch_may_lack", "torch_package", "torch_package_any",
    "torch_package_open", "triton", "triton_own_ptxas", "triton_package", "wsl", "wsl_or_open", "zlib",
})
# fmt: on


def holding(fields: Mapping[str, str], facts: Facts) -> frozenset[str]:
    """The names of the conditions that hold. `fields["said"]` is the text of the lines that show the cause."""
    said = fields.get("said", "")
    found = _of_card(fields, facts) | _of_text(said, facts) | _of_package(fields, facts)
    found |= card_conditions.holding(said, facts, fields.get("failing", "")) | compiler_conditions.holding(
        fields, facts
    )
    found |= package_conditions.holding(fields, facts, plain_network=found["plain_network"])
    return frozenset(name for name, holds in found.items() if holds)


def _of_card(fields: Mapping[str, str], facts: Facts) -> dict[str, bool]:
    card = max(facts.gpus) if facts.gpus else None
    judged = _asked(fields) or card
    found = {
        # A laptop with an NVIDIA card may name the Radeon of its processor too.
        "amd": facts.amd is True and card is None,
        "not_amd": facts.amd is not True or card is not None,
        "card_known": card is not None,
        "card_unknown": card is None,
        "card_open": judged is None,
        "card_is_new": judged is not None and has("compile", judged),
        "card_is_old": judged is not None and not has("compile", judged),
        "card_not_old": judged is None or has("compile", judged),
        "no_cudnn": card is not None and coverage.never_in_cudnn(card),
        "some_cudnn": card is None or not coverage.never_in_cudnn(card),
        "driver_open": facts.driver is None,
        "toolkit_open": facts.toolkit is None and not {"first_folder", "nvcc_folder", "win_folder"} & fields.keys(),
    }
    needs = fields.get("ptx_needs")
    if needs and card is not None:
        enough = card >= Capability.parse(needs)
        found |= {"arch_enough": enough, "arch_too_old": not enough}
    return found


def _of_text(said: str, facts: Facts) -> dict[str, bool]:
    known = bool(facts.gpus) and facts.os is not None
    nvrtc = "nvrtc: error" in said
    cublas = any(word in said for word in ("CUBLAS_STATUS", "CUSPARSE_STATUS", "CUSOLVER_STATUS"))
    loading = any(word in said for word in (".dll", ".so.", "SUBLIBRARY")) and "zlibwapi" not in said
    no_ssl = "ssl module" in said.lower()
    proxy = not no_ssl and "proxy" in said.lower()
    tls = not no_ssl and not proxy and any(word in said for word in ("CERTIFICATE", "certificate", "SSLError", "x509"))
    nccl = "github.com/nvidia/nccl" in said.lower()
    return {
        "triton": facts.triton is True,
        # Triton names sm_120a and the like only since its LLVM knows these cards: what lacks them is its ptxas.
        "triton_own_ptxas": _SPECIFIC.search(said) is not None,
        "linking_cuda": "-lcuda" in said,
        "wsl": facts.wsl is True,
        "not_wsl": facts.wsl is not True,
        "wsl_or_open": facts.wsl is True or "-lcuda" not in said,
        "cmake_architectures": "CUDA_ARCHITECTURES is empty" in said or "default CUDA architecture" in said,
        "mac": facts.mac is True,
        "not_mac": facts.mac is not True,
        "nvrtc_in_torch": nvrtc and known and facts.names_torch is True,
        "nvrtc_open": nvrtc and not known,
        "torch_in_log": facts.names_torch is True,
        "nvrtc_elsewhere": nvrtc and facts.names_torch is not True,
        "docker": facts.docker is True,
        "no_docker": facts.docker is not True,
        "linking_toolkit": "-lcu" in said and "-lcuda" not in said.replace("-lcudart", ""),
        "not_nvrtc": not nvrtc,
        "zlib": "zlibwapi" in said,
        "at_run_time": loading,
        "at_build_time": not loading and "zlibwapi" not in said,
        "cufft": "CUFFT_INTERNAL_ERROR" in said,
        "cublas": cublas and known,
        "cublas_open": cublas and not known,
        "not_cublas": not cublas,
        "bitsandbytes": bitsandbytes(said),
        "deepspeed": any(word in said.lower() for word in ("aio", "async_io", "gds", "deepspeed", "sparse_attn")),
        "libuv": "libuv" in said.lower() and "could not find" not in said.lower(),
        "libuv_build": "could not find libuv" in said.lower(),
        "library_header": _LIBRARY_HEADER.search(said) is not None,
        "runtime_header": _LIBRARY_HEADER.search(said) is None,
        "glibc_itself": "GLIBC_" in said,
        "libstdcxx": any(word in said for word in ("GLIBCXX_", "CXXABI_", "GOMP_", "GCC_", "_ZSt")),
        "no_ssl": no_ssl,
        "proxy": proxy,
        "tls": tls,
        "nccl_clone": nccl and not (no_ssl or proxy or tls),
        "plain_network": not (no_ssl or proxy or tls or nccl),
    }


def _of_package(fields: Mapping[str, str], facts: Facts) -> dict[str, bool]:
    failing = fields.get("failing", "torch")
    package = plain_name(fields["package"]) if "package" in fields else None
    known = bool(facts.gpus) and facts.os is not None
    return {
        "torch_itself": failing in _TORCH_FAMILY,
        "torch_may_lack": facts.torch_lacks_card is not False,
        "importing_torch": facts.importing_torch is True,
        "not_importing_torch": facts.importing_torch is not True,
        "an_extension": failing not in _TORCH_FAMILY,
        "nvidia_package": package is not None and package.startswith("nvidia-"),
        "triton_package": package == "triton" and facts.os == "windows",
        "python_32_bit": facts.bits == 32,
        "ownerless": "owner" not in fields and not bitsandbytes(fields.get("said", "")),
        "fbgemm": _plain_end(fields.get("dll", "")) == "fbgemm.dll",
        "shm": _plain_end(fields.get("dll", "")) == "shm.dll",
        "test_library": "test_library" in fields,
        "not_test_library": "test_library" not in fields,
        "package_unknown": package is None,
        "torch_package_any": package in _TORCH_FAMILY,
        "torch_package": package in _TORCH_FAMILY and known,
        "torch_package_open": package in _TORCH_FAMILY and not known,
        "other_package": package is not None
        and package not in _TORCH_FAMILY
        and not package.startswith("nvidia-")
        and not (package == "triton" and facts.os == "windows"),
    }


def _plain_end(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2].lower()


def _asked(fields: Mapping[str, str]) -> Capability | None:
    text = fields.get("arch_asked", "")
    return architectures.asked(text) if text.startswith("sm_") else None


def plain_name(requirement: str) -> str:
    """`torch==2.1.0+cu121` is torch."""
    for index, letter in enumerate(requirement):
        if letter in "=<>!~[; ":
            return requirement[:index].lower()
    return requirement.lower()
