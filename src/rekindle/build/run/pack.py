"""A wheel out of an install tree. The same tree gives the same bytes, whenever and wherever it is packed.

Needs Python alone: a build script carries this file along.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sysconfig
import zipfile
from pathlib import Path

_TIME = (1980, 1, 1, 0, 0, 0)


def wheel_of_tree(tree: Path, *, name: str, version: str, into: Path, generator: str) -> Path:
    """Everything under `tree` as the wheel `name`; it appears under its name only when it is whole."""
    plain = re.sub(r"[-_.]+", "_", name)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{platform}"
    info = f"{plain}-{version}.dist-info"
    record: list[str] = []
    path = into / f"{plain}-{version}-{tag}.whl"
    beside = into / "part"
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(str(beside), "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file in sorted(each for each in tree.rglob("*") if each.is_file()):
            add_member(
                archive, record, file.relative_to(tree).as_posix(), file.read_bytes(), file.stat().st_mode & 0o777
            )
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        add_member(archive, record, f"{info}/METADATA", head.encode())
        body = f"Wheel-Version: 1.0\nGenerator: {generator}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        add_member(archive, record, f"{info}/WHEEL", body.encode())
        add_member(archive, [], f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
    beside.replace(path)
    return path


def add_member(archive: zipfile.ZipFile, record: list[str], name: str, data: bytes, mode: int = 0o644) -> None:
    member = zipfile.ZipInfo(name, _TIME)
    member.external_attr = (0o100000 | mode) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    name = f'"{name}"' if "," in name else name
    record.append(f"{name},sha256={digest},{len(data)}\n")
