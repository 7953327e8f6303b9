"""Debian's and Ubuntu's packages: found and downloaded by apt with a state of its own, without root, never installed.

apt's own configuration says where its mirror is, through which proxy and with which keys; all of that holds here. Only
its lists, its cache and the belief that nothing is installed are private. Another release of the same distribution
comes from the same mirror.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from rekindle.core import fetch as fetching
from rekindle.core import files, run, untrusted
from rekindle.core.errors import FetchFailed, MissingTool, NotFound
from rekindle.core.programs import which
from rekindle.core.untrusted import PlainFileName, Sha256
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolchains import DebianSet, debian_sets
from rekindle.machine.host import Host
from rekindle.machine.system import surroundings
from rekindle.model.platform import Platform
from rekindle.toolchain.model import FoundOffering, Offering, Part, ProviderSettings, ToolSpec

NAME = "debian"
GROUP = 12
_MAKING = threading.Lock()
_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
_KEYRINGS = ("-archive-keyring.gpg", "-archive-keyring.pgp")
_LIBC = re.compile(r"\blibc6 \(>= (\d{1,9}(?:\.\d{1,9}){1,7})")
_PROXY = re.compile(r'^Acquire::https?::Proxy\S* "(?!false)[^"]+"', re.MULTILINE | re.IGNORECASE)
_MOVING = re.compile(r".*(-security|-updates|-backports|-proposed|/updates)\Z")


def find(wanted: ToolSpec, place: Platform, settings: ProviderSettings) -> FoundOffering:
    """The parts of a tool, if a release of the machine's own distribution has it."""
    if place.system != "linux" or place.arch not in _ARCH:
        return FoundOffering(why=f"Debian has no packages for {place.system} on {place.arch}")
    rows = [row for row in debian_sets() if row.tool == wanted.name and row.serves(wanted.version)]
    if not rows:
        return FoundOffering(why=f"no release of Debian or Ubuntu in the tables has {wanted}")
    if which("apt-get") is None:
        return FoundOffering(why="there is no `apt-get` here")
    own = distribution()
    why = []
    for row in sorted(rows, key=lambda row: (row.distribution != own, -row.version.major, -row.version.minor)):
        if row.distribution != own and not settings.mirror:
            why.append(f"{row.suite} is a release of {row.distribution}, and apt here is set up for {own or 'none'}")
            continue
        state = _State(row, place, settings)
        try:
            packages = state.closure(full=settings.full)
        except FetchFailed as error:
            # A mirror that was named has the releases of one distribution; which one, it does not say.
            if not settings.mirror:
                raise
            why.append(error.message.replace("\n", " "))
            continue
        if packages and row.tool == "gcc" and place == Platform.here() and (newer := _newer_libc(packages)):
            why.append(f"that of {row.suite} {newer}")
            continue
        if packages:
            return FoundOffering(offering=_offering(row, place, packages, full=settings.full))
        why.append(f"`{row.suite}` has no `{row.roots[0]}` for {_ARCH[place.arch]}")
    return FoundOffering(why="; ".join(why))


def fetch(parts: Sequence[Part], folder: Path, settings: ProviderSettings) -> list[Path]:
    """Download packages. A large one goes on where an earlier run stopped; small ones come together, by apt."""
    origins = [_read_origin(part.origin) for part in parts]
    suite, _, _, arch = origins[0]
    row = next((row for row in debian_sets() if row.suite == suite), None)
    if row is None:
        raise NotFound(f"`{parts[0].origin}` is of a release that is not in the tables", hint="update Rekindle")
    state = _State(row, Platform(system="linux", arch=_place(arch)), settings)
    state.make()
    if len(parts) == 1 and (whole := _resumed(state, parts[0], folder)):
        return [whole]
    said = state.apt("download", *(f"{name}={version}" for _, name, version, _ in origins), cwd=folder, timeout=3600)
    found = [next(iter(sorted(folder.glob(f"{name}_*.deb"))), None) for _, name, _, _ in origins]
    if not said.ok or None in found:
        tail = (said.err.strip() or said.out.strip()).splitlines()[-1:]
        message = f"apt could not download `{origins[0][1]}`: {' '.join(tail)}"
        raise FetchFailed(message, hint="check apt's sources and proxy, then rerun the command to resume")
    return [path for path in found if path]


def _resumed(state: _State, part: Part, folder: Path) -> Path | None:
    """One archive from the address that apt names: `apt-get download` begins anew, whatever is there of it already.

    Its hash is that of apt's signed index. None where only apt can bring it: by a proxy of its own, by other protocols.
    """
    _, name, version, _ = _read_origin(part.origin)
    said = state.apt("download", "--print-uris", f"{name}={version}", cwd=folder)
    named = re.match(r"'(https?://[^'\s]+)' (\S+\.deb) ", said.out)
    if not said.ok or named is None or state.has_proxy():
        return None
    try:
        return fetching.download(named[1], folder / part.file, sha256=part.sha256, most=part.size or None)
    except FetchFailed:
        return None


