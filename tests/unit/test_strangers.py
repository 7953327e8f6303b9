"""Inputs of strangers to the newer commands: bundles of tables, caches, build logs, other people's servers."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rekindle.build.configure import compiler_cache, tree
from rekindle.cli.main import run
from rekindle.core import fetch, files, redact
from rekindle.core.errors import BadInput, FetchFailed
from rekindle.diagnose.diagnosis import diagnose_text
from rekindle.diagnose.source import logs_below
from rekindle.extension import build as extension_wheel
from rekindle.fleet import job
from rekindle.fleet.factory import template
from rekindle.formats import ninja_log, unpacking
from rekindle.knowledge import updates
from rekindle.web import report, timeline
from support import pace, small_wheels, trees
from support.command import rekindle_command


def within(limit: float, work: Callable[[], object]) -> None:
    begun = time.process_time()
    work()
    assert time.process_time() - begun < pace.seconds(limit)


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "x" * 200_000,
        "eyJaaaaaaaa-" * 16_000,
        "/" * 200_000,
        "token_a" * 20_000,
        "a://" * 40_000,
        "https://" * 20_000,
        "eyJ-" * 50_000,
        "-----BEGIN PRIVATE KEY-----" * 8_000,
        "docker login " * 15_000,
        "a@" * 99_000,
        "sk-" * 66_000,
        'token=\\"' * 25_000,
        "%3A" * 66_000,
        "mc a " * 40_000,
        "password for a" * 14_000,
        "*:5432:a:" * 22_000,
    ],
)
def test_looking_for_secrets_does_not_take_longer_than_reading(text: str) -> None:
    """A name of 60,000 letters took seven seconds to print."""
    within(4, lambda: redact.redact(text))


def test_secrets_are_still_found() -> None:
    assert redact.secrets("git+https://me:pass@host/x") == "git+https://<secret>@host/x"
    assert redact.secrets("'ssh://me:pass@host'") == "'ssh://<secret>@host'"
    token = "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeK"
    assert token not in redact.secrets(f"got {token} back")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lines.log", '["a\\naaa' * 1500 + "\n"),
        ("spaces.log", "- " + " " * 11_900 + '"\\\n'),
        ("script", "\n" * 200_000 + "FROM x\n"),
        ("Dockerfile", "FROM x\n" + "\n" * 50_000 + "SHELL [\n"),
        ("METADATA", "Requires-Dist: torch == 1" + "\t" * 20_000 + "x\n"),
        ("version.py", "cuda: " + " " * 200_000),
    ],
)
def test_no_pattern_runs_away(tmp_path: Path, name: str, text: str) -> None:
    """The first of these took hours, the others minutes."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".log":
        within(3, lambda: rekindle_command("diagnose", str(path)))
    elif name in ("METADATA", "version.py"):
        plain = {"demo-1.0.dist-info/METADATA": "Name: demo\nVersion: 1.0\n", "demo-1.0.dist-info/WHEEL": ""}
        named = {"METADATA": "demo-1.0.dist-info/METADATA", "version.py": "torch/version.py"}[name]
        with zipfile.ZipFile(tmp_path / "demo-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in {**plain, named: plain.get(named, "") + text}.items():
                archive.writestr(member, content)
        within(3, lambda: rekindle_command("inspect", str(tmp_path / "demo-1.0-py3-none-any.whl")))
    else:
        within(5, lambda: rekindle_command("review", str(path)))


# --- build logs ------------------------------------------------------------------------------------------------------


def test_a_build_of_a_thousand_years_has_few_ticks() -> None:
    log = b"# ninja log v6\n" + b"".join(b"0\t2147483647\t0\to%d\ta%d\n" % (n, n) for n in range(300))
    log += b"0\t99999999999999\t0\tlate\tb\n"
    found = timeline.timeline(ninja_log.parse(log))
    assert len(found.bars) == 300, "Ninja counts in 32 bits"
    assert len(report._ticks(1e12, 1.0)) < 20


def test_thousands_of_commands_at_one_time() -> None:
    log = b"# ninja log v6\n" + b"".join(b"0\t%d\t0\to%d\ta%d\n" % (1000 + n, n, n) for n in range(20_000))
    steps = ninja_log.parse(log)
    within(3, lambda: timeline.timeline(steps))


@pytest.mark.parametrize("line", [b"arning " + b"/" * 300_000, b"warning " * 40_000, b"CMake Warning:" * 20_000])
def test_a_line_of_a_build_log_without_end(tmp_path: Path, line: bytes) -> None:
    """Each of these took minutes to look for warnings in."""
    (tmp_path / "build.log").write_bytes(line)
    within(1, lambda: report.read_warnings([tmp_path / "build.log"]))


def test_thousands_of_lines_that_may_be_a_cause() -> None:
    """Each was held against all around it; nothing that was found out about a line was kept for the next."""

    def cost(lines: int) -> float:
        begun = time.process_time()
        diagnose_text("".join(f"ImportError: ::: {number % 50}\n" for number in range(lines)))
        return time.process_time() - begun

    cost(50)  # what is made once for all logs
    few = min(cost(3_000) for _ in range(3))
    assert cost(30_000) < 5 * few, "of ten times the lines only so many are looked at closely"


def test_a_log_does_not_say_which_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, asking for `//host/share/x.dll` logs on to that host; and `mcp` reads in allowed folders only."""
    library = tmp_path / "torch" / "lib" / "c10.dll"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"MZ")
    asked: list[str] = []
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: asked.append(str(path)) or real(path, **how))
    said = f"FileNotFoundError: Could not find module '{library}' (or one of its dependencies). Try the full path."
    assert diagnose_text(said).causes[0].label == "dll_dependency_missing"
    assert not [path for path in asked if "c10.dll" in path]


def test_an_environment_whose_state_leads_out_is_not_even_locked(tmp_path: Path) -> None:
    """A file `lock` was made wherever `.rekindle` led, before the rest was looked at."""
    outside, prefix = tmp_path / "outside", tmp_path / "env"
    (outside / "undo-1").mkdir(parents=True)
    (prefix / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").write_bytes(b"")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n", encoding="ascii")
    trees.link(prefix / ".rekindle", outside, to_folder=True)
    assert run(["install", "--undo", str(prefix)]) == 4
    assert [path.name for path in outside.iterdir()] == ["undo-1"]


# --- bundles of tables -----------------------------------------------------------------------------------------------


def bundle(path: Path, members: dict[str, bytes], **changes: object) -> str:
    manifest = {"schema": updates.SCHEMA, "made_at": "2026-11-01", "tables": {}} | changes
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"bundle.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(path: Path, sha256: str | None, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        updates.take(path, sha256)
    assert caught.value.hint


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_UPDATES", str(tmp_path / "home"))


@pytest.mark.parametrize("name", ["../../evil.json", "/tmp/evil.json", "gpu/../../evil.json", "C:\\evil.json"])
def test_a_bundle_that_leads_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / "b.zip"
    data = b"{}"
    sha256 = bundle(path, {name: data}, tables={name: hashlib.sha256(data).hexdigest()})
    refused(path, sha256, "not a table that an update may bring|does not name|lacks")
    assert not list(tmp_path.rglob("evil.json"))


@pytest.mark.parametrize("how", ["encrypted", "method", "deflate"])
def test_a_bundle_that_zipfile_cannot_read(tmp_path: Path, how: str) -> None:
    """Each of these was an internal error."""
    path = tmp_path / "b.zip"
    bundle(path, {"gpu/gpus.json": bytes(1000)})
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    local = data.rindex(b"PK\x03\x04")
    if how == "encrypted":
        data[entry + 8] |= 1
        data[local + 6] |= 1
    elif how == "method":
        data[entry + 10] = data[local + 8] = 99
    else:
        data[local + 30 + len("gpu/gpus.json")] = 0xFF
    path.write_bytes(data)
    refused(path, hashlib.sha256(data).hexdigest(), "not a whole zip|is packed as no bundle")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_bundle_is_packed_as_ours_are(tmp_path: Path, method: int) -> None:
    """A damaged one of these was an internal error."""
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("bundle.json", b"{}")
    refused(path, hashlib.sha256(path.read_bytes()).hexdigest(), "is packed as no bundle")


@pytest.mark.parametrize(
    "text",
    [
        "build-system = 5\n",
        "[build-system]\nrequires = 5\n",
        "[build-system]\nrequires = [1]\n",
        '[build-system]\nrequires = ["--index-url=http://127.0.0.1:9"]\n',
    ],
)
def test_a_project_gives_pip_no_options(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput):
        extension_wheel.build_requirements(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["torch", "x>=1"]\n', encoding="utf-8")
    assert extension_wheel.build_requirements(tmp_path) == ["x>=1", "ninja"]


@pytest.mark.parametrize("day", ["9999-99-99", "2027-02-30", "２０２７-01-20", "2027-1-2"])
def test_a_day_that_is_none(tmp_path: Path, day: str) -> None:
    path = tmp_path / "b.zip"
    refused(path, bundle(path, {}, made_at=day), "made_at")


def test_of_a_folder_only_the_tables_are_read(tmp_path: Path) -> None:
    """Somebody's whole disk may lie beside `bundle.json`, and a pipe may be called like a table."""
    folder = tmp_path / "folder"
    (folder / "gpu").mkdir(parents=True)
    (folder / "huge").write_bytes(b"")
    with (folder / "huge").open("r+b") as stream:
        stream.truncate(100 << 20)
    manifest = {"schema": updates.SCHEMA, "made_at": "2026-11-01", "tables": {"gpu/gpus.json": "0" * 64}}
    (folder / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    refused(folder, None, "lacks `gpu/gpus.json`")
    manifest["tables"] = {"../secret": "0" * 64}
    (folder / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    refused(folder, None, "not a table")


# --- caches of compiled objects --------------------------------------------------------------------------------------

OWN = compiler_cache.CacheIdentity(
    launcher="ccache version 4.7.5", system="linux", arch="x86_64", build="/w", source="/s", compilers={}, arch_list="",
    options={},
)  # fmt: skip
ENTRY = "b/7/4b19v5lm5ill9tq7dehmqa10di3c6doR"


def cache(path: Path, more: bytes, entries: int = 1, size: int = 0) -> Path:
    from rekindle.core import codec

    manifest = compiler_cache.CacheManifest(identity=OWN, entries=entries, size=size)
    path.write_bytes(member("manifest.json", tarfile.REGTYPE, codec.to_json(manifest).encode()) + more + bytes(1024))
    return path


def member(name: str, kind: bytes, body: bytes = b"") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body)
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)


def test_a_sparse_entry_is_refused(tmp_path: Path) -> None:
    """A kilobyte that says it is a gigabyte of nothing would be written as one."""
    sparse = bytearray(member(ENTRY, tarfile.GNUTYPE_SPARSE))
    sparse[483:495] = b"00010000000\0"
    total = 256 + sum(sparse[:148]) + sum(sparse[156:512])
    sparse[148:156] = b"%06o\0 " % total
    place = cache(tmp_path / "c.tar", bytes(sparse), size=1 << 21)
    with pytest.raises(BadInput, match="no entry of a cache"):
        compiler_cache.bring(place, tmp_path / "here", OWN)
    assert not list(tmp_path.rglob("*doR"))


def test_a_row_of_headers_in_a_cache(tmp_path: Path) -> None:
    row = member("x", tarfile.GNUTYPE_LONGNAME, b"a\0") * 3000
    with pytest.raises(BadInput, match="not a cache"):
        compiler_cache.bring(cache(tmp_path / "c.tar", row), tmp_path / "here", OWN)


@pytest.mark.parametrize(
    "data",
    [
        member("x", tarfile.GNUTYPE_LONGNAME, b"a\0") * 3000 + bytes(1024),
        member("a", tarfile.REGTYPE, b"x" * 600)[:700],
        member("a", tarfile.GNUTYPE_SPARSE) + bytes(1024),
        member("a", tarfile.SYMTYPE) + bytes(1024),
        member("x", tarfile.GNUTYPE_LONGNAME, b"n" * 300 + b"\0") + member("n", tarfile.REGTYPE, b"x") + bytes(1024),
        member("a", tarfile.REGTYPE, b"x") + member("a/b", tarfile.REGTYPE, b"x") + bytes(1024),
        member("a/b", tarfile.REGTYPE, b"x") + member("a", tarfile.REGTYPE, b"x") + bytes(1024),
    ],
    ids=["a row of headers", "cut off", "sparse", "a link", "a long name", "a file as a folder", "a folder as a file"],
)
def test_a_source_sent_to_a_worker(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadInput) as caught:
        job.unpack_source(data, tmp_path / "in")
    assert caught.value.hint


def test_a_cache_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "here" / "cc" / "b" / "7").mkdir(parents=True)
    (tmp_path / "here" / "cc" / ENTRY).symlink_to(victim)
    place = cache(tmp_path / "c.tar", member(ENTRY, tarfile.REGTYPE, b"evil"), size=4)
    compiler_cache.bring(place, tmp_path / "here", OWN)
    assert not victim.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "victims").mkdir()
    (tmp_path / "other" / "cc").symlink_to(tmp_path / "victims", target_is_directory=True)
    if not files.is_link(tmp_path / "other" / "cc"):
        pytest.skip("UNVERIFIED: what this system makes of a link to a folder is no link")
    with pytest.raises(BadInput, match="is a link"):
        compiler_cache.bring(place, tmp_path / "other", OWN)


