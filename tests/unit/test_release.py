"""A release is what its tag says, or it is not published."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from tools.release import HEADING, PROJECT, faults, part, with_urls

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


def test_what_stands_is_the_release_that_the_changelog_begins_with() -> None:
    package = (PROJECT / "src/rekindle/__init__.py").read_text(encoding="utf-8")
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not faults(f"v{HEADING.findall(changelog)[0]}", package, changelog)


def test_only_what_was_tried_is_published() -> None:
    workflow = yaml.safe_load(Path(PROJECT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert jobs["publish"]["needs"] == "try" and jobs["try"]["needs"] == "build"
    tried = set(jobs["try"]["strategy"]["matrix"]["python"])
    metadata = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert tried == {"3.10", "3.11", "3.12", "3.13", "3.14"}
    assert all(f'"Programming Language :: Python :: {version}"' in metadata for version in tried)


def test_every_action_is_pinned_by_its_commit() -> None:
    """A tag can be moved by whoever takes over an action; a commit cannot."""
    lines = [
        line.strip()
        for file in sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert len(lines) == 18
    assert [line for line in lines if not re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)] == []


def test_the_files_are_signed_before_they_are_published() -> None:
    workflow = yaml.safe_load(Path(PROJECT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    steps = [str(step.get("uses") or step.get("run")) for step in workflow["jobs"]["publish"]["steps"]]
    signed = next(at for at, step in enumerate(steps) if "attest-build-provenance" in step)
    assert signed < next(at for at, step in enumerate(steps) if "uv publish" in step)
    assert workflow["jobs"]["publish"]["permissions"]["attestations"] == "write"


def test_the_addresses_are_those_of_the_clone() -> None:
    metadata = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert "project.urls" not in metadata, "they are filled in when a release is made"
    once = with_urls(metadata, "https://host.example/me/rekindle")
    found = msgspec.toml.decode(once)["project"]
    assert found["urls"]["Issues"] == "https://host.example/me/rekindle/issues"
    assert with_urls(once, "https://host.example/me/rekindle") == once
    assert {**found, "urls": None} == {**msgspec.toml.decode(metadata)["project"], "urls": None}
