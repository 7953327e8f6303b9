"""Pages and docstrings name files of this project; a file that was moved or removed must not live on in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "README.md"])
ROOMS = "|".join(sorted(path.name for path in (ROOT / "src" / "rekindle").iterdir() if path.is_dir()))
NAMED = re.compile(rf"`((?:src/rekindle|tests|tools|benchmarks|{ROOMS})/[\w/.-]+\.(?:py|toml|json|jsonl))`")
OTHERS = {
    # PyTorch's own files, and places that a reader fills in.
    "tools/build_pytorch_libs.py",
    "tools/metadata/version.py",
    "tools/metadata/dependencies.py",
    "tools/optional_submodules.py",
    "src/rekindle/knowledge/torch/patches/NAME.toml",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(NAMED.findall(page.read_text(encoding="utf-8"))) - OTHERS
    gone = [name for name in sorted(named) if not any((top / name).is_file() for top in (ROOT, ROOT / "src/rekindle"))]
    assert gone == []


def test_every_file_that_a_docstring_names_is_there() -> None:
    gone: dict[str, list[str]] = {}
    for source in sorted((ROOT / "src").rglob("*.py")):
        named = set(NAMED.findall(source.read_text(encoding="utf-8"))) - OTHERS
        missing = [name for name in named if not any((top / name).is_file() for top in (ROOT, ROOT / "src/rekindle"))]
        if missing:
            gone[source.relative_to(ROOT).as_posix()] = missing
    assert gone == {}
