"""A stranger's repository, tree or tarball: nothing in it is run, nothing is written outside, nothing is followed."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import subprocess
import tarfile
import time
import zlib
from pathlib import Path

import pytest

from rekindle.cli.main import run
from rekindle.core import codec
from rekindle.core.errors import BadInput, FetchFailed, NotFound, Unverified
from rekindle.core.findings import State
from rekindle.extension import companions
from rekindle.formats.budget import Unpacking
from rekindle.knowledge.torch.releases import commit_of, patches
from rekindle.source import checkout, request, tree
from rekindle.source import git as source_git
from rekindle.source.git import Mirrors, Network
from rekindle.source.journal import PatchJournal
from rekindle.source.patches import made_by
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


@pytest.fixture(autouse=True)
def _of_our_own(monkeypatch: pytest.MonkeyPatch, _made: Path) -> None:
    """The release that these tests bring is not PyTorch's."""
    commit = git(_made / "pytorch", "rev-parse", "v1.13.0^{commit}")
    monkeypatch.setattr(request, "commit_of", lambda release: commit)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    repositories.project(folder)
    return folder


@pytest.fixture
def mirrors(tmp_path: Path, _made: Path) -> Path:
    return shutil.copytree(_made, tmp_path / "mirrors", symlinks=True)


def bring(root: Path, mirrors: Path, how: str = "--mirror") -> int:
    return run(["source", "--torch", "1.13.0", how, str(mirrors), "-o", str(root)])


def ran(tmp_path: Path) -> bool:
    return (tmp_path / "ran").exists()


def trap(tmp_path: Path, then: str = "cat") -> str:
    """A command that shows that it was run, and otherwise does what a filter does."""
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n{then}\n", encoding="utf-8")
    script.chmod(0o755)
    return str(script)


