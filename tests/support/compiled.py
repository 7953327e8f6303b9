"""Small real libraries with chosen faults, made by mingw (Windows) and gcc (Linux) while the tests run."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.artefacts import unverified

MINGW = "x86_64-w64-mingw32"


class Compiler:
    """`dll("torch/lib/b.dll", needs={"a.dll": ["fa"]}, offers=["fb"])` under one folder."""

    def __init__(self, root: Path, prefix: str) -> None:
        self.root = root
        self.prefix = prefix
        self.work = root.parent / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.gcc = _program(f"{prefix}-gcc" if prefix else "gcc")

    def build(
        self,
        path: str,
        *,
        offers: Sequence[str] = ("offered",),
        wants: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> Path:
        """A library that exports `offers` and calls `wants`, which must be found through `options`."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self.work / f"{target.stem}.c"
        dll = "__declspec(dllexport) " if self.prefix else ""
        calls = "".join(f"int {name}(void);\n" for name in wants)
        bodies = "".join(
            f"{dll}int {name}(void) {{ return 1{''.join(f' + {wanted}()' for wanted in wants)}; }}\n" for name in offers
        )
        source.write_text(calls + bodies, encoding="utf-8")
        shared = ["-shared", "-nostdlib", "-Wl,-e,0"] if self.prefix else ["-shared", "-fPIC", "-nostdlib"]
        self.run([self.gcc, *shared, "-o", target, source, *options])
        return target

    def import_library(self, dll: str, symbols: Sequence[str], *, delayed: bool = False) -> Path:
        """What the linker takes for a DLL of that name with these exports: it need not exist, nor tell the truth."""
        name = Path(dll).stem
        definition = self.work / f"{name}.def"
        definition.write_text(f'LIBRARY "{dll}"\nEXPORTS\n' + "\n".join(symbols) + "\n", encoding="utf-8")
        library = self.work / f"lib{name}{'-delayed' if delayed else ''}.a"
        flag = "--output-delaylib" if delayed else "--output-lib"
        self.run([_program(f"{self.prefix}-dlltool"), "-d", definition, flag, library, "-D", dll])
        return library

    def delay_directory(self, dll: Path) -> None:
        """Point the header at the descriptor that dlltool made: ld before binutils 2.42 leaves that entry empty."""
        listing = subprocess.run(
            [_program(f"{self.prefix}-nm"), str(dll)], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        row = next(line for line in listing.splitlines() if "__DELAY_IMPORT_DESCRIPTOR_" in line)
        data = bytearray(dll.read_bytes())
        optional = data.index(b"PE\0\0") + 24
        base = struct.unpack_from("<Q", data, optional + 24)[0]
        place = optional + 112 + 8 * 13
        if data[place : place + 8] == bytes(8):
            struct.pack_into("<II", data, place, int(row.split()[0], 16) - base, 32)
            dll.write_bytes(data)

    def run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        unverified(f"`{name}` is not installed here")
    return str(found)
