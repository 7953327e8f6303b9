"""ELF, PE, static archives, ninja logs and files on the web, read and compared with independent readers."""

from __future__ import annotations

import http.server
import io
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pefile
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from rekindle.core.errors import BadInput, FetchFailed
from rekindle.formats import binary, elf, fatbin, ninja_log, pe, static
from rekindle.formats.access import Buffer, File
from rekindle.formats.archive import Archive
from rekindle.formats.binary import is_binary
from rekindle.formats.remote import Remote
from rekindle.machine.host import Host
from rekindle.machine.toolchain.cudnn import code_of, targets_of
from support.artefacts import unverified
from support.elves import library as library_of
from support.fatbins import container


def extension_modules() -> list[Path]:
    found = sorted((Path(sysconfig.get_path("stdlib")) / "lib-dynload").glob("*.so"))
    if not found:
        unverified("this Python has no ELF extension modules")
    return found[:12]


def test_elf_agrees_with_pyelftools() -> None:
    for path in extension_modules():
        with File(path) as file, path.open("rb") as stream:
            mine, symbols = elf.read(file), elf.symbols(file)
            theirs = ELFFile(stream)
            dynamic = next(s for s in theirs.iter_sections() if isinstance(s, DynamicSection))
            tags = list(dynamic.iter_tags())
            assert mine.needed == tuple(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED")
            needs = next((s for s in theirs.iter_sections() if isinstance(s, GNUVerNeedSection)), None)
            rows = needs.iter_versions() if needs else []
            wanted = {need.name: tuple(sorted(a.name for a in names)) for need, names in rows}
            assert mine.versions == wanted
            table = theirs.get_section_by_name(".dynsym")
            every = [s for s in table.iter_symbols() if s.name]
            assert symbols.defined == {s.name for s in every if s.entry.st_shndx != "SHN_UNDEF"}
            assert symbols.undefined | symbols.weak == {s.name for s in every if s.entry.st_shndx == "SHN_UNDEF"}
            assert {name for name, _, _ in elf.sections(file)} >= {".dynsym", ".dynstr", ".text"}


def test_the_newest_symbol_version_is_the_floor() -> None:
    found = elf.Elf(
        name="x",
        machine="x86_64",
        bits=64,
        kind="library",
        versions={"libc.so.6": ("GLIBC_2.9", "GLIBC_2.17", "GLIBC_X")},
    )
    assert str(found.floor("GLIBC")) == "2.17"
    assert found.floor("GLIBCXX") is None


def windows_programs() -> list[Path]:
    folder = Path(sysconfig.get_path("purelib"))
    found = [*folder.glob("setuptools/*.exe"), *folder.glob("pip/_vendor/distlib/*.exe")]
    if not found:
        unverified("no small Windows program is at hand")
    return found


def test_pe_agrees_with_pefile() -> None:
    for path in windows_programs():
        with File(path) as file:
            mine = pe.read(file)
        theirs = pefile.PE(str(path))
        wanted = {
            entry.dll.decode(): tuple(
                f"#{i.ordinal}" if i.import_by_ordinal else i.name.decode() for i in entry.imports
            )
            for entry in getattr(theirs, "DIRECTORY_ENTRY_IMPORT", [])
        }
        assert mine.imports == wanted
        assert mine.bits == (64 if theirs.OPTIONAL_HEADER.Magic == 0x20B else 32)
        theirs.close()


def test_names_of_compiled_files() -> None:
    assert all(
        map(is_binary, ["a/libx.so", "libcudnn.so.9", "libcrypto-54.so.1.1.1k", "C10.DLL", "_C.cp311-win_amd64.pyd"])
    )
    assert not any(map(is_binary, ["a/so.py", "x.so.txt", "notes.some", "README", "lib.sorted"]))


def test_static_archives_name_their_objects() -> None:
    def part(name: bytes, data: bytes) -> bytes:
        return (
            name.ljust(16)
            + b"0".ljust(32)
            + str(len(data)).encode().ljust(10)
            + b"`\n"
            + data
            + b"\n" * (len(data) % 2)
        )

    code = container("sm_35", "sm_50")
    long = b"a_rather_long_name_for_an_object.o/\n"
    data = b"!<arch>\n" + part(b"/", b"\0\0\0\0") + part(b"//", long) + part(b"/0", code) + part(b"short.o/", b"xyz")
    parts = list(static.parts(Buffer(data)))
    assert [(p.name, p.size) for p in parts] == [("a_rather_long_name_for_an_object.o", len(code)), ("short.o", 3)]
    assert [str(t) for c in fatbin.scan(data) for t in c.targets] == ["sm_35", "sm_50"]
    with pytest.raises(BadInput):
        list(static.parts(Buffer(data[:-2] + b"zz" + b"x" * 70)))


def test_a_ninja_log_keeps_the_last_time_of_each_output() -> None:
    log = b"# ninja log v5\n0\t50\t0\ta.o\tabc\n10\t90\t0\tb.o\tdef\n5\t7\t0\ta.o\tabc\n12\thalf a line"
    assert [(s.output, s.milliseconds) for s in ninja_log.parse(log)] == [("b.o", 80), ("a.o", 2)]
    with pytest.raises(BadInput):
        ninja_log.parse(b"hello")


class Ranges(http.server.BaseHTTPRequestHandler):
    """A server that gives ranges of one file, as download servers do."""

    data = b""
    ranges = True

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        if not (self.ranges and wanted.startswith("bytes=")):
            self.send_response(200)
            self.end_headers()
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin = int(first) if first else len(self.data) - int(last)
        end = int(last) + 1 if first and last else len(self.data)
        body = self.data[begin:end]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(self.data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}/x-1-py3-none-any.whl"
        running.shutdown()
        thread.join()


def test_of_a_wheel_on_the_web_only_what_is_needed_is_fetched(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("big.bin", bytes(20_000_000))
        archive.writestr("x-1.dist-info/METADATA", "Name: x\n")
        archive.writestr("lib.so", container("sm_35", "sm_50") + bytes(9_000_000))
    monkeypatch.setattr(Ranges, "data", stream.getvalue())
    monkeypatch.setattr(Ranges, "ranges", True)
    remote = Remote(server)
    assert remote.name == "x-1-py3-none-any.whl"
    found = Archive(remote)
    assert found.read("x-1.dist-info/METADATA") == b"Name: x\n"
    assert remote.fetched < 1_000_000
    stream = fatbin.Stream(found.member("lib.so").size, "lib.so")
    for chunk in found.chunks(found.member("lib.so")):
        stream.push(chunk)
    assert [str(t) for c in stream.finish() for t in c.targets] == ["sm_35", "sm_50"]
    assert remote.fetched < 12_000_000


def test_a_server_without_ranges_is_said_so(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranges, "ranges", False)
    with pytest.raises(FetchFailed, match="ranges"):
        Remote(server)


def test_the_code_of_a_library_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_CACHE", str(tmp_path / "cache"))
    library = tmp_path / "libtorch_cuda.so"
    asked: list[object] = []
    real = binary.read
    monkeypatch.setattr(binary, "read", lambda *args, **named: asked.append(1) or real(*args, **named))
    for target in ("sm_75", "sm_90"):
        library.write_bytes(library_of("x") + container(target))
        for _ in range(2):
            code = code_of(Host(), str(library))
            assert code is not None
            assert [str(one) for one in targets_of((code,))] == [target]
    assert len(asked) == 2
