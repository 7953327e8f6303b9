"""The backend `graft`: compiles the GPU half of a base wheel and puts it in the place of the old one.

The new wheel has the base's members byte for byte, but for the GPU half and what speaks of it. The border between the
halves is proven first: every name that one takes from the other, and every kernel that is registered.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path, PurePath
from typing import Any

from packaging.requirements import Requirement

from rekindle.build.configure.backends import Backend, BackendCall, BackendJob
from rekindle.build.graft import across, platforms
from rekindle.build.graft import base as bases
from rekindle.build.graft.across import Exchange
from rekindle.build.graft.base import Base, held, libraries
from rekindle.build.graft.ninja_file import (
    GENERATED,
    Half,
    architectures,
    base_headers,
    common,
    compiled,
    config_header,
    driver,
    sources,
    write,
)
from rekindle.core import codec, files, run
from rekindle.core.errors import BadInput, ChecksFailed, RekindleError, StepFailed
from rekindle.core.findings import Finding, State, failed, passed, unverified
from rekindle.core.python import ask, own
from rekindle.core.version import Version
from rekindle.formats import elf, pe
from rekindle.formats.access import File
from rekindle.formats.elf import Symbols
from rekindle.model.requirement import canonical_name
from rekindle.model.wheel import tagged_glibc
from rekindle.stack.shorter import left_out
from rekindle.wheels.inspect import grafted
from rekindle.wheels.inspect.grafted import GPU_HALF, RECORD, GraftRecord, is_gpu_half
from rekindle.wheels.repair import rewrite
from rekindle.wheels.repair.rewrite import Contents

_JOB, _CHECKED = "graft.json", "checked.json"


class Graft(Backend):
    """PyTorch's GPU half alone. It works on our copy of the source: torchgen writes into it, and patches may."""

    name = "graft"
    copies = True

    def configure(self, job: BackendJob) -> Sequence[BackendCall]:
        """Torchgen's sources, then the Ninja file, by this program: only then the names of the sources are known."""
        build = Path(job.build)
        files.write_text(build / _JOB, codec.to_json(job) + "\n")
        generated = build / GENERATED
        generated.mkdir(parents=True, exist_ok=True)
        made = (job.python, "-m", "torchgen.gen", "--source-path", "aten/src/ATen", "--install_dir", str(generated),
                "--per-operator-headers", "--generate", "sources")  # fmt: skip
        return [
            BackendCall(args=made, cwd=job.source),
            BackendCall(args=tuple(own("rekindle.build.graft.backend", job.build)), cwd=job.build),
        ]

    def configured(self, build: Path) -> tuple[Path, ...]:
        return (build / "build.ninja", build / _CHECKED)

    def check(self, job: BackendJob, log: str) -> tuple[Finding, ...]:
        return codec.from_json(files.read_bytes(Path(job.build) / _CHECKED), tuple[Finding, ...])

    def package(self, job: BackendJob, into: PurePath) -> Sequence[BackendCall]:
        return []

    def collect(self, job: BackendJob, into: Path) -> Path:
        half = half_of(job)
        paths = {name: half.build / "lib" / half.platform.library.format(name) for name in GPU_HALF}
        new = {name: path for name, path in paths.items() if path.is_file()}
        found = [*check_border(half, new), *registrations(half, new, job.python)]
        if bad := [finding.found for finding in found if finding.state is not State.PASS]:
            message = f"the new GPU half is not proven to fit the base: {'; '.join(bad)}"
            hint = "the wheel was not written, what was compiled is kept; see the log of the step `compile`"
            raise ChecksFailed(message, hint=hint)
        return assemble(half, base_of(job), new, version=job.version, into=into, proofs=found)


def base_of(job: BackendJob) -> Base:
    if job.request.base is None:
        raise BadInput("the plan names no base wheel", hint="add `--graft FILE` with the official wheel")
    return job.request.base


def half_of(job: BackendJob) -> Half:
    """The base is unpacked at the first call."""
    build, base = Path(job.build), base_of(job)
    unpacked = bases.unpack(base, build / "base")
    packages = packages_of(Path(job.python), base.installed)
    tree, cards = Path(job.source), [target.capability for target in job.request.gpu_targets]
    return Half(
        request=job.request,
        tree=tree,
        build=build,
        base=build / "base",
        unpacked=unpacked,
        packages=packages,
        sources=sources(tree, build, cards, platforms.of(job.request.system), base.exchange),
    )


