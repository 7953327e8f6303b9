"""`rekindle source` on small real repositories. The whole of PyTorch is in tests/real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rekindle.cli.main import run
from rekindle.core import codec
from rekindle.core.errors import BadInput, NotFound, NotWritable, UsageError
from rekindle.knowledge.torch.releases import torch_releases
from rekindle.source import checkout, git, request
from rekindle.source.git import Mirrors, Network
from support import repositories, trees
from support.command import rekindle_program
from support.crashes import dies_before
from support.tarballs import Body, make_tarball

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="UNVERIFIED: git is not on this machine")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mirrors")
    repositories.project(folder)
    return folder


@pytest.fixture(autouse=True)
def _of_our_own(monkeypatch: pytest.MonkeyPatch, mirrors: Path) -> None:
    """The release that these tests bring is not PyTorch's."""
    commit = repositories.git(mirrors / "pytorch", "rev-parse", "v1.13.0^{commit}")
    monkeypatch.setattr(request, "commit_of", lambda release: commit)


@pytest.fixture
def bringing(mirrors: Path, tmp_path: Path) -> tuple[str, ...]:
    """The same for a process of its own: tables that know the commit of this release."""
    commit = repositories.git(mirrors / "pytorch", "rev-parse", "v1.13.0^{commit}")
    (row,) = (row for row in torch_releases() if str(row.minor) == "1.13")
    folder = tmp_path / "tables"
    folder.mkdir()
    told = {"releases": [{**codec.to_builtins(row), "commits": {"1.13.0": commit}}]}
    (folder / "torch_releases.json").write_text(json.dumps(told), encoding="utf-8")
    mirror = ("--mirror", str(mirrors), "-o", str(tmp_path / "tree"))
    return ("--knowledge", str(folder), "source", "--torch", "1.13.0", *mirror)


def files(root: Path) -> dict[str, str]:
    """The work tree without git's and our own bookkeeping."""
    return {
        path: body
        for path, body in trees.fingerprint(root).items()
        if not path.startswith((".git/", ".rekindle")) and path != ".git"
    }


def wanted(release: str = "1.13.0", **given: Any) -> checkout.WantedTree:
    return checkout.WantedTree(release=release, **given)


def assemble(root: Path, mirrors: Path) -> int:
    return run(["source", "--torch", "1.13.0", "--mirror", str(mirrors), "-o", str(root)])


