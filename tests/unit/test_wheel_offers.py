"""One wheel, one identity, one offer: `plan`, `install --wheel`, `inspect` and the shelf say the same of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from rekindle.core.errors import ChecksFailed, NoRoute, RekindleError
from rekindle.core.version import Version
from rekindle.install import command
from rekindle.install.command import wheel_offer
from rekindle.install.shelf_offers import Shelves, on_shelves
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.model.environment import Environment
from rekindle.model.wheel import WheelIdentity
from rekindle.stack.situation import situation_from_options
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.shelf import shelf
from support import torch_like
from support.command import rekindle_command

KEPLER = (("sm_35", "sm_50"), ("sm_35", "sm_50"))
HALF = (("sm_35", "sm_50"), ("sm_50", "sm_60"))
LIBRARY = "torch/lib/libkernels.so"


def _shelved(folder: Path, wheel: Path) -> None:
    shelf.add(folder, [wheel])


def test_a_wheel_newer_than_the_tables_stops_neither_plan_nor_install(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    _shelved(root, torch_like.wheel(tmp_path / "a", libraries={LIBRARY: KEPLER}))
    _shelved(root, torch_like.wheel(tmp_path / "b", libraries={LIBRARY: KEPLER}, version="9.9.0+cu118"))
    _shelved(root, torch_like.wheel(tmp_path / "c", libraries={LIBRARY: KEPLER}, version="2.7.0+cu999", cuda="99.9"))
    seen = rekindle_command(
        "plan", "--gpu", "Tesla K40c", "--os", "linux", "--driver", "470.256.02", "--shelf", str(root), "--json"
    )
    assert seen.code == 0, seen.err
    assert seen.json()["recommended"]["route"] == "shelf"
    assert "not considered: `torch-9.9.0+cu118-" in seen.err
    assert "not considered: `torch-2.7.0+cu999-" in seen.err
    assert [offer.torch for offer in on_shelves(Shelves(addresses=(str(root),)))] == ["2.7.1"]


def test_a_wheel_of_another_system_is_refused(tmp_path: Path) -> None:
    wheel = torch_like.wheel(tmp_path, libraries={"torch/lib/torch_cuda.dll": KEPLER}, tag="cp311-cp311-win_amd64")
    with pytest.raises(ChecksFailed, match="is for windows on x86_64; this is linux on x86_64"):
        wheel_offer(wheel, situation_from_options(["Tesla K40c"], system="linux"))
    with pytest.raises(ChecksFailed, match="linux on aarch64"):
        wheel_offer(wheel, situation_from_options(["Tesla K40c"], system="linux", machine="aarch64"))
    assert wheel_offer(wheel, situation_from_options(["Tesla K40c"], system="windows")).pythons == ("3.11",)


@pytest.mark.parametrize("libraries", [{LIBRARY: HALF}, {LIBRARY: KEPLER, "torch/lib/libtorch_cuda_linalg.so": HALF}])
def test_what_inspect_calls_partial_is_not_installed(
    tmp_path: Path, libraries: dict[str, tuple[tuple[str, ...], ...]]
) -> None:
    wheel = torch_like.wheel(tmp_path, libraries=libraries)
    assert [card.coverage for card in inspect(wheel, cards=["sm_35"]).cards] == [Coverage.PARTIAL]
    with pytest.raises(ChecksFailed, match="PARTIAL"):
        wheel_offer(wheel, situation_from_options(["sm_35"], system="linux"))
    assert wheel_offer(wheel, situation_from_options(["sm_50"], system="linux")).torch == "2.7.1"


def test_the_wheel_that_was_named_is_installed_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the recommended route took the place of a wheel that was rejected."""
    here = Environment(
        root=str(tmp_path),
        os="windows" if os.name == "nt" else "linux",
        kind="venv",
        python=Version("3.11.9"),
        site_packages=(str(tmp_path),),
        interpreter="python",
        has_headers=True,
        pip="24.0",
    )
    monkeypatch.setattr(command, "locate_environment", lambda where: here)
    old = msgspec.structs.replace(
        situation_from_options(["GTX 1080 Ti"], system="linux", driver="470.57"), glibc=Version("2.17")
    )
    monkeypatch.setattr(command, "_situation", lambda *given: old)
    wheel = torch_like.wheel(tmp_path, libraries={LIBRARY: (("sm_61", "sm_50"),)})
    with pytest.raises(NoRoute, match=r"glibc 2\.28"):
        command.install(None, command.InstallRequest(wheel=wheel, dry_run=True))
    new = msgspec.structs.replace(old, glibc=Version("2.31"))
    monkeypatch.setattr(command, "_situation", lambda *given: new)
    assert command.install(None, command.InstallRequest(wheel=wheel, dry_run=True)).commands == (
        f"python -m pip install {_quoted(wheel)}",
    )


