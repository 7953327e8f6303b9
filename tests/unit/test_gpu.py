"""`rekindle gpu`: every name, every PCI id, and the traps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rekindle
from rekindle.core.errors import UnknownName
from rekindle.knowledge.gpu import gpus
from rekindle.machine.gpu.cards import Graphics
from rekindle.machine.model import FoundGpu
from support.command import rekindle_command

ROWS = json.loads((Path(rekindle.__file__).parent / "knowledge/gpu/gpus.json").read_text(encoding="utf-8"))["gpus"]


def _capabilities_by_name() -> dict[str, set[str]]:
    """NVIDIA's own lists decide; a chip that only other lists give a name counts where NVIDIA's have none."""
    every: dict[str, set[str]] = {}
    official = {row["name"] for row in ROWS if row["official"]}
    for row in ROWS:
        if row["official"] or row["name"] not in official:
            every.setdefault(row["name"], set()).add(row["capability"])
    return every


def test_every_name_finds_its_capability() -> None:
    every = _capabilities_by_name()
    assert len(every) >= 903
    for name, capabilities in every.items():
        if name != "NVIDIA Graphics Device":  # what a system shows for any card without a driver
            assert {str(capability) for capability in gpus.find(name).capabilities} == capabilities, name


def test_fifteen_official_names_have_several_capabilities() -> None:
    official = {row["name"] for row in ROWS if row["official"]}
    several = [name for name, found in _capabilities_by_name().items() if name in official and len(found) > 1]
    assert len(several) == 15
    assert all(gpus.find(name).ambiguous for name in several)


@pytest.mark.parametrize(("name", "capability", "odd"), [("GTX 750 Ti", "5.0", "11c7"), ("GT 1030", "6.1", "0fc5")])
def test_a_chip_that_only_other_lists_have_is_mentioned(name: str, capability: str, odd: str) -> None:
    match = gpus.find(name)
    assert [str(each) for each in match.capabilities] == [capability]
    assert odd in match.notes[0]
    assert [str(each) for each in gpus.find(f"10de:{odd}").capabilities] == ["3.0"]


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


@pytest.mark.parametrize("query", ["sm_\u0663\u0665", "\u0663.\u0665", "compute capability \u0968\u0968"])
def test_digits_of_other_scripts_are_no_capability(query: str) -> None:
    """They were an internal error, of `serve` too."""
    with pytest.raises(UnknownName):
        gpus.find(query)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("1080 ti", "GeForce GTX 1080 Ti"),
        ("1080ti", "GeForce GTX 1080 Ti"),
        ("1080", "GeForce GTX 1080"),
        ("5070", "GeForce RTX 5070"),
        ("4090", "GeForce RTX 4090"),
        ("A6000", "RTX A6000"),
        ("K40", "Tesla K40c"),
        ("gtx 3060", "GeForce RTX 3060"),
        ("2060s", "GeForce RTX 2060 SUPER"),
        ("RTX2060S", "GeForce RTX 2060 SUPER"),
        ("gtx1650s", "GeForce GTX 1650 SUPER"),
        ("RTX 4070TiS", "GeForce RTX 4070 Ti SUPER"),
        ("3060ti", "GeForce RTX 3060 Ti"),
        ("4070 ti super", "GeForce RTX 4070 Ti SUPER"),
        ("rtx-3060-12gb", "GeForce RTX 3060"),
        ("1060 6gb", "GeForce GTX 1060 6GB"),
        ("RTX 3070 8 GB", "GeForce RTX 3070"),
        ("ASUS ROG Strix GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        ("EVGA GeForce RTX 3090 FTW3 Ultra Gaming 24GB", "GeForce RTX 3090"),
        ("NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] (rev a1)", "GeForce GTX 1080 Ti"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100-SXM4-40GB"),
        ("NVIDIA A10-24Q", "A10"),
        ("DGX Spark", "GB10"),
        ("Jetson Orin Nano Super", "Jetson Orin Nano"),
        ("xavier nx", "Jetson Xavier NX"),
        ("1070 laptop", "GeForce GTX 1070"),
        ("titan black", "GeForce GTX TITAN Black"),
    ],
)
def test_a_name_as_people_say_it_is_taken_with_a_note(typed: str, name: str) -> None:
    match = gpus.find(typed)
    assert match.name == name
    assert f"`{typed}` is read as {name}" in match.notes


@pytest.mark.parametrize(
    ("typed", "cards"),
    [
        ("8x A100", [(8, "8.0")]),
        ("A100 x8", [(8, "8.0")]),
        ("2x4090", [(2, "8.9")]),
        ("2x1080ti", [(2, "6.1")]),
        ("5090d", [(1, "12.0")]),
        ("Tegra X1", [(1, "5.3")]),
        ("V100,P100", [(1, "7.0"), (1, "6.0")]),
        ("K80 + RTX 3060", [(1, "3.7"), (1, "8.6")]),
        ("3.5;5.0;6.1", [(1, "3.5"), (1, "5.0"), (1, "6.1")]),
        ("7.5 8.0 8.6+PTX", [(1, "7.5"), (1, "8.0"), (1, "8.6")]),
    ],
)
def test_a_list_names_several_cards(typed: str, cards: list[tuple[int, str]]) -> None:
    assert [(match.count, str(match.capabilities[0])) for match in gpus.find_all([typed])] == cards


@pytest.mark.parametrize(
    ("typed", "listed"),
    [
        ("Titan X", ["GeForce GTX TITAN X", "TITAN X (Pascal)"]),
        ("4000", ["Quadro 4000", "Quadro RTX 4000"]),
        ("RTX 6000", ["Quadro RTX 6000", "RTX 6000 Ada Generation"]),
    ],
)
def test_a_name_of_several_cards_lists_them(typed: str, listed: list[str]) -> None:
    seen = rekindle_command("gpu", typed)
    assert seen.code == 2
    assert all(f"`{name}`" in seen.err for name in listed)


def test_a_name_of_several_cards_is_answered_where_that_does_not_matter() -> None:
    """`Titan X` was refused, though both cards get the same wheel."""
    seen = rekindle_command("plan", "--gpu", "Titan X", "--os", "linux")
    assert seen.code == 0 and "torch==2.14.1+cu126" in seen.out
    assert "`Titan X` may be `GeForce GTX TITAN X` (5.2) or `TITAN X (Pascal)` (6.1)" in seen.out
    assert "the answer is the same for every chip that Titan X may have" in seen.out
    both = rekindle_command("plan", "--gpu", "RTX 6000", "--torch", "2.6.0", "--os", "windows")
    assert both.code == 0 and "bfloat16" not in both.out  # what one of them lacks is not said of both
    # A Quadro RTX 6000 has no code in the newest wheel.
    for words in (("--gpu", "RTX 6000"), ("--gpu", "4000", "--for", "vllm"), ("--gpu", "Titan X", "--list")):
        refused = rekindle_command("plan", "--os", "linux", *words)
        assert refused.code == 2 and "name the one you mean" in refused.err


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        ("RX 580", "ROCm"),
        ("Radeon VII", "ROCm"),
        ("gfx1030", "ROCm"),
        ("MI50", "ROCm"),
        ("n1-standard-8", "name what is attached"),
        ("Arc A770", "/whl/xpu"),
        ("B580", "/whl/xpu"),
        ("Apple M1", "mps"),
        ("M2 Max", "mps"),
    ],
)
def test_somebody_elses_card_is_told_where_to_go(typed: str, where: str) -> None:
    seen = rekindle_command("plan", "--gpu", typed, "--os", "linux")
    assert seen.code == 3
    assert where in seen.err


def test_a_card_without_a_name_is_nobody() -> None:
    seen = rekindle_command("gpu", "Graphics Device")
    assert seen.code == 3
    assert "PCI id" in seen.err


def test_a_suggestion_has_the_same_number() -> None:
    assert "T400" not in rekindle_command("gpu", "RTX 4099").err
    assert "GeForce RTX 4090" in rekindle_command("gpu", "RTX 4099").err


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
def test_what_is_no_name_is_a_usage_error(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # With a card in the machine an empty name was answered for that one.
    monkeypatch.setattr("rekindle.cli.gpu._of_this_machine", lambda: "Tesla K80")
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


@pytest.mark.long
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


def test_a_jetson_is_told_of_no_wheels_for_windows() -> None:
    found = rekindle_command("gpu", "Jetson AGX Orin", "--json").json()
    assert found["official_wheels"] == {} and found["old_wheels"] == []
    assert list(rekindle_command("gpu", "GH200", "--json").json()["official_wheels"]) == ["linux"]


@pytest.mark.parametrize(
    ("typed", "capability"),
    [
        ("DGX A100", "8.0"),
        ("HGX H100", "9.0"),
        ("DGX-1", "7.0"),
        ("g4dn.xlarge", "7.5"),
        ("p3.2xlarge", "7.0"),
        ("p2.xlarge", "3.7"),
        ("g5.12xlarge", "8.6"),
        ("g6e.xlarge", "8.9"),
        ("a2-highgpu-1g", "8.0"),
        ("g2-standard-4", "8.9"),
        ("Standard_NC6", "3.7"),
        ("Standard_NC6s_v3", "7.0"),
        ("Standard_NC4as_T4_v3", "7.5"),
        ("Standard_ND96isr_H100_v5", "9.0"),
        ("Colab", "7.5"),
        ("Jetson AGX Orin Industrial", "8.7"),
        ("ecs.gn6i-c4g1.xlarge", "7.5"),
        ("Tencent GN10Xp.2XLARGE40", "7.0"),
        ("IBM gx3-16x80x1l4", "8.9"),
        ("HF Spaces a10g-largex2", "8.6"),
        ("OVH t1-le-90", "7.0"),
        ("Scaleway L4-1-24G", "8.9"),
    ],
)
def test_a_machine_is_named_by_what_it_is_sold_or_rented_as(typed: str, capability: str) -> None:
    (match,) = gpus.find_all([typed])
    assert [str(each) for each in match.capabilities] == [capability]
    assert f"`{typed}` is read as" in match.notes[0]


def test_swapped_digits_are_near() -> None:
    assert gpus.nearest("GTX 1800 Ti")[0] == "GeForce GTX 1080 Ti"


def test_anothers_gpu_beside_nvidias_is_left_out_with_a_note() -> None:
    """A laptop with an AMD iGPU was refused whole."""
    (match,) = gpus.find_all(["AMD Radeon 780M", "RTX 4060 Laptop"])
    assert "4060" in match.name and any("AMD card" in note for note in match.notes)
    with pytest.raises(UnknownName):
        gpus.find_all(["AMD Radeon 780M"])


def test_a_rented_part_of_a_card_is_one() -> None:
    """Azure rents parts of an A10 by a name of its own, with the guest driver of its vGPU."""
    assert [gpus.find_all([name])[0].guest for name in ("Standard_NV36ads_A10_v5", "NV6ads A10 v5", "A10")] == [
        True, True, False,
    ]  # fmt: skip


def test_a_part_of_a_card_needs_a_driver_of_its_own() -> None:
    (match,) = gpus.find_all(["GRID T4-8Q"])
    assert any("guest driver" in note for note in match.notes)


def test_a_card_without_any_pytorch_is_told_of_the_cpus() -> None:
    said = rekindle_command("plan", "--gpu", "GTX 480", "--os", "linux")
    assert said.code == 5 and "https://download.pytorch.org/whl/cpu" in said.out


@pytest.mark.parametrize(
    ("said", "name", "count"),
    [
        ("RunPod 2x RTX 6000 Ada", "RTX 6000 Ada Generation", 2),
        ("Hetzner RTX 4000 SFF Ada", "RTX 4000 SFF Ada Generation", 1),
        ("Lenovo P16 RTX 5000 Ada Laptop", "RTX 5000 Ada Generation", 1),
        ("gpu_8x_h100_sxm5", "H100", 8),
        ("gpu_1x_a10", "A10", 1),
        ("p6-b300.48xlarge", "B300 SXM6 AC", 8),
        ("p5.4xlarge", "H100 80GB HBM3", 1),
        ("2x p4d.24xlarge", "A100-SXM4-40GB", 16),
        ("a2-highgpu-4g", "A100-SXM4-40GB", 4),
        ("a4x-highgpu-4g", "GB200", 4),
        ("g4-standard-96", "RTX PRO 6000 Blackwell Server Edition", 2),
        ("DGX H100", "H100 80GB HBM3", 8),
        ("DGX-1", "Tesla V100-SXM2-32GB", 8),
        ("DGX-2", "Tesla V100-SXM2-32GB", 16),
        ("DGX Station A100", "A100-SXM4", 4),
        ("ml.g5.xlarge", "A10G", 1),
        ("ml.p4d.24xlarge", "A100-SXM4-40GB", 8),
        ("vast.ai 4090", "GeForce RTX 4090", 1),
        ("Jetson AGX Thor Developer Kit", "Jetson AGX Thor", 1),
        ("Jetson Orin Nano Developer Kit", "Jetson Orin Nano", 1),
        ("gpu-h100x8-640gb", "H100 80GB HBM3", 8),
        ("gpu_1x_rtx6000", "Quadro RTX 6000", 1),
        ("Google Colab T4", "Tesla T4", 1),
        ("GRID A100D-20C", "A100 80GB PCIe", 1),
        ("Standard_ND40rs_v2", "Tesla V100-SXM2-32GB", 8),
        ("p6e-gb200.36xlarge", "GB200", 4),
        ("u-p6e-gb200x72", "GB200", 72),
        ("g2-standard-24", "L4", 2),
        ("g2-standard-16", "L4", 1),
        ("NC80adis_H100_v5", "H100 NVL", 2),
        ("ND128isr GB200 v6", "GB200", 4),
        ("Standard_ND128isr_NDR_GB200_v6", "GB200", 4),
        ("NV24s_v3", "Tesla M60", 2),
        ("NV24", "Tesla M60", 4),
        ("NV72ads_A10_v5", "A10", 2),
        ("L40S-2-48G", "L40S", 2),
        ("H100-SXM-4-80G", "H100 80GB HBM3", 4),
        ("a10-90", "A10", 2),
        ("gpu-l40sx1-48gb", "L40S", 1),
        ("g2-gpu-rtx4000a2-s", "RTX 4000 Ada Generation", 2),
        ("BM.GPU.B200.8", "B200", 8),
        ("n1-standard-8 with T4", "Tesla T4", 1),
        ("n1-highmem-4 with 2x V100", "Tesla V100", 2),
        ("Standard_NC12s_v2", "Tesla P100-PCIE-16GB", 2),
        ("Hetzner GEX44", "RTX 4000 SFF Ada Generation", 1),
        ("t2-le-90", "Tesla V100S-PCIE-32GB", 2),
        ("VM.GPU.A10.2", "A10", 2),
        ("BM.GPU.A100-v2.8", "A100-SXM4-80GB", 8),
        ("l40s-180", "L40S", 2),
    ],
)
def test_a_rented_machine_has_its_card_and_their_number(said: str, name: str, count: int) -> None:
    """A word in front of a name took its end away: `RunPod RTX 6000 Ada` was a Quadro RTX 6000."""
    (match,) = gpus.find_all([said])
    assert (match.name, match.count) == (name, count)


def test_a_short_name_among_other_words_is_proposed_not_taken() -> None:
    with pytest.raises(UnknownName) as caught:
        gpus.find("Dell R720 with a K80")
    assert caught.value.hint == "did you mean `Tesla K80`?"


@pytest.mark.parametrize("name", ["CMP 30HX", "CMP 50HX", "CMP 170HX", "10de:20c2"])
def test_a_mining_card_is_said_to_be_slowed_down_and_gets_no_advice_on_tensor_cores(name: str) -> None:
    """A CMP 170HX was planned for as if it were an A100."""
    for verb in (("gpu", name), ("plan", "--gpu", name, "--os", "linux")):
        notes = rekindle_command(*verb, "--json").json()["notes"]
        assert sum("is a mining card: its multiply-add and tensor-core" in note for note in notes) == 1
    assert "compute in" not in rekindle_command("gpu", name).out


def test_the_mining_cards_before_are_like_their_chip() -> None:
    for name in ("P102-100", "P104-100", "P106-100"):
        answer = rekindle_command("gpu", name, "--json").json()
        assert answer["advice"] is not None and not any("mining" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("chip", "capability"), [("GA102", "8.6"), ("gp107gl", "6.1"), ("GK110B", "3.5"), ("TU116", "7.5")]
)
def test_a_chip_is_as_good_as_its_capability(chip: str, capability: str) -> None:
    """lspci names the chip first."""
    found = gpus.find(chip)
    assert [str(each) for each in found.capabilities] == [capability] and "is a chip" in found.notes[0]


def test_a_family_of_chips_is_no_card() -> None:
    with pytest.raises(UnknownName) as error:
        gpus.find("pascal")
    assert "`sm_61`" in str(error.value.hint)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("RTX 6000 Blackwell", "RTX PRO 6000 Blackwell"),
        ("RTX A6000 Ada", "RTX 6000 Ada Generation"),
        ("RTX 4090 Ada", "GeForce RTX 4090"),
        ("Quadro RTX 4000 Turing", "Quadro RTX 4000"),
        ("RTX 4000 Blackwell", None),
        ("RTX 8000 Ada", None),
        ("RTX A2000 Ada", None),
    ],
)
def test_a_generation_beside_a_name_is_not_overheard(typed: str, name: str | None) -> None:
    """An `RTX 6000 Blackwell` (12.0) was read as the Quadro RTX 6000 (7.5)."""
    if name is not None:
        assert gpus.find(typed).name == name
        return
    with pytest.raises(UnknownName):
        gpus.find(typed)


@pytest.mark.parametrize(
    "names, code, said",
    [
        (["Tesla K40c"], 0, "compute capability  3.5"),
        (["Tesla K40c", "Tesla K40c"], 0, "compute capability  3.5"),
        (["Tesla K40c", "Tesla V100"], 2, "this machine has 2 kinds: Tesla K40c, Tesla V100; name the one you mean"),
        ([], 2, "no GPU was found here"),
    ],
)
def test_without_a_name_the_card_is_that_of_the_machine(
    names: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Graphics(gpus=tuple(FoundGpu(name=name) for name in names))
    monkeypatch.setattr("rekindle.machine.probe.graphics", lambda: found)
    seen = rekindle_command("gpu")
    assert (seen.code, said in seen.out + seen.err) == (code, True), seen


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("CMP170HX", "CMP 170HX"),
        ("RTXA6000", "RTX A6000"),
        ("TitanXp", "TITAN Xp"),
        ("GTXTITANX", "GeForce GTX TITAN X"),
        ("OrinNano", "Jetson Orin Nano"),
        ("RTX4000Ada", "RTX 4000 Ada Generation"),
    ],
)
def test_a_name_in_one_piece_is_read(typed: str, name: str) -> None:
    assert gpus.find(typed).name == name
