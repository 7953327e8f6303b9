"""The shelf loses nothing, tells builds apart, and sees whatever was changed in it."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from rekindle.core import codec, console, files, signing
from rekindle.core.errors import BadInput, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.model.card import Capability
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.shelf import health, provenance, shelf, store
from rekindle.wheels.shelf.provenance import BuildFacts
from rekindle.wheels.shelf.store import ShelvedWheel
from support import small_wheels, torch_like
from support.command import rekindle_command
from support.crashes import dies_before
from support.shelves import pure_wheel

LINUX = ("cp311-cp311-manylinux_2_28_x86_64",)
MANY = ("sm_50", "sm_52", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_121")


def _extension(folder: Path, *targets: str, torch: str, cuda: str, cpu: str = "") -> Path:
    """An extension as a build leaves it: version 1.0, whatever it was built for, the CUDA in torch's pin."""
    return torch_like.wheel(
        folder,
        project="ext",
        version=f"1.0+cu{cuda.replace('.', '')}",
        libraries={f"ext/kernels{cpu}.fatbin": (targets,)},
        metadata=f"Requires-Dist: torch=={torch}\n",
        tag="cp311-cp311-linux_x86_64",
    )


@pytest.mark.parametrize(
    ("wheel", "cuda", "expected"),
    [
        (
            WheelIdentity(version="1.0", tags=LINUX, targets={"sm_35": 1}, torch="2.0.1"),
            "11.8",
            "1.0+cu118.sm35.torch20",
        ),
        (
            WheelIdentity(version="1.0", tags=LINUX, targets={"sm_75": 2, "compute_75": 1}, torch="2.7.1", cpu="v3"),
            "13.0",
            "1.0+cu130.sm75.torch27.x86v3",
        ),
        (WheelIdentity(version="1.0", tags=LINUX, targets={"compute_90": 1}), "12", "1.0+cu12.ptx90"),
        (WheelIdentity(version="1.0+cu118", tags=LINUX, targets={"sm_35": 1}), "11.8", "1.0+cu118.sm35"),
        (
            WheelIdentity(project="torch", version="2.7.1+cu118", tags=LINUX, targets={"sm_35": 1}),
            "11.8",
            "2.7.1+cu118",
        ),
        (WheelIdentity(project="torch", version="2.7.1", tags=LINUX, targets={"sm_35": 1}), "11.8", "2.7.1+cu118.sm35"),
        (
            WheelIdentity(version="1.0", tags=LINUX, targets=dict.fromkeys(MANY, 1), torch="2.7.1"),
            "13.0",
            "1.0+cu130.sm50to121.torch27",
        ),
        (WheelIdentity(version="1.0", tags=("py3-none-any",)), None, "1.0"),
        (WheelIdentity(version="1.0", tags=LINUX), None, "1.0"),
    ],
)
def test_the_label_says_what_the_tags_cannot(wheel: WheelIdentity, cuda: str | None, expected: str) -> None:
    assert shelf.labelled(wheel, Version(cuda) if cuda else None) == expected


