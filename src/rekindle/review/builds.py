"""What a script builds: PyTorch, an extension, or something else, and with which command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Any, TypeVar

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.builds import script_rules
from rekindle.knowledge.torch import wheel_platforms
from rekindle.review.document import LISTS, Dialect, Document
from rekindle.review.followed import followed
from rekindle.review.packages import Install
from rekindle.review.question import Asked
from rekindle.review.readers.recorder import joined
from rekindle.review.trace import Assignment, Image, Invocation, Trace, Value, last_part

_SETUP_VERBS = frozenset({"bdist_wheel", "install", "develop", "build", "build_ext", "rebuild", "bdist_egg"})
_TORCHS_OPTION = re.compile(
    r"-D(?:TORCH_CUDA_ARCH_LIST|USE_CUDNN|USE_DISTRIBUTED|USE_NCCL|BUILD_CAFFE2|USE_MKLDNN|BUILD_PYTHON|USE_KINETO)\b"
)
_TORCH_ONLY = re.compile(
    r"(?:USE_(?:CUDNN|NCCL|KINETO|MKLDNN|DISTRIBUTED|FBGEMM|ROCM|NNPACK|QNNPACK|XNNPACK|GLOO|MPI|TENSORPIPE|NUMPY"
    r"|MAGMA|ITT|PYTORCH_QNNPACK|FLASH_ATTENTION|MEM_EFF_ATTENTION|NINJA|CUSPARSELT)"
    r"|BUILD_(?:TEST|CAFFE2|CAFFE2_OPS|PYTHON|FUNCTORCH|SPLIT_CUDA|BINARY)"
    r"|PYTORCH_BUILD_(?:VERSION|NUMBER)|NO_(?:CUDA|DISTRIBUTED|MKLDNN|NNPACK|QNNPACK))\Z"
)


# Switches of projects whose setup.py compiles CUDA code only when asked to.
_ASKS_FOR_CUDA = ("BUILD_EXT", "CUDA_EXT", "BUILD_CUDA_EXT", "MMCV_WITH_OPS", "DS_BUILD_OPS", "WITH_CUDA")
# A program or a package of the system by this name; not a folder called so.
_OTHER_PYTHON = re.compile(r"(?:\S*/bin/)?(?:python|pip)(3\.\d{1,3})(?:-\w+)?\Z")
_DRIVER = re.compile(
    r"\A(?:nvidia-(?:driver|headless|open)|cuda-drivers)(?:-no-dkms)?-(\d{3})(?:-|\Z)"
    r"|NVIDIA-Linux-[\w-]+?-(\d{3}\.[\d.]+\d)"
)
_BROUGHT = re.compile(r"\bcuda_\d[\d.]*_(\d{3}\.[\d.]*\d)_(?:linux|win)")
_TORCH_FAMILY = frozenset({"torch", "torchvision", "torchaudio", "pip", "setuptools", "wheel", "ninja", "numpy"})


class ScriptBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A command that compiles. `what`: torch, extension or other. `how`: setup.py, build, pip, cmake."""

    item: Invocation
    what: str
    how: str
    name: str = ""
    line: int = 0
    isolated: bool = False
    heavy: bool = False
    certain: bool = True
    makes_wheel: bool = True


_S = TypeVar("_S", bound="ScriptBuilds")
_T = TypeVar("_T")


def kept(make: Callable[[_S], _T]) -> Callable[[_S], _T]:
    """What several rules ask of a script is worked out once."""

    @wraps(make)
    def asked(subject: _S) -> _T:
        if make not in subject.kept:
            subject.kept[make] = make(subject)
        found: _T = subject.kept[make]
        return found

    return asked


