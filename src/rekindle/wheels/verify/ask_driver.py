"""Asks the driver to compile containers of PTX, each once, into its cache; run by the interpreter of the trial.

Usage: ask_driver.py LISTING SHARE SHARES SECONDS. The listing is JSON: `[file, offset, size]` for each container.
Nothing of Rekindle is imported: the interpreter is another environment's.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time
from pathlib import Path

MARK = "rekindle-verify: "


def say(**words: object) -> None:
    print(MARK + json.dumps(words), flush=True)


def main(listing: str, share: int, shares: int, seconds: float) -> int:
    begun = time.monotonic()
    with Path(listing).open(encoding="utf-8") as stream:
        # The largest first, dealt out in turn: the processes end at about the same time.
        found = sorted(json.load(stream), key=lambda one: -one[2])[share::shares]
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for code in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)):
        if code:
            say(problem=f"the driver does not start: error {code}")
            return 1
    driver.cuCtxSetCurrent(context)
    for number, (file, offset, size) in enumerate(found):
        if time.monotonic() - begun > seconds:
            say(left=len(found) - number)
            return 0
        with Path(file).open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as data:
            image = ctypes.create_string_buffer(data[offset : offset + size], size)
        module = ctypes.c_void_p()
        started = time.monotonic()
        code = driver.cuModuleLoadData(ctypes.byref(module), image)
        say(offset=offset, error=code, seconds=round(time.monotonic() - started, 2))
        if not code:
            driver.cuModuleUnload(module)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
