"""Kits as a person reads them."""

from __future__ import annotations

import ntpath
from collections.abc import Sequence

import msgspec

from rekindle.core import codec, console
from rekindle.core.command import Command, rekindle
from rekindle.core.errors import UnknownName
from rekindle.core.findings import Finding, failed, passed, unverified
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import MsvcComponent, msvc_components
from rekindle.machine.host import Host, Run
from rekindle.machine.toolchain import msvc
from rekindle.toolchain.model import Kit, Offering, licences_of
from rekindle.toolchain.store import Store
from rekindle.toolchain.verify import Smoke


class KitLine(msgspec.Struct, frozen=True, kw_only=True):
    """A kit without the list of its files."""

    id: str
    name: str
    version: str
    system: str
    arch: str
    provider: str
    folder: str
    files: int
    size: int
    digest: str
    parts: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle toolchain` and of most of its commands."""

    schema: str = "rekindle.toolchain/1"
    folder: str
    kits: tuple[KitLine, ...] = ()
    removed: tuple[str, ...] = ()
    freed: int | None = None


def line(store: Store, kit: Kit, findings: Sequence[Finding] = ()) -> KitLine:
    return codec.like(
        KitLine,
        kit,
        id=kit.id,
        version=str(kit.version),
        system=kit.place.system,
        arch=kit.place.arch,
        folder=str(store.folder(kit)),
        files=len(kit.files),
        size=kit.size,
        digest=kit.digest,
        parts=tuple(f"{part.name} {part.version}" for part in kit.parts),
        licences=licences_of(kit.parts),
        findings=tuple(findings),
    )


def answer(store: Store, kits: Sequence[Kit]) -> Toolchain:
    return Toolchain(folder=str(store.root), kits=tuple(line(store, kit) for kit in kits))


def show_list(found: Toolchain) -> None:
    if not found.kits:
        console.out(console.wrap(f"no toolchains in {found.folder}"))
        console.out("install one: rekindle toolchain install cuda==11.8")
        return
    rows = [[kit.id, kit.provider, f"{kit.size / 1e6:,.0f} MB", kit.folder] for kit in found.kits]
    console.out(console.table(rows, head=["kit", "from", "size", "folder"]))


def show_kit(kit: KitLine) -> None:
    console.out(f"{kit.name} {kit.version} for {kit.system} on {kit.arch}, from {kit.provider}")
    rows = [
        ["folder", kit.folder],
        ["size", f"{kit.size / 1e6:,.0f} MB in {kit.files:,} files"],
        ["made of", ", ".join(kit.parts) or "a folder of yours"],
        ["link names made", ", ".join(kit.made) or "none"],
        ["missing", ", ".join(kit.missing) or "nothing known"],
        ["digest", kit.digest],
    ]
    if kit.unverified:
        rows.append(["UNVERIFIED", "; ".join(kit.unverified)])
    console.out(console.table(rows))
    for item in kit.findings:
        console.out(console.finding(item))


def show_offering(offering: Offering) -> None:
    """What an installation would bring, before it does."""
    licences = ", ".join(offering.licences) or "free software"
    archives = console.plural(len(offering.parts), "archive")
    console.say(
        f"{offering.name} {offering.version} for {offering.place.system} on {offering.place.arch}: {archives}, "
        f"{offering.size / 1e6:,.0f} MB, from {offering.provider}; licence: {licences}"
    )
    for text in offering.unverified:
        console.say(f"UNVERIFIED: {text}")


def show_msvc(found: MsvcRecipe) -> None:
    console.out(f"MSVC toolset {found.toolset}: only Microsoft's installer brings it, and it needs an administrator")
    rows = [
        ["download", found.bootstrapper],
        ["install", str(found.install)],
        ["for an offline computer", str(found.layout)],
        ["then, there", str(found.offline)],
        ["check afterwards", str(found.check)],
        *(["UNVERIFIED", text] for text in found.unverified),
    ]
    for name, text in rows:
        console.out(f"{name}:\n  {text}")
    for item in found.findings:
        console.out(console.finding(item))


def show_smoke(found: Smoke) -> None:
    console.out(f"{found.kit} in {found.folder}")
    for item in found.findings:
        console.out(console.finding(item))


_QUIET = ("--quiet", "--wait", "--norestart", "--nocache")


class MsvcRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `rekindle toolchain msvc`."""

    schema: str = "rekindle.toolchain-msvc/1"
    toolset: str
    components: tuple[str, ...]
    bootstrapper: str
    """Where Microsoft has `vs_BuildTools.exe`."""
    install: Command
    layout: Command
    offline: Command
    check: Command
    findings: tuple[Finding, ...] = ()
    unverified: tuple[str, ...] = ()


def recipe(toolset: Version, *, folder: str = "C:\\vs-layout") -> MsvcRecipe:
    row = component_of(toolset)
    names = (row.component, row.sdk)
    adds = [word for name in names for word in ("--add", name)]
    program = "vs_BuildTools.exe"
    # With its folder: PowerShell runs no program of the current one by its name alone.
    here = f".\\{program}"
    return MsvcRecipe(
        toolset=str(toolset),
        components=names,
        bootstrapper=row.bootstrapper,
        install=Command(here, *_QUIET, *adds, system="windows"),
        layout=Command(here, "--layout", folder, "--lang", "en-US", *adds, system="windows"),
        offline=Command(ntpath.join(folder, program), "--noWeb", *_QUIET, *adds, system="windows"),
        check=rekindle("toolchain", "msvc", str(toolset), system="windows"),
        findings=(msvc_here(toolset, Host()),),
        unverified=("Microsoft's installer was not run in the tests of this command",),
    )


def component_of(toolset: Version) -> MsvcComponent:
    found = next((row for row in msvc_components() if row.toolset == toolset.major_minor), None)
    if found is None:
        known = ", ".join(str(row.toolset) for row in msvc_components())
        raise UnknownName(f"no component is known for the MSVC toolset {toolset}", hint=f"known are {known}")
    return found


def msvc_here(toolset: Version, run: Run) -> Finding:
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