class ScriptBuilds:
    """The trace of a script with what was told about it, and the builds in it."""

    def __init__(self, document: Document, trace: Trace, asked: Asked) -> None:
        self.document = document
        self.trace = trace
        self.driver = _installed_driver(trace) if asked.place is not None and asked.place.driver is None else None
        """The driver that the script installs, with its line, where nobody told one."""
        self.asked = asked.driven_by(self.driver[0]) if self.driver else asked
        self.gpus = asked.gpus
        self.told = asked.torch
        self.told_system = asked.system
        self.kept: dict[Any, Any] = {}
        self._said: dict[str, bool] = {}

    @property
    def notes(self) -> bool:
        return self.document.dialect is Dialect.NOTES

    def follows(self, line: int, after: int) -> bool:
        """Notes that show one command right below another mean both, in this order."""
        rows = (self.document.line(number).strip() for number in range(line + 1, after + 1))
        return self.notes and line < after and not any(re.match(r"$|[#*>-]|::|//|\d+\.|.*`", row) for row in rows)

    @cached_property
    def helper(self) -> bool:
        """A part of something larger: it uses several variables that somebody outside sets."""
        own = {item.name.upper() for item in self.trace.assignments}
        names = {name.upper() for name, _ in self.trace.missing if len(name) > 2}
        return len(names - own - script_rules.outside() - {name.upper() for name in self.trace.asked}) > 2

    @cached_property
    def lasts(self) -> dict[int, int]:
        """When the last thing happened in each scope that has one."""
        points = [(each.order, each.scope) for each in self.trace.invocations]
        points += [(each.order, each.scope) for each in self.trace.assignments]
        return {scope: order for order, scope in sorted(points)}

    @cached_property
    def _installs(self) -> dict[int, list[Install]]:
        python = self.asked.place.python if self.asked.place else None
        found = ((item, followed(self.trace, item)) for item in self.trace.invocations)
        return {item.order: [self._here(each, python) for each in every] for item, every in found if every}

    def _here(self, found: Install, python: str | None) -> Install:
        """A command with what the place decides: markers, and the line that uv is told by a variable."""
        backend = self.visible("UV_TORCH_BACKEND", found.item) if found.item.program == "uv" else None
        if backend is not None and backend.known and not (found.backend or found.index):
            found = msgspec.structs.replace(found, backend=backend.text)
        return found.on(self.system(found.item), python)

    def install(self, item: Invocation, name: str = "") -> Install | None:
        """What a command installs itself, or the list of it with such a package; None when it installs nothing."""
        every = self.installed_by(item)
        return next((each for each in every if each.named(name)), every[0] if every else None)

    def installed_by(self, item: Invocation) -> list[Install]:
        """All that a command installs, with what the lists say that it reads."""
        return self._installs.get(item.order, [])

    @cached_property
    def installs(self) -> list[Install]:
        return [install for installs in self._installs.values() for install in installs]

    @property
    def machine(self) -> str:
        return self.asked.place.arch if self.asked.place else "x86_64"

    def glibc(self, image: Image) -> Version | None:
        """The C library of an image, by the distribution that its name ends with."""
        found = image_system(image.name)
        return found[0].glibc.get(found[1]) if found else None

    def system_python(self, image: Image) -> str | None:
        """The `python3` of an image's distribution, where the script brings no other."""
        found = image_system(image.name)
        own = found[0].python.get(found[1]) if found else None
        words = (word.text for item in self.trace.invocations for word in item.words)
        named = {match[1] for word in words if (match := _OTHER_PYTHON.match(word))} - {own}
        others = r"(?i)conda|mamba|pyenv|\buv\b|deadsnakes|Miniforge|python_version|add_python"
        return None if named or self.says(others) else own

    def says(self, pattern: str) -> bool:
        """Something anywhere in the script's text; searched once, however many commands ask."""
        if pattern not in self._said:
            self._said[pattern] = re.search(pattern, self.document.text) is not None
        return self._said[pattern]

    def system(self, item: Invocation | None = None) -> str:
        if self.told_system:
            return self.told_system
        if item is not None and item.system:
            return item.system
        if self.document.dialect in LISTS and self.asked.place is not None:
            # A list of packages is for the machine that it is asked about.
            return self.asked.place.system
        dialect = item.dialect if item is not None else self.document.dialect
        if dialect.windows:
            return "windows"
        if item is not None or dialect not in (Dialect.NOTES, Dialect.WORKFLOW):
            return "linux"
        votes = [each.system or ("windows" if each.dialect.windows else "linux") for each in self.trace.invocations]
        return max(set(votes), key=votes.count, default="linux")

    # --- what is built ---------------------------------------------------------------------------------------------

    @cached_property
    def builds(self) -> list[ScriptBuild]:
        return [step for item in self.trace.invocations for step in self._steps(item)]

    @cached_property
    def torch_builds(self) -> list[ScriptBuild]:
        return [step for step in self.builds if step.what == "torch"]

    @cached_property
    def reached_builds(self) -> list[ScriptBuild]:
        """The builds of torch and of extensions, without what no path leads to."""
        return [step for step in self.builds if step.what != "other" and step.item.reached]

    def _steps(self, item: Invocation) -> Iterator[ScriptBuild]:
        if item.child and item.program not in ("python", "cmake", "pip"):
            return
        words = item.arguments
        setup = next((word for word in words if re.split(r"[\\/]", word)[-1] == "setup.py"), None)
        if item.program in ("python", "py") and setup is not None:
            if _SETUP_VERBS & {*words[words.index(setup) + 1 :]}:
                yield self._step(item, "setup.py", self._folder(item, setup))
            return
        module = item.program in ("python", "py") and item.module == "build"
        if module or item.program in ("build", "pyproject-build"):
            if not (item.has("--sdist", "-s") and not item.has("--wheel", "-w")):
                yield self._step(item, "build", self._folder(item, ""), isolated=not item.has("--no-isolation", "-n"))
            return
        if item.program in ("cmake", "cmake3"):
            if any(map(_TORCHS_OPTION.match, words)) and "--build" not in words:
                yield msgspec.structs.replace(self._step(item, "cmake", "pytorch"), makes_wheel=False)
            return
        for found in self.installed_by(item):
            if found.tool != "conda" and found.verb in ("install", "wheel"):
                yield from self._pip(found.item, found)

    def _step(self, item: Invocation, how: str, name: str, *, isolated: bool = False) -> ScriptBuild:
        what, certain = self._what(item, name)
        row = script_rules.extension(name)
        return ScriptBuild(
            item=item, what=what, how=how, name=name, line=item.line, isolated=isolated, certain=certain,
            heavy=bool(row and row.heavy),
        )  # fmt: skip

    def _pip(self, item: Invocation, found: Install) -> Iterator[ScriptBuild]:
        # `BUILD_EXT=1 pip install x`: the switch stands before this very command, and is on.
        switched_on = any(own.name in _ASKS_FOR_CUDA and own.value not in ("", "0") for own in item.prefix)
        for wanted in found.wanted:
            row = script_rules.extension(wanted.name)
            if wanted.source is not None:
                if re.search(r"(?i)github\.com[/:]pytorch/pytorch(?:\.git)?(?:@|#|$)", wanted.source):
                    what, certain = "torch", True
                elif row is not None:
                    what, certain = "extension", True
                elif "://" in wanted.source:
                    continue
                else:
                    folder = self._folder(item, wanted.source + "/x")
                    what, certain = self._what(item, folder)
                    if not certain:
                        what = "extension" if self._compiles(item) else "other"
                    # `flash-attention/csrc/rotary` is part of flash-attention.
                    parts = [folder, *reversed(re.split(r"[\\/]", f"{item.directory or ''}/{wanted.source}"))]
                    row = next((row for part in parts if part and (row := script_rules.extension(part))), None)
                    what, certain = ("extension", True) if row is not None and what != "torch" else (what, certain)
            elif found.pages or wanted.labelled:
                continue  # ready-made, from a page that is asked about on its own, or by its name
            elif row is not None and row.from_source and wanted.requirement is not None and not found.binary:
                if wanted.name in row.plain:
                    continue
                # A page of somebody's may have it ready-made.
                what, certain = "extension", all("download.pytorch.org" in page for page in found.find)
            elif switched_on and wanted.name not in _TORCH_FAMILY and not found.binary:
                what, certain = "extension", False
            else:
                continue
            name = wanted.name if wanted.name.strip("-.") else self._folder(item, wanted.source or "") or "this folder"
            yield ScriptBuild(
                item=item, what=what, how="pip", name=name, line=wanted.line, isolated=found.isolated,
                heavy=bool(row and row.heavy), certain=certain,
            )  # fmt: skip

    def _what(self, item: Invocation, name: str) -> tuple[str, bool]:
        if self.holds_torch(name):
            return "torch", True
        used = [each for each in self.trace.used if each.order < item.order and not each.given.get("path", ("",))[0]]
        out = (each.repository for each in reversed(used) if self.sees(each.scope, item))
        if next((each for each in out if each is not None), None) == "pytorch/pytorch":
            return "torch", True
        if script_rules.extension(name) is not None:
            return "extension", True
        clones = [self.cloned(each) for each in self.trace.ran("git")]
        others = [each[1] for each in clones if each and each[0] != "pytorch/pytorch"]
        if name in others:
            return ("extension" if self._compiles(item) else "other"), False
        named = [each.name for each in self.trace.assignments if each.how in ("environment", "prefix")]
        hints = sum(1 for each in (*named, *(own.name for own in item.prefix)) if _TORCH_ONLY.match(each))
        if hints and not name and not others:
            return "torch", True
        if hints > 1:
            return "torch", False
        own = self.trace.beside.open("setup.py", None, again=True) if self.trace.beside and not item.directory else None
        if own is not None and not re.search(r"(?i)extension|cmake|nvcc", own.text):
            return "other", True
        named_torch = any(wanted.requirement for found in self.installs if (wanted := found.named("torch")))
        return "extension" if named_torch or self._compiles(item) else "other", False

    def _compiles(self, item: Invocation) -> bool:
        """The script prepares a CUDA compile: an architecture list or FORCE_CUDA is in sight."""
        names = ("TORCH_CUDA_ARCH_LIST", "FORCE_CUDA", *_ASKS_FOR_CUDA)
        before = (each for each in self.trace.assignments if each.order < item.order)
        if any(each.name in names for each in (*before, *item.prefix)):
            return True
        return any(self.trace.value(name, item) is not None for name in ("CUDA_HOME", "DISTUTILS_USE_SDK"))

    def _folder(self, item: Invocation, path: str) -> str:
        """The last part of the folder that holds `path`, lower case; empty when not known."""
        place = "/".join(part for part in re.split(r"[\\/]", path)[:-1] if part)
        return last_part(joined(item.directory, place) or "").removesuffix(".git").strip(".")

    def holds_torch(self, folder: str) -> bool:
        """PyTorch's source, by a folder's last part."""
        own = re.fullmatch(r"pytorch(?:[-_.]?v?\d+(?:\.[\w.]+)?|[-_](?:src|source|build|main))?", folder)
        return own is not None or folder in self.torch_folders

    @cached_property
    def torch_folders(self) -> frozenset[str]:
        """Folders that hold PyTorch's source, by their last part."""
        found = {
            clone[1] for item in self.trace.ran("git") if (clone := self.cloned(item)) and clone[0] == "pytorch/pytorch"
        }
        ours = [used for used in self.trace.used if used.repository == "pytorch/pytorch"]
        found |= {used.given.get("path", ("",))[0].rpartition("/")[2].lower() for used in ours}
        return frozenset(found - {""})

    def cloned(self, item: Invocation) -> tuple[str, str] | None:
        """`git clone`: owner/name and the folder it goes to."""
        words = item.arguments
        if "clone" not in words:
            return None
        rest = _plain(words[words.index("clone") + 1 :])
        match = re.search(r"[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$", rest[0]) if rest else None
        if match is None:
            return None
        target = rest[1] if len(rest) > 1 else match[2]
        folder = last_part(target)
        if folder == ".":
            folder = last_part(item.directory or "")
        return f"{match[1]}/{match[2]}".lower(), folder

    def stage(self, scope: int) -> int:
        """The stage, the job or the script that a scope belongs to: not its own RUN or step."""
        found = self.trace.scopes[scope]
        while found.parent is not None and not re.match(r"stage|job|action", found.label):
            found = found.parent
        return found.number

    def row_of(self, item: Invocation) -> str | None:
        """The job of whose matrix a command is one run: what one of its rows does is enough for a card."""
        label = self.trace.scopes[self.stage(item.scope)].label
        return label if label.endswith(" row") else None

    def sees(self, scope: int, item: Invocation) -> bool:
        """Whether what is set in a scope reaches a command."""
        return any(each.number == scope for each in self.trace.scopes[item.scope].chain())

    def visible(self, name: str, item: Invocation) -> Value | None:
        return self.trace.value(name, item)

    def text(self, name: str, item: Invocation) -> str:
        """A variable as this command sees it; empty as well where nobody set it."""
        found = self.trace.value(name, item)
        return found.text if found is not None else ""

    def rewritten(self, line: int, pattern: str, right: str | Callable[[re.Match[str]], str]) -> str | None:
        """A line with what a pattern finds in it put right; None where it finds nothing."""
        text, count = re.subn(pattern, right, self.document.line(line), count=1)
        return text if count else None

    def settings(self, name: str) -> list[Assignment]:
        return [item for item in self.trace.assignments if item.name == name]


