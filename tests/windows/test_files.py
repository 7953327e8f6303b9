r"""Writing, replacing and reading files as Windows lets one: sharing, read-only, long and odd names.

Wine cannot vouch for: the limit of 260 characters itself (Wine has none: the `\\?\` spelling is tested, not that it is
needed); virus scanners and indexers; reserved names such as `NUL.txt`; access lists; alternate streams; names
that differ in case only, on drive H: of the bench (that is a Linux file system).
"""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rekindle.core import files
from rekindle.core.errors import NotFound, NotWritable


def test_temporary_files_lie_below_a_user_folder_beyond_ascii(tmp_path: Path) -> None:
    file = tmp_path / "Grüße 日本.txt"
    files.write_text(file, "naïve – 日本\n")
    assert file.read_bytes() == "naïve – 日本\n".encode()
    assert files.read_bytes(file) == "naïve – 日本\n".encode()


def test_line_ends_are_written_as_asked_and_not_as_windows_likes(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a.sh", "one\ntwo\n")
    files.write_text(tmp_path / "a.cmd", "one\r\ntwo\n", newline="\r\n")
    assert (tmp_path / "a.sh").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "a.cmd").read_bytes() == b"one\r\ntwo\r\n"


def test_a_file_that_another_program_has_open_is_replaced_when_it_lets_go(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("old", encoding="utf-8")
    hold = "import sys, time; f = open(sys.argv[1]); print('open', flush=True); time.sleep(0.8)"
    with subprocess.Popen([sys.executable, "-c", hold, str(file)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"open"
        files.write_text(file, "new")
    assert file.read_text(encoding="utf-8") == "new"


def test_a_file_that_stays_open_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("old", encoding="utf-8")
    begun = time.monotonic()
    with file.open("rb"), pytest.raises(NotWritable, match=r"plan\.toml") as caught:
        files.write_text(file, "new")
    assert 1.5 < time.monotonic() - begun < 10
    assert "close the program" in str(caught.value.hint)
    assert file.read_text(encoding="utf-8") == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["plan.toml"], "half a file is left beside it"


def test_a_reader_sees_the_old_or_the_new_and_never_half(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    texts = {letter * 20000 for letter in "ab"}
    files.write_text(file, "a" * 20000)
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(files.read_bytes(file).decode())
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(20):
            files.write_text(file, "ab"[number % 2] * 20000)
    finally:
        done.set()
        reader.join()
    assert seen <= texts


def test_a_read_only_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "CMakeLists.txt"
    file.write_text("old", encoding="utf-8")
    file.chmod(stat.S_IREAD)
    files.write_text(file, "new")
    assert file.read_text(encoding="utf-8") == "new"


def test_paths_beyond_260_characters(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a folder with a long name " + "x" * 30] * 6, "file.txt")
    assert len(str(deep)) > 330
    assert str(files.reachable(deep)).startswith("\\\\?\\")
    files.write_text(deep, "far down")
    assert files.read_bytes(deep) == b"far down"
    assert files.reachable(tmp_path / "short") == tmp_path / "short"


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("C:/" + "d/" * 130 + "f", "\\\\?\\C:\\" + "d\\" * 130 + "f"),
        ("//server/share/" + "d/" * 130 + "../f", "\\\\?\\UNC\\server\\share\\" + "d\\" * 129 + "f"),
        ("\\\\?\\C:\\" + "d\\" * 130 + "f", "\\\\?\\C:\\" + "d\\" * 130 + "f"),
    ],
)
def test_the_spelling_of_a_long_path(given: str, spelled: str) -> None:
    assert str(files.reachable(Path(given))) == spelled


def test_a_folder_or_nothing_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is a folder"):
        files.read_bytes(tmp_path)
    with pytest.raises(NotFound, match="no such file"):
        files.read_bytes(tmp_path / "nothing.txt")
