"""Regenerates `torch/torch_releases.json`: the releases of torch, what each needs to build, its official wheels.

    python -m tools.observe torch_releases [CLONE]

Read from the index: which patch releases there are and for which Pythons; in the Linux wheel of the last patch METADATA
(cuDNN, Python), `version.py` (CUDA, commit) and `cuda.cmake` (the oldest CUDA and cuDNN). A file on the index never
changes, so a wheel that a row was read from is not opened again; delete the table to open them all. Read from CLONE, a
clone of pytorch/pytorch with its tags: CMake, compiler, C++, Python and setuptools that the tree asks for, and what
builds it; without CLONE the rows keep that part. The rest is in `stated/torch_releases.toml`. A new minor that is not
there yet takes it over from the one before and names it in `uncertain`: read it, state it, and it is gone from there.
"""

from __future__ import annotations

import copy
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tools.observe import pytorch_tree, table, web

STATED = Path(__file__).parent / "stated" / "torch_releases.toml"
FIRST = Version("1.10")
UNSTATED = "taken over from {before}, not yet read or stated: {what}"
_GUARD = re.compile(r"(CUDA|CUDNN)_VERSION VERSION_LESS \"?(\d+\.\d+)[\d.]*\"?\)\s*message\(FATAL_ERROR")
_CUDA_CMAKE = "torch/share/cmake/Caffe2/public/cuda.cmake"
_OF_TREE = ("min_cmake", "min_gcc", "min_python", "cxx_standard", "setuptools", "backend")
_OF_WHEEL = ("requires_python", "min_cuda", "min_cudnn")
_VARIANT = ("name", "cuda", "cudnn", "experimental", "arch_list_linux", "arch_list_windows", "index_default_linux")
_ABOUT = ("source", "observed_at", "evidence")
_ORDER = (
    *(
        "minor",
        "patches",
        "pythons_windows",
        "pythons_linux",
        "free_threaded",
        "requires_python",
        "variants",
        "min_cmake",
        "min_cuda",
    ),
    *("min_cudnn", "min_gcc", "min_python", "cxx_standard", "setuptools", "official_linker", "backend"),
    *("numpy2_linux_from", "numpy2_windows_from", "cmake4_unpatched", "commits", "warning", "uncertain"),
    *_ABOUT,
)

Row = dict[str, Any]
Wheels = list[tuple[str, str]]


def observe(clone: str = "") -> dict[str, list[Row]]:
    stated = {one["minor"]: one for one in msgspec.toml.decode(STATED.read_bytes())["release"]}
    kept = table.read("torch_releases")["releases"] if table.place("torch_releases").exists() else []
    known = {row["minor"]: row for row in kept}
    listed = _versions()
    table.nothing_read("torch_releases", len(listed))
    print(
        f"UNVERIFIED: CUDA lines and architectures of {len(stated)} releases are read from {STATED.name}",
        file=sys.stderr,
    )
    rows: list[Row] = []
    for minor in sorted({_minor(version) for version in listed} | set(known), key=Version):
        patches = {version: listed[version] for version in sorted(listed) if _minor(version) == minor}
        if patches:
            own = known.get(minor)
            row = _told(minor, stated.get(minor), rows) | _of_index(patches)
            row["commits"] = dict(own["commits"]) if own else {}
            _of_wheel(row, patches[max(patches)], own if own and str(max(patches)) in own["patches"] else None)
            _of_tree(row, clone, own)
            rows.append({name: row[name] for name in _ORDER})
        elif minor in known:
            print(f"UNVERIFIED: {minor} is not on the index, its row stays", file=sys.stderr)
            rows.append(known[minor])
    return {"releases": rows}


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _versions() -> dict[Version, Wheels]:
    found: dict[Version, Wheels] = {}
    for name, url, yanked in web.wheels("torch"):
        version = parse_wheel_filename(name)[1]
        if not yanked and version >= FIRST and not version.is_prerelease:
            found.setdefault(version, []).append((name, url))
    return found


def _told(minor: str, stated: Row | None, rows: list[Row]) -> Row:
    """What a person stated of a release; of a new one, what was stated of the one before."""
    if stated is None:
        if not rows:
            raise SystemExit(f"{minor} is older than everything in {STATED.name}: state it there")
        return _taken_over(minor, rows[-1])
    lines = [_variant(one) for one in stated["variant"]]
    row = {"numpy2_linux_from": None, "numpy2_windows_from": None, "warning": None, "uncertain": [], **stated}
    return row | {"variants": lines}