def test_a_relabelled_wheel_is_whole(tmp_path: Path) -> None:
    files = {
        "demo/__init__.py": b"x = 1\n",
        "demo-1.0.data/scripts/demo": b"#!python\n",
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n\nVersion: in the text\n",
        "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = small_wheels.make(tmp_path, files, name="demo-1.0-py3-none-any.whl")
    made = shelf.relabel(wheel, "1.0+cu118.sm35", tmp_path / "out")
    assert made.name == "demo-1.0+cu118.sm35-py3-none-any.whl"
    small_wheels.check_record(made)
    with zipfile.ZipFile(made) as zipped:
        text = zipped.read("demo-1.0+cu118.sm35.dist-info/METADATA")
        assert b"\nVersion: 1.0+cu118.sm35\n" in text and text.endswith(b"Version: in the text\n")
        assert "demo-1.0+cu118.sm35.data/scripts/demo" in zipped.namelist()
    target = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(made),
    ]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def test_builds_of_one_release_lie_side_by_side(tmp_path: Path) -> None:
    """One extension for two cards, two CUDAs and two torches: `find` names exactly one for each question."""
    root = tmp_path / "shelf"
    builds = [
        _extension(tmp_path / "a", "sm_35", torch="2.0.1", cuda="11.8"),
        _extension(tmp_path / "b", "sm_75", torch="2.0.1", cuda="11.8"),
        _extension(tmp_path / "c", "sm_75", torch="2.9.1", cuda="13.0"),
    ]
    shelf.add(root, builds)
    versions = sorted(entry.version for entry in shelf.entries(root))
    assert versions == ["1.0+cu118.sm35.torch20", "1.0+cu118.sm75.torch20", "1.0+cu130.sm75.torch29"]
    asked = {("3.5", "2.0"): 0, ("7.5", "2.0.1"): 1, ("7.5", "2.9"): 2}
    for (card, torch), number in asked.items():
        fitting = shelf.find(root, [Capability.parse(card)], project="ext", python="3.11")
        assert versions[number] in [found.version for found in fitting]
        seen = rekindle_command(
            "shelf", "find", "ext", "--gpu", f"sm_{card.replace('.', '')}", "--torch", torch, "--shelf", str(root)
        )
        assert f" ext=={versions[number]}\n" in seen.err
    assert rekindle_command("shelf", "find", "--gpu", "sm_35", "--torch", "2.9", "--shelf", str(root)).code == 5


