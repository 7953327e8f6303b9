"""What people type, as they type it: one reader for each kind, and every verb takes and refuses the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from rekindle import api
from rekindle.cli import options
from rekindle.cli.main import cli
from rekindle.compat.host_compiler import toolsets_of
from rekindle.core.errors import RekindleError, UsageError
from rekindle.core.version import Version
from rekindle.diagnose import driver_facts
from rekindle.diagnose.facts import facts_from_options
from rekindle.fleet.job import cell_name
from rekindle.fleet.matrix_file import MatrixCell
from rekindle.inputs.driver import read_driver
from rekindle.inputs.package import read_extension
from rekindle.inputs.system import old_windows, read_system
from rekindle.inputs.torch import read_torch, read_torchvision, with_cuda
from rekindle.inputs.versions import read_cuda, read_cudnn, read_python, read_toolset
from rekindle.knowledge.gpu.gpus import find
from rekindle.knowledge.torch import wheel_platforms
from rekindle.machine.model import FoundDriver, Machine
from rekindle.model.card import Capability
from rekindle.model.cuda_line import CudaLine, cuda_in, index_of, variant_of
from rekindle.model.platform import Platform
from rekindle.stack.situation import cards_named
from rekindle.toolchain.command import platform_of
from rekindle.toolchain.model import ToolSpec
from rekindle.wheels.inspect import inspection
from rekindle.wheels.inspect.inspection import targets_of
from support.command import Seen, rekindle_command

_MACHINE = Path(__file__).parents[1] / "machines" / "k40c-ready-windows.json"
_LOG = "nvcc fatal : Unsupported gpu architecture 'compute_35'\n"
# Each verb with as little else as lets it come to its answer, or to a file that is not there. `{}` is a folder.
_VERBS = {
    "plan": "--gpu sm_86 --os linux",
    "install": "{}/none --dry-run",
    "env": "--machine {machine}",
    "shell": "-o {}/prompt.sh",
    "source": "--from {}/none",
    "patch": "{}/tree --list",
    "review": "{}/build.sh",
    "diagnose": "{}/build.log",
    "inspect": "{}/none.whl",
    "repair": "{}/none.whl",
    "verify": "{}/none.whl",
    "audit": "{}/none",
    "site": "-o {}/build.log",  # a real one takes a minute
    "knowledge export": "--as table -o {}/table.json",
    "shelf find": "--shelf {}/shelf",
    "shelf export": "--shelf {}/shelf -o {}/out",
    "toolchain install": "cudnn==8.7.0 --offline --dry-run --platform linux-x86_64",
    "toolchain smoke": "cuda==0.1",
    "extension build": "{}/none --env {}/none",
    "extension check": "--env {}/none",
    "extension env": "--env {}/none",
    "extension find": "vllm --torch 2.8.0 --python 3.12 --os linux --gpu sm_35",
}
_TAKEN = {
    "--gpu": ["GTX 1080 Ti", "8x A100", "3.5;6.1+PTX", "10de:1b06", "12.0f", "a100x8"],
    "--driver": ["R550", "580", "535.183.01 (CUDA 12.2)", "31.0.15.3713", "550.x", "nvidia-driver-535", "５50"],
    "--torch": ["2.6", "v2.6.0", "2.6.0+cu118", ">=2.6", "torch==2.6.*", "latest", "torch-2.6.0", "1.5.1"],
    "--cuda": ["12.6", "cu126", "CUDA 12.4", "cu92", "cu12", "126"],
    "--os": ["windows", "Windows 11 Pro 24H2", "Ubuntu 22.04", "wsl2", "JetPack 6.2", "jammy", "WSL2 (Ubuntu)"],
    "--python": ["3.13t", "py311", "3.11.9", "cp312", "3.11.x"],
    "--arch": ["amd64", "arm64", "x86-64"],
    "--toolset": ["14.29", "MSVC 14.39.33519", "19.29", "1929", "17.9", "2022", "VS2022"],
}
_REFUSED = {
    "--gpu": ["banana", "RTX 9999"],
    "--driver": ["banana", "11040", "NVIDIA-SMI 535.54.03"],
    "--torch": [
        *("banana", "nightly", ">=banana", "2.6.0+rocm6", "2.6.0+cpu", "2.6..0", ""),
        *("2.6.7", "2.99.0", "99.9", "0.4.1", "1.5.0", ">=99", "2.6.0+cu127"),
    ],
    "--cuda": ["banana", "cu1210", "12.x", "", "12.10", "10.3", "99.9", "0"],
    "--os": ["banana", "macos", "wsl1", ""],
    "--python": ["banana", "3.1", "3.99", ""],
    "--arch": ["banana", ""],
    "--toolset": ["banana", "v143", "14", "13.0", ""],
}
_FOR_SEVERAL = ("plan", "install", "site", "knowledge export")  # the verbs that answer for several chips
_OWN = {("verify", "--python")}  # a path
# The torch that failed may have been one without CUDA, or with one that no table has.
_HAD = {("diagnose", "--torch", "2.6.0+cpu"), ("diagnose", "--torch", "2.6.0+cu127")}


def _commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        inner = command.get_command(context, each)
        assert inner is not None
        yield from _commands(inner, f"{name} {each}".strip())


@cache
def _having(option: str) -> tuple[str, ...]:
    """The verbs with this option."""
    return tuple(
        name
        for name, command in _commands(cli)
        if any(option in each.opts for each in command.params) and (name, option) not in _OWN
    )


def _cases(spellings: dict[str, list[str]], *, without: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    verbs = ((option, verb) for option in spellings for verb in _having(option) if verb not in without)
    return [(verb, option, said) for option, verb in verbs for said in spellings[option]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("typed")
    (root / "build.log").write_text(_LOG, encoding="utf-8")
    (root / "build.sh").write_text("pip install torch\n", encoding="utf-8")
    for name in ("tree", "shelf"):
        (root / name).mkdir()
    (root / "tree" / "version.txt").write_text("2.6.0a0\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PIP_NO_INDEX", "1")
        yield root


def _asked(place: Path, verb: str, option: str, said: str) -> Seen:
    words = [word.replace("{machine}", str(_MACHINE)).replace("{}", str(place)) for word in _VERBS[verb].split()]
    if option in words:
        at = words.index(option)
        words[at : at + 2] = []
    return rekindle_command(*verb.split(), *words, option, said)


@pytest.mark.parametrize("option", _TAKEN)
def test_every_verb_reads_an_option_by_the_one_reader(option: str) -> None:
    assert {*_having(option)} <= {*_VERBS}
    for name, command in _commands(cli):
        for each in command.params:
            if option in each.opts and option != "--gpu" and (name, option) not in _OWN:
                assert isinstance(each.type, options.Typed), name


@pytest.mark.long
@pytest.mark.parametrize(("verb", "option", "said"), _cases(_TAKEN, without=("site", "knowledge export")))
def test_what_one_verb_takes_every_verb_takes(verb: str, option: str, said: str, place: Path) -> None:
    seen = _asked(place, verb, option, said)
    assert seen.code not in (1, 2), seen.err


@pytest.mark.parametrize(
    ("verb", "option", "said"),
    [each for each in _cases(_REFUSED) if each not in _HAD],
)
def test_what_one_verb_refuses_every_verb_refuses_with_one_sentence(
    verb: str, option: str, said: str, place: Path
) -> None:
    seen = _asked(place, verb, option, said)
    assert (seen.code, seen.err) == _refusal(place, option, said)
    assert seen.code in (2, 3)
    assert "hint: " in seen.err


def _refusal(place: Path, option: str, said: str) -> tuple[int, str]:
    seen = _asked(place, "plan", option, said)
    return seen.code, seen.err


def test_what_was_typed_reaches_the_facts_of_a_diagnosis_as_numbers() -> None:
    facts = facts_from_options(
        system="wsl2", torch="2.6.0+cu118", cuda="cu92", python="py311", driver="R550", toolset="MSVC 14.29"
    )
    assert (facts.os, facts.wsl, facts.torch, facts.variant) == ("linux", True, "2.6.0", "cu118")
    assert (facts.cuda, facts.python, facts.toolset) == ("9.2", "3.11", "14.29")
    assert facts.driver is not None and facts.driver.startswith("55")
    assert facts_from_options(torch="2.6").torch == "2.6.0"


@pytest.mark.parametrize(("system", "runs"), [("linux", "12.0"), ("wsl2", "11.8"), ("windows", "11.8")])
def test_a_driver_in_wsl_is_counted_as_that_of_windows_by_a_diagnosis(system: str, runs: str) -> None:
    """526.47 is newer than Linux's driver of CUDA 12.0 and older than Windows'."""
    facts = facts_from_options(system=system, driver="526.47", gpus=["RTX 3060"])
    assert driver_facts.values({}, facts)["driver_runs"] == runs


def test_a_line_has_the_cudnn_of_its_cuda_or_none() -> None:
    from rekindle.diagnose import fix

    assert "cudnn_package" not in fix._values({}, facts_from_options(torch="1.5.1+cu92"))
    assert "cudnn_package" not in fix._values({}, facts_from_options(cuda="cu92"))
    assert fix._values({}, facts_from_options(torch="2.9.0+cu130"))["cudnn_package"] == "nvidia-cudnn-cu13"


@pytest.mark.parametrize(
    ("name", "number"), [("cu92", "9.2"), ("cu102", "10.2"), ("cu118", "11.8"), ("cu130", "13.0"), ("cu100", "10.0")]
)
def test_a_line_is_a_cuda(name: str, number: str) -> None:
    line = CudaLine.parse(name)
    assert line is not None
    assert (str(line.cuda), line.name) == (number, name)


@pytest.mark.parametrize("name", ["cu12", "cu1210", "cpu", "cu", "", None, "rocm6.2", "cudnn870", "cu92x"])
def test_what_is_no_line_is_none(name: str | None) -> None:
    assert CudaLine.parse(name) is None


def test_a_line_in_a_requirement_and_in_an_address() -> None:
    assert read_torch("2.7.1+cu118.sm35").variant == "cu118"
    assert variant_of("==1.5.0", index_of("cu92")) == "cu92"
    assert variant_of("==2.7.1+cpu", index_of("cu126")) == "cpu"
    assert variant_of("==2.7.1+cu12", None) is None
    assert variant_of(None, index_of("nightly/cu130")) is None


def test_the_library_takes_one_name_and_a_number() -> None:
    answer = api.plan(gpus="GTX 1080 Ti", os="linux", python=3.11)
    assert [card.name for card in answer.situation.cards] == ["GeForce GTX 1080 Ti"]
    assert answer.situation.python == "3.11"
    with pytest.raises(UsageError, match=r"Python 3\.1") as refused:
        api.plan(gpus="GTX 1080 Ti", os="linux", python=3.10)
    assert "3.10" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("said", "release"),
    [("2.6", "2.6.0"), ("2.7.0", "2.7.0"), (">=2.6,<2.8", "2.7.1"), ("1.5", "1.5.1"), ("1.5.1", "1.5.1")],
)
def test_the_release_that_is_meant(said: str, release: str) -> None:
    assert read_torch(said).release == release
    assert read_torch("2.8").admits("2.8.0a0+git1234567") and not read_torch("<2.8").admits("2.8.0+cu126")


def test_a_python_and_a_toolset_are_spelled_plainly() -> None:
    assert [str(read_python(said)) for said in ("3.7-32", "cp313t", "Python 3.9")] == ["3.7-32", "3.13t", "3.9"]
    assert str(read_toolset("msvc 14.29")) == "14.29"


@pytest.mark.parametrize(
    ("said", "system", "glibc"),
    [
        ("win11", "windows", None),
        ("Windows 10", "windows", None),
        ("windows server 2019", "windows", None),
        ("Ubuntu 22.04", "linux", "2.35"),
        ("ubuntu22.04 LTS", "linux", "2.35"),
        ("centos7", "linux", "2.17"),
        ("CentOS 6.10", "linux", "2.12"),
        ("Ubuntu 14.04", "linux", "2.19"),
        ("Linux Mint 18", "linux", "2.23"),
        ("Fedora 20", "linux", "2.18"),
        ("Amazon Linux 2018.03", "linux", "2.17"),
        ("jessie", "linux", "2.19"),
        ("Unraid", "linux", None),
        ("openEuler 22.03", "linux", "2.34"),
        ("Kylin V10", "linux", "2.28"),
        ("TencentOS Server 3.1", "linux", "2.28"),
        ("Alibaba Cloud Linux 3", "linux", "2.32"),
        ("TrueNAS SCALE", "linux", None),
        ("RHEL 8.6", "linux", "2.28"),
        ("Rocky Linux 9", "linux", "2.34"),
        # As /etc/os-release names them.
        ("Ubuntu 22.04.4 LTS", "linux", "2.35"),
        ("Debian GNU/Linux 12 (bookworm)", "linux", "2.36"),
        ("Red Hat Enterprise Linux 8.10 (Ootpa)", "linux", "2.28"),
        ("CentOS Stream 9", "linux", "2.34"),
        ("Pop!_OS 22.04 LTS", "linux", "2.35"),
        ("SUSE Linux Enterprise Server 15 SP6", "linux", "2.38"),
        ("SLES 12 SP5", "linux", "2.22"),
        ("openSUSE Leap 15.4", "linux", "2.31"),
        ("openSUSE Tumbleweed", "linux", "2.40"),
        # These count their releases themselves.
        ("Linux Mint 22.1", "linux", "2.39"),
        ("Zorin OS 17.2", "linux", "2.35"),
        ("Proxmox VE 9", "linux", "2.41"),
        ("proxmox 10", "linux", None),
        ("arch", "linux", None),
        ("WSL2", "linux", None),
    ],
)
def test_systems_as_people_name_them(said: str, system: str, glibc: str | None) -> None:
    found = read_system(said)
    assert (found.system, str(found.glibc) if found.glibc else None) == (system, glibc)


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("win7", "7"),
        ("Windows-8.1-6.3.9600-SP0", "8.1"),
        ("windows server 2012 r2", "Server 2012 R2"),
        ("Windows-2012ServerR2-6.3.9600", "Server 2012 R2"),
        ("windows 2008", "Server 2008"),
        ("Windows-10-10.0.19045", None),
        ("windows server 2022", None),
    ],
)
def test_an_old_windows_is_known_however_it_is_named(said: str, release: str | None) -> None:
    assert old_windows(said) == release


def test_wsl_is_a_linux_on_the_driver_of_windows() -> None:
    assert read_system("wsl2 ubuntu 22.04").glibc == read_system("ubuntu 22.04").glibc
    assert read_system("wsl").driver_system == "windows"
    with pytest.raises(UsageError, match="WSL 1"):
        read_system("wsl1")
    # 526.47 is too old for CUDA 12 on Windows, and new enough by Linux' numbers.
    inside = rekindle_command("plan", "--gpu", "RTX 3060", "--os", "wsl2", "--driver", "526.47", "--json")
    linux = rekindle_command("plan", "--gpu", "RTX 3060", "--os", "linux", "--driver", "526.47", "--json")
    assert json.loads(inside.out)["recommended"]["cuda"] == "11.8"
    assert json.loads(linux.out)["recommended"]["cuda"] == "12.6"
    maxwell = rekindle_command("plan", "--gpu", "GTX 980", "--os", "wsl2")
    assert "GTX 980 may not work there" in " ".join(maxwell.out.split())


def test_alpine_is_musl_and_freebsd_is_unknown() -> None:
    assert read_system("alpine 3.19").libc == "musl"
    with pytest.raises(UsageError, match="freebsd"):
        read_system("freebsd")


@pytest.mark.parametrize(
    ("said", "torch", "cuda"),
    [
        ("2.6", "2.6", None),
        ("2.6.*", "2.6", None),
        ("v2.6.0", "2.6.0", None),
        ("torch==2.6.0+cu118", "2.6.0", "11.8"),
        ("==2.6.0", "2.6.0", None),
        ("torch>=2.6,<2.8", ">=2.6,<2.8", None),
        ("latest", None, None),
    ],
)
def test_a_release_as_pip_writes_it(said: str, torch: str | None, cuda: str | None) -> None:
    read, line = with_cuda(said, None)
    assert (read.wanted, str(line) if line else None) == (torch, cuda)


def test_a_build_that_contradicts_the_cuda_is_refused() -> None:
    with pytest.raises(UsageError, match=r"CUDA 11\.8"):
        with_cuda("2.6.0+cu118", "12.4")
    with pytest.raises(UsageError, match=r"\+cpu"):
        with_cuda("2.6.0+cpu", None)


def test_a_cuda_line_is_a_cuda() -> None:
    assert [str(read_cuda(said)) for said in ("cu126", "126", "CUDA 12.4", "cu92", "12")] == [
        "12.6",
        "12.6",
        "12.4",
        "9.2",
        "12",
    ]


def _answer(*args: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(rekindle_command("plan", *args, "--json").out)["recommended"]
    return found


def test_the_build_that_was_named_is_the_one_that_is_planned() -> None:
    assert _answer("--gpu", "3090", "--os", "linux", "--torch", "2.6.0+cu118")["variant"] == "cu118"


def test_the_number_in_pytorchs_message_is_no_driver() -> None:
    seen = rekindle_command("plan", "--gpu", "3090", "--os", "linux", "--driver", "11040")
    assert seen.code == 2
    assert "CUDA (11.4)" in seen.err
    assert "R470" in seen.err


def test_a_driver_that_was_cut_short_is_the_one_it_was_cut_from() -> None:
    """`450.80` once was older than the 450.80.02 that CUDA 11 needs, and cost twelve releases."""
    assert [str(read_driver(each).driver) for each in ("450.80", "525.60", "580.65", "470.57.02", "390.157")] == [
        "450.80.02", "525.60.13", "580.65.06", "470.57.02", "390.157",
    ]  # fmt: skip
    assert read_driver("450.80").note == "driver 450.80 is taken as 450.80.02"
    assert str(read_driver("472.50", "windows").driver) == "472.50"


@pytest.mark.parametrize("cuda", ["12.4", "13.0", "9"])
def test_the_cuda_beside_the_driver_is_no_driver(cuda: str) -> None:
    with pytest.raises(UsageError, match="is not a driver version"):
        read_driver(cuda)


def test_a_driver_as_nvidia_smi_shows_it() -> None:
    found = _answer("--gpu", "3090", "--os", "linux", "--driver", "535.183.01 (CUDA 12.2)")
    assert (found["variant"], found["driver"]) == ("cu126", "525.60.13 or newer")


def test_a_driver_as_windows_counts_it() -> None:
    with pytest.raises(UsageError, match="is not a version number"):
        read_driver("31.0.15.²713", "windows")  # a digit, and no number
    typed = read_driver("31.0.15.3713", "windows")
    assert (str(typed.driver), typed.note) == ("537.13", "driver 31.0.15.3713, as Windows counts, is NVIDIA's 537.13")


def test_a_toolkit_is_named_as_a_cuda_is() -> None:
    assert [str(ToolSpec.parse(f"cuda=={said}")) for said in ("cu126", "126", "12.6")] == ["cuda==12.6"] * 3


def test_a_target_is_named_as_a_card_is() -> None:
    assert targets_of(["6.1"]) == targets_of(["sm_61"])
    assert targets_of(["9.0+PTX,sm_61"]) == targets_of(["sm_90", "compute_90", "sm_61"])
    with pytest.raises(UsageError, match=r"`6\.x` is not a target"):
        targets_of(["6.x"])


def test_needs_with_a_comma() -> None:
    seen = rekindle_command("plan", "--gpu", "P40", "--os", "linux", "--needs", "bf16,compile")
    assert seen.code == 5
    assert rekindle_command("plan", "--gpu", "P40", "--os", "linux", "--needs", "bf16,x").code == 2


def test_why_not_takes_a_bare_version() -> None:
    seen = rekindle_command("plan", "--gpu", "T4", "--os", "linux", "--why-not", "2.15")
    assert seen.code == 0
    assert "torch==2.15" in seen.out


def test_thor_comes_with_an_arm_processor() -> None:
    seen = json.loads(rekindle_command("plan", "--gpu", "Jetson AGX Thor", "--os", "linux", "--json").out)
    assert seen["situation"]["machine"] == "aarch64"
    assert seen["recommended"]["torch"] == "2.15.0"


def test_nccl_is_not_promised_to_kepler() -> None:
    seen = rekindle_command("plan", "--gpu", "2x K80", "--os", "linux")
    assert "this build has NCCL" not in seen.out
    assert "gloo" in seen.out


def test_another_python_is_the_reason_where_it_is() -> None:
    seen = rekindle_command("plan", "--gpu", "3090", "--os", "linux", "--python", "3.7")
    assert "less tested" not in seen.out
    assert "another Python" in seen.out


def test_another_python_is_no_reason_where_the_release_takes_this_one_too() -> None:
    seen = rekindle_command("plan", "--gpu", "GTX 650 Ti", "--os", "linux")
    assert "another Python" not in seen.out
    assert "not 1.11.0: it works by the same route and is less tested" in " ".join(seen.out.split())


def test_the_headline_says_what_the_evidence_says() -> None:
    seen = " ".join(rekindle_command("plan", "--gpu", "RTX A2000", "--os", "windows", "--torch", "2.7.1").out.split())
    assert "official-wheel: the official wheel torch 2.7.1+cu126 evidence reported from real machines torch" in seen


@pytest.mark.parametrize("card", ["GTX 1080 Ti", "Tesla K80", "V100", "Tesla K40c", "RTX 5090", "GTX 650 Ti"])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_no_headline_doubts_itself(card: str, system: str) -> None:
    """It ended in `not yet confirmed`; how it is known stands in one line below it."""
    lines = rekindle_command("plan", "--gpu", card, "--os", system).out.splitlines()
    head = lines.index("") + 1
    assert "confirmed" not in lines[head]
    assert lines[head + 1].split()[0] == "evidence"


@pytest.mark.parametrize("name", ["GeForce 9800 GT", "GTX 285", "gt 240", "Quadro FX 3700"])
def test_cards_before_fermi_are_named_as_such(name: str) -> None:
    seen = rekindle_command("gpu", name)
    assert seen.code == 3
    assert "older than Fermi" in seen.err


@pytest.mark.parametrize(
    ("asked", "fits"), [(">=2.6,<2.9", True), ("2.7", True), ("2.7.1+cu118", True), (">=2.8", False)]
)
def test_verify_takes_a_range_as_a_range(asked: str, fits: bool) -> None:
    """`verify --torch ">=2.6"` held a wheel against the newest release alone."""
    assert read_torch(asked).admits("2.7.1+cu118") is fits


def test_the_driver_of_a_jetsons_system_counts_as_its_branch() -> None:
    """A Thor reports 580.00, and its CUDA works: no driver of the desktop is to be installed there."""
    assert read_driver("580.00").driver == read_driver("580").driver
    machine = Machine(os="linux", arch="aarch64", driver=FoundDriver(version=Version("580.00")))
    assert machine.driven_by == read_driver("580").driver


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("91900", "9.19.0"),
        ("91.9", "9.19.0"),
        ("90.1.1", "9.1.1"),
        ("8902", "8.9.2"),
        ("8.9.2", "8.9.2"),
        ("7", "None"),
    ],
)
def test_a_cudnn_as_its_number_and_as_torch_spells_it(said: str, meant: str) -> None:
    assert str(read_cudnn(said)) == meant


@pytest.mark.parametrize("verb", [verb for verb in _having("--gpu") if verb not in _FOR_SEVERAL])
def test_a_card_with_several_chips_is_told_apart_in_the_words_of_plan(verb: str, place: Path) -> None:
    """Every other verb said `was sold with different chips`."""
    best = json.loads(rekindle_command("plan", "--gpu", "GeForce GT 730", "--os", "linux", "--json").out)["recommended"]
    seen = _asked(place, verb, "--gpu", "GeForce GT 730")
    if seen.code != 14:  # some look for their file first
        assert (seen.code, best["summary"] in seen.err, best["change"]["text"] in seen.err) == (2, True, True), seen.err


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("19.29", "14.29"),
        ("1929", "14.29"),
        ("17.9", "14.39"),
        ("17.9.5", "14.39"),
        ("Visual Studio 2019", "14.29"),
        ("14.29.16.11", "14.29"),
        ("14.29.30133", "14.29.30133"),
    ],
)
def test_a_toolset_by_its_compiler_or_its_studio(said: str, meant: str) -> None:
    assert str(read_toolset(said)) == meant
    assert read_toolset("2022") == read_toolset("VS2022") == max(toolsets_of("2022"))


def test_what_installs_a_toolset_reads_it_as_the_option_does() -> None:
    assert rekindle_command("toolchain", "msvc", "1929", "--json").out == (
        rekindle_command("toolchain", "msvc", "14.29", "--json").out
    )
    refused = rekindle_command("toolchain", "msvc", "banana")
    assert refused.code == 2
    assert "--toolset" not in refused.err and "hint: " in refused.err


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("R 550", "550.163.01"),
        ("566.36 DCH", "566.36"),
        ("nvidia-open-570", "570.195.03"),
        ("Game Ready 566.36", "566.36"),
    ],
)
def test_a_driver_as_packages_and_installers_call_it(said: str, meant: str) -> None:
    assert str(read_driver(said).driver.version) == meant


def test_a_driver_of_five_numbers_is_none() -> None:
    with pytest.raises(UsageError, match="not a driver version"):
        read_driver("550.54.14.1.2")


def test_lines_and_pythons_as_people_write_them() -> None:
    assert [str(read_cuda(said)) for said in ("cu12.6", "12-6", "cuda-12-6")] == ["12.6"] * 3
    assert [str(read_python(said)) for said in ("v3.11", "3.11 64-bit", "3.9 (32-bit)")] == [
        "3.11",
        "3.11-64",
        "3.9-32",
    ]
    assert {read_torch(f"2.6.0+{said}").variant for said in ("cuda118", "cu11.8", "cu118")} == {"cu118"}


def test_what_installs_a_toolset_is_pasted_as_it_stands() -> None:
    """A folder with a space, and a program of the current folder, which PowerShell starts by its path only."""
    said = rekindle_command("toolchain", "msvc", "14.29", "--layout", "D:\\my layout").out
    assert '--layout "D:\\my layout" ' in said and '& "D:\\my layout\\vs_BuildTools.exe" --noWeb' in said
    assert "\n  .\\vs_BuildTools.exe --quiet" in said


@pytest.mark.parametrize("torch", [(), ("--torch", "2.7.1")])
def test_a_toolset_that_does_not_fit_is_the_reason(torch: tuple[str, ...]) -> None:
    """It was `cannot run on Tesla K40c: CUDA 12.0 cannot compile`."""
    best = _answer("--gpu", "Tesla K40c", "--os", "windows", "--toolset", "14.51", *torch)
    assert "CUDA 11.8 takes MSVC toolsets" in str(best["summary"]) and "14.51" in str(best["summary"])


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("cuda==CUDA 12.4", "cuda==12.4"),
        ("cudnn==8902", "cudnn==8.9.2"),
        ("cudnn==91002", "cudnn==9.10.2"),
        ("cudnn==8", "cudnn==8"),
        ("gcc", "gcc"),
        # Its server may have what is newer than the tables.
        ("cuda==99.1", "cuda==99.1"),
    ],
)
def test_a_tool_as_people_name_it(said: str, meant: str) -> None:
    assert str(ToolSpec.parse(said)) == meant


@pytest.mark.parametrize(
    ("said", "system", "arch"),
    [
        ("win-amd64", "windows", "x86_64"),
        ("windows_x86_64", "windows", "x86_64"),
        ("linux_x86_64", "linux", "x86_64"),
        ("linux-sbsa", "linux", "aarch64"),
        ("Linux", "linux", None),
    ],
)
def test_a_platform_as_people_name_it(said: str, system: str, arch: str | None) -> None:
    found = platform_of(said)
    assert found is not None
    here = Platform.here()
    assert (found.system, found.arch) == (system, arch or (here.arch if here.system == system else "x86_64"))
    with pytest.raises(UsageError, match="is not a platform"):
        platform_of("banana")


@pytest.mark.parametrize("said", ["torchvision==0.21", "0.21.0+cu118", "v0.21", "torchvision 0.21"])
def test_a_torchvision_is_named_as_a_torch_is(said: str) -> None:
    assert read_torchvision(said).startswith("0.21")
    assert _answer("--gpu", "3090", "--os", "linux", "--torchvision", said)["torch"] == "2.6.0"


def test_a_torchvision_that_is_none_is_refused_with_its_own_numbers() -> None:
    assert _answer("--gpu", "3090", "--os", "linux", "--torchvision", "latest")["torchvision"]
    for said in ("banana", "", ">=banana"):
        seen = rekindle_command("plan", "--gpu", "3090", "--os", "linux", "--torchvision", said)
        assert seen.code == 2 and "0.21" in seen.err and "2.7" not in seen.err
        with pytest.raises(UsageError):
            api.plan(gpus="3090", os="linux", torchvision=said)


def test_why_not_takes_a_range() -> None:
    ranged = rekindle_command("plan", "--gpu", "T4", "--os", "linux", "--why-not", "torch>=2.6", "--json")
    exact = rekindle_command("plan", "--gpu", "T4", "--os", "linux", "--why-not", "2.15", "--json")
    one, other = (json.loads(seen.out)["why_not"] for seen in (ranged, exact))
    assert one["question"] == "torch>=2.6" and one["sentence"] == other["sentence"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("nvidia-driver-535-server", "535"),
        ("535-open", "535"),
        ("550+", "550"),
        ("branch 470", "470"),
        ("550.54.14-0ubuntu1", "550.54.14"),
        ("NVIDIA-SMI 535.54.03  Driver Version: 536.40  CUDA Version: 12.2", "536.40"),
    ],
)
def test_a_driver_as_a_package_or_a_branch(said: str, meant: str) -> None:
    assert read_driver(said).driver == read_driver(meant).driver


def test_a_system_by_its_codename() -> None:
    assert str(read_system("jammy").glibc) == "2.35"
    assert {read_system(each).spoken for each in ("jammy", "Jammy", "ubuntu jammy")} == {"Ubuntu 22.04"}
    assert read_system("debian bookworm").spoken == "Debian 12"
    assert (read_system("bookworm").distribution, str(read_system("Bookworm").glibc)) == ("debian", "2.36")
    assert read_system("WSL2 (Ubuntu 22.04)") == read_system("wsl2 ubuntu 22.04")
    assert read_system("Windows Subsystem for Linux").wsl


@pytest.mark.parametrize("said", ["NVIDIA-SMI 535.54.03", "R580 U1"])
def test_a_refusal_quotes_what_was_typed(said: str) -> None:
    with pytest.raises(UsageError, match=f"`{said}`"):
        read_driver(said)


def test_one_name_for_a_card() -> None:
    """`--gpu V100` was a Tesla V100 to plan, and a Tesla V100-DGXS-32GB to inspect."""
    named = inspection._card(find("V100"), Capability(7, 0), {}).name
    assert named == cards_named(["V100"])[0].name == "Tesla V100"


@pytest.mark.parametrize("word", ["torch", "cuda", "python", "driver", "toolset", "os"])
def test_the_library_refuses_what_is_empty_as_the_option_is_refused(word: str, place: Path) -> None:
    def refusal(function: Callable[..., object], *said: object) -> str:
        with pytest.raises(RekindleError) as caught:
            function(*said, **{word: ""})
        return f"{caught.value.message} {caught.value.hint}"

    assert refusal(api.diagnose, place / "build.log") == refusal(functools.partial(api.plan, gpus="sm_86"))
    if word in ("torch", "os", "python", "driver"):
        assert refusal(api.review, place / "build.sh") == refusal(functools.partial(api.plan, gpus="sm_86"))


def test_the_library_takes_no_number_that_may_be_two_releases() -> None:
    for call in (functools.partial(api.plan, gpus="3090", os="linux"), functools.partial(api.review, "build.sh")):
        with pytest.raises(UsageError, match=r"2\.1 or 2\.10") as refused:
            call(torch=2.10)
        assert "2.10" in str(refused.value.hint)
    assert api.plan(gpus="3090", os="linux", torch=2.6).recommended.torch == "2.6.0"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        *(("torch", said) for said in ("banana", "2.6.7", "")),
        *(("cuda", said) for said in ("cu1210", "12.10", "banana", "")),
        *(("python", said) for said in ("", "3.1", "banana")),
        *(("gpu", "banana"), ("os", ""), ("os", "banana"), ("arch", "banana")),
    ],
)
def test_a_matrix_says_what_plan_says_with_its_hint(word: str, said: str, tmp_path: Path) -> None:
    rows = {"torch": "2.6.0", "gpu": "sm_86", "python": "3.11", word: said}
    (tmp_path / "m.toml").write_text("".join(f"{key} = [{json.dumps(each)}]\n" for key, each in rows.items()))
    seen = rekindle_command("fleet", "plan", str(tmp_path / "m.toml"), "--json")
    plan = rekindle_command("plan", *_VERBS["plan"].split(), f"--{word}", said) if word != "os" else None
    plan = plan or rekindle_command("plan", "--gpu", "sm_86", "--os", said)
    message, _, hint = plan.err.strip().removeprefix("error: ").partition("\n\nhint: ")
    assert seen.code == 5
    assert json.loads(seen.out)["jobs"][0]["reason"] == f"{message}; {hint}"


@pytest.mark.parametrize(("said", "name"), [("cu92", "cu92"), ("9.2", "cu9.2"), ("cpu", "cpu"), (None, "sm_86")])
def test_a_job_that_cannot_be_is_named_by_its_line_once(said: str | None, name: str) -> None:
    cell = MatrixCell(project="torch", torch="2.6.0", cuda=said, gpu="sm_86")
    assert cell_name(cell).split("-")[2] == name


@pytest.mark.parametrize(
    ("system", "python"),
    [
        ("Rocky Linux 9.4", "3.9"),
        ("AlmaLinux 8", "3.6"),
        ("RHEL 10", "3.12"),
        ("Amazon Linux 2023", "3.9"),
        ("openSUSE Leap 15.6", "3.6"),
        ("Fedora 43", "3.14"),
        ("Tumbleweed", None),
    ],
)
def test_a_system_has_a_python_of_its_own(system: str, python: str | None) -> None:
    """Rocky 9 was told to `pip install` a torch that its Python 3.9 has no wheel of."""
    assert wheel_platforms.own_python(system) == python
    assert read_system(system).spoken == system


@pytest.mark.parametrize(
    "text", ["Ubuntu 22.04 on WSL2", "Ubuntu 22.04 (WSL)", "ubuntu 22.04 wsl2", "WSL2 Ubuntu 22.04"]
)
def test_a_linux_inside_of_windows_in_either_order(text: str) -> None:
    found = read_system(text)
    assert found.wsl and str(found.glibc) == "2.35" and found.driver_system == "windows"


def test_dgx_os_is_ubuntu_and_nixos_needs_more_than_a_wheel() -> None:
    assert str(read_system("DGX OS 7").glibc) == "2.39" and "nix-ld" in (read_system("NixOS 25.11").note or "")


def test_another_python_than_cpython_is_told_so() -> None:
    with pytest.raises(UsageError, match="CPython alone"):
        read_python("pypy3.10")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("flash attention", "flash-attn"),
        ("FlashAttention2", "flash-attn"),
        ("flash-attention-3", "flash-attn-3"),
        ("SageAttention v2", "sageattention"),
        ("bits and bytes", "bitsandbytes"),
        ("pytorch-scatter", "torch-scatter"),
        ("torchscatter", "torch-scatter"),
        ("something-else", "something-else"),
    ],
)
def test_an_extension_as_people_write_it(said: str, name: str) -> None:
    assert read_extension(said) == name


@pytest.mark.parametrize(
    ("name", "cuda"),
    [
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", "12.4"),
        ("pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel", "12.1"),
        ("py3.9_cuda11.8_cudnn8.7.0_0", "11.8"),
        ("nvidia/label/cuda-11.8.0", "11.8"),
        ("dgl-cuda-11-3", "11.3"),
        ("dgl-cuda10.2", "10.2"),
        ("cuda112py38h3bc9ffa_1", "11.2"),
        ("torch211cu130", "13.0"),
        ("cu92", "9.2"),
        ("cupy-cuda12x", "12"),
        ("nvidia-cudnn-cu12", "12"),
        ("nvidia-cuda-runtime", None),
        ("libcublas.so.12", None),
    ],
)
def test_the_cuda_in_a_name_is_read_in_one_way(name: str, cuda: str | None) -> None:
    found = cuda_in(name)
    assert (str(found) if found else None) == cuda
    assert cuda_in(name, least=2) == (found if cuda and "." in cuda else None)
