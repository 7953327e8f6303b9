"""`repair --only-for`: what other cards need goes, every entry that remains is byte-equal, and nothing else moves."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.core.errors import UsageError
from rekindle.core.findings import State
from rekindle.formats import binary
from rekindle.formats.access import Buffer
from rekindle.formats.binary import Binary
from rekindle.knowledge.gpu.capability import Runs, runs
from rekindle.model.card import Capability, Target
from rekindle.wheels.inspect.inspection import inspect
from rekindle.wheels.repair import slim
from support import fatbins, small_wheels, torch_like
from support.command import rekindle_command

TARGETS = ("sm_35", "sm_50", "sm_60", "sm_61", "sm_70", "sm_80", "sm_90", "sm_90a", "compute_50", "compute_90")
PASCAL = Capability(6, 1)


def _read(data: bytes, name: str = "torch/lib/libtorch_cuda.so") -> Binary:
    return binary.read(Buffer(data, name))


def _entries(data: bytes) -> list[list[bytes]]:
    return [
        [data[entry.offset : entry.offset + entry.size] for entry in container.entries]
        for container in _read(data).containers
    ]


def _pruned(data: bytes, folder: Path, *cards: Capability) -> bytes:
    path = folder / "library"
    path.write_bytes(data)
    slim.apply(path, slim.cuts(_read(data), cards))
    return path.read_bytes()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(TARGETS), min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from([(6, 1), (9, 0), (3, 5), (7, 5)]),
)
def test_what_remains_is_byte_equal_and_stays_in_its_container(
    tmp_path_factory: pytest.TempPathFactory, containers: list[list[str]], card: tuple[int, int]
) -> None:
    data = torch_like.elf("x86_64", *(tuple(each) for each in containers))
    after = _pruned(data, tmp_path_factory.mktemp("one"), Capability(*card))
    old, new = _read(data).containers, _read(after).containers
    assert len(after) == len(data)
    assert [each.offset for each in old] == [each.offset for each in new]
    for was, now, targets in zip(_entries(data), _entries(after), containers, strict=True):
        able = [piece for piece, name in zip(was, targets, strict=True) if _runs(name, Capability(*card))]
        assert now == able if able else len(now) == 1 and now[0] in was
    outside = [range(each.offset, each.offset + each.size) for each in old]
    assert all(data[at] == after[at] for at in range(len(data)) if not any(at in place for place in outside))
    assert all(each.whole for each in new)


def _runs(name: str, card: Capability) -> bool:
    return runs(Target.parse(name), card) is not Runs.NO


@pytest.mark.parametrize(
    "code",
    [
        (fatbins.entry("sm_61"), fatbins.entry("sm_80", kind=8)),  # code for a linker, and kinds that have no name here
        (fatbins.entry("sm_61"), fatbins.entry("sm_80", kind=64)),
        (fatbins.entry("sm_61"), fatbins.entry("sm_80", payload=b"\1" * 64)),  # says it is code and is none
    ],
)
def test_what_is_not_understood_stays(code: tuple[bytes, ...], tmp_path: Path) -> None:
    data = torch_like.elf("x86_64", code)
    assert _pruned(data, tmp_path, PASCAL) == data


def test_code_that_is_not_registered_and_nvidias_own_libraries_stay() -> None:
    loose = b"\x7fELF" + bytes(60) + fatbins.container("sm_61", "sm_80")
    assert slim.cuts(_read(loose), [PASCAL]) == []
    data = torch_like.elf("x86_64", ("sm_61", "sm_80"))
    assert slim.cuts(_read(data, "torch/lib/libcublas.so.12"), [PASCAL]) == []
    assert len(slim.cuts(_read(data), [PASCAL])) == 1


def _torch(folder: Path, *more: tuple[str | bytes, ...]) -> Path:
    libraries: dict[str, tuple[tuple[str | bytes, ...], ...]] = {
        "torch/lib/libtorch_cuda.so": (("sm_60", "sm_80", "sm_90"), ("sm_60", "sm_80", "sm_90"), *more),
        "torch/lib/libcublas.so.12": (("sm_60", "sm_90"),),
    }
    return torch_like.wheel(folder, libraries=libraries, version="2.7.1+cu126", cuda="12.6")


def test_the_wheel_has_a_name_of_its_own_and_serves_its_card_alone(tmp_path: Path) -> None:
    wheel = _torch(tmp_path)
    done = slim.prune(wheel, tmp_path / "out", cards=["GTX 1080 Ti"])
    assert done.output is not None
    assert done.output.name == "torch-2.7.1+cu126.only.sm61-cp311-cp311-manylinux_2_28_x86_64.whl"
    small_wheels.check_record(done.output)
    seen = inspect(done.output, cards=["sm_61", "sm_90"])
    assert [card.coverage.value for card in seen.cards] == ["SERVES", "NO"]
    assert seen.version == "2.7.1+cu126.only.sm61"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(done.output) as new:
        assert old.read("torch/lib/libcublas.so.12") == new.read("torch/lib/libcublas.so.12")
    assert done.findings[-1].state is State.UNVERIFIED
    assert any("terms" in finding.found for finding in done.findings)


def test_parts_for_other_cards_alone_keep_a_piece_and_are_told_of(tmp_path: Path) -> None:
    done = slim.prune(_torch(tmp_path, ("sm_90a",)), tmp_path / "out", cards=["GTX 1080 Ti"])
    assert any("1 part for other cards alone" in finding.found for finding in done.findings)


def test_the_command_says_what_is_saved_and_refuses_what_it_does_not_use(tmp_path: Path) -> None:
    wheel = str(_torch(tmp_path))
    seen = rekindle_command("repair", wheel, "--only-for", "V100", "--only-for", "sm_61", "--dry-run")
    assert (seen.code, "GPU code for other cards" in seen.out) == (9, True)
    assert not (tmp_path / "repaired").exists()
    assert rekindle_command("repair", wheel, "--only-for", "V100", "--gpu", "V100").code == 2
    assert rekindle_command("repair", wheel, "--only-for", "no such card").code == 3
    with pytest.raises(UsageError, match="could do without"):
        slim.prune(torch_like.wheel(tmp_path / "one", libraries={}), tmp_path, cards=["V100"])
