"""The same plan as a script that stands alone: what it does, before any shell's spelling.

A script is a list of places (the variables at its top), an environment, and steps. Every command of a step goes
through the Python part of the script (`alone`, `alone_steps`), which logs it, keeps the marks by which a second run
knows what is done, and looks at what came out. Nothing of Rekindle is needed where it runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from rekindle.build import backend_choice
from rekindle.build.configure import backends, tree
from rekindle.build.configure import tools as smoke
from rekindle.build.configure.environment import BuildEnvironment, BuildPlaces, compute
from rekindle.build.configure.options import Options
from rekindle.build.configure.preflight import first_on_path, known_libraries
from rekindle.build.configure.preflight import script_needs as needs
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import Tool, Tools
from rekindle.build.run.folders import wheel_version
from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.knowledge.torch import patches as catalogue
from rekindle.knowledge.torch.releases import commit_of, torch_release

GIT = "https://github.com/pytorch/pytorch.git"
JOBS, ADDRESS = "@RK_JOBS@", "@RK_GIT@"
"""What stands in a command for a variable of the script that is no path."""


class ScriptPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A variable at the top of the script. `stands_for` is what a command says instead of its value."""

    variable: str
    value: str
    about: str
    stands_for: str = ""
    beside: bool = False
    """`value` is meant from the folder of the script."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the script's Python part, by this interpreter, in this folder."""

    words: tuple[str, ...]
    python: str
    folder: str | None = None


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    about: tuple[str, ...]
    calls: tuple[Call, ...]
    always: bool = False
    environment: bool = False
    """The environment is made before its commands."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    system: str
    places: tuple[ScriptPlace, ...]
    environment: BuildEnvironment
    steps: tuple[ScriptStep, ...]
    plan: dict[str, Any]
    """What the Python part knows of it."""
    options: Options
    version: str

    @property
    def known(self) -> tuple[tuple[str, str], ...]:
        """(text, variable), the longest first, for whoever writes a command."""
        found = [(place.stands_for or place.value, place.variable) for place in self.places]
        return tuple(sorted([*found, *_hidden(self.system)], key=lambda pair: -len(pair[0])))

    def before(self, place: ScriptPlace) -> tuple[tuple[str, str], ...]:
        """Those that stand above it: a place below another one is spelled by it."""
        above = {each.variable for each in self.places[: self.places.index(place)]}
        return tuple(pair for pair in self.known if pair[1] in above or pair in _hidden(self.system))


def _hidden(system: str) -> tuple[tuple[str, str], ...]:
    """The user's folder as a recording spells it, and the variable that has the real one."""
    shapes = ("<user>", "<the user>", "<üser>", "<the üser>")
    if system == "windows":
        return tuple((f"C:\\Users\\{shape}", "USERPROFILE") for shape in shapes)
    return tuple((f"/home/{shape}", "HOME") for shape in shapes)


def compose(
    request: BuildRequest,
    chosen: Options,
    *,
    work: str,
    jobs: int | None,
    beside: bool = False,
    launcher: str | None = None,
) -> Script:
    """The script for this request. With `beside` (it is for another computer) a source that is not absolute is meant
    from the script's folder, and nothing here says anything about it."""
    return _Composer(request, chosen, work, jobs, beside, launcher).script()