def _variant(stated: Row) -> Row:
    empty: Row = {"cudnn": None, "experimental": False, "arch_list_linux": None, "arch_list_windows": None}
    row = {**empty, **stated, "cuda": _cuda(stated["name"]), "index_default_linux": False}
    return {name: row[name] for name in (*_VARIANT, *_ABOUT)}


def _cuda(name: str) -> str:
    """`cu126` is CUDA 12.6."""
    return f"{name[2:-1]}.{name[-1]}"


def _taken_over(minor: str, before: Row) -> Row:
    row = copy.deepcopy(before)
    words = UNSTATED.format(before=before["minor"], what="other CUDA lines, architectures, linker, NumPy")
    row |= {"minor": minor, "dates": {}, "uncertain": [words], "warning": None}
    row |= {"source": f"wheel of the package index; {words}", "observed_at": table.today(), "evidence": "notes"}
    for name in ("numpy2_linux_from", "numpy2_windows_from"):
        row[name] = f"{minor}.0" if row[name] else None
    for variant in row["variants"]:
        variant |= {"index_default_linux": False, "source": words, "observed_at": table.today(), "evidence": "notes"}
    return row


def _of_index(patches: dict[Version, Wheels]) -> Row:
    """The newest patch release decides what holds for the minor."""
    newest = patches[max(patches)]
    return {
        "patches": {str(version): table.today() for version in patches},
        "pythons_linux": _pythons(newest, r"linux.*x86_64$"),
        "pythons_windows": _pythons(newest, r"win_amd64$"),
        "free_threaded": {str(version): found for version in patches if (found := _free_threaded(patches[version]))},
    }


def _of_wheel(row: Row, wheels: Wheels, known: Row | None) -> None:
    """What the Linux wheel says; where the row at hand was read from the same wheel, what it says."""
    row["patches"] |= {patch: day for patch, day in row.get("dates", {}).items() if patch in row["patches"]}
    if known:
        row["patches"] |= {patch: day for patch, day in known["patches"].items() if patch in row["patches"]}
        row |= {name: known[name] for name in _OF_WHEEL}
        own = next((one for one in known["variants"] if one["index_default_linux"]), None)
        if own:
            _default(row, own["name"], own["cudnn"])
        return
    linux = [url for name, url in wheels if re.search(r"linux[^/]*x86_64\.whl$", name)]
    if not linux:
        raise SystemExit(f"{row['minor']}: no wheel for Linux on the index")
    archive = web.archive(linux[-1])
    texts = {name: archive.read(name).decode("utf-8") for name in archive.members if _wanted(name)}
    metadata = next(text for name, text in texts.items() if name.endswith("METADATA"))
    about, guards = texts.get("torch/version.py", ""), dict(_GUARD.findall(texts.get(_CUDA_CMAKE, "")))
    row["requires_python"] = _first(r"^Requires-Python: (\S+)", metadata)
    if built_from := _first(r"git_version = '(\w+)'", about):
        row["commits"][max(row["patches"], key=Version)] = built_from
    row["min_cuda"] = guards.get("CUDA") or row.get("min_cuda")
    row["min_cudnn"] = guards.get("CUDNN") or row.get("min_cudnn")
    cuda = _first(r"^cuda(?:: [^=]+)? = '(\d+\.\d+)'", about)
    if cuda:
        _default(row, f"cu{cuda.replace('.', '')}", _first(r"nvidia-cudnn-cu\d+ ?\(?==([\d.]+)", metadata))
    print("torch", wheels[0][0].split("-")[1], file=sys.stderr, flush=True)


def _default(row: Row, name: str, cudnn: str | None) -> None:
    """The CUDA line of the wheel on the index, and its cuDNN."""
    own = next((variant for variant in row["variants"] if variant["name"] == name), None)
    if own is None:
        own = copy.deepcopy(row["variants"][-1]) | {"name": name, "cuda": _cuda(name), "experimental": False}
        row["variants"].append(own)
    for variant in row["variants"]:
        variant["index_default_linux"] = variant is own
    own["cudnn"] = cudnn or own["cudnn"]