def _plain(words: Sequence[str]) -> list[str]:
    """Without options and their values."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "-j", "--jobs", "--reference"):
            skip = True
        elif not word.startswith("-"):
            found.append(word)
    return found


def _installed_driver(trace: Trace) -> tuple[str, int] | None:
    """`apt install nvidia-driver-535`. In an image it is the host's that counts; of several none is known."""
    items = [item for item in trace.invocations if not item.conditional]
    words = (word for item in items for word in item.words)
    found = {(match[1] or match[2]): word.line for word in words if (match := _DRIVER.search(word.text[:200]))}
    # The installer of a toolkit brings its driver where it is told to.
    words = (word for item in items if item.has("--driver") for word in item.words)
    found |= {match[1]: word.line for word in words if (match := _BROUGHT.search(word.text[:200]))}
    return next(iter(found.items())) if len(found) == 1 and not trace.images else None


def image_system(name: str) -> tuple[wheel_platforms.LinuxSystem, str] | None:
    """The distribution of an image and its release: `ubuntu` and `20.04` of `nvidia/cuda:11.8.0-devel-ubuntu20.04`."""
    match = re.search(r"(ubuntu|debian|rockylinux|centos|ubi|almalinux)[:-]?(\d{1,2}(?:\.\d{2})?)\b", name.lower())
    if match is None:
        return None
    found = wheel_platforms.find(f"{match[1].replace('ubi', 'rhel')}{match[2]}")
    return (found[0], match[2]) if found else None
