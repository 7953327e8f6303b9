"""NVIDIA's and conda's layouts on a server of this machine: cut, slow, corrupted, gone; whole, or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.core import run
from rekindle.core.errors import BadInput, FetchFailed, NotFound
from rekindle.core.paths import sha256_of
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolchains
from rekindle.model.platform import Platform
from rekindle.toolchain import command
from rekindle.toolchain import install as installing
from rekindle.toolchain.install import Installation
from rekindle.toolchain.model import Offering, Part, ProviderSettings, ToolSpec
from rekindle.toolchain.providers import conda, debian, folder, redistrib
from rekindle.toolchain.store import Store
from rekindle.toolchain.verify import verify
from support import packages
from support.troubled_server import Trouble, served

LINUX = Platform(system="linux", arch="x86_64")
WINDOWS = Platform(system="windows", arch="x86_64")
NVCC: packages.Files = {"bin/nvcc": b"nvcc", "bin/nvcc.profile": b"TOP"}
WANTED = ToolSpec.parse("cuda==11.8")

linux_kit = pytest.mark.skipif(
    os.name == "nt", reason="UNVERIFIED: a kit for Linux has links, which Windows makes only for some users"
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    found = tmp_path / "site"
    found.mkdir()
    return found


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def address(site: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with served(site, trouble) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "toolchain"))
    return Store()


def listed(site: Path, component: str, version: str, files: packages.Files) -> dict[str, Any]:
    """A component as NVIDIA's list has it, and its archive beside the list."""
    name = f"{component}-linux-x86_64-{version}-archive"
    path = site / component / "linux-x86_64" / f"{name}.tar.xz"
    path.parent.mkdir(parents=True, exist_ok=True)
    packages.tarball(path, {f"{name}/{member}": content for member, content in files.items()})
    return {
        "name": component,
        "license": "CUDA Toolkit",
        "version": version,
        "linux-x86_64": {
            "relative_path": path.relative_to(site).as_posix(),
            "sha256": sha256_of(path),
            "md5": "0" * 32,
            "size": str(path.stat().st_size),
        },
    }


@pytest.fixture(scope="module")
def _release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("release")
    table = {
        "release_date": "2022-10-03",
        "release_label": "11.8.0",
        "cuda_nvcc": listed(site, "cuda_nvcc", "11.8.89", {**NVCC, "bin/ptxas": os.urandom(1_500_000)}),
        "cuda_cudart": listed(
            site, "cuda_cudart", "11.8.89", {"lib/libcudart.so.11.8.89": os.urandom(1_500_000), "include/cuda.h": b"//"}
        ),
        "cuda_cccl": listed(site, "cuda_cccl", "11.8.89", {"include/cub/cub.cuh": b"//"}),
        "cuda_gdb": listed(site, "cuda_gdb", "11.8.86", {"bin/cuda-gdb": b"gdb"}),
    }
    (site / "redistrib_11.8.0.json").write_text(json.dumps(table), encoding="utf-8")
    return site


@pytest.fixture
def nvidia(site: Path, address: str, _release: Path) -> str:
    shutil.copytree(_release, site, dirs_exist_ok=True)
    return address


def settings(store: Store, mirror: str | None = None, **more: Any) -> ProviderSettings:
    return ProviderSettings(state=store.state, mirror=mirror, **more)


def how(store: Store, mirror: str | None = None, **more: Any) -> Installation:
    return Installation(place=LINUX, settings=settings(store, mirror, **more))


def offered(store: Store, mirror: str, place: Platform = LINUX) -> Offering:
    found = redistrib.find(WANTED, place, settings(store, mirror)).offering
    assert found is not None
    return found


# --- NVIDIA's lists ------------------------------------------------------------------------------------------------


def test_what_a_build_needs_of_a_release(store: Store, nvidia: str) -> None:
    found = offered(store, nvidia)
    assert [part.name for part in found.parts] == ["cuda_nvcc", "cuda_cudart", "cuda_cccl"]
    assert (str(found.version), str(found.release)) == ("11.8.89", "11.8.0")
    assert any("libcublas" in text for text in found.gone), "what a build needs and the list lacks is said"
    full = redistrib.find(WANTED, LINUX, settings(store, nvidia, full=True)).offering
    assert full is not None and "cuda_gdb" in [part.name for part in full.parts]


