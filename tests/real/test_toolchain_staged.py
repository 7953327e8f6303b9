"""Archives in NVIDIA's and conda's layout, packed from the files of a real CUDA, on a server that misbehaves.

The commands run as processes of their own, as a user's do. REKINDLE_TEST_TOOLKIT names a CUDA toolkit (a folder with
bin, include, lib64 and nvvm); without it, one of this machine that compiles for Kepler is taken.
"""

from __future__ import annotations

import json
import lzma
import os
import platform
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rekindle.core.paths import sha256_of
from rekindle.knowledge.cuda.toolchains import redistrib_sets
from support.artefacts import cache, made_once, unverified
from support.cuda import kepler_toolkit
from support.pace import seconds
from support.troubled_server import Trouble, served

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="UNVERIFIED: a CUDA toolkit for Linux is needed"),
]
PROJECT = Path(__file__).resolve().parents[2]
SBSA = platform.machine() == "aarch64"
WORD = "linux-sbsa" if SBSA else "linux-x86_64"
SUBDIR = "linux-aarch64" if SBSA else "linux-64"
TARGET = "sbsa-linux" if SBSA else "x86_64-linux"
CCCL = ("cub", "thrust", "cuda", "nv")


class Real:
    """The files of a real toolkit, by the component that NVIDIA has them in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        said = subprocess.run([str(root / "bin" / "nvcc"), "--version"], capture_output=True, text=True, check=False)
        self.version = said.stdout.rpartition(", V")[2].split()[0] if ", V" in said.stdout else "11.8.89"
        self.release = ".".join(self.version.split(".")[:2])
        self.parts: dict[str, dict[str, Path]] = {"cuda_nvcc": {}, "cuda_cudart": {}, "cuda_cccl": {}}
        for name in ("nvcc", "ptxas", "fatbinary", "cudafe++", "nvlink", "bin2c"):
            self.parts["cuda_nvcc"][f"bin/{name}"] = root / "bin" / name
        for path in sorted((root / "nvvm").rglob("*")):
            if path.is_file():
                self.parts["cuda_nvcc"][f"nvvm/{path.relative_to(root / 'nvvm').as_posix()}"] = path
        for path in sorted((root / "include").rglob("*")):
            top = path.relative_to(root / "include").parts[0]
            if path.is_file():
                own = "cuda_cccl" if top in CCCL else "cuda_nvcc" if top == "crt" else "cuda_cudart"
                self.parts[own][f"include/{path.relative_to(root / 'include').as_posix()}"] = path
        libraries = next(each for each in (root / "lib64", root / "lib") if each.is_dir())
        for path in sorted([*libraries.glob("libcudart*"), *libraries.glob("libcudadevrt*")]):
            self.parts["cuda_cudart"][f"lib/{path.name}"] = path

    def tar(self, component: str, to: Path, prefix: str, moved: dict[str, str] | None = None) -> Path:
        with tarfile.open(to, "w") as tar:
            for name, path in self.parts[component].items():
                top = name.partition("/")[0]
                info = tar.gettarinfo(path, arcname=f"{prefix}{(moved or {}).get(top, top)}{name[len(top) :]}")
                info.uid = info.gid = 0
                if info.issym():
                    tar.addfile(info)
                else:
                    # A file that a package has twice would come as a hard link to a name of this machine.
                    info.type, info.size = tarfile.REGTYPE, path.stat().st_size
                    with path.open("rb") as stream:
                        tar.addfile(info, stream)
        return to


@pytest.fixture(scope="module")
def real() -> Real:
    named = os.environ.get("REKINDLE_TEST_TOOLKIT")
    root = Path(named) if named else Path(kepler_toolkit().root)
    if not (root / "nvvm").is_dir():
        unverified(f"`{root}` is spread over the system: REKINDLE_TEST_TOOLKIT names a toolkit in one folder")
    return Real(root)


@pytest.fixture(scope="module")
def nvidia(real: Real) -> Path:
    """`redistrib_11.8.0.json` with its archives beside it, packed once."""
    return made_once(cache() / f"staged-{real.version}-{WORD}", lambda place: _stage(real, place))


def _stage(real: Real, site: Path) -> None:
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir()
    row = next(row for row in redistrib_sets() if row.tool == "cuda")
    label = next(label for label in row.labels if label.startswith(f"{real.release}."))
    table: dict[str, Any] = {"release_date": "2022-10-03", "release_label": label, "release_product": "cuda"}
    for component in real.parts:
        name = f"{component}-{WORD}-{real.version}-archive"
        path = site / component / WORD / f"{name}.tar.xz"
        path.parent.mkdir(parents=True)
        plain = real.tar(component, site / "plain.tar", f"{name}/")
        path.write_bytes(lzma.compress(plain.read_bytes(), preset=0))
        plain.unlink()
        about = {"relative_path": path.relative_to(site).as_posix(), "sha256": sha256_of(path), "md5": "0" * 32}
        table[component] = {
            "name": component,
            "license": "CUDA Toolkit",
            "license_path": f"{component}/LICENSE.txt",
            "version": real.version,
            WORD: {**about, "size": str(path.stat().st_size)},
        }
    (site / f"redistrib_{label}.json").write_text(json.dumps(table, indent=4), encoding="utf-8")


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def address(nvidia: Path, trouble: Trouble) -> Iterator[str]:
    with served(nvidia, trouble) as found:
        yield found


class Client:
    """`rekindle toolchain`, a process each time, with a folder of its own."""

    def __init__(self, root: Path, real: Real) -> None:
        self.root, self.wanted = root, f"cuda=={real.release}"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environ |= {"REKINDLE_TOOLCHAIN": str(self.root), "PYTHONPATH": str(PROJECT / "src"), "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "rekindle", "toolchain", *words],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.begin(*words)
        out, err = process.communicate(timeout=seconds(1500))
        return process.returncode, out, err

    def install(self, address: str, provider: str = "redistrib") -> list[str]:
        return ["install", self.wanted, "--provider", provider, "--mirror", address, "--accept-licence", "--json"]

    @property
    def kits(self) -> list[str]:
        folder = self.root / "kits"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    @property
    def objects(self) -> int:
        return sum(path.is_file() for path in (self.root / "objects").rglob("*"))


@pytest.fixture
def client(tmp_path: Path, real: Real) -> Client:
    return Client(tmp_path / "t", real)


def archives(site: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in site.rglob("*.tar.xz")}


def whole(client: Client, real: Real) -> None:
    """Every file that was packed is in the kit, byte for byte, and the kit says so itself."""
    code, out, err = client.run("verify", client.wanted)
    assert code == 0, out + err
    (name,) = client.kits
    for files in real.parts.values():
        for member, path in files.items():
            assert (client.root / "kits" / name / member).read_bytes() == path.read_bytes(), member


def test_thirty_cuts_are_resumed_and_the_kit_compiles(
    client: Client, real: Real, nvidia: Path, address: str, trouble: Trouble
) -> None:
    random.seed(28)
    sizes = archives(nvidia)
    for name in random.choices(sorted(sizes), weights=[sizes[each] for each in sorted(sizes)], k=30):
        trouble.cuts.setdefault(name, []).append(random.randrange(1, sizes[name]))
    runs = 0
    code = 7
    while code == 7 and runs < 20:
        runs += 1
        code, out, err = client.run(*client.install(address))
        assert code == 0 or not client.kits, "never half-filled"
    assert code == 0, out + err
    assert not any(trouble.cuts.values()), "every cut happened"
    sent = [wanted for path, wanted in trouble.asked if wanted and path.endswith(".tar.xz")]
    assert len(sent) >= 25, "downloads went on behind a cut"
    whole(client, real)
    assert client.run("install", "gcc==11", "--json")[0] == 0, "UNVERIFIED: no GCC 11 to be had here"
    code, out, err = client.run("smoke", client.wanted, "--gpu", "sm_35")
    assert "PASS       a kernel compiles for sm_35" in out, out + err
    assert "calls its own ptxas" in out


def test_two_processes_download_once(client: Client, real: Real, nvidia: Path, address: str, trouble: Trouble) -> None:
    trouble.slow = 0.5
    both = [client.begin(*client.install(address)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=seconds(1500))
        assert process.returncode == 0, out + err
    assert {name: trouble.times(name) for name in archives(nvidia)} == dict.fromkeys(archives(nvidia), 1)
    whole(client, real)


@pytest.mark.parametrize("kind", ["corrupted", "truncated", "gone", "wrong hash", "slow"])
def test_nothing_unverified_is_used(client: Client, nvidia: Path, trouble: Trouble, tmp_path: Path, kind: str) -> None:
    site = tmp_path / "site"
    shutil.copytree(nvidia, site)
    (bad,) = site.rglob("cuda_cudart-*.tar.xz")
    table = next(site.glob("redistrib_*.json"))
    if kind == "corrupted":
        trouble.corrupt = {bad.name}
    elif kind == "gone":
        trouble.gone = {bad.name}
    elif kind == "truncated":
        bad.write_bytes(bad.read_bytes()[:-4096])
    elif kind == "wrong hash":
        table.write_text(table.read_text("utf-8").replace(sha256_of(bad), "0" * 64), encoding="utf-8")
    else:
        trouble.slow = 3.0
    with served(site, trouble) as address:
        code, out, err = client.run(*client.install(address))
        if kind == "slow":
            assert code == 0 and len(client.kits) == 1, out + err
            return
        assert code == 7, out + err
        assert ("404" if kind == "gone" else "SHA-256") in err
        assert not client.kits and client.objects == 0, "nothing of it was unpacked"
        if kind in ("corrupted", "gone"):
            trouble.corrupt, trouble.gone = set(), set()
            assert client.run(*client.install(address))[0] == 0
            others = [name for name in archives(site) if name != bad.name]
            assert all(trouble.times(name) == 1 for name in others), "what had arrived is not fetched again"


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of its own that can really be full."""
    folder = Path(tempfile.mkdtemp(prefix="rekindle-full-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700m", "tmpfs", str(folder)], check=False)
    if done.returncode:
        folder.rmdir()
        unverified("a file system of its own can be mounted only by root")
    yield folder
    subprocess.run(["umount", str(folder)], check=False)
    folder.rmdir()


