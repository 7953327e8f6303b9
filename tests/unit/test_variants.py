"""Wheel variants (PEP 817): labelled by what is in them, refused when they lie, indexed, and picked by real readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename

from rekindle.core import codec
from rekindle.core.errors import BadInput, ChecksFailed, UsageError
from rekindle.core.findings import State
from rekindle.core.version import Version
from rekindle.machine.model import FoundDriver, FoundGpu, Machine
from rekindle.machine.snapshot import Snapshot
from rekindle.model.card import Capability
from rekindle.model.wheel import read_name
from rekindle.wheels.inspect.identity import VariantFile
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.repair.slim import label
from rekindle.wheels.shelf import index, shelf
from rekindle.wheels.shelf.shelf import Addition
from support import small_wheels, torch_like
from support.command import rekindle_command

LINUX = "py3-none-manylinux_2_28_x86_64"


def _wheel(
    folder: Path, targets: Sequence[str], *more: Sequence[str], tag: str = LINUX, version: str = "1.0+cu126"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    code = {"gpudemo/code.so": tuple(tuple(each) for each in (targets, *more))}
    return torch_like.wheel(folder, libraries=code, version=version, tag=tag, project="gpudemo")


def _labelled(folder: Path, *targets: str, tag: str = LINUX) -> Path:
    done = label(_wheel(folder / "_".join(targets), targets, tag=tag), folder / "out")
    assert done.output is not None
    return done.output


def _said(wheel: Path) -> dict[str, tuple[str, ...]]:
    variant = inspect(wheel).variant
    assert variant is not None
    return variant.properties["nvidia"]


def _states(wheel: Path) -> list[State]:
    return [finding.state for finding in inspect(wheel).findings if finding.id == "variant"]


def _lying(wheel: Path, **features: list[str]) -> Path:
    """The same wheel with another promise under the same label."""
    name = read_name(wheel.name).label
    assert name is not None
    said = {"namespace": ["nvidia"]}
    text = {"default-priorities": said, "providers": {"nvidia": {}}, "variants": {name: {"nvidia": features}}}
    return _with_file(wheel, json.dumps(text).encode())


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def _with_file(wheel: Path, data: bytes) -> Path:
    info = "gpudemo-1.0+cu126.dist-info"
    files = {name: content for name, content in _contents(wheel).items() if not name.endswith("RECORD")}
    files[f"{info}/variant.json"] = data
    folder = wheel.parent / "lies"
    folder.mkdir(exist_ok=True)
    return small_wheels.make(folder, files, name=wheel.name)


@pytest.mark.parametrize(
    ("file", "plain", "expected"),
    [
        ("demo-1.0-py3-none-any.whl", "demo-1.0-py3-none-any.whl", None),
        ("demo-1.0-1-py3-none-any.whl", "demo-1.0-1-py3-none-any.whl", None),
        ("demo-1.0-py3-none-any-cu126.sm61.whl", "demo-1.0-py3-none-any.whl", "cu126.sm61"),
        ("demo-1.0-1a-py3-none-any-null.whl", "demo-1.0-1a-py3-none-any.whl", "null"),
    ],
)
def test_the_name_of_a_variant_is_that_of_a_wheel_and_a_label(file: str, plain: str, expected: str | None) -> None:
    name = read_name(file)
    assert (name.plain, name.label, name.project, name.version) == (plain, expected, "demo", "1.0")


@pytest.mark.parametrize("file", ["demo-1.0-py3-none-any-SM61.whl", "demo-1.0-1-py3-none-any-a-b.whl", "demo.whl"])
def test_what_is_no_name_stays_none(file: str) -> None:
    with pytest.raises(InvalidWheelFilename):
        read_name(file)


@pytest.mark.parametrize(
    ("containers", "arches", "least"),
    [
        ([("sm_61",), ("sm_61",)], ("61_real",), "12.0"),
        ([("sm_60", "sm_70"), ("sm_60", "sm_61", "sm_70")], ("60_real", "61_real", "70_real"), "12.0"),
        ([("sm_80", "sm_90"), ("sm_80",), ("sm_90",)], ("80_real", "90_real"), "12.0"),  # parts for one card only
        ([("sm_70", "compute_70")], ("70_real", "70_virtual"), "12.6"),  # PTX needs the driver of its own CUDA
        ([("sm_70", "sm_80", "compute_80"), ("sm_70", "sm_80")], ("70_real", "80_real"), "12.0"),  # not all have PTX
    ],
)
def test_a_label_promises_what_every_part_holds(
    containers: list[tuple[str, ...]], arches: tuple[str, ...], least: str, tmp_path: Path
) -> None:
    done = label(_wheel(tmp_path, *containers), tmp_path / "out")
    assert done.output is not None and len(read_name(done.output.name).label or "") <= 16
    small_wheels.check_record(done.output)
    assert _said(done.output) == {"sm_arch": arches, "cuda_version_lower_bound": (least,)}
    assert _states(done.output) == [State.PASS]


def test_what_no_card_can_be_promised_has_no_label(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no GPU code that a label could promise"):
        label(_wheel(tmp_path, ("sm_70",), ("sm_80",)), tmp_path / "out")


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"sm_arch": ["70_real"], "cuda_version_lower_bound": ["12.0"]}, "promises `70_real`"),
        ({"sm_arch": ["61_virtual"], "cuda_version_lower_bound": ["12.6"]}, "promises `61_virtual`"),
        ({"sm_arch": ["60_real"], "cuda_version_lower_bound": ["12.0"]}, "promises `60_real`"),
        ({"sm_arch": ["all"], "cuda_version_lower_bound": ["12.0"]}, "promises `all`"),
        ({"sm_arch": ["61_real"], "cuda_version_lower_bound": ["11.8"]}, "asks for a driver of CUDA 11.8"),
    ],
)
def test_a_lying_label_is_refused_by_inspect_and_by_the_shelf(
    features: dict[str, list[str]], said: str, tmp_path: Path
) -> None:
    wheel = _lying(_labelled(tmp_path, "sm_61"), **features)
    wrong = [finding.found for finding in inspect(wheel).findings if finding.state is State.FAIL]
    assert any(said in text for text in wrong)
    assert rekindle_command("inspect", str(wheel)).code == 8
    with pytest.raises(ChecksFailed, match="tags"):
        shelf.add(tmp_path / "shelf", [wheel], Addition(run=False))


@pytest.mark.parametrize(
    "features",
    [
        {"sm_arch": ["61_real"]},
        {"sm_arch": ["61_real"], "cuda_version_lower_bound": ["12.0"], "mood": ["good"]},
        {"sm_arch": ["61_real"], "cuda_version_lower_bound": ["soon"]},
    ],
)
def test_what_was_not_judged_is_unverified(features: dict[str, list[str]], tmp_path: Path) -> None:
    assert State.UNVERIFIED in _states(_lying(_labelled(tmp_path, "sm_61"), **features))


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"variants": {}}', b'{"variants": {"other": {}}}', b'{"variants": 3}'])
def test_a_label_that_cannot_be_read_is_a_failure(data: bytes, tmp_path: Path) -> None:
    wheel = _with_file(_labelled(tmp_path, "sm_61"), data)
    assert _states(wheel) == [State.FAIL]
    plain = wheel.rename(wheel.with_name(read_name(wheel.name).plain))
    assert _states(plain) == [State.FAIL]


def test_the_shelf_lists_the_variants_of_a_release_and_forgets_those_that_are_gone(tmp_path: Path) -> None:
    place = tmp_path / "shelf"
    wheels = [_labelled(tmp_path, target) for target in ("sm_61", "sm_70")]
    added = shelf.add(place, wheels, Addition(run=False))
    file = place / "wheels" / "gpudemo-1.0+cu126-variants.json"
    said = codec.from_json(file.read_bytes(), VariantFile)
    assert set(said.variants) == {"cu126.sm61", "cu126.sm70"}
    assert {entry.version for entry in added} == {"1.0+cu126"}
    page = (place / "simple" / "gpudemo" / "index.json").read_text(encoding="utf-8")
    assert "gpudemo-1.0+cu126-variants.json" in page and "cu126.sm61.whl" in page
    assert rekindle_command("shelf", "verify", "--shelf", str(place)).code == 0
    shelf.remove(place, [wheels[0].name])
    assert set(codec.from_json(file.read_bytes(), VariantFile).variants) == {"cu126.sm70"}
    shelf.remove(place, [wheels[1].name])
    assert not file.exists()


def test_the_shelf_says_whose_code_installers_will_run(tmp_path: Path) -> None:
    """The list of variants, which others' installers obey, named a stranger's package without a word."""
    good = _labelled(tmp_path, "sm_61")
    data = json.loads(_contents(good)["gpudemo-1.0+cu126.dist-info/variant.json"])
    data["providers"]["evil"] = {"requires": ["evil-pkg"], "plugin-api": "evil:run"}
    wheel = _with_file(good, json.dumps(data).encode())
    seen = rekindle_command("shelf", "add", str(wheel), "--shelf", str(tmp_path / "shelf"))
    assert "warning: installers run what its label names to ask for `evil`" in " ".join(seen.err.split())


def test_variants_that_disagree_are_refused(tmp_path: Path) -> None:
    first, second = shelf.add(
        tmp_path / "shelf", [_labelled(tmp_path, "sm_61"), _labelled(tmp_path, "sm_70")], Addition(run=False)
    )
    assert first.variant is not None
    other = msgspec.structs.replace(first.variant, providers={"nvidia": {"requires": ["another"]}})
    with pytest.raises(BadInput, match="disagree"):
        index.variants([msgspec.structs.replace(first, variant=other), second])


def test_the_command_writes_a_variant_and_refuses_what_it_does_not_use(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, ("sm_61",))
    seen = rekindle_command("repair", "--variant", str(wheel), "-o", str(tmp_path / "out"))
    assert (seen.code, "sm_arch :: 61_real" in seen.out) == (0, True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"gpudemo-1.0+cu126-{LINUX}-cu126.sm61.whl"]
    assert rekindle_command("repair", "--variant", str(wheel), "--gpu", "V100").code == 2


def _shelf(folder: Path) -> Path:
    """A shelf of one release for three cards, for this computer's own Python."""
    tag = f"py3-none-{next(sys_tags()).platform}"
    wheels = [_labelled(folder, target, tag=tag) for target in ("sm_61", "sm_70", "sm_90")]
    shelf.add(folder / "shelf", wheels, Addition(run=False))
    return folder / "shelf"


