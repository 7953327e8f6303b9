"""What the doctor says of machines that were written down: what a user reads, on any system that reads them.

What is expected of each is derived from the facts (which CUDA compiles for which card, which toolsets it takes, which
cuDNN holds which code), not from the doctor's own answers.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import rekindle
from rekindle.cli.main import run
from rekindle.core.errors import UnknownName
from rekindle.core.findings import Finding, State
from rekindle.core.version import Version
from rekindle.doctor import report
from rekindle.doctor.computer import at_least, plainness, sold_as
from rekindle.doctor.report import examine, judges
from rekindle.doctor.text import paste
from rekindle.knowledge.builds import checks
from rekindle.machine import snapshot
from rekindle.machine.model import Disk, FoundDriver, FoundGpu, FoundPython, FoundTorch, Machine, Surroundings, Unread
from rekindle.model.card import Capability, Target
from rekindle.stack.resolver import resolve
from rekindle.stack.situation import Installed, Wish, situation_from_options

MACHINES = Path(__file__).parents[1] / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))


def machine(name: str) -> Machine:
    return snapshot.load(MACHINES / f"{name}.json")


def found(name: str, check: str) -> list[Finding]:
    return list(examine(machine(name), only=[check]))


def the(name: str, check: str, state: State, *words: str) -> Finding:
    """The one finding of that check and state whose words are all there."""
    fitting = [f for f in found(name, check) if f.state is state and all(word in f.found for word in words)]
    assert len(fitting) == 1, found(name, check)
    return fitting[0]


class TestKeplerOnWindows:
    """Tesla K40c, 472.50, CUDA 11.4 and 11.8, VS 2019, a part of cuDNN 8.9."""

    def test_the_card_is_told_by_its_pci_id_because_r470_has_no_capability_query(self) -> None:
        card = machine("k40c-windows").gpus[0]
        assert (card.name, str(card.capability), card.capability_from) == ("Tesla K40c", "3.5", "pci")
        assert (card.driver_model, card.memory, card.problem) == ("TCC", 11441 * 1024**2, 0)

    def test_47250_is_of_branch_r470_and_serves_it(self) -> None:
        the("k40c-windows", "driver.present", State.PASS, "472.50", "R470")
        the("k40c-windows", "driver.serves-card", State.PASS, "472.50")

    def test_both_toolkits_compile_for_it_and_the_driver_runs_both(self) -> None:
        the("k40c-windows", "cuda.targets-card", State.PASS, "11.4", "sm_35")
        the("k40c-windows", "cuda.targets-card", State.PASS, "11.8", "sm_35")
        the("k40c-windows", "cuda.driver-runs", State.PASS, "11.4", "fully")
        the("k40c-windows", "cuda.driver-runs", State.PASS, "11.8", "compiles none of the PTX")

    def test_the_toolset_to_load_is_named(self) -> None:
        the(
            "k40c-windows",
            "msvc.accepted",
            State.PASS,
            "CUDA 11.4 takes toolset 14.29.30133",
            "-vcvars_ver=14.29.30133",
        )

    def test_cudnn_89_has_no_code_for_it_and_is_a_partial_copy(self) -> None:
        finding = the("k40c-windows", "cudnn.serves-card", State.FAIL, "cuDNN 8.9 has no sm_35 code")
        assert finding.fix
        assert "8.7.0" in finding.fix.text
        the("k40c-windows", "cudnn.whole", State.FAIL, "cudnn_ops_infer", "cudnn_adv_train")


class TestBlackwellOnWindows:
    """RTX 5070, CUDA 12.3 first on PATH, 12.9 in CUDA_PATH, VS 2022 17.14: the machine of document 002."""

    def test_123_cannot_target_it_and_129_can(self) -> None:
        finding = the("rtx5070-windows", "cuda.targets-card", State.FAIL, "CUDA 12.3 cannot compile for sm_120")
        assert finding.fix
        assert "12.9" in finding.fix.text
        the("rtx5070-windows", "cuda.targets-card", State.PASS, "CUDA 12.9", "sm_120")

    def test_msvc_1944_is_refused_by_123_and_taken_by_129(self) -> None:
        finding = the("rtx5070-windows", "msvc.accepted", State.FAIL, "MSVC 19.44 is refused by CUDA 12.3")
        assert finding.fix
        # CUDA 12.3 does not serve the card, so no compiler is sought for it.
        assert "put CUDA 12.9 first on PATH" in finding.fix.text
        the("rtx5070-windows", "msvc.accepted", State.PASS, "CUDA 12.9 takes toolset 14.44.35207")

    def test_path_and_cuda_path_name_different_toolkits(self) -> None:
        finding = the("rtx5070-windows", "cuda.one-wins", State.FAIL, "nvcc 12.3.107", "CUDA_PATH names CUDA 12.9")
        # The fix follows the toolkit that serves the card, as every other fix does.
        assert finding.fix
        assert all("v12.9" in command and "v12.3" not in command for command in finding.fix.commands)

    def test_its_33378976_kb_are_32_gb(self) -> None:
        the("rtx5070-windows", "memory.enough", State.PASS, "32 GB")

    def test_its_ninja_and_cmake_are_named(self) -> None:
        assert the("rtx5070-windows", "tools.ninja", State.FAIL, "1.11.1").fix
        the("rtx5070-windows", "tools.cmake", State.WARN, "4.0.3", "1.10 to 2.6")

    def test_the_chinese_prompt_is_understood(self) -> None:
        the("rtx5070-windows", "msvc.x64", State.PASS, "x64")
        the("rtx5070-windows", "msvc.prompt-toolset", State.FAIL, "12.3", "14.44")

    def test_a_console_in_an_old_code_page(self) -> None:
        finding = the("rtx5070-windows", "console.encoding", State.WARN, "cp1252")
        assert finding.fix
        assert "chcp 65001" in finding.fix.commands


class TestNoDriver:
    def test_the_card_behind_the_basic_display_adapter_is_found(self) -> None:
        card = machine("no-driver-windows").gpus[0]
        assert (card.name, str(card.capability)) == ("GeForce GTX 1080 Ti", "6.1")

    def test_the_problem_code_and_the_branch_to_install_are_told(self) -> None:
        the("no-driver-windows", "gpu.problem", State.FAIL, "code 28")
        finding = the("no-driver-windows", "driver.present", State.FAIL, "no NVIDIA driver")
        assert finding.fix
        assert "R580" in finding.fix.text

    def test_a_folder_with_spaces_and_parentheses(self) -> None:
        the("no-driver-windows", "paths.root", State.WARN, "spaces", "batch files")
        assert plainness("C:\\rk") == []
        assert plainness("C:\\Users\\Zoë\\x") == ["it has letters outside ASCII"]


class TestSeveralCards:
    def test_two_keplers_under_r352(self) -> None:
        cards = machine("two-keplers-linux").gpus
        assert [(card.name, str(card.capability)) for card in cards] == [("Tesla K40c", "3.5"), ("Tesla K20c", "3.5")]
        assert all(set(card.sources) == {"nvidia-smi", "pci"} for card in cards)
        the("two-keplers-linux", "driver.cuda", State.FAIL, "352.39", "440.33")

    def test_no_driver_serves_a_k40c_and_an_rtx_5070(self) -> None:
        the("mixed-linux", "gpu.together", State.FAIL, "sm_35", "R470", "sm_120", "R570")
        the("mixed-linux", "driver.serves-card", State.FAIL, "Tesla K40c", "R470", "575.64.05")
        the("mixed-linux", "driver.serves-card", State.PASS, "RTX 5070")

    def test_the_torch_that_is_installed_serves_neither(self) -> None:
        assert [f.state for f in found("mixed-linux", "torch.serves-card")] == [State.FAIL, State.FAIL]
        # No torch 2.2 was compiled against NumPy 2: that begins with 2.3 on Linux.
        the("mixed-linux", "torch.numpy", State.FAIL, "NumPy 2.1.0")

    def test_an_installed_torch_with_too_new_a_numpy_is_not_simply_ready(self) -> None:
        """doctor's FAIL and plan's route are one rule: the route says what to change first."""
        have = Installed(version="2.2.0+cu121", cuda=Version("12.1"), targets=(Target.parse("sm_60"),))
        here = msgspec.structs.replace(
            situation_from_options(["Tesla P100"], system="linux", driver="535.183.01", python="3.12"),
            installed=msgspec.structs.replace(have, numpy=Version("2.1.0")),
        )
        route = resolve(here, Wish()).recommended
        assert route.commands == ('pip install "numpy<2"',) and "too new" in route.summary
        fine = msgspec.structs.replace(here, installed=have)
        assert resolve(fine, Wish()).recommended.commands == ()

    def test_what_is_installed_is_not_explained_by_a_build(self) -> None:
        """On a machine with CUDA 13 the reason was that a newer release does not build with CUDA 11.8."""
        have = Installed(version="2.11.0+cu130", cuda=Version("13.0"), targets=(Target.parse("sm_90"),))
        here = situation_from_options(["H200"], system="linux", driver="580.159.04", python="3.12")
        why = resolve(msgspec.structs.replace(here, installed=have), Wish()).decisive
        assert why and "what is installed works as it is" in why and "--torch 2.15.0" in why

    def test_the_containers_limit_counts_not_the_machines_memory(self) -> None:
        the("mixed-linux", "memory.container", State.WARN, "8.0 of 31.1 GB")
        the("mixed-linux", "memory.enough", State.WARN, "8 GB")


class TestNewEnvironment:
    def test_it_is_made_by_the_python_that_is_there(self) -> None:
        """The fix named python3.11, which that Ubuntu does not have."""
        (fix,) = (finding.fix for finding in found("wsl", "python.one-environment"))
        assert fix is not None
        assert fix.commands == ('/usr/bin/python3 -m venv "$HOME/rk/env"', 'rekindle install "$HOME/rk/env"')


class TestHalfActivated:
    def test_the_environment_that_is_active_is_not_the_python_that_runs(self) -> None:
        the(
            "half-conda-windows",
            "python.one-environment",
            State.FAIL,
            "half-activated",
            "py311",
            "miniconda3\\python.exe",
        )

    def test_the_prompt_is_for_x86_and_gits_link_wins(self) -> None:
        the("half-conda-windows", "msvc.x64", State.FAIL, "x86")
        the("half-conda-windows", "msvc.link", State.FAIL, "Git\\usr\\bin\\link.exe")

    def test_stale_settings(self) -> None:
        the("half-conda-windows", "intel.stale", State.FAIL, "CC=icx", "ONEAPI_ROOT")
        the("half-conda-windows", "cuda.one-wins", State.FAIL, "CUDA_PATH", "v12.1", "names no toolkit")

    def test_torch_and_nvcc_are_of_different_cuda(self) -> None:
        the("half-conda-windows", "torch.matches-nvcc", State.FAIL, "12.1", "11.8.89")
        the("half-conda-windows", "tools.setuptools", State.FAIL, "78.0.1")
        finding = the("half-conda-windows", "torch.numpy", State.FAIL, "2.0.1")
        assert finding.fix
        assert finding.fix.mechanical


class TestTwoToolkitsOnDebian:
    """CUDA 13.0 in /usr/local and Debian's 11.8 behind it on PATH: recorded on a real machine."""

    def test_both_are_listed_with_their_own_targets(self) -> None:
        first, second = machine("debian-two-cudas").toolkits
        # `ptxas --help` of the two releases: 13.0 begins at sm_75, 11.8 at sm_35 and ends at sm_90.
        assert (str(first.version), str(first.targets[0]), str(first.targets[-1])) == ("13.0.88", "sm_75", "sm_121")
        assert (str(second.version), str(second.targets[0]), str(second.targets[-1])) == ("11.8.89", "sm_35", "sm_90")

    def test_118_calls_the_ptxas_of_130_and_the_fix_is_a_command(self) -> None:
        finding = the("debian-two-cudas", "cuda.own-tools", State.FAIL, "nvcc 11.8.89", "ptxas 13.0.88")
        assert finding.fix
        assert finding.fix.commands == ('export PATH="/usr/lib/nvidia-cuda-toolkit/bin:/usr/bin:$PATH"',)
        the("debian-two-cudas", "cuda.own-tools", State.PASS, "nvcc 13.0.88")

    def test_gcc_12_is_refused_by_118_and_gcc_11_is_named(self) -> None:
        the("debian-two-cudas", "gcc.accepted", State.WARN, "11.8", "GCC 12 is refused", "g++-11")
        the("debian-two-cudas", "gcc.accepted", State.PASS, "13.0")


