"""The shelf as a static package index: PEP 503 pages, PEP 691 JSON, PEP 658 metadata, and a page for people.

Of wheel variants (PEP 817) a file for each release says which label is for which computer.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from packaging.utils import canonicalize_name

from rekindle.core import codec, files, paths, signing
from rekindle.core.errors import BadInput, ChecksFailed
from rekindle.core.untrusted import Sha256
from rekindle.knowledge.gpu.gpu_code import sums
from rekindle.model.wheel import WheelIdentity
from rekindle.wheels.inspect.identity import VariantFile
from rekindle.wheels.verify.signed_report import key_to_sign

if TYPE_CHECKING:
    from rekindle.wheels.shelf.store import ShelvedWheel

_META = {"api-version": "1.1"}
# What is on the shelf, for other people's `--shelf URL`.
LISTING = "shelf.json"
# Who vouches for it, until when, and that it is not an older one.
SIGNED_LISTING = "shelf.dsse.json"
_VARIANTS = "-variants.json"
_KIND = "application/vnd.rekindle.shelf-list+json"
_VALID = timedelta(days=180)


class ListingState(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner of a shelf signs of its list. `number` never falls: an older list is no answer."""

    schema: str = "rekindle.shelf-list/1"
    sha256: Sha256
    number: int
    expires: Annotated[datetime, msgspec.Meta(tz=True)]


class ListedWheel(WheelIdentity, frozen=True, kw_only=True):
    """One odd name does not hide the others."""

    file: str
    sha256: str = ""
    yanked: str | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The list of a shelf, as others read it."""

    schema: str
    wheels: tuple[ListedWheel, ...] = ()
    base: str | None = None
    """Where the wheels lie, if not beside their statements: their hashes are signed, their place need not be."""

    @property
    def withdrawn(self) -> dict[tuple[str, str], str | None]:
        """Of each wheel by its name and hash: why it was withdrawn; None: it was not."""
        return {(wheel.file, wheel.sha256): wheel.yanked for wheel in self.wheels}


def last_listing(folder: Path) -> Listing:
    """The list as it was written last; an empty one where there is none that can be read."""
    return codec.kept(folder / LISTING, Listing) or Listing(schema="")


def signed_listing(folder: Path, trusted: Sequence[signing.PublicKey]) -> Listing:
    """The list of somebody's folder. An error unless one of these keys signed it: an entry can lose its mark."""
    name = f"the list of the shelf `{folder}`"
    data = files.read_bytes(folder / LISTING)
    envelope = files.read_bytes(folder / SIGNED_LISTING)
    signed_state(data, envelope, trusted, name=name, place=str(folder.resolve()))
    return codec.from_json(data, Listing, name=name)


def write(folder: Path, entries: Sequence[ShelvedWheel]) -> None:
    """Every page anew; pages of projects that are gone are removed."""
    wanted = pages(entries)
    for name, text in wanted.items():
        files.write_text(folder / name, text, inside=folder)
    sign_listing(folder)
    for old in (folder / "simple").iterdir():
        if old.is_dir() and not files.is_link(old) and f"simple/{old.name}/index.html" not in wanted:
            for page in ("index.html", "index.json"):
                (old / page).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                old.rmdir()
    for list_of_variants in (folder / "wheels").glob(f"*{_VARIANTS}"):
        if f"wheels/{list_of_variants.name}" not in wanted:
            list_of_variants.unlink()


def sign_listing(folder: Path) -> None:
    """Sign the list of the shelf in `folder` as it is now. Without a key there is no signature, also no older one."""
    place = folder / SIGNED_LISTING
    key = key_to_sign()
    if key is None:
        place.unlink(missing_ok=True)
        return
    state = ListingState(
        sha256=Sha256(hashlib.sha256(files.read_bytes(folder / LISTING)).hexdigest()),
        number=int(time.time()),
        expires=(datetime.now(timezone.utc) + _VALID).replace(microsecond=0),
    )
    files.write_text(place, codec.to_json(key.sign(codec.to_json(state).encode("utf-8"), _KIND)) + "\n")