@pytest.mark.skipif(os.name == "nt", reason="the libraries in these wheels are ELF")
def test_uv_picks_the_variant_of_the_card(tmp_path: Path) -> None:
    place = _shelf(tmp_path)
    found = {}
    for card, driver in (("6.1", "12.2"), ("7.5", "12.8"), ("9.0", "12.8"), ("8.6", "12.8"), ("9.0", "11.8")):
        target = tmp_path / f"{card}-{driver}"
        command = [sys.executable, "-m", "uv", "pip", "install", "--preview-features", "wheel-variants", "--no-cache"]
        command += ["--no-config", "--target", str(target), "--index", (place / "simple").as_uri(), "--offline"]
        forced = {"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": card, "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": driver}
        env = os.environ | forced
        done = subprocess.run([*command, "gpudemo"], env=env, capture_output=True, text=True, check=False)
        if "nknown preview feature" in done.stderr:
            pytest.skip("this uv has no preview of wheel variants")
        found[card, driver] = _said(next(target.glob("*.dist-info")).parent)["sm_arch"] if done.returncode == 0 else ()
    assert found == {
        ("6.1", "12.2"): ("61_real",),
        ("7.5", "12.8"): ("70_real",),
        ("9.0", "12.8"): ("90_real",),
        ("8.6", "12.8"): (),
        ("9.0", "11.8"): (),
    }


