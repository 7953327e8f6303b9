"""Regenerates tables from the artefacts they were read off.

    python -m tools.observe TABLE [ARGUMENT...] [--accept] [--tape DIR] [--index URL]
    python -m tools.observe all [--dry] [--source NAME=PATH...]
                                                 every table; one whose source is not available here is UNVERIFIED
    python -m tools.observe list                 the tables and what each needs
    python -m tools.observe bundle FILE          a bundle of all tables for `rekindle knowledge update`

Each prints what is new, changed and gone, and stops before writing when a row is gone or a capability changed: look,
then give `--accept`. `--dry` only compares. `--tape` keeps what was read from the web, and reads it from there the next
time: a run that was broken off goes on where it stopped. `--offline` reads nothing but the tape.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

UNVERIFIED = 9
INDEX = "the package index"
# What a person brings for a script, by the name that `--source` takes.
SOURCES = {
    "torch": "a clone of pytorch/pytorch with its tags",
    "feedstock": "a clone of conda-forge/pytorch-cpu-feedstock",
    "feedstocks": "a folder of clones of conda-forge's feedstocks of extensions (flash-attn, pytorch3d, ...)",
    "modules": "a clone of NVIDIA/open-gpu-kernel-modules with its tags",
    "nouveau": "base.c of nouveau, from Linux (drivers/gpu/drm/nouveau/nvkm/engine/device)",
    "mesa": "nouveau_device_info.c, from Mesa (src/nouveau/winsys)",
    "pci": "pci.ids, from the package hwdata or pci-ids.ucw.cz",
    "lists": "a folder with NVIDIA's lists: supported-gpus-<driver>.json of drivers, README-<driver>.md of modules",
    "redistrib": "a folder with cuda/redistrib_*.json and cudnn/redistrib_*.json",
    "debian": "a folder with Debian 12's packages libc6, libgcc-s1, libstdc++6, libatomic1, zlib1g, libcrypt1",
    "notes": "the release notes of the newest CUDA, saved from docs.nvidia.com/cuda/cuda-toolkit-release-notes",
}
# table -> what its script needs; a script's `observe` takes one argument for each.
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
    "upstream_builds": ("torch",),
    "torch_options": ("torch",),
    "architecture_lists": ("torch",),
    "conda_forge": ("feedstock",),
    "conda_extensions": ("feedstocks",),
    "driver_lists": ("modules",),
    "chips": ("nouveau", "mesa", "pci"),
    "gpus": ("pci", "lists"),
    "redistrib_lists": ("redistrib",),
    "system_symbols": ("debian",),
    "library_hashes": (),
    "old_wheels": (),
}
# What a script takes if a person has it: without it, it says what is UNVERIFIED.
OPTIONAL = {"toolkits": ("notes", ""), "torch_releases": ("torch", "; a deleted table needs it")}
# Written by their own programs, because they download whole wheels or read records of builds.
OTHERS = {
    "torch_wheels": "python -m tools.observe.torch_wheels: whole wheels of torch",
    "torch_wheels_aarch64": "python -m tools.observe.torch_wheels_aarch64: the same for aarch64",
    "compile_times": "python -m tools.observe.compile_times: logs of Ninja, of builds that were run",
    "compile_memory": "python -m tools.observe.compile_memory: records of builds that were run",
    "field_reports": "python -m tools.observe.field_reports: what users sent from their machines",
    "sweeps": "tools/sweep.py --row: what the compiler said of each file",
}


def main() -> int:
    options = _options()
    if options.tape:
        os.environ["REKINDLE_OBSERVE_TAPE"] = str(options.tape)
    if options.index:
        os.environ["REKINDLE_OBSERVE_INDEX"] = os.environ["PIP_INDEX_URL"] = options.index
    if options.offline:
        os.environ["REKINDLE_OBSERVE_OFFLINE"] = os.environ["PIP_NO_INDEX"] = "1"
    if options.table == "list":
        for name, needs in TABLES.items():
            kind, why = OPTIONAL.get(name, ("", ""))
            more = f"; if you have it: {SOURCES[kind]}{why}" if kind else ""
            stated = (Path(__file__).parent / "stated" / f"{name}.toml").exists()
            back = f"a deleted table comes back, with stated/{name}.toml" if stated else "a deleted table comes back"
            print(f"{name:<20}{told(needs) or INDEX}{more}\n{'':<20}{back}")
        print("by their own programs, from what is named:")
        for name, source in OTHERS.items():
            print(f"{name:<22}{source}")
        print("container images of projects.toml are held against a registry: python -m tools.observe.container_images")
        print("releases of programs.toml are held against the index: python -m tools.observe.programs")
        return 0
    if options.table == "bundle":
        return bundle(Path(options.arguments[0]))
    if options.table == "all":
        return everything(options)
    return regenerate(options.table, options.arguments, accept=options.accept, dry=options.dry)


def told(kinds: Sequence[str]) -> str:
    return "; ".join(SOURCES[kind] for kind in kinds)


def everything(options: argparse.Namespace) -> int:
    """Every table, one after the other: what could not be read is said, and is no success."""
    brought = dict(word.partition("=")[::2] for word in options.source)
    if unknown := sorted(set(brought) - set(SOURCES)):
        raise SystemExit(f"no source is called {', '.join(unknown)}; there are {', '.join(SOURCES)}")
    states: dict[str, str] = {}
    for name, needs in TABLES.items():
        try:
            if missing := [kind for kind in needs if kind not in brought]:
                raise SystemExit(f"it needs {told(missing)} (--source {missing[0]}=PATH)")
            extra = [kind for kind in OPTIONAL.get(name, ("",))[:1] if kind in brought]
            words = [brought[kind] for kind in (*needs, *extra)]
            code = regenerate(name, words, accept=options.accept, dry=options.dry)
            states[name] = "read anew" if code == 0 else "STOPPED: a person must look"
        except (Exception, SystemExit) as error:
            states[name] = f"UNVERIFIED: {(str(error).strip() or repr(error)).splitlines()[0]}"
    print(*(f"{name:<20}{state}" for name, state in states.items()), sep="\n")
    if any(state.startswith("STOPPED") for state in states.values()):
        return 3
    return UNVERIFIED if any(state.startswith("UNVERIFIED") for state in states.values()) else 0


def regenerate(name: str, arguments: list[str], *, accept: bool, dry: bool = False) -> int:
    from tools.observe import difference, table

    if name not in TABLES:
        raise SystemExit(f"no script writes `{name}`; there are {', '.join(TABLES)}")
    if len(arguments) < len(TABLES[name]):
        raise SystemExit(f"`{name}` needs {told(TABLES[name])}")
    print(f"== {name}", file=sys.stderr, flush=True)
    module = importlib.import_module(f"tools.observe.{name}")
    needs: list[Any] = arguments[: len(TABLES[name]) + (name in OPTIONAL)]
    if name == "linux_libraries":
        needs = [[]]
    found = module.observe(*needs)
    replaced = getattr(module, "replaced", difference.never)
    return table.propose(name, found, accept=accept, dry=dry, replaced=replaced)


def bundle(path: Path) -> int:
    from rekindle.knowledge import updates
    from tools.observe import bundle as packing
    from tools.observe import table

    data = packing.make(table.KNOWLEDGE, sorted(updates.updatable()), table.today())
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n", encoding="ascii")
    print(f"{path}: {len(data)} bytes, sha256 {digest}")
    return 0


_SOURCE_HELP = f"with `all`: a clone, file or folder that tables are read from ({', '.join(SOURCES)})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools.observe", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--accept", action="store_true", help="write although a row is gone or a capability changed")
    parser.add_argument("--dry", action="store_true", help="show what would change, write nothing")
    parser.add_argument("--offline", action="store_true", help="read nothing but the tape")
    parser.add_argument("--tape", type=Path, help="keep what is read from the web here, and look there first")
    parser.add_argument("--source", action="append", default=[], metavar="NAME=PATH", help=_SOURCE_HELP)
    parser.add_argument("--index", help="another package index, e.g. a folder served on this machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
