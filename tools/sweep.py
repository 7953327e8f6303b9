"""Compiles PyTorch's CUDA files for one architecture, file by file, without a build: does this release still compile?

    python tools/sweep.py TREE --cuda DIR --ccbin G++ --arch 3.5 --results FILE [--jobs N] [--also 3.7] [--only WORD]

TREE is a checkout of one release with `third_party/cutlass` and `third_party/fmt`. Each file becomes PTX (nvcc) and
then code (ptxas); nothing is linked. FILE gets one line per file and is read again at the next start, so a sweep goes
on where it stopped. What was not reached is listed as UNVERIFIED. A kernel whose body is empty in the PTX was dropped
by the source for that architecture (`#if __CUDA_ARCH__ >= ...`): it compiles and does nothing; such files are counted.
PyYAML and typing_extensions must be installed: the headers that the files include are written by PyTorch's generator.
`--sample N --seed S` takes N files at random; `--heaviest` begins with the files that took longest in recorded builds.

    python tools/sweep.py TREE --results FILE --row TORCH CUDA PLATFORM

writes what FILE holds into the table `builds/sweeps.json` and into the page that tells of it, and compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "orphaned-cards.md"
# What CMake passes to nvcc in these releases, as far as it changes device code.
FLAGS = (
    *("--expt-relaxed-constexpr", "--expt-extended-lambda", "-Wno-deprecated-gpu-targets"),
    *("-DLIBCUDACXX_ENABLE_SIMPLIFIED_COMPLEX_OPERATIONS", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DCUDA_HAS_FP16=1"),
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-DCUB_WRAPPED_NAMESPACE=at_cuda_detail"),
    *("-DUSE_CUDA", "-DAT_PER_OPERATOR_HEADERS", "-DTORCH_CUDA_BUILD_MAIN_LIB", "-w"),
)
INCLUDES = (
    *("build/aten/src", "aten/src", "build", ".", "third_party/fmt/include", "third_party/cutlass/include"),
    *("third_party/cutlass/tools/util/include", "aten/src/ATen", "torch/csrc"),
)
ROOTS = ("aten/src/ATen", "c10/cuda", "torch/csrc", "build/aten/src/ATen")
# Empty on purpose, on every card: CUB asks the driver with one which code it would run, and Thrust ends the life of
# elements that need no ending.
EMPTY_ON_PURPOSE = re.compile(r"EmptyKernel|allocator_traits_detail5gozer")
# A kernel in an unnamed namespace is neither visible nor weak.
ENTRY = re.compile(r"^(?:\.(?:visible|weak) )?\.entry (\w+)\(.*?^\{(.*?)^\}", re.MULTILINE | re.DOTALL)
# Off in every build for a card this old: tests, and what needs NCCL.
LEFT_OUT = re.compile(r"/test/|/templates/|/distributed/|/hip/")
FIRST = re.compile(r"bfloat|half|atomic|embedding|scatter|index|sort|topk|reduce|scan", re.IGNORECASE)
LAST = re.compile(r"mem_eff_attention|transformers/")


def main() -> int:
    options = _options()
    if options.row:
        return write_row(options)
    if options.prepare:
        prepare(options.tree)
    done = {(row["file"], row["arch"]): row for row in read(options.results)}
    wanted = [name for name in files(options.tree) if re.search(options.only, name)]
    if options.heaviest:
        wanted = heaviest(wanted, options.tree)
    if options.sample:
        wanted = random.Random(options.seed).sample(wanted, min(options.sample, len(wanted)))
    todo = [name for name in wanted if any((name, arch) not in done for arch in (options.arch, *options.also))]
    print(f"{len(done)} done before, {len(todo)} to do", flush=True)
    deadline = time.monotonic() + options.minutes * 60
    with ThreadPoolExecutor(options.jobs) as pool, options.results.open("a", encoding="utf-8") as stream:
        for future in as_completed([pool.submit(compile_one, options, name, deadline) for name in todo]):
            for row in future.result():
                stream.write(json.dumps(row) + "\n")
                stream.flush()
                print(
                    row["arch"], "ok   " if row["ok"] else "FAILS", f"{row['seconds']:6.1f} s", row["file"], flush=True
                )
    return report(options)


def report(options: argparse.Namespace) -> int:
    rows = {(row["file"], row["arch"]): row for row in read(options.results)}
    failed = 0
    for arch in (options.arch, *options.also):
        own = {name: row for (name, of), row in rows.items() if of == arch}
        bad = sorted(name for name, row in own.items() if not row["ok"])
        missing = [name for name in files(options.tree) if name not in own]
        failed += len(bad)
        print(
            f"sm_{arch.replace('.', '')}: {len(own) - len(bad)} compile, {len(bad)} do not, {len(missing)} UNVERIFIED"
        )
        for name in bad:
            print(f"  FAILS {name}: {own[name]['error']}")
        for name in missing:
            print(f"  UNVERIFIED {name}")
    return 1 if failed else 0


def write_row(options: argparse.Namespace) -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from tools.observe import table

    torch, cuda, platform = options.row
    every = files(options.tree)
    rows = table.read("sweeps")["sweeps"] if table.place("sweeps").exists() else []
    for arch in (options.arch, *options.also):
        own = {row["file"]: row for row in read(options.results) if row["arch"] == arch}
        rows = [row for row in rows if (row["torch"], row["cuda"], row["capability"]) != (torch, cuda, arch)]
        rows.append(
            {
                "torch": torch,
                "cuda": cuda,
                "capability": arch,
                "platform": platform,
                "files": len(every),
                "compiled": sum(own.get(name, {}).get("ok", False) for name in every),
                "refused": sorted(name for name in every if own.get(name, {}).get("ok") is False),
                "dropped": emptied(own[name] | {"file": name} for name in every if name in own),
                "seconds": {name: own[name]["seconds"] for name in every if own.get(name, {}).get("ok")},
                "source": f"tools/sweep.py: {_made(options.arch, arch)} of v{torch}'s CUDA files; not linked or run",
                "observed_at": table.today(),
                "evidence": "binary",
            }
        )
    table.write("sweeps", {"sweeps": rows})
    PAGE.write_text(told(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8", newline="\n")
    return 0


def emptied(rows: Iterable[dict[str, Any]]) -> list[str] | None:
    """The files that leave kernels empty. None: not every row names its kernels, so nobody has counted them."""
    kernels = {row["file"]: row.get("dropped") for row in rows}
    if not all(isinstance(names, list) for names in kernels.values()):
        return None
    return sorted(name for name, names in kernels.items() if names)


def told(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with its table of sweeps written anew: what the table of the tool says, a person reads there."""
    lines = []
    for row in rows:
        tried = row["compiled"] + len(row["refused"])
        virtual = re.search(r"the PTX for (\S+) through", row["source"])
        card = f"{row['capability']} (PTX of {virtual[1]})" if virtual else row["capability"]
        dropped = row.get("dropped")
        empty = "not counted" if dropped is None else len(dropped)
        counts = f"{tried} of {row['files']} | {row['compiled']} | {len(row['refused'])} | {empty}"
        lines.append(f"| {row['torch']} | {row['cuda']} | {card} | {counts} |\n")
    return re.sub(r"(\| release \| CUDA \| for .*\n\|[-|]+\n)(?:\|.*\n)*", lambda head: head[1] + "".join(lines), page)


