"""The torch that one thing brings: a wheel's file, a conda package, a package of the distribution, a base image."""

from __future__ import annotations

import re

import msgspec

from rekindle.compat.torch_cuda import ordinary_line, taken
from rekindle.core.version import Version
from rekindle.knowledge.builds.limits import since
from rekindle.knowledge.torch.projects import CondaBuild, conda_builds
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.model.cuda_line import LINE, CudaLine
from rekindle.model.platform import LINUX
from rekindle.model.torch_pin import CPU, TorchPin
from rekindle.review.packages import Install, Wanted, complete, exact_version, excludes
from rekindle.review.trace import Image, Invocation

_IMAGE = re.compile(
    r"(?:^|/)(?:(?:pytorch|runpod|anibali)/pytorch|pytorch/pytorch-binary)"
    r":v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)\S*?-cu(?:da)?-?(\d{2}(?:\.?\d))"
)
# RunPod counts its images: `runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404`, and once `3.10-2.0.0-117`, by the Python.
_COUNTED = re.compile(
    rf"(?:^|/)runpod/pytorch:[\d.]+-(?:({LINE})\d*-torch(\d)(\d{{1,2}})(\d)|(\d\.\d{{1,2}}\.\d)-(\d{{3}}))\b"
)
_NEWEST_IMAGE = re.compile(r"(?:^|/)pytorch/pytorch(?::latest)?\Z")
_PROGRAM_IMAGE = re.compile(r"(?:^|/)vllm/vllm-openai(?::|$)")
_WHEEL = re.compile(
    r"(?:py)?torch-(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?:\.(?:dev|post|a|b|rc)\w*|[ab]\w+|rc\w*)?(?:\+([\w.]+))?-"
)
# `PyTorch/2.1.2-foss-2023a-CUDA-12.1.1`, `pytorch/2.3`, `py-torch/2.1.0`, `pytorch-gpu/py3/2.3.1`.
_MODULE = re.compile(
    r"(?i)(?:\A|/)(?:py-?)?torch(?:-gpu|-bundle|-cuda)?(?:/py\d[\d.]*)?(?:[/@]v?(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)|/|\Z)"
)
MODULE = "the module"
_UNSAID = re.compile(r"=\s*[\"']?(?!\*)[^\d\s=*]")
_CONDA_CUDA = ("pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-toolkit", "cuda")


class ScriptTorch(msgspec.Struct, frozen=True, kw_only=True):
    """The torch of an environment. `version` None: not known, and `question` says what is not.

    `kind`: wheel, conda (PyTorch's channel), conda-forge, image, program (its own image), or other: somebody else's.
    """

    line: int
    order: int
    version: str | None
    variant: str | None = None
    kind: str = "wheel"
    pinned: bool = True
    """The script names the release itself."""
    system: str = "linux"
    python: str | None = None
    glibc: Version | None = None
    index: str | None = None
    question: str | None = None
    by: str = "torch"
    """The package that brings it."""
    name: str | None = None
    """Of an image."""
    branch: bool = False
    """Only one of several ways leads to it."""

    @property
    def spoken(self) -> str:
        return TorchPin(self.version or "", self.variant).spoken

    @property
    def of_nvidia(self) -> bool:
        return (self.name or "").startswith("nvcr.io/nvidia/pytorch:")

    @property
    def of_module(self) -> bool:
        return self.by == MODULE

    @property
    def alone(self) -> bool:
        """EasyBuild has a module for each package; in other modules the companions may be as well."""
        return bool(re.search(r"/[\d.]+-(?:foss|intel|gfbf|gomkl)\w*-\d{4}", self.name or "")) and "-bundle" not in str(
            self.name
        )

    @property
    def of_conda(self) -> bool:
        return self.kind in ("conda", "conda-forge")

    def same(self, other: ScriptTorch) -> bool:
        return (self.version, self.variant) == (other.version, other.variant)


