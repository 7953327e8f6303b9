"""A stranger's repository, tree or tarball: nothing in it is run, nothing is written outside, nothing is followed."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import time
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.core.errors import BadInput
from rekindle.source import request, tarball
from rekindle.source.origin import Mirrors
from support import pace, repositories, trees
from support.repositories import git
from support.tarballs import make_tarball

pytestmark = [
    pytest.mark.skipif(not shutil.which("git"), reason="UNVERIFIED: git is not on this machine"),
    pytest.mark.skipif(os.name == "nt", reason="the attacks are written for a POSIX shell and its links"),
]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def mirrors(tmp_path: Path) -> Path:
    repositories.project(tmp_path / "mirrors")
    return tmp_path / "mirrors"


def bring(root: Path, mirrors: Path, how: str = "--mirror") -> int:
    return run(["source", "--torch", "1.13.0", how, str(mirrors), "-o", str(root)])


def ran(tmp_path: Path) -> bool:
    return (tmp_path / "ran").exists()


def trap(tmp_path: Path) -> str:
    """A command that shows that it was run, and otherwise does what a filter does."""
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n", encoding="utf-8")
    script.chmod(0o755)
    return str(script)


# --- code that must not run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--mirror", "--from"])
def test_a_missing_object_runs_no_command(mirrors: Path, tmp_path: Path, how: str) -> None:
    """A partial clone fetches what is missing from wherever its configuration says: `ext::` is any command."""
    evil = mirrors / "pytorch"
    git(evil, "config", "core.repositoryformatversion", "1")
    git(evil, "config", "extensions.partialClone", "origin")
    git(evil, "config", "remote.origin.promisor", "true")
    git(evil, "config", "remote.origin.url", f"ext::{trap(tmp_path)} %S")
    git(evil, "config", "protocol.ext.allow", "always")
    (evil / ".git" / "refs" / "tags" / "v1.13.0").write_text("1" * 40 + "\n", encoding="ascii")
    where = evil if how == "--from" else mirrors
    assert bring(tmp_path / "tree", where, how) == 14
    assert not ran(tmp_path)


def test_a_missing_file_of_a_commit_runs_no_command(mirrors: Path, tmp_path: Path) -> None:
    evil = mirrors / "pytorch"
    blob = git(evil, "rev-parse", "HEAD:CMakeLists.txt")
    git(evil, "config", "core.repositoryformatversion", "1")
    git(evil, "config", "extensions.partialClone", "origin")
    git(evil, "config", "remote.origin.promisor", "true")
    git(evil, "config", "remote.origin.url", f"ext::{trap(tmp_path)} %S")
    git(evil, "config", "protocol.ext.allow", "always")
    loose = evil / ".git" / "objects" / blob[:2] / blob[2:]
    loose.chmod(stat.S_IRUSR | stat.S_IWUSR)
    loose.unlink()
    assert bring(tmp_path / "tree", mirrors) == 14
    assert not ran(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("filter.x.smudge", "{trap}"),
        ("filter.x.clean", "{trap}"),
        ("filter.x.process", "{trap}"),
        ("core.fsmonitor", "{trap}"),
        ("core.hooksPath", "{folder}"),
        ("core.sshCommand", "{trap}"),
        ("core.alternateRefsCommand", "{trap}"),
        ("diff.x.textconv", "{trap}"),
        ("diff.external", "{trap}"),
        ("include.path", "{folder}/included"),
        ("includeIf.gitdir:/.path", "{folder}/included"),
        ("url.ext::{trap}.insteadOf", "https://github.com/"),
        ("extensions.worktreeConfig", "true"),
        ("extensions.partialClone", "origin"),
        ("submodule.third_party/fmt.update", "!{trap}"),
        ("credential.helper", "!{trap}"),
        ("core.gitProxy", "{trap}"),
    ],
)
def test_the_configuration_of_an_existing_tree_is_not_obeyed(
    mirrors: Path, tmp_path: Path, key: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tree that someone handed over, with our own mark in it: its git is as foreign as any."""
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    folder = tmp_path / "hooks"
    folder.mkdir()
    shutil.copy(trap(tmp_path), folder / "post-checkout")
    (folder / "included").write_text(f'[filter "x"]\n\tclean = {trap(tmp_path)}\n', encoding="utf-8")
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n", encoding="utf-8")
    names = {"trap": trap(tmp_path), "folder": str(folder)}
    git(root, "config", "--file", str(root / ".git" / "config"), key.format(**names), value.format(**names))
    for path in ("CMakeLists.txt", "version.txt"):
        os.utime(root / path, (1, 1))
    (root / "android" / "big.bin").unlink()
    capsys.readouterr()
    assert bring(root, mirrors) == BadInput.exit_code
    assert not ran(tmp_path)
    assert key.split(".")[0].lower() in capsys.readouterr().err.lower()


