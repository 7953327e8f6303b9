"""The conditions of a fix that depend on the card, the driver, and what CUDA's libraries say at run time."""

from __future__ import annotations

import re

from rekindle.compat.feature_card import has
from rekindle.diagnose.facts import Facts

# What was wrong with a command, by the words of the shell or the program.
_SHELL = {
    "says_policy": r"(?i)running scripts is disabled|UnauthorizedAccess",
    "says_and": r"valid statement separator",
    "says_linux": (
        r"(?i)['\"](?:export|source|sudo|apt|ls|rm|cp|mv|grep|[A-Z_]+=\S*)['\"] is not recognized"
        r"|the term '(?:export|source|sudo|apt(?:-get)?|[A-Z_]+=)"
    ),
    "says_crlf": r"\\r|bad interpreter",
    "says_zsh": r"no matches found",
    "says_folder": (
        r"Neither 'setup\.py' nor|does not appear to contain CMakeLists|The source directory|setup\.py\"? not found"
        r"|No targets specified"
    ),
    "says_file": r"can't open file|Could not open requirements file|the file does not exist|looks like a filename",
    "says_requirement": (
        r"(?i)Invalid requirement|Invalid wheel filename|valid editable requirement|at least one requirement"
    ),
    "says_option": r"(?i)no such option|unrecognized arguments|Unknown argument|invalid option",
}

# fmt: off
CONDITIONS = frozenset({
    "closed_modules", "mount_exists", "nvml_unknown",
    "banner", "cdi", "cmake_arch", "cusolver", "hopper_kernel", "host_driver", "kubernetes",
    "not_hopper_kernel", "not_nvml_refused", "nvml_refused", "toolkit_missing", "torch_no_driver",
    "asks_bf16", "asks_flash", "asks_fp8", "asks_other", "bf16", "branch_dropped", "card_below_70", "card_below_80",
    "arm", "card_from_70", "cl_silent", "cl_speaks", "git_long",
    "ninja_long", "not_arm", "not_dubious", "not_git_long", "not_ninja_long",
    "nvcc_input", "policy", "says_and", "says_crlf", "says_else", "says_file", "says_folder", "says_linux",
    "says_option",
    "says_policy", "says_requirement", "says_zsh",
    "cublas_other", "cublas_value", "engine_open", "module_open", "no_engine", "not_bf16",
    "not_supported", "nouveau", "off_the_bus", "open_modules", "secure_boot", "tcc",
})
# fmt: on


def holding(said: str, facts: Facts, failing: str) -> dict[str, bool]:
    """`said` is the text of the lines that show the cause, `failing` the package in which a traceback ends."""
    found = {
        "hopper_kernel": "hopper" in said,
        "not_hopper_kernel": "hopper" not in said,
        "cmake_arch": "CUDA_ARCHITECTURES" in said,
    }
    found |= _of_card(facts) | _of_driver(said, facts) | _of_container(said)
    return found | _of_math(f"{said} {failing}") | _of_files(said, facts) | _of_shell(said)


def _of_card(facts: Facts) -> dict[str, bool]:
    card = max(facts.gpus) if facts.gpus else None
    return {
        "card_below_70": card is not None and not has("half-atomics", card),
        "card_from_70": card is not None and has("half-atomics", card),
        "card_below_80": card is not None and not has("bf16", card),
    }


def _of_driver(said: str, facts: Facts) -> dict[str, bool]:
    """Why a driver does not run, where its own words tell."""
    found = {
        "branch_dropped": any(
            word in said for word in ("will ignore this GPU", "egacy", "supported through the NVIDIA")
        ),
        "closed_modules": "not supported by open" in said,
        "open_modules": "NVIDIA open kernel" in said,
        "nvml_unknown": "NVML: Unknown Error" in said,
        "secure_boot": "Key was rejected" in said or facts.secure_boot is True,
        "off_the_bus": any(word in said for word in ("fallen off the bus", "Xid", "RmInitAdapter", "GPU is lost")),
        "nouveau": "nouveau" in said or "probe routine was not called" in said,
    }
    found["torch_no_driver"] = "Found no NVIDIA driver" in said and not any(found.values())
    open_still = facts.wsl is not True and not any(found.values())
    return found | {"module_open": open_still, "tcc": facts.tcc is True}


def _of_container(said: str) -> dict[str, bool]:
    """What a container runtime lacks."""
    found = {
        "banner": "The NVIDIA Driver was not detected" in said or "to start this container with GPU support" in said,
        "cdi": re.search(r"\bCDI\b", said) is not None,
        "mount_exists": "file exists" in said,
        "kubernetes": "nodes are available" in said,
        "host_driver": re.search(r"(?i)load library failed|initialization error: (?:cuda|nvml|driver) error", said)
        is not None,
    }
    refused = re.search(r"NVML: (?:Unknown Error|Insufficient Permissions)", said) is not None
    return found | {
        "toolkit_missing": not any(found.values()),
        "nvml_refused": refused,
        "not_nvml_refused": not refused,
    }


def _of_math(said: str) -> dict[str, bool]:
    """What a call of cuDNN or cuBLAS could not do, by its status and its types."""
    bf16 = "R_16BF" in said
    asks = {
        "asks_bf16": re.search(r"(?i)bf16|bfloat16", said) is not None,
        "asks_flash": re.search(r"(?i)flash", said) is not None,
        "asks_fp8": re.search(r"(?i)fp8|fp4|float8", said) is not None,
    }
    value = "STATUS_INVALID_VALUE" in said
    unsupported = "_STATUS_NOT_SUPPORTED" in said
    engine = "unable to find an engine" in said or "valid cuDNN algorithm" in said
    return {
        "bf16": bf16 and unsupported,
        "not_bf16": not bf16,
        "not_supported": unsupported,
        "cublas_value": value,
        "cublas_other": not (value or unsupported),
        "no_engine": engine,
        "engine_open": not engine,
        "cusolver": "cusolver" in said.lower(),
        **asks,
        "asks_other": not any(asks.values()),
    }


def _of_files(said: str, facts: Facts) -> dict[str, bool]:
    """Downloads, paths, encodings and rights."""
    ninja = "Stat(" in said or "ninja" in said
    git = "unable to create file" in said or "unable to checkout" in said
    dubious = "dubious ownership" in said
    return {
        "arm": facts.arm is True,
        "not_arm": facts.arm is not True,
        "ninja_long": ninja,
        "not_ninja_long": not ninja,
        "git_long": git and not ninja,
        "not_git_long": not git,
        "not_dubious": not dubious,
        "nvcc_input": "single input file" in said,
        "cl_speaks": facts.reads_cl is True,
        "cl_silent": facts.reads_cl is not True,
        "policy": re.search(r"(?i)policy|Device Guard|4551|1260", said) is not None,
    }


def _of_shell(said: str) -> dict[str, bool]:
    found = {name: re.search(pattern, said) is not None for name, pattern in _SHELL.items()}
    return found | {"says_else": not any(found.values())}
