"""Small wheels made by `zipfile`, not by the code under test."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

NAME = "demo-1.0-cp311-cp311-win_amd64.whl"
FILES: Mapping[str, bytes] = {
    "torch/__init__.py": b"import sys\n" * 50,
    "torch/lib/c10.txt": bytes(range(256)) * 300,
    "torch/lib/aoti_custom_ops.txt": b"test " * 1000,
    "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n"
    b"Tag: cp311-cp311-win_amd64\n",
}


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def record(files: Mapping[str, bytes], info: str = "demo-1.0.dist-info") -> bytes:
    text = io.StringIO()
    rows = [(name, digest(data), str(len(data))) for name, data in files.items()]
    csv.writer(text, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
    return text.getvalue().encode()


def make(
    folder: Path, files: Mapping[str, bytes] = FILES, *, name: str = NAME, record_bytes: bytes | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = next((path.split("/")[0] for path in files if ".dist-info/" in path), "demo-1.0.dist-info")
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        for member, data in files.items():
            zipped.writestr(member, data)
        zipped.writestr(f"{info}/RECORD", record(files, info) if record_bytes is None else record_bytes)
    return path


def raw(path: Path, member: str) -> bytes:
    """A member's compressed bytes, found as the zip format says, without the code under test."""
    with zipfile.ZipFile(path) as zipped:
        info = zipped.getinfo(member)
    data = path.read_bytes()
    head = data[info.header_offset : info.header_offset + 30]
    begin = info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    return data[begin : begin + info.compress_size]


def check_record(path: Path) -> None:
    """Every file listed once with its true hash and size, and nothing else."""
    with zipfile.ZipFile(path) as zipped:
        assert zipped.testzip() is None
        names = zipped.namelist()
        where = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(zipped.read(where).decode())))
        assert names[-1] == where
        assert sorted(row[0] for row in rows) == sorted(names)
        for member, hashed, size in rows:
            if member != where:
                data = zipped.read(member)
                assert (hashed, size) == (digest(data), str(len(data))), member