def packages_of(python: Path, pinned: Sequence[str]) -> Path:
    """Where pip has put NVIDIA's packages: those that the base pins, or nothing is compiled against them."""
    home = python.parent.parent
    found = [*home.glob("lib/python3*/site-packages/nvidia"), *home.glob("Lib/site-packages/nvidia")]
    if not found:
        raise BadInput("NVIDIA's packages, which the base requires, are not installed", hint="add `--clean`")
    there = {canonical_name(each.name): each.version for each in distributions(path=[str(found[0].parent)])}
    for asked in map(Requirement, pinned):
        version = there.get(canonical_name(asked.name))
        if asked.name.startswith("nvidia-") and (version is None or version not in asked.specifier):
            message = f"the base pins {asked}, and {version or 'nothing'} is installed for the build"
            raise BadInput(message, hint="add `--clean`: the packages of the base are installed anew")
    return found[0]


def main(build: Path, environ: Mapping[str, str]) -> None:
    job = codec.from_json(files.read_bytes(build / _JOB), BackendJob)
    half = half_of(job)
    write(half, environ)
    # Here, since this runs in the environment of the build: on Windows the compiler is nowhere else.
    untried = half.platform.untried
    found = (*layouts(half), *((unverified("graft-run", untried),) if untried else ()))
    files.write_text(build / _CHECKED, codec.to_json(found) + "\n")
    for library, names in half.sources.files.items():
        print(f"{library}: {len(names)} files")
    for why in half.sources.left:
        print(f"left out: {why}")


_ARCHITECTURES = re.compile(rb"(?<=\x00)sm_\d+[a-z]?(?: (?:sm|compute)_\d+[a-z]?)*(?=\x00)")
_CONFIG, _VERSION = "torch/include/ATen/cuda/CUDAConfig.h", "torch/version.py"
_CUDNN = "torch/backends/cudnn/__init__.py"
_TAG = re.compile(r"(?:many)?linux(?:\d+|_\d+_\d+)?_(x86_64|aarch64)|win_amd64")


def assemble(
    half: Half, base: Base, new: Mapping[str, Path], *, version: str, into: Path, proofs: Sequence[Finding]
) -> Path:
    """Appears under its name only when it is complete."""
    request = half.request
    made = [path.with_name(file) for name, path in new.items() for file in half.platform.files(name)]
    members = {f"torch/lib/{path.name}": path for path in made}
    with held(Path(base.wheel), base.sha256) as (wheel, _):
        archive = wheel.archive
        old = rewrite.info_folder(archive)
        info = f"torch-{version}.dist-info"
        tag = platform_tag(old_tag(archive.read(f"{old}/WHEEL")), members.values())
        add: dict[str, Contents] = dict(members)
        add[_CONFIG] = config_header(half.base, request.gpu_targets).encode()
        add[_VERSION] = _versioned(archive.read(_VERSION), version, request.own_cuda)
        python = f"torch/lib/{_python_half(half)}"
        add[python] = python_half(half, archive.read(python, limit=1 << 30))
        if half.exchange and half.exchange.cudnn:
            add[_CUDNN] = across.with_cudnn(archive.read(_CUDNN), half.exchange.cudnn)
        record = GraftRecord(
            base=Path(base.wheel).name,
            base_sha256=base.sha256,
            commit=base.commit,
            replaced=tuple(sorted(add)),
            arch_list=request.arch_list,
            cuda=str(request.cuda.version) if request.cuda else "",
            compiler=f"{request.compiler.kind} {request.compiler.version or ''}".strip(),
            lost=(*left_out(target.capability for target in request.gpu_targets), *half.sources.left),
            proofs=tuple(proofs),
        )
        add[f"{info}/METADATA"] = _metadata(archive.read(f"{old}/METADATA"), version, record, half.exchange)
        add[f"{info}/WHEEL"] = _TAG.sub(tag, archive.read(f"{old}/WHEEL").decode()).encode()
        add[f"{info}/{RECORD}"] = (codec.to_json(record) + "\n").encode()
        parts = Path(base.wheel).stem.split("-")
        target = into / f"torch-{version}-{parts[2]}-{parts[3]}-{tag}.whl"
        rewrite.rewrite(archive, target, add=add, remove=(f"{old}/METADATA", f"{old}/WHEEL"), renamed={old: info})
    return target