def test_before_11_8_the_profilers_header_came_with_nvprof(site: Path, store: Store, address: str) -> None:
    """PyTorch includes cuda_profiler_api.h, and the lists of 11.4 to 11.7 have no component of that name."""
    table = {
        "release_label": "11.7.1",
        "cuda_nvcc": listed(site, "cuda_nvcc", "11.7.99", NVCC),
        "cuda_nvprof": listed(site, "cuda_nvprof", "11.7.101", {"include/cuda_profiler_api.h": b"//"}),
    }
    (site / "redistrib_11.7.1.json").write_text(json.dumps(table), encoding="utf-8")
    found = redistrib.find(ToolSpec.parse("cuda==11.7"), LINUX, settings(store, address)).offering
    assert found is not None and [part.name for part in found.parts] == ["cuda_nvcc", "cuda_nvprof"]
    assert not any("profiler" in text for text in found.gone)


def test_a_list_that_is_not_the_published_one_is_said_to_be(store: Store, nvidia: str) -> None:
    assert any(
        "other archives than the one published on 2022-10-03" in text for text in offered(store, nvidia).unverified
    )


def test_another_platform_is_not_made_up(store: Store, nvidia: str) -> None:
    assert "no cuda_nvcc for windows-x86_64" in redistrib.find(WANTED, WINDOWS, settings(store, nvidia)).why


def test_no_server_is_a_reason_and_no_error(store: Store, address: str) -> None:
    assert "404" in redistrib.find(WANTED, LINUX, settings(store, address)).why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "<html>",
        '{"cuda_nvcc": {"version": "1", "linux-x86_64": {"relative_path": "../../x", "sha256": "%s", "size": "1"}}}',
        '{"cuda_nvcc": {"version": "1", "linux-x86_64": {"relative_path": "x", "sha256": "short", "size": "1"}}}',
        '{"cuda_nvcc": {"linux-x86_64": {"relative_path": "x", "sha256": "%s", "size": "1"}}}',
    ],
)
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        redistrib.read(text.replace("%s", "0" * 64).encode(), "redistrib_11.8.0.json")


def test_a_cudnn_is_taken_for_its_cuda() -> None:
    inner = {"relative_path": "cudnn/x.tar.xz", "sha256": "1" * 64, "size": "5"}
    other = {"relative_path": "cudnn/y.tar.xz", "sha256": "2" * 64, "size": "5"}
    table = {
        "cudnn": {
            "version": "8.7.0.84",
            "cuda_variant": ["10", "11"],
            "linux-x86_64": {"cuda10": inner, "cuda11": other},
            "windows-x86_64": {},
        }
    }
    found = redistrib.read(json.dumps(table).encode(), "redistrib_8.7.0.json")
    assert found.of("linux-x86_64", "cuda11")["cudnn"].path == "cudnn/y.tar.xz"
    assert not found.of("windows-x86_64", "cuda11") and found.label == "8.7.0"


@pytest.mark.long
@linux_kit
def test_thirty_cuts_at_random_places_are_resumed(store: Store, nvidia: str, trouble: Trouble) -> None:
    offering = offered(store, nvidia)
    random.seed(28)
    sizes = {part.file: part.size for part in offering.parts}
    names = [name for name in sizes if "cccl" not in name]
    trouble.cuts = {name: sorted(random.sample(range(1, sizes[name]), 15)) for name in names}
    left = sum(map(len, trouble.cuts.values()))
    assert left == 30
    for _ in range(20):
        with store.locked():
            try:
                installing.install(store, offering, how(store, nvidia))
                break
            except FetchFailed:
                assert not store.kits(), "never half-filled"
    (kit,) = store.kits()
    assert not any(trouble.cuts.values()), "every cut happened"
    ranges = [wanted for path, wanted in trouble.asked if wanted and "cudart" in path]
    assert len(ranges) >= 10, "and the download went on behind it"
    assert all(finding.state.value != "FAIL" for finding in verify(store, kit) if finding.id.endswith("files"))


def test_a_corrupted_archive_is_never_used(store: Store, nvidia: str, trouble: Trouble) -> None:
    offering = offered(store, nvidia)
    trouble.corrupt = {offering.parts[0].file}
    with store.locked(), pytest.raises(FetchFailed, match="SHA-256"):
        installing.install(store, offering, how(store, nvidia))
    assert not store.kits() and not any(store.objects.glob("*/*")), "nothing was unpacked"
    trouble.corrupt = set()
    with store.locked():
        installing.install(store, offering, how(store, nvidia))
    assert trouble.times(offering.parts[1].file) == 1, "what had arrived whole is not fetched again"


