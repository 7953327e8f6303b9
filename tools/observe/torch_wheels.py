"""Regenerates `torch/torch_wheels.json`: the GPU code inside the official Linux wheels, one per minor release.

    python -m tools.observe.torch_wheels [--work DIR] [--cuobjdump PROGRAM] [RELEASE ...]

A wheel at a time is downloaded, read and deleted. With `--cuobjdump` every library is also given to NVIDIA's own tool
and the two must agree on how often each (kind, target) occurs in the code that is registered at load. Code elsewhere in
the file, which cuobjdump does not list, is written with its offsets to `tests/real/gpu_code_surplus.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rekindle.formats import fatbin
from rekindle.formats.binary import Binary, codes
from rekindle.formats.package import Wheel, open_package
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.wheels.inspect import identity
from rekindle.wheels.inspect.identity import read_binaries
from tools.observe import index, table
from tools.observe.library_code import covers

SURPLUS = Path(__file__).parents[2] / "tests" / "real" / "gpu_code_surplus.json"
SOURCE = "fatbin headers of every library in the wheel of the package index"
EXPLAINED = {
    "__nv_relfatbin": "relocatable code, input to the device linker; the linked result is registered in .nv_fatbin, "
    "and cuobjdump shows only that one unless told -all",
    ".data": "cuFFT, linked statically: single containers per architecture that it loads by itself",
    ".rodata": "in libtorch_cpu.so CUPTI, linked statically; in libcusparseLt its kernels, which it loads by itself",
    ".lrodata": "29 cubins each for sm_90 and sm_100 in fatbins of their own among the large constants of "
    "libtorch_cuda.so, loaded by the code that carries them; cuobjdump does not look there",
}
_LISTED = re.compile(r"\.(sm_\d+[a-z]?)\.(cubin|ptx)\s*$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="keep what was read of each wheel here, and go on from there")
    parser.add_argument("--cuobjdump", help="NVIDIA's cuobjdump, from the package nvidia-cuda-cuobjdump")
    parser.add_argument("--cuobjdump-old", help="one of CUDA 11.8, asked where the other disagrees")
    parser.add_argument("releases", nargs="*", help="only these, e.g. 2.7.1")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    for release in options.releases or wanted():
        done = work / f"{release}.json"
        if not done.exists():
            print(f"reading torch {release}", file=sys.stderr, flush=True)
            done.write_text(
                json.dumps(observe(release, work, options.cuobjdump, options.cuobjdump_old)), encoding="utf-8"
            )
    places = {release: work / f"{release}.json" for release in dict.fromkeys((*wanted(), *options.releases))}
    found = [json.loads(place.read_text(encoding="utf-8")) for place in places.values() if place.exists()]
    table.write("torch_wheels", {"wheels": joined([one["row"] for one in found])})
    if len(found) == len(places):
        write_surplus(found)
    bad = [(one["row"]["version"], row) for one in found for row in one["differs"]]
    unchecked = [one["row"]["version"] for one in found if not one["compared"]]
    print(f"{len(found)} wheels, {len(bad)} differences from cuobjdump; not compared: {unchecked or 'none'}")
    sys.exit(f"DIFFERENT: {bad}" if bad else 0)


def joined(read: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that were read, and those of the table for the minor releases that were not."""
    current = table.read("torch_wheels")["wheels"] if table.place("torch_wheels").exists() else []
    minors = {_numbers(row["version"])[:2] for row in read}
    kept = [row for row in current if _numbers(row["version"])[:2] not in minors]
    return sorted((*kept, *read), key=lambda row: _numbers(row["version"]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def wanted() -> list[str]:
    """The last patch of every minor release from 1.13 on."""
    rows = [row for row in torch_releases() if tuple(map(int, row.minor.split("."))) >= (1, 13)]
    return [max(row.patches, key=lambda patch: [int(n) for n in patch.split(".")]) for row in rows]


def observe(release: str, work: Path, cuobjdump: str | None, old: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=work) as folder:
        path = download(release, Path(folder))
        with open_package(path) as package:
            assert isinstance(package, Wheel)
            return read(release, path, package, cuobjdump, old)


def read(release: str, path: Path, package: Wheel, cuobjdump: str | None, old: str | None) -> dict[str, Any]:
    binaries = read_binaries(package)
    differs = compare(package, binaries, (cuobjdump, old), path.parent) if cuobjdump else []
    return {
        "row": row(release, path, identity.identify(package, binaries), binaries),
        "compared": bool(cuobjdump),
        "differs": differs,
        "surplus": surplus(binaries),
    }


def download(release: str, folder: Path) -> Path:
    for python in ("3.11", "3.10", "3.12", "3.13", "3.14", "3.9"):
        path = index.download(f"torch=={release}", "linux", python, folder)
        if path:
            return path
    raise SystemExit(f"torch {release} could not be downloaded")


def row(release: str, path: Path, known: identity.Identity, binaries: list[Binary]) -> dict[str, Any]:
    code = codes(binaries)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return {
        "version": release,
        "wheel": path.name,
        "sha256": digest.hexdigest(),
        "size": path.stat().st_size,
        "system": "linux",
        "machine": "x86_64",
        "cuda": known.cuda and str(known.cuda),
        "cudnn": known.cudnn,
        "glibc": known.glibc and str(known.glibc),
        "gpu_code": table.gpu_code(code),
        "coverage": {str(c): covers(code, c).value for c in capabilities.known()},
        "source": SOURCE,
        "observed_at": table.today(),
        "evidence": "binary",
    }


def compare(
    package: Wheel, binaries: list[Binary], tools: tuple[str, str | None], folder: Path
) -> list[dict[str, Any]]:
    """Where the registered code that Rekindle counts differs from what cuobjdump lists, per file."""
    differs = []
    for found in binaries:
        ours = Counter(key for key, _, _ in entries(fatbin.sorted_out(found.containers)[0]))
        theirs = listed(package, found, tools[0], folder)
        if theirs != ours and tools[1]:
            # cuobjdump 13 stops without a word at Kepler code and at that of MAGMA up to torch 2.4; 11.8 reads both.
            theirs = listed(package, found, tools[1], folder)
        differs += [
            {"file": found.name, "target": key[0], "kind": key[1], "ours": ours[key], "cuobjdump": theirs[key]}
            for key in sorted(set(ours) | set(theirs))
            if ours[key] != theirs[key]
        ]
    return differs


def surplus(binaries: list[Binary]) -> list[dict[str, Any]]:
    """The code that cuobjdump does not list: where it lies, by file, section and target."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for one in binaries:
        for (target, kind), container, entry in entries(fatbin.sorted_out(one.containers)[1]):
            found.setdefault((one.name, container.section or "", target, kind), []).append(entry.offset)
    return [
        {"file": file, "section": section, "target": target, "kind": kind, "offsets": offsets}
        for (file, section, target, kind), offsets in sorted(found.items())
    ]


def entries(
    containers: Iterable[fatbin.Container],
) -> Iterator[tuple[tuple[str, str], fatbin.Container, fatbin.GpuEntry]]:
    for container in containers:
        for entry in container.entries:
            if entry.runnable:
                yield (name_in_cuobjdump(entry), "ptx" if entry.target.ptx else "cubin"), container, entry


def listed(package: Wheel, found: Binary, cuobjdump: str, folder: Path) -> Counter[tuple[str, str]]:
    """What cuobjdump lists in a member, which it needs unpacked."""
    path = folder / found.file
    with path.open("wb") as stream:
        for chunk in package.archive.chunks(package.archive.member(found.name)):
            stream.write(chunk)
    counts: Counter[tuple[str, str]] = Counter()
    for option in ("--list-elf", "--list-ptx"):
        done = subprocess.run([cuobjdump, option, str(path)], capture_output=True, text=True, timeout=600, check=False)
        counts.update(_LISTED.findall(done.stdout))
    path.unlink()
    return counts


def name_in_cuobjdump(entry: fatbin.GpuEntry) -> str:
    """cuobjdump writes PTX as sm_XY too, and leaves the `f` of family targets away."""
    return f"{entry.target.capability.sm}{entry.target.suffix.replace('f', '')}"


def write_surplus(found: list[dict[str, Any]]) -> None:
    rows = {one["row"]["version"]: one["surplus"] for one in found}
    about = json.dumps({"_about": EXPLAINED}, indent=1)[2:-2]
    body = (
        about
        + ",\n"
        + ",\n".join(
            f" {json.dumps(version)}: [" + "".join(f"\n  {json.dumps(row)}," for row in rows[version]).rstrip(",") + "]"
            for version in rows
        )
    )
    SURPLUS.write_text("{\n" + body + "\n}\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