def _python_half(half: Half) -> str:
    return half.platform.library.format("torch_python")


def python_half(half: Half, library: bytes) -> bytes:
    """The base's, with the new list of architectures; and with the bridge, where the majors differ."""
    made = relabelled(library, architectures(half.request.gpu_targets))
    if half.exchange is None:
        return made
    bridge = half.build / "lib" / half.platform.library.format(across.BRIDGE)
    asked = _symbols(libraries(half.base) / _python_half(half)).unversioned
    return across.bridged(made, asked, _symbols(bridge).defined)


def relabelled(library: bytes, architectures: str) -> bytes:
    """`torch.cuda.get_arch_list()` is one text inside the Python half; the new one takes its place."""
    found = _ARCHITECTURES.findall(library)
    if len(found) != 1:
        message = f"the list of architectures stands {len(found)} times in the base's Python half, not once"
        raise BadInput(message, hint="name an official wheel")
    new = architectures.encode()
    if len(new) > len(found[0]):
        message = f"`{architectures}` does not fit in the place of `{found[0].decode()}`"
        raise BadInput(message, hint="name fewer architectures")
    return library.replace(found[0] + b"\0", new.ljust(len(found[0]), b"\0") + b"\0", 1)


def old_tag(wheel: bytes) -> str:
    found = _TAG.search(wheel.decode("utf-8", "replace"))
    if found is None:
        raise BadInput("the base's platform tag is neither Linux's nor Windows's", hint="name an official wheel")
    return found[0]


def platform_tag(base: str, made: Iterable[Path]) -> str:
    """The base's, unless the new libraries want a newer glibc than it promises."""
    if base.startswith("win"):
        return base
    floors = [elf.of(path).floor("GLIBC") for path in made]
    floor = max((each for each in floors if each), default=Version("0"))
    if floor <= (tagged_glibc(base) or Version("2.17")):
        return base
    arch = "aarch64" if base.endswith("aarch64") else "x86_64"
    return f"manylinux_{floor.text.replace('.', '_')}_{arch}"


def _versioned(text: bytes, version: str, cuda: Version | None) -> bytes:
    for name, value in (("__version__", version), ("cuda", cuda)):
        old = rb"(^" + name.encode() + rb"(?:\s*:[^=\n]+)?\s*=\s*)['\"][^'\"\n]*['\"]"
        text = re.sub(old, rb"\g<1>'" + str(value).encode() + b"'", text, flags=re.MULTILINE)
    return text


_REQUIRED = "Requires-Dist: "


def _metadata(data: bytes, version: str, record: GraftRecord, exchange: Exchange | None) -> bytes:
    """Says in its first paragraph what it is: never to be taken for the official wheel."""
    head, _, body = data.decode("utf-8").partition("\n\n")
    head = re.sub(r"^Version: .*$", f"Version: {version}", head, count=1, flags=re.MULTILINE)
    if exchange is not None:
        asked = re.compile(rf"^{_REQUIRED}(.*)$", re.MULTILINE)
        head = asked.sub(lambda line: "\n".join(_REQUIRED + new for new in exchange.of(line[1])), head)
    made = ", ".join(name for each in record.replaced if is_gpu_half(name := each.rpartition("/")[2]))
    own = (
        f"This is not the official wheel. Rekindle made it from {record.base} (SHA-256 {record.base_sha256}) and "
        f"compiled {made} anew for {record.arch_list} with CUDA {record.cuda}. Lost: {', '.join(record.lost)}."
    )
    return f"{head}\n\n{own}\n\n{body}".encode()


