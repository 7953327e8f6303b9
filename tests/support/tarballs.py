"""Small tarballs of a source tree, good ones and hostile ones."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

Body = str | tuple[bytes, str]
"""A file's text, or the type and the target of a link."""


def make_tarball(path: Path, members: Iterable[tuple[str, Body]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            if isinstance(body, tuple):
                info.type, info.linkname = body
                tar.addfile(info)
            else:
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body.encode()))
    return path
