"""What was judged is what is installed: a wheel has one reading, the one that pip has too, or it is refused."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from rekindle.core.errors import BadInput
from rekindle.core.findings import State
from rekindle.formats import zip_writer
from rekindle.formats.access import Buffer
from rekindle.formats.archive import Archive
from rekindle.formats.package import Wheel, open_package, unpack
from rekindle.wheels.verify.verify import NumberedCheck, verify
from support import odd_zips, small_wheels
from support.artefacts import needs_environments
from support.odd_zips import Part

GOOD, EVIL = Part(name="demo/a.py", data=b"good = 1"), Part(name="demo/a.py", data=b"evil = 1")
ANY = "demo-1.0-py3-none-any.whl"


def refused(data: bytes, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        Archive(Buffer(data, "demo.whl"))
    assert caught.value.hint


def test_two_directories() -> None:
    data = odd_zips.two_directories([GOOD], [EVIL])
    assert zipfile.ZipFile(io.BytesIO(data)).read("demo/a.py") == b"evil = 1"
    refused(data, "another directory")


def test_a_zip64_record_that_nothing_announces() -> None:
    data = odd_zips.stray_locator([GOOD], [Part(name="demo/b.py", data=b"evil = 1")])
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["demo/b.py"]
    refused(data, "zip64 record that its end record does not announce")


def test_a_zip64_record_that_is_announced_and_missing() -> None:
    body, places = odd_zips.members([GOOD])
    listed = odd_zips.directory([GOOD], places)
    refused(body + listed + odd_zips.end(0xFFFF, len(listed), len(body)), "no zip64 record")


def test_two_end_records_that_differ() -> None:
    body, places = odd_zips.members([GOOD])
    listed = odd_zips.directory([GOOD], places)
    at = len(body) + len(listed)
    wide = odd_zips.END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(listed), len(body))
    locator = odd_zips.LOCATOR.pack(b"PK\6\7", 0, at, 1)
    good = body + listed + wide + locator
    assert Archive(Buffer(good + odd_zips.end(0xFFFF, len(listed), len(body)))).read("demo/a.py") == b"good = 1"
    refused(good + odd_zips.end(0xFFFF, len(listed), len(body) - 7), "two end records")


@pytest.mark.parametrize(
    ("where", "match"),
    [("prefix", "before its first member"), ("gap", "unlisted data"), ("trailing", "data behind its end")],
)
def test_data_that_no_directory_lists(where: str, match: str) -> None:
    hidden, _ = odd_zips.members([EVIL])
    refused(odd_zips.made([GOOD], **{where: hidden}), match)  # type: ignore[arg-type]


def test_a_prefix_that_the_offsets_do_not_count() -> None:
    """`zipfile` corrects the offsets of such a file; others do not."""
    refused(b"#!/bin/sh\n" + odd_zips.made([GOOD]), "another directory")


def test_a_comment_with_another_end_in_it() -> None:
    whole = odd_zips.made([EVIL])
    body, places = odd_zips.members([GOOD])
    listed = odd_zips.directory([GOOD], places)
    refused(body + listed + odd_zips.end(1, len(listed), len(body), comment=whole), "another directory|single, whole")
    refused(body + listed + odd_zips.end(1, len(listed), len(body), comment=b"built by hand"), "data behind its end")


def test_a_member_hidden_between_two_others() -> None:
    """An installer that unpacks while it downloads goes by the headers and never sees the directory."""
    hidden, _ = odd_zips.members([EVIL])
    second = Part(name="demo/b.py", before=hidden)
    refused(odd_zips.made([GOOD, second]), "unlisted data")


@pytest.mark.parametrize(
    "differs",
    [
        {"local_name": b"demo/z.py"},
        {"local_size": 3},
        {"local_crc": 7},
        {"local_method": 8},
        {"local_flags": 0x8},
        {"local_flags": 0x800},
    ],
)
def test_a_header_that_says_something_else(differs: dict[str, object]) -> None:
    part = Part(name="demo/a.py", data=b"good = 1", **differs)  # type: ignore[arg-type]
    refused(odd_zips.made([part]), "does not agree|another name")


def test_sizes_behind_the_data_are_read_and_compared() -> None:
    data = b"good = 1"
    told = struct.pack("<4sLLL", b"PK\7\x08", zlib.crc32(data), len(data), len(data))
    part = Part(name="demo/a.py", data=data, flags=8, local_size=0, local_crc=0, descriptor=told)
    assert Archive(Buffer(odd_zips.made([part]))).read("demo/a.py") == data
    part.descriptor = told[:4] + bytes(12)
    refused(odd_zips.made([part]), "unlisted data")


def test_a_second_name_in_the_extra_field() -> None:
    other = b"demo/evil.py"
    body = struct.pack("<BL", 1, zlib.crc32(b"demo/a.py")) + other
    extra = struct.pack("<HH", 0x7075, len(body)) + body
    refused(odd_zips.made([Part(name="demo/a.py", extra=extra)]), "two names")


def test_a_name_whose_letters_depend_on_the_reader() -> None:
    refused(odd_zips.made([Part(name="", raw_name=b"demo/\x82.py")]), "not UTF-8")
    refused(odd_zips.made([Part(name="", raw_name=b"demo/\xff.py", flags=0x800)]), "not UTF-8")


@pytest.mark.parametrize("flags", [0x1, 0x41, 0x2000])
def test_an_encrypted_member(flags: int) -> None:
    refused(odd_zips.made([GOOD, Part(name="demo/b.py", flags=flags)]), "encrypted")


@pytest.mark.parametrize("second", ["demo/x/y.py", "demo/x/"])
def test_a_file_that_is_also_a_folder(second: str) -> None:
    data = b"" if second.endswith("/") else b"y"
    refused(odd_zips.wheel({"demo/x": b"x", second: data}), "as a file and as the folder")


@pytest.mark.parametrize("name", ["demo//x.py", "./demo/x.py", "demo/./x.py", "demo/\u202egnp.py", "demo/\x1b[2J.py"])
def test_a_name_that_can_be_read_in_two_ways(name: str) -> None:
    refused(odd_zips.wheel({name: b"x"}), "empty part|unusable name")


def test_a_stored_member_with_two_sizes() -> None:
    data = bytearray(odd_zips.made([GOOD]))
    at = data.index(b"PK\1\2")
    struct.pack_into("<L", data, at + 24, 3)
    struct.pack_into("<L", data, 22, 3)
    refused(bytes(data), "two sizes")


@pytest.mark.long
def test_a_bomb_of_many_members() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"demo/{number}.bin", bytes(4 << 20))
    refused(stream.getvalue(), "archive bomb")


def test_what_we_write_has_one_reading() -> None:
    stream = io.BytesIO()
    writer = zip_writer.Writer(stream)
    for name in ("demo/a.py", "demo/é.py", "demo/sub/c.so"):
        writer.add(zip_writer.squeeze(name, [b"data" * 1000]))
    writer.close()
    assert list(Archive(Buffer(stream.getvalue())).members) == ["demo/a.py", "demo/é.py", "demo/sub/c.so"]


def judged(folder: Path, files: dict[str, bytes], *, tag: str = "py3-none-any") -> dict[str, NumberedCheck]:
    info = {
        "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        "demo-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    path = small_wheels.make(folder, {**files, **info}, name=ANY if " " in tag else f"demo-1.0-{tag}.whl")
    return {check.id: check for check in verify(path, run=False).checks}


@pytest.mark.parametrize(
    "files",
    [
        {"demo/a.py": b"1", "demo/A.py": b"2"},
        {"demo/stra\u00dfe.py": b"1", "demo/STRASSE.py": b"2"},
        {"demo/\u00e9.py": b"1", "demo/e\u0301.py": b"2"},
        {"demo/CON.py": b"1"},
        {"demo/aux": b"1"},
        {"demo/com1.tar.gz": b"1"},
        {"demo/x.py:ads": b"1"},
        {"demo/x.py.": b"1"},
        {"demo /x.py": b"1"},
        {"demo/what?.py": b"1"},
    ],
)
def test_names_that_pip_cannot_put_on_a_windows_disk(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert judged(tmp_path, files)["file"].state is State.FAIL
    assert judged(tmp_path, files, tag="cp312-cp312-win_amd64")["file"].state is State.FAIL
    assert judged(tmp_path, files, tag="cp312-cp312-manylinux_2_28_x86_64")["file"].state is State.WARN


def test_ordinary_names_are_fine(tmp_path: Path) -> None:
    files = {"demo/__init__.py": b"1", "demo/console.py": b"2", "demo/.hidden/aux_.h": b"", "demo/x.nul.py": b""}
    assert judged(tmp_path, files)["file"].state is State.PASS


def test_a_wrong_checksum_in_a_member_that_record_does_not_list(tmp_path: Path) -> None:
    path = small_wheels.make(tmp_path, {**small_wheels.FILES}, name=small_wheels.NAME)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("demo/unlisted.txt", b"the contents of a file that nobody lists")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"nobody lists", b"nobody reads"))
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(path).read("demo/unlisted.txt")
    checks = {check.id: check for check in verify(path, run=False).checks}
    assert checks["file"].state is State.FAIL
    assert "checksum" in checks["file"].found


@pytest.mark.parametrize("tag", ["garbage here", "py3 none any", "py3-none", "py3-none-any-more-tags x"])
def test_an_invalid_tag_is_a_failed_check(tmp_path: Path, tag: str) -> None:
    check = judged(tmp_path, {"demo/__init__.py": b""}, tag=f"{tag} ")["tags"]
    assert check.state is State.FAIL
    assert "invalid tag" in check.found


def test_two_sets_of_metadata(tmp_path: Path) -> None:
    files = {"demo/__init__.py": b"", "torch-2.0.dist-info/METADATA": b"Name: torch\nVersion: 2.0\n"}
    check = judged(tmp_path, files)["file"]
    assert check.state is State.FAIL
    assert "2 `.dist-info` folders" in check.found


def test_an_honest_wheel_of_pip_itself_is_read() -> None:
    """The wheels that come with Python were written by others."""
    needs_environments()
    import ensurepip

    found = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("*.whl"))
    if not found:
        pytest.skip("this Python brings no wheels")
    for path in found:
        with open_package(path) as package:
            assert package.files


def test_unpacking_goes_through_the_one_reader(tmp_path: Path) -> None:
    """A wheel that was judged as one thing is not imported as another: `extension` unpacks what it read."""
    good = small_wheels.make(tmp_path, {"demo/a.py": b"x = 1\n", "demo/b/c.py": b""})
    with open_package(good) as package:
        assert isinstance(package, Wheel)
        unpack(package.archive, tmp_path / "good")
    assert (tmp_path / "good" / "demo" / "a.py").read_bytes() == b"x = 1\n"
    assert (tmp_path / "good" / "demo" / "b" / "c.py").is_file()
    evil = tmp_path / "evil.whl"
    evil.write_bytes(odd_zips.two_directories([GOOD], [EVIL]))
    with pytest.raises(BadInput, match="another directory"), open_package(evil):
        pass