def test_the_same_in_a_submodule(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    inner = root / ".git" / "modules" / "third_party" / "fmt"
    git(root, "config", "--file", str(inner / "config"), "filter.x.smudge", trap(tmp_path))
    (inner / "info").mkdir(exist_ok=True)
    (inner / "info" / "attributes").write_text("* filter=x\n", encoding="utf-8")
    (root / "third_party" / "fmt" / "include" / "fmt.h").unlink()
    assert bring(root, mirrors) == BadInput.exit_code
    assert not ran(tmp_path)


def test_a_plain_clone_with_ordinary_settings_is_welcome(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(mirrors / "pytorch"), str(root))
    git(root, "checkout", "-q", "--detach", "v1.13.0")
    git(root, "config", "user.name", "me")
    git(root, "config", "core.autocrlf", "input")
    assert bring(root, mirrors) == 0


def test_a_tree_of_another_user_is_not_worked_on(mirrors: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("UNVERIFIED: only root can give a folder away")
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    os.chown(root / ".git", 12345, 12345)
    assert bring(root, mirrors) == BadInput.exit_code
    assert bring(tmp_path / "copy", root, "--from") == 0, "read as objects it may be anyone's"


@pytest.mark.parametrize("name", [".git", ".git/objects", ".git/modules", ".git/config", ".git/info"])
def test_git_folders_that_are_links_are_refused(mirrors: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    moved = tmp_path / "elsewhere"
    if not (root / name).exists():
        (root / name).mkdir()
    (root / name).rename(moved)
    (root / name).symlink_to(moved)
    (root / "android" / "big.bin").unlink()
    before = trees.fingerprint(moved) if moved.is_dir() else {}
    assert bring(root, mirrors) == BadInput.exit_code
    assert (trees.fingerprint(moved) if moved.is_dir() else {}) == before


def test_a_bare_repository_with_the_tag_is_a_source(mirrors: Path, tmp_path: Path) -> None:
    bare = tmp_path / "anything.git"
    git(tmp_path, "clone", "-q", "--bare", str(mirrors / "pytorch"), str(bare))
    found = Mirrors(bare).tag("https://github.com/pytorch/pytorch.git", "v1.13.0", tmp_path / "x")
    assert found == git(mirrors / "pytorch", "rev-parse", "v1.13.0^{commit}")


def test_a_tag_that_is_not_the_release_is_refused(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(request, "known_commit", lambda release: "d" * 40)
    assert bring(tmp_path / "tree", mirrors) == BadInput.exit_code
    assert "dddddddddddd" in capsys.readouterr().err


# --- nothing outside -------------------------------------------------------------------------------------------------


def link(target: str) -> tuple[bytes, str]:
    return tarfile.SYMTYPE, target


@pytest.mark.parametrize(
    "members",
    [
        # Each is inside by its letters alone; together they lead out.
        [("p/a/b/c/x", "x"), ("p/l", link("a/b/c")), ("p/s", link("l/../../../..")), ("p/evil", link("s/outside"))],
        [("p/x/y/z/f", "x"), ("p/x/y/z/s", link("../../..")), ("p/t", link("x/y/z/s/.."))],
        [("p/t", link("later/../..")), ("p/deep/er/f", "x"), ("p/later", link("deep/er"))],
        [("p/.rekindle/patches/next", link("../../version.txt"))],
        [("p/.rekindle/lock", "x")],
        [("p/.REKINDLE/lock", "x")],
        [("p/.git/config", "[core]\n")],
        [("p/loop", link("pool")), ("p/pool", link("loop"))],
    ],
)
def test_link_chains_and_our_own_folder_are_refused(
    tmp_path: Path, members: list[tuple[str, str | tuple[bytes, str]]]
) -> None:
    path = make_tarball(tmp_path / "evil.tar.gz", [("p/version.txt", "2.0.0a0\n"), *members])
    before = trees.fingerprint(tmp_path)
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "tree")]) == BadInput.exit_code
    assert trees.fingerprint(tmp_path) == before


def test_a_link_within_the_tree_is_kept(tmp_path: Path) -> None:
    members: list[tuple[str, str | tuple[bytes, str]]] = [
        ("p/version.txt", "2.0.0a0\n"), ("p/a/f.h", "int f;\n"), ("p/b/f.h", link("../a/f.h")), ("p/c", link("b")),
    ]  # fmt: skip
    path = make_tarball(tmp_path / "good.tar.gz", members)
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "tree")]) == 9
    assert (tmp_path / "tree" / "c" / "f.h").read_text() == "int f;\n"


