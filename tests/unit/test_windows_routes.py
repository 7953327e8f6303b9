"""What the owner of an old card on Windows is told: whose build it was, how long it takes, others' wheels, WSL 2."""

from __future__ import annotations

import msgspec

from rekindle.core.version import Version
from rekindle.knowledge.builds import costs
from rekindle.model.card import Capability
from rekindle.stack import estimates
from rekindle.stack.candidates import wsl_can
from rekindle.stack.resolver import resolve
from rekindle.stack.rules import RouteKind
from rekindle.stack.situation import Card, Situation, Wish, situation_from_options

K40C = situation_from_options(["Tesla K40c"], system="windows")


def test_nobody_is_said_to_have_built_what_they_did_not_build() -> None:
    """torch-on-clunkers built 2.7.1 with CUDA 11.7; its notes only name 11.8."""
    eight = resolve(K40C, Wish(torch="2.7.1", cuda=None)).recommended
    assert str(eight.cuda) == "11.8"
    assert any("torch-on-clunkers built it with 11.7" in line for line in eight.why)
    assert not any("built so" in line for line in eight.why)
    seven = resolve(K40C, Wish(torch="2.7.1", cuda=Version("11.7"))).recommended
    assert any("built so for such a card by torch-on-clunkers" in line for line in seven.why)


def test_a_build_for_another_card_of_the_family_is_no_precedent() -> None:
    """A GTX 680 (3.0) was told of a build for a K40c (3.5), with a CUDA that does not compile for it."""
    first = resolve(situation_from_options(["GTX 680"], system="windows"), Wish()).recommended
    why = " ".join(first.why)
    assert "clunkers" not in why and "no build of it for 3.0 is known" in why


def test_times_are_of_cores_and_of_the_systems_own_compiler() -> None:
    row = costs.source_builds()[1]
    linux = costs.build_minutes(row, "linux", cores=8, jobs=8, architectures=1)
    assert costs.build_minutes(row, "windows", cores=8, jobs=8, architectures=1) > linux
    # Sixteen threads of eight cores take as long as eight cores do.
    assert costs.build_minutes(row, "linux", cores=8, jobs=16, architectures=1) == linux
    threads = msgspec.structs.replace(K40C, cores=16, physical_cores=8, memory=64 * 2**30)
    cores = msgspec.structs.replace(K40C, cores=8, memory=64 * 2**30)
    assert estimates.source_build("2.7.1", threads) is not None
    both = [estimates.source_build("2.7.1", each) for each in (threads, cores)]
    assert both[0] is not None and both[1] is not None
    assert both[0].minutes == both[1].minutes


def test_somebody_elses_wheel_is_looked_into_repaired_verified_and_only_then_installed() -> None:
    route = resolve(K40C, Wish(community=True)).recommended
    assert route.route is RouteKind.COMMUNITY
    words = [line.split()[:2] for line in route.commands if line.startswith("rekindle")]
    assert words == [["rekindle", verb] for verb in ("inspect", "repair", "verify", "install")]
    assert route.commands[0].startswith("https://drive.google.com/file/d/")
    assert not any("#" in line for line in route.commands), "cmd knows no such comment"
    assert any("mkl==2025.3.0" in line and "numpy>=2" in line for line in route.commands)
    assert {piece.what: piece.need for piece in route.missing} == {
        "toolkit": "CUDA 11.7",
        "cudnn": "cuDNN 8.7 for CUDA 11",
    }
    assert (route.python, str(route.cudnn)) == ("3.11", "8.7")
    assert route.unverified


def _situation(capability: Capability, *, tcc: bool = False) -> Situation:
    return Situation(system="windows", cards=(Card(name="a card", capabilities=(capability,), tcc=tcc),))


def test_wsl_is_for_pascal_and_newer_and_never_in_tcc_mode() -> None:
    assert wsl_can(_situation(Capability(6, 1)))
    assert not wsl_can(_situation(Capability(6, 1), tcc=True))
    assert not wsl_can(_situation(Capability(5, 2)))
    assert not wsl_can(_situation(Capability(3, 5)))


def test_wsl_is_advised_where_only_linux_has_what_is_needed() -> None:
    """torch.compile needs Triton, which has wheels for Linux only."""
    asked = Wish(needs=("compile",))
    route = resolve(_situation(Capability(8, 6)), asked).recommended
    assert route.route is RouteKind.WSL
    assert route.commands[0] == "wsl --install"
    # Windows' own driver has to run what is installed there; a card in TCC mode is not seen there at all.
    for situation in (_situation(Capability(8, 6), tcc=True), _situation(Capability(7, 5), tcc=True)):
        other = resolve(situation, asked).recommended
        assert other.route is RouteKind.OFFICIAL_WHEEL
        assert any("Triton" in loss for loss in other.loses)


def test_the_processor_is_part_of_plan_name_and_shelf() -> None:
    """The lock says the floor, the wheel's version names a lower one, and the reader takes it from there."""
    from rekindle.knowledge.builds.profiles import cpu_level
    from rekindle.stack.plan import plan_of
    from rekindle.wheels.inspect.identity import _labelled_cpu

    assert plan_of(resolve(K40C, Wish(torch="1.12.1"))).cpu == "avx"
    old = msgspec.structs.replace(K40C, cpu=("sse4.1",))
    planned = plan_of(resolve(old, Wish(torch="1.12.1")))
    assert (planned.profile, planned.cpu) == ("compat", "v1")
    assert cpu_level("compat", "aarch64") is None
    assert _labelled_cpu("1.12.1+cu114.cudnn870.sm35.x86v1") == "v1"
    assert _labelled_cpu("1.12.1+cu114.cudnn870.sm35") is None


def test_a_build_for_an_old_processor_says_so_in_its_name() -> None:
    from pathlib import Path

    from rekindle.build.configure import request
    from rekindle.build.run import folders
    from rekindle.machine.snapshot import load

    machine = load(Path(__file__).parents[1] / "machines" / "k40c-ready-windows.json")
    names = {
        profile: folders.wheel_version(
            request.resolve(request.BuildFile(torch="1.12.1", arch_list="3.5", python="3.9", profile=profile), machine)
        )
        for profile in ("fast", "compat")
    }
    assert not names["fast"].endswith("x86v1")
    assert names["compat"].endswith(".x86v1") or names["compat"].endswith("+cpu")


def test_a_build_for_windows_says_that_it_has_no_magma() -> None:
    """PyTorch's own wheels have it; nobody was told that the build has not."""
    found = {
        system: resolve(situation_from_options(["Tesla K40c"], system=system), Wish(torch="2.7.1"))
        for system in ("windows", "linux")
    }
    built = {
        system: next(route for route in verdict.routes if route.route is RouteKind.SOURCE_BUILD)
        for system, verdict in found.items()
    }
    said = {system: [each for each in route.why if "MAGMA" in each] for system, route in built.items()}
    assert len(said["windows"]) == 1 and "what of torch.linalg only it can do raises" in said["windows"][0]
    assert said["linux"] == []
