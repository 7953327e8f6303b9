"""Writes `tests/fixtures/patch_lines.json`: the few lines that each patch edits, as the real releases have them.

    python tools/observe/patch_lines.py PYTORCH.git [MIRRORS]

For each patch: the first and last release of its range and the releases just outside, with path and lines. A file of
a submodule is read from the repository in MIRRORS that has the pinned commit.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rekindle.core.version import Version
from rekindle.knowledge.torch.patches import Edit, Patch, patches
from rekindle.source import git
from rekindle.source.git import Mirrors

FIRST = Version("1.10.0")
CONTEXT = 1


def main(repository: Path, mirrors: Path | None) -> None:
    releases = tags(repository)
    rows = []
    for patch in patches():
        for release in boundaries(patch, releases):
            for edit in patch.edit:
                if edit.torch is not None and release in patch.when.torch and release not in edit.torch:
                    continue
                data = file_at(repository, f"v{release}", edit.file, mirrors)
                row = {"patch": patch.id, "release": str(release), "path": edit.file, "lines": excerpt(data, edit)}
                if row not in rows:
                    rows.append(row)
    target = Path(__file__).parents[2] / "tests" / "fixtures" / "patch_lines.json"
    about = "Excerpts of PyTorch (BSD-3-Clause) and flatbuffers (Apache-2.0), a few lines each; null: no such file"
    target.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} excerpts of {len({row['patch'] for row in rows})} patches")


def tags(repository: Path) -> list[Version]:
    packed = (repository / "packed-refs").read_text(encoding="utf-8")
    loose = "".join(f" refs/tags/{path.name}\n" for path in (repository / "refs" / "tags").glob("v*"))
    found = {Version(tag) for tag in re.findall(r"(?m) refs/tags/v(\d+\.\d+\.\d+)$", packed + loose)}
    return sorted(version for version in found if version >= FIRST)


def boundaries(patch: Patch, releases: list[Version]) -> list[Version]:
    inside = [index for index, release in enumerate(releases) if release in patch.when.torch]
    wanted = {inside[0] - 1, inside[0], inside[-1], inside[-1] + 1}
    for edit in patch.edit:
        own = [index for index in inside if edit.torch is None or releases[index] in edit.torch]
        wanted |= {own[0], own[-1]}
    return [releases[index] for index in sorted(wanted) if 0 <= index < len(releases)]


def file_at(repository: Path, tag: str, path: str, mirrors: Path | None) -> bytes | None:
    """The bytes of a file of a release, looked up in the submodule that holds it where need be."""
    commit = git.tag_of(repository, tag)
    if commit is None:
        raise SystemExit(f"{repository} has no tag {tag}")
    place, inner, url = repository, commit, "https://github.com/pytorch/pytorch"
    for pin in git.pins(repository, commit, parent_url=url) if path.startswith("third_party/") else []:
        if path.startswith(f"{pin.path}/"):
            found = next(holding(pin, mirrors), None)
            if found is None:
                raise SystemExit(f"no mirror has {pin.commit} of {pin.url}")
            place, inner, path = found, pin.commit, path[len(pin.path) + 1 :]
            break
    result = git.call(["show", f"{inner}:{path}"], objects=place)
    return result.out.encode("utf-8", "surrogateescape") if result.ok else None


def holding(pin: git.SubmodulePin, mirrors: Path | None) -> Iterator[Path]:
    if mirrors is not None:
        for mirror in Mirrors(mirrors).named(pin.url):
            if git.has_commit(mirror, pin.commit):
                yield mirror


def excerpt(data: bytes | None, edit: Edit) -> str | None:
    """The lines that the edit is about, with one line of context; where they are not, the lines nearest to them."""
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    for wanted in (edit.before, edit.after, edit.fixed or edit.before):
        at = text.find(wanted)
        if at >= 0:
            return around(text, at, at + len(wanted.rstrip("\n")))
    words = re.findall(r"\w{6,}", edit.before)
    lines = text.splitlines(keepends=True)
    best = max(range(len(lines)), key=lambda index: sum(word in lines[index] for word in words), default=0)
    return "".join(lines[max(0, best - CONTEXT) : best + CONTEXT + 1])


def around(text: str, start: int, end: int) -> str:
    lines = text.splitlines(keepends=True)
    first, last = text.count("\n", 0, start), text.count("\n", 0, end)
    return "".join(lines[max(0, first - CONTEXT) : last + CONTEXT + 1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