def test_a_tarball_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MB became 2.1 GB: size, number of members and ratio have limits of their own."""
    zeros = make_tarball(tmp_path / "zeros.tar.gz", [("p/version.txt", "2.0.0a0\n"), ("p/zeros", "\0" * 30_000_000)])
    assert zeros.stat().st_size < 100_000
    words = ["source", "--torch", "2.0.1", "-o", str(tmp_path / "tree"), "--from"]
    assert run([*words, str(zeros)]) == BadInput.exit_code
    monkeypatch.setattr(tarball, "MOST_MEMBERS", 10)
    many = make_tarball(
        tmp_path / "many.tar.gz", [("p/version.txt", "2.0.0a0\n"), *((f"p/{n}", "x") for n in range(10))]
    )
    assert run([*words, str(many)]) == BadInput.exit_code
    monkeypatch.setattr(tarball, "MOST_BYTES", 100)
    large = make_tarball(tmp_path / "large.tar.gz", [("p/version.txt", "2.0.0a0\n"), ("p/f", "x" * 200)])
    assert run([*words, str(large)]) == BadInput.exit_code
    assert not (tmp_path / "tree").exists()


def raw(name: str, kind: bytes, body: bytes = b"") -> bytes:
    """A member as it lies in the file: tarfile itself would write no chain of headers."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body)
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)


RELEASE = raw("p/version.txt", tarfile.REGTYPE, b"2.0.0a0\n")
KEYS = b"".join(b"12 k%05d=v\n" % n for n in range(20_000))


@pytest.mark.parametrize(
    "members",
    [
        # Each header is read within the one before it: Python's own recursion limit ended that.
        raw("x", tarfile.GNUTYPE_LONGNAME, b"p/a\0") * 3000,
        raw("x", tarfile.XHDTYPE, b"12 path=p/a\n") * 3000,
        (raw("x", tarfile.XGLTYPE, KEYS) + raw("p/d", tarfile.DIRTYPE)) * 20,
        b"".join(raw(f"p/{n}", tarfile.REGTYPE) for n in range(3000)),
        b"".join(raw(f"p/{n}/{'d/' * 30}f", tarfile.REGTYPE) for n in range(100)),
        raw(".", tarfile.DIRTYPE) * 3000,
    ],
    ids=["long names", "pax headers", "pax keys", "empty files", "deep folders", "dots"],
)
def test_a_small_tarball_cannot_take_long(tmp_path: Path, members: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(gzip.compress(RELEASE + members + raw("p/last", tarfile.REGTYPE) + bytes(1024), 1))
    begun = time.process_time()
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "tree")]) == BadInput.exit_code
    assert time.process_time() - begun < pace.seconds(1 + path.stat().st_size / 10e6)
    assert "this is not a release" in (said := capsys.readouterr().err) or "headers" in said
    assert not (tmp_path / "tree").exists()


# --- the journal of patches ------------------------------------------------------------------------------------------


def patched(root: Path) -> int:
    return run(["patch", str(root), "--torch", "1.13.1", "--os", "windows", "--only", "distutils-vcenv"])


def test_the_journal_follows_no_link(tmp_path: Path) -> None:
    root = trees.pytorch(tmp_path / "tree")
    victim = tmp_path / "victim"
    victim.write_text("precious\n", encoding="utf-8")
    folder = root / ".rekindle" / "patches"
    folder.mkdir(parents=True)
    (folder / "next").symlink_to(victim)
    patched(root)
    assert victim.read_text(encoding="utf-8") == "precious\n"
    assert not victim.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("name", [".rekindle", ".rekindle/patches", ".rekindle/patches/originals"])
@pytest.mark.parametrize("verb", ["patch", "source"])
def test_a_state_folder_that_is_a_link_is_refused(mirrors: Path, tmp_path: Path, name: str, verb: str) -> None:
    root = trees.pytorch(tmp_path / "tree")
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(outside)
    code = patched(root) if verb == "patch" else bring(root, mirrors)
    assert code == BadInput.exit_code
    assert not list(outside.iterdir())


@pytest.mark.parametrize("name", ["lock", ".gitignore", "source.json", "patches/journal.json"])
def test_a_state_file_that_is_a_link_writes_nothing_there(mirrors: Path, tmp_path: Path, name: str) -> None:
    root = trees.pytorch(tmp_path / "tree")
    victim = tmp_path / "victim"
    victim.write_text("precious\n", encoding="utf-8")
    place = root / ".rekindle" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(victim)
    patched(root)
    bring(root, mirrors)
    assert victim.read_text(encoding="utf-8") == "precious\n"
