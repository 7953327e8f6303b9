"""A folder of small wheels that stands in for the index: they look like torch and what belongs to it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import small_wheels
from support.artefacts import unverified
from support.compiled import Compiler
from support.cuda import machine
from support.fatbins import container

SYMBOL = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
PLATFORM = f"linux_{platform.machine()}"
EXTENSION = """\
import importlib.util
from pathlib import Path
from setuptools import Extension, setup
lib = Path(importlib.util.find_spec("torch").origin).parent / "lib"
code = Path("code.fatbin").resolve()
Path("c.c").write_text('''#include <Python.h>
__asm__(".section .nv_fatbin,\\\\"a\\\\"; .incbin \\\\"%s\\\\"; .text");
int SYMBOL(void);
static struct PyModuleDef made = {PyModuleDef_HEAD_INIT, "_C"};
PyMODINIT_FUNC PyInit__C(void) { SYMBOL(); return PyModule_Create(&made); }
''' % code)
made = Extension("ext._C", ["c.c"], library_dirs=[str(lib)], libraries=["c10"], runtime_library_dirs=[str(lib)])
setup(name="ext", version="1.0", packages=["ext"], ext_modules=[made])
""".replace("SYMBOL", SYMBOL)
"""The setup.py of an extension of it, with GPU code from a file beside it."""


class House:
    """Wheels with real libraries in them, for every Python."""

    def __init__(self, root: Path) -> None:
        if sys.platform != "linux":
            unverified("the wheels are made for Linux")
        self.root, self.wheels = root, root / "house"
        self.compiler = Compiler(root / "built", "")
        self.wheels.mkdir(parents=True)

    def library(
        self, name: str, *, texts: Sequence[str] = (), targets: Sequence[str] = (), **how: Sequence[str]
    ) -> bytes:
        """A real library, with a text among its constants and GPU code where wanted."""
        built = self.compiler.build(name, options=(*how.pop("options", ()), f"-Wl,-soname,{Path(name).name}"), **how)
        if texts:
            source = self.compiler.work / "texts.c"
            lines = [f'const char t{number}[] = "{each}";' for number, each in enumerate(texts)]
            source.write_text("\n".join(lines), encoding="utf-8")
            self.compiler.run([self.compiler.gcc, "-shared", "-fPIC", "-nostdlib", "-o", built, source])
        if targets:
            code = self.compiler.work / "code"
            code.write_bytes(container(*targets))
            self.compiler.run(["objcopy", "--add-section", f".nv_fatbin={code}", built])
        return built.read_bytes()

    def wheel(self, name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()) -> None:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = [f"Requires-Dist: {each}\n" for each in requires]
        tag = f"py3-none-{PLATFORM}"
        told = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{''.join(lines)}".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        }
        small_wheels.make(self.wheels, {**files, **told}, name=f"{name.replace('-', '_')}-{version}-{tag}.whl")

    def torch(
        self,
        version: str,
        cuda: str | None,
        requires: Sequence[str] = (),
        *,
        numpy: str = "",
        targets: Sequence[str] = ("sm_90",),
    ) -> None:
        files = {
            "torch/__init__.py": b"",
            "torch/version.py": f"__version__ = '{version}'\ncuda = {cuda!r}\n".encode(),
            "torch/lib/libc10.so": self.library("torch/lib/libc10.so", offers=(SYMBOL,)),
            "torch/lib/libtorch_cuda.so": self.library("torch/lib/libtorch_cuda.so", targets=targets),
        }
        if numpy:
            library = self.library("torch/lib/libtorch_python.so", texts=(f"numpy.{numpy}._multiarray_umath",))
            files["torch/lib/libtorch_python.so"] = library
        self.wheel("torch", version, files, requires)

    def companion(self, name: str, version: str) -> None:
        module = self.library(f"{name}/_C.so", wants=(SYMBOL,), options=self.linked(), targets=("sm_90",))
        self.wheel(name, version, {f"{name}/__init__.py": b"", f"{name}/_C.so": module})

    def linked(self, *needs: str) -> tuple[str, ...]:
        """Linked with c10, and with libraries of these names, which need not exist afterwards."""
        stubs = []
        for name in needs:
            self.compiler.build(f"stubs/{name}", options=(f"-Wl,-soname,{name}",))
            stubs.append(str(self.compiler.root / "stubs" / name))
        lib = self.compiler.root / "torch/lib"
        return ("-Wl,--unresolved-symbols=ignore-all", "-L", str(lib), "-Wl,--no-as-needed", "-lc10", *stubs)


def needs_cuda_13() -> None:
    if not any(kit.version and kit.version.major == 13 and kit.nvcc for kit in machine().toolkits):
        unverified("there is no CUDA 13 toolkit on this machine")
