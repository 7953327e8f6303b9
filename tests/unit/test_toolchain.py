"""Private toolchains: packages of every kind to one tree, whole or not at all, every file by its hash."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from rekindle.build import command as provision
from rekindle.build.configure import request
from rekindle.build.configure.request import BuildFile
from rekindle.core import console, files
from rekindle.core.errors import (
    BadInput,
    FetchFailed,
    MissingTool,
    NoRoute,
    NotFound,
    NotWritable,
    UnknownName,
    UsageError,
)
from rekindle.core.paths import sha256_of
from rekindle.core.run import Result
from rekindle.core.version import Version
from rekindle.doctor import cuda
from rekindle.formats import unpacking
from rekindle.knowledge.cuda import toolchains
from rekindle.machine.host import Host
from rekindle.machine.model import FoundCompiler, Machine
from rekindle.machine.toolchain import gcc, toolkits
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.model.toolkit import FoundToolkit
from rekindle.stack import source_build
from rekindle.stack.situation import Situation
from rekindle.toolchain import assemble as assembling
from rekindle.toolchain import command, model, report
from rekindle.toolchain import install as installing
from rekindle.toolchain import verify as verifying
from rekindle.toolchain.assemble import Layout, assemble
from rekindle.toolchain.install import Installation
from rekindle.toolchain.model import (
    FoundOffering,
    Kit,
    KitFile,
    Offering,
    Part,
    ProviderSettings,
    ToolSpec,
)
from rekindle.toolchain.providers import debian, index
from rekindle.toolchain.store import Store
from support import packages
from support.command import rekindle_command

LINUX = Platform(system="linux", arch="x86_64")

TOOLKIT: packages.Files = {
    "./usr/lib/nvidia-cuda-toolkit/bin/nvcc": b"nvcc itself",
    "./usr/lib/nvidia-cuda-toolkit/bin/cicc": b"cicc",
    "./usr/lib/nvidia-cuda-toolkit/bin/g++": b"a wrapper that calls g++-11 of PATH",
    "./usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile": "/etc/nvcc.profile",
    "./usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc": b"BC",
    "./etc/nvcc.profile": b"PATH += /usr/lib",
    "./usr/bin/nvcc": b"exec /usr/lib/nvidia-cuda-toolkit/bin/nvcc",
    # Only on amd64, of both distributions.
    "./usr/bin/nvprof": b"exec /usr/lib/nvidia-cuda-toolkit/bin/nvprof",
    "./usr/lib/nvidia-cuda-toolkit/bin/nvprof": b"nvprof itself",
    "./usr/bin/ptxas": b"ptxas",
    "./usr/share/doc/nvidia-cuda-toolkit/copyright": b"EULA",
}
LIBRARIES: packages.Files = {
    "./usr/include/cuda_runtime.h": b"// runtime",
    "./usr/lib/x86_64-linux-gnu/libcudart.so.11.8": b"ELF",
    "./usr/lib/x86_64-linux-gnu/libcudart.so.11.0": "libcudart.so.11.8",
    "./usr/lib/x86_64-linux-gnu/libcublas_static.a": b"large",
    "./usr/lib/x86_64-linux-gnu/libcudart_static.a": b"small",
    "./usr/lib/x86_64-linux-gnu/libnppc.so": "libnppc.so.11",
}


def part_of(path: Path, name: str = "part") -> Part:
    return Part(name=name, version="1", file=path.name, size=path.stat().st_size, sha256=sha256_of(path), origin=name)


def offering_of(paths: Sequence[Path], *, layout: str = "debian-cuda", version: str = "11.8.89") -> Offering:
    parts = tuple(part_of(path, path.name) for path in paths)
    return Offering(provider="stage", name="cuda", version=Version(version), place=LINUX, layout=layout, parts=parts)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "toolchain"))
    return Store()


class Stage:
    """A provider whose archives lie in a folder. `harm` changes what arrives, `asked` counts."""

    NAME, GROUP = "stage", 1

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.lock = folder, [], threading.Lock()  # type: ignore[var-annotated]
        self.harm = lambda data: data

    def find(self, wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
        return FoundOffering(why="only staged")

    def fetch(self, parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
        (part,) = parts
        with self.lock:
            self.asked.append(part.file)
        (folder / part.file).write_bytes(self.harm((self.folder / part.file).read_bytes()))
        return [folder / part.file]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    folder = tmp_path / "stage"
    folder.mkdir()
    made = Stage(folder)
    monkeypatch.setattr(installing, "provider", lambda name: made)
    return made


def how(store: Store, **more: bool) -> Installation:
    return Installation(place=LINUX, settings=ProviderSettings(state=store.state, **more))  # type: ignore[arg-type]


def staged(stage: Stage) -> Offering:
    one = packages.deb(stage.folder / "toolkit_1_amd64.deb", TOOLKIT)
    two = packages.deb(stage.folder / "dev_1_amd64.deb", LIBRARIES, zst=True)
    return offering_of([one, two])


# --- what is asked for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("cuda==11.8", "cuda", "11.8"),
        ("gcc@11", "gcc", "11"),
        (" cuDNN == 8.7.0 ", "cudnn", "8.7.0"),
        ("mkl", "mkl", ""),
    ],
)
def test_a_tool_and_as_much_of_its_version_as_matters(text: str, name: str, version: str) -> None:
    found = ToolSpec.parse(text)
    assert (found.name, found.version.text if found.version else "") == (name, version)


@pytest.mark.parametrize("text", ["cudda==11.8", "cuda==eleven", "cuda>=11", "../x", ""])
def test_what_is_no_tool_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ToolSpec.parse(text)


# --- unpacking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tar.xz", "a.tar.gz", "a.tar.bz2", "a.tar.zst", "a.deb", "a.conda"])
def test_every_kind_of_package_gives_the_same_members(tmp_path: Path, name: str) -> None:
    files: packages.Files = {"lib/libx.so.1": b"x" * 3_000_000, "lib/libx.so": "libx.so.1", "bin/tool": b"#!"}
    path = tmp_path / name
    if name.endswith(".deb"):
        packages.deb(path, files)
    elif name.endswith(".conda"):
        packages.conda(path, files)
    else:
        packages.tarball(path, files)
    found = {entry.name: (entry.link, b"".join(entry.data)) for entry in unpacking.entries(path)}
    assert found == {
        "lib/libx.so.1": (None, b"x" * 3_000_000),
        "lib/libx.so": ("libx.so.1", b""),
        "bin/tool": (None, b"#!"),
    }


def test_a_wheel_is_a_package_too(tmp_path: Path) -> None:
    path = packages.wheel(tmp_path / "a-1-py3-none-any.whl", {"nvidia/cu13/bin/nvcc": b"nvcc"})
    assert [(entry.name, b"".join(entry.data)) for entry in unpacking.entries(path)] == [
        ("nvidia/cu13/bin/nvcc", b"nvcc")
    ]


@pytest.mark.parametrize(
    "files",
    [
        {"../../etc/passwd": b"x"},
        {"/etc/passwd": b"x"},
        {"lib/x": "../../../../etc/passwd"},
        {"a\\..\\b": b"x"},
        {"C:/x": b"x"},
    ],
)
@pytest.mark.parametrize("kind", ["a.deb", "a.tar.xz", "a.conda"])
def test_nothing_leaves_its_folder(tmp_path: Path, files: packages.Files, kind: str) -> None:
    path = tmp_path / kind
    make = {"a.deb": packages.deb, "a.tar.xz": packages.tarball, "a.conda": packages.conda}[kind]
    make(path, files)
    with pytest.raises(BadInput):
        for entry in unpacking.entries(path):
            b"".join(entry.data)


def test_an_absolute_link_counts_from_the_package(tmp_path: Path) -> None:
    path = packages.deb(tmp_path / "a.deb", {"usr/lib/x/profile": "/etc/profile"})
    assert [entry.link for entry in unpacking.entries(path)] == ["../../../etc/profile"]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["a.deb", "a.tar.xz", "a.conda", "a.tar.zst"])
def test_half_a_package_is_refused(tmp_path: Path, kind: str, kept: float) -> None:
    path = tmp_path / kind
    make = packages.deb if kind == "a.deb" else packages.conda if kind == "a.conda" else packages.tarball
    make(path, {"lib/x": os.urandom(200_000)})  # type: ignore[operator]
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(BadInput):
        for entry in unpacking.entries(path):
            b"".join(entry.data)


@pytest.mark.long
def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = packages.tarball(tmp_path / "a.tar.xz", {"zeros": bytes(200 << 20)})
    with pytest.raises(BadInput, match="archive bomb"):
        for entry in unpacking.entries(path):
            for _ in entry.data:
                pass


# --- the tree ------------------------------------------------------------------------------------------------------


def test_debians_packages_become_one_toolkit(store: Store, stage: Stage) -> None:
    offering = staged(stage)
    kit = assemble(store, offering, [stage.folder / part.file for part in offering.parts])
    files = {file.path: file for file in kit.files}
    assert {
        "bin/nvcc",
        "bin/ptxas",
        "nvvm/bin/cicc",
        "nvvm/libdevice/libdevice.10.bc",
        "include/cuda_runtime.h",
        "lib64/libcudart.so.11.8",
        "lib64/libcudart_static.a",
        "bin/nvcc.profile",
        "licences/nvidia-cuda-toolkit",
    } <= files.keys()
    # Debian's wrappers name programs of /usr, and static twins of libraries are no use to a build.
    assert not {"bin/g++", "lib64/libcublas_static.a"} & files.keys()
    assert files["bin/nvcc"].executable
    root = store.publish(kit)
    assert (root / "bin" / "nvcc").read_bytes() == b"nvcc itself"
    assert "/usr" not in (root / "bin" / "nvcc.profile").read_text()


@pytest.mark.skipif(os.name == "nt", reason="Debian's packages are for Linux")
def test_link_names_are_made_and_those_that_lead_nowhere_are_named(store: Store, stage: Stage) -> None:
    kit = assemble(store, (offering := staged(stage)), [stage.folder / part.file for part in offering.parts])
    files = {file.path: file for file in kit.files}
    assert files["lib64/libcudart.so"].link in ("libcudart.so.11.8", "libcudart.so.11.0")
    assert kit.made == ("lib64/libcudart.so",)
    assert "lib64/libnppc.so" not in files and any("libnppc.so" in text for text in kit.missing)
    root = store.publish(kit)
    assert (root / "lib" / "libcudart.so").read_bytes() == b"ELF", "both `lib` and `lib64` lead to the libraries"


def test_full_keeps_what_a_build_does_not_need() -> None:
    path = "usr/lib/x86_64-linux-gnu/libcublas_static.a"
    assert Layout(id="debian-cuda", place=LINUX).target(path) is None
    assert Layout(id="debian-cuda", place=LINUX, full=True).target(path) == "lib64/libcublas_static.a"


@pytest.mark.parametrize(
    ("layout", "member", "place"),
    [
        ("wheel", "nvidia/cu13/bin/nvcc.exe", "bin/nvcc.exe"),
        ("wheel", "nvidia/cudnn/include/cudnn.h", "include/cudnn.h"),
        ("wheel", "nvidia_cudnn_cu11-8.7.0.84.dist-info/RECORD", None),
        ("wheel", "mkl_include-2024.2.0.data/data/include/mkl.h", "include/mkl.h"),
        ("redistrib", "cuda_nvcc-linux-x86_64-11.8.89-archive/bin/nvcc", "bin/nvcc"),
        ("conda", "Library/bin/nvcc.exe", "bin/nvcc.exe"),
        ("conda", "info/index.json", None),
        ("debian-gcc", "lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("debian-gcc", "usr/lib/x86_64-linux-gnu/libisl.so.23", "tools/libisl.so.23"),
        ("debian-gcc", "lib/x86_64-linux-gnu/libz.so.1", "tools/libz.so.1"),
    ],
)
def test_where_a_member_goes(layout: str, member: str, place: str | None) -> None:
    assert Layout(id=layout, place=LINUX).target(member) == place


def test_two_parts_that_do_not_belong_together_are_refused(store: Store, stage: Stage) -> None:
    one = packages.deb(stage.folder / "a_1.deb", {"usr/include/cuda.h": b"11.8"})
    two = packages.deb(stage.folder / "b_1.deb", {"usr/include/cuda.h": b"12.4"})
    with pytest.raises(BadInput, match=r"another `include/cuda\.h`"):
        assemble(store, offering_of([one, two]), [one, two])


# --- bringing and publishing ---------------------------------------------------------------------------------------


def test_a_kit_appears_whole_and_a_second_install_fetches_nothing(store: Store, stage: Stage) -> None:
    offering = staged(stage)
    with store.locked():
        kit = installing.install(store, offering, how(store))
    assert [found.id for found in store.kits()] == [kit.id]
    assert store.find(ToolSpec.parse("cuda==11.8")) == kit
    with store.locked():
        installing.install(store, offering, how(store))
    assert len(stage.asked) == 2


def test_a_wrong_hash_is_tried_once_more_and_never_unpacked(store: Store, stage: Stage) -> None:
    offering = staged(stage)
    stage.harm = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    with store.locked(), pytest.raises(FetchFailed, match="SHA-256"):
        installing.install(store, offering, how(store))
    assert not store.kits() and not any(store.objects.glob("*/*"))
    assert max(stage.asked.count(part.file) for part in offering.parts) == 2


def test_one_bad_arrival_is_made_good_by_the_second(store: Store, stage: Stage) -> None:
    offering = staged(stage)
    seen: set[bytes] = set()

    def first_time_short(data: bytes) -> bytes:
        new = data not in seen
        seen.add(data)
        return data[:-9] if new else data

    stage.harm = first_time_short
    with store.locked():
        installing.install(store, offering, how(store))
    assert len(store.kits()) == 1


def test_two_at_once_download_once(store: Store, stage: Stage) -> None:
    offering = staged(stage)

    def run() -> None:
        with Store().locked():
            installing.install(Store(), offering, how(store))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stage.asked) == sorted(part.file for part in offering.parts)
    assert len(store.kits()) == 1


def test_a_full_disk_leaves_nothing_behind(store: Store, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    offering = staged(stage)
    import errno

    real = Store._place
    count = iter(range(1000))

    def full(self: Store, target: Path, file: object) -> None:
        if next(count) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, target, file)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "_place", full)
    with store.locked(), pytest.raises(NotWritable, match="disk is full"):
        installing.install(store, offering, how(store))
    assert not store.kits() and not list(store.kits_folder.glob("*"))


def test_what_a_dead_run_left_is_swept_away(store: Store, stage: Stage) -> None:
    with store.locked():
        installing.install(store, staged(stage), how(store))
    (store.kits_folder / ".cuda-12.4.1.dead.part" / "bin").mkdir(parents=True)
    (store.kits_folder / ".cuda-12.4.1.dead.part" / "bin" / "nvcc").write_bytes(b"whole")
    (store.objects / ".dead.part").write_bytes(b"half")
    files.swept()
    with store.locked():
        assert files.swept() == (2, 4 + 5), "what was left is counted"
        assert [path.name for path in store.kits_folder.iterdir()] == [store.kits()[0].id]
        assert not list(store.objects.glob(".*"))


@pytest.mark.skipif(os.name == "nt", reason="asks for link counts")
def test_kits_share_their_files_and_gc_keeps_what_is_used(store: Store, stage: Stage) -> None:
    first = staged(stage)
    more = packages.deb(stage.folder / "more_1.deb", {"usr/include/more.h": b"only in the second"})
    second = offering_of([*(stage.folder / part.file for part in first.parts), more], version="11.8.90")
    with store.locked():
        for offering in (first, second):
            installing.install(store, offering, how(store))
    kits = {str(kit.version): store.folder(kit) for kit in store.kits()}
    assert (kits["11.8.89"] / "bin" / "nvcc").samefile(kits["11.8.90"] / "bin" / "nvcc")
    store.remove(next(kit for kit in store.kits() if str(kit.version) == "11.8.90"))
    assert store.collect() > 0
    assert (kits["11.8.89"] / "bin" / "nvcc").read_bytes() == b"nvcc itself"
    assert not any(path.read_bytes() == b"only in the second" for path in store.objects.glob("*/*"))


def test_offline_uses_what_an_earlier_run_has_brought(store: Store, stage: Stage) -> None:
    offering = staged(stage)
    with pytest.raises(NotFound, match="no earlier run"):
        installing.remembered(store, ToolSpec.parse("cuda==11.8"), how(store))
    with store.locked():
        installing.install(store, offering, how(store))
    store.remove(store.kits()[0])
    again = installing.remembered(store, ToolSpec.parse("cuda==11.8"), how(store, offline=True))
    assert again == offering
    with store.locked():
        kit = installing.install(store, again, how(store, offline=True))
    assert kit.digest and len(stage.asked) == 2
    store.remove(kit)
    store.collect()
    with store.locked(), pytest.raises(NotFound, match="archives not downloaded yet"):
        installing.install(store, again, how(store, offline=True))


def test_a_kit_reads_back_as_it_was_written(store: Store, stage: Stage) -> None:
    with store.locked():
        kit = installing.install(store, staged(stage), how(store))
    assert store.read(store.folder(kit)) == kit
    assert isinstance(kit, Kit) and kit.id.startswith("cuda-11.8.89")


# --- Debian's own words --------------------------------------------------------------------------------------------

SHOWN = """\
Package: nvidia-cuda-toolkit
Source: nvidia-cuda-toolkit (11.8.0-5~deb12u1)
Version: 11.8.89~11.8.0-5~deb12u1
Depends: nvidia-cuda-dev (= 11.8.89~11.8.0-5~deb12u1), g++-11 | clang-14, libc6 (>= 2.34)
Filename: pool/non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_11.8.89~11.8.0-5~deb12u1_arm64.deb
Size: 80173360
SHA256: 792157a3fdd0183024eed94eae9ea5ce76d7925118333cc99449171054ae4fb9