class TestWsl:
    def test_the_driver_counts_by_windows_numbers(self) -> None:
        seen = machine("wsl")
        assert (seen.surroundings.wsl, seen.driver_system) == ("2", "windows")
        the("wsl", "wsl.driver", State.PASS, "576.57")

    def test_the_table_cuts_the_name_and_the_driver_gives_it_whole(self) -> None:
        assert machine("wsl").gpus[0].name == "NVIDIA GeForce GTX 1080 Ti"


def test_a_machine_without_a_card_is_shown_how_to_ask_for_one() -> None:
    empty = Machine(os="linux", arch="x86_64")
    finding = next(f for f in examine(empty, only=["gpu.present"]))
    assert finding.state is State.WARN
    assert finding.fix
    assert any("rekindle plan --gpu" in command for command in finding.fix.commands)


@pytest.mark.parametrize("code", [12, 43, 99])
def test_problem_codes_are_explained(code: int) -> None:
    seen = Machine(os="windows", arch="x86_64", gpus=(FoundGpu(name="Tesla K80", problem=code),))
    finding = next(iter(examine(seen, only=["gpu.problem"])))
    assert finding.state is State.FAIL
    assert str(code) in finding.found


def test_an_embeddable_python_cannot_be_built_against() -> None:
    python = FoundPython(
        path="C:\\tool\\python.exe", version=Version("3.11.9"), kind="embedded", prefix="C:\\tool", bits=64
    )
    seen = Machine(os="windows", arch="x86_64", python=python)
    assert [f.state for f in examine(seen, only=["python.embedded"])] == [State.WARN]


