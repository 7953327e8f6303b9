"""A build that takes OpenBLAS: it is found, named to CMake, warned of, or provisioned."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.build import command
from rekindle.build.configure import environment, options, preflight
from rekindle.build.configure.request import BuildFile, BuildRequest, Compiler
from rekindle.core.version import Version
from rekindle.machine.host import Recording, Replay
from rekindle.machine.model import FoundOpenblas, Machine
from rekindle.machine.toolchain import gcc
from rekindle.model.platform import Platform
from rekindle.toolchain import assemble
from rekindle.toolchain.assemble import Layout
from rekindle.toolchain.model import KitFile, Offering
from rekindle.toolchain.store import Store

KIT = "/home/you/t/kits/openblas-0.3.21"


def recorded(*present: str, variables: dict[str, str] | None = None, kits: tuple[str, ...] = ()) -> Replay:
    return Replay(
        Recording(
            os="linux",
            arch="aarch64",
            present=list(present),
            environment=variables or {},
            folders={"/home/you/t/kits": kits},
            asked={"toolchain folder": "/home/you/t"},
        )
    )


def request(found: FoundOpenblas | None, profile: str = "minimal") -> BuildRequest:
    compiler = Compiler(kind="gcc", cxx="g++", c="gcc", cuda_host="g++")
    return BuildRequest(
        source="s", system="linux", arch="aarch64", python="/p/bin/python", compiler=compiler, torch="1.13.1",
        profile=profile, openblas=found,
    )  # fmt: skip


def test_debians_is_found_before_a_private_one() -> None:
    kit = (f"{KIT}/include/cblas.h", f"{KIT}/lib/libopenblas.so")
    system = ("/usr/include/aarch64-linux-gnu/cblas.h", "/usr/lib/aarch64-linux-gnu/libopenblas.so")
    both = gcc.openblas(recorded(*kit, *system, kits=("openblas-0.3.21",)))
    assert [(each.root, each.usual) for each in both] == [("/usr", True), (KIT, False)]
    assert not gcc.openblas(recorded(system[1])), "a library without its header cannot be compiled against"
    named = gcc.openblas(recorded("/o/include/cblas.h", "/o/lib/libopenblas.so", variables={"OpenBLAS_HOME": "/o/"}))
    assert [(each.root, each.found_by) for each in named] == [("/o", "OpenBLAS_HOME")]


def test_a_private_mkl_is_found_too() -> None:
    (found,) = gcc.intel(recorded(kits=("mkl-2026.2.0",)))
    assert found.root == "/home/you/t/kits/mkl-2026.2.0" and found.version == Version("2026.2.0")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FoundOpenblas(root=KIT, found_by="rekindle"), KIT),
        (FoundOpenblas(root="/usr", found_by="system", usual=True), None),
    ],
)
def test_cmake_is_told_where_a_private_one_is(found: FoundOpenblas, said: str | None) -> None:
    asked = request(found)
    places = environment.BuildPlaces(temp="/t")
    made = environment.compute(asked, options.resolve(asked).resolved, places=places)
    assert made.value("OpenBLAS_HOME") == said


def test_without_one_the_build_is_warned_and_provision_brings_it() -> None:
    """From nothing in a chroot: CUDA and GCC were installed, and CMake stopped at `Could not find OpenBLAS`."""
    asked = request(None)
    (found,) = preflight._openblas(asked, options.resolve(asked))
    assert found.state.value == "WARN" and found.fix and "toolchain install openblas" in found.fix.commands[0]
    bare = Machine(os="linux", arch="aarch64")
    wanted = BuildFile(torch="1.13.1", profile="minimal")
    assert command.lacking(wanted, bare) == ("openblas",)
    assert command.lacking(wanted, bare, {"BLAS": "Eigen"}) == ()
    there = Machine(os="linux", arch="aarch64", openblas=(FoundOpenblas(root="/usr", found_by="system", usual=True),))
    assert command.lacking(wanted, there) == ()
    assert command.lacking(wanted, Machine(os="windows", arch="x86_64")) == ()


def test_the_fast_profile_on_x86_takes_mkl_from_pip(tmp_path: Path) -> None:
    assert command.lacking(BuildFile(torch="1.13.1"), Machine(os="linux", arch="x86_64")) == ()


@pytest.mark.parametrize("name", ["include/{}/openblas-pthread/cblas.h", "lib/{}/openblas-pthread/libopenblas.so"])
def test_a_kit_of_debians_has_its_header_where_cmake_looks(name: str) -> None:
    """A kit was installed, and CMake did not find `cblas.h`: it lay in a folder below `include`."""
    layout = Layout(id="debian-library", place=Platform(system="linux", arch="aarch64"))
    placed = layout.target("usr/" + name.format("aarch64-linux-gnu"))
    assert placed == name.replace("/{}/openblas-pthread", "")


def test_a_private_gcc_links_with_an_openblas_of_the_system(tmp_path: Path) -> None:
    """With a sysroot it did not find libgfortran beside OpenBLAS: undefined reference to `_gfortran_etime`."""
    place = Platform(system="linux", arch="aarch64")
    offering = Offering(
        provider="debian", name="gcc", version=Version("11.3.0"), place=place, layout="debian-gcc", parts=()
    )
    store = Store(tmp_path)
    programs = {f"usr/bin/aarch64-linux-gnu-{name}-11": KitFile(path="x", sha256="0") for name in ("g++", "cpp")}
    made = {file.path: file for file in assemble.written(store, offering, programs)}
    texts = {
        name: store.object(made[f"bin/{name}-11"].sha256, executable=True).read_text(encoding="utf-8")
        for name in ("g++", "cpp")
    }
    assert "-Wl,-rpath-link,/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64 " in texts["g++"]
    assert "-Wl" not in texts["cpp"]
