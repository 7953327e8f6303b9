"""The scripts that write the tables: what they read decides what they write, and the next release is rehearsed."""

# ruff: noqa: F811 - fixtures are imported
from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from rekindle.knowledge import tables
from support.command import rekindle_command
from support.observing import METADATA, copy, index, observe, publish, toolkit  # noqa: F401 - fixtures
from tools.observe import difference, gpus

pytestmark = pytest.mark.long

NEW = "2.16.0"


def test_a_deleted_table_comes_back_from_what_was_read_and_follows_its_bytes(
    index: tuple[Path, str],
    copy: Path,
    tmp_path: Path,
) -> None:
    folder, url = index
    publish(folder, "cuda-toolkit", toolkit("12.6.3", "12.6.4.1.*"))
    place = copy / "cuda" / "toolkit_packages.json"
    place.unlink()
    tape = tmp_path / "tape"
    assert observe(copy, "toolkit_packages", "--tape", str(tape), url=url).returncode == 0
    first = json.loads(place.read_text(encoding="utf-8"))["toolkits"]
    assert first[0]["components"] == {"cublas": ["nvidia-cublas-cu12==12.6.4.1.*"]}
    place.unlink()
    shutil.rmtree(folder / "cuda-toolkit")
    assert observe(copy, "toolkit_packages", "--tape", str(tape), url=url).returncode == 0
    assert json.loads(place.read_text(encoding="utf-8"))["toolkits"] == first
    ranges = next(path for path in tape.iterdir() if path.suffix == ".ranges")
    data = ranges.read_bytes()
    assert b"12.6.4.1" in data
    ranges.write_bytes(data.replace(b"12.6.4.1", b"12.6.4.2"))
    place.unlink()
    done = observe(copy, "toolkit_packages", "--tape", str(tape), url=url)
    changed = json.loads(place.read_text(encoding="utf-8"))["toolkits"] if done.returncode == 0 else None
    # A byte changed in a member no longer agrees with its checksum: the script stops, or the row is another.
    assert changed != first


@pytest.mark.parametrize(
    ("listed", "chip"),
    [
        *(("TU117GLM", "TU117"), ("TU117BM", "TU117"), ("GK208BM", "GK208B"), ("GK110BGL", "GK110B")),
        *(("GA107SM", "GA107"), ("GK208B", "GK208B"), ("GM20B", "GM20B"), ("GM108M", "GM108")),
    ],
)
def test_the_chip_is_what_remains_without_the_letters_of_the_board(listed: str, chip: str) -> None:
    assert gpus.plain_chip(listed, {"TU117", "GK208", "GK208B", "GK110", "GK110B", "GA107", "GM108"}) == chip


def test_a_row_that_vanished_stops_the_script(index: tuple[Path, str], copy: Path) -> None:
    folder, url = index
    publish(folder, "cuda-toolkit", toolkit("12.6.3", "12.6.4.1.*"))
    place = copy / "cuda" / "toolkit_packages.json"
    before = place.read_bytes()
    done = observe(copy, "toolkit_packages", url=url)
    assert done.returncode == 3
    assert "gone: version 13.0.0" in done.stdout
    assert place.read_bytes() == before
    assert observe(copy, "toolkit_packages", "--accept", url=url).returncode == 0
    assert place.read_bytes() != before


def test_a_changed_capability_stops_the_script() -> None:
    row = {"name": "GH999", "capability": "9.0", "architecture": "Hopper"}
    found = difference.compare("gpu/chips.json", {"chips": [row]}, {"chips": [row | {"capability": "9.1"}]})
    assert found.stops == ["another capability: name GH999"]
    card = {"name": "X", "capability": "9.0", "chip": "GH999"}
    found = difference.compare("gpu/gpus.json", {"gpus": [card]}, {"gpus": [card | {"capability": "9.1"}]})
    assert any(line.startswith("another capability: name X") for line in found.stops)
    same = difference.compare("gpu/gpus.json", {"gpus": [card]}, {"gpus": [card | {"source": "else"}]})
    assert str(same) == "0 new, 0 changed, 0 gone"


def test_the_next_release_and_a_new_card_are_taken_up_by_the_maintainers_commands(
    index: tuple[Path, str],
    copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, url = index
    about = f"__version__ = '{NEW}'\ncuda = '13.2'\ngit_version = 'abc123'\n"
    more = "Requires-Python: >=3.11\nRequires-Dist: nvidia-cudnn-cu13==9.30.0.7; platform_system == 'Linux'\n"
    inside = {
        "torch/version.py": about,
        f"torch-{NEW}.dist-info/METADATA": METADATA.format(name="torch", version=NEW, more=more),
    }
    platforms = ("manylinux_2_28_x86_64", "win_amd64")
    names = [f"torch-{NEW}-cp31{minor}-cp31{minor}-{tag}.whl" for minor in (2, 3) for tag in platforms]
    publish(folder, "torch", dict.fromkeys(names, inside))
    done = observe(copy, "torch_releases", url=url)
    assert done.returncode == 0, done.stderr
    assert "+ minor 2.16" in done.stdout
    pci = tmp_path / "pci.ids"
    pci.write_text(
        "10de  NVIDIA Corporation\n\tfeed  GB202 [GeForce RTX 9090]\n\tfade  GB202 [Reserved Dev ID A]\n10df  Emulex\n",
        encoding="utf-8",
    )
    listed = tmp_path / "supported-gpus.json"
    listed.write_text(json.dumps({"chips": [{"devid": "0xFEED", "name": "NVIDIA GeForce RTX 9090"}]}), encoding="utf-8")
    stopped = observe(copy, "gpus", str(pci), str(listed))
    assert stopped.returncode == 3
    assert "gone: name GeForce GTX 1080 Ti" in stopped.stdout
    done = observe(copy, "gpus", str(pci), str(listed), "--accept")
    assert done.returncode == 0, done.stderr
    assert "+ name GeForce RTX 9090, capability 12.0, chip GB202" in done.stdout
    assert "1 new, 0 changed" in done.stdout
    bundle = tmp_path / "bundle.zip"
    assert observe(copy, "bundle", str(bundle)).returncode == 0
    monkeypatch.setenv("REKINDLE_UPDATES", str(tmp_path / "updates"))
    tables.forget()
    try:
        assert rekindle_command("knowledge", "update", str(bundle)).code == 0
        card = rekindle_command("gpu", "rtx 9090", "--json").json()
        assert (card["name"], card["compute_capability"]) == ("GeForce RTX 9090", "12.0")
        words = ("--torch", NEW, "--os", "linux", "--python", "3.12", "--json")
        plan = rekindle_command("plan", "--gpu", "rtx 9090", *words)
        assert plan.code == 0, plan.err
        route = plan.json()["recommended"]
        assert route["torch"] == NEW
        assert route["variant"] == "cu132"
        assert route["evidence"] == "notes"
    finally:
        monkeypatch.delenv("REKINDLE_UPDATES")
        tables.forget()
