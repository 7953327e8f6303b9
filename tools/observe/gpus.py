"""Regenerates `gpu/gpus.json`: NVIDIA's cards by name, chip and PCI ids.

    python -m tools.observe gpus PCI.IDS LISTS

PCI.IDS comes with the package hwdata or pci.ids; it gives the chip of every id, and names that people gave. LISTS is a
folder with NVIDIA's own lists, named after their driver: `supported-gpus-550.163.01.json` (from the folder
supported-gpus of a driver, unpacked with `-x`) and `README-595.45.04.md` (of open-gpu-kernel-modules at that tag). An
old driver's list has the cards that later ones dropped: take the last of each branch. The capability follows from the
chip; a chip that `chips.json` lacks is named and left out. Modules without a PCI id stand in `stated/gpus.toml`, as a
person read them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tools.observe import table

STATED = Path(__file__).parent / "stated" / "gpus.toml"
_NVIDIA = re.compile(r"^10de  .*?$(.*?)^(?=[0-9a-f]{4}  )", re.MULTILINE | re.DOTALL)
# Fermi to Blackwell, and what follows in the same pattern.
COMPUTE = re.compile(r"(?:G[FKMPVAHBR]|TU|AD)\d+[A-Z]*$")
# Switches, ids that are only reserved, and placeholders for boards without a name.
_NO_CARD = re.compile(r"NVSwitch|Reserved Dev ID|Generic-GPU")
# What a list and a system show for any card without a name of its own: no card is officially called so.
_UNNAMED = "NVIDIA Graphics Device"
_DEVICE = re.compile(r"^\t([0-9a-f]{4})  (\w+)(?: / [\w-]+)? \[([^\]]+)\]", re.MULTILINE)
_VERSION = re.compile(r"^#\s*Version:\s*(\S+)", re.MULTILINE)
_README = re.compile(r"^\| NVIDIA ([^|]+?) +\| ([0-9A-F]{4}(?: [0-9A-F]{4} [0-9A-F]{4})?) +\|$", re.MULTILINE)
_FAMILY = re.compile(r"(?:GeForce|Quadro|Tesla|GRID|NVS|TITAN|DRIVE|RTX|Jetson|Tegra)\b")
_LINE = re.compile(r"(?:(?<= )|^)(?:GTX?|RTX) ")
_LAPTOP = re.compile(r" (?:Mobile|Max-Q)\b.*$")

Key = tuple[str, str]


class Listed(msgspec.Struct):
    """A name in NVIDIA's lists: its ids, the lists that have it, the last branch of drivers where a list says one."""

    ids: set[str] = msgspec.field(default_factory=set)
    sources: set[str] = msgspec.field(default_factory=set)
    branch: str | None = None


def observe(pci_ids: str, lists: str) -> dict[str, list[dict[str, Any]]]:
    chips = {row["name"]: row for row in table.read("chips")["chips"]}
    text = Path(pci_ids).read_text(encoding="utf-8", errors="replace")
    version = _VERSION.search(text)
    people = f"pci.ids {version[1]}" if version else "pci.ids"
    devices = read_pci_ids(Path(pci_ids))
    chip_of = {device: plain_chip(chip, chips) for device, (chip, _) in devices.items()}
    found = dict(_official(Path(lists), chip_of, chips))
    table.nothing_read("gpus", len(found))
    named: dict[Key, set[str]] = {}
    for device, (_, called) in devices.items():
        if chip_of[device] in chips and not _NO_CARD.search(called):
            for name in alternatives(called):
                named.setdefault((name, chip_of[device]), set()).add(device)
    rows = []
    for key in sorted({*found, *named}):
        listed, ids = found.get(key, Listed()), named.get(key, set())
        rows.append(_row(key, chips[key[1]], listed, listed.ids | ids, people if ids else None))
    if unknown := sorted({chip for chip in chip_of.values() if chip not in chips and COMPUTE.match(chip)}):
        print("chips without a capability in chips.json, left out:", *unknown, file=sys.stderr)
    return {"gpus": _stated(rows, chips)}


def plain_chip(name: str, known: Container[str]) -> str:
    """`TU117GLM` is a TU117 on a board for laptops, `TU117BM` another board; `GK208BM` has a GK208B."""
    chip = re.sub(r"(?<=[\dBCS])(?:GL|M)+$", "", name)
    return chip if chip in known or chip == name else re.sub(r"(?<=\d)[BCS]$", "", chip)