def test_another_build_of_the_same_name_is_refused_or_kept(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    first, second = pure_wheel(tmp_path / "a"), pure_wheel(tmp_path / "b", body="# later\n")
    shelf.add(root, [first])
    shelf.add(root, [first])
    with pytest.raises(UsageError, match="another build"):
        shelf.add(root, [second])
    before = first.read_bytes()
    assert (root / "wheels" / first.name).read_bytes() == before
    assert rekindle_command("shelf", "add", str(second), "--replace", "--shelf", str(root)).code == 0
    assert (root / "wheels" / first.name).read_bytes() == second.read_bytes()
    (kept,) = (root / "replaced").glob(f"*/{first.name}")
    assert kept.read_bytes() == before
    assert rekindle_command("shelf", "verify", "--shelf", str(root)).code == 0


def test_what_is_removed_can_be_had_again(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    wheel = pure_wheel(tmp_path / "a")
    shelf.add(root, [wheel, pure_wheel(tmp_path / "a", version="2.0")])
    assert rekindle_command("shelf", "remove", "demo==9", "--shelf", str(root)).code == 14
    seen = rekindle_command("shelf", "remove", "demo==1.0", "--shelf", str(root), "--json").json()
    assert seen["removed"] == [wheel.name]
    assert [entry.version for entry in shelf.entries(root)] == ["2.0"]
    back = Path(seen["replaced"][0]) / wheel.name
    assert rekindle_command("shelf", "add", str(back), "--shelf", str(root)).code == 0
    assert len(shelf.entries(root)) == 2


def test_a_yanked_wheel_is_marked_and_not_found(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    wheel = pure_wheel(tmp_path / "a")
    shelf.add(root, [wheel])
    assert rekindle_command("shelf", "yank", wheel.name, "--reason", "bad", "--shelf", str(root)).code == 0
    page = json.loads((root / "simple/demo/index.json").read_text(encoding="utf-8"))
    assert page["files"][0]["yanked"] == "bad"
    assert 'data-yanked="bad"' in (root / "simple/demo/index.html").read_text(encoding="utf-8")
    assert shelf.find(root) == ()
    assert rekindle_command("shelf", "verify", "--shelf", str(root)).code == 0
    shelf.yank(root, wheel.name, None)
    assert len(shelf.find(root)) == 1


def test_a_folder_of_wheels_is_added_at_once(tmp_path: Path) -> None:
    for number in range(3):
        pure_wheel(tmp_path / "in", version=f"1.{number}")
    assert len(shelf.add(tmp_path / "shelf", [tmp_path / "in"])) == 3
    assert rekindle_command("shelf", "add", str(tmp_path / "shelf/simple"), "--shelf", str(tmp_path / "s")).code == 14


# -- tampering -------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "shelf"
    facts = BuildFacts(
        parameters={"torch": "2.7.1"},
        sources={"git+https://github.com/pytorch/pytorch": "a" * 40},
        patches={"p": "b" * 64},
    )
    shelf.add(place, [pure_wheel(tmp_path / "a")], shelf.Addition(build=facts))
    shelf.add(place, [pure_wheel(tmp_path / "a", version="2.0")])
    assert health.check(place, signed=True).state is State.PASS
    return place


def _file(root: Path, ending: str, version: str = "1.0") -> Path:
    return root / "wheels" / f"demo-{version}-py3-none-any.whl{ending}"


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _entry(root: Path, **changes: object) -> None:
    path = _file(root, store.ENTRY)
    entry = codec.from_json(path.read_bytes(), ShelvedWheel)
    path.write_text(codec.to_json(msgspec.structs.replace(entry, **changes)), encoding="utf-8")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _signed_by_a_stranger(root: Path) -> None:
    stranger = signing.make_key(root.parent / "stranger.pem")
    entry = codec.from_json(_file(root, store.ENTRY).read_bytes(), ShelvedWheel)
    mine = signing.own_key()
    assert mine is not None
    path = _file(root, store.STATEMENT)
    envelope = signing.read_envelope(path.read_bytes(), name="it")
    said = provenance.opened(envelope, [mine.public], name="it")
    path.write_text(codec.to_json(provenance.sign(stranger, entry, said.verification)), encoding="utf-8")


def _other_statement(root: Path) -> None:
    _file(root, store.STATEMENT).write_bytes(_file(root, store.STATEMENT, "2.0").read_bytes())


def _payload(root: Path) -> None:
    path = _file(root, store.STATEMENT)
    envelope = json.loads(path.read_text(encoding="utf-8"))
    envelope["payload"] = json.loads(_file(root, store.STATEMENT, "2.0").read_text(encoding="utf-8"))["payload"]
    path.write_text(json.dumps(envelope), encoding="utf-8")


def _all_of_the_other(root: Path) -> None:
    """The newer wheel under the older one's name, entry and index fitting: only the statement can tell."""
    newer = _file(root, "", "2.0")
    _file(root, "").write_bytes(newer.read_bytes())
    other = codec.from_json(_file(root, store.ENTRY, "2.0").read_bytes(), ShelvedWheel)
    _entry(root, sha256=other.sha256, size=other.size, metadata_sha256=other.metadata_sha256)
    _file(root, store.METADATA).write_bytes(_file(root, store.METADATA, "2.0").read_bytes())


TAMPERINGS: dict[str, Callable[[Path], object]] = {
    "wheel changed": lambda root: _flip(_file(root, "")),
    "wheel cut short": lambda root: _file(root, "").write_bytes(_file(root, "").read_bytes()[:-10]),
    "wheel gone": lambda root: _file(root, "").unlink(),
    "wheel exchanged with its entry": _all_of_the_other,
    "report changed": lambda root: _edit(_file(root, store.REPORT), "UNVERIFIED", "PASS"),
    "entry says PASS": lambda root: _entry(root, state=State.PASS),
    "entry says it ran on a card": lambda root: _entry(root, checked_on=("Tesla K40c (3.5)",)),
    "metadata changed": lambda root: _edit(
        _file(root, store.METADATA), "Name: demo", "Name: demo\nRequires-Dist: evil"
    ),
    "statement gone": lambda root: _file(root, store.STATEMENT).unlink(),
    "statement of another wheel": _other_statement,
    "payload exchanged": _payload,
    "signature changed": lambda root: _edit(_file(root, store.STATEMENT), '"sig": "', '"sig": "AAAA'),
    "statement is rubbish": lambda root: _file(root, store.STATEMENT).write_text("{}", encoding="utf-8"),
    "signed by an unknown key": _signed_by_a_stranger,
    "index names another hash": lambda root: _edit(root / "simple/demo/index.html", "sha256=", "sha256=0"),
    "a wheel slipped in": lambda root: pure_wheel(root / "wheels", version="3.0"),
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_whatever_is_changed_is_found(root: Path, how: str) -> None:
    TAMPERINGS[how](root)
    mine = signing.own_key()
    assert mine is not None
    seen = rekindle_command("shelf", "verify", "--trust", str(mine.public), "--shelf", str(root))
    assert (seen.code, "FAIL" in seen.out) == (8, True), how


def test_a_key_nobody_named_is_not_trusted(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same shelf on another machine: without the owner's key it proves nothing, with it everything."""
    owner = signing.own_key()
    assert owner is not None
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "another.pem"))
    assert rekindle_command("shelf", "verify", "--shelf", str(root)).code == 8
    (tmp_path / "owner.txt").write_text(str(owner.public), encoding="utf-8")
    assert rekindle_command("shelf", "verify", "--trust", str(tmp_path / "owner.txt"), "--shelf", str(root)).code == 0


def test_the_statement_is_in_toto_with_slsa_provenance(root: Path) -> None:
    import base64

    envelope = json.loads(_file(root, store.STATEMENT).read_text(encoding="utf-8"))
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert (statement["_type"], statement["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    entry = codec.from_json(_file(root, store.ENTRY).read_bytes(), ShelvedWheel)
    assert statement["subject"] == [{"name": entry.file, "digest": {"sha256": entry.sha256}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "a" * 40}
    assert definition["resolvedDependencies"][1] == {"name": "p", "digest": {"sha256": "b" * 64}}
    assert f'"{os.uname().nodename}"' not in json.dumps(statement) if hasattr(os, "uname") else True


def test_securesystemslib_verifies_the_statement_on_a_shelf(root: Path) -> None:
    mine = signing.own_key()
    assert mine is not None
    text = json.loads(_file(root, store.STATEMENT).read_text(encoding="utf-8"))
    envelope = OtherEnvelope.from_dict(copy.deepcopy(text))
    key = SSlibKey(mine.public.id, "ed25519", "ed25519", {"public": mine.public.raw.hex()})
    assert set(envelope.verify([key], 1)) == {mine.public.id}
    text["payload"] = json.loads(_file(root, store.STATEMENT, "2.0").read_text(encoding="utf-8"))["payload"]
    with pytest.raises(VerificationError):
        OtherEnvelope.from_dict(text).verify([key], 1)


# -- mending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: (root / "simple/demo/index.html").write_text("", encoding="utf-8"),
        lambda root: (root / "simple/index.json").unlink(),
        lambda root: _file(root, store.ENTRY).write_text("{", encoding="utf-8"),
        lambda root: _file(root, store.ENTRY).unlink(),
        lambda root: _file(root, store.METADATA).write_text("", encoding="utf-8"),
        lambda root: _file(root, "").unlink(),
    ],
)
def test_a_damaged_index_is_mended(root: Path, damage: Callable[[Path], object]) -> None:
    damage(root)
    assert health.check(root).state is State.FAIL
    assert rekindle_command("shelf", "mend", "--shelf", str(root)).code == 0
    assert health.check(root, signed=True).state is State.PASS


def test_a_wheel_of_many_cards_is_shelved_and_read_again(tmp_path: Path) -> None:
    """Its label was longer than an entry may say, and no command of the shelf could read the entry any more."""
    shelf.add(tmp_path / "shelf", [_extension(tmp_path, *MANY, torch="2.7.1", cuda="12.6")], shelf.Addition(run=False))
    (entry,) = shelf.entries(tmp_path / "shelf")
    assert entry.version == "1.0+cu126.sm50to121.torch27" and len(entry.targets) == len(MANY)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    wheel = torch_like.wheel(
        tmp_path, project="ext", version=f"1.0+{'a' * 120}", libraries={"ext/k.fatbin": (("sm_90",),)}
    )
    with pytest.raises(BadInput, match="is not a version of a package"):
        shelf.add(tmp_path / "shelf", [wheel], shelf.Addition(run=False))
    assert shelf.entries(tmp_path / "shelf") == ()


def test_an_entry_that_cannot_be_read_names_what_helps_and_that_does(root: Path) -> None:
    damaged = store.entry_files(root)[0]
    damaged.write_text(damaged.read_text(encoding="utf-8").replace('"version": "', '"version": "?'), encoding="utf-8")
    seen = rekindle_command("shelf", "list", "--shelf", str(root))
    assert seen.code == 4 and "shelf mend --shelf " in seen.err
    assert rekindle_command("shelf", "mend", "--shelf", str(root)).code == 0
    assert rekindle_command("shelf", "list", "--shelf", str(root)).code == 0


def test_mending_never_makes_a_changed_wheel_good(root: Path) -> None:
    _flip(_file(root, ""))
    assert rekindle_command("shelf", "mend", "--shelf", str(root)).code == 8
    assert [entry.version for entry in shelf.entries(root)] == ["2.0"]
    assert list((root / "replaced").glob("*/demo-1.0-py3-none-any.whl"))


def test_what_a_killed_run_left_is_named_and_mended(root: Path, tmp_path: Path) -> None:
    third = pure_wheel(tmp_path / "in", version="3.0")
    assert dies_before(third.name, "shelf", "add", str(third), "--shelf", str(root)) == 77
    (left,) = root.glob("rekindle-shelf-*")
    size = console.size(sum(path.stat().st_size for path in left.iterdir()))
    seen = rekindle_command("shelf", "verify", "--shelf", str(root), "--json")
    said = [each for each in seen.json()["findings"] if each["state"] == "WARN"]
    assert seen.code == 0 and len(said) == 1 and f"`{left.name}`" in said[0]["found"]
    seen = rekindle_command("shelf", "mend", "--shelf", str(root))
    assert seen.code == 0 and f"removed `{left.name}` ({size}), left by a run that was killed" in " ".join(
        seen.out.split()
    )
    assert not left.exists() and health.check(root, signed=True).state is State.PASS


def test_what_a_killed_run_left_is_gone_after_the_next(tmp_path: Path) -> None:
    wheel = pure_wheel(tmp_path / "in")
    words = ("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert dies_before(wheel.name, *words) == 77
    assert len(list((tmp_path / "shelf").glob("rekindle-shelf-*"))) == 1
    seen = rekindle_command(*words)
    assert (seen.code, "that a killed run had left\n" in seen.err) == (0, True)
    assert list((tmp_path / "shelf").glob("rekindle-shelf-*")) == []


def test_a_key_is_printed_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "k.pem"))
    first = rekindle_command("shelf", "key", "-o", str(tmp_path / "public.txt"))
    assert first.out.startswith("ed25519:")
    assert rekindle_command("shelf", "key").out == first.out
    assert signing.public_key(str(tmp_path / "public.txt")) == signing.PublicKey.parse(first.out)


def test_the_number_of_a_dead_writer_may_be_another_process_now(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        left = tmp_path / f".x.whl.{files._computer()}-{living.pid}-0123abcd-0.part"
        left.write_bytes(b"half")
        assert files.left_behind(tmp_path) == [], "it is being written"
        os.utime(left, (time.time() - 3600, time.time() - 3600))
        assert files.left_behind(tmp_path) == [left]
        living.communicate(b"\n")


def test_a_computer_has_one_number_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows `/proc` is read below the drive of the folder: a writer elsewhere was one of another computer."""
    here = files._computer.__wrapped__()
    monkeypatch.chdir(tmp_path)
    assert files._computer.__wrapped__() == here


def test_a_wheel_that_is_exchanged_meanwhile_is_not_the_one_shelved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was inspected, then hashed and copied: who wrote in between had one wheel judged and another one shelved."""
    good, other = pure_wheel(tmp_path / "in"), pure_wheel(tmp_path / "other", body="# another")
    wanted = hashlib.sha256(good.read_bytes()).hexdigest()
    inspect = shelf.inspect_with_code

    def then_exchanged(where: Path, *, hashed: bool) -> object:
        found = inspect(where, hashed=hashed)
        good.write_bytes(other.read_bytes())
        return found

    monkeypatch.setattr(shelf, "inspect_with_code", then_exchanged)
    (entry,) = shelf.add(tmp_path / "shelf", [good])
    assert entry.sha256 == wanted == hashlib.sha256((tmp_path / "shelf/wheels" / entry.file).read_bytes()).hexdigest()
    assert sorted(path.name for path in (tmp_path / "shelf").iterdir() if path.name[0] != ".") == [
        "index.html", "shelf.dsse.json", "shelf.json", "simple", "wheels",
    ]  # fmt: skip
