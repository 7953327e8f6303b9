"""The conditions under which a step of a fix is shown: what the signature data calls `needs`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.diagnose import architectures, card_conditions, compiler_conditions, coverage
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.gpu.capability import Capability

# Triton 3 begins with Volta; every card below is too old for it, every other that it does not know is too new.
_TRITON_FLOOR = Capability(7, 0)
# Headers and libraries that come with the development packages of CUDA's libraries, not with nvcc.
_LIBRARY_HEADER = re.compile(
    r"\b(?:cusparse|cublas|cusolver|curand|cufft|nvrtc|npp|nvjpeg|cupti|cufile)\w*(?:\.h|\.lib)|-lcu"
)
_CONDA = re.compile(r"(?i)[/\\\\](?:\w*conda\w*|miniforge\w*|mambaforge\w*|envs)[/\\\\]")
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)\w*\.so")
_FFMPEG = re.compile(r"lib(?:avutil|avcodec|avformat|avfilter|avdevice|swscale|swresample)[\w.]*|libtorchcodec")
_INSTALLED = re.compile(r"(?:site|dist)-packages")
# All that the ordinary index ever had for a system without wheels: the sign that none fits.
_ONLY_OLD = re.compile(r"from versions: 0\.1\.2(?:, 0\.1\.2\.post[12])*\)")
_SPECIFIC = re.compile(r"'sm_\d{3}a' is not defined")
_TORCH_FAMILY = frozenset({"torch", "torchvision", "torchaudio"})

# fmt: off
CONDITIONS = card_conditions.CONDITIONS | compiler_conditions.CONDITIONS | frozenset({
    "an_extension", "arch_enough", "arch_too_old", "at_build_time", "at_run_time", "bitsandbytes", "card_is_new",
    "card_is_old", "card_known", "card_open", "card_unknown", "cmake_architectures", "conda", "conda_libstdcxx",
    "cublas", "cublas_open", "cufft", "deepspeed", "docker", "driver_open", "fbgemm", "ffmpeg_library",
    "git_protocol", "glibc_itself", "hash_differs", "hip_library", "importing_torch", "in_source_folder",
    "libpython_said", "library_header", "libstdcxx", "libuv", "libuv_build", "linking_cuda", "linking_toolkit",
    "locked_by_poetry", "mac", "mkl_dll", "mkl_symbol", "mkl_threading", "module_triton", "nccl_clone", "nccl_symbol",
    "no_cudnn", "no_docker", "no_ssl", "not_bitsandbytes", "not_cublas", "not_ffmpeg", "not_importing_torch",
    "not_mac", "not_module_triton", "not_nvrtc", "not_portable", "not_test_library", "not_torch_library", "not_wsl",
    "numpy_is_newer", "numpy_is_older", "nvidia_package", "nvjitlink", "nvrtc_elsewhere", "nvrtc_in_torch",
    "nvrtc_open", "old_torch_only", "other_package", "ownerless", "package_unknown", "plain_network",
    "plain_network_only", "portable", "proxy", "python_32_bit", "pytorch_cuda", "runtime_header", "shm", "some_cudnn",
    "system_libstdcxx", "test_library", "timed_out", "tls", "toolkit_open", "torch_in_log", "torch_itself",
    "torch_library", "torch_may_lack", "torch_package", "torch_package_any", "torch_package_open", "triton",
    "triton_own_ptxas", "triton_package", "uv", "without_conda", "without_hip", "without_uv", "wsl", "wsl_or_open",
    "xformers_said", "zlib",
})
# fmt: on


def holding(fields: Mapping[str, str], facts: Facts) -> frozenset[str]:
    """The names of the conditions that hold. `fields["said"]` is the text of the lines that show the cause."""
    said = fields.get("said", "")
    found = _of_card(fields, facts) | _of_text(said, facts) | _of_package(fields, facts)
    found |= card_conditions.holding(said, facts) | compiler_conditions.holding(fields, facts)
    return frozenset(name for name, holds in found.items() if holds)


def _of_card(fields: Mapping[str, str], facts: Facts) -> dict[str, bool]:
    card = max(facts.gpus) if facts.gpus else None
    judged = _asked(fields) or card
    found = {
        "card_known": card is not None,
        "card_unknown": card is None,
        "card_open": judged is None,
        "card_is_new": judged is not None and judged >= _TRITON_FLOOR,
        "card_is_old": judged is not None and judged < _TRITON_FLOOR,
        "no_cudnn": card is not None and coverage.never_in_cudnn(card),
        "some_cudnn": card is None or not coverage.never_in_cudnn(card),
        "driver_open": facts.driver is None,
        "toolkit_open": facts.toolkit is None and "first_folder" not in fields,
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
    plain = not (no_ssl or proxy or tls or "github.com/nvidia/nccl" in said.lower())
    git = "git://" in said or "unauthenticated git protocol" in said
    differs = "DO NOT MATCH THE HASHES" in said or "hash mismatch" in said.lower()
    waited = any(word in said.lower() for word in ("timed out", "timeout", "incompleteread"))
    mkl_dll = re.search(r"(?i)mkl_\w+(?:\.\d)?\.dll|cannot load (?:lib)?mkl_|libmkl_\w+\.so", said) is not None
    hip = "libtorch_hip" in said or "libc10_hip" in said
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
        "bitsandbytes": _bitsandbytes(said),
        "deepspeed": any(word in said.lower() for word in ("aio", "async_io", "gds", "deepspeed", "sparse_attn")),
        "libuv": "libuv" in said.lower() and "could not find" not in said.lower(),
        "libuv_build": "could not find libuv" in said.lower(),
        "library_header": _LIBRARY_HEADER.search(said) is not None,
        "runtime_header": _LIBRARY_HEADER.search(said) is None,
        "glibc_itself": "GLIBC_" in said,
        "libstdcxx": any(word in said for word in ("GLIBCXX_", "CXXABI_", "GOMP_", "GCC_", "_ZSt")),
        "conda": facts.conda is True or _CONDA.search(said) is not None,
        "without_conda": facts.conda is not True and _CONDA.search(said) is None,
        "conda_libstdcxx": _CONDA.search(said.partition("required by")[0]) is not None,
        "system_libstdcxx": said.partition("libstdc++")[0].rstrip("/").endswith(("lib", "lib64", "linux-gnu"))
        and _CONDA.search(said.partition("libstdc++")[0]) is None,
        "git_protocol": git,
        "hash_differs": differs,
        "timed_out": waited and not git,
        "hip_library": hip,
        "without_hip": not hip,
        "torch_library": _TORCH_LIBRARY.search(said) is not None,
        "not_torch_library": _TORCH_LIBRARY.search(said) is None,
        "ffmpeg_library": _FFMPEG.search(said) is not None,
        "not_ffmpeg": _FFMPEG.search(said) is None,
        "xformers_said": "xformers" in said.lower(),
        "not_bitsandbytes": not _bitsandbytes(said),
        "in_source_folder": _INSTALLED.search(said) is None and "cannot import name" in said,
        "locked_by_poetry": "installation candidates" in said,
        "uv": facts.uv is True,
        "without_uv": facts.uv is not True,
        "portable": facts.portable is True and facts.os == "windows",
        "not_portable": facts.portable is not True or facts.os != "windows",
        "pytorch_cuda": "pytorch-cuda" in said,
        "old_torch_only": _ONLY_OLD.search(said) is not None,
        "libpython_said": "libpython" in said,
        "mkl_threading": "MKL_THREADING_LAYER" in said,
        "mkl_dll": mkl_dll,
        "mkl_symbol": not mkl_dll and "MKL_THREADING_LAYER" not in said,
        "numpy_is_older": _numpy_is_older(said),
        "numpy_is_newer": not _numpy_is_older(said),
        "nvjitlink": "nvJitLink" in said,
        "nccl_symbol": "undefined symbol: nccl" in said,
        "no_ssl": no_ssl,
        "proxy": proxy,
        "tls": tls,
        "nccl_clone": nccl and not (no_ssl or proxy or tls),
        "plain_network": plain,
        "plain_network_only": plain and not (waited or differs or git),
    }


def _of_package(fields: Mapping[str, str], facts: Facts) -> dict[str, bool]:
    failing = fields.get("failing", "torch")
    package = plain_name(fields["package"]) if "package" in fields else None
    known = bool(facts.gpus) and facts.os is not None
    triton = fields.get("module", "").partition(".")[0] == "triton" and facts.os == "windows"
    return {
        "torch_itself": failing in _TORCH_FAMILY,
        "torch_may_lack": facts.torch_lacks_card is not False,
        "importing_torch": facts.importing_torch is True,
        "not_importing_torch": facts.importing_torch is not True,
        "an_extension": failing not in _TORCH_FAMILY,
        "nvidia_package": package is not None and package.startswith("nvidia-"),
        "module_triton": triton,
        "not_module_triton": not triton,
        "triton_package": package == "triton" and facts.os == "windows",
        "python_32_bit": facts.bits == 32,
        "ownerless": "owner" not in fields and not _bitsandbytes(fields.get("said", "")),
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


def _bitsandbytes(said: str) -> bool:
    return "bitsandbytes" in said or "CUDA S" in said or "WindowsPath" in said


def _numpy_is_older(said: str) -> bool:
    """Whether NumPy is the older part: its own numbers say it. `dtype` shrank with NumPy 2, other types only grew."""
    api = re.search(r"compiled against \w+ version (0x[0-9a-f]+) but this version of numpy is (0x[0-9a-f]+)", said)
    if api:
        return int(api[1], 16) > int(api[2], 16)
    size = re.search(r"numpy\.(\w+) size changed.*Expected (\d+)(?: from C header)?, got (\d+)", said)
    if size:
        return size[1] != "dtype" and int(size[2]) > int(size[3])
    return "No module named 'numpy._core" in said


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
