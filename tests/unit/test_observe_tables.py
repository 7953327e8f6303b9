"""Each script of a table on a small recording: the rows follow from the bytes, and one byte changed changes them."""

# ruff: noqa: F811 - fixtures are imported
from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from support import elves, fatbins, packages
from support.observing import KNOWLEDGE, copy, index, observe, publish, rows  # noqa: F401 - fixtures
from support.repositories import git
from tools.observe import chips, difference, dlls, gpus, host_compilers, mathlibs, toolkits, torch_wheels

pytestmark = pytest.mark.long

GIT = shutil.which("git")


def regenerated(place: Path, *words: str, url: str = "", accept: bool = True) -> list[dict[str, Any]]:
    """The table deleted and written anew."""
    place.unlink(missing_ok=True)
    done = observe(place.parents[1], place.stem, *words, *(["--accept"] if accept else []), url=url)
    assert done.returncode == 0, done.stderr
    return rows(place)


def test_library_hashes_are_those_of_the_listing(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    for name in ("dlls", "linux_libraries"):
        first = rows(copy / "cuda" / f"{name}.json")[0]
        (copy / "cuda" / f"{name}.json").write_text(json.dumps({"wheels": [first]}), encoding="utf-8")
        page = folder / first["package"]
        page.mkdir()
        link = f'<a href="x/{first["wheel"]}#sha256={"ab" * 32}">x</a>'
        (page / "index.html").write_text(link, encoding="utf-8")
    place = copy / "cuda" / "library_hashes.json"
    found = regenerated(place, url=url)
    assert {row["sha256"] for row in found} == {"ab" * 32}
    assert regenerated(place, url=url) == found
    (page / "index.html").write_text(link.replace("ab", "ac", 1), encoding="utf-8")
    assert {row["sha256"] for row in regenerated(place, url=url)} == {"ab" * 32, "ac" + "ab" * 31}


def test_dlls_are_the_directory_of_the_wheel(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    place = copy / "cuda" / "dlls.json"
    for package in dlls.PACKAGES:
        publish(folder, package, {})
    path = "tbb-2099.1.0.data/data/Library/bin/tbb12.dll"
    wheels = ("tbb-2099.1.0-py2-none-win_amd64.whl", "tbb-2099.1.0-py3-none-win_amd64.whl")
    publish(folder, "tbb", {wheels[0]: {path: "not read"}, wheels[1]: {path: "MZ bytes"}})
    (first,) = regenerated(place, url=url)
    assert (first["wheel"], first["files"]) == (wheels[1], {path: [8, f"{_crc(b'MZ bytes'):08x}"]})
    publish(folder, "tbb", {wheels[1]: {path: "MZ bytez"}})
    assert regenerated(place, url=url)[0]["files"] == {path: [8, f"{_crc(b'MZ bytez'):08x}"]}


def _crc(data: bytes) -> int:
    import zlib

    return zlib.crc32(data)


def test_old_wheels_are_counted_per_container(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    place = copy / "torch" / "old_wheels.json"

    def wheel(*targets: str) -> dict[str, bytes | str]:
        code = fatbins.container("sm_35", "sm_50") * 3 + fatbins.container(*targets)
        return {
            "torch/lib/libtorch.so": code,
            "torch/lib/libcudart-1b201d85.so.10.0": "",
            "torch-1.2.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 1.2.0\n",
        }

    newest, other = (f"torch-1.2.0-cp3{minor}-cp3{minor}m-manylinux1_x86_64.whl" for minor in (7, 6))
    publish(folder, "torch", {newest: wheel("sm_30", "sm_50"), other: {}, "torch-1.10.0-cp39-cp39-win_amd64.whl": {}})
    (first,) = regenerated(place, url=url)
    assert (first["version"], first["cuda"], first["pythons"]) == ("1.2.0", "10.0", ["3.6", "3.7"])
    assert first["gpu_code"][0]["targets"] == {"sm_30": 1, "sm_35": 3, "sm_50": 4}
    assert (first["coverage"]["3.0"], first["coverage"]["5.0"], first["coverage"]["7.0"]) == ("PARTIAL", "SERVES", "NO")
    assert regenerated(place, url=url) == [first]
    publish(folder, "torch", {newest: wheel("sm_32", "sm_50")})
    done = observe(copy, "old_wheels", url=url)
    assert (done.returncode, rows(place), "reading" in done.stderr) == (0, [first], False)  # opened once is enough
    assert regenerated(place, url=url)[0]["gpu_code"] != first["gpu_code"]


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
@pytest.mark.parametrize(
    ("table", "path", "text", "change"),
    [
        (
            "upstream_builds", ".github/scripts/generate_binary_build_matrix.py",
            'CUDA_ARCHES = ["11.8", "12.6"]\n', ("12.6", "12.7"),
        ),
        (
            "architecture_lists", "torch/utils/cpp_extension.py",
            "named_arches = collections.OrderedDict([\n ('Kepler', '3.5')])\nsupported_arches = ['3.5', '5.0']\n",
            ("'5.0'", "'5.1'"),
        ),
    ],
)  # fmt: skip
def test_tables_of_pytorchs_tree(
    copy: Path,
    tmp_path: Path,
    table: str,
    path: str,
    text: str,
    change: tuple[str, str],
) -> None:
    clone = tmp_path / "clone"
    (clone / path).parent.mkdir(parents=True)
    cmake = clone / "cmake/Modules_CUDA_fix/upstream/FindCUDA/select_compute_arch.cmake"
    cmake.parent.mkdir(parents=True)
    cmake.write_text('if(${arch_name} STREQUAL "Kepler")\n set(arch_bin 3.5)\n', encoding="utf-8")
    place = copy / "torch" / f"{table}.json"
    releases = copy / "torch" / "torch_releases.json"
    only = [row for row in rows(releases) if row["minor"] == "2.7"]
    releases.write_text(json.dumps({"releases": only}), encoding="utf-8")

    def tagged(content: str) -> list[dict[str, Any]]:
        (clone / path).write_text(content, encoding="utf-8")
        for words in (
            ("init", "-q"), ("add", "-A"),
            ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"), ("tag", "-f", "v2.7.1"),
        ):  # fmt: skip
            subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True)
        return regenerated(place, str(clone))

    first = tagged(text)
    assert first
    assert {row["minor"] for row in first} == {"2.7"}
    assert regenerated(place, str(clone)) == first
    assert tagged(text.replace(*change)) != first


OPTIONS = """# option(IN_A_COMMENT "no" ON)
option(USE_NOVELTY "Use it" ON)
cmake_dependent_option(USE_CHILD "Only with it" ON
                       "USE_NOVELTY;NOT \\"WIN32\\"" # why it is so
                       OFF)
string(APPEND FLAGS " $ENV{ASKED_BY_CMAKE}")
set(ENV{ONLY_SET} 1)
"""
SETUP = """# Welcome.
#
#   DOCUMENTED / ALSO_DOCUMENTED   two of them
import os
os.getenv("READ_BY_PYTHON"), "clang" in os.environ["CC"]
"""
FORWARDING = """# Everyday knobs:
#   FORWARDED=1   a toggle
# CMake options, set with -D (NOT environment variables):
#   NEVER_FORWARDED   no variable
set(_ENV_ALIASES "OLD_NAME=NEW_NAME")
set(_ENV_PASSTHROUGH
  PASSED_ON)
"""


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
def test_options_are_what_pytorchs_tree_declares_and_reads(copy: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / "cmake").mkdir(parents=True)
    git(clone, "init", "-q")
    place = copy / "torch" / "torch_options.json"
    trees = {
        "v2.6.0": {"CMakeLists.txt": OPTIONS, "setup.py": SETUP, "cmake/EnvVarForwarding.cmake": ""},
        "v2.7.1": {"CMakeLists.txt": OPTIONS.replace('it" ON)', 'it" OFF)'), "setup.py": SETUP},
        "v2.8.0": {"CMakeLists.txt": "", "setup.py": "", "cmake/EnvVarForwarding.cmake": FORWARDING},
    }

    def read(trees: dict[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
        for tag, files in trees.items():
            for path, text in files.items():
                (clone / path).write_text(text, encoding="utf-8", newline="\n")
            git(clone, "add", "-A")
            git(clone, "commit", "-q", "--allow-empty", "-m", tag)
            git(clone, "tag", "-f", tag)
        return {row["name"]: row for row in regenerated(place, str(clone))}

    releases = copy / "torch" / "torch_releases.json"
    only = [row for row in rows(releases) if row["minor"] in ("2.6", "2.7", "2.8", "2.9")]
    releases.write_text(json.dumps({"releases": only}), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"the clone has no tag of 2\.9"):
        read(trees)
    releases.write_text(json.dumps({"releases": only[:-1]}), encoding="utf-8")
    first = read(trees)
    names = {"USE_NOVELTY", "USE_CHILD", "ASKED_BY_CMAKE", "DOCUMENTED", "ALSO_DOCUMENTED", "READ_BY_PYTHON", "CC"}
    assert set(first) == names | {"FORWARDED", "OLD_NAME", "PASSED_ON"}
    assert first["USE_NOVELTY"]["ranges"] == [
        {"first": "2.6", "last": "2.6", "default": "ON"},
        {"first": "2.7", "last": "2.7", "default": "OFF"},
    ]
    (child,) = first["USE_CHILD"]["ranges"]
    assert (child["condition"], child["otherwise"], child["last"]) == ('USE_NOVELTY;NOT "WIN32"', "OFF", "2.7")
    assert first["READ_BY_PYTHON"]["ranges"] == [{"first": "2.6", "last": "2.7"}]
    assert (first["OLD_NAME"]["becomes"], first["PASSED_ON"]["ranges"][0]["first"]) == ("NEW_NAME", "2.8")
    assert read(trees) == first
    trees["v2.6.0"]["CMakeLists.txt"] = OPTIONS.replace('USE_NOVELTY "', 'USE_NOVELTZ "')
    assert "USE_NOVELTZ" in read(trees)


GUARDS = """if(CUDA_VERSION VERSION_LESS 11.0)
  message(FATAL_ERROR "PyTorch requires CUDA 11.0 or above.")
endif()
if(CUDNN_VERSION VERSION_LESS "8.1.0")
  message(FATAL_ERROR "PyTorch requires cuDNN 8.1 and above.")
endif()
"""
TREE = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.18 FATAL_ERROR)
set(CMAKE_CXX_STANDARD
    17
    CACHE STRING "The C++ standard")
if(CMAKE_COMPILER_IS_GNUCXX AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 9.3)
  message(
    FATAL_ERROR
      "GCC-9.3 or newer is required")
endif()
""",
    "setup.py": "python_min_version = (3, 9, 0)\n",
    "requirements.txt": "setuptools<=75.8.2\n",
    "pyproject.toml": 'requires = ["setuptools"]\n',
}


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
def test_releases_are_what_wheel_and_tree_say(index: tuple[Path, str], copy: Path, tmp_path: Path) -> None:
    folder, url = index
    clone, tape = tmp_path / "clone", str(tmp_path / "tape")
    clone.mkdir()
    git(clone, "init", "-q")
    place = copy / "torch" / "torch_releases.json"
    (before,) = (row for row in rows(place) if row["minor"] == "2.7")

    def read(*words: str, cudnn: str = "9.5.1.17", guards: str = GUARDS, cmake: str = "3.18") -> dict[str, Any]:
        more = f"Requires-Python: >=3.9.0\nRequires-Dist: nvidia-cudnn-cu12=={cudnn}; platform_system == 'Linux'\n"
        wheel = {
            "torch/version.py": f"__version__ = '2.7.1'\ncuda = '12.6'\ngit_version = '{before['commits']['2.7.1']}'\n",
            "torch/share/cmake/Caffe2/public/cuda.cmake": guards,
            "torch-2.7.1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1\n{more}",
        }
        tags = [*(f"cp3{minor}-cp3{minor}" for minor in range(9, 14)), "cp313-cp313t"]
        names = [f"torch-2.7.1-{tag}-{system}.whl" for tag in tags for system in ("manylinux_2_28_x86_64", "win_amd64")]
        if "--offline" not in words:
            publish(folder, "torch", dict.fromkeys(["torch-2.7.0-cp313-cp313t-win_amd64.whl", *names], wheel))
        for path, text in TREE.items():
            (clone / path).write_text(text.replace("VERSION 3.18", f"VERSION {cmake}"), encoding="utf-8", newline="\n")
        git(clone, "add", "-A")
        git(clone, "commit", "-q", "--allow-empty", "-m", "x")
        git(clone, "tag", "-f", "v2.7.1")
        (row,) = regenerated(place, str(clone), *words, url=url)
        return row

    for more in ((), ("--offline",)):
        row = read("--tape", tape, *more)
        assert row["commits"] == {"2.7.1": git(clone, "rev-parse", "v2.7.1")}
        assert row | {"observed_at": "", "commits": {}} == before | {"observed_at": "", "commits": {}}
    assert read(cudnn="9.5.1.18")["variants"][1]["cudnn"] == "9.5.1.18"
    changed = read(guards=GUARDS.replace("LESS 11.0", "LESS 11.4"), cmake="3.19")
    assert (changed["min_cuda"], changed["min_cmake"]) == ("11.4", "3.19")
    place.unlink()
    done = observe(copy, "torch_releases", url=url)
    assert done.returncode == 1
    assert "are read from a clone of pytorch/pytorch with its tags" in done.stderr


def test_every_table_is_told_by_the_list_of_tables(copy: Path) -> None:
    told = observe(copy, "list").stdout.split()
    observed = {path.stem for room in KNOWLEDGE.iterdir() if room.is_dir() for path in room.glob("*.json")}
    assert observed
    assert not observed - set(told)


def test_cudnn_of_a_new_version_is_what_its_libraries_hold(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    place = copy / "cuda" / "cudnn.json"
    name = "nvidia_cudnn_cu12-99.1.0.1-py3-none-manylinux_2_27_x86_64.whl"

    def read(*targets: str) -> dict[str, Any]:
        for package in ("nvidia-cudnn-cu11", "nvidia-cudnn-cu13"):
            publish(folder, package, {})
        libraries = {
            "nvidia/cudnn/lib/libcudnn_x.so.99": fatbins.container(*targets),
            "nvidia/cudnn/lib/libcudnn_y.so.99": fatbins.container(*targets) + fatbins.container("sm_35", *targets),
        }
        publish(folder, "nvidia-cudnn-cu12", {name: libraries})
        before = place.read_bytes()
        done = observe(copy, "cudnn", url=url)
        assert done.returncode == 0, done.stderr
        (row,) = (row for row in rows(place) if row["version"] == "99.1.0.1")
        place.write_bytes(before)
        return row

    first = read("sm_50", "sm_90", "compute_90")
    assert (first["min_capability"], first["targets"]) == ("5.0", ["sm_50", "sm_90", "compute_90"])
    assert read("sm_50", "sm_90", "compute_90") == first
    assert read("sm_60", "sm_90", "compute_90")["min_capability"] == "6.0"
    families = json.loads(place.read_text(encoding="utf-8"))["families"]
    assert [row["version"] for row in regenerated(place, url=url)] == ["99.1.0.1"]
    assert json.loads(place.read_text(encoding="utf-8"))["families"] == families


def test_mathlibs_are_what_the_first_and_the_last_wheel_hold(
    index: tuple[Path, str], copy: Path, tmp_path: Path
) -> None:
    folder, url = index
    place = copy / "cuda" / "mathlibs.json"
    for package in (f"nvidia-{name}{line}" for name in mathlibs.LIBRARIES for line in mathlibs.LINES):
        publish(folder, package, {})

    def read(target: str, *words: str, versions: tuple[str, ...] = ("99.1", "99.2", "99.10")) -> list[dict[str, Any]]:
        names = {version: f"nvidia_cublas-{version}-py3-none-win_amd64.whl" for version in versions}
        held = {names[versions[0]]: fatbins.container("sm_50"), names[versions[-1]]: fatbins.container(target, "sm_90")}
        stray = {"nvidia/bin/cufftw64_99.dll": fatbins.container("sm_52")}
        wheels = {
            name: {"nvidia/bin/CUBLAS64_99.dll": held.get(name, b"never opened"), **stray} for name in names.values()
        }
        publish(folder, "nvidia-cublas", {**wheels, "nvidia_cublas-99.11rc1-py3-none-win_amd64.whl": {}})
        return regenerated(place, *words, url=url)

    first = read("sm_75")
    found = [(row["package"], row["version"], row["library"], row["targets"]) for row in first]
    assert found == [
        ("nvidia-cublas", "99.1", "cublas64_99.dll", ["sm_50"]),
        ("nvidia-cublas", "99.10", "cublas64_99.dll", ["sm_75", "sm_90"]),
    ]
    assert read("sm_80")[1]["targets"] == ["sm_80", "sm_90"]
    tape = str(tmp_path / "tape")
    assert read("sm_75", "--tape", tape) == first
    shutil.rmtree(folder)
    assert regenerated(place, "--tape", tape, "--offline", url=url) == first


def test_a_later_version_takes_the_place_of_the_last_one_without_a_stop() -> None:
    row = {"package": "nvidia-cublas", "version": "13.2.1", "library": "cublas64_13.dll", "targets": ["sm_75"]}
    newer = {**row, "version": "13.10.0"}
    found = difference.compare("cuda/mathlibs.json", {"libraries": [row]}, {"libraries": [newer]}, mathlibs.replaced)
    assert (len(found.added), len(found.removed), found.stops) == (1, 1, [])
    found = difference.compare("cuda/mathlibs.json", {"libraries": [newer]}, {"libraries": [row]}, mathlibs.replaced)
    assert found.stops


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
def test_driver_lists_say_from_which_driver_on_a_card_is_named(copy: Path, tmp_path: Path) -> None:
    place = copy / "gpu" / "driver_lists.json"
    lines = {
        "515.43.04": "",
        "515.57": "| NVIDIA TITAN RTX | 1E02           |\n",
        "570.86.16": "| NVIDIA TITAN RTX | 1E02           |\n| NVIDIA GeForce RTX 5090 | 2B85 10DE 1234 |\n",
        "570.123.07": "| NVIDIA GeForce RTX 5090 | 2B85           |\n| NVIDIA GeForce RTX 5060 | 2D05           |\n",
    }

    def read(lists: dict[str, str]) -> list[tuple[str, str, str]]:
        clone = Path(tempfile.mkdtemp(dir=tmp_path))
        git(clone, "init", "-q")
        for tag in sorted(lists, reverse=True):  # the order of the tags is that of their numbers, not of the commits
            (clone / "README.md").write_text(f"# {tag}\n{lists[tag]}", encoding="utf-8", newline="\n")
            git(clone, "add", ".")
            git(clone, "commit", "-q", "-m", tag)
            git(clone, "tag", tag)
        return [(row["pci_id"], row["name"], row["driver"]) for row in regenerated(place, str(clone))]

    first = [("2b85", "GeForce RTX 5090", "570.86.16"), ("2d05", "GeForce RTX 5060", "570.123.07")]
    assert read(lines) == first
    changed = read({**lines, "570.86.16": lines["570.86.16"].replace("2B85", "2B86")})
    assert changed == [("2b85", "GeForce RTX 5090", "570.123.07"), ("2b86", "GeForce RTX 5090", "570.86.16"), first[1]]


PTXAS = """#!/bin/sh
if [ "$1" = --help ]; then
    echo "--gpu-name <target> (-arch)"
    echo "    Allowed values: {targets}"
    echo "--help (-h)"
else
    grep -q '^.version 8.[0-{minor}]$' "$2"
fi
"""
NOTES = """<table><caption>Table 3 CUDA Toolkit and Corresponding Driver Versions</caption>
<tr><th>CUDA Toolkit</th><th>Linux x86_64 Driver Version</th><th>Windows x86_64 Driver Version</th></tr>
<tr><td><p>CUDA 12.4 Update 1</p></td><td><p>&gt;=550.54.99</p></td><td><p>&gt;=551.78</p></td></tr>
<tr><td><p>CUDA 12.4 GA</p></td><td><p>&gt;=550.54.14</p></td><td><p>N/A</p></td></tr></table>"""


def test_what_a_person_stated_is_what_the_tables_say() -> None:
    def told(module: ModuleType, name: str, key: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        stated = msgspec.toml.decode(module.STATED.read_bytes())
        found = json.loads((KNOWLEDGE / f"{name}.json").read_text(encoding="utf-8"))
        for part, listed in found.items():
            by_key = {row.get(key): row for row in listed}
            for one in stated.get(part, stated.get(part.removesuffix("s"), [])):
                if key in one:
                    yield one, by_key[one[key]]

    for one, row in told(chips, "gpu/chips", "name"):
        assert (row["capability"], row["source"], row["evidence"]) == (one.get("capability"), one["source"], "notes")
    for one, row in told(toolkits, "cuda/toolkits", "version"):
        assert row["minor_floor_windows"] == one.get("minor_floor_windows")
        assert [update["linux"] for update in row["min_drivers"]] == [each["linux"] for each in one["min_drivers"]]
        assert row["targets"] == one.get("targets", row["targets"])
    compilers = list(told(host_compilers, "cuda/host_compilers", "cuda"))
    assert len(compilers) == 9
    assert all(row["gcc_max"] == one.get("gcc_max") and row["source"] == one["source"] for one, row in compilers)


@pytest.mark.skipif(sys.platform != "linux", reason="it asks a program for Linux")
def test_toolkits_are_what_their_own_ptxas_says(index: tuple[Path, str], copy: Path, tmp_path: Path) -> None:
    folder, url = index
    place = copy / "cuda" / "toolkits.json"
    for package in toolkits.PACKAGES:
        publish(folder, package, {})
    name = f"nvidia_cuda_nvcc_cu12-12.4.131-py3-none-manylinux2014_{platform.machine()}.whl"
    notes = tmp_path / "notes.html"
    notes.write_text(NOTES, encoding="utf-8")

    def read(targets: str, minor: int, *words: str) -> dict[str, dict[str, Any]]:
        held = PTXAS.format(targets=targets, minor=minor)
        publish(folder, "nvidia-cuda-nvcc-cu12", {name: {"nvidia/cuda_nvcc/bin/ptxas": held}})
        return {row["version"]: row for row in regenerated(place, *words, url=url)}

    first = read("'sm_50','sm_90','sm_90a'", 4)
    row = first["12.4"]
    assert (row["targets"], row["ptx_isa"], row["evidence"]) == (["sm_50", "sm_90", "sm_90a"], "8.4", "binary")
    assert row["min_drivers"][0] == {"update": 0, "linux": "550.54.14", "windows": "551.61"}
    assert "12.5" not in first
    assert first["11.0"]["evidence"] == "notes"
    changed = read("'sm_50','sm_90','sm_91a'", 5, str(notes))["12.4"]
    assert (changed["targets"], changed["ptx_isa"]) == (["sm_50", "sm_90", "sm_91a"], "8.5")
    assert changed["min_drivers"] == [
        {"update": 0, "linux": "550.54.14", "windows": None},
        {"update": 1, "linux": "550.54.99", "windows": "551.78"},
    ]


def test_system_symbols_are_those_of_the_packages_of_both_architectures(copy: Path, tmp_path: Path) -> None:
    place = copy / "cuda" / "system_symbols.json"
    debs = tmp_path / "debs"
    debs.mkdir()

    def read(name: str) -> dict[str, dict[str, Any]]:
        held = elves.library("malloc", name, "_ZNSt6string", "GLIBC_2.17")
        files = {
            "./lib/x86_64-linux-gnu/libc.so.6": held,
            "./lib/x86_64-linux-gnu/libz.so.1": "libz.so.1.2.13",
            "./lib/x86_64-linux-gnu/libz.so.1.2.13": elves.library("inflate"),
        }
        packages.deb(debs / "libc6_2.36-9_amd64.deb", files)
        packages.deb(debs / "libc6_2.36-9_arm64.deb", {"./lib/aarch64-linux-gnu/libc.so.6": elves.library("free")})
        return {row["name"]: row for row in regenerated(place, str(debs))}

    first = read("arch_prctl")
    assert {name: row["symbols"] for name, row in first.items()} == {
        "libc.so.6": "arch_prctl free malloc",
        "libz.so.1": "inflate",
    }
    assert "libc6_2.36-9_amd64.deb, libc6_2.36-9_arm64.deb" in first["libc.so.6"]["source"]
    assert read("arch_prctl") == first
    assert read("arch_prctm")["libc.so.6"]["symbols"] == "arch_prctm free malloc"


def test_linux_libraries_are_the_directory_of_the_wheel(index: tuple[Path, str], copy: Path) -> None:
    from tools.observe import linux_libraries

    folder, url = index
    for package in linux_libraries.WHOLE:
        publish(folder, package, {})
    packages = copy / "cuda" / "toolkit_packages.json"
    packages.write_text(
        json.dumps({"toolkits": [{"version": "99.1", "components": {"cublas": ["nvidia-cublas==99.1.*"]}}]}), "utf-8"
    )
    place = copy / "cuda" / "linux_libraries.json"
    name = "nvidia_cublas-99.1.4-py3-none-manylinux_2_27_x86_64.whl"
    found = []
    for letter in "xxy":
        publish(folder, "nvidia-cublas", {name: {"nvidia/cu99/lib/libcublas.so.99": letter * 2000}})
        found.append(regenerated(place, url=url))
    assert [row["wheel"] for row in found[0]] == [name]
    assert list(found[0][0]["files"]) == ["nvidia/cu99/lib/libcublas.so.99"]
    assert found[0] == found[1]
    assert found[1] != found[2]


def test_host_compilers_are_the_numbers_of_the_header(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    place = copy / "cuda" / "host_compilers.json"
    for package in host_compilers.PACKAGES:
        publish(folder, package, {})

    def read(newest: int) -> dict[str, dict[str, Any]]:
        header = f"#if _MSC_VER < 1910 || _MSC_VER >= 1950\n#error\n#endif\n#if __GNUC__ > {newest}\n#error\n#endif\n"
        files = {"nvidia/cuda_nvcc/include/crt/host_config.h": header}
        names = (f"nvidia_cuda_nvcc_cu12-12.9.{patch}-py3-none-manylinux1_x86_64.whl" for patch in (41, 100, 86))
        publish(folder, "nvidia-cuda-nvcc-cu12", {name: files if ".100-" in name else {} for name in names})
        return {row["cuda"]: row for row in regenerated(place, url=url)}

    first = read(12)
    row = first["12.9"]
    assert (row["msc_ver_min"], row["msc_ver_below"], row["gcc_max"]) == (1910, 1950, 12)
    assert row["packages"] == [f"nvidia-cuda-nvcc-cu12==12.9.{patch}" for patch in (41, 86, 100)]
    assert (first["11.0"]["gcc_max"], first["11.0"]["evidence"], first["11.0"]["packages"]) == (9, "notes", [])
    before = json.loads((KNOWLEDGE / "cuda" / "host_compilers.json").read_text(encoding="utf-8"))
    after = json.loads(place.read_text(encoding="utf-8"))
    assert [after[name] for name in ("toolsets", "stl")] == [before[name] for name in ("toolsets", "stl")]
    assert read(13)["12.9"]["gcc_max"] == 13


def test_wheel_platforms_are_the_names_on_the_index(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    place = copy / "torch" / "wheel_platforms.json"
    releases = copy / "torch" / "torch_releases.json"
    row = {**rows(releases)[-1], "minor": "99.1", "patches": {"99.1.0": "2027-01-01"}}
    releases.write_text(json.dumps({"releases": [row]}), encoding="utf-8")
    inside = "torch-99.1.0.dist-info"
    files = {
        f"{inside}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 99.1.0\nRequires-Dist: nvidia-x==1\n",
        f"{inside}/WHEEL": "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_28_x86_64\n",
        f"{inside}/RECORD": "",
    }
    publish(folder, "torch", {"torch-99.1.0-cp311-cp311-manylinux_2_28_x86_64.whl": files})
    first = regenerated(place, url=url)
    assert [(one["tag"], one["glibc"], one["machine"]) for one in first] == [("manylinux_2_28", "2.28", "x86_64")]
    assert regenerated(place, url=url) == first
    old = next((folder / "torch").glob("*.whl"))
    old.rename(old.with_name(old.name.replace("2_28", "2_34")))
    publish(folder, "torch", {})
    assert [one["glibc"] for one in regenerated(place, url=url)] == ["2.34"]


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
def test_conda_forge_is_what_its_recipe_says(copy: Path, tmp_path: Path) -> None:
    from tools.observe.conda_forge import BRANCHES

    clone = tmp_path / "feedstock"
    variant = (
        "cuda_compiler_version:\n- '12.9'\ncudnn:\n- '9'\npython:\n- 3.11.* *_cpython\nc_stdlib_version:\n- '2.28'\n"
    )
    listed = 'export TORCH_CUDA_ARCH_LIST="5.0;6.0;6.1;7.0;7.5;8.0;8.6;9.0+PTX"\n'

    def recipe(arch_list: str) -> list[dict[str, Any]]:
        files = {
            "recipe/meta.yaml": '{% set version = "2.9.1" %}\n', "recipe/build.sh": arch_list,
            ".ci_support/linux_64_x.yaml": variant,
        }  # fmt: skip
        for name, text in files.items():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_text(text, encoding="utf-8")
        words = [("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x")]
        for each in (*words, ("checkout", "-q", "--detach"), *(("branch", "-f", branch) for branch in BRANCHES)):
            subprocess.run(["git", "-C", str(clone), *each], check=True, capture_output=True)
        return regenerated(copy / "torch" / "conda_forge.json", str(clone))

    (first,) = recipe(listed)
    assert (first["torch"], first["cuda"], first["arch_list"]) == (
        "2.9.1",
        "12.9",
        "5.0;6.0;6.1;7.0;7.5;8.0;8.6;9.0+PTX",
    )
    assert recipe(listed.replace("6.1", "6.2"))[0]["arch_list"] != first["arch_list"]


@pytest.mark.skipif(not GIT, reason="UNVERIFIED: git is not on this machine")
def test_what_conda_forge_builds_on_pytorch_is_what_its_recipes_say(copy: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clones" / "a"
    variant = "cuda_compiler_version:\n- '{}'\npytorch:\n- '{}'\npython:\n- 3.11.* *_cpython\n"
    files = {
        "README.md": "About conda-forge/pytorch_scatter-feedstock\n",
        "recipe/recipe.yaml": "context:\n  version: 2.1.2\nenv:\n  TORCH_CUDA_ARCH_LIST: 7.5;8.0+PTX\n",
        ".ci_support/linux_64_a.yaml": variant.format("12.9", "2.11"),
        ".ci_support/linux_64_b.yaml": variant.format("13.0", "2.12"),
        ".ci_support/linux_64_c.yaml": variant.format("None", "2.13"),
        ".ci_support/win_64_a.yaml": "cuda_compiler_version:\n- '12.9'\npython:\n- 3.11.*\n",
    }
    for name, text in files.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text, encoding="utf-8")
    words = [("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x")]
    for each in words:
        subprocess.run(["git", "-C", str(clone), *each], check=True, capture_output=True)
    (row,) = regenerated(copy / "torch" / "conda_extensions.json", str(tmp_path / "clones"))
    told = {key: row[key] for key in ("package", "name", "version", "system", "torch", "cuda", "pythons", "arch_list")}
    assert told == {
        "package": "torch-scatter", "name": "pytorch_scatter", "version": "2.1.2", "system": "linux",
        "torch": ["2.11", "2.12"], "cuda": ["12.9", "13.0"], "pythons": ["3.11"], "arch_list": "7.5;8.0+PTX",
    }  # fmt: skip


PCI_IDS = """# Version: 2099.01.02
10de  NVIDIA Corporation
\t1b06  GP102 [GeForce GTX 1080 Ti]
\t06d1  GF100GL [Tesla C2050 / C2070]
\t25ac  GA107BM / GN20-P0-R-K2 [GeForce RTX 3050 Mobile / Max-Q 6GB]
\tfade  GB202 [Reserved Dev ID A]
\t2b00  GB10B [Jetson AGX Thor]
10df  Emulex
"""


def test_cards_are_what_the_lists_of_drivers_and_of_pci_ids_say(copy: Path, tmp_path: Path) -> None:
    place = copy / "gpu" / "gpus.json"
    pci, lists = tmp_path / "pci.ids", tmp_path / "lists"
    lists.mkdir()
    (lists / "README-595.01.md").write_text("| NVIDIA GeForce RTX 3050 6GB | 25AC 1043 1234 |\n", encoding="utf-8")
    entries = [
        {"devid": "0x1B06", "name": "NVIDIA GeForce GTX 1080 Ti"},
        {
            "devid": "0x06D1",
            "subdevid": "0x0772",
            "subvendorid": "0x10DE",
            "name": "Tesla C2070",
            "legacybranch": "390.xx",
        },
        {"devid": "0x1B06", "subdevid": "0x0001", "subvendorid": "0x10DE", "name": "NVIDIA Graphics Device"},
    ]
    (lists / "supported-gpus-470.1.json").write_text(json.dumps({"chips": entries}), encoding="utf-8")
    (lists / "thumbs.db").write_bytes(b"\xff\xfe")

    def read(text: str) -> dict[str, dict[str, Any]]:
        pci.write_text(text, encoding="utf-8", newline="\n")
        return {row["name"]: row for row in regenerated(place, str(pci), str(lists))}

    first = read(PCI_IDS)
    card = first["GeForce GTX 1080 Ti"]
    assert (card["capability"], card["chip"], card["pci_ids"], card["official"]) == ("6.1", "GP102", ["1b06"], True)
    assert card["source"] == "supported-gpus.json of driver 470.1; pci.ids 2099.01.02"
    tesla = first["Tesla C2070"]
    assert (tesla["pci_ids"], tesla["last_driver_branch"]) == (["06d1", "06d1:10de:0772"], "390")
    assert first["GeForce RTX 3050 6GB"]["pci_ids"] == ["25ac:1043:1234"]
    assert first["GeForce RTX 3050 Max-Q 6GB"]["evidence"] == "notes"
    assert not first["NVIDIA Graphics Device"]["official"]
    assert first["Jetson AGX Thor"]["integrated"]
    assert first["Jetson Nano"]["capability"] == "5.3"
    assert "Reserved Dev ID A" not in first
    assert read(PCI_IDS) == first
    assert read(PCI_IDS.replace("GP102", "GP104"))["GeForce GTX 1080 Ti"]["chip"] == "GP104"


@pytest.mark.parametrize(
    ("called", "names"),
    [
        ("GeForce GTX 1080 Ti", ["GeForce GTX 1080 Ti"]),
        ("GH200 120GB / 480GB", ["GH200 120GB", "GH200 480GB"]),
        ("RTX 2000 / 2000E Ada Generation", ["RTX 2000", "RTX 2000E Ada Generation"]),
        ("GeForce 610M/710M / GT 620M/625M", ["GeForce 610M/710M", "GeForce GT 620M/625M"]),
        ("GeForce GTX 960 OEM / 970M", ["GeForce GTX 960 OEM", "GeForce GTX 970M"]),
        ("GeForce RTX 3080 Mobile / Max-Q 8GB/16GB", ["GeForce RTX 3080 Mobile", "GeForce RTX 3080 Max-Q 8GB/16GB"]),
        ("Quadro P2000 Mobile / DRIVE PX 2 AutoChauffeur", ["Quadro P2000 Mobile", "DRIVE PX 2 AutoChauffeur"]),
        ("TS4 / B100", ["TS4", "B100"]),
        ("DGX Station / PH402 SKU 200", ["DGX Station", "PH402 SKU 200"]),
    ],
)
def test_names_behind_a_slash_are_whole_names(called: str, names: list[str]) -> None:
    assert gpus.alternatives(called) == names


def test_chips_are_what_nouveau_and_mesa_say_of_them(copy: Path, tmp_path: Path) -> None:
    place = copy / "gpu" / "chips.json"
    base, info, pci = tmp_path / "base.c", tmp_path / "nouveau_device_info.c", tmp_path / "pci.ids"
    chips = {"nv44": "NV44", "nvc0": "GF100", "nvc1": "GF108", "nv108": "GK208", "nv1b2": "GB202"}
    lines = [f'static const struct chip\n{key}_chipset = {{\n\t.name = "{name}",\n}};\n' for key, name in chips.items()]
    base.write_text("".join(lines), encoding="utf-8")
    pci.write_text("10de  NVIDIA Corporation\n\tfeed  GX999 [Ours]\n\tbeef  GB299 [Card]\n10df  Emulex\n", "utf-8")
    cases = [(">=", "0x1b0", "120"), (">=", "0x0f0", "0x35"), (">=", "0x0c1", "21"), ("==", "0x0c0", "20")]

    def read(changed: str = "21") -> tuple[dict[str, tuple[str, str, str]], str]:
        told = "".join(f"   if (chipset {sign} {at})\n      return {value};\n" for sign, at, value in cases)
        told = told.replace("return 21", f"return {changed}")
        info.write_text(f"uint8_t\nsm_for_chipset(uint16_t chipset)\n{{\n{told}   return 0x00;\n}}\n", encoding="utf-8")
        place.unlink(missing_ok=True)
        done = observe(copy, "chips", str(base), str(info), str(pci), "--accept")
        assert done.returncode == 0, done.stderr
        found = {row["name"]: (row["capability"], row["architecture"], row["evidence"]) for row in rows(place)}
        return found, done.stderr

    first, said = read()
    assert first["GF100"] == ("2.0", "Fermi", "script")
    assert (first["GF108"][0], first["GK208"], first["GB202"][0]) == ("2.1", ("3.5", "Kepler", "script"), "12.0")
    assert first["GK210"] == ("3.7", "Kepler", "notes")
    assert "UNVERIFIED: GK210 (3.7)" in said
    assert "NV44" not in first
    assert "no source gives the capability of GB299" in said
    assert read("22")[0]["GF108"][0] == "2.2"


def test_offline_a_table_without_its_recording_is_unverified_and_nothing_is_written(
    copy: Path,
    tmp_path: Path,
) -> None:
    place = copy / "cuda" / "toolkit_packages.json"
    before = place.read_bytes()
    done = observe(copy, "toolkit_packages", "--offline", "--tape", str(tmp_path / "tape"))
    assert done.returncode == 1
    assert "is not on the tape" in done.stderr
    assert place.read_bytes() == before


def test_dry_compares_and_writes_nothing(index: tuple[Path, str], copy: Path) -> None:
    from support.observing import toolkit

    folder, url = index
    publish(folder, "cuda-toolkit", toolkit("12.6.3", "12.6.4.1.*"))
    place = copy / "cuda" / "toolkit_packages.json"
    before = place.read_bytes()
    done = observe(copy, "toolkit_packages", "--dry", "--accept", url=url)
    assert done.returncode == 0, done.stderr
    assert "gone" in done.stdout
    assert place.read_bytes() == before


def test_all_says_of_each_table_whether_it_was_read(copy: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*.json")}
    done = observe(copy, "all", "--dry", "--offline", "--tape", str(tmp_path / "tape"))
    assert done.returncode == 9, done.stderr
    states = dict(
        line.split(None, 1) for line in done.stdout.splitlines() if "UNVERIFIED" in line or "read anew" in line
    )
    assert states["companions"].startswith("UNVERIFIED: torchvision is not on the tape")
    assert states["host_compilers"].startswith("UNVERIFIED: nvidia-cuda-nvcc")
    assert states["gpus"].startswith("UNVERIFIED: it needs pci.ids")
    assert states["torch_options"].endswith("(--source torch=PATH)")
    assert {path: path.read_bytes() for path in copy.rglob("*.json")} == before


def test_all_takes_what_a_person_brings(copy: Path, tmp_path: Path) -> None:
    pci, lists = tmp_path / "pci.ids", tmp_path / "lists"
    pci.write_text(PCI_IDS, encoding="utf-8")
    lists.mkdir()
    (lists / "README-595.01.md").write_text("| NVIDIA GeForce RTX 3050 6GB | 25AC           |\n", encoding="utf-8")
    brought = ("--source", f"pci={pci}", "--source", f"lists={lists}")
    done = observe(copy, "all", "--offline", "--accept", "--tape", str(tmp_path / "tape"), *brought)
    assert any(line.split() == ["gpus", "read", "anew"] for line in done.stdout.splitlines()), done.stderr
    assert "no source is called nope" in observe(copy, "all", "--source", "nope=1").stderr


@pytest.mark.parametrize("said", ["torch==2.16.0", "torch ==2.16.0", "torch (==2.16.0)", "torch (==2.16.0.post1)"])
def test_a_companion_names_its_torch_in_any_spelling(index: tuple[Path, str], copy: Path, said: str) -> None:
    folder, url = index
    metadata = f"Metadata-Version: 2.1\nName: torchvision\nVersion: 0.31.0\nRequires-Dist: {said}\n"
    files = {
        "torchvision-0.31.0.dist-info/METADATA": metadata,
        "torchvision/version.py": "__version__ = '0.31.0+cu132'\n",
    }
    publish(folder, "torchvision", {"torchvision-0.31.0-cp312-cp312-manylinux_2_28_x86_64.whl": files})
    publish(folder, "torchaudio", {})
    (row,) = regenerated(copy / "torch" / "companions.json", url=url)
    assert (row["version"], row["torch"], row["line"]) == ("0.31.0", "2.16.0", "cu132")


def test_the_wheel_of_one_release_is_added_to_those_that_were_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [{"version": version, "wheel": "old"} for version in ("2.9.1", "2.10.0", "2.15.0")]
    monkeypatch.setattr(torch_wheels.table, "read", lambda _: {"wheels": current})
    read = [{"version": "2.16.0", "wheel": "new"}, {"version": "2.15.1", "wheel": "new"}]
    joined = torch_wheels.joined(read)
    assert [row["version"] for row in joined] == ["2.9.1", "2.10.0", "2.15.1", "2.16.0"]
    assert [row["wheel"] for row in joined] == ["old", "old", "new", "new"]


def test_a_pin_without_a_version_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.observe import linux_libraries

    pins = ["nvidia-nvjitlink-cu12<13,>=12.8.93", "nvidia-nvjitlink-cu12==12.9.86.*"]
    components = dict.fromkeys(linux_libraries.COMPONENTS, pins)
    monkeypatch.setattr(linux_libraries.table, "read", lambda _: {"toolkits": [{"components": components}]})
    wanted = linux_libraries._wanted()
    assert wanted["nvidia-nvjitlink-cu12"] == {"12.9.86"}
    assert not any("<" in name for name in wanted)