# --- other people's servers ------------------------------------------------------------------------------------------


class Hostile(BaseHTTPRequestHandler):
    """Answers as nobody should: without an end, too slowly, or with a request to wait for a year."""

    def do_GET(self) -> None:
        if self.path == "/later":
            self.send_response(503)
            self.send_header("Retry-After", "31536000")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/head":
            with contextlib.suppress(OSError):
                for _ in range(300):
                    self.wfile.write(b"H")
                    time.sleep(0.1)
            return
        self.send_response(206 if self.headers.get("Range") else 200)
        self.send_header("Content-Range", "bytes 0-0/" + ("9" * 5000 if self.path == "/digits" else "1000"))
        self.end_headers()
        try:
            for _ in range(20_000):
                self.wfile.write(bytes(1 << 16))
                if self.path == "/slow":
                    time.sleep(0.2)
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_answer_without_an_end(server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="sends more than"):
        fetch.fetch_range(f"{server}/x", 0, 100)
    with pytest.raises(FetchFailed, match="sends more than"):
        fetch.fetch_small(f"{server}/x", most=100_000)
    with pytest.raises(FetchFailed, match="larger than"):
        fetch.download(f"{server}/x", tmp_path / "x", most=1 << 20)
    assert not list(tmp_path.glob("x*"))
    with pytest.raises(FetchFailed):
        fetch.content_length(f"{server}/digits")