@pytest.mark.parametrize(("excluded", "state"), [(("C:\\rk",), State.PASS), ((), State.WARN)])
def test_defenders_exclusions_where_they_may_be_read(excluded: tuple[str, ...], state: State) -> None:
    around = Surroundings(defender_exclusions=excluded, here="C:\\rk\\build")
    seen = Machine(os="windows", arch="x86_64", surroundings=around)
    assert [f.state for f in examine(seen, only=["antivirus.exclusions"])] == [state]
    unreadable = Machine(os="windows", arch="x86_64", surroundings=Surroundings(here="C:\\rk"))
    assert not examine(unreadable, only=["antivirus.exclusions"])


@pytest.mark.parametrize(("told", "windows", "state"), [
    (True, 22631, [State.PASS]), (False, 22631, [State.WARN]), (None, 22631, []), (False, 19045, []),
])  # fmt: skip
def test_a_dev_drive_is_recommended_where_windows_has_them(told: bool | None, windows: int, state: list[State]) -> None:
    disks = (Disk(role="here", path="D:\\rk", dev_drive=told), Disk(role="temp", path="C:\\t", dev_drive=False))
    around = Surroundings(release=f"Windows-10-10.0.{windows}-SP0")
    seen = Machine(os="windows", arch="x86_64", surroundings=around, disks=disks)
    assert [f.state for f in examine(seen, only=["disk.dev-drive"])] == state


