"""Other people's shelves as a route: by address, by key, and by nothing that is not signed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rekindle.core import paths, signing
from rekindle.core.errors import ChecksFailed, RekindleError
from rekindle.install import command
from rekindle.install.shelf_offers import Shelves, on_shelves, require_signed
from rekindle.machine.python.environment import find
from rekindle.stack.route import Route
from rekindle.wheels.shelf import index, serve, shelf, store
from support import torch_like
from support.command import rekindle_command

CODE = {"torch/lib/libkernels.so": (("sm_35", "sm_50"),)}
K40 = ("--gpu", "Tesla K40c", "--os", "linux", "--driver", "470.256.02")


class Friend:
    """Somebody with a shelf, a server and a key."""

    def __init__(self, folder: Path, address: str, key: str) -> None:
        self.folder, self.address, self.key = folder, address, key


@pytest.fixture
def friend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Friend]:
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "friend.pem"))
    monkeypatch.setenv("REKINDLE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("REKINDLE_SHELF", raising=False)
    # The last list of each address is kept there, and a port that is free again is somebody else's.
    monkeypatch.setattr("rekindle.core.paths.data_folder", tmp_path.joinpath("data").joinpath)
    key = signing.make_key()
    folder = tmp_path / "friends"
    shelf.add(folder, [torch_like.wheel(tmp_path / "in", libraries=CODE)])
    monkeypatch.setenv("REKINDLE_KEY", str(tmp_path / "mine.pem"))
    with serve.server(folder, "127.0.0.1", 0) as address:
        yield Friend(folder, address, str(key.public))


def _recommended(*words: str) -> tuple[str, str | None]:
    seen = rekindle_command("plan", *K40, *words, "--json")
    route = seen.json()["recommended"]
    return route["route"], route.get("location")


def test_a_friends_wheel_is_a_route(friend: Friend, tmp_path: Path) -> None:
    route, location = _recommended("--shelf", friend.address, "--trust", friend.key)
    wheel = next((friend.folder / "wheels").glob("*.whl"))
    assert route == "shelf"
    assert location is not None
    assert location.startswith(f"{friend.address}/wheels/torch-2.7.1%2Bcu118-")
    assert location.endswith(f"#sha256={shelf.entries(friend.folder)[0].sha256}")
    assert wheel.name in shelf.entries(friend.folder)[0].file
    out = tmp_path / "plan.toml"
    rekindle_command("plan", *K40, "--shelf", friend.address, "--trust", friend.key, "-o", str(out))
    assert shelf.entries(friend.folder)[0].sha256 in out.read_text(encoding="utf-8")


def test_without_the_key_it_is_none_and_said(friend: Friend) -> None:
    seen = rekindle_command("plan", *K40, "--shelf", friend.address, "--json")
    assert seen.json()["recommended"]["route"] != "shelf"
    assert "do not trust; if you know the owner, name the public key with `--trust`" in seen.err


@pytest.mark.parametrize("slash", ["", "/", "/simple/"])
def test_the_configuration_file_names_shelf_and_key(friend: Friend, tmp_path: Path, slash: str) -> None:
    text = f'[[shelf]]\naddress = "{friend.address}{slash}"\nkey = "{friend.key}"\n'
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    assert _recommended()[0] == "shelf"


def test_the_variable_names_addresses(friend: Friend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_SHELF", f"{friend.address} {friend.address}/x")
    assert _recommended("--trust", friend.key)[0] == "shelf"


def test_a_wrong_configuration_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_CONFIG", str(tmp_path / "config.toml"))
    for text in ('[[shelf]]\nadress = "x"\n', "nonsense", '[[shelf]]\naddress = "x"\nkey = "abc"\n'):
        (tmp_path / "config.toml").write_text(text, encoding="utf-8")
        with pytest.raises(RekindleError):
            on_shelves(Shelves())


def _sign(friend: Friend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "friend.pem"))
    index.sign_listing(friend.folder)
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "mine.pem"))


def _listed(friend: Friend) -> int:
    return len(on_shelves(Shelves(addresses=(friend.address,), trust=(friend.key,))))


def test_a_changed_list_is_refused(friend: Friend, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever serves it could take the mark off a wheel that its owner withdrew."""
    listing = friend.folder / "shelf.json"
    shelf.yank(friend.folder, shelf.entries(friend.folder)[0].file, "wrong numbers")
    listing.write_text(listing.read_text(encoding="utf-8").replace("wrong numbers", "-"), encoding="utf-8")
    assert (_listed(friend), "is not the one that was signed" in capsys.readouterr().err) == (0, True)


def test_an_older_list_is_refused(
    friend: Friend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (friend.folder / name).read_bytes() for name in ("shelf.json", "shelf.dsse.json")}
    monkeypatch.setattr(index.time, "time", lambda: 4_000_000_000.0)
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "friend.pem"))
    shelf.yank(friend.folder, shelf.entries(friend.folder)[0].file, "wrong numbers")
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "mine.pem"))
    assert _listed(friend) == 0
    for name, data in before.items():
        (friend.folder / name).write_bytes(data)
    assert (_listed(friend), "older than the one you saw last" in capsys.readouterr().err) == (0, True)


