"""Who brings a library: what torch brings is not missing from an extension's wheel."""

from __future__ import annotations

import pytest

from rekindle.knowledge.cuda.libraries import owner_of


@pytest.mark.parametrize("name", ["libc10.so", "libc10.so.2.6", "libtorch_cpu.so.2.6", "libtorch_python.so.2.6"])
def test_the_torch_of_a_wheel_and_of_a_distribution_bring_the_same_libraries(name: str) -> None:
    """An extension built against Debian's torch 2.6 was said to lack `libc10.so.2.6`."""
    found = owner_of(name, "linux")
    assert found is not None and found.owner == "torch"


def test_a_name_that_only_begins_like_one_of_torchs_is_not_torchs() -> None:
    found = owner_of("libtorchvision.so", "linux")
    assert found is None or found.owner != "torch"
