"""`rekindle repair --add` of three libraries against `cp`, and against `wheel unpack` + `wheel pack`.

Takes the torch 2.7.1 Linux wheel (821 MB) and three real libraries from the package index. Both sides end with fsync,
neither may share blocks with its source. Prints medians and peak memory; ends with 1 if a limit is not held.

    python benchmarks/repair.py                 --add against cp: at most 3 times as long, under 300 MB
    python benchmarks/repair.py --unpack        and against `wheel unpack` + `wheel pack`: 40 times faster
    python benchmarks/repair.py --closure       the whole repair against inflating every library once: at most 1.3
    python benchmarks/repair.py --slim          a wheel with NVIDIA's libraries inside, and one that requires them,
                                                beside cp; then one for Windows, beside cp and delvewheel
    python benchmarks/repair.py --peers         the Windows wheel: delvewheel and repairwheel, where installed; each is
                                                ended after REKINDLE_BENCH_LIMIT seconds (900)
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

LIMIT = float(os.environ.get("REKINDLE_BENCH_LIMIT", "900"))


def main() -> int:
    if "--slim" in sys.argv:
        return _slim()
    if "--closure" in sys.argv:
        return _closure()
    if "--peers" in sys.argv:
        return _peers()
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


def _slim() -> int:
    """torchvision: for Linux it carries CUDA's runtime and nvJPEG; for Windows it is what delvewheel is made for."""
    linux = artefacts.wheel("torchvision==0.22.1", platform=LINUX)
    windows = artefacts.wheel("torchvision==0.22.1", platform="win_amd64")
    print(f"load {os.getloadavg()[0]:.1f}; median of five, the files read before")
    with tempfile.TemporaryDirectory(dir=os.environ.get("REKINDLE_BENCH_DIR")) as folder:
        place = Path(folder)
        out = ["-o", str(place / "out")]
        own = [sys.executable, "-m", "rekindle", "repair"]
        print(f"for Linux, {linux.stat().st_size / 1e6:.1f} MB")
        _row("cp + fsync", lambda: _copy(linux, place / "copy.whl"), place)
        _row("rekindle repair --slim", lambda: _quiet([*own, str(linux), "--slim", *out]), place)
        slim = next((place / "out").glob("*.whl")).stat().st_size
        print(f"for Windows, {windows.stat().st_size / 1e6:.1f} MB")
        _row("cp + fsync", lambda: _copy(windows, place / "copy.whl"), place)
        redist = _redist(place)
        _row("rekindle repair", lambda: _quiet([*own, str(windows), "--from", redist, "--no-index", *out]), place)
        if (delvewheel := shutil.which("delvewheel")) is None:
            print("delvewheel                UNVERIFIED: it is not installed here")
        else:
            # It does not know what comes with torch: that is named, so that it has as much to do.
            words = [word for name in _TORCHS for word in ("--exclude", name)] + ["--add-path", redist, "-w", out[1]]
            inside = ["repair", "--ignore-existing", "--analyze-existing"]
            _row("delvewheel repair", lambda: _quiet([delvewheel, *inside, str(windows), *words]), place)
        return int(slim >= linux.stat().st_size)


_TORCHS = ("c10.dll", "c10_cuda.dll", "torch.dll", "torch_cpu.dll", "torch_cuda.dll", "torch_python.dll")


def _quiet(command: list[str]) -> None:
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT)


def _row(name: str, action: Callable[[], object], place: Path) -> None:
    action()
    took, spent = [], []
    for _ in range(5):
        used = _used()
        took.append(_timed(action, place))
        spent.append(_used() - used)
    made = next(iter([*(place / "out").glob("*.whl"), *place.glob("copy.whl")]), None)
    size = f"{made.stat().st_size / 1e6:6.1f} MB" if made else "no wheel came out"
    print(f"  {name:<24} {statistics.median(took):7.2f} s  {statistics.median(spent):6.2f} s of processor  {size}")


