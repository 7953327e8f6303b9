"""Draws rows of the tables by a seed and holds each against a second source, one it was not read from.

    python tools/second_source.py --clone PYTORCH --supported SUPPORTED-GPUS.JSON [--count 60] [--seed 21] [--page FILE]

PYTORCH is a clone of pytorch/pytorch with its tags, SUPPORTED-GPUS.JSON the list of a driver that the table was not
made from. The rest comes from the package index. Ends with 1 when a fact is wrong; what cannot be reached is
UNVERIFIED and counts as nothing.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tools.observe import table, web  # noqa: E402
from tools.observe.pytorch_tree import git  # noqa: E402


class Fact(NamedTuple):
    """`look` gives what the second source says; None: it could not be reached."""

    table: str
    what: str
    value: str
    source: str
    look: Callable[[], str | None]


def main() -> int:
    options = _options()
    drawn = draw(options)
    lines, wrong, unreached = [], 0, 0
    for fact in drawn:
        try:
            said = fact.look()
        except (OSError, SystemExit, StopIteration):
            said = None
        state = "UNVERIFIED" if said is None else "agrees" if said == fact.value else f"WRONG: {said}"
        wrong += state.startswith("WRONG")
        unreached += said is None
        lines.append(f"| {fact.table} | {fact.what} | {fact.value[:60]} | {fact.source} | {state} |")
        print(lines[-1], flush=True)
    agree = len(drawn) - wrong - unreached
    total = f"{len(drawn)} facts, seed {options.seed}: {agree} agree, {wrong} wrong, {unreached} UNVERIFIED"
    print(total)
    if options.page:
        head = ["| table | fact | value | second source | result |", "|---|---|---|---|---|"]
        title = [
            "# Facts held against a second source",
            "",
            f"Written by `tools/second_source.py` on {table.today()}. {total}.",
            "",
        ]
        options.page.write_text("\n".join([*title, *head, *lines]) + "\n", encoding="utf-8", newline="\n")
    return 1 if wrong else 0


def draw(options: argparse.Namespace) -> list[Fact]:
    """Each table is equally likely, so that the long ones do not crowd out the others."""
    chance = random.Random(options.seed)
    pools = {name: list(pool) for name, pool in facts(options).items()}
    found: list[Fact] = []
    while len(found) < options.count and any(pools.values()):
        name = chance.choice(sorted(name for name, pool in pools.items() if pool))
        found.append(pools[name].pop(chance.randrange(len(pools[name]))))
    return found


def facts(options: argparse.Namespace) -> dict[str, Iterator[Fact]]:
    return {
        "torch_wheels": _hashes(),
        "torch_releases": _pythons(),
        "variants": _cudnn(options.clone),
        "companions": _companions(),
        "dlls": _sizes("dlls"),
        "linux_libraries": _sizes("linux_libraries"),
        "gpus": _cards(options.supported),
        "branches": _branches(options.supported),
        "oldest": _oldest_cuda(options.clone),
    }


def _hashes() -> Iterator[Fact]:
    for name in ("torch_wheels", "torch_wheels_aarch64"):
        for row in table.read(name)["wheels"]:
            wheel = row["wheel"]
            yield Fact(
                name, f"sha256 of {wheel}", row["sha256"], "hash on the index page", lambda wheel=wheel: _hash(wheel)
            )


def _hash(wheel: str) -> str | None:
    match = re.search(rf"/{re.escape(wheel)}#sha256=(\w+)", _page("torch"))
    return match[1] if match else None


def _pythons() -> Iterator[Fact]:
    for row in table.read("torch_releases")["releases"]:
        newest = max(row["patches"], key=lambda text: [int(part) for part in text.split(".")])
        value = row["requires_python"]
        yield Fact(
            "torch_releases",
            f"Pythons of {newest}",
            value,
            "the index page's own attribute",
            lambda v=newest: _requires(v),
        )


def _requires(version: str) -> str | None:
    match = re.search(rf'torch-{re.escape(version)}-cp[^"]*" data-requires-python="([^"]+)"', _page("torch"))
    return html.unescape(match[1]) if match else None


def _cudnn(clone: str) -> Iterator[Fact]:
    for row in table.read("torch_releases")["releases"]:
        newest = max(row["patches"], key=lambda text: [int(part) for part in text.split(".")])
        for variant in row["variants"]:
            if variant["cudnn"] and _matrix(clone, newest, variant["cuda"]):
                said = f"cuDNN of torch {newest} {variant['name']}"
                look = lambda v=newest, c=variant["cuda"]: _matrix(clone, v, c)  # noqa: E731
                yield Fact("torch_releases", said, variant["cudnn"], "generate_binary_build_matrix.py at the tag", look)


@cache
def _matrix(clone: str, version: str, cuda: str) -> str | None:
    text = git(clone, "show", f"v{version}:.github/scripts/generate_binary_build_matrix.py")
    match = re.search(rf'"{re.escape(cuda)}": \(.*?nvidia-cudnn-cu\d+==([\d.]+)', text, re.DOTALL)
    return match[1] if match else None


def _oldest_cuda(clone: str) -> Iterator[Fact]:
    """The row was read from the wheel; the tag is the other one."""
    for row in table.read("torch_releases")["releases"]:
        newest = max(row["patches"], key=lambda text: [int(part) for part in text.split(".")])
        for name, value in (("CUDA", row["min_cuda"]), ("CUDNN", row["min_cudnn"])):
            if _guard(clone, newest, name):
                look = lambda v=newest, n=name: _guard(clone, v, n)  # noqa: E731
                yield Fact("torch_releases", f"oldest {name} for torch {newest}", value, "cuda.cmake at the tag", look)


@cache
def _guard(clone: str, version: str, name: str) -> str | None:
    text = git(clone, "show", f"v{version}:cmake/public/cuda.cmake")
    match = re.search(rf"{name}_VERSION VERSION_LESS \"?(\d+\.\d+)[\d.]*\"?\)\s*message\(FATAL_ERROR", text)
    return match[1] if match else None


def _companions() -> Iterator[Fact]:
    for row in table.read("companions")["companions"]:
        if row["project"] == "torchvision" and row["evidence"] == "binary" and row["system"] == "linux":
            minor = ".".join(row["version"].split(".")[:2])
            value = ".".join(row["torch"].split(".")[:2])
            said = f"torch of torchvision {row['version']} ({row['machine']})"
            if _readme(minor) is None:
                continue
            yield Fact("companions", said, value, "table in torchvision's own README", lambda m=minor: _readme(m))


@cache
def _readme(minor: str) -> str | None:
    wheel = next(url for name, url, _ in web.wheels("torchvision") if "0.29.2" in name and "x86_64" in name)
    archive = web.archive(wheel)
    text = archive.read(next(name for name in archive.members if name.endswith("METADATA"))).decode("utf-8")
    match = re.search(rf"^\| `([\d.]+)`\s*\| `{re.escape(minor)}`", text, re.MULTILINE)
    return match[1] if match else None


def _sizes(name: str) -> Iterator[Fact]:
    for row in table.read(name)["wheels"]:
        path, (size, _) = next(iter(row["files"].items()))
        look = lambda row=row, path=path: _recorded(row["package"], row["wheel"], path)  # noqa: E731
        yield Fact(
            name, f"size of {path.rpartition('/')[2]} in {row['wheel']}", str(size), "RECORD inside the wheel", look
        )


def _recorded(package: str, wheel: str, path: str) -> str | None:
    url = next((url for name, url, _ in web.wheels(package) if name == wheel), None)
    if url is None:
        return None
    archive = web.archive(url)
    record = archive.read(next(name for name in archive.members if name.endswith(".dist-info/RECORD"))).decode("utf-8")
    match = re.search(rf"^\"?{re.escape(path)}\"?,sha256=[^,]+,(\d+)\s*$", record, re.MULTILINE)
    return match[1] if match else None


def _cards(supported: Path) -> Iterator[Fact]:
    listed: dict[str, set[str]] = {}
    for entry in json.loads(supported.read_text(encoding="utf-8"))["chips"]:
        name = re.sub(r"^NVIDIA ", "", entry["name"])
        listed.setdefault(entry["devid"].lower().removeprefix("0x"), set()).add(name)
    for row in table.read("gpus")["gpus"]:
        for device in row["pci_ids"]:
            if row["official"] and device in listed:
                look = lambda row=row, device=device: _one_of(row["name"], listed[device])  # noqa: E731
                yield Fact("gpus", f"10de:{device}", row["name"], "the list of another driver", look)


def _branches(supported: Path) -> Iterator[Fact]:
    """The last branch of drivers that drives a card, as another driver's list has it."""
    entries = json.loads(supported.read_text(encoding="utf-8"))["chips"]
    said = {one["devid"].lower()[2:]: one["legacybranch"].partition(".")[0] for one in entries if "legacybranch" in one}
    for row in table.read("gpus")["gpus"]:
        for device in row["pci_ids"]:
            if device in said:
                what = f"last driver of {row['name']} (10de:{device})"
                look = lambda device=device: said[device]  # noqa: E731
                yield Fact("gpus", what, str(row["last_driver_branch"]), "the list of another driver", look)


def _one_of(name: str, names: set[str]) -> str:
    """A device may carry several names: a board of another maker, more memory."""
    return name if name in names else ", ".join(sorted(names))


@cache
def _page(package: str) -> str:
    return web.page(f"{web.index_url()}/{package}/").decode("utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", required=True)
    parser.add_argument("--supported", type=Path, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--page", type=Path, help="write the result as a page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