def _made(virtual: str, arch: str) -> str:
    """With `--also` the source was compiled for the first card, and only ptxas knew of the other."""
    return "nvcc to PTX and ptxas" if virtual == arch else f"the PTX for {virtual} through ptxas for {arch}"


def read(results: Path) -> list[dict[str, Any]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def files(tree: Path) -> list[str]:
    """Every CUDA file of the tree: what has to do with half precision and atomics first, attention last."""
    found = {path.relative_to(tree).as_posix() for root in ROOTS for path in (tree / root).rglob("*.cu")}
    return sorted((name for name in found if not LEFT_OUT.search(f"/{name}")), key=_order)


def heaviest(names: list[str], tree: Path) -> list[str]:
    """The same files, the longest compiles of recorded builds first; a file never timed stands by its neighbours."""
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from rekindle.build.progress import weights
    from rekindle.build.progress.weights import Weights

    objects = {f"caffe2/CMakeFiles/torch_cuda.dir/__/{name}.o": name for name in names}
    sizes = {made: (tree / name).stat().st_size for made, name in objects.items()}
    weights = Weights(weights.builds("pytorch")).of(objects, sizes)
    return sorted(names, key=lambda name: -weights[f"caffe2/CMakeFiles/torch_cuda.dir/__/{name}.o"].seconds)


def _order(name: str) -> tuple[bool, bool, str]:
    return bool(LAST.search(name)), not FIRST.search(name), name


def compile_one(options: argparse.Namespace, name: str, deadline: float) -> list[dict[str, Any]]:
    """A row for each architecture; none when the time is up."""
    if time.monotonic() > deadline:
        return []
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "code.ptx"
        environment = {
            **os.environ,
            "PATH": f"{options.cuda / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": folder,
        }
        virtual = f"compute_{options.arch.replace('.', '')}"
        command = [str(options.cuda / "bin" / "nvcc"), "-ccbin", options.ccbin, "-ptx", f"-arch={virtual}"]
        command += [f"-std={options.std}", *FLAGS]
        command += [f"-I{options.tree / folder}" for folder in INCLUDES]
        command += [f"-I{folder}" for folder in options.include]
        began = time.monotonic()
        error = _run([*command, str(options.tree / name), "-o", str(ptx)], environment)
        kernels, dropped = (0, []) if error else counted(ptx.read_text(encoding="utf-8"))
        rows = []
        for arch in (options.arch, *options.also):
            failed = error or _run(_ptxas(options.cuda, arch, ptx), environment)
            seconds = round(time.monotonic() - began, 1)
            row = {"file": name, "arch": arch, "ok": not failed, "seconds": seconds, "error": failed}
            rows.append({**row, "kernels": kernels, "dropped": dropped})
        return rows


def counted(ptx: str) -> tuple[int, list[str]]:
    """How many kernels the PTX holds, and the names of those that do nothing but return or stop."""
    found = ENTRY.findall(ptx)
    return len(found), [name for name, body in found if does_nothing(body) and not EMPTY_ON_PURPOSE.search(name)]


def does_nothing(body: str) -> bool:
    """No instruction but the return, a trap, or the call that reports a failed assertion: nothing is ever stored."""
    lines = [line.strip() for line in body.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("//", ".", "$", "{", "}", "@"))]
    return all(line.startswith(("ret", "trap", "exit", "brkpt", "bra", "mov", "cvta", "ld.param")) for line in lines)