_MARK = "rekindle-graft: "
ASK = """
import json, torch
cuda = lambda text: [line for line in text.splitlines() if "CUDA" in line.split(":")[0]]
c = torch._C
names = sorted(c._dispatch_get_all_op_names())
print("MARK" + json.dumps({"registered": {name: cuda(c._dispatch_dump(name)) for name in names},
                           "computed": {name: cuda(c._dispatch_dump_table(name)) for name in names}}))
""".replace("MARK", _MARK)
# Where a kernel was registered, without the folder that it was compiled in.
PLACE = re.compile(r"registered at (?:\S*/)?((?:aten|c10|torch)/\S+)")
_LINE = re.compile(r"(registered at \S+):\d+")


def check_border(half: Half, new: Mapping[str, Path]) -> list[Finding]:
    """Names, before anything runs. `new` are the libraries that were made."""
    places = (libraries(half.base), half.base / "torch", half.base / "functorch")
    inside = [path for place in places for path in place.glob("*") if {*path.suffixes} & {".so", ".dll", ".pyd"}]
    replaced = {path.name: path for path in new.values()}
    base = {path.name: _symbols(path) for path in inside}
    kept = {name: each for name, each in base.items() if name not in replaced}
    old = {name: each for name, each in base.items() if name in replaced}
    made = {name: _symbols(path) for name, path in replaced.items()}
    needed = {name for path in new.values() for name in platforms.linked(path).needed}
    beside = [path for name in sorted(needed) for path in half.in_packages(f"lib/{name}")]
    if half.exchange:
        beside.append(driver(half))
    packages = frozenset().union(*(_symbols(path).defined for path in beside))
    return [grafted.taken(kept, old, made), grafted.wanted(kept, old, made, packages)]


def registrations(half: Half, new: Mapping[str, Path], python: str) -> list[Finding]:
    """The dispatcher's entries for CUDA, of the base and of the base with the new half, asked without a GPU."""
    one = _ask_dispatcher(half, half.base, python)
    other = _ask_dispatcher(half, overlay(half, new), python)
    if isinstance(one, str):
        text = f"the base itself could not be imported here, so its kernels could not be counted: {one}"
        return [unverified("graft-kernels", text)]
    if isinstance(other, str):
        return [failed("graft-kernels", f"the base can be imported, with the new GPU half it cannot: {other}")]
    found = sorted(differences(one, other))
    count = sum(len(entry) for entry in one["registered"].values())
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        text = f"the dispatcher has another entry for `{found[0]}`{more} with the new GPU half"
        return [failed("graft-kernels", text, why="an operator would have no kernel")]
    text = f"the dispatcher has the same {count} entries for CUDA with the base and with the new GPU half"
    return [passed("graft-kernels", text)]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterable[str]:
    """Operators whose entries differ in more than the folder and the line of their source."""
    for table in ("registered", "computed"):
        for name in {*one[table], *other[table]}:
            first, second = (_placeless(side[table].get(name)) for side in (one, other))
            if first != second:
                yield name