def test_an_answer_that_trickles(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_PATIENCE", 0.5)
    with monkeypatch.context() as slower:
        slower.setattr(fetch, "_TRICKLE", 1 << 40)
        with pytest.raises(FetchFailed, match="too slowly"):
            fetch.fetch_small(f"{server}/slow", most=1 << 40)
        with pytest.raises(FetchFailed, match="too slowly"):
            fetch.download(f"{server}/slow", tmp_path / "x")
    monkeypatch.setattr(fetch, "_SLOWEST", 1 << 40)
    with pytest.raises(FetchFailed, match="too slowly"):
        fetch.fetch_small(f"{server}/slow", most=1 << 30)


def test_an_answer_that_never_begins(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of its head came in time for the socket."""
    monkeypatch.setattr(fetch, "_PATIENCE", 0.5)
    with pytest.raises(FetchFailed, match="did not begin"):
        fetch.fetch_small(f"{server}/head", most=1000)
    with pytest.raises(FetchFailed, match="did not begin"):
        fetch.download(f"{server}/head", tmp_path / "x")
    with pytest.raises(FetchFailed, match="did not begin"):
        fetch.content_length(f"{server}/head")


def test_a_server_that_asks_to_wait_for_a_year(server: str, waits: Any) -> None:
    waits.slept.clear()
    with pytest.raises(FetchFailed):
        fetch.fetch_small(f"{server}/later", most=1000)
    assert waits.slept and sum(waits.slept) < 60


# --- files that never end --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
@pytest.mark.parametrize(
    "verb", [("inspect",), ("build",), ("verify", "--no-run"), ("plan", "--from"), ("fleet", "plan")]
)
def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path, verb: tuple[str, ...]) -> None:
    pipe = tmp_path / "torch-2.7.1-cp311-cp311-linux_x86_64.whl"
    os.mkfifo(pipe)
    seen = rekindle_command(*verb, str(pipe))
    assert seen.code in (2, 4, 14) and "error" in seen.err


@pytest.mark.parametrize("size", ["-60", "99999999", "1e3", ""])
def test_a_debian_package_with_an_impossible_size(tmp_path: Path, size: str) -> None:
    """A negative one led back to the header itself, for ever."""
    path = tmp_path / "a.deb"
    header = f"{'control.tar.xz':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode()
    path.write_bytes(b"!<arch>\n" + header + b"x" * 60)
    with pytest.raises(BadInput):
        list(unpacking.entries(path))


@pytest.mark.long
def test_a_log_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    """Four gigabytes of nothing lay in eight megabytes."""
    log = tmp_path / "build.log.gz"
    with gzip.open(log, "wb", compresslevel=9) as stream:
        for _ in range(120):
            stream.write(b"\n" * (1 << 20))
    seen = rekindle_command("diagnose", str(log))
    assert (seen.code, "unpacks to more than" in seen.err) == (4, True)


@pytest.mark.skipif(os.name == "nt", reason="a shell's pipes are of POSIX")
def test_what_a_shell_hands_over_is_read_once() -> None:
    """`rekindle diagnose <(make 2>&1)`: the first bytes were lost."""
    reading, writing = os.pipe()
    os.write(writing, b"nvcc fatal   : Unsupported gpu architecture 'compute_35'\n")
    os.close(writing)
    seen = rekindle_command("diagnose", f"/dev/fd/{reading}", "--json")
    os.close(reading)
    assert seen.json()["causes"][0]["evidence"][0]["text"].startswith("nvcc fatal")


# --- packages and environments ---------------------------------------------------------------------------------------

NESTED = "(" * 900 + 'os_name == "x"' + ")" * 900


@pytest.mark.parametrize("marker", ["(" * 60_000, NESTED, 'os_name ~= "x"', 'os_name == "x" and ' + NESTED])
@pytest.mark.parametrize("verb", [("inspect",), ("verify", "--no-run")])
def test_what_a_wheel_asks_for_may_be_anything(tmp_path: Path, verb: tuple[str, ...], marker: str) -> None:
    metadata = f"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: a ; {marker}\n"
    wheel = small_wheels.make(tmp_path, {**small_wheels.FILES, "demo-1.0.dist-info/METADATA": metadata.encode()})
    seen = rekindle_command(*verb, str(wheel))
    assert seen.code in (0, 8, 9)
    assert "demo" in seen.out


def test_a_wheel_that_asks_for_everything(tmp_path: Path) -> None:
    metadata = "Name: demo\nVersion: 1.0\n" + "".join(f"Requires-Dist: a{n} ; os_name=='x'\n" for n in range(10_000))
    wheel = small_wheels.make(tmp_path, {**small_wheels.FILES, "demo-1.0.dist-info/METADATA": metadata.encode()})
    seen = rekindle_command("inspect", str(wheel))
    assert seen.code == BadInput.exit_code
    assert "more than 10,000 fields" in seen.err


@pytest.mark.parametrize(("parts", "lines"), [(3000, 1), (9, 5000)])
def test_tags_that_stand_for_millions(tmp_path: Path, parts: int, lines: int) -> None:
    short = "-".join(".".join(f"{word}{n}" for n in range(parts)) for word in ("cp", "abi", "any"))
    text = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {short}{n}\n" for n in range(lines))
    wheel = small_wheels.make(tmp_path, {**small_wheels.FILES, "demo-1.0.dist-info/WHEEL": text.encode()})
    seen = rekindle_command("verify", "--no-run", str(wheel))
    assert seen.code == 8
    assert "invalid tag" in seen.out


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages of a stranger's environment, `env`."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").write_text("", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="utf-8")
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    return site


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_a_module_whose_name_is_no_text(site: Path, tmp_path: Path) -> None:
    (site / os.fsdecode(b"\xff\xfe.so")).write_bytes(b"\x7fELF\2\1\1" + bytes(100))
    seen = rekindle_command("audit", str(tmp_path / "env"), "--json")
    assert seen.json()["examined"] == 1


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_an_environment_that_holds_what_holds_it(site: Path, tmp_path: Path) -> None:
    """A link to `/` had all of the disk read."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.so").write_bytes(b"\x7fELF")
    trees.link(site / "all", tmp_path, to_folder=True)
    assert rekindle_command("audit", str(tmp_path / "env"), "--json").json()["examined"] == 0
    trees.link(site / "own", tmp_path / "elsewhere", to_folder=True)
    assert rekindle_command("audit", str(tmp_path / "env"), "--json").json()["examined"] == 1


@pytest.mark.skipif(os.name == "nt", reason="an environment of Linux")
def test_a_torch_that_does_not_say_what_it_is(site: Path, tmp_path: Path) -> None:
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("nothing", encoding="utf-8")
    seen = rekindle_command("audit", str(tmp_path / "env"))
    assert seen.code == BadInput.exit_code
    assert "install torch again" in seen.err


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("count = 1", "count = 999999999999"),
        ("count = 1", "count = 0"),
        ('capabilities = [\n    "3.5",\n]', "capabilities = []"),
        ("[wish]", '[[cards]]\nname = "x"\ncapabilities = ["3.5"]\n' * 256 + "[wish]"),
    ],
)
def test_cards_that_no_machine_has(tmp_path: Path, good: str, bad: str) -> None:
    plan = tmp_path / "plan.toml"
    words = ("--os", "linux", "--python", "3.11", "--driver", "470.256.02")
    assert rekindle_command("plan", "--gpu", "Tesla K40c", *words, "-o", str(plan)).code == 0
    text = plan.read_text(encoding="utf-8")
    assert good in text
    plan.write_text(text.replace(good, bad, 1), encoding="utf-8")
    seen = rekindle_command("plan", "--from", str(plan))
    assert seen.code == BadInput.exit_code
    assert "cards" in seen.err


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """1,500 folders, one in the other: deeper than Python's stack."""
    top, here = tmp_path / "deep", os.open(tmp_path, os.O_RDONLY)
    for number in range(1500):
        name = "d" if number else "deep"
        os.mkdir(name, dir_fd=here)
        inside = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inside
    with os.fdopen(os.open("x.log", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here), "w") as log:
        log.write("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n")
    os.close(here)
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such paths")
def test_folders_deeper_than_the_stack(deep: Path) -> None:
    """An internal error of `diagnose`, `inspect`, `fleet plan` and `install --undo`."""
    assert len(logs_below(deep)) == 1 and len(list(files.below(deep))) == 1
    assert len(tree.names(deep)) == 1
    assert rekindle_command("inspect", str(deep)).code != 1


def test_a_source_that_is_no_source_is_not_read(tmp_path: Path) -> None:
    """A file of 6 GB among a project's was read into memory to plan the fleet."""
    project = tmp_path / "mine"
    project.mkdir()
    with (project / "data.bin").open("wb") as data:
        data.truncate(1 << 40)
    with pytest.raises(BadInput, match="MiB of files"):
        job.digest_source(project)
    matrix = tmp_path / "matrix.toml"
    matrix.write_text('project = "mine"\n[projects.mine]\nsource = "mine"\n', encoding="utf-8")
    with pytest.raises(BadInput, match="MiB of files"):
        template.init(tmp_path / "factory", matrix=matrix)