def _closure() -> int:
    """Processor time: on a shared machine the clock on the wall tells of the others."""
    wheel = artefacts.wheel("torch==2.7.1", platform=LINUX)
    code = (
        "import sys, pathlib; from rekindle.formats.access import File; from rekindle.formats.archive import Archive; "
        "from rekindle.formats.binary import is_binary; a = Archive(File(pathlib.Path(sys.argv[1]))); "
        "[None for n, m in a.members.items() if is_binary(n) for _ in a.chunks(m)]"
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("REKINDLE_BENCH_DIR")) as folder:
        inflating, repairing = [], []
        for _ in range(3):
            inflating.append(_processor([sys.executable, "-W", "ignore", "-c", code, str(wheel)]))
            repairing.append(_processor([sys.executable, "-m", "rekindle", "repair", str(wheel), "-o", folder]))
    once, own = statistics.median(inflating), statistics.median(repairing)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"inflating every library {once:7.2f} s of processor time")
    print(f"rekindle repair         {own:7.2f} s  {own / once:.2f} x, peak {peak:.0f} MB")
    return int(own > 1.3 * once or peak >= 300)


def _peers() -> int:
    """Only msvcp140.dll is missing; each tool is given the folder that has it."""
    wheel = artefacts.wheel("torch==2.7.1", platform="win_amd64")
    with tempfile.TemporaryDirectory(dir=os.environ.get("REKINDLE_BENCH_DIR")) as folder:
        place = Path(folder)
        redist = _redist(place)
        with zipfile.ZipFile(wheel) as zipped:
            members = [name for name in zipped.namelist() if name.startswith("torch/lib/") and name.endswith(".dll")]
            zipped.extractall(place / "unpacked", members)
        inside = str(place / "unpacked/torch/lib")
        commands = {
            "rekindle": [sys.executable, "-m", "rekindle", "repair", str(wheel), "--from", redist, "--no-index", "-o"],
            "delvewheel": ["delvewheel", "repair", "--ignore-existing", "--analyze-existing", str(wheel), "--add-path",
                           f"{inside}{os.pathsep}{redist}", "-w"],
            "repairwheel": ["repairwheel", str(wheel), "-l", redist, "-l", inside, "-o"],
        }  # fmt: skip
        print(f"{'tool':<12} {'wall':>8} {'processor':>10} {'size':>8}  files")
        before = {info.filename for info in zipfile.ZipFile(wheel).infolist()}
        for name, command in commands.items():
            if shutil.which(command[0]) is None:
                print(f"{name:<12} UNVERIFIED: it is not installed here")
                continue
            target = place / name
            begun = time.perf_counter()
            spent = _used()
            try:
                _processor([*command, str(target)], check=False, limit=LIMIT)
            except subprocess.TimeoutExpired:
                print(f"{name:<12} > {LIMIT:.0f} s {_used() - spent:8.1f} s  it was ended then")
                continue
            took, used = time.perf_counter() - begun, _used() - spent
            made = next(iter(sorted(target.glob("*.whl"))), None)
            if made is None:
                print(f"{name:<12} {took:6.1f} s {used:8.1f} s  no wheel came out")
                continue
            with zipfile.ZipFile(made) as zipped:
                more = len({info.filename for info in zipped.infolist()} - before)
            print(f"{name:<12} {took:6.1f} s {used:8.1f} s {made.stat().st_size / 1e6:5.0f} MB  {more} new files")
    return 0


def _redist(place: Path) -> str:
    """A folder with Microsoft's C++ libraries, which neither tool may take from the air."""
    folder = place / "redist"
    folder.mkdir()
    with zipfile.ZipFile(artefacts.wheel("msvc-runtime==14.44.35112", platform="win_amd64")) as zipped:
        for info in zipped.infolist():
            if info.filename.endswith(("140.dll", "140_1.dll")):
                (folder / Path(info.filename).name).write_bytes(zipped.read(info))
    return str(folder)


def _processor(command: list[str], *, check: bool = True, limit: float | None = None) -> float:
    before = _used()
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit)
    return _used() - before


def _used() -> float:
    """Processor time of the programs that have ended."""
    now = os.times()
    return now.children_user + now.children_system


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