def _newer_libc(packages: Sequence[dict[str, str]]) -> str | None:
    """Why programs of a newer release do not start here: their C library is newer. Said before the download."""
    own = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    have = Version.find(own) if own else None
    needs = [
        Version(number)
        for stanza in packages
        if _source(stanza) != "glibc"
        for number in _LIBC.findall(stanza.get("Depends", ""))
    ]
    newest = max(needs, default=None)
    if have is None or newest is None or newest <= have:
        return None
    return f"needs glibc {newest}, and this computer has {have}"


def distribution() -> str:
    """`debian` or `ubuntu`: whose packages this system takes."""
    own = surroundings.distribution(Host().text("/etc/os-release"))
    return own if own in ("debian", "ubuntu") else ""


def mirrors() -> tuple[str, ...]:
    """Where apt here has the distribution from, by its own word."""
    words = ("indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    said = _english("apt-get", *words, timeout=60)
    found = []
    for line in said.out.splitlines():
        address, _, rest = line.partition(" ")
        release, _, component = rest.partition(" ")
        name = urlsplit(address).path.rstrip("/").rpartition("/")[2]
        # `debian`, `ubuntu`, `ubuntu-ports`; a mirror may call its folder otherwise, but its suites have `main`.
        if component == "main" and not _MOVING.match(release) and not name.endswith("-security"):
            found.append(address.rstrip("/"))
    return tuple(dict.fromkeys(found))


class _State:
    """apt's files for one release and one architecture, in Rekindle's folder."""

    def __init__(self, row: DebianSet, place: Platform, settings: ProviderSettings) -> None:
        self.row, self.arch, self.settings = row, _ARCH[place.arch], settings
        self.root = settings.state / f"apt-{row.suite}-{self.arch}"
        every = [each for each in debian_sets() if each.suite == row.suite]
        self.components = tuple(dict.fromkeys(name for each in every for name in each.components))
        self._stanzas: dict[str, dict[str, str]] = {}

    def make(self) -> None:
        """Write apt's configuration and bring its lists, once: downloads side by side wait for the first of them."""
        self.root.mkdir(parents=True, exist_ok=True)
        # Two locks: one for the downloads of this run, one for another run at the same time.
        with _MAKING, FileLock(self.root / "lock"):
            self._make()

    def _make(self) -> None:
        done = self.root / "updated"
        wanted = " ".join([*self._addresses(), *self.components])
        if done.is_file() and done.read_text(encoding="utf-8") == wanted:
            return
        if self.settings.offline:
            raise NotFound(f"the lists of {self.row.suite} are not here", hint="run it once without `--offline`")
        for folder in ("lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        files.write_text(self.root / "status", "")
        files.write_text(self.root / "sources.sources", self._sources())
        files.write_text(self.root / "apt.conf", self._configuration())
        said = self.apt("update", timeout=900)
        if not said.ok or re.search(r"^(E|W): ", said.err, re.MULTILINE):
            tail = "\n".join(said.err.strip().splitlines()[-4:])
            message = f"apt could not read the lists of {self.row.suite}:\n{tail}"
            raise FetchFailed(message, hint="check apt's own sources and keys: `apt-get update`")
        files.write_text(done, wanted)

    def apt(self, *words: str, cwd: Path | None = None, timeout: float = 120) -> run.Result:
        # By `-c`, which is read last: what APT_CONFIG names is read first, and any file of the system overrides it.
        tool = {"show": "apt-cache", "dump": "apt-config"}.get(words[0], "apt-get")
        return _english(tool, "-c", str(self.root / "apt.conf"), *words, cwd=cwd, timeout=timeout)

    def has_proxy(self) -> bool:
        """Does apt go by a proxy, or a program, that only its own configuration names?"""
        said = self.apt("dump")
        return not said.ok or _PROXY.search(said.out) is not None

    def closure(self, *, full: bool) -> list[dict[str, str]]:
        """The root packages, and what they depend on as long as it belongs to the same sources."""
        self.make()
        chosen: dict[str, dict[str, str]] = {}
        wanted = list(self.row.roots)
        while wanted:
            self._ask(wanted)
            for name in wanted:
                if name in self._stanzas and name not in chosen:
                    chosen[name] = self._stanzas[name]
            if not all(root in chosen for root in self.row.roots):
                return []
            groups = [group for each in wanted if each in chosen for group in _depends(chosen[each])]
            self._ask(name for group in groups for name in group)
            following = (self._follow(group, full=full) for group in groups)
            wanted = sorted({name for name in following if name and name not in chosen})
        return [chosen[name] for name in sorted(chosen)]

    def _follow(self, alternatives: list[str], *, full: bool) -> str | None:
        for name in alternatives:
            known = self._stanzas.get(name)
            if known and _source(known) in self.row.sources and (full or self.row.needs(name)):
                return name
        return None

    def _ask(self, names: Iterable[str]) -> None:
        unknown = sorted({name for name in names if name not in self._stanzas})
        if not unknown:
            return
        said = self.apt("show", "--no-all-versions", *unknown)
        for stanza in _stanzas(said.out):
            self._stanzas.setdefault(stanza["Package"], stanza)

    def _addresses(self) -> tuple[str, ...]:
        found = (self.settings.mirror,) if self.settings.mirror else mirrors()
        if not found:
            raise MissingTool(
                "apt here has no source of its distribution", hint="name a mirror with `--mirror`, or set up apt"
            )
        return found[:1]

    def _sources(self) -> str:
        keys = [Path(f"/usr/share/keyrings/{self.row.distribution}{ending}") for ending in _KEYRINGS]
        keyring = next((f"Signed-By: {key}\n" for key in keys if key.is_file()), "")
        uris, parts = " ".join(self._addresses()), " ".join(self.components)
        return f"Types: deb\nURIs: {uris}\nSuites: {self.row.suite}\nComponents: {parts}\n{keyring}"

    def _configuration(self) -> str:
        # The sources' file keeps its ending: apt tells the two ways to write them apart by it.
        return "".join(
            f'{name} "{value}";\n'
            for name, value in {
                "APT::Architecture": self.arch,
                "APT::Architectures": self.arch,
                "Dir::State": self.root,
                "Dir::State::status": self.root / "status",
                "Dir::State::lists": self.root / "lists",
                "Dir::Cache": self.root / "cache",
                "Dir::Cache::pkgcache": "pkgcache.bin",
                "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
                "Dir::Etc::sourcelist": self.root / "sources.sources",
                "Dir::Etc::sourceparts": "-",
                "Dir::Etc::preferences": "-",
                "Dir::Etc::preferencesparts": "-",
                "Acquire::Languages": "none",
                "APT::Sandbox::User": "",
                "APT::Update::Post-Invoke": "",
                "APT::Update::Post-Invoke-Success": "",
            }.items()
        )


def _offering(row: DebianSet, place: Platform, packages: list[dict[str, str]], *, full: bool) -> Offering:
    parts = tuple(
        Part(
            name=stanza["Package"],
            version=stanza["Version"],
            file=untrusted.checked(PlainFileName, stanza["Filename"].rpartition("/")[2], "apt's index"),
            size=int(stanza["Size"]),
            sha256=untrusted.checked(Sha256, stanza["SHA256"], "apt's index"),
            origin=f"apt:{row.suite}/{stanza['Package']}={stanza['Version']}:{_ARCH[place.arch]}",
            licence=row.licence if _source(stanza) == "nvidia-cuda-toolkit" else "",
        )
        for stanza in packages
    )
    root = next(part for part in parts if part.name == row.roots[0])
    number = re.match(r"(?:\d{1,9}:)?(\d{1,9}(?:\.\d{1,9}){0,7})", root.version)
    version = Version(number[1]) if number else row.version
    never = f"these packages of {row.suite} were never installed for {place.arch} in our tests"
    return Offering(
        provider=NAME,
        name=row.tool,
        version=version,
        place=place,
        layout=row.layout,
        parts=parts,
        full=full,
        unverified=() if place.arch in row.tried else (never,),
    )


def _english(*command: str, cwd: Path | None = None, timeout: float) -> run.Result:
    return run.call(command, env={**os.environ, "LC_ALL": "C"}, cwd=cwd, timeout=timeout)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): ?(.*)$", block, re.MULTILINE))
        if {"Package", "Version", "Filename", "Size", "SHA256"} <= fields.keys():
            yield fields


def _source(stanza: dict[str, str]) -> str:
    return stanza.get("Source", stanza["Package"]).partition(" ")[0]


def _depends(stanza: dict[str, str]) -> Iterator[list[str]]:
    """Each dependency as its alternatives, without versions."""
    for field in ("Pre-Depends", "Depends"):
        for group in stanza.get(field, "").split(","):
            names = [re.sub(r"[\s(:].*", "", name.strip()) for name in group.split("|")]
            if names := [name for name in names if name]:
                yield names


def _read_origin(origin: str) -> tuple[str, str, str, str]:
    match = re.fullmatch(r"apt:([^/]+)/([a-z0-9][a-z0-9+.-]+)=([A-Za-z0-9][A-Za-z0-9.+:~-]*):([a-z0-9]+)", origin)
    if not match:
        raise NotFound(f"`{origin[:80]}` does not name a Debian package", hint="the manifest was changed")
    suite, name, version, arch = match.groups()
    return suite, name, version, arch


def _place(arch: str) -> str:
    return next((ours for ours, theirs in _ARCH.items() if theirs == arch), arch)
