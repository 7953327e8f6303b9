"""What the commands of `rekindle toolchain` do, between the command line and the store."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rekindle.compat.host_compiler import gcc_majors
from rekindle.compat.judgement import Clash
from rekindle.compat.library_card import cudnn_serves
from rekindle.compat.toolkit_card import compiles
from rekindle.core import codec, files
from rekindle.core.errors import BadInput, ChecksFailed, NoRoute, NotFound, RekindleError, UsageError
from rekindle.core.paths import ARCHITECTURES
from rekindle.core.version import Version
from rekindle.inputs import plain
from rekindle.inputs.versions import read_cuda
from rekindle.knowledge.cuda import toolkits as published
from rekindle.knowledge.cuda.toolchains import licence_terms, licences
from rekindle.machine.host import Host
from rekindle.machine.toolchain import gcc, toolkits
from rekindle.model.card import Capability
from rekindle.model.platform import Platform
from rekindle.toolchain import install as installing
from rekindle.toolchain import report
from rekindle.toolchain import verify as verifying
from rekindle.toolchain.assemble import rules
from rekindle.toolchain.install import Installation
from rekindle.toolchain.model import Kit, Offering, ProviderSettings, ToolSpec, provider
from rekindle.toolchain.store import Store

Say = Callable[[str], None]
Ask = Callable[[str], bool]


class InstallCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `rekindle toolchain install`."""

    tools: tuple[str, ...] = ()
    provider: str | None = None
    platform: str | None = None
    full: bool = False
    offline: bool = False
    mirror: str | None = None
    source: Path | None = None
    manifest: Path | None = None
    cuda: str | None = None
    gpus: tuple[str, ...] = ()
    again: bool = False
    accept_licence: bool = False
    dry_run: bool = False

    def how(self, store: Store, cuda: Version | None = None) -> Installation:
        chosen = read_cuda(self.cuda) if self.cuda is not None else cuda
        settings = codec.like(ProviderSettings, self, state=store.state, cuda=chosen)
        return Installation(
            place=platform_of(self.platform), provider=self.provider, settings=settings, again=self.again
        )


class InstalledTools(msgspec.Struct, frozen=True, kw_only=True):
    offerings: tuple[Offering, ...]
    kits: tuple[Kit, ...]


def install(command: InstallCommand, *, say: Say, ask: Ask) -> InstalledTools:
    """Find everything, show it, have the terms accepted, then bring it. Nothing is half there afterwards."""
    store = Store()
    wanted = [ToolSpec.parse(text) for text in command.tools]
    if bool(wanted) == (command.manifest is not None):
        raise UsageError("name tools, or a manifest", hint="`cuda==11.8`, or `--manifest FILE`")
    listed = read_manifest(command.manifest) if command.manifest else None
    if listed is not None:
        offerings = [entry.offering for entry in listed.kits]
    else:
        for spec in wanted:
            # A release that never was is not looked for; one that is newer than the tables may be there.
            named = spec.version if spec.name == "cuda" else None
            if named and named.major_minor < published.toolkits()[-1].version:
                published.toolkit(named)
        refuse_unserved(wanted, _cards(command, wanted))
        offerings = []
        for spec in wanted:
            # Asking pip and apt what they have takes a minute on a slow line.
            say(f"looking for {spec}")
            offerings.append(_found(store, spec, command, wanted))
        offerings += _companions(store, offerings, command, wanted)
    for offering in offerings:
        report.show_offering(offering)
    if command.dry_run:
        return InstalledTools(offerings=tuple(offerings), kits=())
    _accepted(store, offerings, command, say=say, ask=ask)
    kits = []
    for offering in offerings:
        with store.locked(waiting=say):
            kits.append(installing.install(store, offering, command.how(store), say=say))
    if listed is not None:
        compare_manifest(listed, kits)
    return InstalledTools(offerings=tuple(offerings), kits=tuple(kits))


def agree(command: InstallCommand, *, say: Say, ask: Ask) -> None:
    """Ask now for what an installation of these tools would ask for later, when nobody is there to answer.

    What already exists needs neither a network nor an answer.
    """
    store = Store()
    wanted = [spec for spec in map(ToolSpec.parse, command.tools) if store.find(spec) is None]
    offerings = [_found(store, spec, command, wanted) for spec in wanted]
    offerings += _companions(store, offerings, command, wanted)
    _accepted(store, offerings, command, say=say, ask=ask)


