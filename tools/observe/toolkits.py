"""Regenerates `cuda/toolkits.json`: what each toolkit compiles for, and which drivers NVIDIA names for it.

    python -m tools.observe toolkits RELEASE-NOTES.HTML

The index lists the packages that hold a ptxas, one for each toolkit since 11.7: it is read by ranges out of the wheel
for this machine's processor, and asked. `targets` is what `ptxas --help` lists; `ptx_isa` is the highest `.version`
that it accepts, found by trying. RELEASE-NOTES.HTML is docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html as a
person saved it: its tables give the oldest driver of each toolkit. Without it the drivers of `stated/toolkits.toml`
hold, as a person read them there, and are called UNVERIFIED. Toolkits before 11.7 stand only in that file.
"""

from __future__ import annotations

import html
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import table, web

STATED = Path(__file__).parent / "stated" / "toolkits.toml"
PACKAGES = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL | re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL | re.IGNORECASE)
_RELEASE = re.compile(r"CUDA (\d+\.\d+)(?:\.\d+)? ?(?:GA|Update (\d+))?")
_DRIVERS = ("min_drivers", "minor_floor_linux", "minor_floor_windows", "driver_branch")


def observe(notes: str = "-") -> dict[str, list[dict[str, Any]]]:
    stated = {row["version"]: row for row in msgspec.toml.decode(STATED.read_bytes())["toolkit"]}
    drivers = read_drivers(Path(notes).read_text(encoding="utf-8")) if notes != "-" else {}
    rows = {version: _row(version, asked, stated, drivers) for version, asked in _asked().items()}
    table.nothing_read("toolkits", len(rows))
    for version, row in stated.items():
        if version not in rows and "targets" not in row:
            print(f"UNVERIFIED: no package of CUDA {version} is for this processor: left out", file=sys.stderr)
        elif version not in rows:
            print(f"UNVERIFIED: the targets of CUDA {version} are read from {row['source']}", file=sys.stderr)
            rows[version] = _row(version, row, stated, drivers)
    return {"toolkits": [rows[version] for version in sorted(rows, key=Version)]}


def _row(
    version: str, asked: dict[str, Any], stated: dict[str, dict[str, Any]], drivers: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """What the toolkit's own ptxas said, or what stands for it; the drivers of the page, or what stands for them."""
    about = stated.get(version, {})
    if version in drivers:
        about = {**about, "min_drivers": drivers[version]}
    elif "min_drivers" in about:
        print(f"UNVERIFIED: the drivers of CUDA {version} are read from {about['drivers_from']}", file=sys.stderr)
    if not about:
        print(f"nothing is stated of CUDA {version}: its minor-version floor is missing", file=sys.stderr)
    updates = [{"linux": None, "windows": None, **update} for update in about.get("min_drivers", [])]
    order = ("update", "linux", "windows")
    read = {name: about.get(name) for name in _DRIVERS}
    read["min_drivers"] = [{name: update[name] for name in order} for update in updates]
    source = "; ".join(part for part in (asked["source"], about.get("drivers_from")) if part)
    read_on = asked.get("observed_at") or table.today()
    told = {"source": source, "observed_at": read_on, "evidence": asked.get("evidence", "binary")}
    taken = {"version": version, "targets": asked["targets"], "ptx_isa": asked["ptx_isa"]}
    return {**taken, **read, "note": about.get("note"), **told}


def read_drivers(page: str) -> dict[str, list[dict[str, Any]]]:
    """The oldest driver of each update of each toolkit, from the rows that read `CUDA 12.4 Update 1 | >=… | >=…`."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in _ROW.findall(page):
        cells = [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in _CELL.findall(line)]
        match = _RELEASE.match(cells[0]) if len(cells) == 3 else None
        linux, windows = (_driver(cell) for cell in cells[1:3]) if match else (None, None)
        if match and (linux or windows):
            update = int(match[2] or 0)
            found.setdefault(match[1], {}).setdefault(update, {"update": update, "linux": linux, "windows": windows})
    return {version: [updates[number] for number in sorted(updates)] for version, updates in found.items()}


def _driver(cell: str) -> str | None:
    match = re.fullmatch(r">= ?(\d+(?:\.\d+)+)", cell)
    return match[1] if match else None


def _asked() -> dict[str, dict[str, Any]]:
    """What the newest ptxas of each toolkit on the index says of itself."""
    found = {}
    for cuda, (version, url) in listed().items():
        print(f"CUDA {cuda} ({version})", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            ptxas = ptxas_of(url, Path(folder))
            if ptxas is not None:
                found[cuda] = {**ask(ptxas), "source": f"ptxas --help from wheel of the Python index {version}"}
    return found


def listed() -> dict[str, tuple[Version, str]]:
    """The newest package of each toolkit with a wheel for this processor, and the wheel's address."""
    newest: dict[str, tuple[Version, str]] = {}
    for package in PACKAGES:
        for name, url, withdrawn in web.wheels(package):
            _, version, _, tags = parse_wheel_filename(name)
            here = any(re.fullmatch(rf"manylinux.*_{platform.machine()}", tag.platform) for tag in tags)
            cuda = f"{version.major}.{version.minor}"
            if here and not (withdrawn or version.is_prerelease) and version > newest.get(cuda, (Version("0"), ""))[0]:
                newest[cuda] = (version, url)
    return newest


def ptxas_of(url: str, folder: Path) -> Path | None:
    """The assembler out of a wheel; None where it has none."""
    with web.opened(url) as wheel:
        name = next((name for name in wheel.files if name.endswith("bin/ptxas")), None)
        if name is None:
            return None
        ptxas = folder / "ptxas"
        ptxas.write_bytes(wheel.read(name, limit=256 << 20))
    ptxas.chmod(0o755)
    return ptxas


def ask(ptxas: Path) -> dict[str, Any]:
    found = targets(ptxas)
    newest = next(name for name in reversed(found) if name[-1].isdigit())
    return {"targets": found, "ptx_isa": ptx_isa(ptxas, newest)}


def targets(ptxas: Path) -> list[str]:
    """Every `sm_` target the assembler names, in numeric order, suffixed ones after their base."""
    text = subprocess.run([ptxas, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    section = text[text.index("--gpu-name") :]
    section = section[: section.index("--", 20)]
    found = set(re.findall(r"'(sm_\d{2,3}[af]?)'", section))
    return sorted(found, key=lambda name: (int(re.sub(r"\D", "", name)), name))


def ptx_isa(ptxas: Path, target: str) -> str | None:
    """The newest PTX version this assembler takes."""
    candidates = [f"{major}.{minor}" for major in (10, 9, 8, 7) for minor in range(9, -1, -1)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.ptx"
        for version in candidates:
            text = f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
            source.write_text(text, encoding="ascii")
            command = [ptxas, f"-arch={target}", source, "-o", Path(folder) / "a.cubin"]
            if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0:
                return version
    return None
