"""Regenerates `gpu/chips.json`: the chips of NVIDIA's cards since Fermi and the capability of each.

    python -m tools.observe chips BASE.C DEVICE-INFO.C PCI.IDS

BASE.C is drivers/gpu/drm/nouveau/nvkm/engine/device/base.c of Linux (also in Debian's package linux-source): the number
that each chip answers with, and its name. DEVICE-INFO.C is src/nouveau/winsys/nouveau_device_info.c of Mesa: the
capability of each number. What both leave open (chips of boards, the newest ones) a person read on NVIDIA's pages and
wrote into `stated/chips.toml`, with its source; those rows are called UNVERIFIED here. PCI.IDS is only looked at for
chips that are in none of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tools.observe import table
from tools.observe.gpus import COMPUTE, plain_chip, read_pci_ids

STATED = Path(__file__).parent / "stated" / "chips.toml"
_CHIP = re.compile(r'^nv([0-9a-f]+)_chipset = \{\s*\.name = "(\w+)"', re.MULTILINE)
_FUNCTION = re.compile(r"^sm_for_chipset\(uint16_t chipset\)\s*\{(.*?)^\}", re.MULTILINE | re.DOTALL)
_CASE = re.compile(r"if \(chipset (>=|==) (0x[0-9a-f]+)\)\s*return (\w+);")


def observe(base: str, device_info: str, pci_ids: str) -> dict[str, list[dict[str, Any]]]:
    stated = msgspec.toml.decode(STATED.read_bytes())
    capability = read_capabilities(Path(device_info).read_text(encoding="utf-8"))
    rows: dict[str, dict[str, Any]] = {}
    for number, name in _CHIP.findall(Path(base).read_text(encoding="utf-8")):
        if COMPUTE.match(name):
            rows[name] = _read(name, int(number, 16), capability)
    table.nothing_read("chips", len(rows))
    for one in stated["chip"]:
        _state(rows, one)
    for row in rows.values():
        about = next((part for part in stated["architecture"] if row["name"].startswith(part["prefix"])), None)
        if about is None:
            raise SystemExit(f"no architecture of {STATED.name} has chips called {row['name']}")
        row |= {"architecture": about["name"], "last_driver_branch": about.get("last_driver_branch")}
    seen = {plain_chip(chip, rows) for chip, _ in read_pci_ids(Path(pci_ids)).values()}
    for chip in sorted(chip for chip in seen - set(rows) if COMPUTE.match(chip)):
        print(f"no source gives the capability of {chip}: state it in {STATED.name}", file=sys.stderr)
    return {"chips": sorted(rows.values(), key=_order)}


def read_capabilities(text: str) -> Callable[[int], str | None]:
    """Mesa's function from the number of a chip to its capability; None: no compute."""
    body = _FUNCTION.search(text)
    cases = [(sign, int(number, 16), value) for sign, number, value in _CASE.findall(body[1])] if body else []
    if not cases:
        raise SystemExit("this file of Mesa has no `sm_for_chipset` that is understood")

    def capability(chip: int) -> str | None:
        digits = next((v for sign, number, v in cases if (chip >= number if sign == ">=" else chip == number)), "")
        # Older Mesas write them as hexadecimal: 0x86 is 8.6.
        digits = digits.removeprefix("0x")
        return f"{digits[:-1]}.{digits[-1]}" if len(digits) > 1 else None

    return capability


def _read(name: str, number: int, capability: Callable[[int], str | None]) -> dict[str, Any]:
    found = capability(number)
    if found is None:
        raise SystemExit(f"Mesa knows no capability of {name} (0x{number:03x})")
    source = f"nouveau's list of chips (0x{number:03x}) and Mesa's capability of that number"
    return _row(name, found, source=source, evidence="script")


def _state(rows: dict[str, dict[str, Any]], one: dict[str, Any]) -> None:
    """A row of the pages: the only one there is, or a second voice that must agree."""
    name, said = one["name"], one.get("capability")
    if name in rows:
        if rows[name]["capability"] != said:
            raise SystemExit(f"{name}: the sources say {rows[name]['capability']}, {STATED.name} says {said}")
        return
    print(f"UNVERIFIED: {name} ({said or 'capability unknown'}) is read from {one['source']}", file=sys.stderr)
    uncertain = one.get("uncertain", False)
    rows[name] = _row(name, said, source=one["source"], evidence="notes", uncertain=uncertain)
    rows[name]["observed_at"] = one["observed_at"]


def _row(name: str, capability: str | None, *, source: str, evidence: str, uncertain: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "architecture": "",
        "capability": capability,
        "last_driver_branch": None,
        "uncertain": uncertain,
        "source": source,
        "observed_at": table.today(),
        "evidence": evidence,
    }


def _order(row: dict[str, Any]) -> tuple[float, str]:
    major, _, minor = (row["capability"] or "99.0").partition(".")
    return int(major) + int(minor) / 10, row["name"]