def by_file(file: str, base: ScriptTorch) -> ScriptTorch:
    match = _WHEEL.match(file)
    if match is None:
        return msgspec.structs.replace(base, kind="other", question=f"what is in `{file[:60]}`")
    local = match[2] or ""
    line = local if local == CPU or CudaLine.parse(local) else None
    if line is None or ".dev" in file:
        words = f"what is in `{file[:60]}`"
        return msgspec.structs.replace(base, version=match[1], kind="other", question=words)
    return msgspec.structs.replace(base, version=match[1], variant=line)


def by_conda(found: Install, asks: Wanted | None, base: ScriptTorch) -> ScriptTorch | None:
    """conda's pytorch: PyTorch's own channel until 2.5, else conda-forge or the defaults."""
    if asks is None or found.verb not in ("install", "create"):
        return None
    channels = " ".join((*found.channels, asks.raw if "::" in asks.raw else ""))
    if "nightly" in channels:
        words = "what is in a nightly build is not in the tables"
        return msgspec.structs.replace(base, kind="other", question=words, by=asks.name, line=asks.line)
    named = {each.name for each in found.wanted}
    pytorchs = bool(re.search(r"\bpytorch\b", channels)) or "pytorch-cuda" in named
    forge = ("conda-forge" in channels and not pytorchs) or forge_first(found)
    unsaid = next(
        (each for each in found.wanted if each.name in _CONDA_CUDA and _UNSAID.search(each.requirement or each.raw)),
        None,
    )
    if unsaid is not None and asks.build == "":
        words = f"which CUDA `{unsaid.raw[:60]}` is"
        return msgspec.structs.replace(base, kind="other", question=words, by=asks.name, line=asks.line)
    line = next(
        (
            CudaLine(number).name
            for name in _CONDA_CUDA
            if (each := found.named(name)) and (number := Version.find(each.requirement or "")) is not None
        ),
        None,
    )
    # `dgl-cuda10.2` comes with the CUDA of its name.
    beside = next((match for name in named if (match := re.search(r"-cuda-?(\d{1,9})[.-](\d{1,9})$", name))), None)
    if line is None and beside is not None:
        line = CudaLine(Version(f"{beside[1]}.{beside[2]}")).name
    if "cpuonly" in named or asks.name == "pytorch-cpu" or re.match(r"\*?cpu", asks.build):
        line = CPU
    built = re.search(r"cuda(\d\d)(\d)|cuda(\d{1,9}\.\d)", asks.build)
    if built and line is None:
        line = CudaLine(Version(built[3] or f"{built[1]}.{built[2]}")).name
    exact = exact_version(asks.requirement)
    forge = forge and not (pytorchs and _of_conda_forge(found, asks, base) is None)
    if forge and line != CPU and (build := _of_conda_forge(found, asks, base)):
        # Of a range conda takes what the driver runs.
        pins = any(each.name in _CONDA_CUDA and (each.requirement or ">")[0] != ">" for each in found.wanted)
        return msgspec.structs.replace(
            base, version=build.torch, variant=CudaLine(build.cuda).name if pins else None, pinned=exact is not None,
            by=asks.name, line=asks.line, kind="conda-forge",
        )  # fmt: skip
    ended = since("no-conda-channel")
    version = taken(
        lambda patch: not excludes(asks.requirement, patch) and not (pytorchs and Version(patch) >= ended),
        line=line if exact is None else None, python=base.python, system=base.system,
    ) if asks.requirement is not None else None  # fmt: skip
    if version is None and exact is not None:
        version = complete(str(exact))
    torch = msgspec.structs.replace(
        base, version=version, variant=line, pinned=exact is not None, by=asks.name, line=asks.line,
        kind="conda-forge" if forge else "conda",
    )  # fmt: skip
    if version is None:
        return msgspec.structs.replace(torch, question=f"which torch `{asks.raw.strip()[:60]}` is")
    return torch


def forge_first(found: Install) -> bool:
    """conda takes a package from the first channel that has it; `pytorch-cuda` is in PyTorch's own alone."""
    places = [
        each.rpartition("/")[2] for each in found.channels if each.rpartition("/")[2] in ("conda-forge", "pytorch")
    ]
    named = any(each.name == "pytorch-cuda" or "pytorch::" in each.raw for each in found.wanted)
    return places[:1] == ["conda-forge"] and not named