Package: only-a-name
Version: 1
"""


def test_what_apt_shows_is_read() -> None:
    (stanza,) = debian._stanzas(SHOWN)
    assert debian._source(stanza) == "nvidia-cuda-toolkit"
    assert list(debian._depends(stanza)) == [["nvidia-cuda-dev"], ["g++-11", "clang-14"], ["libc6"]]


def test_an_origin_says_which_package_it_was() -> None:
    origin = "apt:bookworm/libcrypt-dev=1:4.4.33-2:arm64"
    assert debian._read_origin(origin) == ("bookworm", "libcrypt-dev", "1:4.4.33-2", "arm64")
    with pytest.raises(NotFound):
        debian._read_origin("apt:bookworm")


def test_every_provider_keeps_the_contract() -> None:
    for provider in model.providers():
        assert provider.NAME in model.NAMES and provider.GROUP >= 1
        assert callable(provider.find) and callable(provider.fetch)


# --- who finds them ------------------------------------------------------------------------------------------------


def test_the_machine_finds_private_kits_newest_first(store: Store, tmp_path: Path) -> None:
    for name in ("cuda-11.8.89", "cuda-9.0", "cuda-12.4.131-full", "cuda-13.0.88-windows-x86_64", "cudnn-8.7.0"):
        (store.kits_folder / name).mkdir(parents=True)
    adopted = store.kits_folder / "cuda-12.6.85" / ".rekindle"
    adopted.mkdir(parents=True)
    (adopted / "adopted").write_text(f"{tmp_path / 'mine'}\n", encoding="utf-8")
    found = [Path(root).name for root in toolkits.private_roots(Host(), "cuda")]
    assert found == ["mine", "cuda-12.4.131-full", "cuda-11.8.89", "cuda-9.0"]


@pytest.mark.parametrize(
    ("tool", "version", "system", "arch", "tried"),
    [
        ("cuda", "11.8", "linux", "x86_64", True),
        ("cuda", "12.4", "linux", "aarch64", True),
        ("cuda", "13.0", "windows", "x86_64", True),
        ("cuda", "11.8", "windows", "x86_64", False),
        ("cudnn", "8.7.0", "linux", "x86_64", True),
        ("cudnn", "8.7.0", "windows", "x86_64", False),
        ("gcc", "11", "linux", "x86_64", True),
        ("cuda", "11.5", "linux", "x86_64", True),
        ("cuda", "11.5", "linux", "aarch64", False),
    ],
)
def test_who_has_a_tool_and_whether_that_was_tried(
    tool: str, version: str, system: str, arch: str, tried: bool
) -> None:
    known = toolchains.providers_of(tool, Version(version), Platform(system, arch))
    assert known and any(sure for _, sure in known) is tried
    assert not toolchains.providers_of("cuda", Version("7.5"), Platform(system, arch))


def test_what_a_build_lacks_is_named() -> None:
    bare = Machine(os="linux", arch="x86_64")
    wanted = BuildFile(torch="1.13.1", cuda=Version("11.8"), cudnn=Version("8.7.0"), arch_list="3.5")
    assert provision.lacking(wanted, bare) == ("cuda==11.8", "gcc", "cudnn==8.7.0"), "pip brings MKL"
    half = FoundToolkit(root="/x", nvcc="/x/bin/nvcc", version=Version("11.8.89"), missing=("cuBLAS",))
    own = FoundCompiler(kind="gcc", path="/usr/bin/g++-11", version=Version("11.3.0"))
    some = Machine(os="linux", arch="x86_64", toolkits=(half,), compilers=(own,))
    assert provision.lacking(wanted, some) == ("cuda==11.8", "cudnn==8.7.0")


def test_a_cudnn_without_code_for_the_card_is_refused() -> None:
    with pytest.raises(NoRoute, match="no code for sm_35"):
        command.refuse_unserved([ToolSpec.parse("cudnn==8.9.7")], [Capability.parse("3.5")])
    command.refuse_unserved([ToolSpec.parse("cudnn==8.7.0")], [Capability.parse("3.5")])
    with pytest.raises(NoRoute, match=r"CUDA 12\.8 cannot compile for sm_35"):
        command.refuse_unserved([ToolSpec.parse("cuda==12.8")], [Capability.parse("3.5")])
    both = [ToolSpec.parse("cuda==11.8"), ToolSpec.parse("cuda==12.8")]
    command.refuse_unserved(both, [Capability.parse("3.5"), Capability.parse("12.0")])


def test_msvc_is_a_command_and_never_pretended() -> None:
    found = report.recipe(Version("14.39"))
    assert "--add Microsoft.VisualStudio.Component.VC.14.39.17.9.x86.x64" in found.install
    assert "--layout" in found.layout and "--noWeb" in found.offline and found.unverified
    if os.name != "nt":
        assert found.findings[0].state.value == "UNVERIFIED"
    with pytest.raises(UnknownName):
        report.recipe(Version("14.99"))


def test_without_acceptance_nothing_is_downloaded(store: Store, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    offering = staged(stage)
    parts = tuple(msgspec.structs.replace(part, licence="nvidia-cuda") for part in offering.parts)
    offering = msgspec.structs.replace(offering, parts=parts, place=Platform(system="windows", arch="x86_64"))
    monkeypatch.setattr(installing, "find", lambda wanted, how: offering)
    asked: list[str] = []
    wanted = command.InstallCommand(tools=("cuda==11.8",), platform="windows-x86_64")
    with pytest.raises(UsageError, match="was not accepted"):
        command.install(wanted, say=asked.append, ask=lambda _: False)
    assert not stage.asked and any("docs.nvidia.com" in text for text in asked)
    command.install(msgspec.structs.replace(wanted, accept_licence=True), say=asked.append, ask=lambda _: False)
    assert len(stage.asked) == 2 and "nvidia-cuda" in (store.root / "licences.json").read_text(encoding="utf-8")
    command.install(wanted, say=asked.append, ask=lambda _: False)


def test_the_terms_are_asked_for_before_a_worker_offers_a_tool(
    store: Store, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    offering = staged(stage)
    parts = tuple(msgspec.structs.replace(part, licence="nvidia-cuda") for part in offering.parts)
    offering = msgspec.structs.replace(offering, parts=parts, place=Platform(system="windows", arch="x86_64"))
    found: list[str] = []
    monkeypatch.setattr(installing, "find", lambda wanted, how: found.append(str(wanted)) or offering)
    wanted = command.InstallCommand(tools=("cuda==11.8",), platform="windows-x86_64")
    with pytest.raises(UsageError, match="was not accepted"):
        command.agree(wanted, say=lambda _: None, ask=lambda _: False)
    command.agree(msgspec.structs.replace(wanted, accept_licence=True), say=lambda _: None, ask=lambda _: False)
    command.agree(wanted, say=lambda _: None, ask=lambda _: False)
    assert not stage.asked, "nothing was downloaded"
    monkeypatch.setattr(Store, "find", lambda self, wanted: object())
    found.clear()
    command.agree(wanted, say=lambda _: None, ask=lambda _: False)
    assert found == [], "what is there needs no network"


def test_of_two_toolkits_the_whole_one_builds() -> None:
    half = FoundToolkit(root="/usr", nvcc="/usr/bin/nvcc", version=Version("13.0.88"), missing=("cuBLAS",))
    whole = FoundToolkit(root="/k", nvcc="/k/bin/nvcc", version=Version("13.0.88"), found_by=("rekindle",))
    machine = Machine(os="linux", arch="x86_64", toolkits=(half, whole))
    chosen = request.cuda_of(BuildFile(cuda=Version("13.0"), arch_list="7.5"), machine)
    assert chosen is not None and chosen.root == "/k" and "/usr/bin" in chosen.rivals


def test_the_doctor_does_not_ask_for_private_kits_on_path() -> None:
    kit = FoundToolkit(root="/k", nvcc="/k/bin/nvcc", version=Version("11.8.89"), found_by=("rekindle",))
    (found,) = cuda.one_wins(Machine(os="linux", arch="x86_64", toolkits=(kit,)))
    assert found.state.value == "PASS" and "rekindle toolchain" in found.found


def test_a_rehearsal_does_not_ask_for_what_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "k.toml"
    plan.write_text('source = "."\ntorch = "1.13.1"\ncuda = "9.1"\narch_list = "3.5"\n', encoding="utf-8")
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "t"))
    seen = rekindle_command("build", str(plan), "--provision", "--dry-run")
    assert "would install cuda==9.1" in seen.err
    # Which compilers a CUDA 9.1 takes is in no table.
    assert "without `--dry-run` they are installed first" in seen.err and "add `--provision`" not in seen.err
    plan.write_text(f'python = "3.6"\n{plan.read_text(encoding="utf-8")}', encoding="utf-8")
    seen = rekindle_command("build", str(plan), "--provision", "--dry-run")
    assert "would install cuda==9.1" in seen.err and "error: Python 3.6 is not on this machine" in seen.err
    assert "installed first" not in seen.err, "no Python is installed first"


@pytest.mark.skipif(os.name == "nt", reason="nothing of ours brings MSVC")
def test_a_rehearsal_takes_what_it_would_install_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with 6, and told nothing of the build, though the build itself would have gone on."""
    plan = tmp_path / "k.toml"
    text = 'source = "."\ntorch = "1.13.1"\ncuda = "11.8"\ncudnn = "8.7.0.84"\narch_list = "3.5"\n'
    plan.write_text(text, encoding="utf-8")
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "t"))
    seen = rekindle_command("build", str(plan), "--provision", "--dry-run")
    assert seen.code == 0, seen.err
    assert "CUDA 11.8 in" in seen.out and "would install" in seen.err and not (tmp_path / "t").exists()
    assert [len(line) <= 80 for line in seen.out.splitlines() if line.startswith("steps")] == [True]


