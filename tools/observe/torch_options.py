"""Regenerates `torch/torch_options.json`: the build options and variables that PyTorch's tree reads, by release.

    python -m tools.observe torch_options CLONE

CLONE is a clone of pytorch/pytorch with its tags. An option is what `option(NAME "..." DEFAULT)` or
`cmake_dependent_option` in CMakeLists.txt and cmake/ declares, with its default and condition. A variable of the
environment is what the head of setup.py (later of cmake/EnvVarForwarding.cmake) documents, what Python's side reads or
hands on to CMake, and what CMake's own files ask the environment for. A clone that lacks a release stops the script:
the ranges would end before it, as if the options were gone.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from tools.observe import table
from tools.observe.pytorch_tree import cmake_calls, files, show, stated_commits, trees

SOURCE = "pytorch/pytorch: CMakeLists.txt, cmake/, setup.py, tools/setup_helpers of each release"
# CMake's own FindCUDA and protobuf's options, which come along and are not PyTorch's.
_FOREIGN = re.compile(r"Modules_CUDA_fix|ProtoBuf")
_DOCUMENTED = re.compile(r"^#   (?=[A-Z])(.+?)(?:  |$)", re.MULTILINE)
_READ = re.compile(
    r"(?:os\.getenv|os\.environ\.get|check_(?:negative_)?env_flag|env_flag)\(\s*[\"'](\w+)[\"']"
    r"|os\.environ\[[\"'](\w+)[\"']\]|[\"'](\w+)[\"'] (?:not )?in os\.environ\b(?!\[|\.)"
)
_RENAMED = re.compile(r"[\"'](\w+)[\"']: [\"'](\w+)[\"']")
_LISTED = re.compile(r"for var in\s*\((.*?)\)", re.DOTALL)
_ENVIRONMENT = re.compile(r"(?<!set\()ENV\{(\w+)\}", re.IGNORECASE)
# Of the machine, not of the build.
_SYSTEM = {"HOME", "PATH", "PATHEXT", "RUNFILES_DIR"}
FORWARDING = "cmake/EnvVarForwarding.cmake"


class Declared(NamedTuple):
    """An option at one release: what it is without being set, and when it can be set at all."""

    default: str | None = None
    condition: str | None = None
    otherwise: str | None = None


def observe(clone: str) -> dict[str, list[dict[str, Any]]]:
    seen = trees(clone)
    table.nothing_read("torch_options", len(seen))
    if missing := {row["minor"] for row in table.read("torch_releases")["releases"]} - set(seen):
        raise SystemExit(f"the clone has no tag of {', '.join(sorted(missing))}: fetch its tags")
    print("read:", *(f"{minor} at {name}" for minor, name in seen.items()), file=sys.stderr)
    options = {minor: options_at(clone, name) for minor, name in seen.items()}
    variables = {minor: variables_at(clone, name) for minor, name in seen.items()}
    declared = {name for found in options.values() for name in found}
    instead = sorted(set(seen.values()) & set(stated_commits().values()))
    source = f"{SOURCE} (by commit instead of tag: {', '.join(instead)})" if instead else SOURCE
    rows = []
    for name in sorted(declared | {name for found in variables.values() for name in found}):
        held = {m: options[m].get(name) or (Declared() if name in variables[m] else None) for m in seen}
        becomes = next((found[name] for found in reversed(variables.values()) if found.get(name)), None)
        row = {"name": name, "kind": "option" if name in declared else "environment", "becomes": becomes}
        about = {"source": source, "observed_at": table.today(), "evidence": "script"}
        rows.append(row | {"ranges": list(_ranges(held))} | about)
    return {"options": rows}


def _ranges(held: dict[str, Declared | None]) -> Iterator[dict[str, str]]:
    """Releases that follow each other and say the same are one range."""
    for said, group in itertools.groupby(held.items(), key=lambda item: item[1]):
        if said is not None:
            minors = [minor for minor, _ in group]
            facts = {name: value for name, value in said._asdict().items() if value is not None}
            yield {"first": minors[0], "last": minors[-1], **facts}


def options_at(clone: str, revision: str) -> dict[str, Declared]:
    """The options that the tree declares. Twice: the first `option` stands, the last `cmake_dependent_option`."""
    found: dict[str, Declared] = {}
    for path in _cmake_files(clone, revision):
        for command, words in cmake_calls(show(clone, revision, path)):
            if command == "option" and len(words) > 1 and words[0].isidentifier():
                found.setdefault(words[0], Declared(words[2] if len(words) > 2 else None))
            elif command == "cmake_dependent_option" and len(words) > 4:
                found[words[0]] = Declared(words[2], " ".join(words[3].split()), words[4])
    return found


def variables_at(clone: str, revision: str) -> dict[str, str | None]:
    """Variables of the environment that a build reads, and the name CMake gets each under, where it is another one."""
    found: dict[str, str | None] = {}
    for text in _python_files(clone, revision):
        found |= dict.fromkeys(name for groups in _READ.findall(text) for name in groups if name)
        block = text.partition("additional_options = {")[2]
        renamed, _, rest = block.partition("}")
        listed = _LISTED.search(rest)
        found |= dict.fromkeys(re.findall(r"[\"'](\w+)[\"']", listed[1]) if listed else [])
        found |= {name: None if name == other else other for name, other in _RENAMED.findall(renamed)}
    forwarding = show(clone, revision, FORWARDING)
    for text in (show(clone, revision, "setup.py"), forwarding):
        found = dict.fromkeys(_documented(text)) | found
    for command, words in cmake_calls(forwarding):
        if command == "set" and words[0] == "_ENV_PASSTHROUGH":
            found |= dict.fromkeys(words[1:])
        elif command == "set" and words[0] == "_ENV_ALIASES":
            found |= dict(word.split("=", 1) for word in words[1:])
        elif command == "set" and words[0] == "_LOW_PRIORITY_ALIASES":
            found = dict.fromkeys(word.partition("=")[0] for word in words[1:]) | found
    for path in _cmake_files(clone, revision, foreign=True):
        asked = _ENVIRONMENT.findall(show(clone, revision, path))
        found = dict.fromkeys(asked) | found
    return {name: other for name, other in found.items() if name not in _SYSTEM}


def _python_files(clone: str, revision: str) -> Iterator[str]:
    for path in ("setup.py", "tools/build_pytorch_libs.py", *files(clone, revision, "tools/setup_helpers")):
        if path.endswith(".py"):
            yield show(clone, revision, path)


def _documented(text: str) -> list[str]:
    """The names in the head of a file: `CUDNN_LIBRARY / CUDNN_LIB_DIR   where it lies`, `USE_CUDA=0`."""
    head = re.match(r"(?:#[^\n]*\n|\s*\n)*", text)
    told = head[0].partition("(NOT environment variables)")[0] if head else ""
    words = [word for line in _DOCUMENTED.findall(told) for word in re.split(r" / |, ", line)]
    names = (re.match(r"[A-Z][A-Z0-9_]+(?=$|[ =])", word.strip()) for word in words)
    return [name[0] for name in names if name]


def _cmake_files(clone: str, revision: str, *, foreign: bool = False) -> list[str]:
    listed = files(clone, revision, "CMakeLists.txt", "cmake")
    return [path for path in listed if path.endswith((".txt", ".cmake")) and (foreign or not _FOREIGN.search(path))]