def fill(folder: Path) -> None:
    """Every last byte of the file system."""
    with (folder / "filler").open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    stream.write(b"\0" * size)
            except OSError:
                continue


@pytest.mark.parametrize("moment", ["before", "downloading", "unpacking"])
def test_a_full_disk_leaves_no_half_kit(small: Path, real: Real, address: str, trouble: Trouble, moment: str) -> None:
    client = Client(small / "t", real)
    process = None
    if moment == "before":
        fill(small)
    elif moment == "downloading":
        trouble.before = lambda name: fill(small) if name.startswith("cuda_nvcc") else None
    else:
        process = client.begin(*client.install(address))
        until = time.monotonic() + seconds(600)
        while client.objects == 0 and time.monotonic() < until:
            time.sleep(0.01)
        fill(small)
    process = process or client.begin(*client.install(address))
    out, err = process.communicate(timeout=seconds(1500))
    assert process.returncode == 13, out + err
    assert "Traceback" not in err and ("full" in err or "are free" in err), err
    assert not client.kits
    (small / "filler").unlink()
    trouble.before = None
    code, out, err = client.run(*client.install(address))
    assert code == 0, out + err
    whole(client, real)


@pytest.mark.parametrize("ending", [".conda", ".tar.bz2"])
def test_a_channel_of_conda(client: Client, real: Real, tmp_path: Path, trouble: Trouble, ending: str) -> None:
    """Both of conda's formats, in NVIDIA's folders: the files below `targets`, as its packages have them."""
    site = tmp_path / "channel"
    place = site / "nvidia" / "label" / f"cuda-{real.release}.0" / SUBDIR
    place.mkdir(parents=True)
    names = {"cuda_nvcc": "cuda-nvcc", "cuda_cudart": "cuda-cudart-dev", "cuda_cccl": "cuda-cccl"}
    moved = {"include": f"targets/{TARGET}/include", "lib": f"targets/{TARGET}/lib"}
    known: dict[str, Any] = {}
    for component, package in names.items():
        file = f"{package}-{real.version}-0{ending}"
        plain = real.tar(component, tmp_path / "plain.tar", "", moved)
        _pack(place / file, plain)
        record = {"name": package, "version": real.version, "build": "0", "build_number": 0}
        known[file] = {**record, "sha256": sha256_of(place / file), "size": (place / file).stat().st_size}
    both = {"packages": known, "packages.conda": {}} if ending == ".tar.bz2" else {"packages.conda": known}
    (place / "repodata.json").write_text(json.dumps(both), encoding="utf-8")
    size = max(record["size"] for record in known.values())
    largest = next(file for file, record in known.items() if record["size"] == size)
    trouble.cuts = {largest: sorted(random.sample(range(1, size), 3))}
    with served(site, trouble) as address:
        code, out, err = client.run(*client.install(address, "conda"))
    assert code == 0, out + err
    assert not trouble.cuts[largest]
    whole(client, real)


def _pack(to: Path, plain: Path) -> None:
    if to.suffix == ".bz2":
        import bz2

        to.write_bytes(bz2.compress(plain.read_bytes(), 1))
        return
    import zipfile

    stem = to.name.removesuffix(".conda")
    with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"pkg-{stem}.tar.zst", zstandard.ZstdCompressor(level=1).compress(plain.read_bytes()))
        archive.writestr(f"info-{stem}.tar.zst", zstandard.compress(b"\0" * 10240))