def test_all_that_the_machine_lacks_is_said_at_once_the_compiler_too() -> None:
    wanted = BuildFile(source=".", torch="1.13.1", cuda=Version("11.8"), arch_list="3.5")
    newer = FoundCompiler(kind="gcc", path="/usr/bin/g++-13", version=Version("13.2"))
    bare = Machine(os="linux", arch="x86_64", compilers=(newer,))
    with pytest.raises(MissingTool) as said:
        request.resolve(wanted, bare)
    assert "CUDA 11.8 is not on this machine" in said.value.message
    assert "a C++ compiler that CUDA 11.8 takes is not on this machine" in said.value.message


@pytest.mark.skipif(not hasattr(os, "confstr"), reason="UNVERIFIED: only a Linux has a glibc to compare")
def test_a_compiler_that_needs_a_newer_libc_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """GCC 13 of trixie was installed on bookworm, and did not start: `GLIBC_2.38' not found."""
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.36")
    gcc = {"Package": "gcc-13", "Depends": "libc6 (>= 2.38), libgcc-s1 (>= 3.0)"}
    libc = {"Package": "libc6-dev", "Source": "glibc", "Depends": "libc6 (>= 2.41)"}
    assert debian._newer_libc([gcc, libc]) == "needs glibc 2.38, and this computer has 2.36"
    assert debian._newer_libc([{**gcc, "Depends": "libc6 (>= 2.34)"}, libc]) is None


