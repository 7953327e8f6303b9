"""Feeds hostile files to the readers and counts: crashes, wrong answers, files over budget.

    python -m tools.hostile --count 10000 [--only elf --only zip] [--seed 1] [--stop]

The budget is 1 s of processor time plus 1 s per 10 MB, and 100 MB plus four times the file. A file is known by its
reader, the seed and its number; `--number N` makes and reads just that one.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from rekindle.core.errors import RekindleError
from tools.hostile.readers import READERS, Fault, Reader

# A file that has taken so many times what it may take is given up, in processor time.
_PATIENCE = 2
_MEMORY = 6 << 30


class _Late(BaseException):
    pass


def main() -> int:
    words = _words()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGPROF, _late)
    faulthandler.enable()
    names = words.only or list(READERS)
    wrong = 0
    for name in names:
        wrong += _run(name, READERS[name], words)
        if wrong and words.stop:
            break
    return int(wrong > 0)


def _run(name: str, reader: Reader, words: argparse.Namespace) -> int:
    begun = time.monotonic()
    refused = read = wrong = 0
    slowest, which = 0.0, 0
    count = words.total * reader.share // sum(each.share for each in READERS.values()) if words.total else words.count
    numbers = [words.number] if words.number is not None else range(count)
    for number in numbers:
        data = reader.make(random.Random(f"{name} {words.seed} {number}"))
        problem, answered, seconds = _one(reader, data)
        slowest, which = max((slowest, which), (seconds - len(data) / 10e6, number))
        read += answered
        refused += not answered
        if problem:
            wrong += 1
            print(f"{name}: file {number} of seed {words.seed} ({len(data)} bytes): {problem}", flush=True)
            if words.stop:
                break
    took = time.monotonic() - begun
    print(
        f"{name}: {read + refused} files, {read} read, {refused} refused, {wrong} wrong, "
        f"slowest {slowest:.2f} s (file {which}), {took:.0f} s", flush=True,
    )  # fmt: skip
    return wrong


def _one(reader: Reader, data: bytes) -> tuple[str | None, bool, float]:
    """What is wrong, whether it was read, and the processor time."""
    _forget_peak()
    now = _memory("VmRSS")
    limit = 1 + len(data) / 10e6
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE * limit)
    begun = time.process_time()
    problem, answered = None, False
    try:
        reader.read(data)
        answered = True
    except RekindleError as error:
        problem = None if error.message and error.hint else "an error without a hint"
    except Fault as fault:
        problem = f"WRONG: {fault}"
    except _Late:
        problem = "TIME: it was ended"
    except MemoryError:
        problem = "MEMORY: none left"
    except BaseException as error:
        problem = f"CRASH: {type(error).__name__}: {str(error)[:120]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - begun
    grown = _memory("VmHWM") - now
    if problem is None and seconds > limit:
        problem = f"TIME: {seconds:.2f} s, allowed are {limit:.2f} s"
    if problem is None and grown > 100e6 + 4 * len(data):
        problem = f"MEMORY: {grown / 1e6:.0f} MB, allowed are {100 + 4 * len(data) / 1e6:.0f} MB"
    return problem, answered, seconds


def _forget_peak() -> None:
    """Linux counts the peak anew from here: making the file may have taken more than reading it does."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory(field: str) -> int:
    """What this process takes now (`VmRSS`) and has taken at most (`VmHWM`), in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _late(number: int, frame: FrameType | None) -> None:
    raise _Late


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.hostile")
    parser.add_argument("--count", type=int, default=1000, help="files for each reader")
    parser.add_argument("--total", type=int, help="files for all readers together, by their shares")
    parser.add_argument("--only", action="append", choices=list(READERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, help="only this file")
    parser.add_argument("--stop", action="store_true", help="stop at the first file that is wrong")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
