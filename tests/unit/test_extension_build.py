"""Building an extension: a wheel that already exists, torchvision's own way, the log, the cause of a failure."""

from __future__ import annotations

import http.server
import io
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rekindle.audit.contents import read
from rekindle.audit.symbols import Offered
from rekindle.build.configure.environment import BuildEnvironment as BuildEnvironment
from rekindle.build.configure.request import BuildRequest, Compiler, Cuda
from rekindle.core.errors import StepFailed, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.extension import companions
from rekindle.extension.build import LOG, make
from rekindle.extension.candidates import candidate
from rekindle.extension.check import import_names, misnamed
from rekindle.extension.prepare import Preparation, Workbench, prepare
from rekindle.knowledge.builds.extension_builds import settings
from rekindle.machine.model import FoundPython, InstalledTorch, Machine
from rekindle.machine.python.environment import find as find_environment
from rekindle.model.card import Capability, NamedCard
from rekindle.model.environment import Environment
from support.artefacts import unverified
from support.compiled import Compiler as Linker
from support.fatbins import container
from support.small_wheels import record

H200 = NamedCard(name="sm_90", capability=Capability(9, 0))
K40 = NamedCard(name="sm_35", capability=Capability(3, 5))
TORCH = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
HERE = Environment(
    root="env",
    os="windows" if os.name == "nt" else "linux",
    kind="venv",
    python=Version(f"{sys.version_info[0]}.{sys.version_info[1]}"),
    site_packages=(),
    interpreter=sys.executable,
    has_headers=True,
)


# -- torchvision and torchaudio --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "torch", "requirement", "belongs"),
    [
        ("torchvision", "2.11.0+cu130", "torchvision==0.26.0", True),
        ("torchvision", "1.13.1+rk.cu118.sm35", "torchvision==0.14.1", True),
        ("torchaudio", "2.0.1", "torchaudio==2.0.2", None),
        ("torchvision==0.20.1", "2.7.1", "torchvision==0.20.1", False),
        ("torchvision==0.99.0", "9.9.0", "torchvision==0.99.0", None),
    ],
)
def test_the_version_that_belongs_to_the_torch(asked: str, torch: str, requirement: str, belongs: bool | None) -> None:
    found = companions.companion_from_requirement(asked, torch)
    assert found is not None
    if belongs is not None or "99" in asked:
        assert (found.requirement, found.belongs) == (requirement, belongs)
    else:
        assert found.requirement.startswith("torchaudio==2.0.")


def test_other_projects_are_not_named_ones() -> None:
    for text in ("torch-scatter", "torchvision-extra==1", "torchvision>=0.20", "./torchvision"):
        assert companions.companion_from_requirement(text, "2.7.1") is None or text == "torchvision>=0.20"


def test_a_torch_that_the_tables_do_not_know_needs_a_version() -> None:
    with pytest.raises(UsageError, match="data does not say") as caught:
        companions.companion_from_requirement("torchvision", "9.9.0")
    assert "torchvision==X.Y.Z" in (caught.value.hint or "")


def test_a_pair_that_does_not_belong_is_said() -> None:
    found = companions.companion_from_requirement("torchvision==0.20.1", "2.7.1")
    assert found is not None
    said = companions.finding(found)
    assert said.state is State.WARN
    assert "that is 0.22.1" in said.found


def test_what_its_build_is_told() -> None:
    found = companions.companion_from_requirement("torchvision", "2.7.1+rk.cu118.sm35")
    assert found is not None
    changes = (*companions.changes(found), *companions.build_variables(found.requirement, "3.5"))
    told = {change.name: change.value for change in changes}
    assert told["BUILD_VERSION"] == "0.22.1"
    assert told["PYTORCH_VERSION"] == "2.7.1"  # `torch==2.7.1` is met by a torch 2.7.1+anything
    assert told["TORCHVISION_USE_FFMPEG"] == "0"
    assert all(change.why for change in changes)


