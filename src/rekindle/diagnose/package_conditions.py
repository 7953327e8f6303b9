"""The conditions of a fix that depend on packages, the libraries they load, and the network they come through."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.diagnose.facts import Facts

# What the lines that show a cause say. `not_` before a name: they do not.
_SAID: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "conda_path": r"(?i)[/\\](?:\w*conda\w*|miniforge\w*|mambaforge\w*|envs)[/\\]",
        "distutils_version": r"module 'distutils' has no attribute 'version'",
        "ffmpeg_library": r"lib(?:avutil|avcodec|avformat|avfilter|avdevice|swscale|swresample)\b|libtorchcodec",
        "functional_tensor": r"functional_tensor",
        "hip_library": r"lib(?:torch|c10)_hip",
        "imp_importer": r"ImpImporter",
        "libpython_said": r"libpython",
        "locked_by_poetry": r"installation candidates",
        "mkl_dll": r"(?i)mkl_\w+(?:\.\d)?\.dll|cannot load (?:lib)?mkl_|libmkl_\w+\.so",
        "mkl_threading": r"MKL_THREADING_LAYER",
        "nccl_symbol": r"undefined symbol: nccl",
        "no_distutils": r"No module named '?distutils'?",
        "no_imp": r"No module named '?imp'?(?:$|\s)",
        "nvjitlink": r"nvJitLink",
        # All that the ordinary index ever had for a system without wheels: the sign that none fits.
        "old_torch_only": r"from versions: 0\.1\.2(?:, 0\.1\.2\.post[12])*\)",
        "poetry": r"version solving failed",
        "rust": r"(?i)requires Rust and Cargo|the Rust package manager|Rust compiler",
        "torch_core": r"lib(?:c10|torch|torch_cpu|torch_python|torch_cuda|c10_cuda)\.so: cannot",
        "torch_library": r"lib(?:torch|c10)\w*\.so",
        "torch_split": r"libtorch_cuda_c(?:u|pp)\.so",
        "use_2to3": r"use_2to3",
        "xformers_operator": r"memory_efficient_attention|python -m xformers\.info",
        "xformers_said": r"(?i)xformers",
    }.items()
}
_NEGATED = (
    "ffmpeg_library",
    "functional_tensor",
    "hip_library",
    "torch_library",
    "torch_split",
    "xformers_operator",
)
# How a download failed; the first that fits decides.
_NETWORK: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("git_protocol", r"git://|unauthenticated git protocol"),
        ("hash_differs", r"DO NOT MATCH THE HASHES|(?i:hash mismatch)"),
        (
            "name_unknown",
            r"(?i)name or service not known|name ?resolution|resolve (?:host|proxy)|getaddrinfo|dns error",
        ),
        ("git_transfer", r"(?i)early EOF|RPC failed|fetch-pack|unexpected disconnect|index-pack|unable to access"),
        ("timed_out", r"(?i)timed out|timeout|IncompleteRead"),
        ("http_refused", r"\b40[34]\b"),
    )
)
_TORCH_OF_CONDA = ("pytorch", "cudatoolkit", "torch", "cuda")

# fmt: off
CONDITIONS = frozenset({
    *_SAID, *(f"not_{name}" for name in _NEGATED), *(name for name, _ in _NETWORK),
    "bnb_installed", "bnb_source", "conda", "conda_installed", "conda_libstdcxx", "conda_other", "conda_torch",
    "in_source_folder", "mkl_symbol",
    "module_not_wheel",
    "module_torch", "module_triton", "module_wheel", "not_bitsandbytes", "not_module_torch", "not_module_triton",
    "not_portable", "numpy_is_newer", "numpy_is_older", "old_is_wanted", "plain_network_only", "plain_setuptools",
    "portable", "system_libstdcxx", "uv", "without_conda",
})
# fmt: on


def holding(fields: Mapping[str, str], facts: Facts, *, plain_network: bool) -> dict[str, bool]:
    """`plain_network`: neither a proxy, a certificate nor a missing ssl module is to blame."""
    said = fields.get("said", "")
    found = {name: pattern.search(said) is not None for name, pattern in _SAID.items()}
    found |= {f"not_{name}": not found[name] for name in _NEGATED}
    return found | _of_network(said, plain_network) | _of_places(said, found, facts) | _of_names(fields, found, facts)


def _of_network(said: str, plain: bool) -> dict[str, bool]:
    how = next((name for name, pattern in _NETWORK if pattern.search(said)), None)
    found = {name: plain and name == how for name, _ in _NETWORK}
    return found | {"plain_network_only": plain and how is None}


def _of_places(said: str, found: Mapping[str, bool], facts: Facts) -> dict[str, bool]:
    conda = facts.conda is True or found["conda_path"]
    portable = facts.portable is True and facts.os == "windows"
    source = "libbitsandbytes" in said and ("-packages" not in said or ".egg" in said)
    before = said.partition("libstdc++")[0]
    in_conda = _SAID["conda_path"].search(before) is not None
    return {
        "conda": conda,
        "conda_installed": facts.conda is True and facts.portable is not True,
        "without_conda": not conda,
        "conda_libstdcxx": _SAID["conda_path"].search(said.partition("required by")[0]) is not None,
        "system_libstdcxx": before.rstrip("/").endswith(("lib", "lib64", "linux-gnu")) and not in_conda,
        "in_source_folder": "-packages" not in said and "cannot import name" in said,
        "portable": portable,
        "not_portable": not portable,
        "bnb_source": source,
        "bnb_installed": not source,
        "uv": facts.uv is True,
    }


def _of_names(fields: Mapping[str, str], found: Mapping[str, bool], facts: Facts) -> dict[str, bool]:
    said, module = fields.get("said", ""), fields.get("module", "").partition(".")[0]
    triton = module == "triton" and facts.os == "windows"
    older = numpy_is_older(said)
    removed = found["imp_importer"] or found["no_distutils"] or found["no_imp"] or found["distutils_version"]
    of_torch = fields.get("conda_missing", "").startswith(_TORCH_OF_CONDA)
    return {
        "conda_torch": of_torch,
        "conda_other": not of_torch,
        "mkl_symbol": not found["mkl_dll"] and not found["mkl_threading"],
        "module_not_wheel": module not in ("wheel", "setuptools"),
        "module_wheel": module in ("wheel", "setuptools"),
        "module_torch": module == "torch",
        "not_module_torch": module != "torch",
        "module_triton": triton,
        "not_module_triton": not triton,
        "not_bitsandbytes": not bitsandbytes(said),
        "numpy_is_older": older,
        "numpy_is_newer": not older,
        "old_is_wanted": not removed,
        "plain_setuptools": not removed and not found["use_2to3"],
    }


def bitsandbytes(said: str) -> bool:
    return "bitsandbytes" in said or "CUDA S" in said or "WindowsPath" in said


def numpy_is_older(said: str) -> bool:
    """Whether NumPy is the older part: its own numbers say it. `dtype` shrank with NumPy 2, other types only grew."""
    api = re.search(r"compiled against \w+ version (0x[0-9a-f]+) but this version of numpy is (0x[0-9a-f]+)", said)
    if api:
        return int(api[1], 16) > int(api[2], 16)
    size = re.search(r"numpy\.(\w+) size changed.*Expected (\d+)(?: from C header)?, got (\d+)", said)
    if size:
        return size[1] != "dtype" and int(size[2]) > int(size[3])
    return "No module named 'numpy._core" in said
