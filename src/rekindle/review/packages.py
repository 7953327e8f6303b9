"""What the script installs and how it builds: pins, the Python, the build command."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.knowledge.builds.script_rules import script_rules
from rekindle.review.cuda import release_of
from rekindle.review.remark import Remark
from rekindle.review.said import Command, Said


def check(said: Said) -> Iterator[Remark]:
    wanted = list(_requirements(said))
    yield from _pins(said, wanted)
    yield from _names(said, wanted)
    yield from _python(said)
    yield from _build(said, wanted)


# A list of requirements, rather than a package or two.
_LIST = 4
Wanted = tuple[Command, Requirement]


def _requirements(said: Said) -> Iterator[Wanted]:
    for command in said.commands:
        text = " ".join(command.words)
        if re.fullmatch(r"[A-Za-z][\w.-]*==[\w.+]+", text):
            # A line of a list of requirements.
            yield command, Requirement(text)
            continue
        if not re.search(r"\bpip\d?(?:\.exe)?\s+install\b|\buv pip install\b", text):
            continue
        after = command.words[command.words.index("install") + 1 :]
        skip = False
        for word in after:
            if skip or word.startswith("-"):
                skip = word in (
                    "-r",
                    "-c",
                    "-i",
                    "-f",
                    "--index-url",
                    "--extra-index-url",
                    "--find-links",
                    "-t",
                    "--target",
                )
                continue
            try:
                yield command, Requirement(word)
            except InvalidRequirement:
                continue


def _pins(said: Said, wanted: list[Wanted]) -> Iterator[Remark]:
    for command, requirement in wanted:
        version = next((spec.version for spec in requirement.specifier if spec.operator in ("==", "===")), None)
        for pin in script_rules().pin:
            if pin.package != requirement.name.lower() or version is None:
                continue
            if version not in SpecifierSet(pin.versions) or (pin.system == "windows" and not said.windows):
                continue
            if pin.python_below and (said.python is None or said.python >= pin.python_below):
                continue
            line = _line(said, command.line)
            yield Remark(
                id="bad-pin",
                state=State.WARN,
                line=command.line,
                text=line,
                found=f"{requirement} is a bad pin",
                why=pin.why,
                source=pin.source,
                corrected=line.replace(str(requirement), f'"{pin.instead}"', 1),
            )
        release = release_of(said)
        if (
            release
            and version
            and requirement.name.lower() == "setuptools"
            and version not in SpecifierSet(release.setuptools)
        ):
            yield _at(
                said,
                command.line,
                "bad-pin",
                f"setuptools {version} does not build torch {said.torch}",
                f"torch {release.minor} wants setuptools{release.setuptools}",
                release.source,
            )


def _names(said: Said, wanted: list[Wanted]) -> Iterator[Remark]:
    for line, names in _by_line(wanted).items():
        for name, count in Counter(names).items():
            if count > 1:
                yield _at(
                    said,
                    line,
                    "requirement-twice",
                    f"{name} is listed {count} times",
                    "pip refuses two different demands for one package, or takes the stricter one",
                    "pip",
                )
    installed = {requirement.name.lower() for _, requirement in wanted}
    release = release_of(said)
    if release and len(installed) >= _LIST and "setuptools" not in installed:
        yield _at(
            said,
            wanted[0][0].line,
            "setuptools-free",
            "the list leaves setuptools free",
            f"torch {release.minor} wants setuptools{release.setuptools}; the newest one may lack what its setup uses",
            release.source,
        )
    for command in said.commands:
        if re.search(r"-m build\b", " ".join(command.words)) and installed and "build" not in installed:
            yield _at(
                said,
                command.line,
                "build-not-installed",
                "`build` is used and nowhere installed",
                "python ends with: No module named build",
                "PyPA build",
            )


def _by_line(wanted: list[Wanted]) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for command, requirement in wanted:
        lines.setdefault(command.line, []).append(requirement.name.lower())
    return lines


def _python(said: Said) -> Iterator[Remark]:
    release = release_of(said)
    if release is None or said.python is None:
        return
    known = release.pythons("windows" if said.windows else "linux")
    if known and str(said.python.major_minor) not in known:
        yield Remark(
            id="python-not-supported",
            state=State.FAIL,
            line=said.python_line or 1,
            text=_line(said, said.python_line or 1),
            found=f"torch {said.torch} does not go with Python {said.python}",
            why=f"it was made for Python {', '.join(known)}",
            source=release.source,
        )


def _build(said: Said, wanted: list[Wanted]) -> Iterator[Remark]:
    release = release_of(said)
    text = "\n".join(item.text for item in said.script.commands)
    wheel = re.search(r"setup\.py|-m build\b|pip3? wheel|pip3? install\b.*(?:\s-e\s|\s\.(?:\s|$))", text)
    configures = [item for item in said.ran("cmake") if any(word.startswith("-D") for word in item.words)]
    if configures and not wheel and any(re.match(r"-D(?:USE|BUILD|TORCH)_", word) for word in configures[0].words):
        yield _at(
            said,
            configures[0].line,
            "libtorch-only",
            "a bare cmake makes libtorch, not a wheel for Python",
            "the Python package is made by setup.py or `python -m build --wheel`, which start CMake themselves",
            "pytorch setup.py",
        )
    prompt = re.search(r"(?i)vcvars\w*\.bat|VsDevCmd", text)
    if prompt and wheel and said.windows and not said.setting("DISTUTILS_USE_SDK"):
        place = next(item for item in said.script.commands if prompt[0] in item.text)
        yield _at(
            said,
            place.line,
            "distutils-use-sdk",
            "Visual C++ is loaded here, and setuptools is not told to use it",
            "without DISTUTILS_USE_SDK=1 it looks for a compiler of its own and may take another toolset",
            "setuptools _distutils/_msvccompiler.py",
        )
    for command in said.commands:
        joined = " ".join(command.words)
        if "setup.py" in joined and said.torch and said.torch.major_minor >= Version("2.14"):
            yield _at(
                said,
                command.line,
                "setup-py-gone",
                f"torch {said.torch} is no longer built by setup.py",
                "use `python -m build --wheel --no-isolation`",
                "pyproject.toml of 2.14",
            )
        clones = command.program == "git" and "clone" in command.words and re.search(r"pytorch/pytorch", joined)
        if clones and not re.search(r"--recurs", joined) and "submodule update" not in text:
            yield _at(
                said,
                command.line,
                "clone-not-recursive",
                "the clone leaves the submodules out",
                "third_party stays empty and CMake stops",
                "pytorch README",
                _line(said, command.line).replace("clone", "clone --recursive", 1),
            )
    four = any(
        requirement.name.lower() == "cmake"
        and any(s.operator == "==" and s.version.startswith("4.") for s in requirement.specifier)
        for _, requirement in wanted
    )
    if four and release and not release.cmake4_unpatched and not said.setting("CMAKE_POLICY_VERSION_MINIMUM"):
        yield _at(
            said,
            next(c.line for c, r in wanted if r.name.lower() == "cmake"),
            "cmake-four",
            f"torch {said.torch} does not configure with CMake 4",
            "set CMAKE_POLICY_VERSION_MINIMUM=3.5 in the environment, or take cmake<4",
            release.source,
        )


def _line(said: Said, line: int) -> str:
    return said.script.lines[line - 1].strip() if 0 < line <= len(said.script.lines) else ""


def _at(said: Said, line: int, name: str, found: str, why: str, source: str, corrected: str | None = None) -> Remark:
    return Remark(
        id=name,
        state=State.WARN,
        line=line,
        text=_line(said, line),
        found=found,
        why=why,
        source=source,
        corrected=corrected,
    )