class _NoNewGcc:
    """A system on which the GCC of trixie does not start; every tool that was looked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find(self, spec: ToolSpec, how: object) -> Offering:
        self.asked.append(str(spec))
        if str(spec) == "gcc==13":
            raise NoRoute("that of trixie needs glibc 2.38", hint="")
        return msgspec.structs.replace(offering_of([], layout="debian-gcc", version="12.2.0"), name=spec.name)


@pytest.mark.parametrize("tools", [("gcc",), ("cuda==12.4", "gcc"), ("gcc", "cuda==12.4")])
def test_the_newest_gcc_that_starts_here_is_taken(
    store: Store, tools: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _NoNewGcc()
    monkeypatch.setattr(installing, "find", bench.find)
    cuda = None if "cuda==12.4" in tools else "12.4"
    wanted = command.InstallCommand(tools=tools, cuda=cuda, platform="linux-x86_64", dry_run=True)
    done = command.install(wanted, say=lambda _: None, ask=lambda _: False)
    assert [each.name for each in done.offerings] == [tool.partition("==")[0] for tool in tools]
    assert [each for each in bench.asked if each.startswith("gcc")] == ["gcc==13", "gcc==12"]


def test_provision_takes_the_gcc_that_starts_here_when_the_cuda_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA 12.4 on bookworm: GCC 13 was asked for by its number, does not start there, and the build stopped."""
    bench = _NoNewGcc()
    monkeypatch.setattr(installing, "find", bench.find)
    kept = Kit(name="gcc", version=Version("12.2.0"), place=LINUX, provider="stage")
    monkeypatch.setattr(installing, "install", lambda store, offering, how, say: kept)
    kit = FoundToolkit(root="/k", nvcc="/k/bin/nvcc", version=Version("12.4.131"))
    machine = Machine(os="linux", arch="x86_64", toolkits=(kit,))
    wanted = BuildFile(torch="2.6.0", cuda=Version("12.4"), arch_list="6.1")
    assert provision.install_lacking(wanted, machine, accept_licence=False, say=lambda _: None, ask=None)
    assert bench.asked == ["gcc==13", "gcc==12"]


