"""A bundle of tables, as `rekindle knowledge update` takes it: the same tables give the same bytes."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from rekindle.core import codec
from rekindle.knowledge.updates import MANIFEST, SCHEMA, TableBundle


def make(folder: Path, names: list[str], made_at: str) -> bytes:
    content = {name: (folder / name).read_bytes() for name in sorted(names)}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    manifest = codec.to_json(TableBundle(schema=SCHEMA, made_at=made_at, tables=hashes)).encode("utf-8")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {MANIFEST: manifest, **content}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()
