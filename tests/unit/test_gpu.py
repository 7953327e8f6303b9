"""`rekindle gpu`: every name, every PCI id, and the traps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rekindle
from rekindle.knowledge.gpu import gpus
from support.command import rekindle_command

ROWS = json.loads((Path(rekindle.__file__).parent / "knowledge/gpu/gpus.json").read_text(encoding="utf-8"))["gpus"]


def test_every_name_finds_its_capability() -> None:
    assert len({row["name"] for row in ROWS}) >= 903
    every: dict[str, set[str]] = {}
    for row in ROWS:
        every.setdefault(row["name"], set()).add(row["capability"])
    for name, capabilities in every.items():
        assert {str(capability) for capability in gpus.find(name).capabilities} == capabilities, name


def test_nineteen_official_names_have_several_capabilities() -> None:
    official = {row["name"] for row in ROWS if row["official"]}
    every: dict[str, set[str]] = {}
    for row in ROWS:
        every.setdefault(row["name"], set()).add(row["capability"])
    several = [name for name in official if len(every[name]) > 1]
    assert len(several) == 19
    assert all(gpus.find(name).ambiguous for name in several)


def test_every_pci_id_finds_its_capability() -> None:
    for row in ROWS:
        for pci in row["pci_ids"]:
            found = {str(capability) for capability in gpus.find(f"10de:{pci.replace(':', ' ', 1)}").capabilities}
            assert row["capability"] in found, (row["name"], pci)


@pytest.mark.parametrize(
    ("query", "capabilities"),
    [
        ("GT 730", ["2.1", "3.0", "3.5"]),
        ("GTX 860M", ["3.0", "5.0"]),
        ("Tesla K80", ["3.7"]),  # widely listed as 3.5
        ("k40c", ["3.5"]),
        ("GTX 680", ["3.0"]),
        ("GeForce 910M", ["3.5"]),  # NVIDIA's own page says 5.2; the chip is GK208B
        ("MX130", ["5.0"]),  # listed elsewhere as 6.1; the chip is GM108
        ("rtx 5070", ["12.0"]),
        ("RTX5070", ["12.0"]),
        ("NVIDIA GeForce RTX 5070 Laptop GPU", ["12.0"]),
        ("NVIDIA GeForce GTX 1080 Ti", ["6.1"]),
        ("Tesla V100-PCIE-16GB", ["7.0"]),
        ("NVIDIA H200", ["9.0"]),
        ("10de:1024", ["3.5"]),
        ("10DE:1024", ["3.5"]),
        (r"PCI\VEN_10DE&DEV_1024", ["3.5"]),
        (r"PCI\VEN_10DE&DEV_1299&SUBSYS_01C61B0A&REV_A1", ["3.5"]),
        ("0x102410DE", ["3.5"]),  # as nvidia-smi -q prints it
        ("sm_35", ["3.5"]),
        ("12.0", ["12.0"]),
    ],
)
def test_what_people_type(query: str, capabilities: list[str]) -> None:
    assert [str(capability) for capability in gpus.find(query).capabilities] == capabilities


def test_the_pci_id_decides_between_chips_of_one_name() -> None:
    answer = rekindle_command("gpu", "10de:1287", "--json").json()
    assert (answer["name"], answer["compute_capability"], answer["ambiguous"]) == ("GeForce GT 730", "3.5", False)


def test_json_of_a_k40c() -> None:
    seen = rekindle_command("gpu", "Tesla K40c", "--json")
    answer = seen.json()
    assert seen.code == 0
    assert answer["compute_capability"] == "3.5"
    assert answer["architecture"] == "Kepler"
    assert answer["chip"] == "GK180"
    assert answer["pci_ids"] == ["1024"]
    assert answer["last_driver_branch"] == "470"
    assert (answer["first_cuda"], answer["last_cuda"], answer["last_cudnn"]) == ("5.0", "11.8", "8.7.0")
    assert answer["official_wheels"] == {"windows": [], "linux": []}
    assert answer["ambiguous"] is False


def test_json_of_an_ambiguous_name() -> None:
    answer = rekindle_command("gpu", "GeForce GT 730", "--json").json()
    assert answer["ambiguous"] is True
    assert answer["compute_capability"] is None
    assert {row["compute_capability"]: row["chip"] for row in answer["candidates"]} == {
        "2.1": "GF108",
        "3.0": "GK107",
        "3.5": "GK208B",
    }


def test_a_k80_is_told_what_later_wheels_lose() -> None:
    answer = rekindle_command("gpu", "Tesla K80", "--json").json()
    by_torch = {
        row["torch"]: row["cudnn_serves"] for row in answer["official_wheels"]["windows"] if row["variant"] == "cu118"
    }
    assert by_torch["2.3.1"] is True
    assert by_torch["2.7.1"] is False


def test_windows_and_linux_differ_for_pascal_in_2_8() -> None:
    answer = rekindle_command("gpu", "Tesla P100-PCIE-16GB", "--json").json()
    lines = {
        system: {row["variant"] for row in rows if row["torch"] == "2.8.0" and not row["by_jit"]}
        for system, rows in answer["official_wheels"].items()
    }
    assert lines == {"windows": set(), "linux": {"cu126"}}


@pytest.mark.parametrize("query", ["", "   ", "a" * 10_000, "K40\x1b[31mc", "K40\x00", "\u202eK40c"])
def test_what_is_no_name_is_a_usage_error(query: str) -> None:
    seen = rekindle_command("gpu", query)
    assert seen.code == 2
    assert "hint:" in seen.err
    assert "Traceback" not in seen.err
    assert "\x1b[31m" not in seen.err


def test_a_typo_is_answered_with_near_names() -> None:
    seen = rekindle_command("gpu", "Tesla K4oc")
    assert seen.code == 3
    assert "`Tesla K40c`" in seen.err


@pytest.mark.parametrize("query", ["zzzz", "10de:ffff", "sm_99", r"PCI\VEN_1002&DEV_1024"])
def test_what_is_not_in_the_tables_has_its_own_exit_code(query: str) -> None:
    seen = rekindle_command("gpu", query)
    assert seen.code == 3
    assert "hint:" in seen.err


def test_the_list_is_complete() -> None:
    assert len(rekindle_command("gpu", "--list", "--json").json()["gpus"]) == len(ROWS)
    assert "Tesla K40c" in rekindle_command("gpu", "--list").out


@pytest.mark.parametrize("name", ["Tesla K40c", "GT 730", "RTX 5090", "GTX 1080 Ti", "Tesla K80"])
def test_the_answer_fits_80_columns_of_ascii_readers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = rekindle_command("gpu", name).out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[-1].startswith(("Next: rekindle plan --gpu", "  rekindle gpu 10de:"))