def test_openblas_brings_fortrans_library_to_every_link(store: Store) -> None:
    """GCC with a sysroot did not find libgfortran.so.5 beside OpenBLAS: undefined reference to _gfortran_etime."""
    names = ("libopenblasp-r0.3.21.so", "libgfortran.so.5.0.0")
    files = {f"lib/{name}": KitFile(path=f"lib/{name}", sha256="0" * 64) for name in names}
    for name, link in (("libopenblas.so.0", names[0]), ("libopenblas.so", names[0]), ("libgfortran.so.5", names[1])):
        files[f"lib/{name}"] = KitFile(path=f"lib/{name}", link=link)
    offering = msgspec.structs.replace(offering_of([], layout="debian-library"), name="openblas")
    (script,) = assembling.written(store, offering, files)
    assert script.path == "lib/libopenblas.so" and script.link is None
    kept = next(path for path in store.objects.rglob("*") if path.is_file())
    assert "INPUT ( libopenblas.so.0 libgfortran.so.5 )" in kept.read_text(encoding="utf-8")


def test_plan_and_build_name_one_command_for_a_missing_gcc() -> None:
    """`gcc==13` was printed for CUDA 12.4 on a system where that one does not start."""
    situation = Situation(system="linux", cards=(), arch="x86_64")
    assert source_build._provision_gcc(Version("12.4"), situation) == ("rekindle toolchain install gcc --cuda 12.4",)
    assert source_build._provision_gcc(Version("10.2"), situation) == (), "nobody has a GCC as old as 8"
    kit = FoundToolkit(root="/k", nvcc="/k/bin/nvcc", version=Version("12.4.131"))
    wanted = BuildFile(cuda=Version("12.4"), arch_list="6.1")
    machine = Machine(os="linux", arch="x86_64", toolkits=(kit,))
    with pytest.raises(MissingTool) as refused:
        request.compiler_of(wanted, machine, Version("12.4"))
    assert "`rekindle toolchain install gcc --cuda 12.4`" in (refused.value.hint or "")


