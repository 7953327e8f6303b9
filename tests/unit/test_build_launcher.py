"""sccache and ccache: which is taken, where it keeps things, what it says it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekindle.build.configure.compiler_cache import CacheUse, find_launcher, parse_ccache, parse_sccache, remote
from rekindle.core.errors import BadInput, MissingTool, UsageError


def on_path(folder: Path, *names: str) -> dict[str, str]:
    for name in names:
        for spelled in (name, f"{name}.exe"):
            program = folder / spelled
            program.write_text("#!/bin/sh\n", encoding="utf-8")
            program.chmod(0o755)
    return {"PATH": str(folder), "PATHEXT": ".EXE"}


def test_one_that_is_there_is_taken_unless_none_is_asked_for(tmp_path: Path) -> None:
    environ = on_path(tmp_path, "ccache")
    assert "ccache" in (find_launcher(None, environ) or "")
    assert find_launcher("none", environ) is None
    assert find_launcher(None, {"PATH": ""}) is None


def test_one_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="sccache"):
        find_launcher("redis://cache:6379", on_path(tmp_path, "ccache"))


def test_without_a_value_what_is_there_is_taken_and_something_must_be(tmp_path: Path) -> None:
    assert "ccache" in (find_launcher("any", on_path(tmp_path, "ccache")) or "")
    with pytest.raises(MissingTool, match="neither sccache nor ccache"):
        find_launcher("any", {"PATH": ""})
    with pytest.raises(UsageError, match="for a cache") as refused:
        find_launcher("my plan.toml", on_path(tmp_path, "ccache"))
    assert refused.value.hint == 'write `rekindle build "my plan.toml" --cache`'


def test_an_address_becomes_the_variable_that_sccache_reads() -> None:
    assert remote("redis://cache:6379")["SCCACHE_REDIS_ENDPOINT"] == "redis://cache:6379"
    s3 = remote("s3://bucket/some/prefix")
    assert (s3["SCCACHE_BUCKET"], s3["SCCACHE_S3_KEY_PREFIX"]) == ("bucket", "some/prefix")
    # A server that runs already keeps its own place; each address has a server of its own.
    assert s3["SCCACHE_SERVER_PORT"] != remote("redis://cache:6379")["SCCACHE_SERVER_PORT"]
    assert remote("sccache") == {} == remote(None)
    with pytest.raises(BadInput, match="gopher"):
        remote("gopher://old")


def test_what_the_caches_say_is_read_and_only_this_builds_share_counts() -> None:
    text = "direct_cache_hit\t5\npreprocessed_cache_hit\t2\ncache_miss\t3\nfiles_in_cache\t9\n"
    found = parse_ccache("ccache", text)
    assert found is not None and (found.hits, found.misses, found.rate) == (7, 3, 0.7)
    assert found.since(CacheUse(launcher="ccache", hits=6, misses=3)).rate == 1.0
    answer = {"stats": {"cache_hits": {"counts": {"CUDA": 2, "C/C++": 1}}, "cache_misses": {"counts": {}}}}
    said = parse_sccache("sccache", json.dumps(answer))
    assert said is not None and (said.hits, said.misses) == (3, 0)
    assert parse_ccache("ccache", "garbage") is None and parse_sccache("sccache", "garbage") is None
