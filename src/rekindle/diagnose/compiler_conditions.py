"""The conditions of a fix that depend on compilers, toolkits, CMake and the link."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rekindle.diagnose import compilers
from rekindle.diagnose.facts import Facts
from rekindle.knowledge.logs.import_names import package_of

_TORCH_INPUTS = frozenset({"c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python", "caffe2", "shm"})
_TORCH_CMAKE = frozenset({"Torch", "Caffe2"})

# fmt: off
CONDITIONS = frozenset({
    "apple_openmp", "caffe2_cuda", "cmake_3", "cmake_4", "cmake_known", "conda_linker", "context_header",
    "cub_ambiguous", "cub_once", "cub_twice", "cuda_input", "cudacxx_wrong", "deprecated_type", "devel_image",
    "early_studio_named", "long_symbols", "many_sections", "msvc_named", "msvc_not_named", "net_msbuild",
    "new_abi_symbols", "no_apple_openmp", "no_c_compiler", "no_deprecated_type", "no_libuv", "no_object_input",
    "no_plain_rename", "no_sections", "not_torch_cmake", "nothing_of_nvcc", "nvcc_broken", "nvcc_crashed",
    "nvcc_died", "nvcc_no_cl", "nvcc_sought", "nvtx_built", "nvtx_header", "nvtx_loaded", "nvtx_path", "object_input",
    "old_abi_symbols", "omp_input", "omp_symbols", "pip_toolkit", "plain_cmake", "plain_input", "plain_rename",
    "plain_symbols", "pybind_cmake", "python_symbols", "rc_missing", "rc_there", "renamed", "rsqrt", "sinpi",
    "split_cuda", "system_known", "system_open", "toolset_fits", "torch_cmake", "torch_input",
})
# fmt: on


def holding(fields: Mapping[str, str], facts: Facts) -> dict[str, bool]:
    said = fields.get("said", "")
    inputs = re.split(r"[\\/]", fields.get("input", ""))[-1].lower().removeprefix("lib").partition(".")[0]
    objects = fields.get("input", "").lower().endswith((".obj", ".o"))
    split = "at::cuda" in said or "@cuda@at@" in said
    owned = {"object_input": objects, "no_object_input": not objects, "split_cuda": split and "LNK" in said}
    openmp = inputs == "omp" and "ld: library" in said
    toolkit = re.search(r"/cuda[\d.-]*/\S*lib\w+\.(?:so|a)", fields.get("input", "")) is not None
    owned |= {"torch_input": inputs in _TORCH_INPUTS, "omp_input": openmp, "cuda_input": toolkit}
    owned |= {"plain_input": inputs not in _TORCH_INPUTS and not openmp and not toolkit}
    return owned | _of_compilers(said, facts) | _of_toolkit(said, facts) | _of_symbols(said) | _of_cmake(fields)


def _of_compilers(said: str, facts: Facts) -> dict[str, bool]:
    crashed = "died with status 0x" in said
    resources = any(word in said for word in ("rc.exe", "RC Pass", "RC_COMPILER"))
    msvc = facts.studio_year is not None and "mingw" not in said.lower()
    return {
        "system_open": facts.os is None,
        "system_known": facts.os is not None,
        "nvcc_crashed": crashed,
        "net_msbuild": "MSB4019" in said,
        "apple_openmp": "unsupported option '-fopenmp'" in said,
        "no_apple_openmp": "unsupported option '-fopenmp'" not in said,
        "nvcc_no_cl": "Cannot find compiler" in said,
        "cudacxx_wrong": "environment variable CUDACXX" in said,
        "early_studio_named": "2012, 2013, 2015 and 2017" in said or "2013, 2015 and 2017" in said,
        "nvcc_died": "died due to signal" in said,
        "nothing_of_nvcc": not crashed,
        "no_c_compiler": any(word in said for word in ("C compiler", "CMAKE_C_COMP", "CMAKE_CXX_COMP", "C++ compiler")),
        "rc_missing": resources,
        "rc_there": not resources,
        "msvc_named": msvc,
        "msvc_not_named": not msvc,
        "toolset_fits": compilers.fits(facts) is not None,
    }


def _of_toolkit(said: str, facts: Facts) -> dict[str, bool]:
    turned = "inpi" in said or "ospi" in said
    twice = "already been defined" in said
    sought = "nvToolsExt" in said and ("No rule to make" in said or "ninja: error" in said)
    return {
        "sinpi": turned or "rsqrt" not in said,
        "rsqrt": "rsqrt" in said and not turned,
        "nvcc_broken": "simple test program" in said,
        "nvcc_sought": "simple test program" not in said,
        "cub_ambiguous": 'cub" is ambiguous' in said,
        "pip_toolkit": facts.pip_toolkit is True,
        "cub_twice": twice,
        "cub_once": not twice and 'cub" is ambiguous' not in said,
        "caffe2_cuda": "Caffe2 version uses CUDA" in said or "uses CUDA but I cannot find" in said,
        "nvtx_path": sought,
        "nvtx_loaded": "libnvToolsExt.so" in said and not sought,
        "nvtx_header": "nvToolsExt" in said and ".h" in said and ("C1083" in said or "fatal error" in said),
        "nvtx_built": ("libnvToolsExt.so" not in said or sought) and "C1083" not in said and "fatal error" not in said,
        "no_libuv": "libuv" not in said.lower(),
        "devel_image": "devel" in said or facts.docker is True,
    }


def _of_symbols(said: str) -> dict[str, bool]:
    """Whose the names are that a linker does not find."""
    torch = "undefined reference" in said and any(name in said for name in ("c10::", "at::", "torch::"))
    found = {
        "conda_linker": "compiler_compat/ld" in said or "-conda-linux-gnu" in said,
        "long_symbols": "data_ptr<long>" in said or "data<long>" in said or "@J@Tensor@at@" in said,
        "new_abi_symbols": torch and "std::__cxx11" in said,
        "old_abi_symbols": torch and "std::string" in said and "std::__cxx11" not in said,
        "python_symbols": "__imp_Py" in said or "__imp__Py" in said,
        "omp_symbols": "undefined reference" in said and ("omp_" in said or "GOMP_" in said),
    }
    sections = "C1128" in said
    found |= {"plain_symbols": not any(found.values()), "many_sections": sections, "no_sections": not sections}
    return found


def _of_cmake(fields: Mapping[str, str]) -> dict[str, bool]:
    said, renamed = fields.get("said", ""), compilers.TORCH_RENAMES.get(fields.get("old_name", ""))
    package, newest = fields.get("package", ""), fields.get("needs", "").startswith("4")
    return {
        "torch_cmake": package in _TORCH_CMAKE,
        "not_torch_cmake": package not in _TORCH_CMAKE,
        "cmake_known": package_of(package, kind="cmake") is not None,
        "renamed": renamed is not None,
        "plain_rename": renamed is not None and renamed.replace("_", "").isalnum(),
        "no_plain_rename": renamed is not None and not renamed.replace("_", "").isalnum(),
        "context_header": "context_name" in fields,
        "deprecated_type": "DeprecatedTypeProperties" in said,
        "no_deprecated_type": "DeprecatedTypeProperties" not in said,
        "pybind_cmake": package == "pybind11",
        "plain_cmake": package not in _TORCH_CMAKE and package != "pybind11",
        "cmake_3": not newest,
        "cmake_4": newest,
    }
