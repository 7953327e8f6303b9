# Runs inside the environment that is verified: the standard library and torch, nothing newer than Python 3.7. Takes
# PyTorch's own table of operators (OpInfo, which is part of the wheel) and computes each on the card and on the CPU.
# One line of JSON per answer, and one before each operator, so that a crash tells where it was.
from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

MARK = "rekindle-verify: "
DTYPES = ("float32", "float16", "int64", "bool", "complex64")
# As PyTorch's own comparison of CPU and GPU (`test_compare_cpu`); a half has eleven bits.
TOLERANCE = {"float32": 1e-3, "complex64": 1e-3, "float16": 2e-2}
SAMPLES = 6
UNDEFINED = ("empty", "new_empty", "empty_like", "resize_", "resize_as_")
POISONED = ("illegal memory access", "device-side assert", "unspecified launch failure", "misaligned address")


def main(words: list[str]) -> None:
    device, seconds, only = words[0], float(words[4]), set(words[5:])
    share, shares, first = (int(word) for word in words[1:4])
    table = _table()
    if table is None:
        return
    import torch

    _without_tf32(torch)
    mine = [op for number, op in enumerate(table) if number % shares == share and (not only or op.name in only)]
    _tell(table=len(table), share=len(mine))
    begun = time.monotonic()
    for number, op in enumerate(mine):
        if number < first:
            continue
        if time.monotonic() - begun > seconds:
            for left in mine[number:]:
                _tell(op=_name(left), result="not reached", why="the time limit was reached")
            return
        _tell(begin=number, op=_name(op))
        try:
            _operator(torch, op, device)
        except _Poisoned as error:
            _tell(poisoned=number, op=_name(op), why=str(error))
            return
    _tell(end=len(mine))


def _without_tf32(torch: Any) -> None:
    """A torch without cuDNN, or one without CUDA, has nothing to switch off."""
    for place in ("backends.cuda.matmul", "backends.cudnn"):
        try:
            target = torch
            for word in place.split("."):
                target = getattr(target, word)
            target.allow_tf32 = False
        except (AttributeError, RuntimeError, AssertionError):
            continue


class _Poisoned(Exception):
    """After this no call in this process can succeed."""


def _table() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    except Exception as error:
        _tell(table=0, problem=f"{type(error).__name__}: {error}"[:300])
        return None
    return op_db


def _operator(torch: Any, op: Any, device: str) -> None:
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in op.supported_dtypes(device):
            _answer(op, name, "forward", "skipped", "not for this type")
            continue
        if op.name.rpartition(".")[2] in UNDEFINED:
            _answer(op, name, "forward", "skipped", "the result is not initialised")
            continue
        if _seeded(op):
            _answer(op, name, "forward", "skipped", "random")
            continue
        backward = name in TOLERANCE and op.supports_autograd and dtype in set(op.supported_backward_dtypes(device))
        _forward_and_backward(torch, op, name, device, backward)


def _seeded(op: Any) -> bool:
    """OpInfo seeds the generator before a random operator; the card's generator gives other numbers all the same."""
    code = getattr(op.op, "__code__", None)
    return code is not None and "wrapper_set_seed" in code.co_names


def _forward_and_backward(torch: Any, op: Any, name: str, device: str, backward: bool) -> None:
    # Of a half the reference is computed in float32: the CPU has few operators for it.
    base = torch.float32 if name == "float16" else getattr(torch, name)
    if base not in op.supported_dtypes("cpu"):
        _answer(op, name, "forward", "skipped", "the CPU has no such operator to compare with")
        return
    try:
        torch.manual_seed(7)
        samples = _spread(list(op.sample_inputs("cpu", base, requires_grad=backward)))
    except Exception as error:
        _answer(op, name, "forward", "skipped", f"no sample: {_short(error)}")
        return
    if not samples:
        _answer(op, name, "forward", "skipped", "no sample")
        return
    if name == "float16":
        samples = [_as_halves(torch, sample) for sample in samples]
    for part in ("forward", "backward") if backward else ("forward",):
        result, why = _compared(torch, op, name, samples, device, part == "backward")
        _answer(op, name, part, result, why)


