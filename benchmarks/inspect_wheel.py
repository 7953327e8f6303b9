"""How fast `rekindle inspect` reads GPU code, against cuobjdump and against merely inflating the wheel.

    python benchmarks/inspect_wheel.py [--wheel TORCH_WHEEL] [--cuobjdump PROGRAM]

Without arguments the torch 2.7.1 wheel for Linux and the package nvidia-cuda-cuobjdump are fetched through pip. Each
figure is the best of several runs. Goals: on libtorch_cuda.so at least 100 times faster than `cuobjdump --list-elf` and
`--list-ptx`; from the wheel at most 1.1 times the time of inflating its binary members once; under 300 MB of memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from isal import isal_zlib

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from rekindle.formats import fatbin  # noqa: E402
from rekindle.formats.access import File  # noqa: E402
from rekindle.formats.archive import Archive  # noqa: E402
from rekindle.formats.binary import is_binary  # noqa: E402

LIBRARY = "torch/lib/libtorch_cuda.so"
MEMORY = """
import resource, sys
from rekindle.wheels.inspect.inspection import inspect
inspect(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--cuobjdump")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = options.wheel or fetched("torch==2.7.1", platform="manylinux_2_28_x86_64")
        tool = options.cuobjdump or unpacked_tool(folder)
        library_figures(wheel, tool, folder, options.repeat)
        wheel_figures(wheel, options.repeat)


def library_figures(wheel: Path, tool: str, folder: Path, repeat: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(LIBRARY, folder))

    def scan() -> None:
        with File(path) as file:
            fatbin.scan(file)

    ours = best(scan, repeat + 2)
    listing = [best(partial(run, [tool, option, str(path)]), repeat) for option in ("--list-elf", "--list-ptx")]
    print(f"{LIBRARY.rpartition('/')[2]}, {path.stat().st_size / 1e6:.0f} MB, unpacked")
    show("rekindle, all containers", ours)
    show("cuobjdump --list-elf", listing[0])
    show("cuobjdump --list-ptx", listing[1])
    verdict("times faster", sum(listing) / ours, 100, at_least=True)


def wheel_figures(wheel: Path, repeat: int) -> None:
    def inflate() -> None:
        with File(wheel) as file:
            archive = Archive(file)
            for member in archive.members.values():
                if is_binary(member.name):
                    stream = isal_zlib.decompressobj(-15)
                    for block in archive.raw(member):
                        while block:
                            stream.decompress(block, 4 << 20)
                            block = stream.unconsumed_tail

    command = [sys.executable, "-m", "rekindle", "inspect", str(wheel), "--json"]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    # Taken turn about: on a busy machine both then meet the same neighbours.
    pairs = [(timed(inflate), timed(lambda: run(command, environment))) for _ in range(repeat)]
    plain, whole = min(a for a, _ in pairs), min(b for _, b in pairs)
    print(f"\n{wheel.name}, {wheel.stat().st_size / 1e6:.0f} MB")
    show("inflating its binary members once (isal)", plain)
    show("rekindle inspect, the whole command", whole)
    verdict("times inflating", whole / plain, 1.1, at_least=False)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(wheel)], env=environment, capture_output=True, text=True, check=True
    )
    verdict("MB of memory at most", int(done.stdout) * 1024 / 1e6, 300, at_least=False)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def best(work: Callable[[], object], repeat: int) -> float:
    return min(timed(work) for _ in range(repeat))


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def show(what: str, seconds: float) -> None:
    print(f"  {what:<44}{seconds:8.2f} s")


def verdict(what: str, value: float, goal: float, *, at_least: bool) -> None:
    met = value >= goal if at_least else value <= goal
    print(f"  {what:<44}{value:8.2f}   goal {'>=' if at_least else '<='} {goal:g}: {'met' if met else 'NOT MET'}")


def fetched(requirement: str, platform: str | None = None) -> Path:
    from support.artefacts import wheel

    return wheel(requirement, platform=platform)


def unpacked_tool(folder: Path) -> str:
    with zipfile.ZipFile(fetched("nvidia-cuda-cuobjdump")) as archive:
        archive.extractall(folder / "tool")
    path = next((folder / "tool").rglob("bin/cuobjdump*"))
    path.chmod(0o755)
    return str(path)


if __name__ == "__main__":
    main()