def test_what_others_must_be_told() -> None:
    """flash-attn looks at a list of its own, and would fetch somebody's wheel instead of building."""
    told = {change.name: change.value for change in companions.build_variables("flash_attn", "8.6;9.0+PTX;12.0")}
    assert told == {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": "86;90;120"}
    assert companions.build_variables("numpy", "9.0") == ()


def test_settings_follow_the_version() -> None:
    assert {row.name for row in settings("torchaudio", "0.13.1")} == {
        "USE_CUDA", "BUILD_SOX", "BUILD_KALDI", "BUILD_CTC_DECODER",
    }  # fmt: skip
    assert {row.name for row in settings("torchaudio", "2.7.1")} == {"USE_CUDA", "BUILD_SOX", "USE_FFMPEG"}
    assert {row.name for row in settings("torchaudio", "2.11.0")} == {"USE_CUDA"}
    assert settings("torchvision", "0.26.0") == ()


GTX = NamedCard(name="GTX 1080 Ti", capability=Capability(6, 1))
V100 = NamedCard(name="V100", capability=Capability(7, 0))


@pytest.mark.parametrize(
    ("requirement", "card", "says"),
    [
        ("flash-attn==2.8.3", GTX, "has no code for GTX 1080 Ti (sm_61)"),
        ("flash_attn", V100, "sm_80, sm_90, sm_100, sm_120 only"),
        ("flash-attn==2.8.3", H200, None),
        ("causal-conv1d==1.5.2", GTX, "sm_62"),
        ("causal-conv1d==1.5.2", V100, None),
        ("causal-conv1d", V100, "sm_75"),
        ("causal-conv1d==1.5.0.post8", V100, "has no CUDA files"),
        ("mamba-ssm==2.3.2.post1", V100, "sm_75"),
        ("mamba-ssm==2.3.1", V100, None),
        ("rotary-emb==0.5.2", GTX, "sm_70"),
        ("torch-scatter==2.1.2", GTX, None),
    ],
)
def test_a_project_with_architectures_of_its_own_is_refused_first(
    requirement: str, card: NamedCard, says: str | None
) -> None:
    finding = companions.refused(requirement, [card])
    assert (finding is None) == (says is None)
    if finding is not None and says is not None:
        assert finding.state is State.FAIL
        assert says in finding.found


def test_the_refusal_names_the_versions_that_serve() -> None:
    finding = companions.refused("causal-conv1d==1.7.0", [V100])
    assert finding is not None
    assert finding.fix is not None
    assert "`causal-conv1d>=1.5.3,<1.6.2`" in finding.fix.text
    none = companions.refused("causal-conv1d==1.7.0", [GTX])
    assert none is not None
    assert none.fix is not None
    assert "take `" not in none.fix.text


# -- a wheel that already exists -----------------------------------------------------------------------------------


class _Index(http.server.BaseHTTPRequestHandler):
    """A package index with one wheel, and a server that gives out parts of it."""

    name = ""
    data = b""
    ranges = True
    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, *, body: bool = True) -> None:
        if not self.path.endswith(".whl"):
            page = f'<!DOCTYPE html><html><body><a href="/files/{self.name}">{self.name}</a></body></html>'.encode()
            self._answer(200, page if "/ext" in self.path else b"", "text/html", body=body)
            return
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        self.asked.append(wanted)
        if not wanted or not self.ranges:
            self._answer(200, self.data, "application/zip", body=body)
            return
        first, _, last = wanted.partition("-")
        begin = int(first) if first else max(len(self.data) - int(last), 0)
        end = int(last) + 1 if first and last else len(self.data)
        self._answer(206, self.data[begin:end], "application/zip", body=body, begin=begin)

    def _answer(self, code: int, data: bytes, kind: str, *, body: bool, begin: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if begin is not None:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{len(self.data)}")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on the test's output."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Index]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(_Index, "ranges", True)
        monkeypatch.setattr(_Index, "asked", [])
        yield _Index
        server.shutdown()