def _as_halves(torch: Any, sample: Any) -> Any:
    """The same sample with numbers that a half can hold: card and CPU must be given the same."""

    def rounded(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype is not torch.float32:
                return value
            return value.detach().to(torch.float16).to(torch.float32).requires_grad_(value.requires_grad)
        if isinstance(value, (list, tuple)):
            return type(value)([rounded(one) for one in value]) if type(value) in (list, tuple) else value
        if isinstance(value, dict):
            return {key: rounded(one) for key, one in value.items()}
        return value

    sample.input, sample.args, sample.kwargs = rounded(sample.input), rounded(sample.args), rounded(sample.kwargs)
    return sample


def _spread(samples: list[Any]) -> list[Any]:
    if len(samples) <= SAMPLES:
        return samples
    return [samples[number * (len(samples) - 1) // (SAMPLES - 1)] for number in range(SAMPLES)]


def _compared(torch: Any, op: Any, name: str, samples: list[Any], device: str, backward: bool) -> tuple[str, str]:
    done = 0
    why = "no sample could be computed on the CPU"
    for sample in samples:
        try:
            wanted = _computed(torch, op, sample, "cpu", None, backward, seed=1)
            again = _computed(torch, op, sample, "cpu", None, backward, seed=2)
        except Exception as error:
            why = f"the CPU: {_short(error)}"
            continue
        if wanted is None:
            why = "no gradient"
            continue
        if not _same(torch, wanted, again, name, exact=True)[0]:
            return "skipped", "random"
        try:
            dtype = torch.float16 if name == "float16" else None
            got = _computed(torch, op, sample, device, dtype, backward, seed=1)
            if device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            text = _short(error)
            if any(word in text for word in POISONED):
                raise _Poisoned(text) from error
            return "failed", f"raised {text}"
        same, difference = _same(torch, wanted, got, name, exact=False)
        if not same:
            return "failed", f"differs: {difference}"
        done += 1
    return ("passed", f"{done} samples") if done else ("skipped", why)


def _computed(torch: Any, op: Any, sample: Any, device: str, dtype: Any, backward: bool, seed: int) -> Any:
    torch.manual_seed(seed)
    moved = _moved(torch, (sample.input, sample.args, sample.kwargs), device, dtype)
    first, args, kwargs = moved
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not backward:
            with torch.no_grad():
                return _leaves(torch, sample.output_process_fn_grad(op(first, *args, **kwargs)))
        leaves = [one for one in _leaves(torch, moved) if one.requires_grad]
        out = _leaves(torch, sample.output_process_fn_grad(op(first, *args, **kwargs)))
        out = [one for one in out if one.requires_grad]
        if not leaves or not out:
            return None
        generator = torch.Generator().manual_seed(3)
        ones = [torch.rand(one.shape, generator=generator).to(device=device, dtype=one.dtype) for one in out]
        return [g for g in torch.autograd.grad(out, leaves, ones, allow_unused=True) if g is not None]


def _moved(torch: Any, value: Any, device: str, dtype: Any) -> Any:
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone() if device == "cpu" else value.detach().to(device)
        if dtype is not None and copy.dtype is torch.float32:
            copy = copy.to(dtype)
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, torch.device):
        return torch.device(device)
    if dtype is not None and value is torch.float32:
        return dtype
    if isinstance(value, (list, tuple)):
        moved = [_moved(torch, one, device, dtype) for one in value]
        return moved if isinstance(value, list) else tuple(moved)
    if isinstance(value, dict):
        return {
            key: device if key == "device" and isinstance(one, str) else _moved(torch, one, device, dtype)
            for key, one in value.items()
        }
    return value


def _leaves(torch: Any, value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in _leaves(torch, one)]
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in _leaves(torch, one)]
    if isinstance(value, (bool, int, float, complex)):
        return [torch.tensor(value)]
    return []


def _same(torch: Any, wanted: Any, got: Any, name: str, exact: bool) -> tuple[bool, str]:
    if got is None or len(wanted) != len(got):
        return False, "another number of results"
    tolerance = 0.0 if exact else TOLERANCE.get(name, 1e-3)
    for one, other in zip(wanted, got):  # noqa: B905 (Python 3.7)
        other = _plain(torch, other)
        one = _plain(torch, one)
        same_kind = one.is_floating_point() == other.is_floating_point() and one.is_complex() == other.is_complex()
        if one.dtype != other.dtype and name == "float16" and same_kind and one.is_floating_point() | one.is_complex():
            other = other.to(one.dtype)
        try:
            torch.testing.assert_close(
                other, one, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False, check_device=False
            )
        except (AssertionError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            return False, _short(error)
    return True, ""


def _plain(torch: Any, tensor: Any) -> Any:
    tensor = tensor.detach()
    tensor = tensor.resolve_conj() if hasattr(tensor, "resolve_conj") else tensor
    return tensor.cpu()


def _name(op: Any) -> str:
    return f"{op.name}:{op.variant_test_name}" if op.variant_test_name else str(op.name)


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[:4])}"[:240]


def _answer(op: Any, dtype: str, part: str, result: str, why: str) -> None:
    _tell(op=_name(op), dtype=dtype, part=part, result=result, why=why)


def _tell(**what: Any) -> None:
    sys.stdout.write(MARK + json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Files of the folder this lies in are not the environment's.
    sys.path = [path for path in sys.path if path and path != sys.path[0]]
    main(sys.argv[1:])
