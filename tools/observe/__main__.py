"""Regenerates tables from the artefacts they were read off.

    python -m tools.observe TABLE [ARGUMENT...] [--accept] [--tape DIR] [--index URL]
    python -m tools.observe all [--accept]       every table that needs nothing but the package index
    python -m tools.observe list                 the tables, what each needs and where to get it
    python -m tools.observe bundle FILE          a bundle of all tables for `rekindle knowledge update`

Each prints what is new, changed and gone, and stops before writing when a row is gone or a capability changed: look,
then give `--accept`. `--tape` keeps what was read from the web, and reads it from there the next time: a run that was
broken off goes on where it stopped, and one from a full tape needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

INDEX = "the package index"
TORCH = "a clone of pytorch/pytorch with its tags"
# table -> what its script needs; a script's `observe` takes one argument for each file or clone.
TABLES: dict[str, tuple[str, ...]] = {
    "companions": (),
    "toolkit_packages": (),
    "dlls": (),
    "linux_libraries": (),
    "host_compilers": (),
    "toolkits": (),
    "wheel_platforms": (),
    "torch_releases": (),
    "cudnn": (),
    "mathlibs": (),
    "upstream_builds": (TORCH,),
    "torch_options": (TORCH,),
    "architecture_lists": (TORCH,),
    "conda_forge": ("a clone of conda-forge/pytorch-cpu-feedstock",),
    "chips": ("pci.ids, from the package hwdata or pci-ids.ucw.cz",),
    "gpus": (
        "pci.ids, from the package hwdata or pci-ids.ucw.cz",
        "supported-gpus.json, from the folder supported-gpus of NVIDIA's driver for Linux",
    ),
    "system_symbols": (),
}
# Written by their own programs, because they download whole wheels or read records of builds.
OTHERS = ("torch_wheels", "torch_wheels_aarch64", "compile_times", "compile_memory", "sweeps (tools/sweep.py)")


def main() -> int:
    options = _options()
    if options.tape:
        os.environ["REKINDLE_OBSERVE_TAPE"] = str(options.tape)
    if options.index:
        os.environ["REKINDLE_OBSERVE_INDEX"] = options.index
    if options.table == "list":
        for name, needs in TABLES.items():
            print(f"{name:<18}{'; '.join(needs) or INDEX}")
        print("by themselves:", ", ".join(OTHERS))
        return 0
    if options.table == "bundle":
        return bundle(Path(options.arguments[0]))
    wanted = [name for name, needs in TABLES.items() if not needs] if options.table == "all" else [options.table]
    codes = [regenerate(name, options.arguments, accept=options.accept) for name in wanted]
    return max(codes)


def regenerate(name: str, arguments: list[str], *, accept: bool) -> int:
    from tools.observe import table

    if name not in TABLES:
        raise SystemExit(f"no script writes `{name}`; there are {', '.join(TABLES)}")
    if len(arguments) < len(TABLES[name]):
        raise SystemExit(f"`{name}` needs {' and '.join(TABLES[name])}")
    print(f"== {name}", file=sys.stderr, flush=True)
    module = importlib.import_module(f"tools.observe.{name}")
    needs = arguments[: len(TABLES[name])] if TABLES[name] else ([[]] if name == "linux_libraries" else [])
    return table.propose(name, module.observe(*needs), accept=accept)


def bundle(path: Path) -> int:
    from rekindle.knowledge import kinds, updates
    from tools.observe import table

    data = updates.make(table.KNOWLEDGE, sorted(kinds.updatable()), table.today())
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n", encoding="ascii")
    print(f"{path}: {len(data)} bytes, sha256 {digest}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools.observe", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--accept", action="store_true", help="write although a row is gone or a capability changed")
    parser.add_argument("--tape", type=Path, help="keep what is read from the web here, and look there first")
    parser.add_argument("--index", help="another package index, e.g. a folder served on this machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
