"""MSVC, which only Microsoft's installer brings: the exact command, a layout for offline computers, and a check.

Nothing here installs it. Its licence does not let others pass it on, and it needs an administrator.
"""

from __future__ import annotations

import msgspec

from rekindle.core.command import Command, rekindle
from rekindle.core.errors import UnknownName
from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import MsvcComponent, msvc_components
from rekindle.machine.host import Host, Run
from rekindle.machine.toolchain import msvc

_QUIET = "--quiet --wait --norestart --nocache"


class MsvcRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle toolchain msvc`."""

    schema: str = "rekindle.toolchain-msvc/1"
    toolset: str
    components: tuple[str, ...]
    bootstrapper: str
    """Where Microsoft has `vs_BuildTools.exe`."""
    install: str
    layout: str
    offline: str
    check: Command
    findings: tuple[Finding, ...] = ()
    unverified: tuple[str, ...] = ()


def recipe(toolset: Version, *, folder: str = "C:\\vs-layout", run: Run | None = None) -> MsvcRecipe:
    row = component_of(toolset)
    names = (row.component, row.sdk)
    adds = " ".join(f"--add {name}" for name in names)
    return MsvcRecipe(
        toolset=str(toolset),
        components=names,
        bootstrapper=row.bootstrapper,
        install=f"vs_BuildTools.exe {_QUIET} {adds}",
        layout=f"vs_BuildTools.exe --layout {folder} --lang en-US {adds}",
        offline=f"{folder}\\vs_BuildTools.exe --noWeb {_QUIET} {adds}",
        check=rekindle("toolchain", "msvc", str(toolset), system="windows"),
        findings=(check(toolset, run or Host()),),
        unverified=("Microsoft's installer was not run in the tests of this command",),
    )


def component_of(toolset: Version) -> MsvcComponent:
    found = next((row for row in msvc_components() if row.toolset == toolset.major_minor), None)
    if found is None:
        known = ", ".join(str(row.toolset) for row in msvc_components())
        raise UnknownName(f"no component is known for the MSVC toolset {toolset}", hint=f"known are {known}")
    return found


def check(toolset: Version, run: Run) -> Finding:
    """Is it here, with its 64-bit compiler?"""
    if not run.windows:
        return unverified("msvc", "MSVC can only be looked for on Windows")
    have = [each for studio in msvc.studios(run) for each in studio.toolsets]
    fitting = [each for each in have if each.version.starts_with(toolset.major_minor)]
    if any(each.x64 for each in fitting):
        return passed("msvc", f"toolset {fitting[0].version} is in {fitting[0].root}")
    names = ", ".join(str(each.version) for each in have) or "none"
    text = f"toolset {toolset} is not here (found: {names})"
    return failed("msvc", text, fix="run the command above as administrator")
