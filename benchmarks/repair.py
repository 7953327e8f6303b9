"""`rekindle repair --add` of three libraries against `cp`, and against `wheel unpack` + `wheel pack`.

Takes the torch 2.7.1 Linux wheel (821 MB) and three real libraries from the package index. Both sides end with fsync,
neither may share blocks with its source. Prints medians and peak memory; ends with 1 if a limit is not held.

    python benchmarks/repair.py [--unpack]
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import artefacts

LINUX = "manylinux_2_28_x86_64"
LIBRARIES = (
    ("mkl==2025.3.0", "libmkl_intel_thread.so.2"),
    ("intel-openmp==2025.3.1", "libiomp5.so"),
    ("nvidia-cuda-cupti-cu11==11.7.101", "libcupti.so.11.7"),
)


def main() -> int:
    wheel = artefacts.wheel("torch==2.7.1", platform=LINUX)
    with tempfile.TemporaryDirectory(dir=os.environ.get("REKINDLE_BENCH_DIR")) as folder:
        place = Path(folder)
        libraries = [_library(requirement, name, place) for requirement, name in LIBRARIES]
        command = [sys.executable, "-m", "rekindle", "repair", str(wheel), "-o", str(place / "out")]
        for library in libraries:
            command += ["--add", str(library)]
        _copy(wheel, place / "copy.whl")
        copied, repaired = [], []
        for _ in range(5):
            copied.append(_timed(lambda: _copy(wheel, place / "copy.whl"), place))
            repaired.append(_timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), place))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        cp, own = statistics.median(copied), statistics.median(repaired)
        total = sum(library.stat().st_size for library in libraries) / 1e6
        print(f"wheel {wheel.stat().st_size / 1e6:.0f} MB, three libraries of {total:.1f} MB")
        print(f"cp + fsync              {cp:7.2f} s")
        print(f"rekindle repair --add   {own:7.2f} s  {own / cp:.2f} x cp, peak {peak:.0f} MB")
        good = own <= 3 * cp and peak < 300
        if "--unpack" in sys.argv:
            again = _unpack_and_pack(wheel, libraries, place)
            print(f"wheel unpack + pack     {again:7.2f} s  {again / own:.0f} x rekindle")
            good = good and again >= 40 * own
    return int(not good)


def _library(requirement: str, name: str, place: Path) -> Path:
    wheel = artefacts.wheel(requirement, platform="manylinux1_x86_64" if "cupti" in requirement else LINUX)
    with zipfile.ZipFile(wheel) as zipped:
        member = next(info for info in zipped.infolist() if info.filename.endswith("/" + name))
        target = place / name
        target.write_bytes(zipped.read(member))
    return target


def _copy(source: Path, target: Path) -> None:
    reflink = ["--reflink=never"] if sys.platform == "linux" else []
    subprocess.run(["cp", *reflink, str(source), str(target)], check=True)
    subprocess.run(["sync", str(target)], check=True)


def _timed(action: Callable[[], object], place: Path) -> float:
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "copy.whl").unlink(missing_ok=True)
    os.sync()
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _unpack_and_pack(wheel: Path, libraries: list[Path], place: Path) -> float:
    begun = time.perf_counter()
    tool = [sys.executable, "-m", "wheel"]
    subprocess.run([*tool, "unpack", str(wheel), "-d", str(place / "un")], check=True, stdout=subprocess.DEVNULL)
    root = next((place / "un").iterdir())
    for library in libraries:
        shutil.copy(library, root / "torch" / "lib")
    subprocess.run([*tool, "pack", str(root), "-d", str(place / "un")], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