def test_an_archive_that_is_gone_is_named(store: Store, nvidia: str, trouble: Trouble) -> None:
    offering = offered(store, nvidia)
    trouble.gone = {offering.parts[1].file}
    with store.locked(), pytest.raises(FetchFailed, match=r"cuda_cudart.*404"):
        installing.install(store, offering, how(store, nvidia))
    assert not store.kits()


def test_an_archive_shorter_than_its_hash_says(store: Store, nvidia: str, site: Path) -> None:
    offering = offered(store, nvidia)
    path = next(site.rglob(str(offering.parts[1].file)))
    path.write_bytes(path.read_bytes()[:-100])
    with store.locked(), pytest.raises(FetchFailed, match="SHA-256"):
        installing.install(store, offering, how(store, nvidia))
    assert not store.kits()


def test_a_slow_server_is_waited_for_and_parts_come_side_by_side(store: Store, nvidia: str, trouble: Trouble) -> None:
    offering = offered(store, nvidia)
    trouble.slow = 0.3
    with store.locked():
        installing.bring(store, offering, how(store, nvidia))
    assert trouble.side_by_side > 1
    assert all(store.archive(part).is_file() for part in offering.parts)


@linux_kit
def test_two_at_once_download_once(store: Store, nvidia: str, trouble: Trouble) -> None:
    offering = offered(store, nvidia)

    def run() -> None:
        with Store().locked():
            installing.install(Store(), offering, how(store, nvidia))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trouble.times(part.file) for part in offering.parts] == [1, 1, 1]


def test_the_profile_is_ours_where_nvidias_installer_did_not_run(store: Store, nvidia: str) -> None:
    with store.locked():
        kit = installing.install(store, offered(store, nvidia), how(store, nvidia))
    text = (store.folder(kit) / "bin" / "nvcc.profile").read_text(encoding="utf-8")
    assert "$(TOP)/nvvm/bin:$(_HERE_):" in text and "targets" not in text


# --- apt's packages ------------------------------------------------------------------------------------------------


def said(out: str) -> run.Result:
    return run.Result(args=("apt-get",), code=0, out=out)


