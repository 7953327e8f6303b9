"""Visual Studio: every install, every toolset side by side, the SDKs, and what this prompt has loaded.

`vswhere` lists the installs; the toolsets are the folders under `VC\\Tools\\MSVC`. Its texts are in the user's
language, so nothing here reads them for meaning. `cl`'s banner is translated and reordered: version and machine are
taken as words wherever they stand.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from rekindle.core import codec
from rekindle.core.errors import BadInput
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundStudio, FoundToolset, Prompt

_EDITIONS = ("Community", "Professional", "Enterprise", "BuildTools", "Preview")
_TOOLSET = re.compile(r"14\.\d{1,3}\.\d{1,6}")
_CL_VERSION = re.compile(r"(?<![\d.])(1[89]\.\d{1,3}\.\d{3,6}(?:\.\d{1,5})?)(?![\d.])")
_CL_TARGET = re.compile(r"(?<![A-Za-z0-9])(x64|x86|80x86|ARM64|ARM)(?![A-Za-z0-9])", re.IGNORECASE)


def studios(run: Run) -> tuple[FoundStudio, ...]:
    if not run.windows:
        return ()
    listed = _vswhere(run)
    found = [_studio(run, row) for row in listed] if listed is not None else _by_folder(run)
    return tuple(sorted(found, key=lambda studio: studio.version or Version("0"), reverse=True))


def vswhere(run: Run) -> str | None:
    files = run.env("ProgramFiles(x86)") or "C:\\Program Files (x86)"
    installed = run.join(files, "Microsoft Visual Studio", "Installer", "vswhere.exe")
    hits = [installed, *run.which("vswhere")]
    return next((hit for hit in hits if run.exists(hit)), None)


def _vswhere(run: Run) -> list[dict[str, Any]] | None:
    program = vswhere(run)
    if program is None:
        return None
    said = run.command(program, "-all", "-products", "*", "-prerelease", "-format", "json", "-utf8")
    return parse_vswhere(said.out) if said.ok else None


def parse_vswhere(text: str) -> list[dict[str, Any]]:
    try:
        rows: Any = codec.from_json(text, Any)
    except BadInput as error:
        raise CouldNotRead("vswhere's answer is not JSON") from error
    if not isinstance(rows, list):
        raise CouldNotRead("vswhere's answer is not a list")
    good = [row for row in rows if isinstance(row, dict) and isinstance(row.get("installationPath"), str)]
    if rows and not good:
        raise CouldNotRead("vswhere lists installs without a path")
    return good


def _studio(run: Run, row: dict[str, Any]) -> FoundStudio:
    root = row["installationPath"]
    name = row.get("displayName")
    version = row.get("installationVersion")
    return FoundStudio(
        name=name if isinstance(name, str) else run.paths.basename(root),
        version=Version.find(version) if isinstance(version, str) else None,
        root=root,
        complete=row.get("isComplete") if isinstance(row.get("isComplete"), bool) else None,
        toolsets=toolsets(run, root),
    )


def _by_folder(run: Run) -> list[FoundStudio]:
    """Without vswhere (VS 2017 before 15.2, or a broken installer): the usual folders."""
    found = []
    for files in (run.env("ProgramFiles(x86)"), run.env("ProgramW6432") or run.env("ProgramFiles")):
        base = run.join(files, "Microsoft Visual Studio") if files else ""
        for year in run.names(base) if base else ():
            for edition in run.names(run.join(base, year)):
                root = run.join(base, year, edition)
                sets = toolsets(run, root) if edition in _EDITIONS else ()
                if sets:
                    found.append(FoundStudio(name=f"Visual Studio {edition} {year}", root=root, toolsets=sets))
    return found


def toolsets(run: Run, root: str) -> tuple[FoundToolset, ...]:
    base = run.join(root, "VC", "Tools", "MSVC")
    found = []
    for name in run.names(base, _TOOLSET):
        folder = run.join(base, name)
        x64 = run.exists(run.join(folder, "bin", "Hostx64", "x64", "cl.exe"))
        arm = run.exists(run.join(folder, "bin", "Hostarm64", "arm64", "cl.exe"))
        if x64 or arm or run.exists(run.join(folder, "bin")):
            found.append(FoundToolset(version=Version(name), root=folder, studio=root, x64=x64))
    return tuple(sorted(found, key=lambda toolset: toolset.version, reverse=True))


def sdks(run: Run) -> tuple[Version, ...]:
    """Windows SDKs that have headers, newest first."""
    if not run.windows:
        return ()
    key = run.registry("HKLM\\SOFTWARE\\WOW6432Node\\Microsoft\\Windows Kits\\Installed Roots") or run.registry(
        "HKLM\\SOFTWARE\\Microsoft\\Windows Kits\\Installed Roots"
    )
    files = run.env("ProgramFiles(x86)") or "C:\\Program Files (x86)"
    named = (key or {}).get("KitsRoot10")
    root = named if isinstance(named, str) and named else run.join(files, "Windows Kits", "10")
    names = run.names(run.join(root, "Include"))
    found = [Version(name) for name in names if re.fullmatch(r"10\.0\.\d{1,6}\.\d{1,4}", name)]
    return tuple(sorted(found, reverse=True))


def prompt(run: Run) -> Prompt:
    """What this shell has loaded, by its variables and by asking the `cl` that wins."""
    if not run.windows:
        return Prompt()
    cl = run.which("cl")
    version: Version | None = None
    target: str | None = None
    if cl:
        said = run.command(cl[0])
        with contextlib.suppress(CouldNotRead):
            version, target = parse_cl(said.err + "\n" + said.out)
    toolset = run.env("VCToolsVersion")
    return Prompt(
        host=run.env("VSCMD_ARG_HOST_ARCH"),
        target=run.env("VSCMD_ARG_TGT_ARCH") or target,
        toolset=Version.find(toolset) if toolset else None,
        cl=tuple(cl),
        cl_version=version,
        cl_target=target,
        link=tuple(run.which("link")),
    )


def parse_cl(text: str) -> tuple[Version, str | None]:
    """Version and machine of `cl`'s banner in any language."""
    banner = text.strip().splitlines()[0] if text.strip() else ""
    version = _CL_VERSION.search(banner)
    if not version:
        raise CouldNotRead("this is not the banner of `cl`")
    target = _CL_TARGET.search(banner.replace(version[0], " "))
    return Version(version[1]), (target[1].lower().replace("80x86", "x86") if target else None)