def read_pci_ids(path: Path) -> dict[str, tuple[str, str]]:
    """Chip and name of each NVIDIA device that has both: `1b06  GP102 [GeForce GTX 1080 Ti]`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    section = _NVIDIA.search(text + "\n0000  end\n")
    found = _DEVICE.findall(section[1]) if section else []
    return {device: (chip, name.strip()) for device, chip, name in found}


def alternatives(called: str) -> list[str]:
    """`GeForce RTX 3080 Mobile / Max-Q 8GB` names two cards; the second leaves out what it shares with the first."""
    first, *others = called.split(" / ")
    names = [first]
    for other in others:
        if _FAMILY.match(other):
            names.append(other)
        elif re.match(r"(?:Mobile|Max-Q)\b", other):
            names.append(f"{_LAPTOP.sub('', first)} {other}")
        elif size := re.match(r"(.* )\d+GB\b", first) if re.match(r"\d+GB\b", other) else None:
            names.append(size[1] + other)
        else:
            shared = re.match(r"(?:[A-Za-z]+ )*", first)
            kept = shared[0] if shared and _FAMILY.match(first) else ""
            names.append((_LINE.sub("", kept) if _LINE.search(f" {other.split()[0]} ") else kept) + other)
    return names


def _official(folder: Path, chip_of: dict[str, str], chips: Container[str]) -> dict[Key, Listed]:
    found: dict[Key, Listed] = {}
    for place in sorted(folder.iterdir()) if folder.is_dir() else [folder]:
        if place.suffix not in (".json", ".md"):
            print(f"{place.name} is no list of NVIDIA's, left out", file=sys.stderr)
            continue
        for name, pci, branch in _entries(place):
            chip = chip_of.get(pci[:4], "")
            if chip in chips and not _NO_CARD.search(name):
                one = found.setdefault((name, chip), Listed())
                one.ids.add(pci)
                one.sources.add(_called(place))
                one.branch = branch or one.branch
    return found


def _entries(place: Path) -> Iterator[tuple[str, str, str | None]]:
    """Name, PCI id (`2236`, or `2236:10de:1482` for the board of one maker) and last branch of drivers."""
    text = place.read_text(encoding="utf-8")
    if place.suffix != ".json":
        yield from ((name, pci.lower().replace(" ", ":"), None) for name, pci in _README.findall(text))
        return
    for entry in json.loads(text)["chips"]:
        parts = [entry[part] for part in ("devid", "subvendorid", "subdevid") if part in entry]
        pci = ":".join(part.lower().removeprefix("0x") for part in parts)
        name = entry["name"] if entry["name"] == _UNNAMED else entry["name"].removeprefix("NVIDIA ")
        yield name, pci, entry["legacybranch"].partition(".")[0] if "legacybranch" in entry else None


def _called(place: Path) -> str:
    driver = place.stem.rpartition("-")[2]
    if place.suffix != ".json":
        return f"NVIDIA open-gpu-kernel-modules README {driver}"
    return f"supported-gpus.json of driver {driver}" if driver[:1].isdigit() else "supported-gpus.json"


def _row(key: Key, chip: dict[str, Any], listed: Listed, ids: set[str], people: str | None) -> dict[str, Any]:
    return {
        "name": key[0],
        "capability": chip["capability"],
        "architecture": chip["architecture"],
        "chip": key[1],
        "pci_ids": sorted(ids),
        "official": bool(listed.ids) and key[0] != _UNNAMED,
        "integrated": False,
        "last_driver_branch": listed.branch or chip["last_driver_branch"],
        "source": "; ".join([*sorted(listed.sources), *([people] if people else [])]),
        "observed_at": table.today(),
        "evidence": "binary" if any(name.startswith("supported-gpus") for name in listed.sources) else "notes",
    }


def _stated(rows: list[dict[str, Any]], chips: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Modules that no list has, and which chips sit beside a processor and share its memory."""
    stated = msgspec.toml.decode(STATED.read_bytes())
    for row in rows:
        row["integrated"] = row["chip"] in stated["integrated_chips"]
        row["last_driver_branch"] = None if row["integrated"] else row["last_driver_branch"]
    for one in stated["module"]:
        chip = chips[one["chip"]]
        row = _row((one["name"], one["chip"]), chip, Listed(), set(), one["source"])
        rows.append(row | {"integrated": True, "last_driver_branch": None, "observed_at": one["observed_at"]})
    print(f"UNVERIFIED: {len(stated['module'])} modules are read from {STATED.name}", file=sys.stderr)
    return rows
