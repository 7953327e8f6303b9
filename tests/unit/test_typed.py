"""What people type, as they type it: systems, releases, CUDA lines, drivers, several wishes at once."""

from __future__ import annotations

import json

import pytest

from rekindle.core.errors import UsageError
from rekindle.stack.typed import old_windows, system_of, torch_of, version_of
from support.command import rekindle_command


@pytest.mark.parametrize(
    ("said", "system", "glibc"),
    [
        ("win11", "windows", None),
        ("Windows 10", "windows", None),
        ("windows server 2019", "windows", None),
        ("Ubuntu 22.04", "linux", "2.35"),
        ("ubuntu22.04 LTS", "linux", "2.35"),
        ("centos7", "linux", "2.17"),
        ("RHEL 8.6", "linux", "2.28"),
        ("Rocky Linux 9", "linux", "2.34"),
        ("arch", "linux", None),
        ("WSL2", "linux", None),
    ],
)
def test_systems_as_people_name_them(said: str, system: str, glibc: str | None) -> None:
    found = system_of(said)
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
    assert system_of("wsl2 ubuntu 22.04").glibc == system_of("ubuntu 22.04").glibc
    assert system_of("wsl").driver_system == "windows"
    with pytest.raises(UsageError, match="WSL 1"):
        system_of("wsl1")
    # 526.47 is too old for CUDA 12 on Windows, and new enough by Linux' numbers.
    inside = rekindle_command("plan", "--gpu", "RTX 3060", "--os", "wsl2", "--driver", "526.47", "--json")
    linux = rekindle_command("plan", "--gpu", "RTX 3060", "--os", "linux", "--driver", "526.47", "--json")
    assert json.loads(inside.out)["recommended"]["cuda"] == "11.8"
    assert json.loads(linux.out)["recommended"]["cuda"] == "12.6"
    maxwell = rekindle_command("plan", "--gpu", "GTX 980", "--os", "wsl2")
    assert "GTX 980 may not work there" in " ".join(maxwell.out.split())


def test_alpine_is_musl_and_freebsd_is_unknown() -> None:
    assert system_of("alpine 3.19").libc == "musl"
    with pytest.raises(UsageError, match="freebsd"):
        system_of("freebsd")


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
    release, line = torch_of(said, None)
    assert (release, str(line) if line else None) == (torch, cuda)


def test_a_build_that_contradicts_the_cuda_is_refused() -> None:
    with pytest.raises(UsageError, match=r"CUDA 11\.8"):
        torch_of("2.6.0+cu118", "12.4")
    with pytest.raises(UsageError, match=r"\+cpu"):
        torch_of("2.6.0+cpu", None)


def test_a_cuda_line_is_a_cuda() -> None:
    assert str(version_of("cu126", "--cuda")) == "12.6"
    assert str(version_of("CUDA 12.4", "--cuda")) == "12.4"


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


def test_a_driver_as_nvidia_smi_shows_it() -> None:
    found = _answer("--gpu", "3090", "--os", "linux", "--driver", "535.183.01 (CUDA 12.2)")
    assert (found["variant"], found["driver"]) == ("cu126", "525.60.13 or newer")


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
    assert "not 1.13.1: it works by the same route and is less tested" in " ".join(seen.out.split())


def test_the_headline_says_what_the_evidence_says() -> None:
    seen = " ".join(rekindle_command("plan", "--gpu", "RTX A2000", "--os", "windows", "--torch", "2.7.1").out.split())
    assert "reported from real machines" in seen
    assert "(as real machines print it; not yet confirmed on the file)" in seen
    assert "from its build script" not in seen


@pytest.mark.parametrize("name", ["GeForce 9800 GT", "GTX 285", "gt 240", "Quadro FX 3700"])
def test_cards_before_fermi_are_named_as_such(name: str) -> None:
    seen = rekindle_command("gpu", name)
    assert seen.code == 3
    assert "older than Fermi" in seen.err