def _wheel_of(tmp_path: Path, *targets: str, wants: str = TORCH) -> tuple[str, bytes, InstalledTorch]:
    """A wheel for this Python with GPU code for `targets`, linked to a torch that offers TORCH."""
    site = tmp_path / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    linker = Linker(site, "")
    linker.build("torch/lib/libc10.so", offers=(TORCH,), options=("-Wl,-soname,libc10.so",))
    options = ("-Wl,--unresolved-symbols=ignore-all", "-L", str(site / "torch/lib"), "-Wl,--no-as-needed", "-lc10")
    built = linker.build("ext/_C.so", wants=(wants,), options=options)
    code = linker.work / "code.fatbin"
    code.write_bytes(container(*targets))
    linker.run(["objcopy", "--add-section", f".nv_fatbin={code}", str(built)])
    files = {
        "ext/_C.so": built.read_bytes(),
        "ext/padding.bin": os.urandom(1 << 20),
        "ext-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: ext\nVersion: 1.0\n",
        "ext-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("ext-1.0.dist-info/RECORD", record(files, "ext-1.0.dist-info"))
    torch = InstalledTorch(version="2.7.1", cuda=Version("12.6"), root=str(site / "torch"))
    return "ext-1.0-py3-none-any.whl", stream.getvalue(), torch


@pytest.mark.long
@pytest.mark.parametrize("ranges", [True, False])
def test_a_wheel_that_serves_is_taken(
    index: type[_Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    name, data, torch = _wheel_of(tmp_path, "sm_90")
    monkeypatch.setattr(index, "name", name)
    monkeypatch.setattr(index, "data", data)
    monkeypatch.setattr(index, "ranges", ranges)
    wheel, finding = candidate("ext", HERE, torch, [H200], tmp_path, lambda _: None)
    assert finding is not None
    assert finding.state is State.PASS, finding
    assert wheel is not None
    assert wheel.read_bytes() == data


def test_one_that_does_not_serve_is_not_even_fetched(
    index: type[_Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, data, torch = _wheel_of(tmp_path, "sm_80", "compute_90")
    monkeypatch.setattr(index, "name", name)
    monkeypatch.setattr(index, "data", data)
    said: list[str] = []
    wheel, finding = candidate("ext==1.0", HERE, torch, [K40], tmp_path, said.append)
    assert wheel is None
    assert finding is not None
    assert finding.state is State.WARN
    assert "does not serve sm_35: _C.so has sm_80, compute_90" in finding.found
    assert said == [finding.found]
    assert not list((tmp_path / "index").glob("*")) if (tmp_path / "index").exists() else True


@pytest.mark.long
def test_the_file_that_does_not_serve_is_named(
    index: type[_Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision's wheel carries NVIDIA's nvJPEG, with code for more cards than its own module has."""
    name, data, torch = _wheel_of(tmp_path, "sm_80")
    (tmp_path / "other").mkdir()
    _, other, _ = _wheel_of(tmp_path / "other", "sm_80", "sm_75")
    both = io.BytesIO(data)
    with zipfile.ZipFile(both, "a") as archive, zipfile.ZipFile(io.BytesIO(other)) as second:
        archive.writestr("ext.libs/libnvjpeg.so", second.read("ext/_C.so"))
    monkeypatch.setattr(index, "name", name)
    monkeypatch.setattr(index, "data", both.getvalue())
    turing = NamedCard(name="sm_75", capability=Capability(7, 5))
    wheel, finding = candidate("ext", HERE, torch, [turing], tmp_path, lambda _: None)
    assert wheel is None
    assert finding is not None
    assert "does not serve sm_75: _C.so has sm_80" in finding.found


@pytest.mark.long
def test_one_for_another_torch_does_not_fit(
    index: type[_Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, data, torch = _wheel_of(tmp_path, "sm_90", wants="_ZN2at3addERKNS_6TensorES2_")
    monkeypatch.setattr(index, "name", name)
    monkeypatch.setattr(index, "data", data)
    wheel, finding = candidate("ext", HERE, torch, [H200], tmp_path, lambda _: None)
    assert wheel is None
    assert finding is not None
    assert "was built for another torch" in finding.found


@pytest.mark.long
def test_no_wheel_means_that_pip_would_build(
    index: type[_Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "name", "ext-1.0.tar.gz")
    said: list[str] = []
    torch = InstalledTorch(version="2.7.1", cuda=None, root=str(tmp_path))
    assert candidate("ext", HERE, torch, [H200], tmp_path, said.append) == (None, None)
    assert "pip would build it from source" in said[0]


# -- the build itself ------------------------------------------------------------------------------------------------


REQUEST = BuildRequest(
    source="s",
    name="extension",
    system=HERE.os,
    arch="x86_64",
    python=sys.executable,
    compiler=Compiler(kind="gcc", c="gcc", cxx="g++", cuda_host="g++"),
)
FOUND = Preparation(
    findings=(),
    arch_list="9.0",
    toolkit="/usr/local/cuda",
    request=REQUEST,
    environment=BuildEnvironment(system=HERE.os, changes=()),
    builder=sys.executable,
)


def _project(folder: Path, setup: str) -> Path:
    folder.mkdir()
    (folder / "setup.py").write_text(setup, encoding="utf-8")
    (folder / "ext").mkdir()
    (folder / "ext" / "__init__.py").write_text("VALUE = 3\n", encoding="utf-8")
    return folder


def _make(name: str, project: Path, found: Preparation, folder: Path) -> tuple[Path, Path]:
    """pip brings setuptools for the build: where it reaches no index (Wine has no network), nothing can be said."""
    (folder / "work").mkdir()
    try:
        return make(
            name, project, HERE, found, work=folder / "work", output=folder / "out", tell=lambda _: None
        )  # fmt: skip
    except StepFailed as error:
        if "No matching distribution found for setuptools" in error.message:
            unverified("pip reaches no index from here")
        raise


SAYS = 'import sys\nprint("""{}""", flush=True)\nsys.exit(1)\n'
# As nvcc and GCC wrote them; tests/real provokes the same ones with the real compilers.
TOO_NEW = (
    "/usr/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 11 are "
    "not supported! The nvcc flag '-allow-unsupported-compiler' can be used to override this version check"
)
MISTAKE = 'src/k.cu(5): error: identifier "undefined_thing" is undefined\n\n1 error detected in the compilation'


@pytest.mark.long
@pytest.mark.parametrize(("said", "cause"), [(TOO_NEW, "newer than the cuda"), (MISTAKE, "source")])
def test_a_build_that_fails_ends_with_its_cause(tmp_path: Path, said: str, cause: str) -> None:
    project = _project(tmp_path / "project", SAYS.format(said))
    with pytest.raises(StepFailed) as caught:
        _make("project", project, FOUND, tmp_path)
    assert cause in caught.value.message.lower()
    assert LOG in (caught.value.hint or "")
    assert said.splitlines()[0][:40] in (tmp_path / "out" / LOG).read_text(encoding="utf-8")


@pytest.mark.long
def test_a_build_that_works_leaves_the_source_alone(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='ext', version='1.0', packages=['ext'])\n"
    project = _project(tmp_path / "project", setup)
    before = sorted(path.name for path in project.rglob("*"))
    wheel, log = _make(str(project), project, FOUND, tmp_path)
    assert wheel.name == "ext-1.0-py3-none-any.whl"
    assert log.is_file()
    assert sorted(path.name for path in project.rglob("*")) == before


GATED = """import os, subprocess, sys
if "bdist_wheel" in sys.argv:
    subprocess.run([os.environ["PYTORCH_NVCC"], "-c", "k.cu", "-o", "k.o"], check=True)
from setuptools import setup
setup(name="ext", version="1.0", packages=["ext"])
"""


@pytest.mark.long
def test_nvcc_waits_at_the_gate(tmp_path: Path) -> None:
    """torch calls the nvcc that PYTORCH_NVCC names; it is the toolkit's own, behind the gate."""
    if os.name == "nt":
        unverified("torch takes another nvcc on Linux only")
    nvcc = tmp_path / "cuda 12" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/called"; touch k.o\n', encoding="utf-8")
    nvcc.chmod(0o755)
    kit = Cuda(root=str(nvcc.parents[1]), nvcc=str(nvcc), version=Version("12.6"))
    found = msgspec.structs.replace(FOUND, request=msgspec.structs.replace(REQUEST, cuda=kit))
    project = _project(tmp_path / "project", GATED)
    _make("ext", project, found, tmp_path)
    assert (tmp_path / "called").read_text(encoding="utf-8") == "-c k.cu -o k.o\n"
    assert "k.o" in (tmp_path / "work" / "compiles.jsonl").read_text(encoding="utf-8")


# -- what is imported, and with which Python it is built --------------------------------------------------------------


def test_what_is_imported_of_a_wheel(tmp_path: Path) -> None:
    """A package with `__init__.py` by its name; a module that lies bare, or in a folder without one, by its own."""
    for name in (
        "pkg/_C.cpython-311-x.so",
        "simple_knn/_C.cpython-311-x.so",
        "bare_C.cpython-311-x.so",
        "pkg/lib/x.so",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "pkg" / "__init__.py").touch()
    place = msgspec.structs.replace(HERE, site_packages=(str(tmp_path),))
    assert sorted(import_names(tmp_path, read(place).modules)) == ["bare_C", "pkg", "simple_knn._C"]


def _embedded(root: Path) -> Environment:
    """ComfyUI's portable folder: an embedded Python with torch and without headers."""
    site = root / "python_embeded" / "Lib" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (root / "python_embeded" / "python311._pth").write_text("python311.zip\n", encoding="utf-8")
    (root / "python_embeded" / "python311.dll").write_bytes(b"")
    (root / "python_embeded" / "python.exe").write_bytes(b"")
    return find_environment(root)


def test_an_embedded_python_is_built_for_with_a_full_one_of_its_version(tmp_path: Path) -> None:
    portable = _embedded(tmp_path / "ComfyUI_windows_portable")
    assert (portable.kind, portable.has_headers) == ("embedded", False)
    pythons = []
    for version in ("3.12", "3.11"):
        root = tmp_path / f"Python{version}"
        (root / "Lib" / "site-packages").mkdir(parents=True)
        (root / "include").mkdir()
        (root / "include" / "Python.h").touch()
        (root / "python.exe").touch()
        pythons.append(FoundPython(path=str(root / "python.exe"), version=Version(f"{version}.4")))
    torch = InstalledTorch(version="2.7.1", cuda=None, root=str(tmp_path))
    alone = prepare(portable, torch, [], Machine(os="windows", arch="x86_64"), bench=Workbench(temp="t", jobs=1))
    assert alone.findings[0].state is State.FAIL
    assert alone.findings[0].fix is not None
    assert "full Python 3.11" in alone.findings[0].fix.text
    machine = Machine(os="windows", arch="x86_64", pythons=tuple(pythons))
    found = prepare(portable, torch, [], machine, bench=Workbench(temp="t", jobs=1))
    assert found.findings[0].state is State.PASS
    assert pythons[1].path in found.findings[0].found


@pytest.mark.skipif(os.name == "nt", reason="Debian's torch, whose libraries are links")
def test_libraries_beside_those_that_torch_links_to_are_read(tmp_path: Path) -> None:
    """Debian's torch/lib has links to the system's folder, and none for libtorch_cuda."""
    linker = Linker(tmp_path / "root", "")
    linker.build("usr/lib/libtorch_cuda.so.2.6", offers=["_ZN2at4cuda6handleEv"])
    linker.build("usr/lib/libother.so.1", offers=["_ZN2at5otherEv"])
    linker.build("usr/lib/libc10.so.2.6", offers=[TORCH])
    libraries = tmp_path / "root/usr/lib/python3/dist-packages/torch/lib"
    libraries.mkdir(parents=True)
    (libraries / "libc10.so").symlink_to("../../../../libc10.so.2.6")
    everything = Offered(libraries.parent).everything
    assert {TORCH, "_ZN2at4cuda6handleEv"} <= everything
    assert "_ZN2at5otherEv" not in everything


@pytest.mark.parametrize(
    ("name", "architecture", "refused"),
    [
        ("rotary_emb-0.5.2-cp313-cp313-manylinux2014_x86_64.whl", "aarch64", True),
        ("rotary_emb-0.5.2-cp313-cp313-manylinux2014_x86_64.whl", "x86_64", False),
        ("sam2-1.1.0-cp313-cp313-linux_aarch64.whl", "aarch64", False),
        ("a-1-cp313-cp313-win_amd64.whl", "x86_64", False),
        ("a-1-py3-none-any.whl", "aarch64", False),
    ],
)
def test_a_wheel_named_for_another_processor_is_said(name: str, architecture: str, refused: bool) -> None:
    finding = misnamed(name, architecture)
    assert (finding is not None and finding.state is State.FAIL) == refused
