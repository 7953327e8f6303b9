"""Everything a rule may ask about a script: what it builds, with which PyTorch, toolkit, Python and compiler.

What the script does not say is None. A release that was told on the command line is certain, one that the script checks
out is said, one that is only part of a folder's name is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import msgspec

from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.torch.releases import TorchRelease, torch_release
from rekindle.model.cuda_line import cuda_in
from rekindle.review.builds import ScriptBuilds
from rekindle.review.packages import Install, complete
from rekindle.review.trace import Invocation, last_part

_TAG = re.compile(r"(?:tags/|refs/tags/)?v?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)(?:-rc\d+)?\Z")
_TOOLKIT = re.compile(
    r"(?i)CUDA[\\/]+v(\d{1,9}\.\d{1,9})|cuda[-_/](\d{1,9}\.\d{1,9})|cuda/toolkit/(\d{1,9}\.\d{1,9})|nvidia/cu(1[123])(?![\d])"
)


# `module load cuda/12.4`; `apt install cuda-toolkit-12-6`; `sh cuda_12.0.0_525.60.13_linux.run`.
_MODULE = re.compile(r"(?i)(?:\A|[^\w])cuda(?:toolkit|[-_]toolkit)?[/@](\d{1,9}\.\d{1,9})")
_PACKAGE = re.compile(r"(?i)\Acuda(?:-toolkit|-nvcc|-compiler)?-(\d{1,2})-(\d)\Z")
_INSTALLER = re.compile(r"(?i)\bcuda_(\d{1,2}\.\d)[\d.]*(?:_[\d.]+)?_(?:linux|win)")


class Known(msgspec.Struct, frozen=True):
    """A version with the line that says it. `sure`: told, said or inferred."""

    version: Version
    line: int
    sure: str = "said"
    threads: bool = False
    """A Python without the global lock, which takes other wheels: 3.13t."""

    @classmethod
    def python(cls, text: str, line: int) -> Known:
        return cls(Version(text.rstrip("t")), line, threads=text.endswith("t"))

    def __str__(self) -> str:
        return f"{self.version}{'t' if self.threads else ''}"


def release_of(known: Known | None) -> TorchRelease | None:
    """Its row in the tables; None where none is known or they do not have it."""
    try:
        return torch_release(str(known.version)) if known is not None else None
    except RekindleError:
        return None


class Subject(ScriptBuilds):
    """The builds of a script, and the versions that each of them sees."""

    project: Sequence[Subject] = ()
    """The files that make one environment together, this one among them."""

    def torch_at(self, item: Invocation | None = None) -> Known | None:
        """The PyTorch that is built or built against at this command; None item: at the end of the script."""
        if self.told is not None:
            return Known(self.told, item.line if item else 1, "told")
        order = item.order if item is not None else self.trace.order
        found = [known for at, known in self._torch_points if at <= order]
        first = self._torch_points[:1] if item is not None and not self.notes else []
        return found[-1] if found else first[0][1] if first else None

    @cached_property
    def _torch_points(self) -> list[tuple[int, Known]]:
        """Where the script says which release it means, in order."""
        points: list[tuple[int, Known]] = []
        for item in self.trace.invocations:
            every = (found for found in self.installed_by(item) if found.verb in ("install", "create"))
            # The torch that it names, in a list that it reads, too.
            named = (each.named("torch") or (each.named("pytorch") if each.tool == "conda" else None) for each in every)
            own = (Known(exact, each.line) for each in named if each and (exact := each.exact) is not None)
            known = self.checked_out_torch(item) or next(own, None)
            if known is not None:
                points.append((item.order, known))
        for setting in self.trace.assignments:
            match = re.match(r"(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)(?:$|[a+.-])", setting.value)
            if setting.name == "PYTORCH_BUILD_VERSION" and match and setting.known:
                points.append((setting.order, Known(Version(match[1]), setting.line)))
        tagged = [(image, image.pytorchs) for image in self.trace.images]
        points += [(image.order, Known(Version(complete(tag)), image.line)) for image, tag in tagged if tag]
        for used in self.trace.used:
            text, line = used.given.get("ref", ("", used.line))
            if used.repository == "pytorch/pytorch" and (match := _TAG.match(text)):
                points.append((used.order, Known(Version(match[1]), line)))
        points.sort(key=lambda point: point[0])
        return points or self._inferred()

    def _inferred(self) -> list[tuple[int, Known]]:
        """A folder called pytorch-1.12.1."""
        for item in self.trace.invocations:
            match = re.search(r"(?i)pytorch[-_]v?(\d{1,9}\.\d{1,9}\.\d{1,9})", item.directory or "")
            if match:
                return [(item.order, Known(Version(match[1]), item.line, "inferred"))]
        return []

    def only_pytorchs(self, found: Install) -> str | None:
        """PyTorch's own index, where nothing else is asked: `--index-url` takes the Python package index away."""
        index = found.index or ""
        alone = found.has("-i", "--index-url", "--default-index") and not (found.find or found.has("-f"))
        more = self.says(r"extra-index-url|EXTRA_INDEX_URL|find-links|(?m:^[ \t]*-f\s)")
        return index if alone and "download.pytorch.org/whl" in index and not more else None

    def lies_beside(self, name: str, item: Invocation) -> bool:
        """Can a list that an invocation names be read where the script lies?"""
        beside = self.trace.beside
        return beside is not None and beside.text(name, item.directory) is not None

    def checked_out_torch(self, item: Invocation) -> Known | None:
        if item.program != "git":
            return None
        words, pairs = item.arguments, list(pairwise(item.arguments))
        cloned = self.cloned(item)
        if cloned is not None:
            names = [word.partition("=")[2] for word in words if word.startswith("--branch=")]
            names += [after for word, after in pairs if word in ("--branch", "-b")]
            ours = cloned[0] == "pytorch/pytorch"
        else:
            names = [*words] if {"checkout", "switch"} & {*words} else []
            folders = [last_part(after) for word, after in pairs if word == "-C"]
            folder = (folders or [self._folder(item, "")])[-1]
            before = self.trace.before(item)
            clones = [clone[0] for each in before if each.program == "git" and (clone := self.cloned(each))]
            plain = not folder and (not clones or (clones[-1] == "pytorch/pytorch" and bool(self.torch_folders)))
            ours = bool(names) and (plain or self.holds_torch(folder))
        tag = next((match for name in names if (match := _TAG.match(name))), None)
        return Known(Version(tag[1]), item.line) if tag and ours else None

    def release_at(self, item: Invocation | None = None) -> tuple[TorchRelease, Known] | None:
        """The release in the tables; None when none is known or the tables do not have it."""
        known = self.torch_at(item)
        row = release_of(known)
        return (row, known) if row is not None and known is not None else None

    def cuda_at(self, item: Invocation) -> Known | None:
        """The toolkit that this command compiles with; of several branches, that of the last."""
        return next(iter(self.cudas_at(item)), None)

    def cudas_at(self, item: Invocation) -> list[Known]:
        """Every toolkit that this command may compile with: one for each branch that names another."""
        own = next((word.text for word in item.words if re.search(r"nvcc(?:\.exe)?\Z", word.text)), "")
        number = toolkit_in(own)
        if number is not None:
            return [Known(number, item.line)]  # `/usr/local/cuda-12.6/bin/nvcc` is no other
        for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT"):
            found: dict[Version, Known] = {}
            for value in self.trace.values(name, item):
                number = toolkit_in(value.text)
                if number is not None:
                    found.setdefault(number, Known(number, self.written(str(number), value.line)))
            if found:
                return list(found.values())
        around = self._cuda_by_option(item) or self._cuda_around(item)
        return [around] if around is not None else []

    def _cuda_by_option(self, item: Invocation) -> Known | None:
        names = ("CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT", "CMAKE_CUDA_COMPILER")
        own = [each for each in self.trace.assignments if each.how == "cmake" and each.line in item.lines]
        known = (
            Known(number, each.line)
            for each in reversed(own)
            if each.name in names and (number := toolkit_in(each.value))
        )
        return next(known, None)

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
            number = cuda_in(image.name, least=2)
            if number is not None and self.sees(image.scope, item):
                points.append((image.order, Known(number, image.line)))
        for used in self.trace.used:
            given = used.given.get("cuda") or used.given.get("cuda-version")
            number = Version.find(given[0]) if given and "cuda" in used.action else None
            if given and number is not None and self.sees(used.scope, item):
                points.append((used.order, Known(number.major_minor, given[1])))
        points += [(order, known) for order, known in self._toolkits if order <= item.order]
        before = (found for found in self.installs if found.tool == "conda" and found.item.order <= item.order)
        for order, wanted in ((found.item.order, each) for found in before for each in found.wanted):
            names = ("cuda-toolkit", "cuda-nvcc", "cuda", "cuda-label", "cudatoolkit-dev")
            named = Version.find(wanted.requirement) if wanted.name in names and wanted.requirement else None
            if named is not None and len(named.parts) > 1:
                points.append((order, Known(named.major_minor, wanted.line)))
        path = self.trace.value("PATH", item)
        number = toolkit_in(path.text) if path is not None else None
        if path is not None and number is not None:
            points.append((path.order, Known(number, path.line)))
        points.sort(key=lambda point: point[0])
        return points[-1][1] if points else None

    @cached_property
    def _toolkits(self) -> list[tuple[int, Known]]:
        """What the script loads as a module, or installs with the system's packages or NVIDIA's installer."""
        found: list[tuple[int, Known]] = []
        for each in self.trace.invocations:
            number = _toolkit_of(each.program, [word.text[:200] for word in each.words])
            found += [(each.order, Known(number, each.line))] if number else []
        return found


def _toolkit_of(program: str, words: Sequence[str]) -> Version | None:
    if program in ("module", "ml", "spack"):
        loaded = (match for word in words[1:] if (match := _MODULE.search(word)))
        return next((Version(match[1]) for match in loaded), None)
    if program in ("ln", "update-alternatives"):  # which of them `/usr/local/cuda` is
        return next((number for word in words if (number := toolkit_in(word))), None)
    if program in ("wget", "curl", "aria2c", "chmod", "rm"):
        return None
    installs = "install" in words
    named = installs and bool({"cuda", "nvidia.cuda"} & {word.lower() for word in words})
    for before, word in pairwise(("", *words)):
        match = _INSTALLER.search(word) or (_PACKAGE.match(word) if installs else None)
        if match:
            return Version(".".join(match.groups()))
        option, _, value = word.partition("=")
        said = value if option == "--version" else word if before == "--version" else None
        if named and said and (number := Version.find(said)):
            return number.major_minor
    return None


def toolkit_in(text: str) -> Version | None:
    """The toolkit that a path names: the first one, as PATH is searched."""
    match = _TOOLKIT.search(text)
    if match is None:
        return None
    number = next(group for group in match.groups() if group)
    return Version(number) if "." in number else None