def _cards(command: InstallCommand, wanted: Sequence[ToolSpec]) -> tuple[Capability, ...]:
    """The cards that a cuDNN is held against: those named, else those of this computer."""
    from rekindle.knowledge.gpu.gpus import capabilities_of
    from rekindle.machine import snapshot

    if command.gpus or not any(spec.name == "cudnn" for spec in wanted):
        return capabilities_of(command.gpus)
    return snapshot.here().capabilities


def _found(store: Store, spec: ToolSpec, command: InstallCommand, wanted: Sequence[ToolSpec]) -> Offering:
    how = command.how(store, next((other.version for other in wanted if other.name == "cuda"), None))
    if spec.name == "gcc" and spec.version is None and how.settings.cuda is not None:
        return _gcc_for(how.settings.cuda, store, how)
    return _offered(store, spec, how)


def _offered(store: Store, spec: ToolSpec, how: Installation) -> Offering:
    return installing.remembered(store, spec, how) if how.settings.offline else installing.find(spec, how)


def _companions(
    store: Store, offerings: Sequence[Offering], command: InstallCommand, wanted: Sequence[ToolSpec]
) -> list[Offering]:
    """The compiler that a CUDA for Linux takes, where neither this machine nor the command line has one."""
    if any(spec.name == "gcc" for spec in wanted):
        return []
    more: list[Offering] = []
    for offering in offerings:
        if offering.name != "cuda" or offering.place != command.how(store).target or offering.place.system != "linux":
            continue
        # What this computer has is of no use to another one.
        here = gcc.probe(Host()) if offering.place == Platform.here() else ()
        if gcc.taken_by(offering.version, here):
            continue
        how = msgspec.structs.replace(command.how(store), provider=None)
        more.append(_gcc_for(offering.version, store, how))
    return more


def _gcc_for(cuda: Version, store: Store, how: Installation) -> Offering:
    """The newest GCC that this CUDA takes, that somebody has, and that starts on this system."""
    refused: RekindleError | None = None
    for major in gcc_majors(cuda):
        try:
            return _offered(store, ToolSpec(name="gcc", version=Version(str(major))), how)
        except (NoRoute, NotFound) as error:
            refused = refused or error
    unknown = NoRoute(f"which GCC CUDA {cuda} takes is not known", hint="name one, for example `gcc==12`")
    raise refused or unknown


def _accepted(store: Store, offerings: Sequence[Offering], command: InstallCommand, *, say: Say, ask: Ask) -> None:
    """Show the terms that hold for what is downloaded; without acceptance nothing is."""
    path = store.root / "licences.json"
    before = _Acceptances()
    if path.is_file():
        before = codec.from_json(files.read_bytes(path, limit=1 << 20), _Acceptances, name=f"`{path}`")
    known = {one.licence for one in before.accepted}
    names = {name for each in offerings for name in (*each.licences, *licences(each.provider, each.name))}
    rows = [row for row in licence_terms() if row.id in names and row.id not in known]
    if not rows:
        return
    for row in rows:
        say(f"{row.title}: {row.address}\n  {row.summary}")
    if not command.accept_licence and not ask("Do you accept these terms?"):
        message = f"nothing was downloaded: {', '.join(row.title for row in rows)} was not accepted"
        raise UsageError(message, hint="read it (the address is above), then add `--accept-licence`")
    how, now = "--accept-licence" if command.accept_licence else "answered yes", time.strftime("%Y-%m-%d %H:%M:%S")
    more = tuple(AcceptedLicence(licence=row.id, title=row.title, at=now, how=how) for row in rows)
    files.write_text(path, codec.to_json(_Acceptances(accepted=(*before.accepted, *more))) + "\n")


def platform_of(text: str | None) -> Platform | None:
    """`linux-x86_64`, `win-amd64`, `linux_aarch64`; `linux` on one has its processor."""
    if text is None:
        return None
    match = re.fullmatch(r"(?:(linux)|win(?:dows)?)(?:[-_](.+))?", plain(text))
    here = Platform.here()
    system = match[1] or "windows" if match else here.system
    arch = ARCHITECTURES.get(match[2] or (here.arch if system == here.system else "x86_64")) if match else None
    if arch is None:
        raise UsageError(f"`{text[:40]}` is not a platform", hint="write it like `linux-x86_64` or `windows-x86_64`")
    return Platform(system=system, arch=arch)


def remove(names: Sequence[str]) -> report.Toolchain:
    store = Store()
    with store.locked():
        gone = _named(store, names)
        for kit in gone:
            store.remove(kit)
    left = report.answer(store, store.kits())
    return msgspec.structs.replace(left, removed=tuple(kit.id for kit in gone))