def overlay(half: Half, new: Mapping[str, Path]) -> Path:
    """The base once more, its files shared, with the new libraries in their places."""
    folder = half.build / "new"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(half.base, folder, copy_function=_link, symlinks=True)
    for path in new.values():
        target = libraries(folder) / path.name
        target.unlink(missing_ok=True)
        _link(str(path), str(target))
    if half.exchange:
        target = libraries(folder) / _python_half(half)
        made = python_half(half, files.read_bytes(target, limit=1 << 30))
        target.unlink()
        target.write_bytes(made)
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _ask_dispatcher(half: Half, folder: Path, python: str) -> dict[str, Any] | str:
    for name in half.platform.beside:
        package = half.packages.parent / name
        if package.is_dir() and not (folder / name).exists():
            (folder / name).symlink_to(package, target_is_directory=True)
    env = {**os.environ, "PYTHONPATH": str(folder), "LD_BIND_NOW": "1"}
    said = ask(python, "-c", ASK, env=env, timeout=600)
    line = next((line for line in said.out.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return (said.err.strip().splitlines() or [f"exited with code {said.code}"])[-1][:300]
    answer: dict[str, Any] = json.loads(line[len(_MARK) :])
    return answer


def _placeless(entry: list[str] | None) -> list[str] | None:
    if entry is None:
        return None
    plain = (line.replace("\\", "/") for line in entry)
    return [_LINE.sub(r"\1", PLACE.sub(r"registered at \1", line)) for line in plain]


def _symbols(path: Path) -> Symbols:
    with File(path) as source:
        return grafted.of_pe(pe.read(source)) if source.read(0, 2) == pe.MAGIC else elf.symbols(source)


_ASKED = (
    "sizeof(cudaDeviceProp)", "offsetof(cudaDeviceProp, multiProcessorCount)", "offsetof(cudaDeviceProp, major)",
    "sizeof(at::cuda::NVRTC)", "sizeof(c10::cuda::CUDAStream)", "sizeof(at::CUDAGeneratorImpl)",
    "sizeof(c10::cuda::CUDACachingAllocator::CUDAAllocator)",
)  # fmt: skip
_NCCL = ("sizeof(c10d::ProcessGroupNCCL)", "sizeof(c10d::ProcessGroupNCCL::Options)")
_HEADERS = ("cstddef", "cuda_runtime.h", "ATen/cuda/nvrtc_stub/ATenNVRTC.h", "c10/cuda/CUDACachingAllocator.h",
            "c10/cuda/CUDAStream.h", "ATen/cuda/CUDAGeneratorImpl.h")  # fmt: skip
_NCCL_HEADER = "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
_TABLE = (0x52454B494E444C45, 0x4C41594F55545321)


def layouts(half: Half) -> tuple[Finding, ...]:
    """The CPU and Python halves were compiled with the base's CUDA, the new half is with the toolkit's."""
    theirs = (
        [base_headers(half)] if half.exchange else sorted({path.parent for path in half.in_packages("include/*.h")})
    )
    if not any((folder / "cuda_runtime.h").is_file() for folder in theirs):
        text = "the base's own CUDA headers are in none of its packages: the layouts could not be compared"
        return (unverified("graft-layouts", text),)
    asked = [*_ASKED, *(_NCCL if "-DUSE_C10D_NCCL" in common(half) else ())]
    if half.exchange:
        asked = [each for each in asked if across.BESIDE not in each]
    with files.scratch("layouts") as scratch:
        ours = _numbers(half, scratch, asked, ())
        base = _numbers(half, scratch, asked, theirs)
    rows = zip(asked, base, ours, strict=True)
    different = [f"`{name}` is {one} in the base and {other} here" for name, one, other in rows if one != other]
    if different:
        text = different[0] + (f", and {len(different) - 1} more differ" if len(different) > 1 else "")
        why = "both halves use it: one would read the other's memory wrongly"
        return (failed("graft-layouts", text, why=why),)
    text = f"{len(asked)} sizes and places of structures are the same with the base's CUDA and with the toolkit's"
    return (passed("graft-layouts", text),)


def _numbers(half: Half, scratch: Path, asked: Sequence[str], first: Sequence[Path]) -> list[int]:
    """By the compiler's own word: nothing is linked or run."""
    headers = [*_HEADERS, *((_NCCL_HEADER,) if _NCCL[0] in asked else ())]
    source, made = scratch / "layouts.cpp", scratch / "layouts.o"
    source.write_text(table_of(headers, asked), encoding="utf-8")
    said = run.call([*compiled(half, first), *half.platform.one(str(source), str(made))], cwd=half.build, timeout=900)
    found = read_table(files.read_bytes(made), len(asked)) if said.ok else None
    if found is None:
        lines = [*said.err.splitlines(), *said.out.splitlines()]
        why = next((line for line in lines if "error" in line), said.err.strip()[:200])
        raise StepFailed(f"the layouts of both halves could not be compared: {why}", hint="see the headers it names")
    return found


def table_of(headers: Sequence[str], asked: Sequence[str]) -> str:
    """A source whose object has the answers as constants behind a mark, whatever the object's format."""
    included = "".join(f"#include <{name}>\n" for name in headers)
    table = ", ".join([*map(hex, _TABLE), *asked])
    return f'{included}extern "C" {{ extern const unsigned long long rekindle_layouts[] = {{{table}}}; }}\n'


def read_table(data: bytes, count: int) -> list[int] | None:
    found = data.partition(struct.pack("<2Q", *_TABLE))[2]
    return list(struct.unpack_from(f"<{count}Q", found)) if len(found) >= 8 * count else None


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), os.environ)
    except RekindleError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")