# --- code that must not run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--mirror", "--from"])
def test_a_missing_object_runs_no_command(
    mirrors: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial clone fetches what is missing from wherever its configuration says: `ext::` is any command."""
    evil = mirrors / "pytorch"
    git(evil, "config", "core.repositoryformatversion", "1")
    git(evil, "config", "extensions.partialClone", "origin")
    git(evil, "config", "remote.origin.promisor", "true")
    git(evil, "config", "remote.origin.url", f"ext::{trap(tmp_path)} %S")
    git(evil, "config", "protocol.ext.allow", "always")
    monkeypatch.setattr(request, "commit_of", lambda release: "1" * 40)
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


@pytest.mark.long
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
    mirrors: Path, tmp_path: Path, key: str, value: str
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
    assert bring(root, mirrors) == 0
    assert not ran(tmp_path)
    assert (root / "android" / "big.bin").read_text(encoding="utf-8") == "x\n"


def test_the_same_in_a_submodule(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    inner = root / ".git" / "modules" / "third_party" / "fmt"
    git(root, "config", "--file", str(inner / "config"), "filter.x.smudge", trap(tmp_path))
    (inner / "info").mkdir(exist_ok=True)
    (inner / "info" / "attributes").write_text("* filter=x\n", encoding="utf-8")
    (root / "third_party" / "fmt" / "include" / "fmt.h").unlink()
    assert bring(root, mirrors) == 0
    assert not ran(tmp_path)
    assert (root / "third_party" / "fmt" / "include" / "fmt.h").read_text(encoding="utf-8") == "int fmt;\n"


def test_a_fetch_does_not_go_on_into_submodules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git fetch` runs in every submodule whose commit is new, and obeys what `sub/.git` says about ssh."""
    monkeypatch.setitem(source_git._SHUT, "GIT_ALLOW_PROTOCOL", "file:ssh")
    inner = repositories.repository(tmp_path / "fmt", {"fmt.h": "int fmt;\n"})
    url = (tmp_path / "fmt").as_uri()
    served = tmp_path / "served"
    repositories.repository(served, {"version.txt": "1.12.0a0\n"}, {"sub": (url, inner)})
    root = tmp_path / "tree"
    git(tmp_path, "clone", "-q", str(served), str(root))
    git(tmp_path, "clone", "-q", str(tmp_path / "fmt"), str(root / "sub"))
    git(tmp_path / "fmt", "commit", "-q", "--allow-empty", "-m", "newer")
    newer = git(tmp_path / "fmt", "rev-parse", "HEAD")
    git(served, "update-index", "--cacheinfo", f"160000,{newer},sub")
    git(served, "commit", "-qm", "the release")
    git(served, "tag", "v1.13.0")
    commit = git(served, "rev-parse", "HEAD")
    git(root / "sub", "config", "core.sshCommand", trap(tmp_path, "exit 1"))
    git(root / "sub", "config", "remote.origin.url", "ssh://nowhere.invalid/x")
    git(root, "config", "fetch.recurseSubmodules", "true")
    git(root, "config", "submodule.sub.url", url)
    mark(root, commit)
    monkeypatch.chdir(root)
    with pytest.raises(BadInput, match="a folder of its own"):
        checkout.assemble(root, checkout.WantedTree(release="1.13.0", url=served.as_uri()), Network())
    assert not ran(tmp_path)
    assert git(root / "sub", "rev-parse", "HEAD") == inner


def test_a_zero_byte_in_the_configuration_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To git, which is written in C, the name ends at the zero byte: `remote.URL.uploadpack`, a command."""
    monkeypatch.setitem(source_git._SHUT, "GIT_ALLOW_PROTOCOL", "file")
    served = tmp_path / "served"
    commit = repositories.repository(served, {"version.txt": "1.13.0a0\n"})
    git(served, "tag", "v1.13.0")
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init", "-q")
    command = trap(tmp_path, "exit 1")
    with (root / ".git" / "config").open("ab") as stream:
        stream.write(f'[remote "{served.as_uri()}.uploadpack\0"]\n\turl = {command}\n'.encode())
    mark(root, commit)
    checkout.assemble(root, checkout.WantedTree(release="1.13.0", url=served.as_uri()), Network())
    assert not ran(tmp_path)
    assert (root / "version.txt").exists()


def test_the_folder_one_stands_in_is_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.sshCommand", trap(tmp_path, "exit 1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(FetchFailed):
        Network().tag("ssh://nowhere.invalid/x", "v1.13.0")
    assert not ran(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["smudge", "clean", "process"])
def test_a_tree_does_not_start_the_users_own_filters(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """git-lfs is in the configuration of many: `.gitattributes` would start it on whatever a stranger wrote."""
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f'[filter "lfs"]\n\t{name} = {trap(tmp_path)}\n', encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    (root / ".gitattributes").write_text("* filter=lfs\n", encoding="utf-8")
    (root / "android" / "big.bin").unlink()
    os.utime(root / "version.txt", (1, 1))
    assert bring(root, mirrors) == 0
    assert not ran(tmp_path)
    assert (root / "android" / "big.bin").read_text(encoding="utf-8") == "x\n"


def test_the_users_proxy_is_still_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[http]\n\tproxy = http://127.0.0.1:9\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    assert source_git.ask(["config", "http.proxy"]).out.strip() == "http://127.0.0.1:9"
    assert source_git.call(["config", "http.proxy"]).out == ""


# --- words that must not be believed ---------------------------------------------------------------------------------


def mark(root: Path, commit: str) -> None:
    (root / ".rekindle").mkdir(parents=True, exist_ok=True)
    text = codec.to_json(checkout.Mark(tag="v1.13.0", commit=commit))
    (root / ".rekindle" / "source.json").write_text(text, encoding="utf-8")


def test_a_tree_does_not_say_which_commit_the_release_is(mirrors: Path, tmp_path: Path) -> None:
    release = git(mirrors / "pytorch", "rev-parse", "v1.13.0^{commit}")
    mark(tmp_path / "tree", git(mirrors / "fmt", "rev-parse", "HEAD"))
    assert bring(tmp_path / "tree", mirrors) == 0
    assert git(tmp_path / "tree", "rev-parse", "HEAD") == release


def forge(repository: Path, path: str) -> None:
    """Other bytes under the name of a file's hash: git reads them without a look at the hash."""
    blob = git(repository, "rev-parse", f"HEAD:{path}")
    place = repository / ".git" / "objects" / blob[:2] / blob[2:]
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(zlib.compress(b"blob 5\0evil\n"))


def test_a_mirror_does_not_say_what_a_hash_is(
    mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(mirrors / "fmt", "include/fmt.h")
    assert bring(tmp_path / "tree", mirrors) == 14
    assert "not what their hashes say" in capsys.readouterr().err
    assert not (tmp_path / "tree" / "third_party" / "fmt" / "include" / "fmt.h").exists()


def test_a_tree_does_not_say_what_a_hash_is(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    for pack in (root / ".git" / "objects" / "pack").iterdir():
        pack.unlink()
    for loose in (mirrors / "pytorch" / ".git" / "objects").iterdir():
        shutil.copytree(loose, root / ".git" / "objects" / loose.name, dirs_exist_ok=True)
    forge(root, "android/big.bin")
    (root / "android" / "big.bin").unlink()
    assert bring(root, mirrors) == 0
    assert (root / "android" / "big.bin").read_text(encoding="utf-8") == "x\n"


def test_a_plain_clone_with_ordinary_settings_is_welcome(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(mirrors / "pytorch"), str(root))
    git(root, "checkout", "-q", "--detach", "v1.13.0")
    git(root, "config", "user.name", "me")
    git(root, "config", "core.autocrlf", "input")
    assert bring(root, mirrors) == 0


@pytest.mark.long
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


@pytest.mark.parametrize("name", ["hooks", "branches", "refs/heads", "objects/info", "logs"])
def test_nothing_is_handed_over_through_a_link(mirrors: Path, tmp_path: Path, name: str) -> None:
    """The samples of git's hooks were written to wherever `.git/hooks` led."""
    root, outside = tmp_path / "tree", tmp_path / "outside"
    assert bring(root, mirrors) == 0
    outside.mkdir()
    shutil.rmtree(root / ".git" / name, ignore_errors=True)
    (root / ".git" / name).symlink_to(outside)
    shutil.rmtree(root / ".git" / "objects" / "pack")
    bring(root, mirrors)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["info/alternates", "info/commit-graph", "pack/multi-pack-index", f"pack/pack-{'a' * 40}.idx", "ab/" + "1" * 38],
)
@pytest.mark.parametrize("how", ["--mirror", "--from"])
def test_git_waits_for_no_pipe_among_objects(mirrors: Path, tmp_path: Path, name: str, how: str) -> None:
    evil = mirrors / "pytorch"
    place = evil / ".git" / "objects" / name
    place.parent.mkdir(exist_ok=True)
    os.mkfifo(place)
    assert bring(tmp_path / "tree", evil if how == "--from" else mirrors, how) == 4


@pytest.mark.parametrize("line", ["//host/share/objects", "\\\\host\\share", '"//host/share"', "a\0b", "."])
def test_objects_are_borrowed_on_this_computer_only(mirrors: Path, tmp_path: Path, line: str) -> None:
    """Windows logs on to the host of a share before anything is read."""
    (mirrors / "pytorch" / ".git" / "objects" / "info" / "alternates").write_text(line + "\n", encoding="ascii")
    assert bring(tmp_path / "tree", mirrors) == 4


def test_a_clone_that_borrows_objects_is_welcome(mirrors: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(mirrors / "pytorch"), "borrowed")
    clone = tmp_path / "borrowed"
    assert source_git.has_commit(clone / ".git", git(clone, "rev-parse", "HEAD"))


def test_a_bare_repository_with_the_tag_is_a_source(mirrors: Path, tmp_path: Path) -> None:
    bare = tmp_path / "anything.git"
    git(tmp_path, "clone", "-q", "--bare", str(mirrors / "pytorch"), str(bare))
    found = Mirrors(bare).tag("https://github.com/pytorch/pytorch.git", "v1.13.0")
    assert found == git(mirrors / "pytorch", "rev-parse", "v1.13.0^{commit}")


def test_a_tag_that_is_not_the_release_is_refused(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    assert bring(tmp_path / "tree", mirrors) == NotFound.exit_code
    assert "7c98e70d44abc7a1aead68b6ea6c8adc8c554db5" in capsys.readouterr().err
    monkeypatch.setattr(request, "commit_of", lambda release: None)
    assert bring(tmp_path / "other", mirrors) == Unverified.exit_code
    assert "UNVERIFIED" in capsys.readouterr().err


def bomb(repository: Path) -> str:
    """Ten folders in ten folders, nine times over: a billion files in eleven objects."""
    name = git(repository, "hash-object", "-w", "version.txt")
    rows = [f"100644 blob {name}\tf{number}" for number in range(10)]
    for _ in range(10):
        made = subprocess.run(
            ["git", "mktree"], cwd=repository, input="\n".join(rows), text=True, capture_output=True, check=True
        )
        rows = [f"040000 tree {made.stdout.strip()}\td{number}" for number in range(10)]
    return git(repository, "commit-tree", "-m", "bomb", made.stdout.strip())


def test_a_tree_of_a_billion_files_is_not_listed(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = bomb(mirrors / "pytorch")
    monkeypatch.setattr(request, "commit_of", lambda release: commit)
    assert bring(tmp_path / "tree", mirrors) == BadInput.exit_code
    assert "too many files" in capsys.readouterr().err
    with pytest.raises(BadInput, match="too many files"):
        checkout.edited(mirrors / "pytorch", commit)


def test_a_tree_does_not_say_that_it_is_as_committed(mirrors: Path, tmp_path: Path) -> None:
    """git believes a folder's object by its name: one with other files in it made these look like the release's."""
    root = tmp_path / "tree"
    assert bring(root, mirrors) == 0
    commit = git(root, "rev-parse", "HEAD")
    assert checkout.edited(root, commit) == []
    for pack in (root / ".git" / "objects" / "pack").iterdir():
        pack.unlink()
    for loose in (mirrors / "pytorch" / ".git" / "objects").iterdir():
        shutil.copytree(loose, root / ".git" / "objects" / loose.name, dirs_exist_ok=True)
    (root / "android" / "big.bin").write_text("evil\n", encoding="utf-8")
    git(root, "add", "android/big.bin")
    evil, good = f"{git(root, 'write-tree')}:android", git(root, "rev-parse", "HEAD:android")
    shown = subprocess.run(["git", "cat-file", "tree", evil], cwd=root, capture_output=True, check=True).stdout
    place = root / ".git" / "objects" / good[:2] / good[2:]
    place.unlink()
    place.write_bytes(zlib.compress(b"tree %d\0" % len(shown) + shown))
    with pytest.raises(BadInput, match="not what their hashes say"):
        checkout.edited(root, commit)


@pytest.mark.parametrize("name", ["cmake-minimum", "no-such-patch"])
def test_a_journal_does_not_make_an_edit_a_patch(mirrors: Path, tmp_path: Path, name: str) -> None:
    """A stranger's tree brings its journal along: what a patch makes of a file is reckoned, not believed."""
    root, file = tmp_path / "tree", "CMakeLists.txt"
    assert bring(root, mirrors) == 0
    commit = git(root, "rev-parse", "HEAD")
    with PatchJournal.open(root) as journal:
        journal.exchange({file: (b"execute_process(COMMAND evil)\nproject(torch)\n", (name,))})
    assert checkout.edited(root, commit) == [file]
    old, raised = b"cmake_minimum_required(VERSION 3.1)\n", b"cmake_minimum_required(VERSION 3.5)\n"
    assert [raised] == list(made_by(["cmake-minimum"], file, old))


def test_a_companion_of_a_mirror_is_not_verified(mirrors: Path, tmp_path: Path) -> None:
    wanted = companions.companion_from_requirement("torchvision==0.14.0", "1.13.0")
    assert wanted is not None
    (mirrors / "pytorch").rename(mirrors / "vision")
    git(mirrors / "vision", "tag", "v0.14.0", "v1.13.0")
    _, (believed,) = companions.bring(wanted, tmp_path / "source", mirrors, lambda text: None)
    assert believed.state is State.UNVERIFIED


def test_every_release_has_its_commit() -> None:
    """Only the newest patch of each minor had one, and of five it was that of the wheel, not of the tag."""
    assert [torch for torch in patches() if commit_of(torch) is None] == []
    assert commit_of("2.7.0") == "134179474539648ba7dee1317959529fbd0e7f89"
    assert commit_of("2.6.0") == "1eba9b3aa3c43f86f4a2c807ac8e12c4a7767340"


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
    monkeypatch.setattr(request, "MOST_MEMBERS", 10)
    many = make_tarball(
        tmp_path / "many.tar.gz", [("p/version.txt", "2.0.0a0\n"), *((f"p/{n}", "x") for n in range(10))]
    )
    assert run([*words, str(many)]) == BadInput.exit_code
    monkeypatch.setattr(request, "MOST_BYTES", 100)
    large = make_tarball(tmp_path / "large.tar.gz", [("p/version.txt", "2.0.0a0\n"), ("p/f", "x" * 200)])
    assert run([*words, str(large)]) == BadInput.exit_code
    assert not (tmp_path / "tree").exists()


def test_a_release_may_have_more_folders_than_a_wheel() -> None:
    wheel = Unpacking("a.whl", 300 << 20)
    release = Unpacking("pytorch.tar.gz", 300 << 20, members=request.MOST_MEMBERS, most=request.MOST_BYTES)
    for number in range(30_000):
        release.folders(f"p/{number}/f")
    with pytest.raises(BadInput, match="20,000 folders"):
        for number in range(30_000):
            wheel.folders(f"p/{number}/f")


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


@pytest.mark.parametrize("name", [".git", "commondir"])
def test_a_tree_names_no_other_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """`gitdir: //host/share`: Windows logs on to that host."""
    place = tmp_path / ".git"
    if name == ".git":
        place.write_text("gitdir: //evil/share\n", encoding="utf-8")
    else:
        place.mkdir()
        (place / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
        (place / "commondir").write_text("\\\\evil\\share\n", encoding="utf-8")
    looked: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: (looked.append(str(path)), real(path, **how))[1])
    assert tree.head(tmp_path) is None
    assert not any("evil" in each for each in looked)