def test_a_probe_that_gave_no_answer_is_unverified_never_a_pass() -> None:
    seen = Machine(os="linux", arch="x86_64", unread=(Unread(probe="toolkits", reason="no answer in 45 s"),))
    found = examine(seen, only=["probes.read", "cuda.present"])
    assert [f.state for f in found] == [State.UNVERIFIED, State.UNVERIFIED]


def test_a_loaded_module_that_differs_from_the_libraries_wants_a_reboot() -> None:
    driver = FoundDriver(
        version=Version("550.90.07"), sources=("nvml", "kernel"), clashes=("kernel says driver 550.54.14",)
    )
    found = examine(Machine(os="linux", arch="x86_64", driver=driver), only=["driver.agrees"])
    assert [f.state for f in found] == [State.FAIL]
    assert found[0].fix
    assert found[0].fix.text == "reboot"


def test_a_name_with_several_chips_is_unverified_never_guessed() -> None:
    several = (Capability(2, 1), Capability(3, 0), Capability(3, 5))
    seen = Machine(os="windows", arch="x86_64", gpus=(FoundGpu(name="GeForce GT 730", candidates=several),))
    finding = next(iter(examine(seen, only=["gpu.capability"])))
    assert finding.state is State.UNVERIFIED
    assert "2.1, 3.0 and 3.5" in finding.found


