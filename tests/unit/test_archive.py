"""Wheels from anywhere: read like zipfile reads them, and refused with a reason when they are not honest."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput, NotFound
from rekindle.formats.access import Buffer, File
from rekindle.formats.archive import Archive
from rekindle.formats.package import open_package, record


def made(members: dict[str, bytes], *, stored: bool = False) -> bytes:
    stream = io.BytesIO()
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def opened(data: bytes) -> Archive:
    return Archive(Buffer(data, "x.whl"))


@pytest.mark.parametrize("stored", [True, False])
def test_members_read_like_zipfile_reads_them(stored: bool) -> None:
    members = {"a.txt": b"hello" * 1000, "sub/b.bin": bytes(range(256)) * 40_000, "empty": b"", "é.txt": b"x"}
    archive = opened(made(members, stored=stored))
    assert {name: archive.read(name) for name in archive.members} == members


@pytest.mark.parametrize("stored", [True, False])
def test_ranges_of_a_member_in_any_order(stored: bool) -> None:
    data = bytes(n * 7 % 251 for n in range(3_000_000))
    member = opened(made({"lib.so": data}, stored=stored)).open("lib.so")
    member.walk(lambda first: [(100, 200), (2_000_000, 2_000_100)], lambda piece: None)
    for begin, size in ((150, 20), (2_000_050, 50), (7, 5), (2_999_990, 100), (3_000_000, 5)):
        assert member.read(begin, size) == data[begin : begin + size]


def test_large_archives_with_zip64_fields() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, archive.open("big", "w", force_zip64=True) as member:
        member.write(b"data" * 100)
    assert opened(stream.getvalue()).read("big") == b"data" * 100


@pytest.mark.long
def test_seventy_thousand_members() -> None:
    """Written by hand: zipfile takes longer to write them than all other tests together."""
    local, directory = bytearray(), bytearray()
    for number in range(70_000):
        name = f"d/{number}".encode()
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, len(local)
        )
        directory += name
        local += struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 70_000, 70_000, len(directory), len(local))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(local) + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), len(local), 0)
    data = bytes(local + directory) + wide + locator + end
    with zipfile.ZipFile(io.BytesIO(data)) as reference:
        assert len(reference.namelist()) == 70_000
    assert len(opened(data).members) == 70_000


@pytest.mark.parametrize(
    "name", ["../evil.so", "a/../../evil.so", "/etc/passwd", "C:/evil.dll", "a\\b.dll", "a\nb", "lib\0.so"]
)
def test_a_name_that_leaves_the_folder_or_fools_the_eye(name: str) -> None:
    placeholder = "n" * len(name.encode())
    data = made({placeholder: b"x"}).replace(placeholder.encode(), name.encode())
    with pytest.raises(BadInput, match=r"leaves its folder|unusable name"):
        opened(data)


def test_the_same_name_twice() -> None:
    data = made({"a.so": b"one", "b.so": b"two"}).replace(b"b.so", b"a.so")
    with pytest.raises(BadInput, match="twice"):
        opened(data)


def test_a_link() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        info = zipfile.ZipInfo("lib.so")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(BadInput, match="link"):
        opened(stream.getvalue())


def test_two_members_over_the_same_bytes() -> None:
    data = bytearray(made({"a.so": b"x" * 100, "b.so": b"y" * 100}))
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    struct.pack_into("<L", data, second + 42, 0)
    with pytest.raises(BadInput, match="members that overlap"):
        opened(bytes(data))


def test_a_size_that_lies() -> None:
    data = bytearray(made({"a.so": b"x" * 5000}))
    directory = data.index(b"PK\1\2")
    for lie in (10, 4_000_000):
        struct.pack_into("<L", data, directory + 24, lie)
        with pytest.raises(BadInput):
            opened(bytes(data)).read("a.so")


def test_a_zip_bomb_is_not_inflated() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("lib.so", "w") as member:
        for _ in range(80):
            member.write(bytes(1 << 20))
    with pytest.raises(BadInput, match="archive bomb"):
        opened(stream.getvalue()).read("lib.so", limit=1 << 30)


def test_damaged_data_is_noticed() -> None:
    data = bytearray(made({"a.so": bytes(range(256)) * 100}, stored=True))
    data[400] ^= 1
    with pytest.raises(BadInput, match="checksum"):
        opened(bytes(data)).read("a.so")


@pytest.mark.parametrize("keep", [0, 3, 21, 60, 200])
def test_a_truncated_download(keep: int) -> None:
    with pytest.raises(BadInput):
        opened(made({"a.so": b"x" * 300}, stored=True)[:keep])


def test_a_header_with_another_name() -> None:
    data = bytearray(made({"a.so": b"one"}))
    data[30:34] = b"z.so"
    with pytest.raises(BadInput, match="another name"):
        opened(bytes(data)).read("a.so")


def test_a_directory_that_claims_millions() -> None:
    data = bytearray(made({"a.so": b"x"}))
    end = data.rindex(b"PK\5\6")
    struct.pack_into("<HH", data, end + 8, 65000, 65000)
    with pytest.raises(BadInput):
        opened(bytes(data))


def test_a_record_is_read_with_quoted_names(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    lines = b'"a,b.py",sha256=abc,3\nx-1.dist-info/RECORD,,\n'
    path.write_bytes(made({"a,b.py": b"1+1", "x-1.dist-info/RECORD": lines}))
    with open_package(path) as package:
        entries = record(package)
    assert entries is not None
    assert [(entry.path, entry.size) for entry in entries] == [("a,b.py", 3), ("x-1.dist-info/RECORD", None)]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        File(tmp_path / "nothing.whl")
    with pytest.raises(NotFound):
        File(tmp_path)