def signed_state(
    listing: bytes, envelope: bytes, trusted: Sequence[signing.PublicKey], *, name: str, place: str | None = None
) -> None:
    """An error unless a trusted key says of this list: that it is this one, not out of date, and none before the last
    one seen at `place`."""
    said = signing.read_envelope(envelope, name=name)
    payload, _ = signing.opened(said, trusted, name=name)
    if said.payload_type != _KIND:
        raise BadInput(f"{name} is not signed as a list", hint="get it again")
    state = codec.from_json(payload, ListingState, name=name)
    if state.sha256 != hashlib.sha256(listing).hexdigest():
        raise ChecksFailed(f"{name} is not the one that was signed", hint="get it again, or ask its owner")
    if state.expires < datetime.now(timezone.utc):
        message = f"{name} was good until {state.expires:%Y-%m-%d}"
        raise ChecksFailed(message, hint="its owner signs it anew with `rekindle shelf mend`")
    if place is not None:
        _not_older(place, state.number, name)


def _not_older(root: str, number: int, name: str) -> None:
    """Who serves a shelf, or hands over its folder, may not go back to an older list: it could hide a withdrawal."""
    root = re.sub(r"//[^/@]*@", "//", root)  # who asks is no part of the place, and no password is written down
    place = paths.data_folder("shelves.json")
    seen = codec.from_json(files.read_bytes(place), dict[str, int], name=f"`{place}`") if place.is_file() else {}
    if number < seen.get(root, 0):
        message = f"{name} is older than the one you saw last"
        raise ChecksFailed(message, hint=f"ask its owner; if it was started anew, delete `{place}`")
    if number > seen.get(root, 0):
        files.write_text(place, codec.to_json({**seen, root: number}) + "\n")


def pages(entries: Sequence[ShelvedWheel]) -> dict[str, str]:
    """Every file of the index by its place on the shelf."""
    projects = {
        name: list(group) for name, group in groupby(entries, key=lambda entry: str(canonicalize_name(entry.project)))
    }
    found: dict[str, str] = {}
    for name, wheels in projects.items():
        lists = variants(wheels)
        found |= {f"wheels/{file}": text for file, text in lists.items()}
        listed = project_json(name, wheels, lists)
        found[f"simple/{name}/index.html"] = project_page(name, listed["files"])
        found[f"simple/{name}/index.json"] = _json(listed)
    found["simple/index.json"] = _json({"meta": _META, "projects": [{"name": name} for name in projects]})
    links = [f'<a href="{quote(name)}/">{html.escape(name)}</a><br>' for name in projects]
    found["simple/index.html"] = _page("Simple index", "\n".join(links))
    found["index.html"] = people_page(entries)
    found[LISTING] = codec.to_json({"schema": "rekindle.shelf/1", "wheels": list(entries)}) + "\n"
    return found


def variants(wheels: Sequence[ShelvedWheel]) -> dict[str, str]:
    """The list of variants of each release that has any, by its file name: what uv and variantlib ask for."""
    found: dict[str, VariantFile] = {}
    for entry in wheels:
        said = entry.variant
        if said is None:
            continue
        file = "-".join(entry.file.split("-")[:2]) + _VARIANTS
        own = VariantFile(
            default_priorities={"namespace": said.namespaces},
            providers=said.providers,
            variants={said.label: said.properties},
        )
        known = found.setdefault(file, own)
        same = (known.default_priorities, known.providers) == (own.default_priorities, own.providers)
        if not same or known.variants.get(said.label, said.properties) != said.properties:
            message = f"the variants of `{file.removesuffix(_VARIANTS)}` disagree about `{said.label}` or its providers"
            raise BadInput(message, hint="label all of them with `rekindle repair --variant`")
        found[file] = msgspec.structs.replace(known, variants={**known.variants, **own.variants})
    return {file: codec.to_json(said) + "\n" for file, said in found.items()}


def project_page(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of the JSON form as links."""
    lines = []
    for row in rows:
        marks = {"requires-python": row.get("requires-python"), "yanked": row.get("yanked")}
        if "core-metadata" in row:
            marks |= dict.fromkeys(("core-metadata", "dist-info-metadata"), f"sha256={row['core-metadata']['sha256']}")
        said = ((mark, "" if value is True else value) for mark, value in marks.items() if value is not None)
        shown = "".join(f' data-{mark}="{html.escape(value)}"' for mark, value in said)
        link = f'<a href="{row["url"]}#sha256={row["hashes"]["sha256"]}"{shown}>'
        lines.append(f"{link}{html.escape(row['filename'])}</a><br>")
    return _page(f"Links for {name}", "\n".join(lines))


def project_json(name: str, wheels: Sequence[ShelvedWheel], lists: Mapping[str, str]) -> dict[str, Any]:
    found: list[dict[str, Any]] = [
        {
            "filename": file,
            "url": f"../../wheels/{quote(file)}",
            "hashes": {"sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()},
        }
        for file, text in lists.items()
    ]
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