def test_a_list_that_ended_is_refused(
    friend: Friend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(index, "_VALID", timedelta(days=-1))
    _sign(friend, monkeypatch)
    assert (_listed(friend), "was good until" in capsys.readouterr().err) == (0, True)


def test_a_list_without_a_signature_is_refused(friend: Friend, capsys: pytest.CaptureFixture[str]) -> None:
    (friend.folder / "shelf.dsse.json").unlink()
    assert (_listed(friend), "is not signed" in capsys.readouterr().err) == (0, True)


def test_an_exchanged_wheel_is_not_installed(friend: Friend) -> None:
    """The hash of a wheel is known from the day it was added, also on a shelf that is a folder."""
    (offer,) = on_shelves(Shelves(addresses=(str(friend.folder),)))
    wheel = Path(str(offer.location))
    store.unchanged(wheel)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(ChecksFailed, match="is not the file that was added"):
        store.unchanged(wheel)


def test_facts_come_from_the_statement_not_from_the_listing(friend: Friend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that says something else of the GPU code, or swaps statements, changes nothing or is refused."""
    listing = friend.folder / "shelf.json"
    text = json.loads(listing.read_text(encoding="utf-8"))
    text["wheels"][0]["code"][0]["targets"] = {"sm_90": 1}
    listing.write_text(json.dumps(text), encoding="utf-8")
    _sign(friend, monkeypatch)
    (offer,) = on_shelves(Shelves(addresses=(friend.address,), trust=(friend.key,)))
    assert [str(target) for target in offer.targets] == ["sm_35", "sm_50"]
    text["wheels"][0]["sha256"] = "0" * 64
    listing.write_text(json.dumps(text), encoding="utf-8")
    _sign(friend, monkeypatch)
    assert _listed(friend) == 0
    text["wheels"][0]["file"] = "../../etc/passwd"
    listing.write_text(json.dumps(text), encoding="utf-8")
    _sign(friend, monkeypatch)
    assert on_shelves(Shelves(addresses=(friend.address,), trust=(friend.key,))) == ()


def test_the_statement_of_another_file_revives_nothing(
    friend: Friend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever serves a shelf put the statement of a withdrawn wheel beside one that is not, and it was offered."""
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "friend.pem"))
    shelf.add(friend.folder, [torch_like.wheel(tmp_path / "old", libraries=CODE, version="2.6.0+cu118")])
    new, old = sorted((each.file for each in shelf.entries(friend.folder)), reverse=True)
    shelf.yank(friend.folder, new, "wrong numbers")
    monkeypatch.setenv("REKINDLE_KEY", str(friend.folder.parent / "mine.pem"))
    wheels = friend.folder / "wheels"
    shutil.copy(wheels / f"{new}.dsse.json", wheels / f"{old}.dsse.json")
    assert (_listed(friend), "another file than the signed list" in capsys.readouterr().err) == (0, True)


def test_an_address_that_is_no_shelf(friend: Friend) -> None:
    seen = rekindle_command("plan", *K40, "--shelf", f"{friend.address}/nothing")
    assert (seen.code, "answered 404" in seen.err) == (7, True)
    down = rekindle_command("plan", *K40, "--shelf", "http://127.0.0.1:9/")
    assert down.code == 7


def test_require_signed(friend: Friend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = next((friend.folder / "wheels").glob("*.whl"))
    require_signed(wheel, (friend.key,))
    with pytest.raises(Exception, match="do not trust"):
        require_signed(wheel, ())
    own = Shelves(addresses=(str(friend.folder),), signed=True)
    assert on_shelves(own) == ()
    assert len(on_shelves(Shelves(addresses=(str(friend.folder),), trust=(friend.key,), signed=True))) == 1
    wheel.with_name(wheel.name + store.STATEMENT).unlink()
    with pytest.raises(Exception, match="no signed statement"):
        require_signed(wheel, (friend.key,))


@pytest.mark.skipif(os.name == "nt", reason="the wheel is one for Linux")
def test_what_is_installed_is_what_was_signed(friend: Friend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that was exchanged behind the check of its signature went in: no hash came with it to the installer."""
    wheel = next((friend.folder / "wheels").glob("*.whl"))
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.11.2\n", encoding="utf-8")
    monkeypatch.setattr(command.apply, "check", lambda *given: None)
    monkeypatch.setattr(command, "installer_of", lambda *given: None)
    seen: list[Route] = []
    monkeypatch.setattr(command.apply, "install", lambda environment, route, *rest, **more: seen.append(route))
    monkeypatch.setattr(command, "locate_environment", find)
    monkeypatch.setattr(command, "environment_notes", lambda *given: [])
    shelves = Shelves(trust=(friend.key,), signed=True)
    command.install(
        tmp_path / "env", command.InstallRequest(wheel=wheel, gpus=("Tesla K40c",), driver="470", shelves=shelves)
    )
    assert seen[0].hashes == {wheel.name: paths.sha256_of(wheel)}


def test_one_damaged_entry_does_not_stop_the_others(friend: Friend, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` ended with an error for everybody who used that shelf."""
    (friend.folder / "wheels" / f"torch-9.whl{store.ENTRY}").write_text("{", encoding="utf-8")
    assert len(on_shelves(Shelves(addresses=(str(friend.folder),)))) == 1
    assert "not considered: `torch-9.whl` on the shelf" in capsys.readouterr().err