@pytest.mark.parametrize(
    ("size", "gigabytes", "enough"),
    [
        (33378976 * 1024, 32, True),  # document 002: refused by integer division
        (32 * 1024**3, 32, True),
        (31 * 1024**3, 32, True),
        (24 * 1024**3, 32, False),
        (15 * 1024**3, 16, True),
        (8 * 1024**3, 16, False),
        (0, 16, False),
    ],
)
def test_memory_as_it_is_sold(size: int, gigabytes: int, enough: bool) -> None:
    assert at_least(size, gigabytes) is enough


@pytest.mark.parametrize(
    ("gib", "sold"), [(31.83, 32), (15.3, 16), (62.8, 64), (23.5, 24), (7.8, 8), (5.9, 6), (125.6, 128)]
)
def test_the_size_that_is_printed_on_the_box(gib: float, sold: int) -> None:
    assert sold_as(int(gib * 1024**3)) == sold


def test_how_long_a_build_takes_on_two_cores_is_counted_from_measured_builds() -> None:
    """1.13.1 took 17,500 + 8,700 core-seconds: 3.6 hours on two cores, not a day."""
    seen = machine("k40c-windows")
    small = msgspec.structs.replace(seen, processor=msgspec.structs.replace(seen.processor, cores=2))
    (cores,) = examine(small, only=["cpu.cores"])
    assert cores.state is State.WARN and cores.found.startswith("2 cores: a build takes about 4 hours for torch 1.13,")


def test_every_check_of_the_catalogue_is_carried_out_by_something() -> None:
    assert set(judges()) == {row.id for row in checks.checks()}


def test_every_check_was_met_on_one_of_the_machines() -> None:
    """A check that no machine ever triggers is not tested."""
    met = {finding.id for name in NAMES for finding in examine(machine(name))}
    rare = {"python.embedded", "antivirus.exclusions", "probes.read"}  # each has a test of its own above
    assert {row.id for row in checks.checks()} - met <= rare


@pytest.mark.parametrize("name", NAMES)
def test_the_block_to_paste_is_short_and_says_what_is_wrong(name: str) -> None:
    answer = report.report(machine(name))
    block = paste(answer)
    assert len(block.splitlines()) < 60
    worst = max(answer.checks, key=lambda finding: finding.state.rank)
    assert worst.id in block


def test_names_are_not_in_the_block() -> None:
    seen = machine("k40c-windows")
    home = msgspec.structs.replace(seen.surroundings, here="C:\\Users\\Ottilie\\source")
    environment = {**seen.environment, "VIRTUAL_ENV": "C:\\Users\\Ottilie\\env", "CC": "C:\\Users\\Ottilie\\cl.exe"}
    block = paste(report.report(msgspec.structs.replace(seen, surroundings=home, environment=environment)))
    assert "Ottilie" not in block
    assert "<user>" in block


