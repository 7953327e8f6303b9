"""Small packages of every kind, made by hand: .deb, .conda, .tar.*, .whl."""

from __future__ import annotations

import functools
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import zstandard

Files = dict[str, bytes | str]
"""Name → contents; a string is a symbolic link's target."""


def tar_bytes(files: Files, *, executable: tuple[str, ...] = ()) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                info.mode = 0o755 if name in executable else 0o644
                tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def deb(path: Path, files: Files, *, executable: tuple[str, ...] = (), zst: bool = False) -> Path:
    data = tar_bytes(files, executable=executable)
    packed = zstandard.compress(data) if zst else lzma.compress(data)
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(tar_bytes({})),
        f"data.tar.{'zst' if zst else 'xz'}": packed,
    }
    blob = b"!<arch>\n"
    for name, content in members.items():
        blob += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        blob += b"\n" if len(content) % 2 else b""
    path.write_bytes(blob)
    return path


def conda(path: Path, files: Files) -> Path:
    stem = path.name.removesuffix(".conda")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"pkg-{stem}.tar.zst", zstandard.compress(tar_bytes(files)))
        archive.writestr(f"info-{stem}.tar.zst", zstandard.compress(tar_bytes({"info/index.json": b"{}"})))
    return path


def tarball(path: Path, files: Files, *, executable: tuple[str, ...] = ()) -> Path:
    data = tar_bytes(files, executable=executable)
    pack = {".xz": functools.partial(lzma.compress, preset=0), ".zst": zstandard.compress}.get(path.suffix)
    if pack is None:
        import bz2
        import gzip

        pack = bz2.compress if path.suffix == ".bz2" else gzip.compress
    path.write_bytes(pack(data))
    return path


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