_ASK = """
import json, sys
from variantlib.api import get_variants_by_priority
print(json.dumps([each.label for each in get_variants_by_priority(variants_json=json.load(sys.stdin))]))
"""


def _picked(place: Path, cards: Sequence[str], driver: str, folder: Path) -> list[str]:
    """The labels that variantlib takes with Rekindle's provider, the best first."""
    gpus = tuple(FoundGpu(name=card, capability=Capability.parse(card)) for card in cards)
    machine = Machine(os="linux", arch="x86_64", gpus=gpus, driver=FoundDriver(version=Version(driver)))
    snapshot = folder / "machine.json"
    snapshot.write_text(codec.to_json(Snapshot(machine=machine)), encoding="utf-8")
    said = json.loads((place / "wheels" / "gpudemo-1.0+cu126-variants.json").read_bytes())
    said["providers"]["nvidia"] = {"requires": ["rekindle-torch"], "plugin-api": "rekindle.wheels.variant_provider"}
    env = os.environ | {"REKINDLE_MACHINE": str(snapshot)}
    done = subprocess.run(
        [sys.executable, "-c", _ASK], input=json.dumps(said), env=env, capture_output=True, text=True, check=True
    )
    return [each for each in json.loads(done.stdout) if each != "null"]


@pytest.mark.skipif(os.name == "nt", reason="the libraries in these wheels are ELF")
def test_variantlib_picks_by_all_cards_and_the_driver(tmp_path: Path) -> None:
    pytest.importorskip("variantlib")
    place = _shelf(tmp_path)
    asked: dict[tuple[tuple[str, ...], str], list[str]] = {
        (("6.1",), "535.104.05"): ["cu126.sm61"],
        (("7.5",), "535.104.05"): ["cu126.sm70"],
        (("9.0",), "535.104.05"): ["cu126.sm90"],
        (("8.6",), "535.104.05"): [],
        (("9.0",), "470.57.02"): [],
        (("6.1", "9.0"), "535.104.05"): [],  # neither serves both
    }
    for (cards, driver), labels in asked.items():
        assert _picked(place, cards, driver, tmp_path) == labels


