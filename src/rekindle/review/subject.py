"""Everything a rule may ask about a script: what it builds, with which PyTorch, toolkit, Python and compiler.

What the script does not say is None. A release that was told on the command line is certain, one that the script checks
out is said, one that is only part of a folder's name is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.builds import script_rules
from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.torch.releases import TorchRelease, torch_release, torch_releases
from rekindle.review.document import Dialect, Document
from rekindle.review.packages import Install, install_of
from rekindle.review.trace import Assignment, Invocation, Trace, Value

_TAG = re.compile(r"(?:tags/|refs/tags/)?v?(\d+\.\d+(?:\.\d+)?)(?:-rc\d+)?\Z")
_TOOLKIT = re.compile(
    r"(?i)CUDA[\\/]+v(\d+\.\d+)|cuda[-_/](\d+\.\d+)|cuda/toolkit/(\d+\.\d+)|nvidia/cu(1[123])(?![\d])"
)
_TORCH_ONLY = re.compile(
    r"(?:USE_(?:CUDNN|NCCL|KINETO|MKLDNN|DISTRIBUTED|FBGEMM|ROCM|NNPACK|QNNPACK|XNNPACK|GLOO|MPI|TENSORPIPE|NUMPY"
    r"|MAGMA|ITT|PYTORCH_QNNPACK|FLASH_ATTENTION|MEM_EFF_ATTENTION|NINJA|CUSPARSELT)"
    r"|BUILD_(?:TEST|CAFFE2|CAFFE2_OPS|PYTHON|FUNCTORCH|SPLIT_CUDA|BINARY)"
    r"|PYTORCH_BUILD_(?:VERSION|NUMBER)|NO_(?:CUDA|DISTRIBUTED|MKLDNN|NNPACK|QNNPACK))\Z"
)


class Known(msgspec.Struct, frozen=True):
    """A version with the line that says it. `sure`: told, said or inferred."""

    version: Version
    line: int
    sure: str = "said"


class BuildStep(msgspec.Struct, frozen=True, kw_only=True):
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


class Subject:
    def __init__(
        self,
        document: Document,
        trace: Trace,
        *,
        gpus: Sequence[Capability] = (),
        torch: Version | None = None,
        system: str | None = None,
    ) -> None:
        self.document = document
        self.trace = trace
        self.gpus = tuple(gpus)
        self.told = torch
        self.told_system = system

    @property
    def notes(self) -> bool:
        return self.document.dialect is Dialect.NOTES

    @cached_property
    def helper(self) -> bool:
        """A part of something larger: it uses several variables that somebody outside sets."""
        own = {item.name.upper() for item in self.trace.assignments}
        names = {name.upper() for name, _ in self.trace.missing if len(name) > 2}
        return len(names - own - script_rules.outside() - {name.upper() for name in self.trace.asked}) > 2

    @cached_property
    def _lasts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        points = [(item.scope, item.order) for item in self.trace.invocations]
        for scope, order in points + [(item.scope, item.order) for item in self.trace.assignments]:
            found[scope] = max(found.get(scope, 0), order)
        return found

    def last_in(self, scope: int) -> int:
        """When the last thing happened in a scope."""
        return self._lasts.get(scope, 0)

    @cached_property
    def _installs(self) -> dict[int, Install]:
        found = ((item.order, install_of(item)) for item in self.trace.invocations)
        return {order: install for order, install in found if install is not None}

    def install(self, item: Invocation) -> Install | None:
        """What a command installs; None when it installs nothing."""
        return self._installs.get(item.order)

    @cached_property
    def installs(self) -> list[Install]:
        return list(self._installs.values())

    def system(self, item: Invocation | None = None) -> str:
        if self.told_system:
            return self.told_system
        if item is not None and item.system:
            return item.system
        if item is not None:
            return "windows" if item.dialect.windows else "linux"
        dialect = self.document.dialect
        if dialect in (Dialect.BATCH, Dialect.POWERSHELL):
            return "windows"
        if dialect in (Dialect.NOTES, Dialect.WORKFLOW):
            votes = [each.system or ("windows" if each.dialect.windows else "linux") for each in self.trace.invocations]
            return max(set(votes), key=votes.count) if votes else "linux"
        return "linux"

    # --- what is built ---------------------------------------------------------------------------------------------

    @cached_property
    def builds(self) -> list[BuildStep]:
        return [step for item in self.trace.invocations for step in self._steps(item)]

    @property
    def torch_builds(self) -> list[BuildStep]:
        return [step for step in self.builds if step.what == "torch"]

    def _steps(self, item: Invocation) -> Iterator[BuildStep]:
        if item.child and item.program not in ("python", "cmake", "pip"):
            return
        words = item.arguments
        setup = next((word for word in words if re.split(r"[\\/]", word)[-1] == "setup.py"), None)
        if item.program in ("python", "py") and setup is not None:
            verbs = words[words.index(setup) + 1 :]
            if any(
                verb in ("bdist_wheel", "install", "develop", "build", "build_ext", "rebuild", "bdist_egg")
                for verb in verbs
            ):
                name = self._folder(item, setup)
                yield self._step(item, "setup.py", name)
            return
        if (item.program in ("python", "py") and _module(words) == "build") or item.program in (
            "build",
            "pyproject-build",
        ):
            if not (item.has("--sdist", "-s") and not item.has("--wheel", "-w")):
                yield self._step(item, "build", self._folder(item, ""), isolated=not item.has("--no-isolation", "-n"))
            return
        if item.program in ("cmake", "cmake3"):
            yield from self._cmake(item)
            return
        found = self.install(item)
        if found is not None and found.tool != "conda" and found.verb in ("install", "wheel"):
            yield from self._pip(item, found)

    def _step(self, item: Invocation, how: str, name: str, *, isolated: bool = False) -> BuildStep:
        what, certain = self._what(item, name)
        row = script_rules.extension(name)
        return BuildStep(
            item=item, what=what, how=how, name=name, line=item.line, isolated=isolated, certain=certain,
            heavy=bool(row and row.heavy),
        )  # fmt: skip

    def _pip(self, item: Invocation, found: Install) -> Iterator[BuildStep]:
        for wanted in found.wanted:
            row = script_rules.extension(wanted.name)
            if wanted.source is not None:
                if re.search(r"(?i)github\.com[/:]pytorch/pytorch(?:\.git)?(?:@|#|$)", wanted.source):
                    what, certain = "torch", True
                elif row is not None:
                    what, certain = "extension", True
                elif re.search(r"://", wanted.source):
                    continue
                else:
                    folder = self._folder(item, wanted.source + "/x")
                    what, certain = self._what(item, folder)
                    if not certain:
                        what = "extension" if self._compiles(item) else "other"
                    row = row or script_rules.extension(folder) or self._within_extension(item, wanted.source)
                    what, certain = ("extension", True) if row is not None and what != "torch" else (what, certain)
            elif row is not None and row.from_source and wanted.requirement is not None and not found.binary:
                what, certain = "extension", True
            else:
                continue
            name = wanted.name if wanted.name.strip("-.") else self._folder(item, wanted.source or "") or "this folder"
            yield BuildStep(
                item=item, what=what, how="pip", name=name, line=wanted.line, isolated=found.isolated,
                heavy=bool(row and row.heavy), certain=certain,
            )  # fmt: skip

    def _cmake(self, item: Invocation) -> Iterator[BuildStep]:
        options = [word for word in item.arguments if word.startswith("-D")]
        ours = [
            word
            for word in options
            if re.match(
                r"-D(?:TORCH_CUDA_ARCH_LIST|USE_CUDNN|USE_DISTRIBUTED|USE_NCCL|BUILD_CAFFE2|USE_MKLDNN|BUILD_PYTHON|USE_KINETO)\b",
                word,
            )
        ]
        if ours and "--build" not in item.arguments:
            yield BuildStep(item=item, what="torch", how="cmake", name="pytorch", line=item.line, makes_wheel=False)

    def _what(self, item: Invocation, name: str) -> tuple[str, bool]:
        if name in self.torch_folders or re.fullmatch(
            r"pytorch(?:[-_.]?v?\d+(?:\.[\w.]+)?|[-_](?:src|source|build|main))?", name
        ):
            return "torch", True
        if self._checked_out(item) == "pytorch/pytorch":
            return "torch", True
        if script_rules.extension(name) is not None:
            return "extension", True
        clones = [self.cloned(each) for each in self.trace.ran("git")]
        others = [each for each in clones if each and each[0] != "pytorch/pytorch"]
        if any(each[1] == name for each in others):
            return ("extension" if self._compiles(item) else "other"), False
        hints = sum(
            1
            for each in self.trace.assignments
            if _TORCH_ONLY.match(each.name) and each.how in ("environment", "prefix")
        ) + sum(1 for own in item.prefix if _TORCH_ONLY.match(own.name))
        if hints and not name and not others:
            return "torch", True
        if hints > 1 and name not in [each[1] for each in others]:
            return "torch", False
        if self._compiles(item) or any(self.requirement(found, "torch") for found in self.installs):
            return "extension", False
        return "other", False

    def _compiles(self, item: Invocation) -> bool:
        """The script prepares a CUDA compile: an architecture list or FORCE_CUDA is in sight."""
        names = ("TORCH_CUDA_ARCH_LIST", "FORCE_CUDA")
        if any(each.name in names and each.order < item.order for each in self.trace.assignments):
            return True
        if any(own.name in names for own in item.prefix):
            return True
        return any(self.trace.value(name, item) is not None for name in ("CUDA_HOME", "DISTUTILS_USE_SDK"))

    def _within_extension(self, item: Invocation, path: str) -> script_rules.ExtensionRow | None:
        """`flash-attention/csrc/rotary` is part of flash-attention."""
        parts = re.split(r"[\\/]", f"{item.directory or ''}/{path}")
        return next((row for part in reversed(parts) if part and (row := script_rules.extension(part))), None)

    def _folder(self, item: Invocation, path: str) -> str:
        """The last part of the folder that holds `path`, lower case; empty when not known."""
        place = re.split(r"[\\/]", path)[:-1]
        parts = [part for part in re.split(r"[\\/]", item.directory or "") if part] + [part for part in place if part]
        resolved: list[str] = []
        for part in parts:
            if part == "..":
                resolved = resolved[:-1]
            elif part != ".":
                resolved.append(part)
        return resolved[-1].lower().removesuffix(".git") if resolved else ""

    @cached_property
    def torch_folders(self) -> frozenset[str]:
        """Folders that hold PyTorch's source, by their last part."""
        found = {
            clone[1] for item in self.trace.ran("git") if (clone := self.cloned(item)) and clone[0] == "pytorch/pytorch"
        }
        for used in self.trace.used:
            if (
                used.action == "actions/checkout"
                and used.given.get("repository", ("",))[0].lower() == "pytorch/pytorch"
            ):
                found.add(used.given.get("path", ("",))[0].rpartition("/")[2].lower())
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
        folder = re.split(r"[\\/]", target.rstrip("\\/"))[-1].lower()
        if folder == ".":
            folder = re.split(r"[\\/]", (item.directory or "").rstrip("\\/"))[-1].lower()
        return f"{match[1]}/{match[2]}".lower(), folder

    def _checked_out(self, item: Invocation) -> str | None:
        """What a workflow checked out for this command."""
        numbers = {scope.number for scope in self.trace.scopes[item.scope].chain()}
        found = [used for used in self.trace.used if used.action == "actions/checkout" and used.scope in numbers]
        found = [used for used in found if used.order < item.order and not used.given.get("path", ("",))[0]]
        return found[-1].given.get("repository", ("",))[0].lower() if found else None

    # --- versions --------------------------------------------------------------------------------------------------

    def torch_at(self, item: Invocation | None = None) -> Known | None:
        """The PyTorch that is built or built against at this command; None item: at the end of the script."""
        if self.told is not None:
            return Known(self.told, item.line if item else 1, "told")
        order = item.order if item is not None else self.trace.order
        found = [known for at, known in self._torch_points if at <= order]
        return (
            found[-1]
            if found
            else (self._torch_points[0][1] if self._torch_points and item is not None and not self.notes else None)
        )

    @cached_property
    def _torch_points(self) -> list[tuple[int, Known]]:
        """Where the script says which release it means, in order."""
        points: list[tuple[int, Known]] = []
        for item in self.trace.invocations:
            known = self.checked_out_torch(item) or self._from_install(item)
            if known is not None:
                points.append((item.order, known))
        for setting in self.trace.assignments:
            match = re.match(r"(\d+\.\d+(?:\.\d+)?)(?:$|[a+.-])", setting.value)
            if setting.name == "PYTORCH_BUILD_VERSION" and match and setting.known:
                points.append((setting.order, Known(Version(match[1]), setting.line)))
        for image in self.trace.images:
            match = re.search(r"(?:^|/)pytorch/pytorch:(\d+\.\d+\.\d+)", image.name)
            if match:
                points.append((image.order, Known(Version(match[1]), image.line)))
        for used in self.trace.used:
            ref = used.given.get("ref")
            tag = _TAG.match(ref[0]) if ref else None
            if (
                used.action == "actions/checkout"
                and tag
                and used.given.get("repository", ("",))[0].lower() == "pytorch/pytorch"
            ):
                points.append((used.order, Known(Version(tag[1]), ref[1] if ref else used.line)))
        points.sort(key=lambda point: point[0])
        return points or self._inferred()

    def _inferred(self) -> list[tuple[int, Known]]:
        """A folder called pytorch-1.12.1."""
        for item in self.trace.invocations:
            match = re.search(r"(?i)pytorch[-_]v?(\d+\.\d+\.\d+)", item.directory or "")
            if match:
                return [(item.order, Known(Version(match[1]), item.line, "inferred"))]
        return []

    def checked_out_torch(self, item: Invocation) -> Known | None:
        if item.program != "git":
            return None
        words = item.arguments
        cloned = self.cloned(item)
        if cloned is not None:
            for index, word in enumerate(words):
                name = word.partition("=")[2] if word.startswith("--branch=") else ""
                name = words[index + 1] if word in ("--branch", "-b") and index + 1 < len(words) else name
                tag = _TAG.match(name)
                if tag and cloned[0] == "pytorch/pytorch":
                    return Known(Version(tag[1]), item.line)
            return None
        if not any(verb in words for verb in ("checkout", "switch")):
            return None
        folder = self._folder(item, "")
        for index, word in enumerate(words):
            if word == "-C" and index + 1 < len(words):
                folder = re.split(r"[\\/]", words[index + 1].rstrip("\\/"))[-1].lower()
        tag = next((match for word in words if (match := _TAG.match(word))), None)
        if tag is None or not self._is_torch_folder(folder, item):
            return None
        return Known(Version(tag[1]), item.line)

    def _is_torch_folder(self, folder: str, item: Invocation) -> bool:
        if folder in self.torch_folders or re.fullmatch(
            r"pytorch(?:[-_.]?v?\d+(?:\.[\w.]+)?|[-_](?:src|source))?", folder
        ):
            return True
        clones = [clone for each in self.trace.ran("git") if each.order < item.order and (clone := self.cloned(each))]
        return (
            not folder and (not clones or clones[-1][0] == "pytorch/pytorch") and bool(self.torch_folders or not clones)
        )

    def _from_install(self, item: Invocation) -> Known | None:
        found = self.install(item)
        if found is None or found.verb not in ("install", "create"):
            return None
        wanted = found.named("torch") or (found.named("pytorch") if found.tool == "conda" else None)
        exact = exact_version(wanted.requirement) if wanted is not None else None
        return Known(exact, wanted.line) if exact is not None and wanted is not None else None

    def release_at(self, item: Invocation | None = None) -> tuple[TorchRelease, Known] | None:
        """The release in the tables; None when none is known or the tables do not have it."""
        known = self.torch_at(item)
        if known is None:
            return None
        try:
            return torch_release(str(known.version)), known
        except RekindleError:
            return None

    def requirement(self, found: Install, name: str) -> str | None:
        wanted = found.named(name)
        return wanted.requirement if wanted is not None else None

    def cuda_at(self, item: Invocation) -> Known | None:
        """The toolkit that this command compiles with."""
        for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT"):
            value = self.trace.value(name, item)
            number = toolkit_in(value.text) if value is not None else None
            if value is not None and number is not None:
                return Known(number, self.written(str(number), value.line))
        for setting in reversed(self.trace.assignments):
            if setting.how == "cmake" and setting.name in (
                "CUDA_TOOLKIT_ROOT_DIR",
                "CUDAToolkit_ROOT",
                "CMAKE_CUDA_COMPILER",
            ):
                number = toolkit_in(setting.value)
                if number is not None and item.line <= setting.line <= item.last:
                    return Known(number, setting.line)
        return self._cuda_around(item)

    def written(self, number: str, line: int) -> int:
        """The line where a number stands that reached `line` through variables."""
        if number in self.document.line(line):
            return line
        for setting in self.trace.assignments:
            if number in setting.value and number in self.document.line(setting.line) and setting.line <= line:
                return setting.line
        return line

    def _cuda_around(self, item: Invocation) -> Known | None:
        """Not by a variable: an image, a module, an action, a package, PATH."""
        points: list[tuple[int, Known]] = []
        for image in self.trace.images:
            number = image_cuda(image.name)
            if number is not None and self.sees(image.scope, item):
                points.append((image.order, Known(number, image.line)))
        for used in self.trace.used:
            given = used.given.get("cuda") or used.given.get("cuda-version")
            number = Version.find(given[0]) if given and "cuda" in used.action else None
            if given and number is not None and self.sees(used.scope, item):
                points.append((used.order, Known(number.major_minor, given[1])))
        for each in self.trace.invocations:
            if each.order <= item.order and each.program in ("module", "ml", "spack"):
                match = re.search(r"(?i)\bcuda(?:toolkit|[-_]toolkit)?[/@](\d+\.\d+)", " ".join(each.arguments))
                if match:
                    points.append((each.order, Known(Version(match[1]), each.line)))
        for found in self.installs:
            if found.tool == "conda" and found.item.order <= item.order:
                points += self._cuda_package(found)
        path = self.trace.value("PATH", item)
        number = toolkit_in(path.text) if path is not None else None
        if path is not None and number is not None:
            points.append((path.order, Known(number, path.line)))
        points.sort(key=lambda point: point[0])
        return points[-1][1] if points else None

    def _cuda_package(self, found: Install) -> Iterator[tuple[int, Known]]:
        for wanted in found.wanted:
            if (
                wanted.name in ("cuda-toolkit", "cuda-nvcc", "cuda", "cuda-label", "cudatoolkit-dev")
                and wanted.requirement
            ):
                number = Version.find(wanted.requirement)
                if number is not None and len(number.parts) > 1:
                    yield found.item.order, Known(number.major_minor, wanted.line)

    def sees(self, scope: int, item: Invocation) -> bool:
        """Whether what is set in a scope reaches a command."""
        return any(each.number == scope for each in self.trace.scopes[item.scope].chain())

    def visible(self, name: str, item: Invocation) -> Value | None:
        return self.trace.value(name, item)

    def settings(self, name: str) -> list[Assignment]:
        return [item for item in self.trace.assignments if item.name == name]


def exact_version(specifier: str | None) -> Version | None:
    match = re.fullmatch(r"===?\s*v?(\d+(?:\.\d+)+)(?:\.\*)?(?:\+\w[\w.]*)?", specifier or "")
    return Version(match[1]) if match else None


def toolkit_in(text: str) -> Version | None:
    """The toolkit that a path names: the first one, as PATH is searched."""
    match = _TOOLKIT.search(text)
    if match is None:
        return None
    number = next(group for group in match.groups() if group)
    return Version(number) if "." in number else None


def image_cuda(name: str) -> Version | None:
    match = re.search(r"nvidia/cuda:(\d+\.\d+)|[-:_]cuda[-_]?(\d+\.\d+)|[-:]cu(\d{2})(\d)\b", name)
    if match is None:
        return None
    return Version(match[1] or match[2] or f"{match[3]}.{match[4]}")


def newest_release() -> TorchRelease:
    return torch_releases()[-1]


def _module(words: Sequence[str]) -> str | None:
    return words[words.index("-m") + 1] if "-m" in words and words.index("-m") + 1 < len(words) else None


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
