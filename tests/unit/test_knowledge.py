"""The tables: every row says where it comes from, the look-ups answer what the sources say, overlays work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rekindle
from rekindle.compat import driver_cuda
from rekindle.compat.container import serves
from rekindle.compat.host_compiler import (
    takes_compiler,
    toolset_of_compiler,
    toolset_range,
)
from rekindle.compat.judgement import Clash, Fits, Judgement, Unknown, holds
from rekindle.compat.library_card import cudnn_serves, last_cudnn, math_serves
from rekindle.core.errors import BadInput, NotFound, UnknownName
from rekindle.core.version import Version
from rekindle.knowledge import tables
from rekindle.knowledge.cuda import library_packages, toolkits
from rekindle.knowledge.gpu import capabilities, gpus
from rekindle.knowledge.torch import companions, options, projects, releases, torch_wheels
from rekindle.knowledge.torch.releases import upstream_build, upstream_builds
from rekindle.model.card import Capability
from rekindle.model.driver import Driver
from rekindle.model.host_compiler import HostCompiler, gcc, msvc
from rekindle.model.platform import LINUX, WINDOWS
from rekindle.wheels.closure.linkage import LoadTime
from rekindle.wheels.closure.pe import provider_pin
from support.command import rekindle_command
from support.rows import NEW_CARD

KNOWLEDGE = Path(rekindle.__file__).parent / "knowledge"
TABLES = sorted([*KNOWLEDGE.rglob("*.json"), *KNOWLEDGE.rglob("*.toml")])
K40, K80, P100, V100, RTX5070 = (Capability.parse(c) for c in ("3.5", "3.7", "6.0", "7.0", "12.0"))


def _rows(value: Any) -> list[dict[str, Any]]:
    """Every row: the objects in the lists at the top of a table, and tables-of-rows inside them that claim a source."""
    assert isinstance(value, dict)
    if "source" in value:
        return [value]
    return [row for rows in value.values() if isinstance(rows, list) for row in rows if isinstance(row, dict)]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_every_row_has_source_date_and_evidence(path: Path) -> None:
    rows = _rows(tables._read(path, Any))
    # Nobody has sent a report yet.
    assert rows or path.name == "field_reports.json"
    for row in rows:
        assert row.get("source"), row
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.get("observed_at", "")), row
        assert row.get("evidence") in {each.value for each in tables.Evidence}, row


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_tables_are_plain_utf8_without_foreign_hosts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "\r" not in text
    assert not re.search(r"p[y]pi\.|python[h]osted|[d]ebian\.org|npm[j]s", text)


@pytest.mark.parametrize(
    ("cuda", "toolset", "accepted"),
    [
        ("11.4", "14.29", True),
        ("11.4", "14.30", False),
        ("11.8", "14.39", True),
        ("11.8", "14.40", False),
        ("12.3", "14.44", False),
        ("12.4", "14.44", True),
        ("12.3", "14.39", True),
        ("12.9", "14.44", True),
        ("13.0", "14.16", False),
        ("13.0", "14.50", False),
        ("13.2", "14.50", True),
        ("13.2", "14.51", True),
        ("11.6", "14.29", None),
    ],
)
def test_both_msvc_gates(cuda: str, toolset: str, accepted: bool | None) -> None:
    assert _fits(takes_compiler(Version(cuda), msvc(Version(toolset)))) is accepted


def test_the_stl_gate_is_told_apart_from_nvccs_own() -> None:
    # CUDA 11.5 ends at _MSC_VER 1929, so nvcc refuses 14.34 first; an STL of 17.11 asks 12.3 for 12.4 although the
    # header of 12.3 (1910 to 1939) would refuse it too: what is said must name the gate that speaks.
    assert "nvcc" in _sentence(takes_compiler(Version("11.5"), msvc(Version("14.34"))))
    assert str(toolset_of_compiler(Version("19.29.30133"))) == "14.29"


def _fits(answer: Judgement) -> bool | None:
    return None if isinstance(answer, Unknown) else isinstance(answer, Fits)


def _sentence(answer: Judgement) -> str:
    assert isinstance(answer, Clash)
    return answer.sentence


def test_toolset_ranges_of_the_seeds_toolkits() -> None:
    assert [str(v) for v in toolset_range(Version("11.4")) or ()] == ["14.10", "14.29"]
    assert [str(v) for v in toolset_range(Version("12.9")) or ()] == ["14.10", "14.44"]


def test_gcc_and_clang_limits() -> None:
    assert _fits(takes_compiler(Version("11.8"), gcc(11))) is True
    assert _fits(takes_compiler(Version("11.8"), gcc(12))) is False
    assert _fits(takes_compiler(Version("13.4"), gcc(16))) is True
    assert _fits(takes_compiler(Version("12.8"), HostCompiler("clang", Version("19")))) is True
    assert _fits(takes_compiler(Version("12.8"), HostCompiler("clang", Version("20")))) is False
    assert _fits(takes_compiler(Version("14.9"), gcc(12))) is None


@pytest.mark.parametrize(
    ("driver", "system", "full", "minor"),
    [
        ("472.50", "windows", "11.4", "11.8"),
        ("470.256.02", "linux", "11.4", "11.8"),
        ("463.15", "windows", "11.2", "11.8"),
        ("528.33", "windows", "12.0", "12.9"),
        ("546.33", "windows", "12.3", "12.9"),
        ("575.51.03", "linux", "12.9", "12.9"),
        ("580.65.06", "linux", "13.0", "13.4"),
        ("391.35", "windows", "9.0", "9.0"),
        ("382.05", "windows", None, None),
    ],
)
def test_what_a_driver_runs(driver: str, system: str, full: str | None, minor: str | None) -> None:
    asked = Driver(Version(driver), system)
    found = driver_cuda.newest_full(asked), driver_cuda.newest_native(asked)
    assert tuple(str(each) if each else None for each in found) == (full, minor)


def test_which_toolkits_reach_which_card() -> None:
    assert str(toolkits.last_toolkit_for(K40).version) == "11.8"  # type: ignore[union-attr]
    assert str(toolkits.last_toolkit_for(V100).version) == "12.9"  # type: ignore[union-attr]
    assert str(toolkits.first_toolkit_for(RTX5070).version) == "12.8"  # type: ignore[union-attr]
    assert not toolkits.toolkit("12.3").compiles_for(RTX5070)
    assert toolkits.still_supported(RTX5070)
    assert toolkits.last_toolkit_for(Capability(2, 1)) is None


def test_capability_facts_agree_with_the_toolkit_table() -> None:
    """Two tables written from different sources must say the same wherever both speak."""
    first_in_tables = toolkits.toolkits()[0].version
    for capability in capabilities.known():
        facts = capabilities.facts(capability)
        assert facts is not None
        last = toolkits.last_toolkit_for(capability)
        if facts.last_cuda and facts.last_cuda >= first_in_tables:
            assert last is not None
            assert last.version == facts.last_cuda, capability
        elif facts.last_cuda is None:
            assert toolkits.still_supported(capability), capability
        first = toolkits.first_toolkit_for(capability)
        if first and facts.first_cuda > first_in_tables and capability != Capability(11, 0):
            assert first.version == facts.first_cuda, capability


@pytest.mark.parametrize(
    ("version", "card", "serves"),
    [
        ("8.7.0", K40, True),
        ("8.7.0.84", K80, True),
        ("8.8.0", K40, False),
        ("8.9.2.26", K80, False),
        ("9.10.2.21", P100, True),
        ("9.11.0.98", P100, False),
        ("9.11.0.98", V100, False),
        ("9.5.1.17", RTX5070, False),
        ("9.6.0.74", RTX5070, None),  # not opened, and its neighbours differ
        ("9.7.1.26", RTX5070, True),
        ("8.3.2.44", K40, True),
        ("99.0", K40, None),
    ],
)
def test_cudnn_and_its_gpu_code(version: str, card: Capability, serves: bool | None) -> None:
    assert holds(cudnn_serves(Version(version), card)) is serves


@pytest.mark.parametrize(
    ("card", "last"), [("2.1", None), ("3.0", "8.3.0"), ("3.5", "8.7.0.84"), ("6.1", "9.10.2.21"), ("7.5", None)]
)
def test_the_last_cudnn_of_a_card(card: str, last: str | None) -> None:
    found = last_cudnn(Capability.parse(card))
    assert (str(found) if found else None) == last


def test_math_libraries() -> None:
    assert holds(math_serves(Version("11.8"), K40)) is True
    assert holds(math_serves(Version("12.0"), K40)) is False
    assert holds(math_serves(Version("12.9"), V100)) is True
    assert holds(math_serves(Version("13.0"), V100)) is False
    assert holds(math_serves(Version("12.4"), RTX5070)) is None
    assert holds(math_serves(Version("12.8"), RTX5070)) is True
    assert holds(math_serves(Version("10.2"), K40)) is None


def test_releases_as_people_write_them() -> None:
    for text in ("2.7", "2.7.1", "v2.7.1", "2.7.1+cu118"):
        assert releases.full_version(text) == "2.7.1"
    assert releases.full_version("2.7.0") == "2.7.0"
    with pytest.raises(UnknownName, match="newer than Rekindle"):
        releases.torch_release("2.99")
    with pytest.raises(UnknownName, match="there is no PyTorch"):
        releases.torch_release("2.7.9")
    with pytest.raises(UnknownName, match="newer than Rekindle"):
        toolkits.toolkit("14.0")
    with pytest.raises(UnknownName, match="never released"):
        toolkits.toolkit("12.7")


def test_companions_of_a_release() -> None:
    assert companions.version_for("torchvision", "2.7.1") == "0.22.1"
    assert companions.version_for("torchaudio", "2.7.1") == "2.7.1"
    assert companions.version_for("torchvision", "2.0.1") == "0.15.2"
    assert companions.version_for("torchaudio", "2.0.1") == "2.0.2"


@pytest.mark.parametrize(
    ("project", "torch", "line", "python", "expected"),
    [
        ("torchvision", "2.14.1", "cu126", "3.12", "0.29.1"),
        ("torchvision", "2.14.1", "cu130", "3.12", "0.29.1"),
        ("torchvision", "2.15.0", "cu132", "3.12", "0.29.2"),
        ("torchvision", "2.15.0", "cu126", "3.12", "0.29.1"),
        ("torchaudio", "2.14.1", "cu126", "3.12", "2.11.0"),
        ("torchaudio", "2.15.0", "cu132", "3.12", None),
        ("torchaudio", "2.15.0", "cu130", "3.12", "2.11.0"),
        ("torchaudio", "2.15.0", "cu130", "3.15", None),
        ("torchvision", "2.5.1", "cu124", "3.12", "0.20.1"),
        ("torchvision", "2.5.1", "cu124", "3.13", None),
        ("torchaudio", "2.5.1", "cu124", "3.13", None),
        ("torchvision", "2.7.1", "cu118", "3.13", "0.22.1"),
    ],
)
def test_a_companion_is_of_the_line_and_the_python(
    project: str, torch: str, line: str, python: str, expected: str | None
) -> None:
    row = companions.companion(project, torch, LINUX, line=line, python=python)
    assert (row.version if row else None) == expected


def test_a_companion_built_with_a_newer_torch_is_not_trusted_with_an_older_one() -> None:
    assert companions.belongs("torchvision", "0.29.2", "2.14.1") is False
    assert companions.belongs("torchvision", "0.29.1", "2.15.0") is True
    assert companions.belongs("torchvision", "0.28.0", "2.14.1") is False
    assert companions.belongs("torchvision", "9.9", "2.14.1") is None


def test_what_upstream_compiles_a_release_with() -> None:
    assert [(str(row.cuda), row.purpose) for row in upstream_builds("2.15.0")] == [
        ("12.6", "test"),
        ("13.0", "wheel"),
        ("13.2", "wheel"),
    ]
    assert upstream_build("2.15.0", Version("12.9")) is None
    newest = upstream_build("2.7.1+cu118", Version("11.8"))
    assert newest is not None
    assert newest.purpose == "wheel"
    for release in releases.torch_releases():
        assert upstream_builds(release.newest), release.minor


def test_rows_that_were_wrong_once() -> None:
    for minor in ("12.0", "12.6", "12.9"):
        assert toolkits.toolkit(minor).minor_floor_windows == Version("528.33")
    eleven = releases.torch_release("2.11")
    assert {each.name: str(each.cudnn) for each in eleven.variants} == {
        "cu126": "9.10.2.21",
        "cu128": "9.19.0.56",
        "cu130": "9.19.0.56",
    }
    assert all(gpu.integrated for gpu in gpus.gpus() if gpu.chip == "GB10B")
    assert not any(gpu.official for gpu in gpus.gpus() if gpu.name == "NVIDIA Graphics Device")


def test_what_people_printed_agrees_with_the_tables() -> None:
    for row in torch_wheels.printed_lists():
        variant = releases.torch_release(row.torch).variant(row.variant)
        assert variant is not None
        assert set(variant.targets(row.system) or ()) == set(row.targets), (row.torch, row.variant, row.system)


def test_projects_and_images_for_a_card() -> None:
    assert {row.id for row in projects.projects(K40)} >= {"torch-on-clunkers", "nelson-liu-kepler"}
    pascal = Capability.parse("6.1")
    assert "pascal-pkgs-ci" in {row.id for row in projects.projects(pascal)}
    assert {row.variant for row in projects.images() if row.variant and serves(row, pascal)} == {"cu118", "cu126"}
    official = [row for row in projects.images() if row.variant]
    assert all(releases.torch_release(row.torch or "").variant(row.variant or "") for row in official)


def test_evidence_is_ordered() -> None:
    order = [tables.Evidence.BINARY, tables.Evidence.FIELD, tables.Evidence.SCRIPT, tables.Evidence.NOTES]
    assert list(tables.Evidence) == order
    assert tables.Evidence.weakest(order[:2]) is tables.Evidence.FIELD
    assert tables.Evidence.weakest([]) is tables.Evidence.NOTES


def test_options_that_exist_and_that_do_not() -> None:
    assert options.exists("USE_KINETO", "2.7.1")
    assert options.exists("BUILD_CAFFE2", "2.3.1")
    assert not options.exists("BUILD_CAFFE2", "2.4.1")
    assert not options.exists("USE_CAFFE2", "1.13.1")
    assert not options.exists("USE_CUPTI", "2.7.1")
    assert options.verdicts()["USE_CAFFE2"].verdict == "never-existed"
    assert "USE_KINETO" in options.nearest("USE_KINETOO", "2.7.1")


def test_the_dlls_of_seed_001_have_a_provider() -> None:
    cupti = library_packages.providers("cupti64_2022.2.1.dll", WINDOWS)
    assert [(row.package, row.version) for row in cupti] == [("nvidia-cuda-cupti-cu11", "11.7.101")]
    assert library_packages.providers("LIBIOMP5MD.dll", WINDOWS)[0].package == "intel-openmp"
    assert library_packages.providers("mkl_intel_thread.2.dll", WINDOWS)[0].package == "mkl"
    assert library_packages.providers("msvcp140.dll", WINDOWS)[0].package == "msvc-runtime"
    assert library_packages.providers("zlibwapi.dll", WINDOWS) == ()


def test_an_overlay_adds_and_replaces_rows(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [NEW_CARD]}), encoding="utf-8")
    try:
        seen = rekindle_command("--knowledge", str(tmp_path), "gpu", "10de:ffee", "--json")
        assert seen.json()["name"] == "GeForce RTX 9090"
        assert rekindle_command("--knowledge", str(tmp_path), "gpu", "Tesla K40c").code == 0
    finally:
        tables.use_overlay(None)
    assert rekindle_command("gpu", "10de:ffee").code == 3


def test_a_broken_overlay_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text('{"gpus": [{"name": 1}]}', encoding="utf-8")
    try:
        seen = rekindle_command("--knowledge", str(tmp_path), "gpu", "Tesla K40c")
    finally:
        tables.use_overlay(None)
    assert seen.code == BadInput.exit_code
    assert "gpus.json" in seen.err
    assert rekindle_command("--knowledge", str(tmp_path / "absent"), "gpu", "k40c").code == NotFound.exit_code


@pytest.mark.parametrize(
    ("python", "pin"),
    [
        ("cp38", "msvc-runtime==14.34.31931"),
        ("cp310", "msvc-runtime==14.42.34433"),
        ("cp311", "msvc-runtime==14.44.35112"),
        ("cp312", "msvc-runtime==14.51.36231"),
        (None, "msvc-runtime"),
    ],
)
def test_a_package_is_pinned_to_a_version_that_its_python_has(python: str | None, pin: str) -> None:
    """pip was told a version that is there for newer Pythons only."""
    assert provider_pin("MSVCP140.dll", "msvc-runtime", LoadTime.IMPORT, python) == pin