def _of_conda_forge(found: Install, asks: Wanted, base: ScriptTorch) -> CondaBuild | None:
    """The newest build that the file's torch, CUDA and Python admit; None where the tables have none."""
    cudas = [each.requirement for each in found.wanted if each.name in _CONDA_CUDA]
    rows = [
        row
        for row in conda_builds()
        if row.system == base.system and (base.python is None or base.python in row.pythons)
        if asks.requirement is not None and not excludes(asks.requirement, row.torch)
        if not any(excludes(each, str(row.cuda)) for each in cudas)
    ]
    return max(rows, key=lambda row: (Version(row.torch), row.cuda), default=None)


def by_system(item: Invocation) -> ScriptTorch | None:
    """What is no wheel: a cluster's module, and Debian's own packages, `python3-torch` without CUDA and
    `python3-torch-cuda`."""
    if item.program in ("module", "ml"):
        return _by_module(item)
    found = next((word for word in item.words if re.fullmatch(r"python3-(?:py)?torch(?:-cuda)?", word.text)), None)
    if found is None or item.program not in ("apt", "apt-get", "aptitude") or "install" not in item.arguments:
        return None
    question = f"which torch the package `{found.text}` of the distribution is"
    base = ScriptTorch(line=found.line, order=item.order, version=None, kind="other", question=question, by=found.text)
    return base if found.text.endswith("-cuda") else msgspec.structs.replace(base, variant=CPU)


def _by_module(item: Invocation) -> ScriptTorch | None:
    """A cluster's own build: its name says the release, and most often the CUDA."""
    verb = item.arguments[0] if item.arguments else ""
    if verb not in ("load", "add", "try-load") and (item.program != "ml" or verb in ("unload", "purge", "spider")):
        return None
    for word in item.words[1:]:
        if match := _MODULE.search(word.text):
            cuda = re.search(r"(?i)cuda[-_/]?(\d{1,2}\.\d)", word.text)
            # `pytorch/23.06` counts NVIDIA's images.
            version = match[1] if match[1] and Version(match[1]) <= Version(torch_releases()[-1].newest) else None
            return ScriptTorch(
                line=word.line, order=item.order, version=complete(version) if version else None, kind="other",
                variant=CudaLine(Version(cuda[1])).name if cuda else None, by=MODULE, name=word.text,
                question=f"which cards the torch of the module `{word.text[:60]}` has code for",
            )  # fmt: skip
    return None


def of_image(image: Image) -> ScriptTorch | None:
    """The torch that an image carries; None where it carries none."""
    base = ScriptTorch(
        line=image.line, order=image.order, version=None, kind="image", name=image.name, by="the base image"
    )
    if "rocm" in re.split(r"[/:_-]|(?<=rocm)\d", image.name.lower()):
        return msgspec.structs.replace(base, variant="rocm")
    counted = _COUNTED.search(image.name)
    if counted:
        version = counted[5] or ".".join(counted.group(2, 3, 4))
        return msgspec.structs.replace(base, version=version, variant=counted[1] or f"cu{counted[6]}")
    match = _IMAGE.search(image.name)
    if match:
        return msgspec.structs.replace(base, version=complete(match[1]), variant="cu" + match[2].replace(".", ""))
    if _NEWEST_IMAGE.search(image.name):
        newest = torch_releases()[-1]
        line = ordinary_line(newest, LINUX)
        return msgspec.structs.replace(base, version=newest.newest, variant=line, pinned=False)
    if image.pytorchs:
        return msgspec.structs.replace(base, version=image.pytorchs, question=f"which CUDA is in `{image.name[:80]}`")
    kind = "program" if _PROGRAM_IMAGE.search(image.name) else "other"
    words = f"which torch is in the image `{image.name[:80]}`"
    known = kind == "program" or "pytorch" in image.name
    return msgspec.structs.replace(base, kind=kind, question=words) if known else None