def collect() -> report.Toolchain:
    store = Store()
    with store.locked():
        freed = store.collect()
    return msgspec.structs.replace(report.answer(store, store.kits()), freed=freed)


def _named(store: Store, names: Sequence[str]) -> list[Kit]:
    return [store.required(ToolSpec.parse(name)) for name in names]


def show(name: str) -> report.KitLine:
    store = Store()
    return report.line(store, store.required(ToolSpec.parse(name)))


def verify(names: Sequence[str]) -> report.Toolchain:
    """Every kit, or those named, against its record."""
    store = Store()
    kits = _named(store, names) if names else store.kits()
    lines = tuple(report.line(store, kit, verifying.verify(store, kit)) for kit in kits)
    return report.Toolchain(folder=str(store.root), kits=lines)


def adopt(folder: Path) -> report.KitLine:
    """Use a toolkit that somebody has installed, where it is. Nothing of it is changed or copied."""
    store, host = Store(), Host()
    root = folder.resolve()
    found = toolkits.at(host, str(root), "adopted")
    if found is None or found.version is None:
        raise NotFound(f"`{folder}` has no nvcc that answers", hint="name the folder that has `bin` with nvcc in it")
    kit = Kit(
        name="cuda",
        version=found.version,
        place=Platform(system=host.os, arch=host.arch),
        provider="adopted",
        missing=found.missing,
        adopted=str(root),
    )
    with store.locked():
        store.adopt(kit)
    return report.line(store, kit)


def write_manifest(names: Sequence[str], path: Path) -> ToolchainManifest:
    store = Store()
    kits = _named(store, names) if names else [kit for kit in store.kits() if not kit.adopted]
    entries = tuple(ManifestEntry(offering=_offering(kit), digest=kit.digest) for kit in kits)
    made = ToolchainManifest(kits=entries)
    files.write_text(path, codec.to_json(made) + "\n")
    return made


def refuse_unserved(wanted: Sequence[ToolSpec], cards: Sequence[Capability]) -> None:
    """A cuDNN without code for a card loads, and then fails at the first convolution; of several, one is enough."""
    for name, card in itertools.product(("cuda", "cudnn"), cards):
        named = [spec.version for spec in wanted if spec.name == name and spec.version is not None]
        answers = [compiles(each, card, card.sm) if name == "cuda" else cudnn_serves(each, card) for each in named]
        clashes = [each for each in answers if isinstance(each, Clash)]
        if clashes and len(clashes) == len(answers):
            last = clashes[0].changes[0].value if clashes[0].changes else None
            raise NoRoute(clashes[0].sentence, hint=f"take `{name}=={last}`" if last else None)


class AcceptedLicence(msgspec.Struct, frozen=True, kw_only=True):
    licence: str
    title: str
    at: str
    how: str


class _Acceptances(msgspec.Struct, frozen=True, kw_only=True):
    accepted: tuple[AcceptedLicence, ...] = ()


MANIFEST_SCHEMA = "rekindle.toolchain-manifest/1"


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`digest` is that of the kit on the machine that wrote it."""

    offering: Offering
    digest: str


class ToolchainManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str = MANIFEST_SCHEMA
    kits: tuple[ManifestEntry, ...]


def read_manifest(path: Path) -> ToolchainManifest:
    found = codec.from_json(files.read_bytes(path, limit=16 << 20), ToolchainManifest, name=f"`{path}`")
    hint = "`rekindle toolchain manifest -o FILE` writes one"
    codec.expect(found.schema, MANIFEST_SCHEMA, "a manifest of a toolchain", name=f"`{path}`", hint=hint)
    for entry in found.kits:
        rules(entry.offering.layout)
        provider(entry.offering.provider)
    return found


def compare_manifest(manifest: ToolchainManifest, kits: Sequence[Kit]) -> None:
    """An error where a kit came out otherwise than on the machine of the manifest."""
    for entry, kit in zip(manifest.kits, kits, strict=True):
        if kit.digest != entry.digest:
            message = f"{kit.id} is not the same as on the machine that wrote the manifest"
            raise ChecksFailed(
                message, hint="use the same version of Rekindle on both; `rekindle toolchain verify` checks the files"
            )


def _offering(kit: Kit) -> Offering:
    if kit.adopted or kit.layout is None:
        message = f"{kit.id} is a folder of yours: a manifest cannot name its parts"
        raise BadInput(message, hint="install it by `rekindle toolchain install`")
    return codec.like(Offering, kit)
