"""Run the PTX of program.cu on the card of this machine, kernel by kernel, and compare each answer with the CPU's.

Needs Python and NVIDIA's driver, no toolkit and no compiler: the driver compiles the PTX for whatever card it finds.

    nvcc -ptx -arch=compute_61 … program.cu -o program.ptx
    python run_ptx.py program.ptx

Exit code 0: all right; 1: a wrong answer; 2: no card, or a driver that refuses the PTX. With --spoil the square root in
the PTX is replaced by a negation first: then DeviceSqrt.cuh, and only that, has to fail, and 0 says that it did.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import re
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

N = 256
_IN = [(i * 37) % N / N for i in range(N)]  # exact in binary: sums do not depend on their order
_WORDS = [2654435761 * i % 2**32 for i in range(N)]
_LOG = 8192
_SPOILED = "DeviceSqrt.cuh"


class NoAnswerError(Exception):
    """The driver did not do what it was asked."""


class Card:
    """The first card, through the driver's own library."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError as error:
            raise NoAnswerError(f"no driver: {error}") from error
        self._ask("cuInit", 0)
        device = ctypes.c_int()
        self._ask("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(128)
        self._ask("cuDeviceGetName", name, 128, device)
        major, minor, driver = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._ask("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self._ask("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        self._ask("cuDriverGetVersion", ctypes.byref(driver))
        context = ctypes.c_void_p()
        self._ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._ask("cuCtxSetCurrent", context)
        self.words = f"{name.value.decode()}, {major.value}.{minor.value}, driver API {driver.value}"
        self._module = ctypes.c_void_p()

    def _ask(self, function: str, *values: object) -> None:
        found = getattr(self._cuda, function)(*values)
        if found:
            said = ctypes.c_char_p()
            self._cuda.cuGetErrorName(found, ctypes.byref(said))
            raise NoAnswerError(f"{function}: {(said.value or b'').decode() or found}")

    def load(self, ptx: str) -> None:
        log = ctypes.create_string_buffer(_LOG)
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG)
        try:
            self._ask("cuModuleLoadDataEx", ctypes.byref(self._module), ptx.encode() + b"\0", 2, options, values)
        except NoAnswerError as error:
            raise NoAnswerError(f"{error}: {log.value.decode(errors='replace').strip()}") from error

    def launch(self, entry: str, threads: int, given: Sequence[bytes | int]) -> list[bytes]:
        """What the kernel left in each of its outputs. An int asks for an output of that many bytes, zeroed; bytes that
        begin with `VALUE` are handed over as they are, other bytes as a pointer to them.
        """
        function = ctypes.c_void_p()
        self._ask("cuModuleGetFunction", ctypes.byref(function), self._module, entry.encode())
        held: list[ctypes.Array[ctypes.c_char]] = []
        outputs: list[tuple[ctypes.c_uint64, int]] = []
        pointers: list[ctypes.c_uint64] = []
        for value in given:
            if isinstance(value, bytes) and value.startswith(VALUE):
                held.append(ctypes.create_string_buffer(value[len(VALUE) :]))
                continue
            data = bytes(value) if isinstance(value, int) else value
            pointer = ctypes.c_uint64()
            self._ask("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(len(data)))
            self._ask("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))
            pointers.append(pointer)
            held.append(ctypes.create_string_buffer(struct.pack("<Q", pointer.value)))
            if isinstance(value, int):
                outputs.append((pointer, value))
        parameters = (ctypes.c_void_p * len(held))(*(ctypes.addressof(one) for one in held))
        self._ask("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, None, parameters, None)
        self._ask("cuCtxSynchronize")
        answers = []
        for pointer, size in outputs:
            answer = ctypes.create_string_buffer(size)
            self._ask("cuMemcpyDtoH_v2", answer, pointer, ctypes.c_size_t(size))
            answers.append(answer.raw)
        for pointer in pointers:
            self._ask("cuMemFree_v2", pointer)
        return answers


VALUE = b"by value:"


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _unsigned(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _read(kind: str, answer: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(answer) // struct.calcsize(kind)}{kind}", answer)


def _divider(by: int) -> bytes:
    """IntDivider<unsigned>: divisor, magic number, shift, as its constructor makes them on the CPU."""
    shift = next(shift for shift in range(32) if 1 << shift >= by)
    return struct.pack("<3I", by, (2**32 * ((1 << shift) - by)) // by + 1, shift)


def _votes(i: int) -> int:
    return sum(_IN[lane] > 0.5 for lane in range(i - i % 32, i - i % 32 + 32))


def _bits(found: list[bytes]) -> bool:
    return list(_read("I", found[0])) == [(word >> 3 & 31) * 64 + i % 32 for i, word in enumerate(_WORDS)]


def _sums(found: list[bytes]) -> bool:
    total = sum(_IN)
    return (_read("f", found[0])[0], _read("d", found[1])[0], _read("e", found[2])[0]) == (total, total, N * 0.25)


def _neighbours(found: list[bytes]) -> bool:
    return list(_read("f", found[0])) == [_IN[i if i % 32 == 31 else i + 1] + _votes(i) for i in range(N)]


def _limits(found: list[bytes]) -> bool:
    most = (2 - 2**-23) * 2.0**127
    return _read("f", found[0]) == (most, -most)


def _prefix(found: list[bytes]) -> bool:
    return list(_read("i", found[0])) == [sum(value > 0.5 for value in _IN[: i + 1]) for i in range(N)]


def _roots(found: list[bytes]) -> bool:
    return all(abs(root - math.sqrt(value)) <= 1e-6 for root, value in zip(_read("f", found[0]), _IN, strict=True))


def _divided(found: list[bytes]) -> bool:
    wanted = [((word >> 1) // 77 * 1000 + (word >> 1) % 77) % 2**32 for word in _WORDS]
    return list(_read("I", found[0])) == wanted


def _packed(found: list[bytes]) -> bool:
    return _read("e", found[0]) == (43.0, 42.5, 42.5, 0.0)


def _order(found: list[bytes]) -> bool:
    keys = _read("I", found[0])
    by_key, by_value = (sorted(range(N), key=values.__getitem__) for values in (keys, _IN))
    return 0 not in keys and len(set(keys)) == len(set(_IN)) == N and by_key == by_value


def _total(found: list[bytes]) -> bool:
    return _read("f", found[0])[0] == sum(_IN)


Row = tuple[str, str, int, Sequence[bytes | int], Callable[[list[bytes]], bool]]
_IN_BYTES, _WORD_BYTES = _floats(_IN), _unsigned(_WORDS)
_ROWS: tuple[Row, ...] = (
    ("AsmUtils.cuh", "bits", N, (_WORD_BYTES, 4 * N), _bits),
    ("Atomic.cuh", "sums", N, (_IN_BYTES, 4, 8, 8), _sums),
    ("DeviceUtils.cuh", "neighbours", N, (_IN_BYTES, 4 * N), _neighbours),
    ("NumericLimits.cuh", "limits", 1, (8,), _limits),
    ("ScanUtils.cuh", "prefix", N, (_IN_BYTES, 4 * N), _prefix),
    ("DeviceSqrt.cuh", "roots", N, (_IN_BYTES, 4 * N), _roots),
    ("IntegerDivider.cuh", "divided", N, (_WORD_BYTES, VALUE + _divider(77), 4 * N), _divided),
    ("KernelUtils.cuh", "packed", N, (8,), _packed),
    ("SortingRadixSelect.cuh", "order", N, (_IN_BYTES, 4 * N), _order),
    ("block_reduce.cuh", "total", N, (_IN_BYTES, 4), _total),
)


def main(arguments: list[str]) -> int:
    spoil = "--spoil" in arguments
    named = [argument for argument in arguments if argument != "--spoil"]
    if len(named) != 1:
        print(__doc__)
        return 2
    data = Path(named[0]).read_bytes()
    ptx = data.decode("ascii")
    target = re.search(r"^\.target (\S+)", ptx, re.MULTILINE)
    entries = re.findall(r"\.visible \.entry (_Z(\d+)(\w+))\(", ptx)
    symbols = {rest[: int(length)]: symbol for symbol, length, rest in entries}
    if spoil:
        ptx = ptx.replace("sqrt.rn.f32", "neg.f32")
    try:
        card = Card()
        print(f"{card.words}; PTX for {target[1] if target else '?'}, SHA-256 {hashlib.sha256(data).hexdigest()}")
        card.load(ptx)
        failed = []
        for header, kernel, threads, given, right in _ROWS:
            passed = right(card.launch(symbols[kernel], threads, given))
            print(f"{'PASS' if passed else 'FAIL'} {header} ({kernel})", flush=True)
            if not passed:
                failed.append(header)
    except NoAnswerError as error:
        print(error)
        return 2
    if spoil:
        return 0 if failed == [_SPOILED] else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