def test_the_whole_tree_comes_from_mirrors_found_by_name(
    mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "tree"
    assert run(["source", "--torch", "1.13.0", "--mirror", str(mirrors), "-o", str(root), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    states = {one["path"]: one["state"] for one in answer["repositories"]}
    assert states == dict.fromkeys(
        [".", "third_party/fbgemm", "third_party/fbgemm/third_party/asmjit", "third_party/fmt"], "fetched"
    )
    assert (root / "third_party/fbgemm/third_party/asmjit/src/asm.h").read_text() == "int asm_;\n"
    assert repositories.git(root, "status", "--porcelain") == ""
    assert repositories.git(root, "describe", "--tags") == "v1.13.0"
    listed = repositories.git(root, "submodule", "status", "--recursive").splitlines()
    assert len(listed) == 3 and all(line.lstrip()[0] not in "-+U" for line in listed)


def test_a_second_run_finds_everything_present(
    mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assemble(tmp_path / "tree", mirrors)
    capsys.readouterr()
    run(["source", "--torch", "1.13.0", "--mirror", str(mirrors), "-o", str(tmp_path / "tree"), "--json"])
    assert {one["state"] for one in json.loads(capsys.readouterr().out)["repositories"]} == {"present"}


@pytest.mark.long
@pytest.mark.parametrize(
    "harm",
    [
        lambda root: (root / "third_party/fmt/include/fmt.h").unlink(),
        lambda root: shutil.rmtree(root / "third_party/fmt"),
        lambda root: shutil.rmtree(root / "third_party/fbgemm"),
        lambda root: (root / "third_party/fmt/.git").unlink(),
        lambda root: shutil.rmtree(root / ".git/modules/third_party/fmt"),
        lambda root: (root / "CMakeLists.txt").unlink(),
        lambda root: (root / ".git/modules/third_party/fmt/index").unlink(),
    ],
    ids=["a-file", "a-submodule", "with-a-nested-one", "its-link", "its-repository", "root-file", "index"],
)
def test_what_is_missing_is_repaired(mirrors: Path, tmp_path: Path, harm: object) -> None:
    root = tmp_path / "tree"
    assemble(root, mirrors)
    whole = files(root)
    harm(root)  # type: ignore[operator]
    assert assemble(root, mirrors) == 0
    assert files(root) == whole
    assert repositories.git(root, "status", "--porcelain") == ""


def test_a_submodule_at_another_commit_is_put_right(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    assemble(root, mirrors)
    whole = files(root)
    work = root / "third_party/fmt"
    (work / "include/fmt.h").write_text("other\n")
    repositories.git(work, "commit", "-qam", "other")
    assert assemble(root, mirrors) == 0
    assert files(root) == whole


def test_edited_files_are_left_as_they_are(mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "tree"
    assemble(root, mirrors)
    (root / "third_party/fmt/include/fmt.h").write_text("mine\n")
    capsys.readouterr()
    assert assemble(root, mirrors) == 0
    assert (root / "third_party/fmt/include/fmt.h").read_text() == "mine\n"
    assert "edited files were left as they are: third_party/fmt (1)" in capsys.readouterr().err


@pytest.mark.long
def test_interrupted_again_and_again_it_ends_the_same(mirrors: Path, tmp_path: Path, bringing: tuple[str, ...]) -> None:
    whole = tmp_path / "whole"
    assemble(whole, mirrors)
    root = tmp_path / "tree"
    command, environment = rekindle_program(*bringing)
    for number in range(4):  # ten times, with the whole of PyTorch, in tests/real
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(timeout=0.3 + 0.2 * number)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == 0
    assert files(root) == files(whole)
    assert repositories.git(root, "status", "--porcelain") == ""


@pytest.mark.long
def test_killed_in_the_middle_of_a_file_it_leaves_nothing_in_the_tree(
    mirrors: Path, tmp_path: Path, bringing: tuple[str, ...]
) -> None:
    """The link of a submodule was half written when the run was killed: the half stayed in the tree for ever."""
    root = tmp_path / "tree"
    assert dies_before("third_party/fmt/.git", *bringing) == 77
    assert len(list((root / "third_party/fmt").glob("..git.*.part"))) == 1
    assert assemble(root, mirrors) == 0
    assert list(root.rglob(".*.part")) == []
    assert repositories.git(root, "status", "--porcelain") == ""


def test_a_mirror_that_lacks_a_commit_is_named(
    mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poor = tmp_path / "poor"
    shutil.copytree(mirrors, poor)
    shutil.rmtree(poor / "fmt")
    shutil.rmtree(poor / "asmjit")
    repositories.repository(poor / "asmjit", {"other": "x\n"})
    assert assemble(tmp_path / "tree", poor) == 14
    said = capsys.readouterr().err
    wanted = repositories.git(mirrors / "fmt", "rev-parse", "HEAD")
    assert f"has the commit {wanted} of `fmtlib/fmt`: no folder of that name is there" in said
    assert f"of `asmjit/asmjit`: `{poor / 'asmjit' / '.git'}` lacks it" in said
    # Everything else is there, and the same command goes on once the mirrors are whole.
    assert (tmp_path / "tree/third_party/fbgemm/fbgemm.h").exists()
    assert assemble(tmp_path / "tree", mirrors) == 0


def test_a_folder_can_be_left_out(mirrors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "tree"
    arguments = ["source", "--torch", "1.13.0", "--mirror", str(mirrors), "-o", str(root), "--json"]
    assert run([*arguments, "--without", "android", "--without", "third_party/fbgemm"]) == 0
    states = {one["path"]: one["state"] for one in json.loads(capsys.readouterr().out)["repositories"]}
    assert states["third_party/fbgemm"] == "left-out"
    assert not (root / "android").exists()
    assert repositories.git(root, "status", "--porcelain") in ("", " D third_party/fbgemm")
    assert run([*arguments, "--without", "../x"]) == 2


def test_a_folder_can_be_named_from_here(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-o pytorch`, as in the guides, and the folder without `-o`: git looked for them within themselves."""
    monkeypatch.chdir(tmp_path)
    arguments = ["source", "--torch", "1.13.0", "--mirror", os.path.relpath(mirrors)]
    for folder, more in (("pytorch", ["-o", "pytorch"]), ("pytorch-1.13.0", [])):
        assert run([*arguments, *more]) == 0, capsys.readouterr().err
        assert (tmp_path / folder / "third_party/fbgemm/fbgemm.h").exists()


def test_a_builds_copy_does_not_ask_for_what_was_left_out(mirrors: Path, tmp_path: Path) -> None:
    """PyTorch's setup.py stops at the first submodule of `.gitmodules` that is not there."""
    checkout.assemble(tmp_path / "tree", wanted(without=("third_party/fbgemm",)), Mirrors(mirrors))
    listed = tmp_path / "tree/.gitmodules"
    assert "third_party/fbgemm" in listed.read_text() and "third_party/fmt" in listed.read_text()
    checkout.forget_left_out(tmp_path / "tree")
    assert "third_party/fbgemm" not in listed.read_text()
    assert "path = third_party/fmt" in listed.read_text()
    asked_for = [tmp_path / "tree/third_party/fbgemm" / place for place in ("third_party", "external")]
    assert all((folder / "asmjit/CMakeLists.txt").is_file() for folder in asked_for), "2.7.1 and 2.11.0 stop without"
    once = listed.read_bytes()
    checkout.forget_left_out(tmp_path / "tree")
    assert listed.read_bytes() == once


def test_a_mirror_with_an_absent_file_says_which(mirrors: Path, tmp_path: Path) -> None:
    poor = tmp_path / "poor"
    shutil.copytree(mirrors, poor)
    blob = repositories.git(poor / "pytorch", "rev-parse", "v1.13.0:android/big.bin")
    path = poor / "pytorch/.git/objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.unlink()
    with pytest.raises(NotFound, match=r"absent, e\.g\. `android/big\.bin`"):
        checkout.assemble(tmp_path / "tree", wanted(), Mirrors(poor))
    whole = checkout.assemble(tmp_path / "tree", wanted(without=("android",)), Mirrors(poor))
    assert len(whole.repositories) == 4


def test_a_clone_with_its_submodules_is_a_source_too(mirrors: Path, tmp_path: Path) -> None:
    assemble(tmp_path / "first", mirrors)
    arguments = ["source", "--torch", "1.13.0", "--from", str(tmp_path / "first"), "-o", str(tmp_path / "second")]
    assert run(arguments) == 0
    assert files(tmp_path / "second") == files(tmp_path / "first")


def test_the_network_way_fetches_one_commit_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git's own protocol, over file:// addresses: the same code as for https."""
    monkeypatch.setitem(git._SHUT, "GIT_ALLOW_PROTOCOL", "file")
    served = tmp_path / "served"
    commit = repositories.project(served, base=(tmp_path / "by-owner").as_uri())
    for owner, name in (("asmjit", "asmjit.git"), ("pytorch", "fbgemm"), ("fmtlib", "fmt.git")):
        target = tmp_path / "by-owner" / owner / name
        original = "FBGEMM" if name == "fbgemm" else name.removesuffix(".git")
        shutil.copytree(served / original, target)
    root = tmp_path / "tree"
    found = checkout.assemble(root, wanted("v1.13.0", url=(served / "pytorch").as_uri()), Network())
    assert found.commit == commit
    assert (root / "third_party/fbgemm/third_party/asmjit/src/asm.h").exists()
    assert repositories.git(root, "rev-list", "--count", "HEAD") == "1"
    with pytest.raises(NotFound, match=r"has no tag `v9\.9\.9`"):
        checkout.assemble(tmp_path / "other", wanted("9.9.9", url=(served / "pytorch").as_uri()), Network())


def test_somebody_elses_folder_is_not_touched(mirrors: Path, tmp_path: Path) -> None:
    root = tmp_path / "mine"
    trees.write(root, {"thesis.tex": "years of work\n"})
    with pytest.raises(NotWritable, match="not empty"):
        checkout.assemble(root, wanted(), Mirrors(mirrors))
    assert (root / "thesis.tex").read_text() == "years of work\n"


def test_the_users_own_git_configuration_is_not_written(
    mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    own.write_text("[user]\n\tname = me\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    assemble(tmp_path / "tree", mirrors)
    assert own.read_text() == "[user]\n\tname = me\n"
    assert repositories.git(tmp_path / "tree", "config", "--local", "core.longpaths") == "true"


@pytest.mark.parametrize(
    ("root", "fault"),
    [
        (r"C:\Users\Jo Doe\pytorch", "has a space"),
        ("C:\\Users\\J\u00f6rg\\pytorch", "outside ASCII"),
        ("C:\\" + "deep\\" * 20, "characters long"),
    ],
)
def test_a_root_that_breaks_windows_builds_is_refused_with_a_short_one(root: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as refused:
        checkout.check_root(root, system="windows", longest=180)
    assert r"C:\pt" in str(refused.value.hint)
    checkout.check_root(root, system="linux", longest=180)
    checkout.check_root(r"C:\pt", system="windows", longest=180)


def test_too_little_space_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(NotWritable, match="GB free"):
        checkout.check_space(tmp_path / "not" / "yet", 10_000_000)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("../../evil", "https://x/y"),
        ("a/.git/hooks", "https://x/y"),
        ("a", "--upload-pack=touch x"),
        ("a", "ext::sh -c x"),
    ],
)
def test_hostile_gitmodules_are_refused(tmp_path: Path, path: str, url: str) -> None:
    folder = tmp_path / "evil"
    repositories.repository(folder, {"f": "x\n"}, {"a": ("https://x/y", "1" * 40)})
    text = f'[submodule "{path}"]\n\tpath = a\n\turl = {url}\n'
    (folder / ".gitmodules").write_text(text)
    repositories.git(folder, "add", ".gitmodules")
    repositories.git(folder, "commit", "-qm", "evil")
    commit = repositories.git(folder, "rev-parse", "HEAD")
    with pytest.raises(BadInput):
        git.pins(folder / ".git", commit, parent_url="https://x/z")


@pytest.mark.parametrize(
    ("url", "parent", "expected"),
    [
        ("../fmt.git", "https://github.com/pytorch/pytorch.git", "https://github.com/pytorch/fmt.git"),
        ("../../a/b", "https://github.com/pytorch/pytorch.git", "https://github.com/a/b"),
        ("https://x/y", "https://github.com/pytorch/pytorch.git", "https://x/y"),
    ],
)
def test_relative_addresses(url: str, parent: str, expected: str) -> None:
    assert git.absolute(url, parent) == expected


# --- tarballs --------------------------------------------------------------------------------------------------------


GOOD: dict[str, Body] = {
    "pytorch-v2.0.1/version.txt": "2.0.0a0\n",
    "pytorch-v2.0.1/.gitmodules": '[submodule "f"]\n  path = third_party/f\n[submodule "g"]\n  path = third_party/g\n',
    "pytorch-v2.0.1/third_party/f/f.h": "int f;\n",
    "pytorch-v2.0.1/link.h": (tarfile.SYMTYPE, "third_party/f/f.h"),
}


def test_a_tarball_with_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib

    path = make_tarball(tmp_path / "pytorch-v2.0.1.tar.gz", GOOD.items())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    root = tmp_path / "tree"
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "--sha256", "0" * 64, "-o", str(root)]) == 7
    assert not root.exists()
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "--sha256", digest, "-o", str(root), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sha256"] == digest and answer["empty"] == ["third_party/g"]
    assert (root / "link.h").read_text() == "int f;\n"
    # Without a hash it is unpacked, but said not to be verified.
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "other")]) == 9
    assert f"UNVERIFIED: its SHA-256 is {digest}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "member",
    [
        {"../evil": "x"},
        {"/etc/evil": "x"},
        {"p/../../evil": "x"},
        {"other/evil": "x"},
        {"p/link": (tarfile.SYMTYPE, "../../outside")},
        {"p/link": (tarfile.SYMTYPE, "/etc/passwd")},
        {"p/d": (tarfile.SYMTYPE, "."), "p/d/evil": "x"},
        {"p/hard": (tarfile.LNKTYPE, "/etc/passwd")},
        {"p/dev": (tarfile.CHRTYPE, "")},
        {"p/version.txt": "2.0.0a0\n"},
        {"p\\..\\evil": "x"},
    ],
)
def test_hostile_tarballs_leave_nothing_behind(tmp_path: Path, member: dict[str, Body]) -> None:
    path = make_tarball(tmp_path / "evil.tar.gz", [("p/version.txt", "2.0.0a0\n"), *member.items()])
    before = trees.fingerprint(tmp_path)
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "tree")]) == 4
    assert trees.fingerprint(tmp_path) == before


def test_a_truncated_tarball_leaves_nothing_behind(tmp_path: Path) -> None:
    path = make_tarball(tmp_path / "p.tar.gz", GOOD.items())
    path.write_bytes(path.read_bytes()[:-60])
    assert run(["source", "--torch", "2.0.1", "--from", str(path), "-o", str(tmp_path / "tree")]) == 4
    assert not (tmp_path / "tree").exists()