def test_one_archive_is_not_called_archives_and_unpacking_is_not_silent(
    store: Store, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL is one wheel: `fetching 1 archives`; CUDA 11.8 was unpacked for minutes without a line."""
    whole = staged(stage)
    monkeypatch.setattr(assembling, "PULSE", 0.02)
    kept = Store.keep

    def slow(self: Store, data: Iterable[bytes], *, executable: bool) -> tuple[str, int]:
        time.sleep(0.1)
        return kept(self, data, executable=executable)

    monkeypatch.setattr(Store, "keep", slow)
    said: list[str] = []
    installing.install(store, msgspec.structs.replace(whole, parts=whole.parts[:1]), how(store), say=said.append)
    assert said[0].startswith("fetching 1 archive, ") and "unpacking 1 archive" in said
    assert any(re.fullmatch(r"unpacked [01] of 1 archive, \d+ MB", line) for line in said)
    assert re.fullmatch(r"unpacked \d+ files, \d+ MB", said[-1])


@pytest.mark.skipif(os.name == "nt", reason="UNVERIFIED: an open kit cannot be changed in place on Windows")
def test_a_damaged_file_is_made_good_by_the_command_that_verify_names(store: Store, stage: Stage) -> None:
    """`--again` took the damaged copy out of the store once more: it has the right size."""
    kit = installing.install(store, staged(stage), how(store))
    damaged = store.folder(kit) / "bin" / "ptxas"
    damaged.chmod(0o755)
    damaged.write_bytes(bytes(reversed(damaged.read_bytes())))
    assert "bin/ptxas" in verifying.verify(store, kit)[0].found
    installing.install(store, staged(stage), msgspec.structs.replace(how(store), again=True))
    assert damaged.read_bytes() == b"ptxas"


def test_a_mirror_of_one_distribution_is_not_refused_for_the_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--mirror` of an Ubuntu: GCC 11 was looked for among its bookworm, which it has not, and that was the end."""
    asked: list[str] = []

    def closure(self: debian._State, *, full: bool) -> list[dict[str, str]]:
        asked.append(self.row.suite)
        if self.row.distribution == "debian":
            raise FetchFailed("apt could not read the lists of bookworm:\nE: no Release file", hint="")
        return [
            {"Package": "g++-11", "Version": "11.2.0-19ubuntu1", "Filename": "g.deb", "Size": "1", "SHA256": "0" * 64}
        ]

    monkeypatch.setattr(debian._State, "closure", closure)
    monkeypatch.setattr(debian, "which", lambda _: "apt-get")
    monkeypatch.setattr(debian, "distribution", lambda: "debian")
    settings = ProviderSettings(state=store.state, mirror="http://localhost/ubuntu")
    found = debian.find(ToolSpec.parse("gcc==11"), LINUX, settings)
    assert found.offering is not None and found.offering.version == Version("11.2.0")
    assert not found.offering.unverified, "it was installed once, for x86_64"
    elsewhere = debian.find(ToolSpec.parse("gcc==11"), Platform(system="linux", arch="aarch64"), settings)
    assert elsewhere.offering and "jammy were never installed for aarch64" in elsewhere.offering.unverified[0]
    del asked[2:]
    assert asked == ["bookworm", "jammy"]
    with pytest.raises(FetchFailed):
        debian.find(ToolSpec.parse("gcc==11"), LINUX, msgspec.structs.replace(settings, mirror=None))


def test_another_computers_cuda_brings_its_gcc_whatever_this_one_has(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GCC of this computer was taken for one of the computer that the toolchain is for."""
    bench = _NoNewGcc()
    monkeypatch.setattr(installing, "find", bench.find)
    mine = FoundCompiler(kind="gcc", path="/usr/bin/g++-11", version=Version("11.3.0"))
    monkeypatch.setattr(gcc, "probe", lambda run: (mine,))
    for here, asked in ((LINUX, []), (Platform(system="linux", arch="aarch64"), ["gcc==12"])):
        bench.asked.clear()
        monkeypatch.setattr(Platform, "here", classmethod(lambda cls, here=here: here))
        wanted = command.InstallCommand(tools=("cuda==12.4",), platform="linux-x86_64", dry_run=True)
        command.install(wanted, say=lambda _: None, ask=lambda _: False)
        assert bench.asked == ["cuda==12.4", *asked]


def test_a_read_only_file_that_is_there_already_is_replaced_or_kept(tmp_path: Path) -> None:
    """Two archives bring the same file, or a damaged one lies there: Windows replaces nothing that is read-only."""
    store = Store(tmp_path / "toolchain")
    sha256, _ = store.keep([b"header"], executable=False)
    place = store.object(sha256, executable=False)
    assert store.keep([b"header"], executable=False) == (sha256, 6)
    place.chmod(0o644)
    place.write_bytes(b"damage")
    place.chmod(0o444)
    store.keep([b"header"], executable=False)
    assert place.read_bytes() == b"header"


def test_a_download_that_goes_on_counts_what_is_there_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 of 1,000 MB were there; 100 more came in ten seconds: 600 are left, not 900."""
    sizes = iter([300_000_000, 400_000_000])
    monkeypatch.setattr(assembling, "size_of", lambda folder: next(sizes))
    line = assembling.fetching(tmp_path, 1_000_000_000, kept=300_000_000)
    assert line(10.0) == "fetched 400 of 1,000 MB, 10.0 MB/s, 60 s left"


def test_a_release_that_never_was_is_not_looked_for() -> None:
    seen = rekindle_command("toolchain", "install", "cuda==11.9", "--dry-run")
    assert (seen.code, seen.out) == (3, "")
    assert "there is no CUDA 11.9" in seen.err and "nearest: 11.8 and 12.0" in seen.err
    assert "looking for" not in seen.err


def test_what_cannot_be_had_names_the_nearest_that_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only by asking whoever answers; and every wait says for whom."""
    asked: list[str] = []
    waited: list[str] = []

    class Answers:
        NAME, GROUP = "debian", 1

        def find(self, wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
            asked.append(f"{self.NAME} {wanted}")
            if wanted.version != Version("12"):
                return FoundOffering(why=f"no {wanted}", silent=self.NAME == "conda")
            offering = Offering(provider=self.NAME, name="cuda", version=Version("12.4.131"), place=place, layout="x",
                                parts=())  # fmt: skip
            return FoundOffering(offering=offering)

    class Silent(Answers):
        NAME = "conda"

    @contextlib.contextmanager
    def waiting(text: str) -> Iterator[None]:
        waited.append(text)
        yield

    monkeypatch.setattr(installing, "providers", lambda: (Answers(), Silent()))
    monkeypatch.setattr(console, "waiting", waiting)
    how = installing.Installation(settings=ProviderSettings(state=tmp_path))
    with pytest.raises(NoRoute) as refused:
        installing.find(ToolSpec.parse("cuda==12.6"), how)
    assert refused.value.hint and refused.value.hint.startswith("`cuda==12.4` is available from debian; ")
    assert asked == ["debian cuda==12.6", "conda cuda==12.6", "debian cuda==12"]
    assert waited == [f"asking {each.replace(' ', ' for ')}" for each in asked]


def test_an_index_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError': /simple/nvidia/\n"
    calls: list[tuple[str, ...]] = []

    def pip(*words: str, timeout: float) -> Result:
        calls.append(words)
        return Result(args=words, code=1, err=said)

    monkeypatch.setattr(index, "_pip", pip)
    found = index.find(
        ToolSpec.parse("cuda"), Platform(system="linux", arch="x86_64"), ProviderSettings(state=tmp_path)
    )
    assert (found.offering, found.silent, len(calls)) == (None, True, 1)
    assert "does not answer" in found.why
