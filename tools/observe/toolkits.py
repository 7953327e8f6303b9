"""Regenerates `targets` and `ptx_isa` in `cuda/toolkits.json` by asking the real ptxas of each toolkit.

The ptxas comes from the packages of the index for this machine's own processor (`nvidia-cuda-nvcc-cu11`, `-cu12`,
`nvidia-cuda-nvcc`), or from a toolkit that is installed here (`--ptxas FILE`). `targets` is what `ptxas --help` lists;
`ptx_isa` is the highest `.version` that it accepts, found by trying.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tools.observe import index, table

PACKAGES = {"11": "nvidia-cuda-nvcc-cu11", "12": "nvidia-cuda-nvcc-cu12", "13": "nvidia-cuda-nvcc"}


def targets(ptxas: Path) -> list[str]:
    """Every `sm_` target the assembler names, in numeric order, suffixed ones after their base."""
    text = subprocess.run([ptxas, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    section = text[text.index("--gpu-name") :]
    section = section[: section.index("--", 20)]
    found = set(re.findall(r"'(sm_\d{2,3}[af]?)'", section))
    return sorted(found, key=lambda name: (int(re.sub(r"\D", "", name)), name))


def ptx_isa(ptxas: Path, target: str) -> str | None:
    """The newest PTX version this assembler takes."""
    best = None
    candidates = [(major, minor) for major in (7, 8, 9) for minor in range(10)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.ptx"
        for major, minor in candidates:
            text = f".version {major}.{minor}\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
            source.write_text(text, encoding="ascii")
            command = [ptxas, f"-arch={target}", source, "-o", Path(folder) / "a.cubin"]
            if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0:
                best = f"{major}.{minor}"
    return best


def ptxas_of(cuda: str, folder: Path) -> Path | None:
    """ptxas of a toolkit's newest package for this processor; None when it cannot be had."""
    package = PACKAGES.get(cuda.partition(".")[0])
    if package is None:
        return None
    tags = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
    index.PLATFORMS["here"] = [f"{tag}_{platform.machine()}" for tag in tags]
    wheel = index.download(f"{package}=={cuda}.*", "here", "3.11", folder)
    if wheel is None:
        return None
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith("bin/ptxas")), None)
        if name is None:
            return None
        ptxas = Path(archive.extract(name, folder))
    ptxas.chmod(0o755)
    return ptxas


def observe(cudas: list[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    current = table.read("toolkits")
    read = 0
    for row in current["toolkits"]:
        if cudas and row["version"] not in cudas:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ptxas = ptxas_of(row["version"], Path(folder))
            if ptxas is None:
                continue
            found = targets(ptxas)
            newest = next(name for name in reversed(found) if name[-1].isdigit())
            row |= {"targets": found, "ptx_isa": ptx_isa(ptxas, newest)}
            row |= {"observed_at": table.today(), "evidence": "binary"}
            read += 1
    table.nothing_read("toolkits", read)
    return current


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="append", help="only these toolkits")
    parser.add_argument("--ptxas", type=Path, help="ask this one and print what it says")
    arguments = parser.parse_args()
    if arguments.ptxas:
        print(targets(arguments.ptxas))
    else:
        table.write("toolkits", observe(arguments.cuda))


if __name__ == "__main__":
    main()