class _Composer:
    def __init__(
        self, request: BuildRequest, chosen: Options, work: str, jobs: int | None, beside: bool, launcher: str | None
    ) -> None:
        self.paths = request.paths
        self.work = work
        self.base = request.python
        self.requirements = request.requirements
        if self.requirements:
            request = msgspec.structs.replace(request, python=self._python_in("env"))
        if request.torch and not torch_release(request.torch).cmake4_unpatched:
            # Whatever CMake a person puts in later: the variable is harmless with older ones.
            request = msgspec.structs.replace(request, cmake_version=Version("4"))
        self.request = request
        self.chosen = chosen
        self.version = wheel_version(request)
        self.backend = backend_choice.choose(_backend(request, elsewhere=beside), Path(request.source or "."))
        self.given = request.source
        self.beside = beside and bool(request.source) and not self.paths.isabs(request.source)
        self.source = self._in("s") if self.backend.copies else request.source
        places = BuildPlaces(temp=self._in("t"), tools=self._in("env"), git_ceiling=work)
        self.environment = compute(request, chosen.resolved, places=places, version=self.version, launcher=launcher)
        self.jobs = jobs or 4  # not known: with 16 GB of memory it fits
        self.patches = _edits(request)

    def script(self) -> Script:
        request = self.request
        steps = [step for step in self._steps() if step is not None]
        places = self._places()
        targets = [str(target) for target in request.gpu_targets] if request.cuda else []
        known = known_libraries(request)
        plan = {
            "title": self._title(),
            "torch": request.torch or "",
            "name": request.name,
            "version": self.version,
            "python": str(request.python_version.major_minor) if request.python_version else "",
            "cuda": str(request.cuda.version.major_minor) if request.cuda else "",
            "nvcc": 1 if request.cuda else 0,
            "commit": _commit(request),
            "disk": costs.build_disk(request.torch, cuda=request.cuda is not None) // 1024**3 if request.torch else 1,
            "memory": costs.heaviest(cuda=request.cuda is not None) // 1024**3 if request.torch else 0,
            "per_job": costs.per_job(cuda=request.cuda is not None) if request.torch else 0,
            "architectures": targets,
            "expected": self._expected(),
            "places": [place.variable for place in places if place.variable != "RK_JOBS"],
            "steps": _prints(steps, self.environment, [self.patches, self.requirements], known),
            "always": [step.name for step in steps if step.always],
            "needs": needs(
                request, {step.name for step in steps}, launcher=self.environment.value("CMAKE_CXX_COMPILER_LAUNCHER")
            ),
            "first": first_on_path(request),
            "smoke": smoke.SMOKE_CODE.splitlines(),
            "sets": sorted({change.name for change in self.environment.changes}),
            "repair": self._repair_words(),
            **known,
            "patches": self.patches,
        }
        return Script(
            title=self._title(),
            system=request.system,
            places=places,
            environment=self.environment,
            steps=tuple(steps),
            plan=plan,
            options=self.chosen,
            version=self.version,
        )

    def _title(self) -> str:
        request = self.request
        parts = [f"{'PyTorch ' + str(request.release) if request.release else request.name}"]
        if request.cuda:
            parts.append(f"for {', '.join(map(str, request.gpu_targets))} with CUDA {request.cuda.version.major_minor}")
        if request.cudnn and request.cudnn.version:
            parts.append(f"and cuDNN {request.cudnn.version}")
        return " ".join([*parts, "on", "Windows" if request.system == "windows" else "Linux"])

    def _places(self) -> tuple[ScriptPlace, ...]:
        request = self.request
        found = [
            ScriptPlace(
                variable="RK_WORK", value=self.work, about="Everything is made in this folder. Short, without spaces"
            ),
            ScriptPlace(variable="RK_PYTHON", value=self.base, about="The Python to build for"),
        ]
        if request.torch and not self.given:
            about = "Where PyTorch's source comes from"
            found.append(ScriptPlace(variable="RK_GIT", value=GIT, about=about, stands_for=ADDRESS))
        else:
            about = "The source" + (", which is copied" if self.backend.copies else "")
            found.append(ScriptPlace(variable="RK_GIVEN", value=self.given, about=about, beside=self.beside))
        if self.backend.copies:
            found.append(ScriptPlace(variable="RK_SOURCE", value=self.source, about="The source that is built"))
        if request.compiler.studio:
            found.append(ScriptPlace(variable="RK_STUDIO", value=request.compiler.studio, about="Visual Studio"))
        if request.cuda:
            found.append(ScriptPlace(variable="RK_CUDA", value=request.cuda.root, about="The CUDA toolkit"))
            found.append(ScriptPlace(variable="RK_NVCC", value=request.cuda.nvcc, about="Its compiler"))
        if request.cudnn and request.cuda and request.cudnn.root != request.cuda.root:
            found.append(ScriptPlace(variable="RK_CUDNN", value=request.cudnn.root, about="cuDNN"))
        about = "How many files are compiled at a time; one of them can take 3 GB of memory"
        found.append(ScriptPlace(variable="RK_JOBS", value=str(self.jobs), about=about, stands_for=JOBS))
        return tuple(found)

    def _steps(self) -> list[ScriptStep | None]:
        # `setup.py` takes every DLL of `torch/lib` along; scikit-build-core (2.14 on) installs and packs in one go.
        before = self.backend.name == "setup.py"
        variables = "The variables of this build, for this script alone, each with its reason"
        really = "What CMake really decided, before hours are spent on it: it drops CUDA with a mere warning"
        return [
            self._step("preflight", "What the plan needs is there", [("preflight",)], always=True),
            self._source_step(),
            self._python_step(),
            self._patch_step(),
            self._step("environment", variables, [("environment",)], always=True, environment=True),
            self._smoke_step(),
            self._configure_step(),
            self._step("check", really, [("check", self._build)]),
            self._compile_step(),
            self._libraries_step("libraries", "beside its own") if before else None,
            self._package_step(),
            None if before else self._libraries_step("wheel-libraries", "into the wheel"),
            self._tryout_step(),
        ]

    def _source_step(self) -> ScriptStep | None:
        if self.given:
            copy = ("copy", self.given, self.source)
            about = "A copy of the source, for the build writes into it"
            return self._step("source", about, [copy]) if self.backend.copies else None
        tag = f"v{self.request.release}"
        git = ("run", "git", "-c", "core.longpaths=true", "-c", "core.autocrlf=false", "-C", self.source)
        calls = [
            ("run", "git", "init", "-q", self.source),
            (*git, "config", "remote.origin.url", ADDRESS),
            (*git, "fetch", "--depth", "1", "origin", _commit(self.request) or f"refs/tags/{tag}"),
            (*git, "checkout", "-q", "-f", "FETCH_HEAD"),
            (*git, "submodule", "sync", "-q", "--recursive"),
            (*git, "submodule", "update", "--init", "--recursive", "--depth", "1", "--jobs", "4"),
            ("commit",),
        ]
        about = f"PyTorch {tag} with its submodules. If it was interrupted, it resumes"
        return self._step("source", about, calls)

    def _python_step(self) -> ScriptStep | None:
        if not self.requirements:
            return None
        about = (
            "A Python environment of the build's own, with what this release needs to build, in versions that work",
            "for it. pip's own settings (index, proxy, certificates) hold",
        )
        freeze = self._call("freeze", python=self._python_in("env"))
        return self._step("python", about, [*self._made_environment("env", self.requirements), freeze])

    def _made_environment(self, folder: str, requirements: Sequence[str]) -> list[tuple[str, ...]]:
        """A new one in this folder, with these packages."""
        pip = (self._python_in(folder), "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
        return [("run", self.base, "-m", "venv", "--clear", self._in(folder)), ("run", *pip, *requirements)]

    def _patch_step(self) -> ScriptStep | None:
        if not self.patches:
            return None
        each_one = (f"{each['id']}: {each['title']}" for each in self.patches)
        about = ("Edits that this release needs; their text is at the end of this file", *each_one)
        return self._step("patch", about, [("patch", self.source)])

    def _smoke_step(self) -> ScriptStep | None:
        request = self.request
        if request.cuda is None:
            return None
        source, program = (self.paths.join(self.work, "smoke", name) for name in ("smoke.cu", "smoke.exe"))
        nvcc = smoke.smoke_command(request)
        calls = [("smoke-file", source), ("run", *nvcc, source, "-o", program), ("smoke-run", program)]
        return self._step("smoke", "One small CUDA file with this compiler, toolkit and architecture", calls)

    def _configure_step(self) -> ScriptStep:
        calls = [self._call("fresh", self._build), *map(self._program, self.backend.configure(self._job))]
        return self._step("configure", "CMake, told by the environment above", calls)

    def _compile_step(self) -> ScriptStep:
        about = (
            "Ninja. Hours for a whole PyTorch; stopped or failed, it goes on with what is not yet compiled.",
            "As many files at a time as memory holds, and fewer after one that ran out of it",
        )
        return self._step(
            "compile", about, [self._program(each, "compile") for each in self.backend.compile(self._job)]
        )

    def _libraries_step(self, call: str, where: str) -> ScriptStep | None:
        if self.request.system != "windows" or not self.request.torch:
            return None
        folder = [self.paths.join(self.source, "torch", "lib")] if call == "libraries" else []
        about = f"The DLLs of CUDA, cuDNN, MKL and the like that torch loads, put {where}: found, not listed"
        places = self.request.library_folders(self._in("env"))
        return self._step("libraries", about, [(call, *folder, *places)])

    def _repair_words(self) -> list[str]:
        """`rekindle repair` for this wheel, with the CUDA of this build and no other."""
        if not self.request.cuda or self.request.system != "windows":
            return []
        places = [
            word
            for folder in self.request.library_folders(self._in("env"))
            for word in ("--from", self._by_place(folder))
        ]
        return [*places, *(word for card in self.request.cards for word in ("--gpu", card))]

    def _by_place(self, path: str) -> str:
        """`RK_CUDA/bin`: a place of the script that a person may have corrected, as the Python part expands it."""
        for place in sorted(self._places(), key=lambda each: -len(each.value)):
            if place.value and path.lower().startswith(place.value.lower().rstrip("\\") + "\\"):
                inside = path[len(place.value.rstrip("\\")) + 1 :]
                return "/".join([place.variable, *inside.split("\\")])
        return path

    def _package_step(self) -> ScriptStep:
        staging, stage = self._in("p"), self._in("i")
        into: PurePath = PureWindowsPath(staging) if self.request.system == "windows" else PurePosixPath(staging)
        packed = map(self._program, self.backend.package(self._job, into))
        last = ("pack", stage) if self.backend.name == "cmake" else ("collect", staging)
        return self._step("package", "The wheel", [("empty", staging), ("empty", stage), *packed, last])

    def _tryout_step(self) -> ScriptStep | None:
        if not self.request.torch:
            return None
        inside = self._python_in("try")
        numpy = next((each for each in self.requirements if each.startswith("numpy")), "numpy")
        about = (
            "The wheel in an environment of its own, with the PATH that this script was started with: it is imported,",
            "multiplies and convolves on the card, and says which GPUs it has code for",
        )
        install = self._call("install", python=inside)
        tryout = self._call("tryout", python=inside, folder=self.work)
        return self._step("tryout", about, [*self._made_environment("try", [numpy]), install, tryout])

    def _step(
        self,
        name: str,
        about: str | tuple[str, ...],
        calls: Sequence[Call | tuple[str, ...]],
        *,
        always: bool = False,
        environment: bool = False,
    ) -> ScriptStep:
        return ScriptStep(
            name=name,
            about=(about,) if isinstance(about, str) else about,
            calls=tuple(each if isinstance(each, Call) else self._call(*each) for each in calls),
            always=always,
            environment=environment,
        )

    def _call(self, *words: str, python: str | None = None, folder: str | None = None) -> Call:
        return Call(words=words, python=python or self.base, folder=folder)

    def _program(self, command: backends.BackendCall, how: str = "run") -> Call:
        words = list(command.args)
        if "-j" in words:
            words[words.index("-j") + 1] = JOBS
        return self._call(how, *words, folder=command.cwd)

    def _expected(self) -> dict[str, str]:
        found = {"USE_CUDA": "ON"} if self.request.cuda else {}
        return {**found, "USE_CUDNN": "ON"} if self.request.cudnn and self.request.cuda else found

    @property
    def _build(self) -> str:
        return self.paths.join(self.source, "build") if self.backend.name == "setup.py" else self._in("b")

    @property
    def _job(self) -> backends.BackendJob:
        names = {"cmake": "cmake", "ninja": "ninja", "python": self.request.python, "cxx": self.request.compiler.cxx}
        tools = {name: Tool(name=name, path=path) for name, path in names.items()}
        return backends.BackendJob(
            request=self.request,
            options=self.chosen,
            tools=Tools(**tools),
            source=self.source,
            build=self._build,
            stage=self._in("i"),
            python=self.request.python,
            version=self.version,
            jobs=self.jobs,
        )

    def _in(self, name: str) -> str:
        return str(self.paths.join(self.work, name))

    def _python_in(self, folder: str) -> str:
        inside = ("Scripts", "python.exe") if self.paths.sep == "\\" else ("bin", "python")
        return str(self.paths.join(self.work, folder, *inside))


def _backend(request: BuildRequest, *, elsewhere: bool) -> str | None:
    """A release's own way to build where the plan names none; the source may not be here to be looked at."""
    if request.backend is None and request.torch:
        return torch_release(request.torch).backend
    if request.backend is None and (elsewhere or not Path(request.source).is_dir()):
        message = "the build file does not say how the project is built, and its source is not here to be looked at"
        raise BadInput(message, hint=f"add `backend` to it: one of {', '.join(backend_choice.KINDS)}")
    return request.backend


def _edits(request: BuildRequest) -> list[dict[str, Any]]:
    """The patches of this release as plain data. What an option or a pinned tool does instead is no edit."""
    nothing = Tool(name="", path="")
    tools = Tools(cmake=nothing, ninja=nothing, python=nothing, cxx=nothing)
    found = []
    for id in tree.wanted_patches(request, tools):
        patch = catalogue.patch(id)
        edits = [
            edit for edit in patch.edit if edit.torch is None or (request.release and request.release in edit.torch)
        ]
        if edits:
            found.append({"id": id, "title": patch.title, "edits": [_plain(edit) for edit in edits]})
    return found


def _plain(edit: catalogue.Edit) -> dict[str, Any]:
    return {
        "file": edit.file,
        "count": edit.count,
        "fixed": edit.fixed or "",
        "before": edit.before.split("\n"),
        "after": edit.after.split("\n"),
    }


def _commit(request: BuildRequest) -> str:
    if not request.torch or request.source:
        return ""
    return request.commit or commit_of(str(request.release)) or ""


def _prints(
    steps: list[ScriptStep], environment: BuildEnvironment, more: list[Any], known: dict[str, Any]
) -> list[dict[str, str]]:
    """A step's own print holds that of the step before it: what stands on something new is done anew."""
    found = []
    last = ""
    for step in steps:
        spelled = msgspec.json.encode([last, step]) + json.dumps(more).encode()
        if step.environment:
            spelled += environment.digest_text().encode()
        if step.name == "libraries":
            spelled += json.dumps(known).encode()
        last = hashlib.sha256(spelled).hexdigest()[:12]
        found.append({"name": step.name, "print": last})
    return found
