"""The shelf as a static package index: PEP 503 pages, PEP 691 JSON, PEP 658 metadata, and a page for people."""

from __future__ import annotations

import contextlib
import html
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from rekindle.core import codec, files
from rekindle.knowledge.gpu.gpu_code import sums

if TYPE_CHECKING:
    from rekindle.wheels.shelf.entry import ShelvedWheel

_META = {"api-version": "1.1"}
# What is on the shelf, for other people's `--shelf URL`.
LISTING = "shelf.json"


def write(folder: Path, entries: Sequence[ShelvedWheel]) -> None:
    """Every page anew; pages of projects that are gone are removed."""
    wanted = pages(entries)
    for name, text in wanted.items():
        files.write_text(folder / name, text)
    for old in (folder / "simple").iterdir():
        if old.is_dir() and not old.is_symlink() and f"simple/{old.name}/index.html" not in wanted:
            for page in ("index.html", "index.json"):
                (old / page).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                old.rmdir()


def pages(entries: Sequence[ShelvedWheel]) -> dict[str, str]:
    """Every file of the index by its place on the shelf."""
    projects = {
        name: list(group) for name, group in groupby(entries, key=lambda entry: str(canonicalize_name(entry.project)))
    }
    found: dict[str, str] = {}
    for name, wheels in projects.items():
        found[f"simple/{name}/index.html"] = project_page(name, wheels)
        found[f"simple/{name}/index.json"] = _json(project_json(name, wheels))
    found["simple/index.json"] = _json({"meta": _META, "projects": [{"name": name} for name in projects]})
    links = [f'<a href="{quote(name)}/">{html.escape(name)}</a><br>' for name in projects]
    found["simple/index.html"] = _page("Simple index", "\n".join(links))
    found["index.html"] = people_page(entries)
    found[LISTING] = codec.to_json({"schema": "rekindle.shelf/1", "wheels": list(entries)}) + "\n"
    return found


def project_page(name: str, wheels: Sequence[ShelvedWheel]) -> str:
    lines = []
    for entry in wheels:
        requires = f' data-requires-python="{html.escape(entry.requires_python)}"' if entry.requires_python else ""
        metadata = f"sha256={entry.metadata_sha256}"
        lines.append(
            f'<a href="../../wheels/{quote(entry.file)}#sha256={entry.sha256}"{requires}{_yanked(entry)} '
            f'data-core-metadata="{metadata}" data-dist-info-metadata="{metadata}">{html.escape(entry.file)}</a><br>'
        )
    return _page(f"Links for {name}", "\n".join(lines))


def project_json(name: str, wheels: Sequence[ShelvedWheel]) -> dict[str, Any]:
    found = []
    for entry in wheels:
        row: dict[str, Any] = {
            "filename": entry.file,
            "url": f"../../wheels/{quote(entry.file)}",
            "hashes": {"sha256": entry.sha256},
            "size": entry.size,
            "core-metadata": {"sha256": entry.metadata_sha256},
            "dist-info-metadata": {"sha256": entry.metadata_sha256},
        }
        if entry.requires_python:
            row["requires-python"] = entry.requires_python
        if entry.added_at:
            row["upload-time"] = entry.added_at
        if entry.yanked is not None:
            row["yanked"] = entry.yanked or True
        found.append(row)
    return {"meta": _META, "name": name, "versions": sorted({entry.version for entry in wheels}), "files": found}


def _yanked(entry: ShelvedWheel) -> str:
    return "" if entry.yanked is None else f' data-yanked="{html.escape(entry.yanked)}"'


def people_page(entries: Sequence[ShelvedWheel]) -> str:
    head = ("wheel", "torch", "CUDA", "cuDNN", "GPU code", "verified", "ran on", "signed", "MB", "to install")
    rows = [
        (
            f'<a href="wheels/{quote(entry.file)}">{html.escape(entry.file)}</a>',
            html.escape(entry.torch or ""),
            html.escape(str(entry.cuda or "")),
            html.escape(entry.cudnn or ""),
            html.escape(" ".join(sums(entry.code)) or "none"),
            f'<a href="wheels/{quote(entry.file)}.verify.json">{entry.state.value}</a>',
            html.escape(", ".join(entry.checked_on)),
            f'<a href="wheels/{quote(entry.file)}.dsse.json">signed</a>' if entry.signed_by else "no",
            f"{entry.size / 1e6:.1f}",
            f"<code>{html.escape(entry.project)}=={html.escape(entry.version)}</code>",
        )
        for entry in entries
    ]
    table = "<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>\n"
    table += "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    body = (
        f"<h1>Wheel shelf</h1>\n<p>{len(entries)} {'wheel' if len(entries) == 1 else 'wheels'}. To install one: "
        "<code>pip install --extra-index-url &lt;this address&gt;/simple/ &quot;PROJECT==VERSION&quot;</code>, "
        f"with the version in the last column.</p>\n<table>\n{table}\n</table>"
    )
    return _page("Wheel shelf", body)


def _page(title: str, body: str) -> str:
    style = "body{font-family:sans-serif;margin:2em}td,th{text-align:left;padding:.2em .8em;vertical-align:top}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="pypi:repository-version" content="1.1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
