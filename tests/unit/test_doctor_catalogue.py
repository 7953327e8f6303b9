"""The catalogue of checks and its page: current, complete, and every line of the five documents has its check."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from rekindle.knowledge.builds import checks
from tools import checks as page


def test_the_committed_page_is_current() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render()


def test_every_check_says_which_document_it_answers() -> None:
    for row in checks.checks():
        assert row.seeds, row.id
        assert all(re.match(r"00[0-4]", seed) for seed in row.seeds), row.id


@pytest.mark.parametrize(
    ("number", "words"),
    [
        # The five mismatches, the five golden rules, the three pre-flight commands and the footguns of 003.
        ("003", ["wrong Python", "MSVC", "CUDA toolchain", "wrong GPU architecture", "paths or encoding"]),
        ("003", ["one environment", "install PyTorch first", "nvcc aligned", "shell with MSVC loaded"]),
        ("003", ["pre-flight", "where cl", "intended nvcc", "torch.cuda.is_available"]),
        ("003", ["paths with spaces", "console encoding", "NumPy ABI", "half-activated", "no kernel image"]),
        ("003", ["single toolkit", "mixing CUDA", "boring Python", "short paths", "stop fighting Windows"]),
        # The validations of 002.
        ("002", ["Visual Studio", "RAM", "disk space", "x64 Native Tools", "submodules", "path validation"]),
        # The prerequisites of 000 and 001.
        ("000", ["nvcc --version", "cuDNN", "Ninja", "CMake", "git", "Python 3.9", "numpy"]),
        ("001", ["conda", "core.longpaths", "Desktop C++", "oneAPI", "driver", "nvcc.exe", "cuDNN in the CUDA folder"]),
        ("004", ["16 GB", "storage", "CUDA", "Python 3.11", "git", "Visual Studio 2022"]),
    ],
)
def test_what_the_documents_ask_for_is_answered(number: str, words: list[str]) -> None:
    said = " | ".join(line for line, _ in page.answered(number)).lower()
    assert [word for word in words if word.lower() not in said] == []


def test_every_known_bad_release_is_found_under_its_system_only() -> None:
    assert checks.known_bad("ninja", "1.13.0", "windows")
    assert checks.known_bad("ninja", "1.13.0", "linux") is None
    assert checks.known_bad("ninja", "1.13.2", "windows") is None