def _quoted(path: Path) -> str:
    """The test's own folder may have a space in it."""
    return f'"{path}"' if " " in str(path) else str(path)


def test_the_shelf_writes_the_glibc_that_a_wheel_needs(tmp_path: Path) -> None:
    _shelved(tmp_path / "shelf", torch_like.wheel(tmp_path, libraries={LIBRARY: KEPLER}))
    (offer,) = on_shelves(Shelves(addresses=(str(tmp_path / "shelf"),)))
    assert offer.glibc == Version("2.28")
    assert offer.wheel is not None and offer.wheel.tags == ("cp311-cp311-manylinux_2_28_x86_64",)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"project": "demo", "libraries": {"demo/x.so": KEPLER}}, "is not torch"),
        ({"libraries": {}}, "CPU build"),
        ({"libraries": {LIBRARY: KEPLER}, "tag": "cp311-cp311-macosx_11_0_x86_64"}, "another platform"),
    ],
)
def test_what_cannot_be_an_offer_says_why(tmp_path: Path, made: dict[str, object], said: str) -> None:
    wheel = torch_like.wheel(tmp_path, **made)  # type: ignore[arg-type]
    with pytest.raises(RekindleError, match=said):
        wheel_offer(wheel, situation_from_options(["sm_35"], system="linux"))


def test_everything_that_speaks_of_a_wheel_has_its_identity(tmp_path: Path) -> None:
    wheel = torch_like.wheel(tmp_path, libraries={LIBRARY: KEPLER})
    _shelved(tmp_path / "shelf", wheel)
    (entry,) = shelf.entries(tmp_path / "shelf")
    (offer,) = on_shelves(Shelves(addresses=(str(tmp_path / "shelf"),)))
    read = inspect(wheel)
    for name in WheelIdentity.__struct_fields__:
        values = [getattr(each, name) for each in (read, entry, offer.wheel)]
        assert values[0] == values[1] == values[2], name


@pytest.mark.parametrize(
    ("tags", "system", "machine", "pythons", "glibc"),
    [
        (("cp311-cp311-win_amd64",), "windows", "x86_64", ("3.11",), None),
        (("cp39-abi3-manylinux2014_aarch64",), "linux", "aarch64", ("3.9",), "2.17"),
        (("cp313-cp313t-linux_x86_64",), "linux", "x86_64", ("3.13t",), None),
        (("py3-none-any",), None, None, (), None),
        (("cp310-cp310-macosx_11_0_arm64",), None, None, ("3.10",), None),
    ],
)
def test_tags_tell_the_platform(
    tags: tuple[str, ...], system: str | None, machine: str | None, pythons: tuple[str, ...], glibc: str | None
) -> None:
    wheel = WheelIdentity(tags=tags)
    assert (wheel.system, wheel.machine, wheel.pythons) == (system, machine, pythons)
    assert wheel.oldest_glibc == (Version(glibc) if glibc else None)


def test_a_file_is_no_shelf(tmp_path: Path) -> None:
    place = tmp_path / "notes.txt"
    place.write_text("x", encoding="utf-8")
    for words in (("shelf", "list"), ("shelf", "find", "--gpu", "sm_35"), ("plan", "--gpu", "sm_61")):
        seen = rekindle_command(*words, "--shelf", str(place))
        assert (seen.code, "is a file, not a shelf" in seen.err) == (2, True), words


def test_an_entry_of_version_0_1_is_still_read(tmp_path: Path) -> None:
    """It had no tags, no build and no time; the file name tells the first."""
    root = tmp_path / "shelf"
    wheel = torch_like.wheel(tmp_path / "in", libraries={LIBRARY: KEPLER})
    _shelved(root, wheel)
    place = root / "wheels" / f"{wheel.name}.shelf.json"
    text = json.loads(place.read_text(encoding="utf-8"))
    old = (
        "file", "sha256", "size", "project", "version", "metadata_sha256", "requires_python", "torch", "cuda", "cudnn",
        "python", "platform", "glibc", "state", "checked_on", "code",
    )  # fmt: skip
    place.write_text(json.dumps({name: text[name] for name in old}), encoding="utf-8")
    (offer,) = on_shelves(Shelves(addresses=(str(root),)))
    assert (offer.system, offer.machine, offer.pythons, str(offer.cuda)) == ("linux", "x86_64", ("3.11",), "11.8")
    seen = rekindle_command("shelf", "list", "--shelf", str(root), "--json")
    assert seen.json()["wheels"][0]["file"] == wheel.name
