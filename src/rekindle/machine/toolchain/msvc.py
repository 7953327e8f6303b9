"""Visual Studio: every install, every toolset side by side, the SDKs, what this prompt has loaded, what vcvars changes.

`vswhere` lists the installs; the toolsets are the folders under `VC\\Tools\\MSVC`. Its texts are in the user's
language, so nothing here reads them for meaning. `cl`'s banner is translated and reordered: version and machine are
taken as words wherever they stand.

What `vcvarsall.bat` does to an environment is captured as a difference and never applied to this process. One `cmd`
prints its variables, runs the batch file, and prints them again. `cmd /u` writes UTF-16, so a user name or a path in
any script survives. The command line reaches `cmd` through a variable of its own: percent signs are expanded once and
before anything else, so spaces, `&`, `^` and the parentheses of `Program Files (x86)` need no escaping at all. That
the batch file ends with 0 is not believed: the variables of the asked toolset and machine must really be there.
"""

from __future__ import annotations

import contextlib
import ntpath
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from rekindle.compat.host_compiler import takes_compiler
from rekindle.compat.judgement import Fits
from rekindle.core import codec, run
from rekindle.core.errors import BadInput, StepFailed
from rekindle.core.pattern import late
from rekindle.core.version import Version
from rekindle.machine.host import CouldNotRead, Run
from rekindle.machine.model import FoundStudio, FoundToolset, Prompt

_EDITIONS = ("Community", "Professional", "Enterprise", "BuildTools", "Preview")
_TOOLSET = late(r"14\.\d{1,3}\.\d{1,6}")
_CL_VERSION = late(r"(?<![\d.])(1[89]\.\d{1,3}\.\d{3,6}(?:\.\d{1,5})?)(?![\d.])")
_CL_TARGET = late(r"(?<![A-Za-z0-9])(x64|x86|80x86|ARM64|ARM)(?![A-Za-z0-9])", re.IGNORECASE)


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


def taken_by(cuda: Version | None, toolsets: Iterable[FoundToolset]) -> list[FoundToolset]:
    """The toolsets among them that this CUDA takes; all of them where there is none."""
    return [one for one in toolsets if cuda is None or isinstance(takes_compiler(cuda, one.host), Fits)]


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


Call = Callable[..., run.Result]

_LISTS = ("PATH", "INCLUDE", "LIB", "LIBPATH", "EXTERNAL_INCLUDE")
_COMMAND = "REKINDLE_VCVARS"
_VCVARS_TARGET = "x64"
# Left by an earlier vcvars in the same shell. A second one on top of them mixes two toolsets.
_VISITED = (
    "VSCMD_", "__VSCMD_", "VCTOOLS", "VCINSTALLDIR", "VCIDEINSTALLDIR", "VSINSTALLDIR", "WINDOWSSDK", "WINDOWSLIBPATH",
    "FRAMEWORKDIR", "FRAMEWORKVERSION", "FRAMEWORK40VERSION", "EXTENSIONSDKDIR", "UNIVERSALCRTSDKDIR",
)  # fmt: skip
_VISITED_NAMES = frozenset(
    [
        "VISUALSTUDIOVERSION",
        "UCRTVERSION",
        "DEVENVDIR",
        "NETFXSDKDIR",
        "PLATFORM",
        "COMMANDPROMPTTYPE",
        "IFCPATH",
        "PREFERREDTOOLARCHITECTURE",
    ]
)


class VcVars(msgspec.Struct, frozen=True, kw_only=True):
    """The difference: variables to set, entries to put in front of lists such as PATH, variables to take away."""

    toolset: Version | None
    sets: dict[str, str] = {}
    prepends: dict[str, tuple[str, ...]] = {}
    removes: tuple[str, ...] = ()


def capture(
    studio: str,
    *,
    toolset: str | None = None,
    environ: Mapping[str, str],
    timeout: float = 180.0,
    call: Call = run.call,
) -> VcVars:
    """Run `vcvarsall.bat` of the Visual Studio in the folder `studio` and say what it changes.

    `toolset` is what `-vcvars_ver` takes (`14.29` or `14.29.30133`); `environ` is the environment to start from.
    """
    before = unvisited(environ)
    comspec = _get(before, "COMSPEC")
    shell = comspec if ntpath.basename(comspec).lower() == "cmd.exe" else _system_cmd(before)
    mark = f"rekindle-{os.urandom(8).hex()}"
    asked = {**before, _COMMAND: command_line(studio, toolset=toolset)}
    # Telemetry starts a PowerShell that outlives the batch file and holds our pipes open.
    asked |= {"VSCMD_SKIP_SENDTELEMETRY": "1", "NoDefaultCurrentDirectoryInExePath": "1"}
    line = f"set&&echo,{mark}&&%{_COMMAND}%&&echo,{mark}&&set"
    said = call([shell, "/u", "/d", "/v:off", "/c", line], env=asked, timeout=timeout, encoding="utf-16-le")
    hint = "run the Visual Studio Installer and add the C++ tools of that version, or choose another with `--toolset`"
    parts = said.out.split(mark)
    if not said.ok or len(parts) != 3 or "[ERROR:" in said.err:
        raise StepFailed(_failure(studio, toolset, said), hint=hint)
    old, new = parse_set(parts[0]), parse_set(parts[2])
    problem = _problem(new, toolset)
    if problem:
        raise StepFailed(f"`vcvarsall.bat` of `{studio}` ended without an error, but {problem}", hint=hint)
    return difference(old, new)


