# Runs inside the environment that is verified: nothing but the standard library and torch, and nothing newer than
# Python 3.7. One line of JSON before and one after each check, so that a crash or a hang tells where it was.
from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

MARK = "rekindle-verify: "


def beside(name: str) -> Any:
    """A module that lies beside this script, by its path: the folder itself must not be searched for modules."""
    spec = importlib.util.spec_from_file_location(name, __file__[: -len("ask_torch.py")] + name + ".py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


checks = beside("ask_torch_checks")


def main(words: list[str]) -> None:
    if words[0] == "facts":
        facts()
    elif words[0] == "import":
        modules(words[1:])
    elif words[0] == "card":
        card(int(words[1]))
    elif words[0] == "launch":
        launch(int(words[1]))
    elif words[0] == "bench":
        bench(int(words[1]), float(words[2]), float(words[3]))
    elif words[0] == "together":
        together(int(words[1]))


def tell(**what: Any) -> None:
    sys.stdout.write(MARK + json.dumps(what) + "\n")
    sys.stdout.flush()


def facts() -> None:
    begun = time.perf_counter()
    tell(begin="import")
    try:
        import torch
    except BaseException as error:
        tell(id="import", ok=False, found=f"{type(error).__name__}: {error}")
        return
    seconds = time.perf_counter() - begun
    tell(
        id="import",
        ok=True,
        found=f"torch {torch.__version__} was imported in {seconds:.1f} s",
        seconds=seconds,
        facts=known(torch),
    )
    run("cpu", checks.cpu, torch)
    run("numpy", checks.numpy_bridge, torch)


def modules(names: list[str]) -> None:
    """A wheel that is not torch: only whether what it brings can be imported."""
    begun = time.perf_counter()
    tell(begin="import")
    try:
        for name in names:
            importlib.import_module(name)
    except BaseException as error:
        tell(id="import", ok=False, found=f"{name}: {type(error).__name__}: {error}")
        return
    seconds = time.perf_counter() - begun
    tell(id="import", ok=True, found=f"{', '.join(names)} imported in {seconds:.1f} s", seconds=seconds)


def known(torch: Any) -> dict[str, Any]:
    config = getattr(torch, "__config__", None)
    cards = []
    problem = None
    try:
        available = torch.cuda.is_available()
        if available:
            for index in range(torch.cuda.device_count()):
                properties = torch.cuda.get_device_properties(index)
                cards.append(
                    {
                        "index": index,
                        "name": properties.name,
                        "capability": f"{properties.major}.{properties.minor}",
                        "memory": properties.total_memory,
                        "multiprocessors": properties.multi_processor_count,
                        "clock": getattr(properties, "clock_rate", None),
                    }
                )
        elif torch.version.cuda:
            try:
                torch.cuda.init()
            except Exception as error:
                problem = str(error)
    except Exception as error:
        available, problem = False, str(error)
    cudnn = torch.backends.cudnn
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "git": getattr(torch.version, "git_version", None),
        "file": torch.__file__,
        "config": config.show() if config else "",
        "parallel": config.parallel_info() if config and hasattr(config, "parallel_info") else "",
        "cuda_available": available,
        "cuda_problem": problem,
        "arch_list": torch.cuda.get_arch_list() if hasattr(torch.cuda, "get_arch_list") and available else [],
        "cards": cards,
        "cudnn": cudnn.version() if available and cudnn.is_available() else None,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }


def card(index: int) -> None:
    import torch

    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    for name, check in checks.CHECKS:
        run(name, check, torch, device)


def launch(index: int) -> None:
    """The first kernel alone, for a process in which the driver may not compile PTX."""
    import torch

    run("launch", checks.first_launch, torch, torch.device("cuda", index))


def bench(index: int, single: float, half: float) -> None:
    """How fast it is, in TFLOPS; `single` and `half` are the card's nominal rates, 0 where they are not known."""
    import torch

    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    run("bench-fp32", checks.bench_product, torch, device, torch.float32, single, "single precision")
    run("bench-fp16", checks.bench_product, torch, device, torch.float16, half or single, "half precision")
    run("bench-conv", checks.bench_convolution, torch, device, single)


def together(count: int) -> None:
    import torch

    run("peer-copy", checks.peer_copy, torch, count)
    run("all-reduce", checks.all_reduce, torch, count)


def run(name: str, check: Callable[..., str], *given: Any) -> None:
    tell(begin=name)
    begun = time.perf_counter()
    try:
        found = check(*given)
        ok: bool | None = True
    except checks.Wrong as error:
        found, ok = str(error), False
    except checks.NotHere as error:
        found, ok = str(error), None
    except Exception as error:
        found, ok = "{}: {}".format(type(error).__name__, str(error).strip().split("\n")[0][:300]), False
    tell(id=name, ok=ok, found=found, seconds=time.perf_counter() - begun)


if __name__ == "__main__":
    # Not the folder of this script: what lies beside it is Rekindle's, and none of it is meant.
    sys.path = [folder for folder in sys.path[1:] if folder]
    main(sys.argv[1:])