def _ptxas(cuda: Path, arch: str, ptx: Path) -> list[str]:
    number = arch.replace(".", "")
    return [str(cuda / "bin" / "ptxas"), f"-arch=sm_{number}", str(ptx), "-o", str(ptx.with_suffix(f".{number}"))]


def _run(command: list[str], environment: dict[str, str]) -> str:
    """Empty when it worked, else the first line that says error, without the paths of this machine."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=3600)
    if done.returncode == 0:
        return ""
    lines = (done.stderr + done.stdout).splitlines()
    first = next((line for line in lines if re.search(r"error|fatal", line)), lines[0] if lines else "no message")
    return re.sub(r"(?<![\w.])/\S*/(?=[^/\s]+)", "", first)[:400]


def prepare(tree: Path) -> None:
    """Write the headers that configuring would have written: PyTorch's own generator, and the three settings files."""
    generate = ["-m", "torchgen.gen", "--source-path", "aten/src/ATen", "--install_dir", "build/aten/src/ATen"]
    generate += ["--per-operator-headers", "--generate", "sources", "headers"]
    if not (tree / "build/aten/src/ATen/Functions.h").exists():
        subprocess.run([sys.executable, *generate], cwd=tree, check=True)
    settings = (
        ("aten/src/ATen/Config.h.in", "build/aten/src/ATen/Config.h"),
        ("aten/src/ATen/cuda/CUDAConfig.h.in", "build/aten/src/ATen/cuda/CUDAConfig.h"),
        ("c10/macros/cmake_macros.h.in", "build/c10/macros/cmake_macros.h"),
        ("torch/headeronly/macros/cmake_macros.h.in", "build/torch/headeronly/macros/cmake_macros.h"),
        ("c10/cuda/impl/cuda_cmake_macros.h.in", "build/c10/cuda/impl/cuda_cmake_macros.h"),
    )
    for source, target in settings:
        if not (tree / source).exists():  # 2.9 moved one of them
            continue
        text = (tree / source).read_text(encoding="utf-8")
        text = re.sub(r'"@\w+@"', '""', text)
        text = re.sub(r"@AT_PARALLEL_NATIVE@", "1", text)
        text = re.sub(r"@\w+@", "0", text)
        text = "".join(_defined(line) for line in text.splitlines(keepends=True))
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        (tree / target).write_text(text, encoding="utf-8")


def _defined(line: str) -> str:
    if not line.startswith("#cmakedefine"):
        return line
    name = line.split()[1]
    return f"#define {name}\n" if name.endswith("BUILD_SHARED_LIBS") else f"/* #undef {name} */\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=lambda text: Path(text).resolve())
    parser.add_argument("--cuda", type=lambda text: Path(text).resolve(), default=Path("/usr/local/cuda"))
    parser.add_argument("--ccbin", default="g++", help="the host compiler")
    parser.add_argument("--std", default="c++17", help="the C++ standard of the release (2.12 on: c++20)")
    parser.add_argument("--arch", default="3.5", help="the PTX is made for this one")
    parser.add_argument("--also", action="append", default=[], help="give the same PTX to ptxas for this one too")
    parser.add_argument("--results", type=Path, required=True, help="one line per file; read again at the next start")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no file after this time")
    parser.add_argument("--heaviest", action="store_true", help="begin with the longest compiles of recorded builds")
    parser.add_argument("--sample", type=int, help="so many files, chosen at random")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument(
        "--row", nargs=3, metavar=("TORCH", "CUDA", "PLATFORM"), help="write the table from the results"
    )
    parser.add_argument("--only", default="", help="only files whose path has this (a regular expression)")
    parser.add_argument("--include", action="append", default=[], help="another folder with headers")
    parser.add_argument("--no-prepare", dest="prepare", action="store_false", help="the headers are written already")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