def command_line(studio: str, *, toolset: str | None = None) -> str:
    """The words for `cmd`: the batch file with its arguments, its talk sent to stderr so that stdout stays UTF-16."""
    if toolset is not None and (not toolset or set(toolset) - set("0123456789.")):
        raise BadInput(f"`{toolset}` is not a version of a toolset", hint="write it like `14.29`")
    if '"' in studio:
        message = f"`{studio}` cannot be the folder of a Visual Studio"
        raise BadInput(message, hint="give the folder that `vswhere` names")
    return f"{called(studio, toolset)} 1>&2"


def called(studio: str, toolset: str | None) -> str:
    """The line that sets up a toolset, as a person would type it."""
    batch = ntpath.join(studio, "VC", "Auxiliary", "Build", "vcvarsall.bat")
    return f'"{batch}" {_VCVARS_TARGET}' + (f" -vcvars_ver={toolset}" if toolset else "")


def parse_set(text: str) -> dict[str, str]:
    """The variables that `set` prints. `=C:=C:\\…` (a drive's folder) is none; a value may go on in a second line."""
    found: dict[str, str] = {}
    name = ""
    for line in text.lstrip("\ufeff").replace("\r\n", "\n").split("\n"):
        head, equals, value = line.partition("=")
        if head and equals:
            name = head
            found[name] = value
        elif line and not equals and name:
            found[name] += "\n" + line
    return found


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> VcVars:
    """What has to be done to an environment to get from `old` to `new`."""
    was = {name.upper(): value for name, value in old.items()}
    now = {name.upper() for name in new}
    sets: dict[str, str] = {}
    prepends: dict[str, tuple[str, ...]] = {}
    for name, value in new.items():
        key = name.upper()
        if key == _COMMAND or key.startswith("__") or was.get(key) == value:
            continue
        if key in _LISTS:
            had = {_same(entry) for entry in was.get(key, "").split(";")}
            added = dict.fromkeys(entry for entry in value.split(";") if entry and _same(entry) not in had)
            prepends[key] = tuple(added)
        else:
            sets[name] = value
    removed = tuple(sorted(name for name in old if name.upper() not in now))
    found = next((value for name, value in new.items() if name.upper() == "VCTOOLSVERSION"), None)
    toolset = Version.find(found) if found else None
    return VcVars(toolset=toolset, sets=sets, prepends=prepends, removes=removed)


def unvisited(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as it was before a developer prompt changed it, as far as that can be known."""
    if not _get(environ, "VSCMD_VER") and not _get(environ, "VCINSTALLDIR"):
        return dict(environ)
    kept = {}
    for name, value in environ.items():
        key = name.upper()
        first = _get(environ, f"__VSCMD_PREINIT_{key}")
        if key in _LISTS and first:
            kept[name] = first
        elif key not in _LISTS[1:] and key not in _VISITED_NAMES and not key.startswith(_VISITED):
            kept[name] = value
    return kept


def _problem(new: Mapping[str, str], toolset: str | None) -> str | None:
    missing = [name for name in ("INCLUDE", "LIB", "VCINSTALLDIR") if not _get(new, name)]
    if missing:
        return f"it did not set {' and '.join(missing)}"
    got = _get(new, "VCToolsVersion").rstrip("\\")
    if toolset and got.split(".")[: toolset.count(".") + 1] != toolset.split("."):
        return f"it gave toolset {got or 'of no name'} instead of {toolset}"
    machine = _get(new, "VSCMD_ARG_TGT_ARCH")
    if machine and machine.lower() != _VCVARS_TARGET:
        return f"it is set up for {machine} instead of {_VCVARS_TARGET}"
    return None


def _failure(studio: str, toolset: str | None, said: run.Result) -> str:
    what = f"`vcvarsall.bat` of `{studio}`" + (f" with toolset {toolset}" if toolset else "")
    if not said.started:
        return f"{what} could not be run: {said.err.strip() or '`cmd` was not found'}"
    if said.timed_out:
        return f"{what} timed out after {said.seconds:.0f} s"
    lines = [line.strip() for line in said.err.splitlines() if line.strip()]
    quoted = [line for line in lines if "[ERROR:" in line] or lines[-4:]
    return "\n".join([f"{what} failed (code {said.code})", *(f"  {line}" for line in quoted[:6])])


def _get(environ: Mapping[str, str], name: str) -> str:
    return next((value for key, value in environ.items() if key.upper() == name.upper()), "")


def _system_cmd(environ: Mapping[str, str]) -> str:
    return ntpath.join(_get(environ, "SystemRoot") or r"C:\Windows", "System32", "cmd.exe")


def _same(entry: str) -> str:
    return ntpath.normcase(entry.strip().strip('"')).rstrip("\\")