def test_two_shells_of_one_machine_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads((MACHINES / "rtx5070-windows.json").read_text(encoding="utf-8"))
    path = data["recording"]["environment"]["PATH"].split(";")
    turned = next(entry for entry in path if "v12.9" in entry)
    data["recording"]["environment"]["PATH"] = ";".join([turned, *[entry for entry in path if entry != turned]])
    other = tmp_path / "other.json"
    other.write_text(json.dumps(data), encoding="utf-8")
    assert run(["doctor", "--compare", str(MACHINES / "rtx5070-windows.json"), str(other)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "cuda.one-wins" in shown
    assert "PATH order" in shown
    assert "CUDA_PATH names CUDA 12.9" in shown
    assert run(["doctor", "--compare", str(other), str(other)]) == 0
    assert "same facts" in capsys.readouterr().out


def test_the_json_has_the_keys_that_were_promised(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--machine", str(MACHINES / "k40c-windows.json"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 8
    assert answer["schema"] == "rekindle.doctor/1"
    assert {"machine", "checks", "verdict"} <= set(answer)
    assert all({"id", "state", "found", "why", "fix"} <= set(check) for check in answer["checks"])
    assert {check["state"] for check in answer["checks"]} <= {state.value for state in State}


@pytest.mark.parametrize(
    ("name", "route", "step"),
    [
        ("k40c-windows", "source-build", "rekindle"),  # no official wheel since 1.10 was built for sm_35
        ("rtx5070-windows", "official-wheel", "rekindle install"),
        ("mixed-linux", "none", "take out one card"),  # R470 at most for one card, R570 at least for the other
        ("no-driver-windows", "official-wheel", "remove the old driver"),
    ],
)
def test_the_verdict_and_the_one_thing_to_do_next(
    name: str, route: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["doctor", "--machine", str(MACHINES / f"{name}.json"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"]["route"] == route
    assert [*answer["next"]["commands"], answer["next"]["text"]][0].startswith(step)


def test_a_recorded_machine_without_a_card_has_no_verdict_but_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--machine", str(MACHINES / "debian-two-cudas.json")]) == 8
    shown = capsys.readouterr().out
    assert shown.startswith("Next       name the card you mean")
    assert "rekindle plan --gpu" in shown.splitlines()[1]
    seen = rekindle.doctor(MACHINES / "debian-two-cudas.json")
    (present,) = (each for each in seen.checks if each.id == "gpu.present")
    assert present.fix == seen.next  # the check named another card, by other commands


def test_what_only_a_build_would_mind_is_one_line_when_a_wheel_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    """A GTX 1080 Ti has an official wheel: no toolkit, no compiler and no CMake are missing for that."""
    where = ["doctor", "--machine", str(MACHINES / "wsl.json")]
    run(where)
    short = capsys.readouterr().out
    assert short.startswith("Will work  the official wheel")
    assert "matters only for a build from source" in short
    assert "FAIL" not in short
    assert "tools.cmake" in short
    assert "no cmake on PATH" not in short
    run([*where, "--all"])
    assert "no cmake on PATH" in capsys.readouterr().out
    run(["doctor", "--machine", str(MACHINES / "k40c-windows.json")])
    assert "Only a build" not in capsys.readouterr().out  # here a build is what is recommended


def test_only_takes_ids_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    where = str(MACHINES / "k40c-windows.json")
    run(["doctor", "--machine", where, "--only", "cudnn", "--only", "gpu.present", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert {check["id"] for check in answer["checks"]} == {
        "gpu.present",
        "cudnn.present",
        "cudnn.whole",
        "cudnn.serves-card",
    }
    with pytest.raises(UnknownName, match="cudaa"):
        examine(machine("wsl"), only=["cudaa.own"])


def test_the_exit_code_is_that_of_the_worst_state(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["doctor", "--machine", str(MACHINES / "k40c-windows.json")]
    assert run([*where, "--only", "cudnn"]) == 8
    assert run([*where, "--only", "gpu"]) == 0
    assert run(["doctor", "--machine", str(MACHINES / "half-conda-windows.json"), "--only", "torch.serves-card"]) == 9
    assert run([*where, "--only", "nonsense"]) == 3
    assert run(["doctor", "--machine", "nowhere.json"]) == 14
    capsys.readouterr()


def test_a_check_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--machine", str(MACHINES / "rtx5070-windows.json"), "--explain", "msvc.accepted"]) == 0
    shown = capsys.readouterr().out
    assert "two gates" in shown
    assert "host_config.h" in shown
    assert "MSVC 19.44 is refused by CUDA 12.3" in shown


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_well_in_ascii_and_eighty_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--machine", str(MACHINES / f"{name}.json"), "--all"])
    lines = capsys.readouterr().out.splitlines()
    long = [line for line in lines if len(line) > 80]
    # A command or a path is never broken: it is there to be copied.
    assert all("\\" in line or "/" in line or "rekindle" in line or "pip install" in line for line in long), long


def test_a_branch_is_installed_and_held_as_the_distribution_does_it() -> None:
    from rekindle.doctor.graphics import driver_commands

    kepler = snapshot.load(MACHINES / "two-keplers-linux.json")
    for distribution, words in (
        ("ubuntu", ("sudo apt install nvidia-driver-470", "apt-mark hold")),
        ("fedora", ("akmod-nvidia-470xx", "versionlock")),
        ("arch", ("nvidia-470xx-dkms",)),
        ("nixos", ("legacy_470",)),
    ):
        seen = msgspec.structs.replace(kepler.surroundings, distribution=distribution)
        said = "\n".join(driver_commands(msgspec.structs.replace(kepler, surroundings=seen), 470))
        assert all(word in said for word in words), said
    windows = snapshot.load(MACHINES / "k40c-windows.json")
    said = "\n".join(driver_commands(windows, 470))
    assert "475.14" in said
    assert "ExcludeWUDriversInQualityUpdate" in said


@pytest.mark.parametrize(
    ("torch", "there", "state", "words"),
    [
        (
            "2.14.1",
            ("msvcp140.dll", "vcruntime140_threads.dll"),
            State.FAIL,
            "msvcp140_atomic_wait.dll is not in System32",
        ),
        ("2.13.0", ("msvcp140.dll",), State.PASS, "are there"),
        ("2.13.0", (), State.FAIL, "msvcp140.dll is not in System32: torch 2.13.0 cannot be imported"),
        (None, ("msvcp140.dll",), State.WARN, "torch (torch 2.14 and newer) cannot be imported"),
        (None, (), State.WARN, "msvcp140.dll, vcruntime140_threads.dll and msvcp140_atomic_wait.dll are not"),
        ("2.15.0", None, State.UNVERIFIED, "were not looked for"),
    ],
)
def test_the_visual_c_libraries_that_torch_imports(
    torch: str | None, there: tuple[str, ...] | None, state: State, words: str
) -> None:
    seen = Machine(
        os="windows",
        arch="x86_64",
        torch=FoundTorch(version=torch, root="") if torch else None,
        surroundings=Surroundings(visual_runtime=there),
    )
    finding = examine(seen, only=["torch.visual-runtime"])[0]
    assert (finding.state, words in finding.found) == (state, True), finding.found
    assert (finding.fix is not None and "vc_redist.x64.exe" in finding.fix.text) is (state is not State.PASS)


@pytest.mark.parametrize(
    ("system", "version", "sources", "state"),
    [
        ("linux", "570.26", ("pci",), State.WARN),
        ("linux", "570.26", ("pci", "nvml"), State.PASS),
        ("linux", "590.44.01", ("pci",), State.PASS),
        ("windows", "572.16", ("pci",), State.PASS),
    ],
)
def test_a_card_that_no_list_of_that_driver_names_is_warned_of(
    system: str, version: str, sources: tuple[str, ...], state: State
) -> None:
    card = FoundGpu(name="NVIDIA GeForce RTX 5050", pci_id="10de:2d83", capability=Capability(12, 0), sources=sources)
    seen = Machine(os=system, arch="x86_64", gpus=(card,), driver=FoundDriver(version=Version(version)))
    (finding,) = examine(seen, only=["driver.serves-card"])
    assert finding.state is state, finding.found
    assert ("NVIDIA's lists name" in finding.found) is (state is State.WARN)


@pytest.mark.parametrize(("sources", "state"), [((), State.FAIL), (("nvml",), State.WARN)])
def test_a_first_driver_is_said_to_be_inferred(sources: tuple[str, ...], state: State) -> None:
    card = FoundGpu(name="NVIDIA GeForce RTX 5070", capability=Capability(12, 0), sources=sources)
    seen = Machine(os="linux", arch="x86_64", gpus=(card,), driver=FoundDriver(version=Version("535.54.03")))
    (finding,) = examine(seen, only=["driver.serves-card"])
    assert finding.state is state
    assert "inferred from CUDA 12.8, the first that compiles for 12.0" in finding.found


def test_what_would_make_the_next_step_go_wrong_is_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`rekindle install` stood above the FAIL that says why it would go into another environment."""
    run(["doctor", "--machine", str(MACHINES / "half-conda-windows.json")])
    text = capsys.readouterr().out
    begun = text.index("Next       close this shell")
    assert begun < text.index("rekindle install") < text.index("FAIL")


def test_without_a_card_only_a_build_would_mind_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--machine", str(MACHINES / "debian-two-cudas.json")])
    text = capsys.readouterr().out
    assert "matters only for a build from source" in text and "\nWARN       no MKL" not in text
    run(["doctor", "--machine", str(MACHINES / "debian-two-cudas.json"), "--all"])
    assert "matters only for a build from source" not in capsys.readouterr().out


def test_a_card_whose_name_is_cut_short_was_found() -> None:
    """The verdict said that there is no card, two lines above the card."""
    seen = Machine(os="linux", arch="x86_64", gpus=(FoundGpu(name="NVIDIA GeForce ..."),))
    verdict = report.report(seen).verdict
    assert verdict is not None
    assert verdict.summary == "which card `NVIDIA GeForce ...` is could not be told"


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_the_last_line_add_up(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--machine", str(MACHINES / f"{name}.json")])
    total, _, parts = capsys.readouterr().out.rstrip().rpartition("\n")[2].partition(" checks: ")
    assert int(total) == sum(int(part.split()[0]) for part in parts.split(", "))
