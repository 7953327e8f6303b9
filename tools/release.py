"""Is this tree the release that its tag says?

    python -m tools.release v0.2.0                     fails with what has to be done before the tag is set
    python -m tools.release v0.2.0 --notes notes.md    and writes that version's part of the changelog
    python -m tools.release --urls                     writes the project's addresses into pyproject.toml

The tag is the version of the package, the changelog has a part for it with something in it, and nothing is left under
a development version.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rekindle.core import own

PROJECT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## (\S+)", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", nargs="?", help="v0.2.0")
    parser.add_argument("--notes", type=Path, help="write the changelog's part for this version here")
    parser.add_argument("--urls", action="store_true", help="fill `project.urls` from the remote of this clone")
    options = parser.parse_args()
    if options.urls:
        home = own.page_of_clone(PROJECT)
        if home is None:
            print("this clone has no remote `origin` that is a page: `git remote add origin ADDRESS`", file=sys.stderr)
            return 1
        metadata = PROJECT / "pyproject.toml"
        metadata.write_text(with_urls(metadata.read_text(encoding="utf-8"), home), encoding="utf-8")
    if not options.tag:
        return 0 if options.urls else 2
    package = (PROJECT / "src/rekindle/__init__.py").read_text(encoding="utf-8")
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = faults(options.tag, package, changelog)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong and options.notes:
        options.notes.write_text(part(changelog, options.tag.removeprefix("v")), encoding="utf-8")
    return 1 if wrong else 0


def faults(tag: str, package: str, changelog: str) -> list[str]:
    """What keeps this tree from being the release; empty if nothing does."""
    version = tag.removeprefix("v")
    found = re.search(r'^__version__ = "([^"]+)"', package, re.MULTILINE)
    said = found[1] if found else "nothing"
    wrong = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        wrong.append(f"`{tag}` is no tag of a release: write v0.2.0, or v0.2.0rc1")
    if said != version:
        wrong.append(f"the package says {said}: set `__version__` in src/rekindle/__init__.py to {version}")
    headings = HEADING.findall(changelog)
    if version not in headings:
        wrong.append(f"CHANGELOG.md has no `## {version}`: rename the part of the development version")
    elif not part(changelog, version).strip():
        wrong.append(f"the part `## {version}` of CHANGELOG.md is empty")
    if any(".dev" in heading for heading in headings):
        wrong.append("CHANGELOG.md still has a part for a development version")
    return wrong


def with_urls(metadata: str, home: str) -> str:
    """`pyproject.toml` with the addresses of the project; those of an earlier run are replaced."""
    bare = re.sub(r"\n\[project\.urls\]\n(?:.+\n)*", "", metadata)
    return (
        f'{bare}\n[project.urls]\nHomepage = "{home}"\nIssues = "{home}/issues"\n'
        f'Changelog = "{home}/blob/HEAD/CHANGELOG.md"\n'
    )


def part(changelog: str, version: str) -> str:
    """What the changelog says of one version, without its heading."""
    after = re.split(rf"^## {re.escape(version)}\b.*$", changelog, maxsplit=1, flags=re.MULTILINE)[-1]
    return re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
