"""A release is what its tag says, or it is not published."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.release import PROJECT, faults, part

PACKAGE = '__version__ = "0.2.0"\n'
CHANGELOG = "# Changelog\n\n## 0.2.0\n\n### Added\n- `plan`.\n\n## 0.1.0\n\n- The first.\n"


def test_a_tree_that_is_its_tag_has_no_fault() -> None:
    assert faults("v0.2.0", PACKAGE, CHANGELOG) == []
    assert part(CHANGELOG, "0.2.0") == "### Added\n- `plan`.\n"


@pytest.mark.parametrize(
    ("tag", "package", "changelog", "said"),
    [
        ("0.2", PACKAGE, CHANGELOG, "is no tag of a release"),
        ("v0.3.0", PACKAGE, CHANGELOG, "the package says 0.2.0"),
        ("v0.2.0", PACKAGE, CHANGELOG.replace("## 0.2.0", "## 0.2.0.dev"), "no `## 0.2.0`"),
        ("v0.2.0", PACKAGE, CHANGELOG.replace("### Added\n- `plan`.\n", ""), "is empty"),
        ("v0.2.0", PACKAGE, "# Changelog\n\n## 0.3.0.dev\n\n" + CHANGELOG, "a part for a development version"),
    ],
)
def test_what_has_to_be_done_first_is_said(tag: str, package: str, changelog: str, said: str) -> None:
    assert any(said in line for line in faults(tag, package, changelog))


def test_what_stands_is_a_development_version() -> None:
    package = (PROJECT / "src/rekindle/__init__.py").read_text(encoding="utf-8")
    assert faults("v0.2.0", package, (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_only_what_was_tried_is_published() -> None:
    workflow = yaml.safe_load(Path(PROJECT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert jobs["publish"]["needs"] == "try" and jobs["try"]["needs"] == "build"
    tried = set(jobs["try"]["strategy"]["matrix"]["python"])
    metadata = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert tried == {"3.10", "3.11", "3.12", "3.13", "3.14"}
    assert all(f'"Programming Language :: Python :: {version}"' in metadata for version in tried)