def _of_tree(row: Row, clone: str, known: Row | None) -> None:
    """Commits, and what the tree asks for; without a clone that has it, the row at hand or the release before."""
    for patch in row["patches"] if clone else ():
        found = pytorch_tree.git(clone, "rev-parse", "--verify", "--quiet", f"v{patch}^{{commit}}")
        row["commits"] |= {patch: found.strip()} if found else {}
    tag = f"v{max(row['patches'], key=Version)}"
    revision = pytorch_tree.revision(clone, row["minor"], tag) if clone else None
    if revision:
        row |= {name: value for name, value in _read_tree(clone, revision, row).items() if value}
        row.setdefault("backend", "setup.py")
    elif known:
        row |= {name: known[name] for name in _OF_TREE}
    elif all(name in row for name in _OF_TREE):
        row["uncertain"].append(UNSTATED.format(before="the release before", what="compilers, CMake, setuptools"))
    if missing := [name for name in _OF_TREE if name not in row]:
        raise SystemExit(f"{row['minor']}: {', '.join(missing)} are read from a clone of pytorch/pytorch with its tags")


def _read_tree(clone: str, revision: str, row: Row) -> Row:
    cmake = pytorch_tree.show(clone, revision, "CMakeLists.txt")
    calls = list(pytorch_tree.cmake_calls(cmake))
    project = pytorch_tree.show(clone, revision, "pyproject.toml")
    asked = re.search(r"python_min_version = \((\d+), (\d+), (\d+)\)", pytorch_tree.show(clone, revision, "setup.py"))
    standard = next((words[1] for name, words in calls if name == "set" and words[:1] == ["CMAKE_CXX_STANDARD"]), "")
    pinned = _first(r"\"setuptools([<>=][^\"]*)\"", project)
    listed = _first(r"^setuptools([<>=]\S*)", pytorch_tree.show(clone, revision, "requirements.txt"))
    return {
        "min_cmake": next((words[1] for name, words in calls if name == "cmake_minimum_required"), None),
        "min_gcc": _compiler(calls)
        or _first(r"__GNUC__ < (\d+)", pytorch_tree.show(clone, revision, "c10/util/C++17.h")),
        "min_python": ".".join(asked.groups()) if asked else (row["requires_python"] or "").removeprefix(">="),
        "cxx_standard": int(standard) if standard.isdigit() else None,
        "setuptools": row.get("setuptools") or pinned or listed,
        "backend": "scikit-build-core" if '"scikit_build_core.build"' in project else "setup.py",
    }


def _compiler(calls: list[tuple[str, list[str]]]) -> str | None:
    """`if(CMAKE_COMPILER_IS_GNUCXX AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 9.3)`, if a fatal message follows."""
    for (name, words), (then, said) in itertools.pairwise(calls):
        asked = name == "if" and words[:1] == ["CMAKE_COMPILER_IS_GNUCXX"] and words[-2:-1] == ["VERSION_LESS"]
        if asked and (then, said[:1]) == ("message", ["FATAL_ERROR"]):
            return words[-1]
    return None


def _free_threaded(wheels: Wheels) -> list[str]:
    """`cp313t` of Linux and Windows wheels: the two have always had the same."""
    names = [name for name, _ in wheels if re.search(r"linux.*x86_64|win_amd64", name)]
    tags = {tag.abi for name in names for tag in parse_wheel_filename(name)[3]}
    minors = sorted(int(match[1]) for tag in tags if (match := re.fullmatch(r"cp3(\d+)t", tag)))
    return [f"3.{minor}t" for minor in minors]


def _pythons(wheels: Wheels, platform: str) -> list[str]:
    tags = {
        tag.interpreter
        for name, _ in wheels
        for tag in parse_wheel_filename(name)[3]
        if re.search(platform, tag.platform)
    }
    minors = sorted(int(match[1]) for tag in tags if (match := re.fullmatch(r"cp3(\d+)", tag)))
    return [f"3.{minor}" for minor in minors]


def _wanted(name: str) -> bool:
    return name in ("torch/version.py", _CUDA_CMAKE) or bool(re.fullmatch(r"torch-[^/]+\.dist-info/METADATA", name))


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None
