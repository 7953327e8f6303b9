"""NVIDIA's published lists of archives, parsed whole: every component that a build takes, for every platform.

Put copies into the tests' cache, as `redistrib/cuda/redistrib_11.8.0.json` and `redistrib/cudnn/redistrib_8.7.0.json`.
nixpkgs keeps them below pkgs/development/cuda-modules, and an archive of its old CUDAs has the rest.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import RedistribSet, redistrib_list, redistrib_sets
from rekindle.toolchain.providers import redistrib
from support.artefacts import cache, unverified

ABOUT = {"release_date", "release_label", "release_product"}
ASKED = ("11.4.4", "11.8.0", "12.6.3", "13.0.2")


def row_of(product: str) -> RedistribSet:
    return next(row for row in redistrib_sets() if row.tool == product)


def lists(product: str) -> list[Path]:
    found = sorted((cache() / "redistrib" / product).glob("redistrib_*.json"))
    if not found:
        unverified(f"no copies of NVIDIA's lists of {product} are in the tests' cache")
    return found


def read(product: str, release: str) -> redistrib.Redistrib:
    path = cache() / "redistrib" / product / f"redistrib_{release}.json"
    if not path.is_file():
        unverified(f"no copy of {path.name} is in the tests' cache")
    return redistrib.read(path.read_bytes(), path.name)


@pytest.mark.parametrize("product", ["cuda", "cudnn"])
def test_every_list_is_parsed_whole(product: str) -> None:
    """Each object with a hash anywhere in the file is an archive that was understood, and no other one is."""
    for path in lists(product):
        table = json.loads(path.read_bytes())
        found = redistrib.read(path.read_bytes(), path.name)

        def hashes(value: object) -> list[str]:
            if not isinstance(value, dict):
                return []
            own = [value["sha256"]] if "sha256" in value else []
            return own + [each for inner in value.values() for each in hashes(inner)]

        assert sorted(one.sha256 for one in found.archives) == sorted(hashes(table)), path.name
        assert {one.component for one in found.archives} <= set(table) - ABOUT
        assert all(one.size > 0 and one.version for one in found.archives)


@pytest.mark.parametrize("product", ["cuda", "cudnn"])
def test_every_list_is_the_one_that_the_table_knows(product: str) -> None:
    for path in lists(product):
        found = redistrib.read(path.read_bytes(), path.name)
        known = redistrib_list(product, found.label)
        assert known is not None and (known.digest, known.archives) == (found.digest, len(found.archives)), path.name


@pytest.mark.parametrize("release", ASKED)
@pytest.mark.parametrize("platform", ["windows-x86_64", "linux-x86_64", "linux-sbsa"])
def test_what_a_build_needs_is_in_every_release(release: str, platform: str) -> None:
    have = read("cuda", release).of(platform)
    row = row_of("cuda")
    assert row.lacks(have) == ()
    chosen = row.chosen(have)
    assert ("cuda_nvprof" in chosen) == (Version(release) < Version("11.8")), "cuda_profiler_api.h came with nvprof"
    assert ("visual_studio_integration" in chosen) == (platform == "windows-x86_64")
    assert {"cuda_crt", "libnvvm"} <= set(chosen) or Version(release) < Version("13.0"), "13 took nvcc apart"
    names = [have[name].path.rpartition("/")[2] for name in chosen]
    assert all(name.endswith(".zip" if platform.startswith("windows") else ".tar.xz") for name in names)


def test_every_release_that_we_name_lacks_nothing() -> None:
    row = row_of("cuda")
    for path in lists("cuda"):
        found = redistrib.read(path.read_bytes(), path.name)
        for platform in ("windows-x86_64", "linux-x86_64", "linux-sbsa"):
            assert row.lacks(found.of(platform)) == (), (path.name, platform)


@pytest.mark.parametrize(
    ("release", "cuda", "version"), [("8.5.0", "cuda11", "8.5.0.96"), ("8.7.0", "cuda11", "8.7.0.84")]
)
def test_a_cudnn_for_kepler_is_there_for_both_systems(release: str, cuda: str, version: str) -> None:
    found = read("cudnn", release)
    for platform in ("windows-x86_64", "linux-x86_64"):
        assert found.of(platform, cuda)["cudnn"].version == version
