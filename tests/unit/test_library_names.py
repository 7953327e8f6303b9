"""Names of libraries are matched as `fnmatchcase` matches them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from rekindle.knowledge.cuda.libraries import matches

PATTERNS = ("libcudart.so*", "cublas64_*.dll", "libcudnn*.so*", "*", "nvrtc.dll", "a?b*", "lib[cd]*", "a*a", "**")
NAMES = ("libcudart.so.12", "cublas64_12.dll", "libcudnn_ops.so.9", "", "nvrtc.dll", "axb", "libc.so", "a", "aa", "aba")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matched_as_by_fnmatch(pattern: str) -> None:
    assert [matches(name, pattern, "linux") for name in NAMES] == [fnmatchcase(name, pattern) for name in NAMES]


def test_case_is_ignored_on_windows_only() -> None:
    assert matches("CUBLAS64_12.DLL", "cublas64_*.dll", "windows")
    assert not matches("CUBLAS64_12.DLL", "cublas64_*.dll", "linux")
