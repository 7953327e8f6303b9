"""How far code serves a card: the definition, on the cases it was made for."""

from __future__ import annotations

import msgspec
import pytest

from rekindle.compat.gpu_code import overall, served
from rekindle.core.version import Version
from rekindle.knowledge.gpu.capability import Coverage
from rekindle.knowledge.gpu.gpu_code import GpuCode, sums
from rekindle.model.card import Capability, Target


def code(*containers: str, isa: str = "8.7") -> GpuCode:
    """Each container as a text of targets."""
    return GpuCode.of(
        "lib.so",
        (
            [(t, Version(isa) if t.ptx else None) for t in map(Target.parse, container.split())]
            for container in containers
        ),
    )


def answer(found: GpuCode, card: str) -> tuple[str, int, int]:
    result = served(found, Capability.parse(card))
    return result.coverage.value, result.native + result.jit, result.containers


def test_a_fraction_is_partial_and_never_serves() -> None:
    found = code(*["sm_35 sm_50 sm_60"] * 50, *["sm_37 sm_50 sm_60"] * 221)
    assert answer(found, "3.5") == ("PARTIAL", 50, 271)
    assert answer(found, "3.7") == ("SERVES", 271, 271)
    assert answer(found, "3.0") == ("NO", 0, 271)
    assert answer(found, "6.1") == ("SERVES", 271, 271)


def test_containers_for_one_architecture_do_not_spoil_the_answer() -> None:
    found = code(*["sm_75 sm_80 sm_90"] * 10, "sm_90a", "sm_90a", "sm_100a")
    assert answer(found, "7.5") == ("SERVES", 10, 10)
    assert answer(found, "10.0") == ("NO", 0, 10)


def test_an_extension_for_one_card_is_counted_over_all_it_has() -> None:
    assert answer(code("sm_75", "sm_75"), "7.5") == ("SERVES", 2, 2)
    assert answer(code("sm_75", "sm_75"), "9.0") == ("NO", 0, 2)
    assert answer(code("sm_80 sm_86", "sm_80"), "8.9") == ("SERVES", 2, 2)


def test_jit_is_said_apart() -> None:
    found = code("sm_80 compute_80", "sm_80 sm_90")
    result = served(found, Capability(9, 0))
    assert (result.coverage, result.native, result.jit) == (Coverage.SERVES, 1, 0)
    alone = served(code("sm_80 compute_80"), Capability(9, 0))
    assert (alone.coverage, alone.native, alone.jit, alone.by_jit) == (Coverage.SERVES, 0, 1, True)


def test_a_driver_that_does_not_know_the_ptx_does_not_compile_it() -> None:
    found = code("sm_80 compute_80", isa="8.7")
    assert served(found, Capability(9, 0), driver_ptx=Version("7.8")).coverage is Coverage.NO
    assert served(found, Capability(9, 0), driver_ptx=Version("8.7")).coverage is Coverage.SERVES


def test_entries_are_counted_not_only_targets() -> None:
    found = code("sm_50 sm_70", "sm_70 compute_70")
    assert found.containers == 2
    assert found.targets == {"sm_50": 1, "sm_70": 2, "compute_70": 1}
    assert sums([found, found]) == {"sm_50": 2, "sm_70": 4, "compute_70": 2}
    assert list(sums([code("sm_120 sm_75"), code("sm_100")])) == ["sm_75", "sm_100", "sm_120"]


def test_a_container_with_something_else_in_the_place_of_code_serves_nobody() -> None:
    assert answer(code("sm_50 sm_70", ""), "7.0") == ("PARTIAL", 1, 2)
    assert answer(code("sm_70", ""), "7.0") == ("PARTIAL", 1, 2)
    assert answer(code(""), "7.0") == ("NO", 0, 1)


def test_of_nvidias_libraries_some_code_is_enough() -> None:
    found = msgspec.structs.replace(code("sm_50 sm_60", "sm_70 sm_80 compute_80"), file="nvidia/nccl/lib/libnccl.so.2")
    assert answer(found, "7.0") == ("SERVES", 1, 2)
    assert served(found, Capability(9, 0)).by_jit
    assert answer(found, "3.5") == ("NO", 0, 2)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ("SERVES SERVES", "SERVES"),
        ("SERVES NO", "PARTIAL"),
        ("SERVES PARTIAL", "PARTIAL"),
        ("NO NO", "NO"),
        ("NO PARTIAL", "PARTIAL"),
        ("", "NO"),
    ],
)
def test_several_libraries_together(parts: str, whole: str) -> None:
    assert overall(Coverage(part) for part in parts.split()) is Coverage(whole)


@pytest.mark.parametrize(
    ("torch", "card", "coverage"),
    [
        ("2.7.1", "9.0", Coverage.NO),
        ("2.8.0", "10.0", Coverage.NO),
        ("2.7.0", "9.0", Coverage.SERVES),
        ("2.7.1", "8.6", Coverage.SERVES),
        ("2.7.1", "12.0", Coverage.SERVES),
    ],
)
def test_ptx_in_which_torch_s_kernels_for_that_card_are_empty_is_no_code(
    torch: str, card: str, coverage: Coverage
) -> None:
    """Seen on an H200: `x * 2` of a float16 left what was in memory, and nothing was said."""
    found = code("sm_61 compute_61", "sm_61 compute_61")
    assert served(found, Capability.parse(card), torch=Version(torch)).coverage is coverage
    newer = code("sm_90 compute_90", "sm_90 compute_90")
    assert served(newer, Capability.parse("10.0"), torch=Version(torch)).coverage is Coverage.SERVES
    vendors = msgspec.structs.replace(found, file="nvidia/cublas/lib/libcublas.so.12")
    assert served(vendors, Capability.parse(card), torch=Version(torch)).coverage is Coverage.SERVES