def test_variantlib_reads_the_labels(tmp_path: Path) -> None:
    dist_info = pytest.importorskip("variantlib.variant_dist_info")
    wheel = _labelled(tmp_path, "sm_61", "sm_70")
    data = _contents(wheel)["gpudemo-1.0+cu126.dist-info/variant.json"]
    assert dist_info.VariantDistInfo(data, read_name(wheel.name).label).variant_desc.properties


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"variants": {"sm61": {}}}, "names no architecture"),
        ({"providers": {"nvidia": {"requires": ["evil @ https://h/e.whl"], "plugin-api": "evil:Pwn"}}}, "run `evil`"),
        ({"providers": {"nvidia": {"requires": ["evil"], "plugin-api": "evil:Pwn"}}}, "run `evil`"),
    ],
)
def test_a_label_that_promises_nothing_or_names_strange_code_is_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    wheel = _labelled(tmp_path, "sm_61")
    with zipfile.ZipFile(wheel) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    (place,) = [name for name in members if name.endswith("variant.json")]
    told = json.loads(members[place])
    (own,) = told["variants"]
    if "variants" in change:
        change = {"variants": {own: {}}}
    members[place] = json.dumps(told | change).encode()
    with zipfile.ZipFile(wheel, "w") as written:
        for name, data in members.items():
            written.writestr(name, data)
    found = [each for each in inspect(wheel).findings if each.id == "variant"]
    assert any(each.state is State.FAIL and said in each.found for each in found), found
