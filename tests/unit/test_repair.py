from __future__ import annotations

import hashlib
import stat
import struct
import types
import zipfile
from pathlib import Path

import pytest

from rekindle.core import console
from rekindle.core.errors import NotWritable, UsageError
from rekindle.formats import zip_directory, zip_writer
from rekindle.formats.access import File
from rekindle.formats.archive import Archive
from rekindle.wheels.repair import repair, rewrite
from support import small_wheels
from support.command import rekindle_command
from support.crashes import dies_before

LIB = "torch/lib/extra.dat"


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    path = tmp_path / "extra.dat"
    path.write_bytes(b"\0\1\2\3" * 5000 + b"end")
    return path


def test_added_and_removed_files_are_so_in_the_zip_and_in_record(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    seen = rekindle_command(
        "repair",
        str(wheel),
        "-o",
        str(tmp_path / "out"),
        "--add",
        str(extra),
        "--remove",
        "AOTI_custom_ops.txt",
        "--json",
    )
    assert seen.code == 0, seen.err
    answer = seen.json()
    made = tmp_path / "out" / wheel.name
    assert answer["output"] == str(made)
    assert [item["member"] for item in answer["added"]] == [LIB]
    assert answer["removed"] == ["torch/lib/aoti_custom_ops.txt"]
    small_wheels.check_record(made)
    with zipfile.ZipFile(made) as zipped:
        assert zipped.read(LIB) == extra.read_bytes()
        assert "torch/lib/aoti_custom_ops.txt" not in zipped.namelist()


def test_unchanged_files_keep_their_compressed_bytes(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    before = hashlib.sha256(wheel.read_bytes()).hexdigest()
    made = repair.repair(wheel, tmp_path / "out", add=[str(extra)]).output
    assert made is not None
    for name in small_wheels.FILES:
        assert small_wheels.raw(made, name) == small_wheels.raw(wheel, name), name
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == before


def test_two_runs_give_the_same_bytes_whatever_the_clock(
    tmp_path: Path, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    first = repair.repair(wheel, tmp_path / "a", add=[str(extra)]).output
    monkeypatch.setattr("time.time", lambda: 2e9)
    second = repair.repair(wheel, tmp_path / "b", add=[str(extra)]).output
    assert first and second
    assert first.read_bytes() == second.read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    third = repair.repair(wheel, tmp_path / "c", add=[str(extra)]).output
    assert third
    with zipfile.ZipFile(third) as zipped:
        # 2023-11-14 22:13:21 UTC; a zip counts in two seconds.
        assert {info.date_time for info in zipped.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with zipfile.ZipFile(first) as zipped:
        assert {info.date_time for info in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_dry_run_writes_nothing(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--add", str(extra), "--dry-run")
    assert seen.code == 0
    assert "Would be added" in seen.out
    assert not (tmp_path / "out").exists()


def test_a_file_goes_where_it_is_told_and_may_replace_another(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    done = repair.repair(wheel, tmp_path / "out", add=[f"{extra}=torch/lib/c10.txt"])
    assert done.output and done.added[0].replaced
    small_wheels.check_record(done.output)
    with zipfile.ZipFile(done.output) as zipped:
        assert zipped.read("torch/lib/c10.txt") == extra.read_bytes()


@pytest.mark.parametrize("place", ["../evil.py", "/etc/passwd", "torch/../../x", "C:/x", "torch\\lib\\x", "torch//x"])
def test_a_place_outside_the_wheel_is_refused(tmp_path: Path, extra: Path, place: str) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    with pytest.raises(UsageError):
        repair.repair(wheel, tmp_path / "out", add=[f"{extra}={place}"])
    assert not list((tmp_path / "out").glob("*"))


def test_removing_what_is_not_there_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--remove", "aoti_custom_op.txt")
    assert seen.code == 14
    assert "did you mean `aoti_custom_ops.txt`?" in seen.err
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--remove", "METADATA")
    assert seen.code == 2


def test_the_original_is_never_the_output(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    before = wheel.read_bytes()
    assert rekindle_command("repair", str(wheel), "-o", str(wheel.parent), "--add", str(extra)).code == 2
    assert wheel.read_bytes() == before


def test_a_library_for_another_system_is_refused(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    library = tmp_path / "libx.so"
    library.write_bytes(
        b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    )
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--add", str(library))
    assert seen.code == 4
    assert "ELF for x86_64, the wheel PE for x86_64" in seen.err


def test_a_stale_record_is_made_right_and_said_so(tmp_path: Path, extra: Path) -> None:
    stale = small_wheels.record({**small_wheels.FILES, "torch/__init__.py": b"old"})
    lines = [line for line in stale.splitlines() if b"c10" not in line]
    wheel = small_wheels.make(tmp_path / "in", record_bytes=b"\n".join(lines) + b"\nghost.py,sha256=x,1\n")
    done = repair.repair(wheel, tmp_path / "out", add=[str(extra)])
    assert done.output
    small_wheels.check_record(done.output)
    assert "2 files" in done.findings[0].found


def test_pack_names_the_wheel_by_its_metadata(tmp_path: Path) -> None:
    """Seed 001's make_wheel.py left RECORD stale, stored everything, and took any name."""
    root = tmp_path / "unpacked"
    for name, data in small_wheels.FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "torch/__pycache__").mkdir()
    (root / "torch/__pycache__/x.pyc").write_bytes(b"x")
    seen = rekindle_command("repair", "--pack", str(root), "-o", str(tmp_path / "out"), "--json")
    assert seen.code == 0, seen.err
    made = Path(seen.json()["output"])
    assert made.name == small_wheels.NAME
    small_wheels.check_record(made)
    with zipfile.ZipFile(made) as zipped:
        assert {name for name in zipped.namelist() if not name.endswith("RECORD")} == set(small_wheels.FILES)
        assert zipped.getinfo("torch/lib/c10.txt").compress_type == zipfile.ZIP_DEFLATED


def test_sizes_beyond_four_gigabytes_are_written_as_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered so that every member is beyond it; another reader, `zipfile`, must still understand."""
    wheel = small_wheels.make(tmp_path / "in")
    lowered = types.SimpleNamespace(**vars(zip_directory))
    lowered.WIDE = 100
    # Numbers that do not fit are written as 0xFFFFFFFF; with the lowered limit they are written as the limit.
    lowered.LOCAL, lowered.ENTRY, lowered.END = (
        _Wide(real, 100) for real in (zip_directory.LOCAL, zip_directory.ENTRY, zip_directory.END)
    )
    with File(wheel) as file:
        archive = Archive(file)
        made = tmp_path / "out" / wheel.name
        monkeypatch.setattr(zip_writer, "layout", lowered)
        rewrite.rewrite(archive, made, add={LIB: b"new" * 100})
    small_wheels.check_record(made)
    with File(made) as file:
        assert Archive(file).read(LIB) == b"new" * 100


class _Wide:
    """Packs as given, but a number that is the lowered limit becomes the real one."""

    def __init__(self, layout: struct.Struct, limit: int) -> None:
        self._layout, self._limit = layout, limit

    def pack(self, *values: object) -> bytes:
        return self._layout.pack(*(0xFFFFFFFF if value == self._limit else value for value in values))


@pytest.mark.parametrize(
    "member", ["../evil.py", "/abs.py", "C:/x.py", "torch/../../evil.py", "torch\\evil.py", "torch/lib/c10.txt"]
)
def test_hostile_names_are_refused_and_nothing_is_written(tmp_path: Path, member: str) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    with zipfile.ZipFile(wheel, "a") as zipped, pytest.warns() if member in small_wheels.FILES else _quiet():
        info = zipfile.ZipInfo("placeholder")
        info.filename = member
        zipped.writestr(info, b"evil")
    before = wheel.read_bytes()
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--remove", "aoti_custom_ops.txt")
    assert seen.code == 4, seen.err
    assert not (tmp_path / "out").exists()
    assert wheel.read_bytes() == before


def test_a_link_inside_is_refused(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    with zipfile.ZipFile(wheel, "a") as zipped:
        info = zipfile.ZipInfo("torch/lib/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(info, b"/etc/passwd")
    assert rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--remove", "c10.txt").code == 4


def test_sizes_that_lie_leave_no_output(tmp_path: Path) -> None:
    """Directory and header say that a file is smaller than it is; RECORD does not fit, so it has to be inflated."""
    wheel = small_wheels.make(tmp_path / "in")
    data = bytearray(wheel.read_bytes())
    at = data.rfind(b"PK\1\2", 0, data.rfind(b"torch/lib/c10.txt"))
    data[at + 24 : at + 28] = (17).to_bytes(4, "little")
    own = data.find(b"torch/lib/c10.txt") - 30
    data[own + 22 : own + 26] = (17).to_bytes(4, "little")
    wheel.write_bytes(data)
    seen = rekindle_command("repair", str(wheel), "-o", str(tmp_path / "out"), "--remove", "aoti_custom_ops.txt")
    assert seen.code == 4, seen.err
    assert list((tmp_path / "out").iterdir()) == []


def test_not_a_wheel_not_there_and_wrongly_named(tmp_path: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    odd = wheel.with_name("demo-1.0-cp311-cp311-win_amd64 (1).whl")
    odd.write_bytes(wheel.read_bytes())
    cut = wheel.with_name("cut-1.0-py3-none-any.whl")
    cut.write_bytes(wheel.read_bytes()[:-100])
    for path, code in ((odd, 4), (cut, 4), (tmp_path / "no-1.0-py3-none-any.whl", 14), (tmp_path / "no.whl", 14)):
        seen = rekindle_command("repair", str(path), "-o", str(tmp_path / "out"), "--remove", "c10.txt")
        assert seen.code == code, (path, seen.err)
        assert "hint:" in seen.err
        assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = small_wheels.make(tmp_path / "in")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zip_writer.Writer, "close", full)
    with pytest.raises(NotWritable):
        repair.repair(wheel, tmp_path / "out", remove=["c10.txt"])
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_run_left_is_gone_after_the_next(tmp_path: Path, extra: Path) -> None:
    wheel = small_wheels.make(tmp_path / "in")
    out = tmp_path / "out"
    assert dies_before(wheel.name, "repair", str(wheel), "-o", str(out), "--add", str(extra)) == 77
    (left,) = out.iterdir()
    told = f"removed 1 file ({console.size(left.stat().st_size)}) that a killed run had left\n"
    assert left.suffix == ".part"
    seen = rekindle_command("repair", str(wheel), "-o", str(out), "--add", str(extra))
    assert (seen.code, told in seen.err) == (0, True)
    assert [path.name for path in out.iterdir()] == [wheel.name]


class _quiet:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