def test_a_large_package_goes_on_where_a_killed_run_stopped(
    site: Path, store: Store, address: str, trouble: Trouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`apt-get download` throws away what is there of a file; seen with a run that was killed at 33 of 667 MB."""
    body = os.urandom(900_000)
    (site / "g_1_arm64.deb").write_bytes(body)
    part = Part(
        name="g", version="1", file="g_1_arm64.deb", size=len(body), sha256=hashlib.sha256(body).hexdigest(),
        origin="apt:bookworm/g=1:arm64",
    )  # fmt: skip
    monkeypatch.setattr(debian, "_read_origin", lambda _: ("bookworm", "g", "1", "arm64"))
    monkeypatch.setattr(debian._State, "make", lambda _: None)
    monkeypatch.setattr(debian._State, "has_proxy", lambda _: False)
    named = f"'{address}/g_1_arm64.deb' g_1_arm64.deb {len(body)} SHA256:{part.sha256}\n"
    monkeypatch.setattr(debian._State, "apt", lambda *_, **__: said(named))
    (tmp_path / "g_1_arm64.deb.part").write_bytes(body[:400_000])
    (found,) = debian.fetch([part], tmp_path, settings(store))
    assert found.read_bytes() == body
    assert trouble.asked == [("/g_1_arm64.deb", "bytes=400000-")]


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('Acquire::http::Proxy "http://10.0.0.1:3142";', True),
        ('Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";', True),
        ('Acquire::http::Proxy "false";', False),
        ('Acquire::http::Proxy "";', False),
        ('Acquire::Check-Valid-Until "false";', False),
    ],
)
def test_a_proxy_that_only_apt_knows_is_left_to_apt(text: str, own: bool) -> None:
    assert bool(debian._PROXY.search(text)) is own


# --- a manifest, a folder, an adopted toolkit ----------------------------------------------------------------------


def test_a_manifest_makes_the_same_toolchain_elsewhere(
    store: Store, nvidia: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Trouble
) -> None:
    with store.locked():
        kit = installing.install(store, offered(store, nvidia), how(store, nvidia))
    command.write_manifest([kit.name], tmp_path / "m.json")
    gathered = tmp_path / "gathered"
    gathered.mkdir()
    for part in kit.parts:
        (gathered / part.file).write_bytes(store.archive(part).read_bytes())
    before = len(trouble.asked)
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "elsewhere"))
    other = Store()
    read = command.read_manifest(tmp_path / "m.json")
    with other.locked():
        again = installing.install(other, read.kits[0].offering, how(other, source=gathered, offline=True))
    command.compare_manifest(read, [again])
    assert again.digest == kit.digest and len(trouble.asked) == before, "nobody was asked"


def test_a_manifest_of_a_stranger_cannot_leave_the_folder(store: Store, nvidia: str, tmp_path: Path) -> None:
    with store.locked():
        kit = installing.install(store, offered(store, nvidia), how(store, nvidia))
    command.write_manifest([kit.name], tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text(encoding="utf-8")
    for name, instead in [(kit.parts[0].file, "../../x.tar.xz"), (kit.parts[0].file, ".hidden")]:
        (tmp_path / "bad.json").write_text(text.replace(f'"file": "{name}"', f'"file": "{instead}"'), encoding="utf-8")
        with pytest.raises(BadInput):
            command.read_manifest(tmp_path / "bad.json")


def test_archives_of_ones_own(store: Store, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    packages.tarball(own / "cuda_nvcc-linux-x86_64-11.8.89-archive.tar.xz", {"cuda_nvcc-x/bin/nvcc": b"nvcc"})
    found = folder.find(WANTED, LINUX, settings(store, source=own)).offering
    assert found is not None and found.unverified
    with store.locked():
        kit = installing.install(store, found, how(store, source=own))
    assert (store.folder(kit) / "bin" / "nvcc").read_bytes() == b"nvcc"
    (own / "bin").mkdir()
    with pytest.raises(BadInput, match="is a toolkit"):
        folder.find(WANTED, LINUX, settings(store, source=own))
    with pytest.raises(NotFound):
        folder.find(WANTED, LINUX, settings(store, source=tmp_path / "nowhere"))


@linux_kit
def test_verify_finds_what_was_changed(store: Store, nvidia: str) -> None:
    with store.locked():
        kit = installing.install(store, offered(store, nvidia), how(store, nvidia))
    root = store.folder(kit)
    assert verify(store, kit)[0].state.value == "PASS"
    header = root / "include" / "cuda.h"
    header.unlink()
    header.write_bytes(b"/*")
    (root / "include" / "mine.h").write_bytes(b"")
    (root / "bin" / "ptxas").unlink()
    found = verify(store, kit)[0]
    assert found.state.value == "FAIL" and "3 files" in found.found
    assert all(name in found.found for name in ("bin/ptxas", "include/cuda.h", "include/mine.h (not ours)"))


@linux_kit
def test_what_was_changed_is_not_run_to_be_verified(store: Store, nvidia: str, tmp_path: Path) -> None:
    with store.locked():
        kit = installing.install(store, offered(store, nvidia), how(store, nvidia))
    nvcc, ran = store.folder(kit) / "bin" / "nvcc", tmp_path / "ran"
    nvcc.unlink()
    nvcc.write_text(f"#!/bin/sh\ntouch {ran}\n")
    nvcc.chmod(0o755)
    (store.folder(kit) / ".rekindle-x").mkdir()
    (store.folder(kit) / ".rekindle-x" / "x.so").touch()
    (found,) = verify(store, kit)
    assert found.state.value == "FAIL" and ".rekindle-x/x.so (not ours)" in found.found and not ran.exists()


@linux_kit
@pytest.mark.parametrize("name", ["objects", "objects/ab", "kits", "archives", "archives/ab"])
def test_nothing_is_cleared_through_a_link(store: Store, tmp_path: Path, name: str) -> None:
    """`toolchain gc` removed every file of the folder that `objects/ab` led to."""
    mine = tmp_path / "mine"
    (mine / ".old").mkdir(parents=True)
    (mine / "thesis").touch()
    place = store.root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(mine)
    with pytest.raises(BadInput, match="is a link"), store.locked():
        store.collect()
    assert (mine / "thesis").exists() and (mine / ".old").exists()


# --- conda's channels ----------------------------------------------------------------------------------------------


def channel(site: Path, label: str, subdir: str, files: dict[str, packages.Files]) -> None:
    place = site / "nvidia" / "label" / label / subdir
    place.mkdir(parents=True)
    new: dict[str, Any] = {}
    old: dict[str, Any] = {}
    for file, members in files.items():
        path = place / file
        packages.conda(path, members) if file.endswith(".conda") else packages.tarball(path, members)
        name, version, _ = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
        record = {"name": name, "version": version, "build_number": 0, "size": path.stat().st_size}
        record["sha256"] = sha256_of(path)
        (new if file.endswith(".conda") else old)[file] = record
    (place / "repodata.json").write_text(json.dumps({"packages": old, "packages.conda": new}), encoding="utf-8")


@linux_kit
def test_a_toolkit_from_a_channel(store: Store, site: Path, address: str) -> None:
    channel(
        site,
        "cuda-11.8.0",
        "linux-64",
        {
            "cuda-nvcc-11.8.89-0.tar.bz2": {"bin/nvcc": b"nvcc", "info/index.json": b"{}"},
            "cuda-cudart-11.8.89-0.conda": {"targets/x86_64-linux/lib/libcudart.so.11.8.89": b"ELF"},
            "cuda-cudart-dev-11.8.89-0.tar.bz2": {
                "targets/x86_64-linux/include/cuda_runtime.h": b"//",
                "include/cuda_runtime.h": "../targets/x86_64-linux/include/cuda_runtime.h",
            },
        },
    )
    found = conda.find(WANTED, LINUX, settings(store, address)).offering
    assert found is not None
    assert [part.name for part in found.parts] == ["cuda-nvcc", "cuda-cudart", "cuda-cudart-dev"]
    with store.locked():
        kit = installing.install(store, found, how(store, address))
    root = store.folder(kit)
    assert (root / "lib64" / "libcudart.so").read_bytes() == b"ELF"
    assert (root / "include" / "cuda_runtime.h").read_bytes() == b"//"
    assert not (root / "info").exists()


def test_a_channel_with_a_broken_list_does_not_answer_for_one_that_was_silent(
    store: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = (each for each in toolchains.conda_sets() if each.tool == WANTED.name)

    def asked(each: toolchains.CondaSet, *_: object) -> None:
        raise FetchFailed("no answer") if each.channel == row.channel else BadInput("no list of packages")

    monkeypatch.setattr(conda, "conda_sets", lambda: (row, msgspec.structs.replace(row, channel="another")))
    monkeypatch.setattr(conda, "_asked", asked)
    assert conda.find(WANTED, LINUX, settings(store, address)).silent


def test_the_newest_build_with_a_hash_is_chosen() -> None:
    packages = {
        "x-1.0-0.tar.bz2": {"name": "x", "version": "1.0", "build_number": 0, "sha256": "0" * 64},
        "x-1.10-0.conda": {"name": "x", "version": "1.10", "build_number": 0, "sha256": "1" * 64},
        "x-1.10-1.conda": {"name": "x", "version": "1.10", "build_number": 1, "sha256": "2" * 64},
        "x-2.0-0.conda": {"name": "x", "version": "2.0", "build_number": 0},
        "../x-9-0.conda": {"name": "x", "version": "9", "build_number": 0, "sha256": "3" * 64},
    }
    records = conda.read(json.dumps({"packages": packages}).encode(), "repodata.json")
    assert conda.choose(records, "x", None) == "x-1.10-1.conda"
    assert conda.choose(records, "x", Version("1.0")) == "x-1.0-0.tar.bz2"
    assert conda.choose(records, "y", None) is None


ODD = (
    [1],
    "x",
    {"name": "x", "version": {}},
    {"name": "x", "version": "1", "build_number": "x"},
    {"name": "x", "version": "1", "build_number": 1e999},
    {"name": "x", "version": "1", "sha256": "../../x"},
)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"<html>", b'{"packages": [1]}', b'{"packages": {}, "packages.conda": 5}']
    + [json.dumps({"packages": {"x-1-0.conda": odd}}).encode() for odd in ODD],
)
def test_a_list_of_no_channel_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        conda.read(data, "repodata.json")
